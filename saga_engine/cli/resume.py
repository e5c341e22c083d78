"""``saga resume``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.from_table import argument
from saga_engine.cli.options import DebugOption, FullOption, JsonOption, StoreOption, ToolsOption
from saga_engine.cli.search_options import Many, for_many

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.cli.drive import Driven
    from saga_engine.errors import SagaError
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

#: The lists of a report that say what remains of a saga.
_REMAINS = frozenset({"failed", "unresolved", "left_in_place", "semantic"})


@for_many
def resume(
    saga_id: Annotated[str | None, argument("resumeSaga", "saga_id", metavar="ID")] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Every saga that can continue: not ended, and not waiting for an answer.")
    ] = False,
    many: Many = Many(),
    tools: ToolsOption = None,
    store: StoreOption = None,
    full: FullOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Continue a saga from its journal, after a crash, an interrupt or an answer.

    A saga whose owner is provably dead is taken over at once, otherwise when the owner's lease ends. A saga that has
    ended is only shown. If a tool is missing, the saga stays exactly as it is.

    With a search (--tag, --name, --status, --tool, --since) the sagas are shown, and you are asked first. Without
    tools they are queued for workers.

    Examples:
      saga resume trip-42 --tools tools.py
      saga resume --all --json
      saga resume --tag import-7 --yes
    """
    from saga_engine.cli.batch import in_batch, one_or_many
    from saga_engine.cli.options import registry_for, settings_for

    if everything and (saga_id is not None or many != Many()):
        raise typer.BadParameter("give the id of a saga, --all, or a search", param_hint="--all")
    settings = settings_for(store, tools)
    if not everything and one_or_many(saga_id, many, otherwise=", --all"):
        return in_batch("resume", many, settings, as_json=as_json)
    registry = registry_for(settings)
    if saga_id is None:
        return _resume_all(settings, registry, as_json=as_json, full=full)
    return resume_one(saga_id, settings, registry, as_json=as_json, full=full)


def resume_one(saga_id: str, settings: Settings, registry: ToolRegistry, *, as_json: bool, full: bool = False) -> int:
    """Resume one saga and print its status then."""
    from saga_engine.cli.drive import drive, driven, finish, stands
    from saga_engine.cli.hints import awaited_line
    from saga_engine.cli.output import hint, note
    from saga_engine.cli.progress import Progress
    from saga_engine.cli.words import say
    from saga_engine.errors import Interrupted

    progress = Progress(say("saga", saga=saga_id), {}, saga_id=saga_id)

    async def work(coordinator: Coordinator) -> Driven:
        body = (await coordinator.show(saga_id)).body
        progress.start_from(body)
        if body["ended_ms"]:
            note(say("ended-already"))
        awaited = awaited_line(body, settings)
        if awaited and not (await coordinator.ownership(saga_id)).unread:
            hint(awaited)
        return await driven(coordinator, saga_id, coordinator.resume(saga_id), full=full)

    try:
        found = drive(settings, registry, work, progress)
    except Interrupted as error:
        raise stands(error, settings, session=progress.session) from error
    return finish(found, settings, as_json=as_json, full=full)


def _resume_all(settings: Settings, registry: ToolRegistry, *, as_json: bool, full: bool) -> int:
    from saga_engine.cli.drive import drive
    from saga_engine.cli.output import data, document, hint, note, table
    from saga_engine.cli.progress import Progress
    from saga_engine.cli.words import say

    async def work(coordinator: Coordinator) -> list[tuple[dict[str, Any], int]]:
        results = await coordinator.resume_all()
        return [await _entry(coordinator, saga_id, result, full=full) for saga_id, result in results.items()]

    entries = drive(settings, registry, work, Progress.of_many())
    if as_json:
        document({"sagas": [body for body, _ in entries]})
    elif not entries:
        note(say("none-continue"))
    else:
        titles = [say(f"title.{each}") for each in ("saga", "status", "report", "error")]
        data(table(titles, [_row(body) for body, _ in entries], limit_chars=200))
        if any("status" not in body for body, _ in entries):
            hint(say("unchanged-saga"))
    return exit_codes.gravest(code for _, code in entries)


async def _entry(coordinator: Coordinator, saga_id: str, result: Any, *, full: bool) -> tuple[dict[str, Any], int]:
    """One saga's part of the document, and its exit code. An entry without ``status`` could not be resumed."""
    from saga_engine.errors import LeaseHeld, SagaError

    if isinstance(result, LeaseHeld):
        body = (await coordinator.show(saga_id, full=full)).to_dict()
        return body, exit_codes.STILL_RUNNING
    if isinstance(result, SagaError):
        error: SagaError = result
        return {"saga_id": saga_id, "error": error.to_dict()}, exit_codes.of_error(error)
    return result.to_dict(full=full), exit_codes.of_status(result.status)


def _row(body: dict[str, Any]) -> list[Any]:
    from saga_engine.cli.words import named, say, state, told

    error = body["error"] or {}
    code = named("reason", str(error["code"])) if error.get("code") else ""
    said = ": ".join(str(each) for each in (code, error.get("error_code"), told(error)) if each)
    if "status" not in body:
        return [body["saga_id"], say("error.word"), "", said]
    remains = any(ids for name, ids in body["report"].items() if name in _REMAINS)
    report = say("report.clean") if body["report"]["clean"] else say("report.not-clean") if remains else ""
    return [body["saga_id"], state(body["status"]), report, said]
