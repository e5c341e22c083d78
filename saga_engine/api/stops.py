"""Stop and go: an operator holds all forward calls, those of a tool, or those of a saga, in every process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.errors import SagaNotFound, SettingInvalid
from saga_engine.execution.stops import ALL, Stop, read_stops, scope_of
from saga_engine.ports.machine_clock import machine_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from saga_engine.ports import Store

__all__ = ["ALL", "Stop", "go", "stop", "stops"]

_MAX_NOTE_CHARS = 2000


async def stop(
    store: Store,
    *,
    tool: str | None = None,
    saga_id: str | None = None,
    by: str = "",
    note: str = "",
    tools: Callable[[], Container[str]] = tuple,
) -> list[Stop]:
    """Stop all forward calls, those of a tool, or those of a saga; returns the stops that hold now.

    When it returns, no process starts a call whose intent is not in its journal yet. Calls in flight are not ended;
    undos and probes go on. ``tools`` gives the names of the tools known here: the id of no saga that is the name of a
    tool is refused, because it would stop nothing. Raises ``SettingInvalid``; ``StopIncomplete``, which names the
    partitions of a cluster that did not get it; and ``StoreUnavailable``, after which nobody knows whether it was set.
    Repeat it after both.
    """
    if len(by) > _MAX_NOTE_CHARS or len(note) > _MAX_NOTE_CHARS:
        raise SettingInvalid(f"a stop has at most {_MAX_NOTE_CHARS} characters of who and why")
    scope = _scope(tool, saga_id)
    if saga_id is not None:
        await _refuse_tool(store, saga_id, tools)
    held = Stop(scope, by, note, machine_clock.time_ns() // 1_000_000)
    return _read(await store.guard_store().set_stop(held.scope, held.entry()))


async def go(store: Store, *, tool: str | None = None, saga_id: str | None = None) -> list[Stop]:
    """Lift a stop; returns those that still hold. Held calls start within about a second."""
    return _read(await store.guard_store().set_stop(_scope(tool, saga_id), None))


async def stops(store: Store) -> list[Stop]:
    """The stops that hold now."""
    return await read_stops(store.guard_store())


async def _refuse_tool(store: Store, saga_id: str, tools: Callable[[], Container[str]]) -> None:
    """Refuse the name of a tool where the id of a saga belongs. A saga of that name exists: it is meant."""
    try:
        await store.head(saga_id)
    except SagaNotFound:
        if saga_id in tools():
            raise SettingInvalid(
                f"there is no saga {saga_id}: {saga_id} is a tool, and nothing was stopped",
                hint=f"did you mean --tool {saga_id}? (over HTTP and in Python: tool, not saga_id)",
            ) from None


def _scope(tool: str | None, saga_id: str | None) -> str:
    if tool and saga_id:
        raise SettingInvalid("a stop is of a tool or of a saga", hint="give one of them, or neither for all calls")
    if "" in {tool, saga_id}:
        raise SettingInvalid("a stop of a tool or of a saga needs its name", hint="without a name, leave it out")
    return scope_of(tool, saga_id)


def _read(found: Mapping[str, str]) -> list[Stop]:
    return [Stop.of(scope, entry) for scope, entry in sorted(found.items())]
