"""``saga list``: from the heads alone; it reads no journal and loads no state machine."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.exit_codes import SagaStatus
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption
from saga_engine.cli.times import age_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saga_engine.ports import Head
    from saga_engine.settings import Settings

_MAX_LISTED = 1_000_000
_MOVING = (SagaStatus.PENDING.value, SagaStatus.RUNNING.value, SagaStatus.COMPENSATING.value)


def list_sagas(
    *,
    status: Annotated[
        SagaStatus | None,
        typer.Option(
            "--status", metavar="S", case_sensitive=False, help="Only sagas of this status, such as escalated."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="Print at most this many sagas.")] = 100,
    newer: Annotated[
        str | None,
        typer.Option("--newer", metavar="AGE", help="Only sagas that changed within AGE, such as 90s, 2h, 7d."),
    ] = None,
    older: Annotated[
        str | None, typer.Option("--older", metavar="AGE", help="Only sagas that have not changed for AGE.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List sagas, the one that changed last first.

    Examples:
      saga list
      saga list --status escalated --json
      saga list --status running --older 1h
    """
    import asyncio

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note, shown
    from saga_engine.stores.remote import without_password

    settings = settings_for(store)
    if settings.runtime:
        note(f"hint: these are the sagas of {settings.store}; those of {settings.runtime} are in Temporal's own lists")
    now_ms = time.time() * 1000
    least = 0.0 if newer is None else now_ms - age_ms(newer, "--newer")
    most = None if older is None else now_ms - age_ms(older, "--older")
    # One more than requested shows whether there are more; the most recently changed come first.
    wanted = limit + 1 if most is None else _MAX_LISTED
    heads = asyncio.run(_heads(settings, None if status is None else status.value, wanted))
    heads = [head for head in heads if least <= head.changed_ms and (most is None or head.changed_ms <= most)]
    more = len(heads) > limit
    heads = heads[:limit]
    if as_json:
        document({"sagas": [_body(head) for head in heads], "has_more": more})
    elif heads:
        data(_table(heads, now_ms))
        for line in _next(heads, settings):
            note(f"hint: {line}")
    else:
        which = "" if status is None else f" with status {status.value}"
        age = "" if newer is None and older is None else " of that age"
        note(f"there are no sagas{which}{age} in {shown(without_password(settings.store))}")
    if more and not as_json:
        note(f"hint: there are more; --limit shows more than {limit}")
    return exit_codes.COMPLETED


def _next(heads: list[Head], settings: Settings) -> Iterator[str]:
    """The commands for sagas that do not move by themselves."""
    from saga_engine.cli.hints import command_line

    if any(_asks(head, _summary(head)) for head in heads):
        yield f"the open questions, and the commands that answer them: {command_line('inbox', settings)}"
    if any(_unowned(head) for head in heads):
        resume = command_line("resume --all", settings, tools=True)
        yield f"no process owns some sagas: they wait for a worker or a timer, a session for its agent; or: {resume}"


def _asks(head: Head, summary: dict[str, Any]) -> bool:
    return head.status == SagaStatus.ESCALATED.value or (head.status in _MOVING and bool(summary.get("questions")))


def _unowned(head: Head) -> bool:
    """Whether a saga could move on, and no live process owns it."""
    from saga_engine.runtime.owner import is_owned

    return head.status in _MOVING and not is_owned(head)


async def _heads(settings: Settings, status: str | None, limit: int) -> list[Head]:
    from saga_engine.cli.read_only import no_store, reading_from

    if no_store(settings) is not None:
        return []
    async with reading_from(settings) as store:
        return list(await store.list(status, limit))


def _summary(head: Head) -> dict[str, Any]:
    try:
        summary = json.loads(head.summary or b"{}")
    except ValueError:
        return {}  # the journal is authoritative; `saga show` reads it
    return summary if isinstance(summary, dict) else {}


def _body(head: Head) -> dict[str, Any]:
    return {
        "saga_id": head.saga_id,
        "status": head.status,
        "created_ms": head.created_ms,
        "changed_ms": head.changed_ms,
        "owner": head.owner if head.owner_ttl_ms > 0 else None,
        "records": head.length,
        "waiting_messages": head.messages,
        "summary": _summary(head),
    }


def _table(heads: list[Head], now_ms: float) -> str:
    from saga_engine.cli import times
    from saga_engine.cli.output import table

    rows = []
    for head in heads:
        summary = _summary(head)
        rows.append(
            [
                head.saga_id,
                head.status,
                times.ago(head.changed_ms, now_ms),
                _steps(head, summary),
                _about(head, summary),
            ]
        )
    return table(["SAGA", "STATUS", "CHANGED", "STEPS", "ABOUT"], rows, limit_chars=128)


def _steps(head: Head, summary: dict[str, Any]) -> str:
    """The steps, and the number of existing effects if the head can know it: it is written when the status changes."""
    if summary.get("session") and head.status in ("PENDING", "RUNNING"):
        return ""  # a session grows without a change of status
    total = str(summary.get("steps", ""))
    return f"{summary.get('done', '?')}/{total}" if head.status in ("COMPLETED", "ESCALATED") else total


def _about(head: Head, summary: dict[str, Any]) -> str:
    """The most important facts for an operator: messages, questions, the owner, the remainder, the reason, the goal."""
    parts = []
    if head.messages:
        # A live owner reads its messages by itself.
        what = "" if head.owner_ttl_ms > 0 else ": resume it"
        parts.append(f"{head.messages} message{'s' if head.messages != 1 else ''} waiting{what}")
    questions = summary.get("questions")
    if head.status == SagaStatus.ESCALATED.value and isinstance(questions, list):
        parts += [
            f"step {question.get('step_id')}: {question.get('kind')}?"
            for question in questions
            if isinstance(question, dict)
        ]
    if _unowned(head):
        parts.append("no owner")
    if summary.get("clean") is False:
        parts.append("not clean")
    error = summary.get("error")
    if isinstance(error, dict) and not questions:
        parts.append(": ".join(str(error[name]) for name in ("code", "message") if error.get(name)))
    if summary.get("goal"):
        parts.append(str(summary["goal"]))
    return " · ".join(parts)
