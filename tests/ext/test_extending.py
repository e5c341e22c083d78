"""A package of somebody else brings a step: the one of ``docs/extending.md``, installed beside the engine, in processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.core import steps
from saga_engine.core import transitions as t
from saga_engine.core.fold import state_of
from saga_engine.core.records import SagaStarted
from saga_engine.errors import CallFailed, ExtensionMissing, PlanInvalid
from saga_engine.plan import words
from saga_engine.plan.model import load_plan
from saga_engine.plan.schema import plan_schema
from tests.support.forker import ROOT

PAGE = ROOT / "docs" / "extending.md"
TOOLS = """
from saga_engine import tool

@tool(undo="unbook")
def book(day: int) -> dict: return {"ref": f"B-{day}"}

@tool(tolerates_absence=True)
def unbook(ref: str) -> None: print("undone", ref)

@tool(not_done=PermissionError)
def fail() -> None: raise PermissionError("no")
"""
WAITS: list[dict[str, Any]] = [
    {"step_id": 1, "tool": "book", "params": {"day": 1}},
    {"step_id": 2, "business_day": 1},
    {"step_id": 3, "tool": "fail", "kind": "pivot"},
]


def blocks() -> dict[str, str]:
    """The files of the page, by name."""
    return dict(re.findall(r"\*\*`([^`]+)`\*\*\n\n```\w+\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))


class Desk:
    """A folder with the package of the page, as ``pip install --target`` leaves it; and one without."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.packages = folder / "packages"
        info = self.packages / "business_days-1.0.dist-info"
        info.mkdir(parents=True)
        files = blocks()
        (self.packages / "business_days.py").write_text(files["business_days.py"])
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: business-days\nVersion: 1.0\n")
        entries = files["pyproject.toml"].partition('[project.entry-points."saga_engine.words"]')[2].replace('"', "")
        (info / "entry_points.txt").write_text(f"[saga_engine.words]\n{entries}")
        (folder / "tools.py").write_text(TOOLS)

    def __call__(self, *args: str, has: bool = True, **files: Any) -> tuple[int, str, str]:
        for name, body in files.items():
            (self.folder / f"{name}.json").write_text(json.dumps(body))
        path = os.pathsep.join([str(ROOT), *([str(self.packages)] if has else [])])
        env = {**os.environ, "PYTHONPATH": path, "SAGA_STORE": self.url, "NO_COLOR": "1", "COLUMNS": "200"}
        command = [sys.executable, *args]
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def saga(self, *args: str, has: bool = True, **files: Any) -> tuple[int, str, str]:
        return self("-m", "saga_engine", *args, has=has, **files)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, f"embedded://{tmp_path / 'store'}")


def test_the_plan_is_checked_simulated_and_run(desk: Desk) -> None:
    """Its schema, its own check, its binding; the step before it is undone when a later one fails."""
    steps = [{"step_id": 1, "business_day": 31}]
    code, out, said = desk.saga("check", "plan.json", "--tools", "tools.py", plan={"steps": steps})
    assert code != 0
    assert "31 is greater than the maximum of 30" in out + said
    code, out, said = desk.saga("simulate", "plan.json", "--tools", "tools.py", plan={"steps": WAITS[:2]})
    assert code == 0, said
    assert "without a failure: COMPLETED after 1 call" in out


def test_who_lacks_it_shows_the_saga_and_leaves_it(desk: Desk) -> None:
    """A process without the package lists, shows and cancels; it does not continue, and says what is missing."""
    submit = ("submit", "plan.json", "--tools", "tools.py", "--id", "trip-1", "--detach")
    code, _, said = desk.saga(*submit, has=False, plan={"steps": WAITS})
    assert code != 0
    assert 'unknown field "business_day"' in said
    code, _, said = desk.saga(*submit)
    assert code == 0, said
    code, out, said = desk.saga("show", "trip-1", has=False)
    assert code == 8, said  # it has not ended
    assert "business_day" in out
    assert "trip-1" in desk.saga("list", has=False)[1]
    code, _, said = desk.saga("resume", "trip-1", "--tools", "tools.py", has=False)
    assert code != 0
    assert "extension-missing" in said
    assert "business_day" in said
    code, _, said = desk.saga("cancel", "trip-1", "--tools", "tools.py", has=False)
    assert "extension-missing" in said  # the cancel is recorded
    code, out, said = desk.saga("resume", "trip-1", "--tools", "tools.py")
    assert "COMPENSATED" in out, said


#: What somebody's code may do wrong, each a word of its own.
WRONG = """
from saga_engine.plan.words import Done, Unfit, Until, Word

def _raise(body, now_ms): raise ZeroDivisionError("by zero")
def _unfit(body, now_ms): raise Unfit("not today")
def _keep(body, now_ms):
    body["seen"] = True
    return Done(body)

def _word(begin, **more): return Word("A test.", {}, begin, **more)

soon = _word(lambda body, now_ms: Until(now_ms + 1), ended=lambda body: {"waited": body})
echo = _word(lambda body, now_ms: Done(body))
raises = _word(_raise)
unfit = _word(_unfit)
changes = _word(_keep)
late = _word(lambda body, now_ms: Until(now_ms + 10**15))
text_time = _word(lambda body, now_ms: Until("tomorrow"))
nothing = _word(lambda body, now_ms: None)
no_json = _word(lambda body, now_ms: Done({1, 2, object()}))
large = _word(lambda body, now_ms: Done("x" * 40_000))
misfit = _word(lambda body, now_ms: Done("text"), output={"type": "integer"})
ends_badly = _word(lambda body, now_ms: Until(now_ms), ended=lambda body: 1 / 0)
no_word = "a text"
"""
NAMES = re.findall(r"^(\w+) = (?!.*import)", WRONG, re.MULTILINE)
DEFECTS = {
    "raises": "raises raised ZeroDivisionError: by zero",
    "late": "further away than a wait may be",
    "text_time": "no whole number of ms",
    "nothing": "gave NoneType, and neither Done nor Until",
    "no_json": "its output",
    "large": "40002 bytes of JSON",
    "misfit": "does not fit its schema",
    "ends_badly": "ends_badly raised ZeroDivisionError",
}


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Their package, installed in this process."""
    info = tmp_path / "wrong_words-1.0.dist-info"
    info.mkdir()
    (tmp_path / "wrong_words.py").write_text(WRONG)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong-words\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{words.GROUP}]\n" + "".join(f"{n} = wrong_words:{n}\n" for n in NAMES))
    monkeypatch.syspath_prepend(str(tmp_path))
    for each in (words._brought, words._word):
        each.cache_clear()
    yield
    for each in (words._brought, words._word):
        each.cache_clear()
    sys.modules.pop("wrong_words", None)


class Trip:
    """A booking before the step, and a failure after it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[Any]:
        @tool(undo="unbook")
        def book(day: int) -> dict[str, str]:
            self.done.append(f"book {day}")
            return {"ref": f"B-{day}"}

        @tool(tolerates_absence=True)
        def unbook(ref: str) -> None:
            self.done.append(f"unbook {ref}")

        @tool(not_done=PermissionError)
        def fail(of: Any) -> None:
            self.done.append(f"fail {json.dumps(of)}")
            raise PermissionError("no")

        return [book, unbook, fail]


BOOKED = {"step_id": 1, "tool": "book", "params": {"day": 1}}


@pytest.mark.usefixtures("brought")
@pytest.mark.parametrize("crashes", [False, True], ids=["at once", "resumed"])
async def test_it_waits_ends_is_bound_and_what_stood_before_it_is_undone(tmp_path: Path, *, crashes: bool) -> None:
    """In a plan: a wait with an output that a later step binds, whatever process comes to its end."""
    trip, url = Trip(), f"embedded://{tmp_path / 'store'}"
    after = {"step_id": 3, "tool": "fail", "params": {"of": "$output.step_2.waited"}, "kind": "pivot"}
    plan = {"steps": [BOOKED, {"step_id": 2, "soon": {"days": "$input.days"}}, after], "input": {"days": 4}}
    async with Coordinator.open(url, trip.tools()) as engine:
        assert engine.check(plan) == []
        if crashes:
            await engine.submit(plan, saga_id="s", detach=True)
        else:
            assert (await engine.run(plan, saga_id="s")).status == t.COMPENSATED
    async with Coordinator.open(url, trip.tools()) as engine:
        ended = await engine.resume("s")
        assert ended.status == t.COMPENSATED
        kinds = [(each["k"], each.get("via")) for each in await engine.history("s") if each.get("step") == "2"]
    assert kinds == [("StepWaiting", None), ("StepSucceeded", "timer")]
    assert trip.done == ["book 1", 'fail {"days": 4}', "unbook B-1"]


@pytest.mark.usefixtures("brought")
@pytest.mark.parametrize("name", DEFECTS)
async def test_what_its_code_does_wrong_fails_its_step(name: str) -> None:
    """It is a failure like any other, and never one of the engine: what was done before is undone."""
    trip = Trip()
    async with Coordinator.open(f"memory://{name}", trip.tools()) as engine:
        ended = await engine.run({"steps": [BOOKED, {"step_id": 2, name: "$output.step_1.ref"}]})
        error = ended.body["steps"][1]["error"]
    assert (ended.status, error["error_code"]) == (t.COMPENSATED, "step_defect")
    assert DEFECTS[name] in error["message"]
    assert trip.done == ["book 1", "unbook B-1"]


@pytest.mark.usefixtures("brought")
async def test_a_package_that_brings_something_else_is_told() -> None:
    """Its plan is refused with the name of the word, and nothing of it is recorded."""
    async with Coordinator.open("memory://no-word", []) as engine:
        with pytest.raises(ExtensionMissing, match='"no_word" brings is no Word, but str'):
            await engine.submit({"steps": [{"step_id": 1, "no_word": 1}]}, saga_id="s")
        assert await engine.list() == []


def test_a_process_without_the_word_decides_nothing() -> None:
    """Whoever holds such a saga all the same (a replay, a workflow) is told what is missing; the step does not fail."""
    body = {"steps": [{"step_id": 1, "nowhere": 1}]}
    state = state_of([SagaStarted(at=1, saga_id="s", plan=body, digest="", seed="")])
    assert (state.plan.steps[0].builtin, steps.lacking(state)) == ("nowhere", ["nowhere"])
    with pytest.raises(ExtensionMissing, match="nowhere"):
        steps.begin(state, 0, 1)


@pytest.mark.usefixtures("brought")
async def test_what_it_cannot_carry_out_is_a_failure_of_its_own() -> None:
    """``Unfit`` has the word's own code; what the code does to the body it was given changes nothing."""
    async with Coordinator.open("memory://unfit", []) as engine:
        ended = await engine.run({"steps": [{"step_id": 1, "unfit": 1}]})
        assert ended.body["steps"][0]["error"]["error_code"] == "unfit_invalid"
        ended = await engine.run(
            {"steps": [{"step_id": 1, "changes": {"a": 1}}, {"step_id": 2, "echo": "$output.step_1"}]}
        )
        assert ended.body["steps"][1]["output"] == {"a": 1, "seen": True}
        assert (await engine.history(ended.saga_id))[0]["plan"]["steps"][0] == {"step_id": 1, "changes": {"a": 1}}


@pytest.mark.usefixtures("brought")
async def test_an_agent_takes_the_step_in_its_session() -> None:
    """By its word; a word that nobody brings is refused, and a failure is the agent's to handle."""
    async with Coordinator.open("memory://agent", []) as engine, engine.session("a") as session:
        assert await session.step("soon", 3) == {"waited": 3}
        assert await session.step("sleep", 0) is None
        with pytest.raises(PlanInvalid, match="no package here brings the word"):
            await session.step("sooner", 3)
        with pytest.raises(CallFailed, match="by zero"):
            await session.step("raises", 3)


@pytest.mark.usefixtures("brought")
def test_the_format_has_it() -> None:
    """A plan's problems name it; the published schema has the engine's own words alone, and lets no other field in."""
    with pytest.raises(PlanInvalid) as refused:
        load_plan({"steps": [{"step_id": 1, "soom": 1}]})
    assert any("did you mean 'soon'?" in (each.hint or "") for each in refused.value.problems)
    with pytest.raises(PlanInvalid) as refused:
        load_plan({"steps": [{"step_id": 1, "soon": 1, "sleep": 1}]})
    assert "a step has exactly one of soon, sleep" in str(refused.value.problems)
    for other in ({"ask": {"question": "Shall we?"}}, {"tool": "book"}, {"soon": 1}):  # null is no word
        step = load_plan({"steps": [{"step_id": 1, **other, "sleep": None}]}).steps[0]
        assert step.builtin == next(iter(other)).replace("tool", "")
    step = plan_schema()["$defs"]["Step"]
    assert "sleep" in step["properties"]
    assert "soon" not in step["properties"]
    assert step["additionalProperties"] is False
