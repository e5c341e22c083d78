"""Children that are templates: the plan and the version that they have stand in their parent's plan."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from saga_engine import PlanInvalid
from saga_engine.plan import parser
from tests.support.children import DONE, STUCK, booking, opened, plan


def of(template: str, **given: Any) -> dict[str, Any]:
    return {"step_id": "trip", "saga": {"template": template, "input": given}}


@pytest.fixture
def url() -> str:
    DONE.clear()
    STUCK.clear()
    return f"memory://{uuid.uuid4().hex}"


async def test_a_template_is_pinned_when_its_parent_is_submitted(url: str) -> None:
    """The parent's journal has version and plan; the child's names the version; a later version changes neither."""
    async with opened(url) as engine:
        await engine.templates.put("trip", plan(booking("a", "$input.n")))
        found = await engine.run(plan(of("trip", n=2), booking(9, "$output.step_trip.outputs.a.n")), saga_id="p")
        assert (found.status, DONE) == ("COMPLETED", [("book", 2), ("book", 2)])
        await engine.templates.put("trip", plan(booking("b", 5)))
        first = (await engine.history("p"))[0]["plan"]["steps"][0]["saga"]
        assert (first["template"], [step["step_id"] for step in first["plan"]["steps"]]) == ("trip@1", ["a"])
        assert (await engine.history("p.trip"))[0]["template"] == "trip@1"
        assert (await engine.run(plan(of("trip")), saga_id="q")).status == "COMPLETED"
        assert DONE[-1] == ("book", 5)


async def test_templates_contain_templates(url: str) -> None:
    """Three levels of templates run, are simulated, and are undone as a whole."""
    async with opened(url) as engine:
        await engine.templates.put("inner", plan(booking("a", "$input.n")))
        await engine.templates.put("outer", plan(of("inner", n="$input.n"), booking("b", 3)))
        whole = plan(of("outer", n=2), booking(9, 13))
        assert (await engine.simulate(whole)).goes_well
        assert (await engine.run(whole, saga_id="p")).status == "COMPENSATED"
        assert DONE == [("book", 2), ("book", 3), ("unbook", 3), ("unbook", 2)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"template": "nowhere"}, "saga-template"),
        ({"template": "no/name"}, "saga-template"),
        ({"template": "strict", "input": {"n": "two"}}, "saga-input"),
        ({"template": "strict", "plan": {"steps": [booking(1, 1)]}}, "saga-invalid"),
        ({"template": "strict", "input_schema": {"type": "object"}, "input": {"n": 1}}, "saga-invalid"),
        ({"plan": {"steps": [booking(1, 1)]}, "input_schema": {"type": 7}}, "saga-input"),
    ],
)
async def test_what_is_wrong_with_a_template_is_found_at_its_submission(
    url: str, body: dict[str, Any], code: str
) -> None:
    """Before anything runs."""
    async with opened(url) as engine:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        await engine.templates.put("strict", plan(booking("a", "$input.n")), input_schema=schema)
        with pytest.raises(PlanInvalid) as caught:
            await engine.submit(plan({"step_id": 1, "saga": body}))
        assert code in {problem.code for problem in caught.value.problems}
        assert DONE == []


async def test_templates_that_are_large_together_are_refused_before_they_are_put_together(url: str) -> None:
    """A plan of some lines with a hundred children: the template is named at which the plan has too many values."""
    many = [{"step_id": at, "saga": {"template": "large"}, "depends_on": []} for at in range(99)]
    async with opened(url) as engine:
        await engine.templates.put("large", plan(*(booking(at, 1) for at in range(1_000))))
        for ask in (engine.submit, engine.simulate):
            with pytest.raises(PlanInvalid) as refused:
                await ask({"steps": many})
            (problem,) = refused.value.problems
            assert (problem.code, problem.path) == ("limit-nodes", "$.steps[59].saga")
            assert "large@1, 5," in problem.message
        with pytest.raises(PlanInvalid, match="with this template"):
            await engine.templates.put("whole", {"steps": many})


async def test_a_template_cannot_contain_its_own_latest_version(url: str) -> None:
    """That is refused when it is put; another version of it is a plan like any other."""
    async with opened(url) as engine:
        await engine.templates.put("trip", plan(booking("a", 1)))
        with pytest.raises(PlanInvalid) as caught:
            await engine.templates.put("trip", plan(of("trip")))
        assert [problem.code for problem in caught.value.problems] == ["saga-cycle"]
        await engine.templates.put("round", plan(of("trip")))
        with pytest.raises(PlanInvalid) as caught:
            await engine.templates.put("trip", plan(of("round")))
        assert [problem.code for problem in caught.value.problems] == ["saga-cycle"]
        await engine.templates.put("trip", plan(of("trip@1")))
        assert (await engine.run(template="trip", saga_id="p")).status == "COMPLETED"
        with pytest.raises(PlanInvalid):
            await engine.templates.put("bad", plan(of("nowhere")))


async def test_bound_input_is_checked_when_the_child_starts(url: str) -> None:
    """A value that does not have the declared form fails the step; the child never exists."""
    async with opened(url) as engine:
        schema = {"type": "object", "properties": {"n": {"maximum": 5}}, "required": ["n"]}
        await engine.templates.put("small", plan(booking("a", "$input.n")), input_schema=schema)
        found = await engine.run(plan(booking(1, 7), of("small", n="$output.step_1.n")), saga_id="p")
        assert found.error is not None
        assert (found.status, found.error.error_code, DONE) == (
            "COMPENSATED",
            "plan-invalid",
            [("book", 7), ("unbook", 7)],
        )


async def test_a_check_leaves_templates_to_the_submission(url: str) -> None:
    """``check`` reads no store: it finds what is wrong elsewhere."""
    async with opened(url) as engine:
        assert engine.check(plan(of("trip"))) == []
        assert [problem.code for problem in engine.check(plan(of("trip"), {"step_id": 2, "tool": "nope"}))] == [
            "tool-unknown"
        ]


@pytest.mark.parametrize(("steps", "reads"), [([{"step_id": 1, "tool": "book", "params": {"n": 1}}], 1), ([], 3)])
async def test_a_plan_as_a_dict_is_read_once(
    url: str, monkeypatch: pytest.MonkeyPatch, steps: list[dict[str, Any]], reads: int
) -> None:
    """It is read before that only where a child of it may be a template; the plan of a child is read for itself."""
    seen: list[Any] = []
    genuine = parser._from_mapping
    monkeypatch.setattr(parser, "_from_mapping", lambda source: seen.append(source) or genuine(source))
    child = {"step_id": "kid", "saga": {"plan": {"steps": [{"step_id": 1, "tool": "book", "params": {"n": 2}}]}}}
    async with opened(url) as engine:
        await engine.run({"steps": steps or [child]}, saga_id="s")
    assert len(seen) == reads
