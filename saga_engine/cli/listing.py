"""``saga list``: from the heads and the search index; it reads no journal and loads no state machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.exit_codes import SagaStatus
from saga_engine.cli.from_table import option
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption
from saga_engine.cli.search_options import AsksOption, NameOption, SinceOption, TagsOption, ToolOption
from saga_engine.cli.stop import bodies, stops_in, tell_stops
from saga_engine.cli.times import age_ms, local
from saga_engine.cli.words import counted, named, say, state, told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from saga_engine.execution.search import SagaPage
    from saga_engine.execution.stops import Stop
    from saga_engine.ports import Head, Query, Store
    from saga_engine.settings import Settings

_T = TypeVar("_T")
_MAX_LISTED = 1_000_000
_MOVING = (SagaStatus.PENDING.value, SagaStatus.RUNNING.value, SagaStatus.COMPENSATING.value)

_CursorOption = Annotated[str | None, option("searchSagas", "cursor", "--cursor", metavar="CURSOR", before="Search: ")]


def list_sagas(
    *,
    status: Annotated[
        SagaStatus | None,
        option(*("searchSagas", "status", "--status"), metavar="S", case_sensitive=False, more=", such as escalated."),
    ] = None,
    limit: Annotated[
        int, option("searchSagas", "limit", "--limit", most=1_000_000, help="Print at most this many sagas.")
    ] = 100,
    newer: Annotated[
        str | None,
        typer.Option("--newer", metavar="AGE", help="Only sagas that changed within AGE, such as 90s, 2h, 7d."),
    ] = None,
    older: Annotated[
        str | None, typer.Option("--older", metavar="AGE", help="Only sagas that have not changed for AGE.")
    ] = None,
    name: NameOption = None,
    tags: TagsOption = None,
    tool: ToolOption = None,
    asks: AsksOption = False,
    since: SinceOption = None,
    cursor: _CursorOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List sagas: the one that changed last first, or in a search the one that was created last.

    Examples:
      saga list
      saga list --status escalated --json
      saga list --status running --older 1h
      saga list --tag customer:42 --tool pay_card --since 7d
    """
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import hint
    from saga_engine.errors import SettingInvalid
    from saga_engine.execution.search import query_of

    settings = settings_for(store)
    chosen = None if status is None else status.value
    if settings.runtime:
        hint(say("list.there", store=settings.store, runtime=settings.runtime))
    now_ms = time.time() * 1000
    if name is not None or tags or tool is not None or asks or since is not None or cursor is not None:
        if newer is not None or older is not None:
            raise SettingInvalid("--newer and --older are not for a search", hint="--since bounds the time of creation")
        since_ms = 0 if since is None else round(now_ms - age_ms(since, "--since"))
        query = query_of(
            status=chosen, name=name, tags=tags or (), tool=tool, asks=asks, since_ms=since_ms, limit=limit
        )
        return _tell_page(settings, query, cursor, now_ms, as_json=as_json)
    least = 0.0 if newer is None else now_ms - age_ms(newer, "--newer")
    most = None if older is None else now_ms - age_ms(older, "--older")
    # One more than requested shows whether there are more; the most recently changed come first.
    wanted = limit + 1 if most is None else _MAX_LISTED
    found, stops = _heads(settings, chosen, wanted)
    heads = [head for head in found if least <= head.changed_ms and (most is None or head.changed_ms <= most)]
    which = "" if status is None else say("list.with", status=status.value)
    age = "" if newer is None and older is None else say("list.of-age")
    more = len(heads) > limit
    _tell(heads[:limit], stops, settings, now_ms, {"has_more": more}, f"{which}{age}", as_json=as_json)
    if more and not as_json:
        hint(say("list.more", n=limit))
    return exit_codes.COMPLETED


def _tell_page(settings: Settings, query: Query, cursor: str | None, now_ms: float, *, as_json: bool) -> int:
    """Print a page of a search."""
    from saga_engine.cli.output import hint

    page, stops = _searched(settings, query, cursor)
    more = {"has_more": page.cursor is not None, "cursor": page.cursor}
    _tell(page.sagas, stops, settings, now_ms, more, say("list.matching"), as_json=as_json)
    if page.cursor is not None and not as_json:
        hint(say("list.next", cursor=page.cursor))
    return exit_codes.COMPLETED


def _tell(  # noqa: PLR0917
    heads: Sequence[Head],
    stops: Sequence[Stop],
    settings: Settings,
    now_ms: float,
    more: dict[str, Any],
    which: str,
    *,
    as_json: bool,
) -> None:
    from saga_engine.cli.output import data, document, hint, note, shown
    from saga_engine.stores.remote import without_password

    if as_json:
        held = {"stops": bodies(stops)} if stops else {}
        document({"sagas": [head.view().plain() for head in heads], **more, **held})
    elif heads:
        data(_table(heads, now_ms))
        for line in _next(heads, settings):
            hint(line)
    else:
        note(say("list.none", which=which, store=shown(without_password(settings.store))))
    if not as_json:
        tell_stops(stops)


def _next(heads: Sequence[Head], settings: Settings) -> Iterator[str]:
    """The commands for sagas that do not move by themselves."""
    from saga_engine.cli.hints import command_line

    if any(_asks(head, head.told()) for head in heads):
        yield say("list.asked", line=command_line("inbox", settings))
    if any(_unowned(head) for head in heads):
        yield say("list.unowned", line=command_line("resume --all", settings, tools=True))


def _asks(head: Head, summary: dict[str, Any]) -> bool:
    return head.status == SagaStatus.ESCALATED.value or (head.status in _MOVING and bool(summary.get("questions")))


def _unowned(head: Head) -> bool:
    """Whether a saga could move on, and no live process owns it."""
    from saga_engine.execution.owner import is_owned

    return head.status in _MOVING and not is_owned(head)


def _heads(settings: Settings, status: str | None, limit: int) -> tuple[Sequence[Head], Sequence[Stop]]:
    return _read(settings, lambda store: store.list(status, limit), ())


def _searched(settings: Settings, query: Query, cursor: str | None) -> tuple[SagaPage, Sequence[Stop]]:
    from saga_engine.execution.search import SagaPage, searched

    return _read(settings, lambda store: searched(store, query, cursor), SagaPage((), None))


def _read(settings: Settings, reading: Callable[[Store], Awaitable[_T]], nothing: _T) -> tuple[_T, Sequence[Stop]]:
    """What is read from the store, and the stops in it; ``nothing`` if there is no store yet."""
    import asyncio

    from saga_engine.cli.read_only import no_store, reading_from

    async def read() -> tuple[_T, Sequence[Stop]]:
        async with reading_from(settings) as store:
            return await reading(store), await stops_in(store)

    return (nothing, ()) if no_store(settings) is not None else asyncio.run(read())


def _table(heads: Sequence[Head], now_ms: float) -> str:
    from saga_engine.cli import times
    from saga_engine.cli.output import table

    rows = []
    for head in heads:
        summary = head.told()
        rows.append(
            [
                head.saga_id,
                state(head.status),
                times.ago(head.changed_ms, now_ms),
                _steps(head, summary),
                _about(head, summary),
            ]
        )
    titles = [say(f"title.{each}") for each in ("saga", "status", "changed", "steps", "about")]
    return table(titles, rows, limit_chars=128)


def _steps(head: Head, summary: dict[str, Any]) -> str:
    """The steps, and the number of existing effects if the head can know it: it is written when the status changes."""
    if summary.get("session") and head.status in ("PENDING", "RUNNING"):
        return ""  # a session grows without a change of status
    total = str(summary.get("steps", ""))
    known = head.status not in _MOVING
    return f"{summary.get('done', '?')}/{total}" if known else total


def _about(head: Head, summary: dict[str, Any]) -> str:
    """The most important facts for an operator: messages, questions, the owner, the remainder, the reason, the goal."""
    parts = []
    if head.messages:
        # A live owner reads its messages by itself.
        what = "" if head.owner_ttl_ms > 0 else say("list.resume")
        parts.append(counted("list.messages", head.messages) + what)
    questions = summary.get("questions")
    if head.status == SagaStatus.ESCALATED.value and isinstance(questions, list):
        parts += [
            say("list.question", step=question.get("step_id"), kind=question.get("kind"), whom=_whom(question))
            for question in questions
            if isinstance(question, dict)
        ]
    if _unowned(head):
        wakes_ms = summary.get("wakes_ms")
        waits = say("list.waits") if wakes_ms is None else say("list.waits-until", when=local(wakes_ms))
        parts.append(waits if "waits" in summary else say("list.no-owner"))
    if summary.get("clean") is False:
        parts.append(say("report.not-clean"))
    if summary.get("verified") is True:
        parts.append(say("report.verified"))
    error = summary.get("error")
    if isinstance(error, dict) and not questions:
        code = named("reason", str(error["code"])) if error.get("code") else ""
        parts.append(": ".join(each for each in (code, told(error)) if each))
    if summary.get("goal") or summary.get("name"):
        parts.append(str(summary.get("goal") or summary["name"]))
    tags = summary.get("tags")
    if isinstance(tags, list) and tags:
        parts.append(", ".join(map(str, tags)))
    return " · ".join(parts)


def _whom(question: dict[str, Any]) -> str:
    return f" {question['to']}" if question.get("to") else ""
