"""Sagas whose tools have a barrier: what is in the database afterwards, whoever died and whatever came late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, OutcomeUnknown, RetryPolicy, ToolContext, ToolError, tool
from tests.barriers import shop as shops
from tests.barriers.conftest import Shop

ROOT = Path(__file__).parents[2]
SHOP = Path(__file__).parent / "shop.py"


def _start(*args: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
    given = {**known, "PYTHONPATH": str(ROOT), **env}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, str(SHOP), *args], cwd=cwd, env=given, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("moment", ["in-the-call", "after-the-call", "after-the-undo"])
def test_a_process_that_dies_books_once_and_undoes_once(tmp_path: Path, moment: str) -> None:
    """Killed in the transaction, between its commit and the answer, or after the undo: no booking is left or missed."""
    url, store = f"sqlite:///{tmp_path}/shop.db", f"embedded://{tmp_path}/store"
    engine, _ = shops.made(url)
    with engine.begin() as db:
        shops.book("2B")(db)  # of somebody else: an undo that runs twice does not touch it, and nobody counts it
    for expected in (-signal.SIGKILL, 0):
        process = _start(url, store, "trip", cwd=tmp_path, SHOP_DIES=moment)
        out, err = process.communicate()
        assert process.returncode == expected, err
    assert out.strip() == "COMPENSATED", err
    with engine.connect() as db:
        assert [row[0] for row in db.exec_driver_sql("SELECT seat FROM bookings")] == ["2B"]
        rows = list(db.exec_driver_sql("SELECT state, result, undo_result FROM saga_barrier"))
    assert rows == [("undone", '{"seat": "1A"}', '{"rows": 1}')]
    engine.dispose()


def test_two_processes_make_the_same_calls(shop: Shop, tmp_path: Path) -> None:
    """Two workers that make fifty calls with the same keys at the same time: each is done once."""
    keys = [f"{shop.key}:{number}" for number in range(50)]
    url = shop.engine.url.render_as_string(hide_password=False)
    racers = [_start(url, "race", *given, cwd=tmp_path) for given in (keys, list(reversed(keys)))]
    for racer in racers:
        _, err = racer.communicate()
        assert racer.returncode == 0, err
    with shop.engine.connect() as db:
        assert [tuple(row) for row in db.exec_driver_sql("SELECT COUNT(*), COUNT(DISTINCT seat) FROM bookings")] == [
            (50, 50)
        ]


async def test_a_call_that_arrives_after_its_undo_is_refused(tmp_path: Path) -> None:
    """A request that is delayed on its way is undone before it arrives; when it arrives, it books nothing."""
    engine, barrier = shops.made(f"sqlite:///{tmp_path}/shop.db")
    delayed: list[str] = []

    @tool(undo="cancel_seat", on_doubt="undo", retry=RetryPolicy(max_attempts=1))
    def book_seat(seat: str, idempotency_key: str) -> Any:
        delayed.append(idempotency_key)
        raise OutcomeUnknown("no answer yet")

    cancel_seat = next(each for each in shops.tools_of(barrier) if each.name == "cancel_seat")
    plan = {"steps": [{"step_id": "seat", "tool": "book_seat", "params": {"seat": "1A"}}]}
    async with Coordinator.open("memory://", [book_seat, cancel_seat], durability="relaxed") as coordinator:
        outcome = await coordinator.run(plan, saga_id="trip")
    assert outcome.status == "COMPENSATED", outcome
    with pytest.raises(ToolError, match="undone before it arrived"):
        barrier.call(delayed[0], shops.book("1A"))
    with engine.connect() as db:
        assert list(db.exec_driver_sql("SELECT seat FROM bookings")) == []
    engine.dispose()


async def test_a_probe_settles_a_doubt(tmp_path: Path) -> None:
    """The answer to a booking is lost, and the tool's probe reads it from the barrier's table."""
    engine, barrier = shops.made(f"sqlite:///{tmp_path}/shop.db")
    calls: list[str] = []

    @tool(effect="read")
    def seat_booked(idempotency_key: str) -> Any:
        return barrier.probe(idempotency_key)

    @tool(probe=seat_booked)
    def book_seat(seat: str, idempotency_key: str) -> Any:
        calls.append(idempotency_key)
        barrier.call(idempotency_key, shops.book(seat))
        raise OutcomeUnknown("the answer is lost")

    plan = {"steps": [{"step_id": "seat", "tool": "book_seat", "params": {"seat": "1A"}, "kind": "pivot"}]}
    async with Coordinator.open("memory://", [book_seat, seat_booked], durability="relaxed") as coordinator:
        outcome = await coordinator.run(plan)
    assert (outcome.status, outcome.output("seat"), len(calls)) == ("COMPLETED", {"seat": "1A"}, 1)
    engine.dispose()


async def test_an_undo_knows_the_call_that_it_undoes(tmp_path: Path) -> None:
    """``ToolContext.undoes`` is the key of the call in question in an undo, of a session too, and None in a call."""
    seen: list[tuple[str, str, str | None]] = []

    @tool(undo="back")
    async def go(ctx: ToolContext) -> None:
        seen.append((ctx.direction, ctx.idempotency_key, ctx.undoes))

    @tool
    async def back(ctx: ToolContext) -> None:
        seen.append((ctx.direction, ctx.idempotency_key, ctx.undoes))

    async with Coordinator.open("memory://", [go, back], durability="relaxed") as coordinator:
        with pytest.raises(RuntimeError, match="no"):
            async with coordinator.session("agent") as session:
                await session.call("go", {})
                raise RuntimeError("no")
    (way, key, undoes), (way_back, key_back, undone) = seen
    assert (way, undoes) == ("forward", None)
    assert (way_back, undone) == ("compensate", key)
    assert key != key_back


def test_without_the_extra_it_says_so(tmp_path: Path) -> None:
    """The engine needs no SQLAlchemy; a barrier without it names the extra."""
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "import saga_engine, saga_engine.api\n"
        "from saga_engine.errors import SettingInvalid\n"
        "try:\n    import saga_engine.barriers\n"
        "except SettingInvalid as error:\n    print(error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "pip install 'saga-engine[sql]'", done.stderr
