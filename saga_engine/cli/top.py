"""``saga top``: the queue, the workers, and their rates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from saga_engine.ports import Load
    from saga_engine.settings import Settings

#: Counters of a worker whose growth is shown as a rate.
_RATES = ("begun", "taken", "ended")
_NUMBERS = ("pid", "concurrency", "driving", "under_way", "begun", "taken", "returned", "refused")
_MOST_NAMED = 3
_EMPTY: dict[str, Any] = {"host": "?", "ended": {}, **dict.fromkeys(_NUMBERS, 0)}


def top(
    *,
    every_s: Annotated[
        float, typer.Option("--every", metavar="S", min=0.2, max=3600.0, help="Seconds between two samples.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Take two samples, print one table, and end.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Watch the queue and the workers: rates, depth, calls in flight, owners. Ctrl-C ends it.

    Some sagas want a worker now; others wait for a timer (a retry, a deferred step, a reminder). Rates are what workers
    report, once a second, between two looks.

    Examples:
      saga top
      saga top --once --json
    """
    import asyncio
    import sys

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.read_only import no_store

    settings = settings_for(store)
    if (folder := no_store(settings)) is not None:
        return _nothing_there(folder, as_json=as_json)
    live = not (once or as_json) and sys.stdout.isatty()
    try:
        asyncio.run(_watch(settings, every_s, live=live, as_json=as_json))
    except KeyboardInterrupt:
        if not live:
            raise
    return exit_codes.COMPLETED


def _nothing_there(folder: str, *, as_json: bool) -> int:
    """Without any saga there is nothing to watch; and watching creates no store."""
    import time

    from saga_engine.cli.output import document, note, shown
    from saga_engine.cli.words import say
    from saga_engine.ports import Load

    if as_json:
        nothing = Load(int(time.time() * 1000), {}, 0, 0, None, {}, {})
        document(_body(nothing, nothing))
    else:
        note(say("top.none", folder=shown(folder)))
    return exit_codes.COMPLETED


async def _watch(settings: Settings, every_s: float, *, live: bool, as_json: bool) -> None:
    import asyncio

    from saga_engine.cli.doctor_state import known_tools, open_breakers
    from saga_engine.cli.output import data, document
    from saga_engine.cli.read_only import reading_from
    from saga_engine.cli.release import bodies as held_bodies
    from saga_engine.cli.release import holds_in
    from saga_engine.cli.stop import bodies, stops_in, tell_stops

    tools = known_tools(settings)
    async with reading_from(settings) as store:

        async def look(before: Load, now: Load) -> dict[str, Any]:
            breakers, holds = await open_breakers(store, tools), await holds_in(store)
            more = {"breakers": breakers} if breakers else {}
            return _body(before, now) | more | ({"holds": held_bodies(holds)} if holds else {})

        before = await store.work().overview()
        if live:
            from rich.live import Live
            from rich.text import Text

            with Live(Text(_table(await look(before, before), settings)), auto_refresh=False, screen=True) as screen:
                while True:
                    await asyncio.sleep(every_s)
                    now = await store.work().overview()
                    screen.update(Text(_table(await look(before, now), settings)), refresh=True)
                    before = now
        await asyncio.sleep(every_s)
        body, stops = await look(before, await store.work().overview()), await stops_in(store)
        if as_json:
            document(body | ({"stops": bodies(stops)} if stops else {}))
        else:
            data(_table(body, settings))
            tell_stops(stops)


def _body(before: Load, now: Load) -> dict[str, Any]:
    from saga_engine.execution.governed import differences, found_in

    seconds = (now.now_ms - before.now_ms) / 1000
    governed = found_in(now.notes, now.owners)
    workers = [_worker(owner, report, before.reports.get(owner), seconds) for owner, report in now.reports.items()]
    alive = {owner: ttl_ms for owner, ttl_ms in now.owners.items() if ttl_ms > 0}
    return {
        "now_ms": now.now_ms,
        "sagas": dict(now.statuses),
        "queue": {
            "queued": now.queued,
            "timed": now.timed,
            "oldest_wait_ms": None if now.oldest_ms is None else now.now_ms - now.oldest_ms,
        },
        "workers": sorted(workers, key=lambda worker: str(worker["owner"])),
        "owners": {"alive": len(alive), "gone": len(now.owners) - len(alive), "names": sorted(alive)},
        "rules": {owner: each.body() for owner, each in governed.items()},
        "differing": [each.body(governed) for each in differences(governed)],
        "totals": {
            "driving": sum(worker["driving"] for worker in workers),
            "under_way": sum(worker["under_way"] for worker in workers),
            **{f"{name}_per_s": round(sum(worker[f"{name}_per_s"] for worker in workers), 1) for name in _RATES},
        },
    }


def _worker(owner: str, report: bytes, earlier: bytes | None, seconds: float) -> dict[str, Any]:
    body = json.loads(report)
    counts = _counts(body)
    past = counts if earlier is None else _counts(json.loads(earlier))
    rates = {
        f"{name}_per_s": round((counts[name] - past[name]) / seconds, 1) if seconds > 0 else 0.0 for name in _RATES
    }
    return {"owner": owner, **_EMPTY, **body, **rates}


def _counts(body: dict[str, Any]) -> dict[str, int]:
    # (A worker of another version may report less.)
    return {"begun": body.get("begun", 0), "taken": body.get("taken", 0), "ended": sum(body.get("ended", {}).values())}


def _table(body: dict[str, Any], settings: Settings) -> str:
    from saga_engine.cli.output import table
    from saga_engine.cli.owners import process_words
    from saga_engine.cli.words import say, state

    queue, totals = body["queue"], body["totals"]
    oldest_ms = queue["oldest_wait_ms"]
    waited = "" if oldest_ms is None else say("top.waited", s=f"{oldest_ms / 1000:.1f}")
    states = "  ".join(f"{state(name)} {count}" for name, count in body["sagas"].items() if count)
    lines = [
        say("top.sagas", states=states or say("top.no-sagas")),
        say("top.queue", queued=queue["queued"], waited=waited, timed=queue["timed"]),
        say("top.now", driving=totals["driving"], calls=totals["under_way"]),
        say("top.rates", begun=f"{totals['begun_per_s']:g}", ended=f"{totals['ended_per_s']:g}"),
        say("top.owners", owners=_owners(body["owners"], process_words)),
        *_breakers(body.get("breakers", {})),
        *_holds(body.get("holds", [])),
        *_differing(body),
        "",
    ]
    rows = [
        [
            process_words(worker["owner"]),
            f"{worker['driving']}/{worker['concurrency']}",
            worker["under_way"],
            worker["begun_per_s"],
            worker["ended_per_s"],
            worker["taken"],
            worker["returned"],
            worker["refused"],
        ]
        for worker in body["workers"]
    ]
    titles = ("worker", "running", "in-flight", "calls-s", "ended-s", "taken", "returned", "refused")
    header = [say(f"title.{each}") for each in titles]
    lines.append(table(header, rows, limit_chars=120) if rows else say("top.no-workers"))
    commands = list(_next(body, settings))
    return "\n".join([*lines, *([""] if commands else []), *commands])


def _next(body: dict[str, Any], settings: Settings) -> Iterator[str]:
    """The commands for sagas that do not move by themselves."""
    from saga_engine.cli.hints import command_line
    from saga_engine.cli.words import counted, say

    asks = body["sagas"].get("ESCALATED", 0)
    if asks:
        yield counted("top.asks", asks, line=command_line("inbox", settings))
    if not body["workers"] and (body["queue"]["queued"] or body["owners"]["gone"]):
        yield say("top.wait", line=command_line("worker", settings, tools=True))


def _breakers(found: dict[str, float]) -> Iterator[str]:
    """The tools that no call gets through to now; sagas wait for them."""
    from saga_engine.cli.words import joined, more, say

    if found:
        said = [say("top.open" if s > 0 else "top.half-open", tool=name, s=f"{s:.0f}") for name, s in found.items()]
        yield say("top.breakers", breakers=joined(*said[:_MOST_NAMED]) + more(len(said) - _MOST_NAMED))


def _holds(found: list[dict[str, Any]]) -> Iterator[str]:
    """What sagas hold for which others wait, or for too long; ``saga release`` lists the rest."""
    from saga_engine.cli.output import shown
    from saga_engine.cli.times import local
    from saga_engine.cli.words import say

    if not found:
        return
    telling = [each for each in found if each["waiting"] or each["overdue"]]
    yield say("top.held", n=len(found), waiting=sum(len(each["waiting"]) for each in found))
    for each in telling[:_MOST_NAMED]:
        overdue = say("top.overdue") if each["overdue"] else ""
        waits = say("top.waits", n=len(each["waiting"])) if each["waiting"] else ""
        resource, saga, when = shown(each["resource"]), shown(each["saga_id"]), local(each["since_ms"])
        yield say("top.holds", resource=resource, saga=saga, when=when, overdue=overdue, waits=waits)


def _differing(body: dict[str, Any]) -> Iterator[str]:
    """The processes that hold sagas to other rules than the rest."""
    import msgspec

    from saga_engine.cli.owners import difference_words
    from saga_engine.cli.words import say
    from saga_engine.execution.governed import Governed, differences

    governed = {owner: msgspec.convert(each, Governed) for owner, each in body["rules"].items()}
    for difference in differences(governed):
        for words in difference_words(difference, governed):
            yield say("top.differ", words=words)


def _owners(owners: dict[str, Any], words: Callable[[str], str]) -> str:
    """The processes that may run sagas: workers, and commands that run one."""
    from saga_engine.cli.words import more, say

    listed = ", ".join(words(name) for name in owners["names"][:_MOST_NAMED])
    named = say("because", why=listed + more(len(owners["names"]) - _MOST_NAMED)) if listed else ""
    return say("top.alive", alive=owners["alive"], named=named, gone=owners["gone"])
