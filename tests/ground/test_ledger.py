"""The ledger of the outside world: it keeps what it is told, whoever dies, and sees every disagreement."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, PlanInvalid, ToolContext, ToolError, tool
from saga_engine.testing.ledger import OutsideLedger

ROOT = Path(__file__).parents[2]


def ctx(step: int | str = 1, direction: Any = "forward", attempt: int = 1, key: str = "") -> ToolContext:
    """A call of one step, under the key that the step has in this direction."""
    return ToolContext("s", str(step), direction, attempt, key or f"s:{step}:{direction}", 1, None)


def did(
    ledger: OutsideLedger, step: int | str = 1, direction: Any = "forward", attempt: int = 1, key: str = "", **kw: Any
) -> Any:
    """A call that arrives and is carried out."""
    call = ctx(step, direction, attempt, key)
    ledger.sent(call, "t")
    return ledger.apply(call, "t", {"step": step}, **kw)


def step(step_id: int, status: str, attempts: int = 1, undo: str = "", **more: Any) -> dict[str, Any]:
    """A step of a report; ``undo`` is the status of its compensation."""
    compensation = {"status": undo, "attempts": 1} if undo else None
    return {
        "step_id": step_id,
        "status": status,
        "kind": "compensatable",
        "attempts": attempts,
        "compensation": compensation,
    } | more


def report(status: str, *steps: dict[str, Any], **lists: list[int]) -> dict[str, Any]:
    """A report as ``show --json`` prints it."""
    filled = {"compensated": [], "failed": [], "unresolved": [], "left_in_place": []} | lists
    clean = not (filled["failed"] or filled["unresolved"] or filled["left_in_place"])
    return {"saga_id": "s", "status": status, "steps": list(steps), "report": filled | {"clean": clean}}


@pytest.fixture
def ledger(tmp_path: Path) -> OutsideLedger:
    return OutsideLedger(tmp_path / "world.db")


# --- keeping -------------------------------------------------------------------------------------------------------


def test_sent_and_applied_are_kept_apart(ledger: OutsideLedger) -> None:
    """A request that arrived is no effect."""
    ledger.sent(ctx(), "t", {"a": 1})
    assert ledger.standing() == []
    assert ledger.find(ctx().idempotency_key) is None
    assert [(line.what, line.value) for line in ledger.lines("s")] == [("sent", {"a": 1})]


def test_a_key_is_applied_once_and_answered_alike(ledger: OutsideLedger) -> None:
    """A repeat under the same key gets the first answer and no second effect."""
    first = did(ledger)
    ledger.sent(ctx(attempt=2), "t")
    assert ledger.apply(ctx(attempt=2), "t", {"step": "other"}) == first
    assert len(ledger.standing()) == 1
    found = ledger.find(ctx().idempotency_key)
    assert found is not None
    assert found.output == first


def test_a_world_without_keys_does_it_again(ledger: OutsideLedger) -> None:
    """``once=False`` is the tool that knows no keys: two calls are two effects."""
    did(ledger, once=False)
    did(ledger, attempt=2, once=False)
    assert len(ledger.standing()) == 2


def test_an_undo_takes_the_effect_away_and_a_late_request_cannot_bring_it_back(ledger: OutsideLedger) -> None:
    """What was cancelled stays cancelled, whether the request came before or after."""
    did(ledger, 1)
    did(ledger, 1, "compensate")
    did(ledger, 2, "compensate")
    ledger.sent(ctx(2), "t")
    with pytest.raises(ToolError, match="cancelled"):
        ledger.apply(ctx(2), "t")
    assert ledger.standing() == []


def test_a_call_that_takes_one_back_is_its_undo(ledger: OutsideLedger) -> None:
    """The effect stands no more, it counts as undone by the report, and an undo of the engine's would be a second one."""
    did(ledger, 1)
    back = ToolContext("s", "2", "forward", 1, "s:1:compensate", 1, None, ctx(1).idempotency_key)
    ledger.sent(back, "t")
    ledger.apply(back, "t")
    assert ledger.standing() == []
    told = report("COMPENSATED", step(1, "COMPENSATED", undone_by=2), step(2, "SUCCEEDED", undoes=1), compensated=[1])
    assert ledger.compare(told) == []
    did(ledger, 1, "compensate", key="other")
    assert "step 1: it was undone 2 times" in ledger.compare(told)


def test_an_effect_without_a_request_is_a_mistake_of_the_test(ledger: OutsideLedger) -> None:
    """A tool that forgets to say ``sent`` is told so."""
    with pytest.raises(ValueError, match="sent"):
        ledger.apply(ctx(), "t")


def test_many_threads_write_one_ledger(tmp_path: Path) -> None:
    """No line is lost, and a key that many use at once is applied once."""
    path = tmp_path / "world.db"

    def work(number: int) -> None:
        did(OutsideLedger(path), number % 4, attempt=number, key=f"k{number % 4}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    lines = OutsideLedger(path).lines()
    assert len([line for line in lines if line.what == "sent"]) == 40
    assert len([line for line in lines if line.what == "applied"]) == 4


_WRITER = """
import sys
from saga_engine import ToolContext
from saga_engine.testing.ledger import OutsideLedger
ledger = OutsideLedger(sys.argv[1])
for number in range(1_000_000):
    call = ToolContext("s", f"{sys.argv[2]}-{number}", "forward", 1, f"{sys.argv[2]}:{number}", 1, None)
    ledger.sent(call, "t", {"filler": "x" * 5000})
    ledger.apply(call, "t", {"filler": "y" * 5000})
    print(number, flush=True)
"""


def test_killed_writers_leave_whole_lines(tmp_path: Path) -> None:
    """Writers that are killed at any moment leave every acknowledged line, and no half of one."""
    path = tmp_path / "world.db"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), name],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for name in ("a", "b", "c")
    ]
    acknowledged = {}
    for wanted, (name, writer) in enumerate(zip(("a", "b", "c"), writers, strict=True), start=3):
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) >= wanted:
                break
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.wait()
        acknowledged[name] = int(rest[-1]) if rest and rest[-1].isdigit() else wanted
    ledger = OutsideLedger(path)
    for name, last in acknowledged.items():
        assert all(ledger.find(f"{name}:{number}") for number in range(last + 1))
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert {len(line.value["filler"]) for line in ledger.lines()} == {5000}
    did(ledger, "after")


# --- comparing -----------------------------------------------------------------------------------------------------


def test_agreement_is_an_empty_list(ledger: OutsideLedger) -> None:
    """What happened is reported to have happened, what was undone to be undone: nothing to say."""
    did(ledger, 1)
    did(ledger, 1, "compensate")
    ledger.sent(ctx(2), "t")
    body = report(
        "COMPENSATED",
        step(1, "COMPENSATED", undo="COMPENSATED"),
        step(2, "FAILED"),
        step(3, "SKIPPED", 0),
        compensated=[1],
    )
    assert ledger.compare(body) == []


@pytest.mark.parametrize(
    ("story", "body", "word"),
    [
        (
            [(1, "forward", 1)],
            report("COMPENSATED", step(1, "COMPENSATED", undo="COMPENSATED"), compensated=[1]),
            "said to be undone, and stands",
        ),
        ([(1, "forward", 1)], report("COMPENSATED", step(1, "FAILED")), "FAILED, and its effect stands"),
        (
            [(1, "forward", 1)],
            report("COMPENSATED", step(1, "SUCCEEDED"), unresolved=[1]),
            "the saga is said to be undone",
        ),
        ([(1, "forward", 1)], report("COMPLETED", step(1, "IN_DOUBT"), unresolved=[1]), "said to be completed"),
        ([(1, "forward", 1)], report("ESCALATED", step(1, "ESCALATED")), "the report does not list it"),
        ([(1, "forward", 1)], report("WAIVED", step(1, "RESOLVED")), "said to be clean"),
        ([], report("COMPLETED", step(1, "SUCCEEDED")), "does not stand"),
        (
            [(1, "forward", 1), (1, "forward", 2)],
            report("COMPLETED", step(1, "SUCCEEDED", 1)),
            "attempt 2 (forward) was sent",
        ),
        ([(1, "forward", 1), (1, "forward", 1)], report("COMPLETED", step(1, "SUCCEEDED", 1)), "sent 2 times"),
        (
            [(1, "forward", 1), (1, "compensate", 1)],
            report("COMPENSATED", step(1, "COMPENSATED"), compensated=[1]),
            "attempt 1 (compensate)",
        ),
        ([(9, "forward", 1)], report("COMPLETED", step(1, "SUCCEEDED")), "the report does not know it"),
        ([(1, "forward", 1)], report("COMPLETED", step(1, "SUCCEEDED", kind="read")), "said to read only"),
        (
            [(1, "forward", 1), (1, "compensate", 1)],
            report("COMPENSATED", step(1, "COMPENSATED", undo="COMPENSATED")),
            "missing from the report's list",
        ),
        (
            [(1, "forward", 1), (1, "compensate", 1)],
            report("COMPENSATED", step(1, "SKIPPED", 0, undo="COMPENSATED")),
            "SKIPPED, and was asked for",
        ),
    ],
)
def test_every_disagreement_is_seen(ledger: OutsideLedger, story: list[Any], body: dict[str, Any], word: str) -> None:
    """Each way in which a report can be wrong about the world has its sentence."""
    for step_id, direction, attempt in story:
        did(ledger, step_id, direction, attempt)
    assert any(word in sentence for sentence in ledger.compare(body)), ledger.compare(body)


def test_doing_and_undoing_twice_is_seen(ledger: OutsideLedger) -> None:
    """A second booking, and a second refund, are disagreements even if all else is right."""
    for attempt in (1, 2):
        did(ledger, 1, attempt=attempt, once=False)
    for attempt in (1, 2):
        did(ledger, 1, "compensate", attempt, once=False)
    body = report("COMPENSATED", step(1, "COMPENSATED", 2, undo="COMPENSATED"), compensated=[1])
    body["steps"][0]["compensation"]["attempts"] = 2
    assert ledger.compare(body) == [
        "step 1: its effect was applied again while it stood",
        "step 1: it was undone 2 times",
    ]


def test_keys_belong_to_one_call(ledger: OutsideLedger) -> None:
    """Attempts of one call under two keys, and one key for two calls, are disagreements."""
    did(ledger, 1, attempt=1, key="x")
    did(ledger, 1, attempt=2, key="y")
    ledger.sent(ctx(2, key="x"), "t")
    found = ledger.compare(report("RUNNING", step(1, "SUCCEEDED", 2), step(2, "RUNNING")))
    assert any("different keys" in sentence for sentence in found)
    assert any("one key stands for different calls" in sentence for sentence in found)


def test_what_a_person_undid_by_hand_counts(ledger: OutsideLedger) -> None:
    """An effect that a person took back stands no more."""
    did(ledger, 1)
    body = report("COMPENSATED", step(1, "RESOLVED"), compensated=[1])
    assert ledger.compare(body)
    ledger.by_hand("s", 1, "telephone")
    assert ledger.compare(body) == []


_CHAIN = {"steps": [{"step_id": n, "tool": "t", "rollback": {"tool": "u"}} for n in (1, 2)]}
_NAMED = {"steps": [_CHAIN["steps"][0], {**_CHAIN["steps"][1], "depends_on": [1]}]}
_FREE = {"steps": [{**item, "depends_on": []} for item in _CHAIN["steps"]]}


def test_the_order_of_undos_follows_the_plan(ledger: OutsideLedger) -> None:
    """A step that others depended on is undone after them; without a dependency any order is right."""
    for step_id, direction in ((1, "forward"), (2, "forward"), (1, "compensate"), (2, "compensate")):
        did(ledger, step_id, direction)
    done = [step(n, "COMPENSATED", undo="COMPENSATED") for n in (1, 2)]
    body = report("COMPENSATED", *done, compensated=[1, 2])
    assert ledger.compare(body) == []
    assert ledger.compare(body, _CHAIN) == ["step 1 was undone before step 2, which depends on it"]
    assert ledger.compare(body, _FREE) == []
    assert ledger.compare(body, _NAMED) == ["step 1 was undone before step 2, which depends on it"]


def test_an_undo_may_not_overtake_one_that_is_still_open(ledger: OutsideLedger) -> None:
    """A step may not be undone while one that depended on it stands, unless that one is to stay."""
    for step_id, direction in ((1, "forward"), (2, "forward"), (1, "compensate")):
        did(ledger, step_id, direction)
    first = step(1, "COMPENSATED", undo="COMPENSATED")
    waiting = report("COMPENSATING", first, step(2, "SUCCEEDED"), compensated=[1], unresolved=[2])
    assert ledger.compare(waiting, _CHAIN) == ["step 1 was undone before step 2, which depends on it"]
    left = report("WAIVED", first, step(2, "RESOLVED"), compensated=[1], left_in_place=[2])
    assert ledger.compare(left, _CHAIN) == []


@pytest.mark.parametrize("count", [1, 150])
def test_a_plan_needs_no_input_for_the_order_of_its_undos(ledger: OutsideLedger, count: int) -> None:
    """Input that a submission gave is not in the plan; any other mistake in it is still refused."""
    for step_id, direction in ((1, "forward"), (2, "forward"), (1, "compensate"), (2, "compensate")):
        did(ledger, step_id, direction)
    done = [step(n, "COMPENSATED", undo="COMPENSATED") for n in (1, 2)]
    body = report("COMPENSATED", *done, compensated=[1, 2])
    asked = {
        "params": {f"p{n}": f"$input.given.p{n}" for n in range(count)},
        "when": [{"value": "$input.go", "op": "==", "to": 1}],
    }
    chain = {"steps": [{**each, **asked} for each in _CHAIN["steps"]]}
    assert ledger.compare(body, chain) == ["step 1 was undone before step 2, which depends on it"]
    circle = {"steps": [{**chain["steps"][0], "depends_on": [2]}, chain["steps"][1] | {"depends_on": [1]}]}
    with pytest.raises(PlanInvalid, match="depend on each other"):
        ledger.compare(body, circle)


async def test_the_engine_and_the_ledger_agree(ledger: OutsideLedger) -> None:
    """With real tools and a real coordinator the comparison has nothing to say."""

    @tool
    def undo(ref: str, ctx: ToolContext) -> dict[str, str]:
        ledger.sent(ctx, "undo", {"ref": ref})
        return ledger.apply(ctx, "undo", {"undone": ref})

    @tool(undo=undo)
    def do(ref: str, ctx: ToolContext) -> dict[str, str]:
        ledger.sent(ctx, "do", {"ref": ref})
        if ref == "no":
            raise ToolError("no")
        return ledger.apply(ctx, "do", {"ref": ref})

    plan = {
        "steps": [{"step_id": n, "tool": "do", "params": {"ref": ref}} for n, ref in enumerate(("a", "b", "no", "c"))]
    }
    async with Coordinator.open("memory://", [do], durability="relaxed") as coordinator:
        outcome = await coordinator.run(plan)
    assert outcome.report["compensated"] == [0, 1]
    assert ledger.compare(outcome, plan) == []
    assert len(ledger.lines(outcome.saga_id, what="applied")) == 4


async def test_steps_that_conditions_leave_out_are_no_disagreement(ledger: OutsideLedger) -> None:
    """A saga completes without a step that its ``when`` skips, and without one that fails and says ``continue``."""

    @tool
    def undo(ref: str) -> None: ...

    @tool(undo=undo)
    def do(ref: str, ctx: ToolContext) -> dict[str, str]:
        ledger.sent(ctx, "do", {"ref": ref})
        if ref == "no":
            raise ToolError("no", retryable=False)
        return ledger.apply(ctx, "do", {"ref": ref})

    left_out = {"when": [{"value": 1, "op": "==", "to": 2}]}, {"on_error": "continue"}, {}
    plan = {
        "steps": [
            {"step_id": n, "tool": "do", "params": {"ref": ref}, **more}
            for n, (ref, more) in enumerate(zip(("a", "no", "b"), left_out, strict=True))
        ]
    }
    async with Coordinator.open("memory://", [do], durability="relaxed") as coordinator:
        outcome = await coordinator.run(plan)
    assert (outcome.status, ledger.compare(outcome, plan)) == ("COMPLETED", [])
    forged = outcome.to_dict()
    del forged["report"]["skipped"]
    assert ledger.compare(forged, plan) == ["step 0: the saga is said to be completed, the step is SKIPPED"]


def test_the_calls_of_an_undo_have_keys_of_their_own(ledger: OutsideLedger) -> None:
    """An undo of several calls is over with the last of them, and no call goes out under a key that nobody knows."""
    did(ledger)
    did(ledger, direction="compensate", key="s:1:c")
    calls = [
        {"attempts": 1, "idempotency_key": "s:1:c", "status": "COMPENSATED"},
        {"attempts": 0, "idempotency_key": "s:1:c1", "status": "PENDING"},
    ]
    undo = {"status": "ESCALATED", "attempts": 0, "calls": calls}
    half = report("ESCALATED", step(1, "ESCALATED", compensation=undo), failed=[1])
    assert ledger.compare(half) == []
    claimed = report("COMPENSATED", step(1, "COMPENSATED", compensation=undo), compensated=[1])
    assert any("and stands" in each for each in ledger.compare(claimed))
    did(ledger, direction="compensate", key="s:1:c1")
    calls[1] |= {"attempts": 1, "status": "COMPENSATED"}
    assert ledger.compare(claimed) == []
    did(ledger, direction="compensate", key="s:1:c9")
    assert any("does not know" in each for each in ledger.compare(claimed))


@pytest.mark.parametrize(
    ("via", "status", "undo", "called", "word"),
    [
        ("event", "COMPENSATED", "COMPENSATED", True, ""),
        ("event", "COMPENSATED", "COMPENSATED", False, "and stands"),
        ("event", "SUCCEEDED", "", True, "does not stand"),
        ("timer", "SUCCEEDED", "", False, ""),
    ],
)
def test_what_an_event_stands_for_is_undone_by_a_call(
    ledger: OutsideLedger, via: str, status: str, undo: str, called: bool, word: str
) -> None:
    """A wait with a rollback calls nothing forwards: the event is the effect, and a wait without one has none."""
    if called:
        did(ledger, 1, "compensate")
    body = report(
        "COMPENSATED" if undo else "COMPLETED",
        step(1, status, 0, undo, via=via, builtin="wait"),
        **({"compensated": [1]} if undo else {}),
    )
    found = [each for each in ledger.compare(body) if "was sent" not in each]
    assert (not found) if not word else any(word in each for each in found), found
