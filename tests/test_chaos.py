"""Chaos in its short form: some hundred sagas, and everything that the injector knows goes wrong at least once.

``make chaos`` is the long form. The seed is in what a failing test prints; the same seed draws the same plans and faults.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chaos import injector, plans, verdict
from chaos.tools import make_tools
from saga_engine.core import records
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it freezes, limits and mounts as Linux does")

ROOT = Path(__file__).parent.parent
SEED = 20


def run(out: Path, *args: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, what was printed, and the report of a run in a process of its own."""
    command = [sys.executable, "-m", "chaos", *args, "--json", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=240)
    said = ran.stdout + ran.stderr
    assert out.exists(), said
    return ran.returncode, said, json.loads(out.read_text())


def test_whatever_goes_wrong_ledger_report_and_journal_agree(tmp_path: Path) -> None:
    """No effect twice, none lost, no saga stuck, whoever dies, freezes, hangs, or runs out of memory or disk."""
    code, said, report = run(tmp_path / "out.json", "--seed", str(SEED), "--sagas", "300", "--workers", "2")
    assert report["breaches"] == {}, said
    assert report["wrong"] == [], said
    assert code == 0, said
    assert sum(report["ends"].values()) == 300 + 15
    assert set(report["ends"]) >= {"COMPLETED", "COMPENSATED"}
    assert {fault for fault in injector.FAULTS if not report["faults"].get(fault)} == set()
    assert report["faults"]["store started"] >= 3
    assert report["faults"]["agents that killed their process"] >= 3
    for figure in ("by another owner than before", "answers", "doubts", "retries", "undone", "sessions kept"):
        assert report["figures"][figure] > 0, figure
    assert f"seed {SEED}: 0 of 300 sagas and 15 sessions violate a law" in said


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
        "60",
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
    assert injector.draw(SEED, 40) == injector.draw(SEED, 40)
    assert set(injector.draw(SEED, len(injector.FAULTS))) == set(injector.FAULTS)


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
    assert len(list(verdict.blind_repeats(_journal(*kinds), {("s0", "forward")}))) == breaches


def test_the_verdict_knows_every_kind_of_record_of_a_step() -> None:
    """Every record kind of a step is classified for the law that no call is repeated blindly."""
    kinds = {kind.__name__: kind for kind in records.Record.__subclasses__()}
    assert {name for name, kind in kinds.items() if "step" in kind.__struct_fields__} == verdict.CHECKED_KINDS
