"""Common to ``cancel``, ``resume`` and ``resolve``: the same for every saga that a search finds.

The sagas are looked at first, and shown with what would happen to each. Only those are acted on, once the operator has
agreed: a saga that fits the search by then is not touched.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.search_options import Many
from saga_engine.cli.words import counted, joined, language, say, state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from saga_engine.api import Coordinator
    from saga_engine.batches.batch import Batch, BatchReport, Selected, Verb
    from saga_engine.errors import SagaError
    from saga_engine.execution.result import SagaResult
    from saga_engine.settings import Settings

#: So many rows of a selection or a report are printed; --json has all.
_ROWS: Final = 40
_TEXT_CHARS: Final = 120
#: From so many sagas on, progress is told.
_MANY: Final = 20
_DEFAULT_LIMIT: Final = 1000


def one_or_many(saga_id: str | None, many: Many, *, otherwise: str = "") -> bool:
    """Whether a command is about many sagas; ``otherwise``: what else can be given.

    Raises ``typer.BadParameter`` unless it is about one saga or about a search.
    """
    if (saga_id is None) == (not many.wanted):
        raise typer.BadParameter(
            f"give the id of a saga{otherwise}, or a search (--tag, --name, --status, --tool, --since)", param_hint="ID"
        )
    of_many = {"--dry-run": many.dry_run, "--yes": many.yes, "--limit": many.limit is not None}
    if saga_id is not None and any(of_many.values()):
        said = next(option for option, given in of_many.items() if given)
        raise typer.BadParameter("it belongs to a search, not to one saga", param_hint=said)
    return saga_id is None


def in_batch(verb: Verb, many: Many, settings: Settings, *, as_json: bool, **action: Any) -> int:
    """Select the sagas, show them, ask, act and report; returns the exit code."""
    import asyncio

    from saga_engine.cli.output import document

    if not (many.dry_run or many.yes) and (as_json or not sys.stdin.isatty()):
        raise typer.BadParameter(say("batch.no-one"), param_hint="--yes")
    batch = asyncio.run(_selected(verb, many, settings, action))
    if as_json and not many.dry_run and not (batch and batch.taken):
        return _nothing_done(verb, batch)
    if batch is None or not batch.taken or many.dry_run:
        return _only_shown(verb, batch, settings, as_json=as_json)
    if not as_json:
        _show(batch)
    if not many.yes and not _agreed(batch):
        return exit_codes.INTERRUPTED
    report = _acted(batch, settings)
    if as_json:
        document(report.to_dict())
    else:
        _tell(report, settings)
    return _code(report, settings)


async def _selected(verb: Verb, many: Many, settings: Settings, action: dict[str, Any]) -> Batch | None:
    """The selection; None if there is no store yet."""
    from saga_engine.cli.read_only import looking_at_all, no_store
    from saga_engine.errors import RuntimeUnsupported
    from saga_engine.ports.machine_clock import machine_clock

    if settings.runtime:
        raise RuntimeUnsupported(
            "sagas in Temporal are not searched here",
            hint="`temporal workflow list --query …` finds them; then one command for each id",
        )
    if no_store(settings) is not None:
        return None
    async with looking_at_all(settings) as coordinator:
        return await coordinator.select(
            verb, **many.wanted.fields(machine_clock.time() * 1000), limit=many.limit or _DEFAULT_LIMIT, **action
        )


# --- showing and asking --------------------------------------------------------------------------------------------


def _only_shown(verb: Verb, batch: Batch | None, settings: Settings, *, as_json: bool) -> int:
    """The end of a command that changes nothing: what would happen, or why nothing does."""
    from saga_engine.batches.batch import Batch
    from saga_engine.cli.output import document, note, shown
    from saga_engine.stores.remote import without_password

    found = batch or Batch(verb, ())
    if as_json:
        document(found.to_dict())
    elif found.sagas:
        _show(found)
        note(say("nothing-changed"))
    else:
        store = shown(without_password(settings.store))
        note(say("batch.none-asked" if verb == "resolve" else "batch.none", verb=say(f"do.{verb}"), store=store))
    return exit_codes.COMPLETED if found.taken or not found.sagas else exit_codes.CONFLICT


def _nothing_done(verb: Verb, batch: Batch | None) -> int:
    """The report of an action that had nothing to act on."""
    from saga_engine.batches.batch import BatchReport
    from saga_engine.cli.output import document

    sagas = () if batch is None else batch.sagas
    refused = {each.saga_id: each.refused for each in sagas if each.refused is not None}
    document(BatchReport(verb, refused=refused, more=batch is not None and batch.more).to_dict())
    return exit_codes.CONFLICT if refused else exit_codes.COMPLETED


def _show(batch: Batch) -> None:
    """The selection: what would happen to each saga, and to all."""
    from saga_engine.cli.output import data, hint, note, table

    rows = [[each.saga_id, state(each.status), _would(batch, each)] for each in batch.sagas[:_ROWS]]
    data(table([say(f"title.{each}") for each in ("saga", "status", "then")], rows, limit_chars=_TEXT_CHARS))
    if len(batch.sagas) > _ROWS:
        note(say("batch.hidden", n=len(batch.sagas) - _ROWS))
    note(_sum(batch))
    if batch.more:
        hint(say("batch.limit", n=len(batch.sagas)))


def _would(batch: Batch, each: Selected) -> str:
    """What would happen to one saga."""
    if each.refused is not None:
        return say("batch.stays", why=each.refused.message)
    if batch.verb == "resume":
        return say("batch.continues")
    if batch.verb == "resolve":
        return say("batch.semicolon").join(_answer_words(answer, batch.decision) for answer in each.answers)
    parts = [("undoes", each.undoes), ("settles", each.settles), ("remain", each.remains)]
    return joined(*(counted(f"batch.{key}", n) for key, n in parts if n)) or say("batch.nothing-to-undo")


def _answer_words(answer: Mapping[str, Any], decision: str) -> str:
    from saga_engine.core.outlooks import then_words

    then = then_words(answer["follows"], language()) if answer["follows"] else answer["then"] or decision
    return say("batch.answer", step=answer["step_id"], then=then)


def _sum(batch: Batch) -> str:
    taken = batch.taken
    said = [counted("batch.sagas", len(taken), verb=say(f"do.{batch.verb}"))]
    if batch.verb == "cancel":
        said.append(say("batch.undone", n=sum(each.undoes for each in taken)))
        if remains := sum(each.remains for each in taken):
            said.append(say("batch.effects", n=remains))
    if batch.verb == "resolve":
        said.append(say("batch.questions", n=sum(len(each.answers) for each in taken), decision=batch.decision))
    if left := len(batch.sagas) - len(taken):
        said.append(counted("batch.left", left))
    return say("batch.semicolon").join(said)


def _agreed(batch: Batch) -> bool:
    from saga_engine.cli.output import note

    sure = counted("batch.sure", len(batch.taken), verb=say(f"do.{batch.verb}"))
    if typer.confirm(sure, default=False, err=True):
        return True
    note(say("nothing-changed"))
    return False


# --- acting and reporting ------------------------------------------------------------------------------------------


def _acted(batch: Batch, settings: Settings) -> BatchReport:
    """Carry it out: with tools here to the end, else for the workers."""
    from saga_engine.cli.drive import drive
    from saga_engine.cli.options import registry_for
    from saga_engine.cli.progress import Progress

    progress = Progress.of_many()
    told = _told(len(batch.taken), progress.say)

    async def work(coordinator: Coordinator) -> BatchReport:
        return await coordinator.act_on(batch, wait=settings.names_tools, on_done=told)

    return drive(settings, registry_for(settings), work, progress, observed=False)


def _told(total: int, tell: Callable[[str], None]) -> Callable[[str, SagaResult | SagaError], None]:
    """Says how far it is, some twenty times in all; of few sagas nothing."""
    step, done = max(total // 20, 1), 0

    def told(_saga_id: str, _found: SagaResult | SagaError) -> None:
        nonlocal done
        done += 1
        if total >= _MANY and (done % step == 0 or done == total):
            tell(say("batch.progress", n=done, of=total))

    return told


def _tell(report: BatchReport, settings: Settings) -> None:
    from saga_engine.cli.hints import command_line
    from saga_engine.cli.output import data, hint, note, shown, table

    recorded = _recorded(report, settings)
    statuses = Counter(found.status for saga_id, found in report.done.items() if saga_id not in recorded)
    rows = [[state(status), count] for status, count in sorted(statuses.items())]
    rows += [[say("batch.recorded"), len(recorded)]] if recorded else []
    rows += [[say("batch.unchanged"), len(report.failed)]] if report.failed else []
    data(table([say("title.now"), say("title.sagas")], rows))
    for saga_id, error in list(report.failed.items())[:_ROWS]:
        note(f"{say('of-saga', saga=shown(saga_id), text=shown(error.message))} [{error.code}]")
    if recorded:
        hint(say("batch.act", line=command_line("resume --all", settings, tools=True)))
    if any(status == "ESCALATED" for status in statuses):
        hint(say("list.asked", line=command_line("inbox", settings)))
    if report.more:
        hint(say("batch.again"))


def _recorded(report: BatchReport, settings: Settings) -> set[str]:
    """The sagas for which something was recorded that a worker has yet to do."""
    if settings.names_tools:
        return set()
    return {saga_id for saga_id, found in report.done.items() if not found.ended}


def _code(report: BatchReport, settings: Settings) -> int:
    """The most severe code of the sagas that were acted on; 8 for what is only recorded."""
    recorded = _recorded(report, settings)
    done = [
        exit_codes.STILL_RUNNING if saga_id in recorded else exit_codes.of_status(found.status)
        for saga_id, found in report.done.items()
    ]
    return exit_codes.gravest([*done, *(exit_codes.of_error(error) for error in report.failed.values())])
