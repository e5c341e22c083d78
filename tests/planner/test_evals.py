"""The goals that models are measured by are sound: good plans pass, and each fault costs its mark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from dev.benchmarks.eval_planner import CRITERIA, Case, evaluate, load_cases, review, summary
from saga_engine.plan.compiler import check_plan
from saga_engine.plan.model import load_plan
from saga_engine.planner.settings import PlannerSettings
from tests.planner.model_server import call, model_server
from tests.planner.scenes import Scripted

ROOT = Path(__file__).parents[2]
CASES = load_cases()
BY_ID = {case.id: case for case in CASES}
EXPECTED = {"impossible", "writes", "forbidden", "binds", "inputs", "before", "parallel", "pivot", "rollbacks"}


def test_there_is_enough_to_measure() -> None:
    """At least 50 goals from fourteen fields, in three languages, with impossible ones and traps."""
    assert len(CASES) >= 50
    assert len(BY_ID) == len(CASES)
    assert len({case.domain for case in CASES}) >= 14
    languages = Counter(case.lang for case in CASES)
    assert (languages["zh"] >= 8, languages["de"] >= 8) == (True, True)
    kinds = Counter(case.kind for case in CASES)
    assert min(kinds[kind] for kind in ("impossible", "trap", "pivot", "graph", "sequence", "lookup", "no-undo")) >= 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_goal_is_well_formed(case: Case) -> None:
    """Its expectations name tools and params that there are, and its good plan passes all checks and all criteria."""
    assert set(case.expect) <= EXPECTED
    assert case.impossible != bool(case.ideal)
    named = {*case.expect.get("writes", {}), *case.expect.get("forbidden", ()), *case.expect.get("rollbacks", {})}
    named |= {tool for pair in [*case.expect.get("before", ()), *case.expect.get("parallel", ())] for tool in pair}
    named |= {case.expect["pivot"]} if "pivot" in case.expect else set()
    for tool, param, _ in [*case.expect.get("binds", ()), *case.expect.get("inputs", ())]:
        spec = case.tools.spec(tool)
        assert spec is not None
        assert param in spec.input_schema["properties"]
    assert named <= set(case.tools.names())
    if case.impossible:
        assert review(case, None, refused=True) == dict.fromkeys(CRITERIA, True)
        return
    plan = load_plan({**(case.ideal or {}), "goal": case.goal, "input": dict(case.input)})
    assert check_plan(plan, case.tools) == []
    assert review(case, plan) == dict.fromkeys(CRITERIA, True)


def spoilt(case: Case, change: Any) -> dict[str, bool]:
    body = deepcopy(dict(case.ideal or {}))
    change(body["steps"])
    plan = load_plan({**body, "input": dict(case.input)})
    assert check_plan(plan, case.tools) == []
    return review(case, plan)


@pytest.mark.parametrize(
    ("case", "change", "wrong"),
    [
        ("travel-01", lambda steps: steps.pop(), {"writes", "bindings", "order"}),
        ("travel-01", lambda steps: steps[1]["params"].update(note="flight order F-1"), {"bindings"}),
        ("travel-01", lambda steps: steps[1].update(depends_on=[], params={**steps[1]["params"], "note": "x"}), {"bindings", "order"}),
        ("travel-02", lambda steps: steps[1]["params"].update(passenger="Grace Hopper"), {"bindings"}),
        ("travel-03", lambda steps: steps[1].update(depends_on=["fly"]), {"order"}),
        ("travel-06", lambda steps: steps.append({"step_id": 9, "tool": "hotels.hold", "params": {"hotel_id": "H"}}), {"tools"}),
        ("payments-03", lambda steps: steps.__delitem__(0) or steps[1].update(depends_on=["k2"]), {"writes"}),
        ("hr-03", lambda steps: (steps[1].pop("rollback"), steps[1].update(kind="pivot")), {"undo"}),
        ("files-02", lambda steps: steps[0].update(tool="files.shred", kind="pivot"), {"writes", "tools", "undo"}),
        ("travel-01", lambda steps: (steps[0].update(kind="pivot"), steps[1].update(kind="retriable")), {"undo", "clean"}),
    ],
)  # fmt: skip
def test_each_fault_costs_its_mark(case: str, change: Any, wrong: set[str]) -> None:
    """A forgotten step, a guessed value, a needless wait, a tool that only looks right, a missing undo."""
    assert {name for name, right in spoilt(BY_ID[case], change).items() if not right} == wrong


def test_a_refusal_is_right_only_where_it_is() -> None:
    """To refuse what can be done is wrong, and so is a plan for what cannot."""
    possible, impossible = BY_ID["travel-01"], BY_ID["travel-05"]
    plan = load_plan(dict(possible.ideal or {}))
    assert not any(review(possible, None, refused=True).values())
    assert not any(review(impossible, plan).values())
    assert not any(review(impossible, None).values())


async def test_a_score_tells_what_came_and_what_it_used() -> None:
    """A plan, a refusal, no valid plan; the figures are shares."""
    planner = Scripted(BY_ID["travel-01"].ideal, {"impossible": "no trains"}, {"steps": []})
    settings = PlannerSettings(rounds=1)
    scores = [await evaluate(BY_ID[name], planner, settings) for name in ("travel-01", "travel-05", "travel-03")]
    assert [(score.outcome, score.passed, score.tokens) for score in scores] == [
        ("plan", True, 120),
        ("impossible", True, 120),
        ("no valid plan", False, 120),
    ]
    assert summary("m", scores)["passed"] == pytest.approx(2 / 3)


async def test_the_program_runs_on_a_wire(tmp_path: Path) -> None:
    """``make eval-planner`` is code like any other: it asks a server, prints a line for each goal and writes figures."""
    import asyncio
    import os

    cases = load_cases("cloud")
    said = [call(dict(case.ideal or {"impossible": "no"})) for case in cases]
    async with model_server(*said) as server:
        env = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
        env |= {"SAGA_MODEL_BASE_URL": f"{server.url}/v1", "PYTHONPATH": str(ROOT)}
        command = [
            sys.executable,
            str(ROOT / "dev" / "benchmarks" / "eval_planner.py"),
            "--model",
            "openai:m",
            "--only",
            "cloud",
            "--json",
            "out.json",
        ]
        ran = await asyncio.to_thread(
            subprocess.run, command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        )
    assert ran.returncode == 0, ran.stderr
    assert json.loads((tmp_path / "out.json").read_text())["passed"] == 1.0
    assert "100% of 6 goals" in ran.stdout
