"""Child sagas: a step that runs another saga, through the API, on a real store. What the core decides is simulated."""

from __future__ import annotations

import asyncio
import json
import runpy
import uuid
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.analysis.replay import Replay
from saga_engine.analysis.trace_file import read as read_trace
from saga_engine.api.requests import require_no_events
from saga_engine.errors import PlanInvalid, RuntimeUnsupported, StoreUnavailable
from saga_engine.runtime import children, resting
from saga_engine.runtime.children import Family
from tests.support.children import DONE, STUCK, WAIT, booking, kid, opened, plan, reaches


@pytest.fixture
def url() -> str:
    DONE.clear()
    STUCK.clear()
    return f"memory://{uuid.uuid4().hex}"


async def test_the_outputs_of_a_child_are_bound_and_the_child_is_a_saga_of_its_own(url: str) -> None:
    """A child gets bound input, its outputs are the step's; its journal names its parent; the parent made no call for it."""
    async with opened(url) as engine:
        steps = (
            booking(1, 1),
            kid(booking("a", "$input.n"), n="$output.step_1.n"),
            booking(3, "$output.step_trip.outputs.a.n"),
        )
        found = await engine.run(plan(*steps), saga_id="p")
        assert (found.status, found.steps[1].output) == ("COMPLETED", {"saga_id": "p.trip", "outputs": {"a": {"n": 1}}})
        child = await engine.history("p.trip")
        assert child[0]["parent"] == {"saga": "p", "step": "trip"}
        assert [record["k"] for record in await engine.history("p")][3:5] == ["StepWaiting", "ChildEnded"]
        assert DONE == [("book", 1)] * 3


async def test_a_child_that_is_undone_fails_its_step_and_leaves_nothing(url: str) -> None:
    """The child undoes itself first, then the parent what it had done; the report is clean and gives the child's reason."""
    async with opened(url) as engine:
        found = await engine.run(plan(booking(1, 1), kid(booking("a", 2), booking("b", 13))), saga_id="p")
        assert (found.status, found.report["clean"]) == ("COMPENSATED", True)
        assert found.error is not None
        assert "refused" in found.error.message
        assert DONE == [("book", 1), ("book", 2), ("unbook", 2), ("unbook", 1)]


async def test_a_child_that_completed_is_undone_once_in_its_turn(url: str) -> None:
    """A later failure undoes the child by the undo of completed sagas, last things first, and before what came earlier."""
    async with opened(url) as engine:
        steps = (booking(1, 1), kid(booking("a", 2), booking("b", 3)), booking(9, 13))
        found = await engine.run(plan(*steps), saga_id="p")
        assert (found.status, found.report["compensated"]) == ("COMPENSATED", [1, "trip"])
        assert [each for each in DONE if each[0] == "unbook"] == [("unbook", 3), ("unbook", 2), ("unbook", 1)]
        assert (await engine.show("p.trip")).to_dict()["undone_by"] == "p.trip-undo"


async def test_a_cancel_awaits_the_end_of_an_open_child(url: str) -> None:
    """The child that waits is cancelled and undoes what it did, before any earlier step of the parent is undone."""
    async with opened(url) as engine:
        await engine.submit(plan(booking(1, 1), kid(booking("a", 2), WAIT)), saga_id="p")
        await reaches(engine, "p.trip", "RUNNING", waits=True)
        found = await engine.cancel("p")
        assert (found.status, found.report["clean"]) == ("COMPENSATED", True)
        assert DONE == [("book", 1), ("book", 2), ("unbook", 2), ("unbook", 1)]


async def test_what_a_child_leaves_is_in_the_report_of_its_parent(url: str) -> None:
    """An operator accepts what the child could not undo: the parent ends WAIVED, not clean, and names it."""
    STUCK.add(2)
    async with opened(url) as engine:
        handle = await engine.submit(plan(booking(1, 1), kid(booking("a", 2), booking("b", 13))), saga_id="p")
        await reaches(engine, "p.trip", "ESCALATED")
        assert (await engine.show("p")).to_dict()["steps"][1]["waits"]["about"] == {"saga": "p.trip"}
        await engine.resolve("p.trip", "a", "accept")
        found = await handle.wait()
        assert (found.status, found.report["clean"], found.report["left_in_place"]) == ("WAIVED", False, ["trip"])
        assert (await engine.show("p")).to_dict()["steps"][1]["child"] == {"saga_id": "p.trip", "left": ["p.trip/a"]}


async def test_a_parent_waits_for_the_questions_of_an_undo(url: str) -> None:
    """The undo of a child asks a person; the parent undoes nothing earlier until that is answered."""
    STUCK.add(2)
    async with opened(url) as engine:
        handle = await engine.submit(plan(booking(1, 1), kid(booking("a", 2)), booking(9, 13)), saga_id="p")
        await reaches(engine, "p.trip-undo", "ESCALATED")
        assert ("unbook", 1) not in DONE
        await engine.resolve("p.trip-undo", "a", "undone")
        assert ((await handle.wait()).status, DONE[-1]) == ("COMPENSATED", ("unbook", 1))


async def test_an_end_that_nobody_told_is_found(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends between the end of the child and the message to its parent: the next one looks at the child."""

    async def nothing(family: Family, state: Any, epoch: int) -> bool:
        del family, state, epoch
        return False

    with monkeypatch.context() as patched:
        patched.setattr(Family, "tell", nothing)
        async with opened(url) as engine:
            await engine.submit(plan(kid(booking("a", 2)), booking(2, 3)), saga_id="p")
            await reaches(engine, "p.trip", "COMPLETED")
    async with opened(url) as engine:
        assert (await engine.resume_all())["p"].status == "COMPLETED"  # type: ignore[union-attr]
        assert DONE == [("book", 2), ("book", 3)]


async def test_a_worker_tells_the_end_that_the_process_of_a_child_did_not(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends in that moment: a worker takes the child over, and the parent need not look by itself."""
    told: list[str] = []
    genuine = Family.tell

    async def tell(family: Family, state: Any) -> None:
        told.append(state.saga_id)
        if len(told) == 1:
            raise StoreUnavailable("the process is dead", hint="it is a test")
        await genuine(family, state)

    monkeypatch.setattr(Family, "tell", tell)
    monkeypatch.setattr(children, "_LOOK_MS", (86_400_000, 86_400_000))
    monkeypatch.setattr(resting, "TELL_AGAIN_MS", 50)
    async with opened(url) as engine:
        worker = asyncio.create_task(engine.work())
        await engine.submit(plan(kid(booking("a", 2)), booking(2, 3)), saga_id="p", detach=True)
        await reaches(engine, "p", "COMPLETED")
        queued = (await engine.store.work().overview()).timed
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    assert told == ["p.trip"] * 2
    assert DONE == [("book", 2), ("book", 3)]
    assert queued == 0, "what is told is in no queue"


async def test_two_workers_share_parents_and_children(url: str) -> None:
    """A parent that waits holds no task and no place: one place for each of two workers is enough for three levels."""
    async with opened(url) as engine, opened(url) as other:
        workers = [asyncio.create_task(each.work(concurrency=1)) for each in (engine, other)]
        steps = [kid(kid(booking("a", n), booking("b", n))) for n in (1, 2)]
        for number, step in enumerate(steps):
            await engine.submit(plan(step, booking(9, 13 if number else 5)), saga_id=f"p{number}", detach=True)
        await reaches(engine, "p0", "COMPLETED")
        await reaches(engine, "p1", "COMPENSATED")
        assert (DONE.count(("unbook", 2)), DONE.count(("book", 1))) == (2, 2)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def test_a_saga_whose_children_completed_is_undone_later(url: str) -> None:
    """``saga undo`` of the parent undoes its children, too."""
    async with opened(url) as engine:
        await engine.run(plan(kid(booking("a", 2)), booking(2, 3)), saga_id="p")
        assert (await engine.undo("p")).status == "COMPENSATED"  # type: ignore[union-attr]
        assert DONE[-2:] == [("unbook", 3), ("unbook", 2)]


async def test_what_is_sensitive_to_a_child_is_to_its_parent(url: str) -> None:
    """No view of the parent shows a sensitive param of its child, nor an output that repeats it."""
    step = {"step_id": "a", "tool": "pay", "params": {"card": "$input.card"}}
    async with opened(url) as engine:
        whole = plan(kid(step, card="$input.card"), input={"card": "4111-2222"})
        assert (await engine.run(whole, saga_id="p")).status == "COMPLETED"
        for shown in ((await engine.show("p")).to_dict(), await engine.history("p"), await engine.history("p.trip")):
            assert "4111-2222" not in json.dumps(shown)


async def test_another_saga_with_the_id_of_a_child_is_not_taken_for_it(url: str) -> None:
    """A saga that has the id already fails the step: its effects are its own."""
    async with opened(url) as engine:
        await engine.run(plan(booking("a", 2)), saga_id="p.trip")
        found = await engine.run(plan(kid(booking("a", 2))), saga_id="p")
        assert found.error is not None
        assert (found.status, found.error.error_code) == ("COMPENSATED", "saga-exists")


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"step_id": 1, "saga": {}}, "saga-invalid"),
        ({"step_id": 1, "saga": {"plan": {"task_id": "x", "steps": [booking(1, 1)]}}}, "saga-invalid"),
        (kid(kid(kid(kid(booking(1, 1))))), "saga-depth"),
        (kid(*[{**kid(booking(1, 1)), "step_id": n} for n in range(101)]), "saga-children"),
        (kid(booking(1, "$input.n")), "binding-input-missing"),
        (kid(booking(1, 1), {"step_id": 2, "tool": "nope"}), "tool-unknown"),
        ({**kid(booking(1, 1)), "rollback": {"tool": "unbook"}}, "builtin-invalid"),
    ],
)
async def test_a_child_is_checked_with_its_parent(url: str, step: dict[str, Any], code: str) -> None:
    """What is wrong with a child is found before anything runs, at its place in the parent's plan."""
    async with opened(url) as engine:
        with pytest.raises(PlanInvalid) as caught:
            await engine.submit(plan(step))
        assert code in {problem.code for problem in caught.value.problems}


async def test_the_trip_of_the_examples(url: str) -> None:
    """A trip of two cities: each is a child; without a room in the second nothing stays booked."""
    folder = Path(__file__).parents[2] / "examples" / "trip"
    found = runpy.run_path(str(folder / "tools.py"))
    tools = [found[name] for name in ("book_seat", "book_room", "cancel_booking")]
    async with Coordinator.open(url, tools, on_escalation=()) as engine:
        assert (
            await engine.run(folder / "plan.json", saga_id="went", input={"second": "Atlantis"})
        ).status == "COMPENSATED"
        assert found["BOOKED"] == {}
        done = await engine.run(folder / "plan.json", saga_id="trip")
        assert (done.status, len(found["BOOKED"])) == ("COMPLETED", 4)


def test_temporal_refuses_child_sagas() -> None:
    """There a child could not tell its parent: a plan with one is refused before anything runs."""
    with pytest.raises(RuntimeUnsupported):
        require_no_events(["saga"])


async def test_a_child_with_a_pivot_is_the_pivot_of_its_parent(url: str) -> None:
    """Nothing that can be undone comes after it, and once it has completed the parent only goes forward."""
    pivot = kid(booking("a", 2), {"step_id": "z", "tool": "unbook", "params": {"n": 7}, "kind": "pivot"})
    async with opened(url) as engine:
        with pytest.raises(PlanInvalid):
            await engine.submit(plan(pivot, booking(2, 3)))
        await engine.submit(plan(pivot, {**booking(2, 13), "kind": "retriable"}), saga_id="p")
        await reaches(engine, "p", "ESCALATED")
        assert ("unbook", 2) not in DONE


async def test_a_fork_reuses_a_child_as_a_whole(url: str) -> None:
    """The fork owns the child's effects: no child is started again, and the fork's failure undoes the old one."""
    async with opened(url) as engine:
        first = plan(kid(booking("a", 2)), booking(2, 13))
        await engine.submit({**first, "on_failure": "pause"}, saga_id="p")
        await reaches(engine, "p", "ESCALATED")
        found = await engine.fork("p", plan=plan(kid(booking("a", 2)), booking(2, 4)), new_id="f")
        assert found.status == "COMPLETED"  # type: ignore[union-attr]
        assert DONE == [("book", 2), ("book", 4)]
        assert (await engine.undo("f")).status == "COMPENSATED"  # type: ignore[union-attr]
        assert DONE[2:] == [("unbook", 4), ("unbook", 2)]


async def test_the_trace_of_a_saga_with_children_is_replayed(url: str) -> None:
    """The engine decides the same from the journal, forward and backward, in plans and in sessions."""
    async with opened(url) as engine:
        await engine.run(plan(kid(booking("a", 2)), booking(2, 13)), saga_id="p")
        async with engine.session("s") as s:
            point = s.savepoint()
            await s.saga(plan(booking("a", 3)))
            await s.rollback(point)
        for saga_id in ("p", "p.trip", "p.trip-undo", "s", "s.1", "s.1-undo"):
            (trace,) = read_trace(line.encode() + b"\n" for line in await engine.trace(saga_id, full=True))
            replay = Replay(trace, engine.tools, together_ms=10**9)
            assert len(list(replay.run())) == len(trace.entries) - 1
            assert replay.divergence is None, saga_id
