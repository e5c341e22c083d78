"""Templates: named plans in the store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saga_engine import Coordinator, PlanInvalid, tool
from saga_engine.errors import SettingInvalid, TemplateNotFound
from saga_engine.stores import open_store

SCHEMA = {"type": "object", "required": ["what"], "properties": {"what": {"type": "string"}}}


@tool(undo="unbook")
async def book(what: str) -> dict[str, str]:
    return {"ref": what}


@tool
async def unbook(ref: str) -> None:
    """Nothing to return."""


TOOLS = [book, unbook]


def plan(what: Any = "$input.what", **fields: Any) -> dict[str, Any]:
    return {**fields, "steps": [{"step_id": 1, "tool": "book", "params": {"what": what}}]}


async def test_versions_never_change() -> None:
    """The same plan is the same version, another one is the next, and no number is used again after a deletion."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        templates = coordinator.templates
        for what, version in (("a", 1), ("a", 1), ("b", 2), ("a", 3)):
            assert (await templates.put("trip", plan(what))).version == version
        assert [(await templates.get(name)).version for name in ("trip", "trip@2")] == [3, 2]
        assert (await templates.get("trip@2")).plan["steps"][0]["params"] == {"what": "b"}
        await templates.delete("trip@3")
        assert (await templates.get("trip")).version == 2
        assert await templates.list() == [("trip", (1, 2))]
        await templates.delete("trip")
        assert await templates.list() == []
        for gone in ("trip", "trip@1", "trip@3", "other"):
            with pytest.raises(TemplateNotFound):
                await templates.get(gone)
        assert (await templates.put("trip", plan("a"))).version == 4


async def test_writers_at_the_same_time_make_different_versions() -> None:
    """Each version has one plan, whoever wrote it."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        names = "abcdef"
        made = await asyncio.gather(*(coordinator.templates.put("trip", plan(name)) for name in names))
        assert len({each.version for each in made}) == len(names)
        for each in made:
            assert await coordinator.templates.get(each.reference) == each


async def test_a_saga_of_a_template_says_which() -> None:
    """It has the plan of the latest version, its journal and its summary name it, and it is found by its name."""
    store = open_store("memory://")
    await store.open()
    async with Coordinator.open(store, TOOLS) as coordinator:
        await coordinator.templates.put("trip", plan(), input_schema=SCHEMA)
        handle = await coordinator.submit(template="trip", input={"what": "a"}, saga_id="s1")
        assert (await handle.wait()).output(1) == {"ref": "a"}
        assert (await coordinator.history("s1"))[0]["template"] == "trip@1"
        (head,) = (await coordinator.search(name="trip")).sagas
        assert b'"template":"trip@1"' in head.summary
        again = await coordinator.submit(template="trip@1", input={"what": "a"}, saga_id="s1")
        assert (await again.wait()).completed
        outcome = await coordinator.run(template="trip", input={"what": "b"}, saga_id="s2", tags=["x"])
        assert outcome.output(1) == {"ref": "b"}
        assert (await coordinator.history("s2"))[0]["template"] == "trip@1"
    await store.close()


async def test_what_a_template_needs_is_told_before_anything_is_journalled() -> None:
    """A missing or wrong input, an unknown version, and neither or both of plan and template."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await coordinator.templates.put("trip", plan())
        await coordinator.templates.put("strict", plan(), input_schema=SCHEMA)
        for name, given, code in (
            ("trip", {}, "binding-input-missing"),
            ("strict", {}, "template-input"),
            ("strict", {"what": 7}, "template-input"),
        ):
            with pytest.raises(PlanInvalid) as refused:
                await coordinator.submit(template=name, input=given)
            assert [problem.code for problem in refused.value.problems] == [code]
            if code == "template-input":
                assert "`saga template show strict@1 --json`" in refused.value.problems[0].hint
        with pytest.raises(TemplateNotFound):
            await coordinator.submit(template="trip@2", input={"what": "a"})
        for wrong in ({}, {"plan": plan("a"), "template": "trip"}, {"template": "trip@0"}, {"template": "a b"}):
            with pytest.raises(SettingInvalid):
                await coordinator.submit(**wrong)
        assert await coordinator.list() == []


@pytest.mark.parametrize(
    ("name", "source", "schema", "error"),
    [
        ("trip", plan(), {"type": "nothing"}, PlanInvalid),
        ("trip", plan(task_id="s1"), None, PlanInvalid),
        ("trip", {"steps": [{"step_id": 1, "tool": "fly"}]}, None, PlanInvalid),
        ("trip", "no json", None, PlanInvalid),
        ("a/b", plan(), None, SettingInvalid),
        ("trip@2", plan(), None, SettingInvalid),
        ("", plan(), None, SettingInvalid),
    ],
)
async def test_what_cannot_be_a_template_is_refused(name: str, source: Any, schema: Any, error: type) -> None:
    """A plan that could never be submitted, a schema that is none, a name that is none; and nothing is stored."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        with pytest.raises(error):
            await coordinator.templates.put(name, source, input_schema=schema)
        assert await coordinator.templates.list() == []
