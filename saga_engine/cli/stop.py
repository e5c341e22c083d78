"""``saga stop`` and ``saga go``, and what other commands say of stops."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from saga_engine.cli import exit_codes
from saga_engine.cli.from_table import argument, option
from saga_engine.cli.options import ByOption, DebugOption, JsonOption, NoteOption, StoreOption, complete_ids

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Sequence

    from saga_engine.execution.stops import Stop
    from saga_engine.ports import Store

_SagaArgument = Annotated[
    str | None,
    argument("stopCalls", "saga_id", metavar="[ID]", autocompletion=complete_ids),
]
_ToolOption = Annotated[str | None, option("stopCalls", "tool", "--tool", metavar="NAME")]


def stop(
    saga_id: _SagaArgument = None,
    *,
    tool: _ToolOption = None,
    by: ByOption = None,
    note: NoteOption = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Stop all forward calls, those of a tool, or those of a saga, in every process, until 'saga go'.

    When the command returns, no process starts a call whose intent is not in the journal yet. Calls in flight are not
    ended. Undos and probes go on, and a deadline still passes. A stop stays until it is lifted. The name of a tool
    without --tool is refused, unless a saga has this id.

    Examples:
      saga stop --note "the bank is down"
      saga stop --tool charge_card
      saga stop trip-42
    """
    from saga_engine.api.stops import stop as held
    from saga_engine.cli.options import person

    async def work(opened: Store) -> list[Stop]:
        known = partial(_known_tools, store)
        found = await held(opened, tool=tool, saga_id=saga_id, by=person(by), note=note, tools=known)
        if saga_id is not None:
            await _note_unknown(opened, saga_id)
        return found

    return _set(store, work, as_json=as_json)


def go(
    saga_id: _SagaArgument = None,
    *,
    tool: _ToolOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Lift a stop: of all calls, of a tool, or of a saga. Held calls start within about a second.

    Each stop is lifted by itself: 'saga go' does not lift the stop of a tool. Other stops that hold are shown.

    Examples:
      saga go
      saga go --tool charge_card
    """
    from saga_engine.api.stops import go as lifted

    return _set(store, lambda opened: lifted(opened, tool=tool, saga_id=saga_id), as_json=as_json)


def _set(url: str | None, change: Callable[[Store], Awaitable[list[Stop]]], *, as_json: bool) -> int:
    import asyncio

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document
    from saga_engine.cli.read_only import writing_to
    from saga_engine.cli.words import say

    settings = settings_for(url)

    async def work() -> list[Stop]:
        async with writing_to(settings) as store:
            return await change(store)

    found = asyncio.run(work())
    if as_json:
        document({"stops": bodies(found)})
    else:
        data("\n".join(_line(each) for each in found) or say("stop.none"))
    return exit_codes.COMPLETED


def _known_tools(url: str | None) -> Container[str]:
    """The names of the tools of the settings. Tools that cannot be loaded keep nobody from an emergency stop."""
    from saga_engine.cli.options import registry_for, settings_for
    from saga_engine.cli.output import note
    from saga_engine.cli.words import say
    from saga_engine.errors import SagaError

    try:
        return registry_for(settings_for(url))
    except SagaError as error:
        note(say("stop.unknown", why=error.message))
        return ()


async def _note_unknown(store: Store, saga_id: str) -> None:
    """A typing error in an emergency would stop nothing."""
    from saga_engine.cli.output import note, shown
    from saga_engine.cli.words import say
    from saga_engine.errors import SagaNotFound

    try:
        await store.head(saga_id)
    except SagaNotFound:
        note(say("stop.no-saga", saga=shown(saga_id)))


# --- in other commands ---------------------------------------------------------------------------------------------


async def stops_in(store: Any) -> list[Stop]:
    """The stops in a store; none in a copy that has no guards."""
    from saga_engine.execution.stops import read_stops

    return await read_stops(store.guard_store()) if getattr(store, "guard_store", None) is not None else []


def bodies(found: Sequence[Stop]) -> list[dict[str, Any]]:
    """Stops as JSON."""
    return [each._asdict() for each in found]


def tell_stops(found: Sequence[Stop]) -> None:
    """Print the stops that hold, as notes."""
    from saga_engine.cli.output import note
    from saga_engine.cli.words import say

    for each in found:
        note(say("stop.told", stop=_line(each)))


def concerning(found: Sequence[Stop], saga_id: str, tools: Sequence[str]) -> list[Stop]:
    """The stops that hold calls of a saga with these tools."""
    scopes = {"all", f"saga:{saga_id}", *(f"tool:{name}" for name in tools)}
    return [each for each in found if each.scope in scopes]


def _line(each: Stop) -> str:
    from saga_engine.cli.output import shown
    from saga_engine.cli.times import local
    from saga_engine.cli.words import say

    what, _, name = each.scope.partition(":")
    held = say(f"stop.{what}", name=shown(name)) if name else say("stop.all")
    why = say("colon") + shown(each.note, 500) if each.note else ""
    way = f"saga go --tool {shown(name)}" if what == "tool" else f"saga go {shown(name)}" if name else "saga go"
    by = shown(each.by) or say("stop.nobody")
    return say("stop.line", held=held, by=by, when=local(each.at_ms), why=why, way=way)
