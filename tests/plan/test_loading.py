"""A plan is loaded as it is written, and whatever is wrong with its form is said at once and cheaply."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pydantic
import pytest

from saga_engine.errors import PlanInvalid, Problem
from saga_engine.plan import limits
from saga_engine.plan.model import Plan, Retry, Step, load_plan
from saga_engine.plan.tool_spec import RetryPolicy

TRAVEL = Path(__file__).parents[2] / "examples" / "booking" / "travel_request_001.json"
STEP = {"step_id": 1, "tool": "t"}


def refused(source: Any) -> list[Problem]:
    """Why a plan is refused."""
    with pytest.raises(PlanInvalid) as error:
        load_plan(source)
    return error.value.problems


def found(source: Any) -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in refused(source)]


def with_step(**fields: Any) -> dict[str, Any]:
    return {"steps": [STEP | fields]}


def test_every_form_of_a_source_gives_the_same_plan() -> None:
    """A path, its text, its bytes, its object and a plan itself are one and the same plan."""
    text = TRAVEL.read_text()
    plans = [
        load_plan(source)
        for source in (
            TRAVEL,
            str(TRAVEL),
            text,
            "\ufeff\n " + text,
            text.encode(),
            json.loads(text),
            MappingProxyType(json.loads(text)),
        )
    ]
    assert all(plan == plans[0] for plan in plans)
    assert len({plan.digest for plan in plans}) == 1
    assert load_plan(plans[0]) is plans[0]
    assert plans[0].task_id == "travel_request_001"
    assert [step.title for step in plans[0].steps] == ["book_flight", "book_hotel"]


def test_what_is_journalled_is_what_was_given() -> None:
    """The JSON has the given fields only, loads to an equal plan, and the digest ignores the order of keys alone."""
    plan = load_plan(TRAVEL)
    assert json.loads(plan.json_bytes) == json.loads(TRAVEL.read_text())
    assert load_plan(plan.json_bytes).digest == plan.digest
    turned = {key: value for key, value in reversed(json.loads(TRAVEL.read_text()).items())}
    assert load_plan(turned).digest == plan.digest
    assert load_plan({**turned, "goal": "x"}).digest != plan.digest
    assert plan.json_bytes is plan.json_bytes


def test_a_plan_made_in_python_is_the_same_as_one_that_was_read() -> None:
    """The models can be used directly, are frozen, and refuse what is not JSON."""
    made = Plan(steps=[Step(step_id=1, tool="t", params={"a": (1, 2)})])  # type: ignore[arg-type]
    assert made == load_plan({"steps": [STEP | {"params": {"a": [1, 2]}}]})
    with pytest.raises(pydantic.ValidationError):
        made.goal = "other"  # type: ignore[misc]
    with pytest.raises(pydantic.ValidationError, match="nan"):
        Step(step_id=1, tool="t", params={"a": float("nan")})


def test_a_retry_says_only_what_differs() -> None:
    """What a plan leaves out of ``retry`` is the tool's own."""
    default = RetryPolicy(max_attempts=5, base_s=2.0, max_s=9.0, jitter=False)
    assert Retry(max_attempts=1, base_s=0).policy(default) == RetryPolicy(1, 0.0, 9.0, False)
    assert Retry().policy(default) == default


@pytest.mark.parametrize(
    ("plan", "code", "path"),
    [
        ({}, "field-missing", "$.steps"),
        ({"steps": []}, "field-invalid", "$.steps"),
        ({"steps": {}}, "field-invalid", "$.steps"),
        ({"steps": "1"}, "field-invalid", "$.steps"),
        ({"steps": [None]}, "field-invalid", "$.steps[0]"),
        ({"steps": [[]]}, "field-invalid", "$.steps[0]"),
        ({"steps": [{"tool": "t"}]}, "field-missing", "$.steps[0].step_id"),
        ({"steps": [{"step_id": 1}]}, "field-missing", "$.steps[0].tool"),
        (with_step(step_id=True), "field-invalid", "$.steps[0].step_id"),
        (with_step(step_id=1.0), "field-invalid", "$.steps[0].step_id"),
        (with_step(step_id=-1), "field-invalid", "$.steps[0].step_id"),
        (with_step(step_id="a b"), "field-invalid", "$.steps[0].step_id"),
        (with_step(step_id="a\n"), "field-invalid", "$.steps[0].step_id"),
        (with_step(step_id=""), "field-invalid", "$.steps[0].step_id"),
        (with_step(step_id="a" * 65), "field-invalid", "$.steps[0].step_id"),
        (with_step(tool=1), "field-invalid", "$.steps[0].tool"),
        (with_step(tool=""), "field-invalid", "$.steps[0].tool"),
        (with_step(params=[]), "field-invalid", "$.steps[0].params"),
        (with_step(params=None), "field-invalid", "$.steps[0].params"),
        (with_step(parms={}), "field-unknown", "$.steps[0].parms"),
        (with_step(kind="Pivot"), "field-invalid", "$.steps[0].kind"),
        (with_step(depends_on="1"), "field-invalid", "$.steps[0].depends_on"),
        (with_step(depends_on=[1, True]), "field-invalid", "$.steps[0].depends_on[1]"),
        (with_step(timeout_s="3"), "field-invalid", "$.steps[0].timeout_s"),
        (with_step(timeout_s=True), "field-invalid", "$.steps[0].timeout_s"),
        (with_step(timeout_s=0), "field-invalid", "$.steps[0].timeout_s"),
        (with_step(timeout_s=1e300), "field-invalid", "$.steps[0].timeout_s"),
        (with_step(retry={"max_attempts": 0}), "field-invalid", "$.steps[0].retry.max_attempts"),
        (with_step(retry={"tries": 3}), "field-unknown", "$.steps[0].retry.tries"),
        (with_step(rollback={}), "field-missing", "$.steps[0].rollback.tool"),
        (with_step(rollback="undo"), "field-invalid", "$.steps[0].rollback"),
        (
            with_step(rollback={"tool": "u", "retry": {"base_s": "x"}}),
            "field-invalid",
            "$.steps[0].rollback.retry.base_s",
        ),
        (with_step(resource=1), "field-invalid", "$.steps[0].resource"),
        (with_step(fallback=[]), "field-invalid", "$.steps[0].fallback"),
        (with_step(fallback={"tol": "x"}), "field-unknown", "$.steps[0].fallback.tol"),
        (with_step(fallback=[{"tool": "x"}, {"tool": 1}]), "field-invalid", "$.steps[0].fallback[1].tool"),
        (with_step(fallback={"tool": "x", "rollback": {}}), "field-missing", "$.steps[0].fallback.rollback.tool"),
        ({"steps": [STEP], "on_failure": "explode"}, "field-invalid", "$.on_failure"),
        ({"steps": [STEP], "task_id": "-a"}, "field-invalid", "$.task_id"),
        ({"steps": [STEP], "task_id": "a/../b"}, "field-invalid", "$.task_id"),
        ({"steps": [STEP], "task_id": "a\n"}, "field-invalid", "$.task_id"),
        ({"steps": [STEP], "task_id": 7}, "field-invalid", "$.task_id"),
        ({"steps": [STEP], "max_tool_calls": 1.5}, "field-invalid", "$.max_tool_calls"),
        ({"steps": [STEP], "max_tool_calls": True}, "field-invalid", "$.max_tool_calls"),
        ({"steps": [STEP], "input": [1]}, "field-invalid", "$.input"),
        ({"steps": [STEP], "goal": None}, "field-invalid", "$.goal"),
        ({"steps": [STEP], "resource": "x"}, "field-unknown", "$.resource"),
    ],
)
def test_wrong_types_and_fields_are_refused_where_they_stand(plan: Any, code: str, path: str) -> None:
    """Nothing is coerced, nothing is ignored; one place is one problem."""
    assert found(plan) == [(code, path)]
    assert found(json.dumps(plan)) == [(code, path)]


def test_all_problems_come_at_once_and_say_what_to_do() -> None:
    """Problems of several steps and of the plan itself stand in one list, with a near name where there is one."""
    plan = {"steps": [STEP | {"parms": 1, "tool": 3}, {"tool": "t"}], "gaol": "x"}
    listed = refused(plan)
    assert [(problem.code, problem.path) for problem in listed] == [
        ("field-invalid", "$.steps[0].tool"),
        ("field-unknown", "$.steps[0].parms"),
        ("field-missing", "$.steps[1].step_id"),
        ("field-unknown", "$.gaol"),
    ]
    assert "params" in listed[1].hint
    assert "goal" in listed[3].hint


def deep(levels: int) -> str:
    return '{"steps":[{"step_id":1,"tool":"t","params":{"a":' + "[" * levels + "]" * levels + "}}]}"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("{", "plan-not-json"),
        (b"\xff\xfe{}", "plan-not-json"),
        (b"[1]", "plan-not-json"),
        (b"", "plan-not-json"),
        (42, "plan-not-json"),
        (None, "plan-not-json"),
        ('{"steps":[{"step_id":1,"tool":"t","params":{"a":NaN}}]}', "plan-not-json"),
        ('{"steps":[{"step_id":1,"tool":"t","params":{"a":-Infinity}}]}', "plan-not-json"),
        ('{"steps":[{"step_id":1,"tool":"t","params":{"a":1e999}}]}', "plan-not-json"),
        ('{"steps":[{"step_id":1,"tool":"t","params":{"a":%s}}]}' % ("9" * 100_000), "plan-not-json"),
        ('{"steps":[{"step_id":1,"tool":"t","params":{"a":18446744073709551616}}]}', "plan-not-json"),
        ('{"steps":[{"step_id":1,"tool":"t","params":{"a":"\\ud800"}}]}', "plan-not-json"),
        ('{"steps":[{"step_id":1,"tool":"t","params":{"\\ud800":1}}]}', "plan-not-json"),
        (deep(61), "limit-depth"),
        (deep(1_000_000), "limit-nodes"),
        ('{"a":' * 100_000, "limit-depth"),
        ('{"steps":[%s]}' % ("1," * 400_000), "limit-nodes"),
        ('{"goal":"%s"}' % ("x" * limits.MAX_PLAN_BYTES), "limit-size"),
        ("{" + " " * limits.MAX_PLAN_BYTES, "limit-size"),
        ({"steps": [STEP] * (limits.MAX_STEPS + 1)}, "limit-steps"),
        (with_step(depends_on=[1] * (limits.MAX_STEPS + 1)), "limit-steps"),
        ("no/such/plan.json", "plan-unreadable"),
        ("\0", "plan-unreadable"),
        ("x" * 10_000, "plan-unreadable"),
        (Path("/"), "plan-unreadable"),
        (Path("/dev/zero"), "plan-unreadable"),
    ],
)
def test_hostile_sources_are_refused_by_their_form(source: Any, code: str) -> None:
    """What cannot be read safely is refused with one problem and the right code, before anything else is looked at."""
    assert [problem.code for problem in refused(source)] == [code]


def test_depth_and_size_that_are_allowed_are_allowed() -> None:
    """The limits are where they are said to be: brackets and commas in texts do not count."""
    assert load_plan(deep(60)).steps[0].params["a"]
    assert load_plan(with_step(params={"a": "[{," * 200_000})).steps[0].params
    assert load_plan(json.dumps(with_step(params={"a": '[{,\\"' * 200_000}))).steps[0].params


def test_python_objects_are_bounded_like_texts() -> None:
    """Cycles, NaN, odd keys and shared giants in a dict are refused as well."""
    cyclic: dict[str, Any] = with_step()
    cyclic["steps"][0] = {**STEP, "params": cyclic}
    assert found(cyclic) == [("plan-not-json", "$.steps[0].params")]
    assert found(with_step(params={"a": float("inf")})) == [("plan-not-json", "$.steps[0].params.a")]
    assert found(with_step(params={1: 2})) == [("plan-not-json", "$.steps[0].params")]
    assert found({1: 2}) == [("plan-not-json", "$")]
    giant = "x" * 1_000_000
    assert found(with_step(params={"a": [giant] * 100})) == [("limit-size", "$")]


def test_a_key_that_stands_twice_is_named_with_its_place() -> None:
    """JSON parsers keep the last of two values in silence; here it is a problem, each with its path."""
    source = '{"goal":"a","goal":"b","steps":[{"step_id":1,"tool":"t","params":{"x":[{"k":1,"k":2}]}}]}'
    assert found(source) == [("plan-not-json", "$"), ("plan-not-json", "$.steps[0].params.x[0]")]
    assert '"k"' in refused(source)[1].message
    assert found('{"steps":[{"a":1,"a":2}],"steps":[]}')[-1] == ("plan-not-json", "$")


@pytest.mark.parametrize(
    "plan",
    [
        {"steps": [{f"x{index}": 1 for index in range(50)}] * 2000},
        {"steps": [STEP | {"depends_on": ["?"] * 10_000}] * 10},
        {"steps": [7] * 10_000},
    ],
)
def test_a_hundred_problems_are_listed_and_the_rest_is_counted(plan: Any) -> None:
    """100,000 problems are 100 problems and a number."""
    listed = refused(plan)
    assert len(listed) == limits.MAX_PROBLEMS + 1
    assert listed[-1].code == "more-problems"
    assert int(listed[-1].message.split()[0]) >= 9_900


def test_an_object_with_countless_fields_is_one_problem() -> None:
    """An object that is nothing but unknown fields is refused without a look at each of them."""
    wide = {str(index): 1 for index in range(100_000)}
    assert found({"steps": [wide]}) == [("field-unknown", "$.steps[0]")]
    assert found(with_step(rollback=wide)) == [("field-unknown", "$.steps[0].rollback")]
    assert found({"steps": [STEP], **wide}) == [("field-unknown", "$")]


def test_hostile_texts_never_reach_a_terminal_as_they_are() -> None:
    """What a problem quotes is cut and escaped."""
    listed = refused(with_step(**{"\x1b[31m" + "x" * 10_000: 1, "kind": "\x1b]0;" + "y" * 10_000}))
    for problem in listed:
        for text in (problem.message, problem.path, problem.hint):
            assert text.isprintable()
            assert len(text) < 1000


HOSTILE = {
    "many small objects": "b'{\"a\":[' + b'{\"a\":0},' * 149_000 + b'0]}'",
    "many lists": "b'{\"a\":[' + b'[],' * 2_700_000 + b'0]}'",
    "deep": "b'{\"a\":' + b'[' * 8_000_000",
    "one wide character": "('{\"goal\":\"\U0001f600' + 'x' * 8_000_000).encode()",
    "many escapes": "b'{\"' + b'\\\\\"' * 4_000_000",
    "many faults": "b'{\"steps\":[' + b'{\"x\":1,\"y\":2},' * 9_999 + b'0]}'",
    "faults in one step": 'b\'{"steps":[{"step_id":1,"tool":"t","depends_on":[\' + b\'"?",\' * 9_999 + b\'1]}]}\'',
    "long number": "b'{\"a\":' + b'9' * 8_000_000 + b'}'",
    "too large": "b'{' + b' ' * 50_000_000",
}


@pytest.mark.skipif(sys.platform == "win32", reason="no getrusage there")
@pytest.mark.parametrize("hostile", HOSTILE)
def test_refusing_a_hostile_plan_costs_no_memory(hostile: str) -> None:
    """Refusing the largest and worst plans takes less than 100 MB on top of the source itself."""
    program = f"""
        import resource
        from saga_engine.errors import PlanInvalid
        from saga_engine.plan.model import load_plan
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if __import__("sys").platform == "darwin" else 1024)
        source = {HOSTILE[hostile]}
        before = peak()
        try:
            load_plan(source)
        except PlanInvalid:
            print(peak() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert int(done.stdout) < 100 * 1024 * 1024
