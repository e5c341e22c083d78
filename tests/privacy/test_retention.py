"""Ended sagas leave the store when they are old enough, unless another saga may still need them."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.analysis.trace_file import read, verify
from saga_engine.core.records import EffectTransferred
from saga_engine.errors import SagaNotFound, SettingInvalid
from saga_engine.execution.retention import Retention, age_of, retention_of
from saga_engine.runtime import retention as purging
from tests.support.children import (
    DONE,
    STUCK,
    WAIT,
    book,
    booking,
    kid,
    opened,
    pay,
    plan,
    reaches,
    refund,
    unbook,
    until,
)

TOOLS = [book, unbook, pay, refund]
#: Every ended saga is old enough, or those that completed, or those that were undone.
ALL = Retention({"COMPLETED": 0, "COMPENSATED": 0, "WAIVED": 0})
COMPLETED = Retention({"COMPLETED": 0})
COMPENSATED = Retention({"COMPENSATED": 0})


@pytest.fixture
def url() -> str:
    DONE.clear()
    STUCK.clear()
    return f"memory://{uuid.uuid4().hex}"


async def stored(engine: Coordinator) -> set[str]:
    return {head.saga_id for head in await engine.list()}


async def test_sagas_go_by_status_and_age(url: str) -> None:
    """Those of a status without an age, those that are too young and those that live stay; a dry run changes nothing."""
    async with opened(url) as engine:
        await engine.run(plan(booking(1, 1)), saga_id="done")
        await engine.run(plan(booking(1, 1), booking(2, 13)), saga_id="undone")
        await engine.submit(plan(WAIT), saga_id="live")
        young = Retention({"COMPLETED": 3_600_000})
        assert (await engine.purge(young)).purged == []
        assert (await engine.purge(COMPLETED, dry_run=True)).purged == ["done"]
        assert await stored(engine) == {"done", "undone", "live"}
        assert (await engine.purge(COMPLETED)).purged == ["done"]
        assert await stored(engine) == {"undone", "live"}
        assert (await engine.purge(ALL)).purged == ["undone"]
        assert await stored(engine) == {"live"}
        with pytest.raises(SagaNotFound):
            await engine.show("done")


async def test_an_id_that_was_purged_starts_a_new_saga(url: str) -> None:
    """Its calls have other keys: nothing mistakes them for those of the first."""
    async with opened(url) as engine:
        await engine.run(plan(booking(1, 1)), saga_id="s")
        first = (await engine.history("s"))[0]["seed"]
        await engine.purge(ALL)
        assert (await engine.run(plan(booking(1, 1)), saga_id="s")).status == "COMPLETED"
        assert (await engine.history("s"))[0]["seed"] != first
        assert DONE == [("book", 1)] * 2


async def test_a_child_stays_as_long_as_its_parent(url: str) -> None:
    """A completed child can still be undone with its parent, at any time until the parent itself is purged."""
    async with opened(url) as engine:
        waits = {"step_id": 2, "depends_on": ["trip"], "wait": WAIT["wait"]}
        handle = await engine.submit(plan(kid(booking("a", 2)), waits), saga_id="p")
        await reaches(engine, "p.trip", "COMPLETED")
        await reaches(engine, "p", "RUNNING", waits=True)
        found = await engine.purge(ALL)
        assert (found.purged, dict(found.kept)) == ([], {purging.PARENT: 1})
        await engine.cancel("p")
        assert (await handle.wait()).status == "COMPENSATED"
        assert DONE == [("book", 2), ("unbook", 2)]
        assert set((await engine.purge(ALL)).purged) == {"p", "p.trip", "p.trip-undo"}
        assert await stored(engine) == set()


async def test_a_saga_and_what_took_over_its_effects_leave_in_order(url: str) -> None:
    """The undo never leaves first: repeated, it would be made again, under new keys."""
    async with opened(url) as engine:
        await engine.run(plan(booking(1, 1)), saga_id="s")
        await engine.undo("s")
        undone = [("book", 1), ("unbook", 1)]
        assert undone == DONE
        found = await engine.purge(COMPENSATED)
        assert (found.purged, dict(found.kept)) == ([], {purging.ORIGIN: 1})
        found = await engine.purge(COMPLETED)
        assert (found.purged, dict(found.kept)) == ([], {purging.HEIR: 1})
        assert (await engine.undo("s")).status == "COMPENSATED"  # type: ignore[union-attr]
        assert undone == DONE
        assert (await engine.purge(ALL)).purged == ["s", "s-undo"]
        with pytest.raises(SagaNotFound):
            await engine.undo("s")


async def test_a_fork_keeps_what_it_may_still_need(url: str) -> None:
    """A live fork keeps the saga that it reuses; a child of that one is undone with the fork."""
    async with opened(url) as engine:
        first = plan(kid(booking("a", 2)), {"step_id": 2, "depends_on": ["trip"], "tool": "book", "params": {"n": 1}})
        await engine.run(first, saga_id="s")
        other = plan(first["steps"][0], {"step_id": 2, "depends_on": ["trip"], "wait": WAIT["wait"]})
        await engine.fork("s", plan=other, new_id="f", detach=True)
        found = await engine.purge(ALL)
        assert (found.purged, dict(found.kept)) == ([], {purging.HEIR: 1, purging.PARENT: 1})
        await engine.cancel("f")
        assert ("unbook", 2) in DONE
        assert set((await engine.purge(ALL)).purged) == {"s", "s.trip", "s.trip-undo", "f"}


async def test_effects_on_their_way_to_a_saga_keep_theirs(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The completed saga has transferred its effects, and the undo has not begun: whoever repeats it finds both."""
    async with opened(url) as engine:
        await engine.run(plan(booking(1, 1)), saga_id="s")
        begin = engine.supervisor.begin
        monkeypatch.setattr(engine.supervisor, "begin", _dies)
        with pytest.raises(RuntimeError, match="died"):
            await engine.undo("s")
        monkeypatch.setattr(engine.supervisor, "begin", begin)
        assert any(record["k"] == EffectTransferred.__name__ for record in await engine.history("s"))
        found = await engine.purge(ALL)
        assert (found.purged, dict(found.kept)) == ([], {purging.HEIR: 1})
        assert (await engine.undo("s")).status == "COMPENSATED"  # type: ignore[union-attr]
        assert DONE == [("book", 1), ("unbook", 1)]


def _dies(*_: Any, **__: Any) -> Any:
    raise RuntimeError("died")


async def test_workers_purge_by_the_rules(url: str) -> None:
    """What ends under rules does not expire by itself, and what would have expired by itself is held."""
    async with opened(url) as engine:
        await engine.run(plan(booking(1, 1)), saga_id="old")
    async with Coordinator.open(url, [], retention=ALL, keep_finished_s=0.001) as engine:
        working = asyncio.create_task(engine.work())

        async def gone() -> bool:
            return not await stored(engine)

        await until(gone)
    await working


async def test_under_rules_nothing_expires(url: str) -> None:
    """A saga that ends under rules is kept until something purges it."""
    rules = {"completed": 0, "compensated": "30d"}
    async with Coordinator.open(url, TOOLS, retention=rules, keep_finished_s=0.001) as engine:
        await engine.run(plan(booking(1, 1)), saga_id="s")
        await asyncio.sleep(0.01)
        assert await stored(engine) == {"s"}
        assert engine.retention is not None
        assert engine.retention.age_ms == {"COMPENSATED": 30 * 86_400_000, "WAIVED": 1}
        assert (await engine.purge()).looked == 0


async def test_children_begin_where_sagas_are_kept_for_ever(url: str) -> None:
    """With ``keep_finished_s=0`` a child that does not exist yet is begun, and not taken for one that is lost."""
    async with Coordinator.open(url, TOOLS, keep_finished_s=0) as engine:
        assert (await engine.run(plan(kid(booking("a", 2))), saga_id="p")).status == "COMPLETED"


# --- the archive -------------------------------------------------------------------------------------------------


async def test_a_saga_is_archived_before_it_is_purged(url: str, tmp_path: Path) -> None:
    """The file is a trace with its chain, readable by its owner alone; sensitive params are not in it."""
    async with opened(url) as engine:
        steps = ({"step_id": 1, "tool": "pay", "params": {"card": "4111-1111"}}, booking(2, 7))
        await engine.run(plan(*steps), saga_id="s")
        history = await engine.history("s")
        await engine.purge(Retention(ALL.age_ms, archive=tmp_path / "a" / "b"))
        assert await stored(engine) == set()
    (path,) = (tmp_path / "a" / "b").glob("*/s.*.jsonl")
    with path.open("rb") as lines:
        check = verify(lines)
    assert (check.broken, check.sagas) == (None, (("s", "COMPLETED", True),))
    with path.open("rb") as lines:
        (trace,) = read(lines)
    assert len(trace.entries) == len(history)
    assert path.stat().st_mode & 0o077 == 0
    assert "4111-1111" not in path.read_text()  # (a hash may well have four such digits)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_what_cannot_be_archived_stays(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that is full, or a folder that is none, keeps every saga in the store."""
    (tmp_path / "file").touch()
    async with opened(url) as engine:
        await engine.run(plan(booking(1, 1)), saga_id="s")
        found = await engine.purge(Retention(ALL.age_ms, archive=tmp_path / "file"))
        assert (found.purged, dict(found.kept)) == ([], {purging.UNARCHIVED: 1})
        assert await stored(engine) == {"s"}
    assert "its archive cannot be written" in caplog.text


# --- the table ---------------------------------------------------------------------------------------------------


def test_the_table_is_read() -> None:
    """A status that is not named is kept as ever; 0 is for ever."""
    found = retention_of({"completed": "36h", "waived": 0, "archive": "old"}, 60, base=Path("/srv"))
    assert dict(found.age_ms) == {"COMPLETED": 36 * 3_600_000, "COMPENSATED": 60_000}
    assert found.archive == Path("/srv/old")
    assert dict(retention_of({}, 0).age_ms) == {}


@pytest.mark.parametrize(
    "table",
    [
        {"complete": "1d"},
        {"completed": "1w"},
        {"completed": 30},
        {"completed": "0d"},
        {"completed": True},
        {"archive": ""},
    ],
)
def test_a_wrong_table_is_refused(table: dict[str, Any]) -> None:
    """A typing error must not keep personal data for ever, nor purge what is needed."""
    with pytest.raises(SettingInvalid):
        retention_of(table, 60)


def test_ages() -> None:
    assert [age_of(text, "") for text in ("90s", "5m", "2h", "7d", 0)] == [90_000, 300_000, 7_200_000, 604_800_000, 0]
