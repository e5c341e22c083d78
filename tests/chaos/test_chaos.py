"""Chaos in its short form: some hundred sagas, and everything that the injector knows goes wrong at least once.

``make chaos`` is the long form. The seed is in what a failing test prints; the same seed draws the same plans and faults.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dev.chaos import child_laws, event_laws, injector, operator, plan_laws, plans, stuck, value_laws, verdict
from dev.chaos.run import Quiet
from dev.chaos.told import Told
from dev.chaos.tools import make_tools
from dev.chaos.values import Entry
from saga_engine import Coordinator
from saga_engine.api.stops import stop
from saga_engine.core import records
from saga_engine.core import transitions as t
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.ports import Channel, ListedEvent, Waiter
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.polling import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it freezes, limits and mounts as Linux does")

ROOT = Path(__file__).parents[2]
SEED = 20
FIGURES = (
    "by another owner than before",
    "answers",
    "doubts",
    "retries",
    "undone",
    "sessions kept",
    "taken back by agents",
    "held by a breaker",
)
KINDS = (
    "skipped",
    "gone on from",
    "waits",
    "ended by event",
    "ended by first",
    "ended by all",
    "events that arrived",
    "ended by timer",
    "asked by the plan",
    "finally",
    "undos of completed sagas",
    "children",
    "values set",
    "restored",
    "drifts",
    "lists",
    "items",
    "late events handled",
)


def run(out: Path, *args: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, what was printed, and the report of a run in a process of its own."""
    command = [sys.executable, "-m", "dev.chaos", *args, "--json", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=570)
    said = ran.stdout + ran.stderr
    assert out.exists(), said
    return ran.returncode, said, json.loads(out.read_text())


def test_whatever_goes_wrong_ledger_report_and_journal_agree(tmp_path: Path) -> None:
    """No effect twice, none lost, no saga stuck, whoever dies, freezes, hangs, or runs out of memory or disk."""
    code, said, report = run(tmp_path / "out.json", "--seed", str(SEED), "--sagas", "160", "--workers", "2")
    assert report["breaches"] == {}, said
    assert report["wrong"] == [], said
    assert code == 0, said
    figures = report["figures"]
    assert figures["ticks"] >= 1
    others = sum(figures[name] for name in ("undos of completed sagas", "children", "ticks", "late events handled"))
    assert sum(report["ends"].values()) == 160 + 8 + others
    assert set(report["ends"]) >= {"COMPLETED", "COMPENSATED"}
    assert {fault for fault in injector.FAULTS if not report["faults"].get(fault)} == set()
    assert report["faults"]["store started"] >= 3
    assert report["faults"]["agents that killed their process"] >= 3
    for figure in (*FIGURES, *KINDS):
        assert report["figures"][figure] > 0, figure
    assert f"seed {SEED}: 0 of 160 sagas and 8 sessions violate a law" in said


@pytest.mark.slow
@pytest.mark.debian_redis
def test_whatever_goes_wrong_they_agree_on_debians_redis(tmp_path: Path) -> None:
    """The same on a store of another make, whose scripts and whose log are its own."""
    sizes = ("--seed", str(SEED), "--sagas", "160", "--workers", "2", "--server", str(shutil.which("redis-server")))
    code, said, report = run(tmp_path / "out.json", *sizes)
    assert code == 0, said
    assert report["server"].startswith("redis 7"), said
    assert report["faults"]["store started"] >= 3


@pytest.mark.parametrize(
    ("sabotage", "sentence"),
    [("keys", "its effect was applied again while it stood"), ("undos", "it is said to be undone, and stands")],
)
def test_a_world_that_breaks_its_promises_is_found_out(tmp_path: Path, sabotage: str, sentence: str) -> None:
    """The verdict can fail: effects that happen twice, and undos that did not happen, are named saga by saga."""
    args = (
        "--seed",
        str(SEED),
        "--sagas",
        "30",
        "--workers",
        "1",
        "--faults",
        "0",
        "--sessions",
        "4",
        "--sabotage",
        sabotage,
    )
    code, said, report = run(tmp_path / "out.json", *args)
    assert code == 1, said
    assert any(sentence in breach for breaches in report["breaches"].values() for breach in breaches), said


@pytest.mark.parametrize(
    ("looks", "ended"),
    [
        ([(7, True), (7, True)], [False, True]),
        ([(7, True), (8, False), (8, True), (8, True)], [False, False, False, True]),  # begun after the first look
        ([(7, True), (8, True), (8, True)], [False, False, True]),  # it was short
        ([(7, False), (7, True)], [False, False]),
    ],
)
def test_a_saga_that_begins_after_a_look_is_waited_for(looks: list[tuple[int, bool]], ended: list[bool]) -> None:
    """A run is judged when two looks agree that all has ended: what a customer did last may have begun one more saga."""
    quiet = Quiet()
    assert [quiet.after(known, finished=finished) for known, finished in looks] == ended


def test_plans_and_blows_follow_from_the_seed() -> None:
    """The same seed draws the same plans, all of them legal, and the same faults; another one draws others."""
    tools = make_tools()
    drawn = [plans.plan(SEED, number) for number in range(400)]
    assert drawn == [plans.plan(SEED, number) for number in range(400)]
    assert drawn != [plans.plan(SEED + 1, number) for number in range(400)]
    for plan in drawn:
        compile_plan(load_plan(plan), tools)
    kinds = Counter(step.get("kind", "compensatable") for plan in drawn for step in plan["steps"])
    assert min(kinds[kind] for kind in ("compensatable", "pivot", "retriable", "read")) > 20
    sent = [[sending.when == "late" for sending in plans.errand(SEED, number).events] for number in range(2000)]
    assert any(len(set(late)) > 1 for late in sent), "events before the end of a saga, and after it"
    assert all(late == sorted(late) for late in sent), "a saga may need the others in order to end"
    assert injector.draw(SEED, 40) == injector.draw(SEED, 40)
    assert set(injector.draw(SEED, len(injector.FAULTS))) == set(injector.FAULTS)


_CALLED = {
    "step_id": "s1",
    "status": "SUCCEEDED",
    "attempts": 1,
    "error": None,
    "tool": "book_keyed",
    "output": {"ref": "i1"},
}
_BEFORE = _CALLED | {"step_id": "s0", "output": {"ref": "i0"}}
_WHEN = {"value": {"$first": ["$output.step_s0.ref", "none"]}, "op": "==", "to": "i0"}
_WAIT = {"step_id": "b0", "wait": {"event": plans.EVENT}}
_WAITED = {"k": "StepSucceeded", "step": "b0", "via": "event", "source": "b0-e1", "output": {"id": "b0-e1"}, "at": 9}
_WAITS = {"k": "StepWaiting", "step": "b0", "at": 8}
_SENT = (plans.Sending("b0", "early", 0.0, ("b0-e1", "b0-e1")),)
_ASK = {"step_id": "b0", "ask": {"question": "?", "options": list(plans.OPTIONS)}}
_ANSWERED = {
    "step_id": "b0",
    "status": "SUCCEEDED",
    "attempts": 0,
    "tool": "",
    "output": {"answer": "retry", "by": "ada"},
}
_GOES_ON = {"step_id": "b0", "wait": {"event": plans.EVENT, "timeout_s": 1, "on_timeout": "continue"}}
_EXPIRED = {"step_id": "b0", "status": "FAILED", "attempts": 0, "tool": "", "error": {"error_code": "wait_timed_out"}}
_END = {"k": "QuestionResolved", "step": "b0", "question": "b0:f:1", "decision": "retry"}
_SLEPT = (
    {"k": "StepWaiting", "step": "s1", "due_ms": 50},
    {"k": "StepSucceeded", "step": "s1", "via": "timer", "at": 60},
)


def _event(event_id: str, disposition: str) -> ListedEvent:
    return ListedEvent(Channel(plans.EVENT, "saga"), event_id, 1, disposition, None, b"")  # type: ignore[arg-type]


def _told(*steps: dict[str, Any], history: Any = (), **report: Any) -> Told:
    return Told({"saga_id": "saga", "status": "COMPLETED", "steps": steps, "report": report}, history, ())


@pytest.mark.parametrize(
    ("plan", "told", "events", "sentence"),
    [
        pytest.param([{"step_id": "s1", "when": [_WHEN]}], _told(_BEFORE, _CALLED), (), "", id="when"),
        pytest.param(
            [{"step_id": "s1", "when": [_WHEN | {"to": "i7"}]}], _told(_BEFORE, _CALLED), (), "do not hold", id="called"
        ),
        pytest.param(
            [{"step_id": "s1", "when": [_WHEN]}],
            _told(_BEFORE, _CALLED | {"status": "SKIPPED", "attempts": 0}, skipped=["s1"]),
            (),
            "it was skipped",
            id="skipped",
        ),
        pytest.param(
            [{"step_id": "s1"}], _told(_CALLED, continued=["s1"]), (), "went on from its failure", id="continue"
        ),
        pytest.param([_GOES_ON], _told(_EXPIRED, continued=["b0"]), (), "", id="on_timeout"),
        pytest.param(
            [_GOES_ON],
            _told(_EXPIRED | {"error": {"error_code": "event_invalid"}}, continued=["b0"]),
            (),
            "went on from its failure",
            id="on_timeout of another failure",
        ),
        pytest.param([{"step_id": "s1", "failed_when": [1]}], _told(_CALLED), (), "means failure", id="failed_when"),
        pytest.param([{"step_id": "s1"}], _told(_CALLED, history=_SLEPT), (), "", id="sleep"),
        pytest.param(
            [{"step_id": "s1"}],
            _told(_CALLED, history=(_SLEPT[0], _END | {"step": "s1"}, *_SLEPT)),
            (),
            "",
            id="an operator has it wait anew",
        ),
        pytest.param(
            [{"step_id": "s1"}], _told(_CALLED, history=(_SLEPT[0], *_SLEPT)), (), "wait twice", id="it waits twice"
        ),
        pytest.param(
            [{"step_id": "s1"}],
            _told(_CALLED, history=(_SLEPT[0], _SLEPT[1] | {"at": 49})),
            (),
            "waited until 50, and went on at 49",
            id="slept too short",
        ),
        pytest.param([_WAIT], _told(_ANSWERED, history=[_WAITS, _WAITED]), (_event("b0-e1", "taken"),), "", id="event"),
        pytest.param([_WAIT], _told(_ANSWERED, history=[_WAITED]), (), "known 0 times", id="an event is lost"),
        pytest.param(
            [_WAIT],
            _told(_ANSWERED, history=[_WAITS, _WAITED]),
            (_event("b0-e1", "kept"),),
            "the store says",
            id="taken twice",
        ),
        pytest.param([_WAIT], _told(_ANSWERED), (_event("b0-e1", "held"),), "has ended", id="an event is held"),
        pytest.param([_ASK], _told(_ANSWERED, history=[_END]), (), "", id="ask"),
        pytest.param([_ASK], _told(_ANSWERED, history=[_END, _END]), (), "has 2 ends", id="two ends"),
        pytest.param([], _told(_CALLED), (), "step f0 is missing", id="no finally"),
    ],
)
def test_the_laws_of_the_kinds_of_steps_can_fail(
    plan: list[Any], told: Told, events: Any, sentence: str, tmp_path: Path
) -> None:
    """The verdict names what a wrong engine would do with conditions, waits, events, questions and finally."""
    body = {"steps": plan, **({} if plan else {"finally": [{"step_id": "f0"}]})}
    ledger = OutsideLedger(tmp_path / "world.db")
    sent = _SENT if events or "known" in sentence else ()
    found = list(plan_laws.breaches(body, sent, ledger, told, events))
    assert (not found) if not sentence else any(sentence in each for each in found), found


_ALL = [{"event": name, **({"key": f"saga{end}"} if end else {})} for name, end in plans.CHANNELS[:2]]
_CAME = [
    {"event": plans.EVENT, "key": f"saga{end}", "payload": {"id": f"e1{other}"}}
    for end, other in (("", ""), ("/2", "-other"))
]
_BEGUN = {"k": "StepWaiting", "step": "b0", "due_ms": None, "at": 1}
_FIRST_CAME = {"k": "EventArrived", "step": "b0", "entry": 0, "source": "e1", "output": {"id": "e1"}, "at": 5}
_BOTH_CAME = {"k": "StepSucceeded", "step": "b0", "via": "event", "entry": 1, "source": "e1", "output": _CAME, "at": 9}
_VAIN = {"step_id": "b0", "status": "FAILED", "via": None}


def _listed(*dispositions: str) -> tuple[ListedEvent, ...]:
    waiter = Waiter("saga", "b0")
    return tuple(
        ListedEvent(Channel(name, f"saga{end}"), "e1", 1, disposition, waiter, b"")  # type: ignore[arg-type]
        for (name, end), disposition in zip(plans.CHANNELS, dispositions, strict=False)
    )


@pytest.mark.parametrize(
    ("word", "history", "events", "sentence"),
    [
        pytest.param("all", [_BEGUN, _FIRST_CAME, _BOTH_CAME], ("taken", "taken"), "", id="all"),
        pytest.param("all", [_BEGUN, _FIRST_CAME, {"k": "StepFailed", "step": "b0"}], ("handled",), "", id="in vain"),
        pytest.param(
            "all", [_BEGUN, _FIRST_CAME, _FIRST_CAME, _BOTH_CAME], ("taken",) * 2, "event 0 twice", id="twice"
        ),
        pytest.param("all", [_BEGUN, _BOTH_CAME], ("kept", "taken"), "ended with 1 of the 2", id="one of all"),
        pytest.param("all", [_BEGUN, _FIRST_CAME], ("taken",), "the store says by", id="taken as it came"),
        pytest.param("all", [_BEGUN, _FIRST_CAME], ("late",), "its on_late was not called", id="lost to on_late"),
        pytest.param("all", [_BEGUN, _FIRST_CAME], ("held",), "is held for a step", id="held for ever"),
        pytest.param("all", [_FIRST_CAME], ("late",), "which does not wait", id="no wait"),
        pytest.param("all", [_BEGUN | {"due_ms": 5}, _FIRST_CAME], ("late",), "was over at 5", id="after the time-out"),
        pytest.param(
            "all",
            [_BEGUN, {"k": "CompensationStarted"}, _FIRST_CAME],
            ("late",),
            "which does not wait",
            id="after the turn",
        ),
        pytest.param(
            "all",
            [_BEGUN, _FIRST_CAME, _BOTH_CAME | {"output": _CAME[::-1]}],
            ("taken", "taken"),
            "with [",
            id="in another order",
        ),
        pytest.param("first", [_BEGUN, _BOTH_CAME | {"output": _CAME[1]}], ("late", "taken"), "", id="first"),
        pytest.param(
            "first",
            [_BEGUN, _BOTH_CAME | {"output": _CAME[1]}],
            ("taken", "taken"),
            "the store says by",
            id="two first",
        ),
        pytest.param(
            "first",
            [_BEGUN, _BOTH_CAME | {"entry": 0, "output": _CAME[1]}],
            ("taken",),
            "with {",
            id="the first is said to be another one",
        ),
        pytest.param("first", [_BEGUN, _FIRST_CAME], ("late",), "goes on waiting", id="first goes on"),
    ],
)
def test_the_laws_of_several_events_can_fail(word: str, history: Any, events: Any, sentence: str) -> None:
    """The verdict names an engine that loses an event, counts one twice, or goes on with too few or too many."""
    wait = {word: _ALL, "on_late": {"tool": "book_keyed", "params": {}}}
    ended = any(record["k"] == "StepSucceeded" for record in history)
    told = _told(_VAIN | ({"status": "SUCCEEDED", "via": "event"} if ended else {}), history=history)
    found = list(event_laws.breaches({"steps": [{"step_id": "b0", "wait": wait}]}, (), told, _listed(*events)))
    assert (not found) if not sentence else any(sentence in each for each in found), found


_PARENT = {"steps": [{"step_id": "c0", "saga": {"plan": {"steps": []}}}]}


_EFFECT = {"step_id": "s0", "kind": "compensatable", "status": t.SUCCEEDED}


@pytest.mark.parametrize(
    ("step", "parent", "child", "within", "undo", "sentence"),
    [
        pytest.param(t.SUCCEEDED, t.COMPLETED, t.COMPLETED, {}, None, "", id="completed"),
        pytest.param(t.COMPENSATED, t.COMPENSATED, t.COMPLETED, {}, t.COMPENSATED, "", id="undone"),
        pytest.param(t.FAILED, t.COMPENSATED, t.COMPENSATED, {}, None, "", id="failed"),
        pytest.param(t.SUCCEEDED, t.COMPLETED, t.COMPENSATED, {}, None, "its child is COMPENSATED", id="not done"),
        pytest.param(t.FAILED, t.COMPENSATED, t.COMPLETED, {}, None, "its child has completed", id="done, and unknown"),
        pytest.param(t.COMPENSATED, t.COMPENSATED, t.COMPLETED, {}, None, "undo of its child is not", id="not undone"),
        pytest.param(t.COMPENSATED, t.COMPENSATED, t.COMPLETED, {"kind": "read"}, None, "", id="only read"),
        pytest.param(t.COMPENSATED, t.COMPENSATED, t.COMPLETED, {"status": t.FAILED}, None, "", id="went on"),
        pytest.param(t.COMPENSATED, t.COMPENSATED, t.WAIVED, {}, None, "stands", id="left something"),
    ],
)
def test_the_laws_of_children_can_fail(
    step: str, parent: str, child: str, within: dict[str, str], undo: str | None, sentence: str
) -> None:
    """The verdict names a parent that says something else of its child than the child's own journal and undo."""
    waiting = {"k": "StepWaiting", "step": "c0", "about": {"saga": "saga.c0"}}
    told = _told({"step_id": "c0", "status": step, "output": {"saga_id": "saga.c0"}}, history=[waiting])
    told.body["status"] = parent  # type: ignore[index]
    assert child_laws.ids_of(told, _PARENT) == {"saga.c0": "c0"}
    own = {"saga_id": "saga.c0", "steps": [_EFFECT | within], "report": {}}
    others = [None if status is None else Told(own | {"status": status}, (), ()) for status in (child, undo)]
    assert others[0] is not None
    found = list(child_laws.breaches(told, "c0", others[0], others[1], last=True))
    assert (not found) if not sentence else any(sentence in each for each in found), found


@pytest.mark.parametrize(
    ("ends", "output", "sentence"),
    [
        pytest.param([("QuestionResolved", "b0:f:1")], {"by": "ada"}, "", id="answered"),
        pytest.param([("ApprovalExpired", "b0:f:1")], {"expired": True}, "", id="expired"),
        pytest.param([("ApprovalExpired", "b0:f:1"), ("QuestionResolved", "b0:f:2")], {"by": "ada"}, "", id="anew"),
        pytest.param([("ApprovalExpired", "b0:f:1")] * 2, {"expired": True}, "b0:f:1 has 2 ends", id="two ends"),
        pytest.param(
            [("QuestionResolved", "b0:f:1"), ("ApprovalExpired", "b0:f:2")], {"by": "ada"}, "its end is", id="the first"
        ),
    ],
)
def test_the_law_of_questions_can_fail(ends: list[tuple[str, str]], output: dict[str, Any], sentence: str) -> None:
    """Each question of a step has one end, and the output of the step is that of the last one."""
    history = [{"k": kind, "step": "b0", "question": question} for kind, question in ends]
    step = {"step_id": "b0", "status": t.SUCCEEDED, "output": {"answer": plans.OPTIONS[0], **output}}
    told = _told(step, history=history)
    found = list(plan_laws._answer(_ASK, step, told))
    assert (not found) if not sentence else any(sentence in each for each in found), found


@pytest.mark.parametrize(("via", "sentence"), [("event", "effect stands"), ("timer", "")])
def test_the_law_of_undos_can_fail(tmp_path: Path, via: str, sentence: str) -> None:
    """The undo of a saga undoes the event that ended a wait, or lists it; a time-out left nothing behind."""
    step = {"step_id": "b0", "kind": "compensatable", "tool": "", "attempts": 0, "compensation": None}
    step |= {"status": t.SUCCEEDED}
    told = Told(_told(step | {"via": via}).body | {"undone_by": "saga"}, (), ())
    report = {"compensated": [], "failed": [], "unresolved": [], "left_in_place": [], "clean": True}
    undo = Told(_told(step | {"via": "undo"}, **report).body | {"status": t.COMPENSATED}, (), ())
    ledger = OutsideLedger(tmp_path / "world.db")
    found = list(plan_laws.undo_breaches({"steps": [_WAIT]}, ledger, told, undo))
    assert (not found) if not sentence else any(sentence in each for each in found), found


def _journal(*kinds: str) -> list[dict[str, Any]]:
    return [{"k": kind} if kind == "SagaResumed" else {"k": kind, "step": "s0"} for kind in kinds]


@pytest.mark.parametrize(
    ("kinds", "breaches"),
    [
        (("StepIntended", "SagaResumed", "StepIntended"), 1),
        (("StepIntended", "StepInDoubt", "StepIntended"), 1),
        (("StepIntended", "StepInDoubt", "StepEscalated", "QuestionResolved", "StepIntended"), 0),
        (("StepIntended", "StepRetryScheduled", "StepIntended"), 0),
        (("StepIntended", "StepQueued", "SagaResumed", "StepIntended"), 0),
        (("StepIntended", "StepQueued", "StepBegun", "SagaResumed", "StepIntended"), 1),
    ],
)
def test_a_blind_repeat_is_found_out(kinds: tuple[str, ...], breaches: int) -> None:
    """A call that may have happened is not made again without a reason. One that waited for a guard was not made."""
    assert len(list(verdict.blind_repeats(_journal(*kinds), {("s0", "forward", 0)}))) == breaches


#: A look that showed what the image says, at 5 ms, by the owner of epoch 1.
_LOOK = Entry("saga/0", "", "saga", "s0", 1, "key", 5, 0.0, 0.0, "first", "first")
_IMAGE = {"value": {"ref": "first"}}


@pytest.mark.parametrize(
    ("history", "sentence"),
    [
        pytest.param([("StepIntended", 9, {"before": _IMAGE})], "", id="looked"),
        pytest.param([("StepIntended", 9, {})], "without a before-image", id="no image"),
        pytest.param(
            [("StepRetryScheduled", 5, {}), ("StepIntended", 9, {"before": _IMAGE})], "", id="looked after it failed"
        ),
        pytest.param(
            [("StepRetryScheduled", 6, {}), ("StepIntended", 9, {"before": _IMAGE})], "saw []", id="looked before that"
        ),
        pytest.param(
            [("SagaResumed", 3, {"epoch": 2}), ("StepIntended", 9, {"before": _IMAGE})], "saw []", id="another looked"
        ),
        pytest.param(
            [
                ("StepIntended", 9, {"before": _IMAGE}),
                ("StepDeferred", 10, {"in_doubt": True}),
                ("StepIntended", 11, {}),
            ],
            "",
            id="deferred in doubt",
        ),
        pytest.param(
            [("StepIntended", 9, {"before": _IMAGE}), ("StepDeferred", 10, {}), ("StepIntended", 11, {})],
            "without a before-image",
            id="deferred",
        ),
    ],
)
def test_the_law_of_looks_can_fail(history: list[tuple[str, int, dict[str, Any]]], sentence: str) -> None:
    """A call has the image that its owner saw after the record before it; one in doubt is repeated without a look."""
    records = [
        {"k": kind, "at": at, **more} | ({} if "epoch" in more else {"step": "s0"}) for kind, at, more in history
    ]
    step = {"step_id": "s0", "tool": "put_keyed", "kind": "compensatable"}
    told = Told({"saga_id": "saga", "steps": [step]}, records, ())
    found = list(value_laws.breaches(told, [_LOOK]))
    assert (not found) if not sentence else any(sentence in each for each in found), found


def test_a_look_that_is_missed_is_told_with_all_that_happened_to_its_step() -> None:
    """Such a run may not come twice: the sentence has the journal and the log of the step, each with its times."""
    records = [
        {"k": "SagaResumed", "at": 3, "epoch": 2},
        {"k": "StepIntended", "at": 9, "step": "s0", "before": _IMAGE},
    ]
    told = Told({"saga_id": "saga", "steps": []}, records, ())
    (sentence,) = value_laws.breaches(told, [_LOOK])
    assert "3 SagaResumed {'epoch': 2}; 9 StepIntended" in sentence
    assert "5 look in epoch 1: first -> first" in sentence


async def test_the_operator_invents_no_event(tmp_path: Path) -> None:
    """What nobody sent did not happen, and its output, which an undo binds, is unknown: 'happened' would be refused."""
    timed = {"event": "chaos.paid", "timeout_s": 0.01, "on_timeout": "fail"}
    undo = {"tool": "drop", "params": {"request": "$output.step_b0.id"}}
    plan = {"on_failure": "pause", "steps": [{"step_id": "b0", "wait": timed, "rollback": undo}]}
    async with Coordinator.open(f"memory://{tmp_path.name}", make_tools(), on_escalation=()) as coordinator:
        await coordinator.submit(plan, saga_id="s")
        outcome = await coordinator.wait("s")
        question = {**outcome.body["questions"][0], "question_id": "b0:f:3"}  # asked for the third time
        assert "happened" in question["options"]
        for seed in range(20):
            decision, output = await operator._look(outcome, question, Random(seed))
            assert (decision in question["options"], decision != "happened", output) == (True, True, None)
        assert (await coordinator.resolve("s", "b0", decision)).status != t.ESCALATED


@pytest.mark.parametrize(("second", "breaches"), [(1, 0), (0, 1)])
def test_a_blind_repeat_in_an_undo_of_several_calls_is_found_out(second: int, breaches: int) -> None:
    """Its calls follow each other; the same one is not made again."""
    undo = {"k": "StepIntended", "step": "s0", "direction": "compensate"}
    done = undo | {"k": "StepSucceeded"}
    history = [undo | {"call": {"number": 0, "of": 2}}, done, undo | {"call": {"number": second, "of": 2}}, done]
    bare = {("s0", "compensate", 0), ("s0", "compensate", 1)}
    assert len(list(verdict.blind_repeats(history, bare))) == breaches


def test_the_verdict_knows_every_kind_of_record_of_a_step() -> None:
    """Every record kind of a step is classified for the law that no call is repeated blindly."""
    kinds = {kind.__name__: kind for kind in records.Record.__subclasses__()}
    assert {name for name, kind in kinds.items() if "step" in kind.__struct_fields__} == verdict.CHECKED_KINDS


async def test_a_saga_that_does_not_end_is_explained() -> None:
    """It is told with its open question, the event and its time, its last records, and the stop marks."""
    steps = [
        {"step_id": "a", "ask": {"question": "Which?"}, "depends_on": []},
        {"step_id": "w", "wait": {"event": plans.EVENT, "timeout_s": 900}, "depends_on": []},
    ]
    async with Coordinator.open("memory://", make_tools()) as coordinator:
        await stop(coordinator.store, tool="book_keyed", by="ada")
        await coordinator.submit({"steps": steps}, saga_id="rests")

        async def asks() -> bool:
            return any(record["k"] == "AlertSent" for record in await coordinator.history("rests"))

        await eventually(asks, "the question")
        said = "\n".join(await stuck.explain(coordinator))
    for words in ("saga rests: ", "question a:f:1: ask", "step w waits: event, due in", "AlertSent"):
        assert words in said
    assert "stop mark: " in said
    assert "book_keyed" in said
