"""A rollback that only names the registered undo is the registered undo, with all that the registration says of it.

A matrix: every option of a registration, at every door at which an undo is named. The same calls are made, under keys
of their own, as where nobody names it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from saga_engine import Coordinator, ToolContext, ToolError, ToolRegistry, Undo, tool
from saga_engine.errors import PlanInvalid, ToolInvalid
from saga_engine.plan.compiled import CompiledRollback
from saga_engine.plan.compiler import check_plan, compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.warnings import warnings_of
from saga_engine.sources.http import http_tools
from saga_engine.testing.scripted import ScriptedPlanner

LIST: Final = {"undo_each": "$output.items", "undo_params": {"id": "$item.name"}}
THEN: Final = {"undo_then": [{"tool": "erase", "params": {"id": "$output.new"}}]}
#: The options of a registration, and the calls that undo ``swap`` then.
OPTIONS: Final[dict[str, tuple[dict[str, Any], list[str]]]] = {
    "nothing": ({}, ["cancel old"]),
    "undo_params": ({"undo_params": {"id": "$output.new"}}, ["cancel new"]),
    "undo_each": (LIST, ["cancel a", "cancel b"]),
    "undo_then": (THEN, ["cancel old", "erase new"]),
    "all": (LIST | THEN, ["cancel a", "cancel b", "erase new"]),
    "before": ({"before": "look", "undo_params": {"id": "$before.was"}}, ["cancel earlier"]),
    "undo_absent": (
        {"before": "nothing", "absent": {"error_code": "none"}, "undo_absent": "erase", "undo_params": {"id": "?"}},
        ["erase old"],
    ),
}


class World:
    """An outside system. ``swap`` replaces an order: undone by the wrong object, the customer's old order is gone."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.keys: list[str] = []
        self.swapped = False

    def tools(self, **options: Any) -> list[Any]:
        @tool(undo="cancel", **options)
        async def swap(id: str) -> dict:  # noqa: A002 - the outside system calls it so
            self.swapped = True
            return {"new": "new", "items": [{"name": "a"}, {"name": "b"}]}

        @tool(effect="read")
        async def look(id: str) -> dict:  # noqa: A002
            return {"was": "later" if self.swapped else "earlier"}

        @tool(effect="read")
        async def nothing(id: str) -> dict:  # noqa: A002
            if not self.swapped:
                raise ToolError("there is none", error_code="none", retryable=False)
            return {"is": "there"}

        @tool
        async def fail(text: str = "") -> None:
            raise ToolError("no", retryable=False)

        return [swap, look, nothing, fail, self._undoing("cancel"), self._undoing("erase")]

    def _undoing(self, name: str) -> Any:
        async def undo(id: str, ctx: ToolContext) -> None:  # noqa: A002
            self.calls.append(f"{name} {id}")
            self.keys.append(ctx.idempotency_key)
            self.swapped = False

        return tool(undo, name=name, tolerates_absence=True)


SWAP: Final[dict[str, Any]] = {"step_id": "x", "tool": "swap", "params": {"id": "old"}}
PIVOT: Final[dict[str, Any]] = {"step_id": "m", "tool": "fail", "kind": "pivot"}
NAMED: Final[dict[str, Any]] = {**SWAP, "rollback": {"tool": "cancel"}}


async def of_plan(c: Coordinator, step: dict[str, Any]) -> None:
    result = await c.run({"steps": [step, PIVOT]})
    assert (result.status, result.report["clean"]) == ("COMPENSATED", True)


async def of_fallback(c: Coordinator, step: dict[str, Any]) -> None:
    way = {name: value for name, value in step.items() if name != "step_id"}
    rollback = {"tool": "erase", "params": {"id": "wrong"}}
    await of_plan(c, {"step_id": "x", "tool": "fail", "rollback": rollback, "fallback": way})


async def of_child(c: Coordinator, step: dict[str, Any]) -> None:
    child = {"step_id": "c", "saga": {"plan": {"steps": [step]}}}
    result = await c.run({"steps": [child, PIVOT]})
    assert (result.status, result.report["clean"]) == ("COMPENSATED", True)


def of_session(undo: Any) -> Callable[[Coordinator, dict[str, Any]], Any]:
    async def door(c: Coordinator, _: dict[str, Any]) -> None:
        async with c.session("s") as session:
            await session.call("swap", {"id": "old"}, undo=undo(c) if callable(undo) else undo)
            await session.rollback()

    return door


DOORS: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "plan": (of_plan, SWAP),
    "plan, named": (of_plan, NAMED),
    "plan, named with a retry": (of_plan, {**SWAP, "rollback": {"tool": "cancel", "retry": {"max_attempts": 3}}}),
    "fallback": (of_fallback, SWAP),
    "fallback, named": (of_fallback, NAMED),
    "child": (of_child, SWAP),
    "child, named": (of_child, NAMED),
    "session": (of_session(None), SWAP),
    "session, named": (of_session("cancel"), SWAP),
    "session, as a function": (of_session(lambda c: c.tools.get("cancel")), SWAP),
    "session, as an Undo": (of_session(Undo("cancel")), SWAP),
    "session, without params": (of_session(("cancel", None)), SWAP),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("option", OPTIONS)
async def test_a_named_undo_is_the_registered_one(option: str, door: str) -> None:
    """Named or not, in a plan, a fallback, a child or a session: the calls of the registration, each with its key."""
    world, (options, calls) = World(), OPTIONS[option]
    act, step = DOORS[door]
    async with Coordinator.open("memory://", world.tools(**options), settings=None) as c:
        await act(c, step)
    assert world.calls == calls
    assert len(set(world.keys)) == len(calls)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("step", [SWAP, NAMED], ids=["unnamed", "named"])
async def test_a_models_plan_undoes_as_the_registration_says(option: str, step: dict[str, Any]) -> None:
    """The accepted plan names the undo: it is accepted at the first answer, told as registered, and undoes the same."""
    world, (options, calls) = World(), OPTIONS[option]
    planner = ScriptedPlanner({"steps": [step, PIVOT]})
    async with Coordinator.open("memory://", world.tools(**options), planner=planner, settings=None) as c:
        planned = await c.plan("swap the order old")
        assert [each["problems"] for each in planned.transcript] == [[]]
        assert planned.plan.steps[0].rollback is not None
        assert {each["by"] for each in planned.review["undos"]} == {"registered"}
        await of_plan(c, planned.plan.model_dump(exclude_unset=True)["steps"][0])
    assert world.calls == calls


def shape(undo: CompiledRollback | None) -> Any:
    """All that an undo does."""
    if undo is None:
        return None
    each = None if undo.each is None else undo.each.raw
    filled = undo.params is undo.usual
    return undo.tool, undo.params.raw, each, filled, undo.needs_output, [*map(shape, undo.then)], shape(undo.absent)


HTTP: Final = """
[http.swap]
method = "POST"
url = "https://shop.example/swaps/{id}"
params = { id = "string" }
undo = "cancel"
MORE
[http.cancel]
method = "DELETE"
url = "https://shop.example/orders/{id}"
params = { id = "string" }
[http.erase]
method = "DELETE"
url = "https://shop.example/files/{id}"
params = { id = "string" }
[http.look]
method = "GET"
url = "https://shop.example/orders/{id}"
params = { id = "string" }
"""
#: The same options as a table has them.
LINES: Final = {
    "nothing": "",
    "undo_params": 'undo_params = { id = "$output.new" }',
    "undo_each": 'undo_each = "$output.items"\nundo_params = { id = "$item.name" }',
    "undo_then": 'undo_then = [{ tool = "erase", params = { id = "$output.new" } }]',
    "before": 'before = "look"\nundo_params = { id = "$before.was" }',
    "undo_absent": 'before = "look"\nbefore_absent = { error_code = "not_found" }\nundo_absent = "erase"',
}


def of_python(option: str) -> ToolCatalog:
    return ToolRegistry(World().tools(**OPTIONS[option][0]))


def of_table(option: str) -> ToolCatalog:
    tables = tomllib.loads(HTTP.replace("MORE", LINES[option]))["http"]
    return ToolRegistry(http_tools(tables, base=Path(), source="saga.toml", allow_private=()))


SOURCES: Final = [
    *(pytest.param(of_python, option, id=f"python {option}") for option in OPTIONS),
    *(pytest.param(of_table, option, id=f"table {option}") for option in LINES),
]


@pytest.mark.parametrize(("source", "option"), SOURCES)
@pytest.mark.parametrize("way", ["step", "fallback"])
def test_a_named_undo_compiles_to_the_registered_one(
    source: Callable[[str], ToolCatalog], option: str, way: str
) -> None:
    """Named or not: no problem, no warning, the same compiled undo and the same journalled one, also when resumed."""
    tools = source(option)
    made = []
    for step in (SWAP, NAMED):
        written: Mapping[str, Any] = step
        if way == "fallback":
            other = {name: value for name, value in step.items() if name != "step_id"}
            written = {"step_id": "x", "tool": "cancel", "params": {"id": "1"}, "fallback": other}
            written = {**written, "rollback": {"tool": "erase", "params": {"id": "$output.step_x.id"}}}
        plan = load_plan({"steps": [written]})
        assert check_plan(plan, tools) == []
        assert warnings_of(plan, tools) == []
        compiled = compile_plan(plan, tools)
        resumed = compile_plan(plan, tools, undos=compiled.undos, reads=compiled.reads)
        found = [[*map(shape, (each.rollback for each in one.steps[0].servings()))] for one in (compiled, resumed)]
        assert found[0] == found[1]
        assert compiled.undos == resumed.undos
        made.append((found, compiled.undos))
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ({"undo_params": {"id": "{{sku}}"}}, r"write \$params.sku"),
        ({"undo_params": {"id": "${sku}"}}, r"write \$params.sku"),
        ({"undo_params": {"id": "{sku}"}}, r"write \$params.sku"),
        ({"undo_params": {"id": "$sku"}}, r"write \$params.sku"),
        ({"undo_params": {"id": "$input.sku"}}, r"write \$params.sku"),
        ({"undo_params": {"id": "$param.sku"}}, r"write \$params.sku"),
        ({"undo_params": {"id": "$input.other"}}, "a whole text binds"),
        ({"undo_params": {"id": "$params"}}, "a whole text binds"),
        ({"undo_params": {"id": "$key.id"}}, "a whole text binds"),
        ({"undo_params": {"id": "$secret.PIN"}}, "a whole text binds"),
        ({"undo_params": {"id": "no {$output.new}"}}, "a whole text binds"),
        ({"undo_params": {"id": "$item.name"}}, "a whole text binds"),
        ({"undo_params": {"id": {"of": ["{{new}}"]}}}, "a whole text binds"),
        ({"undo_params": {"id": "$output.step_1.new"}}, r"write \$output.new"),
        ({"undo_params": {"id": "$outputs.new"}}, "a whole text binds"),
        ({"undo_params": {"id": "$params.skus"}}, "parameters: sku"),
        ({"undo_params": {"id": "$output.["}}, "no valid JSONPath|not valid JSONPath"),
        ({"undo_then": [{"tool": "cancel", "params": {"id": "{{sku}}"}}]}, r"write \$params.sku"),
        ({"undo_then": [{"tool": "cancel", "params": {"id": "$item"}}]}, "a whole text binds"),
    ],
)
def test_a_registration_with_a_lookalike_is_refused(said: dict[str, Any], hint: str) -> None:
    """A text that was meant as a binding would undo an object of that name: it is refused, with the form that binds."""

    @tool(undo="cancel", **said)
    async def put(sku: str) -> dict:
        return {"new": sku}

    with pytest.raises(ToolInvalid) as error:
        ToolRegistry([put, World()._undoing("cancel")])
    assert re.search(hint, f"{error.value}")


@pytest.mark.parametrize(
    "value",
    ["$params.sku", "$params['sku']", "$output.new", "$output", "$before.x", "$key", "costs $5", "a {b}", "[x]"],
)
def test_what_binds_and_what_is_meant_literally_is_accepted(value: str) -> None:
    """The forms of a registration, and texts that nobody takes for a binding."""

    @tool(undo="cancel", undo_params={"id": value})
    async def put(sku: str) -> dict:
        return {"new": sku}

    assert ToolRegistry([put, World()._undoing("cancel")]).names()


def put_tools(world: World) -> list[Any]:
    """A call whose own param is that of its undo under another name."""

    @tool(undo="cancel", undo_params={"id": "$params.sku"})
    async def put(sku: str, pin: str = "") -> None: ...

    @tool
    async def fail() -> None:
        raise ToolError("no", retryable=False)

    return [put, fail, world._undoing("cancel")]


@pytest.mark.parametrize("door", ["plan", "named", "each", "session"])
async def test_an_undo_binds_the_param_of_its_call(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``$params.NAME`` is what the call got, for each item of a list as well; a secret is looked up again."""
    monkeypatch.setenv("SKU", "a1")
    world = World()
    step: dict[str, Any] = {"step_id": "x", "tool": "put", "params": {"sku": "a1"}}
    if door == "named":
        step = {**step, "params": {"sku": "$secret.SKU"}, "rollback": {"tool": "cancel"}}
    if door == "each":
        step = {**step, "params": {"sku": "$item"}, "each": {"of": ["b2", "a1"]}}
    allowed = {"put": ["SKU"], "cancel": ["SKU"]}
    async with Coordinator.open("memory://", put_tools(world), settings=None, secrets=allowed) as c:
        if door == "session":
            async with c.session("s") as session:
                await session.call("put", {"sku": "a1"})
                await session.rollback()
        else:
            result = await c.run({"steps": [step, PIVOT]})
            assert (result.status, result.report["clean"]) == ("COMPENSATED", True)
            assert '"a1"' not in str(await c.history(result.saga_id)) or door != "named"
    assert world.calls == (["cancel a1", "cancel b2"] if door == "each" else ["cancel a1"])


async def test_an_undo_that_binds_a_param_which_the_call_lacks_is_refused() -> None:
    """Before the call is made, in a plan and in a session: afterwards nothing could undo it."""

    @tool(undo="cancel", undo_params={"id": "$params.pin"})
    async def put(sku: str, pin: str = "") -> None: ...

    async with Coordinator.open("memory://", [put, World()._undoing("cancel")], settings=None) as c:
        plan = {"steps": [{"step_id": "x", "tool": "put", "params": {"sku": "a1"}}]}
        assert [each.code for each in c.check(plan)] == ["undo-unfillable"]
        async with c.session("s") as session:
            with pytest.raises(PlanInvalid, match="which the call lacks"):
                await session.call("put", {"sku": "a1"})


def test_the_journal_says_what_a_named_undo_was_registered_with() -> None:
    """A saga that began under one registration is undone as that said, also where its plan only names the undo."""
    plan = load_plan({"steps": [NAMED]})
    begun = compile_plan(plan, of_python("all"))
    today = compile_plan(plan, of_python("undo_params"), undos=begun.undos, reads=begun.reads)
    assert shape(today.steps[0].rollback) == shape(begun.steps[0].rollback)


@pytest.mark.parametrize(
    ("option", "rollback", "found"),
    [
        ("undo_params", {"params": {"id": "$output.step_x.id"}}, [("undo-redirected", "rollback.params.id")]),
        ("undo_params", {"params": {"id": "old"}}, [("undo-redirected", "rollback.params.id")]),
        ("undo_params", {"params": {"id": "$output.step_x.new"}}, []),
        ("undo_params", {"params": {"id": "$output.step_x['new']"}}, []),
        ("undo_each", {"params": {"id": "$item.name"}, "each": "$output.step_x.items"}, []),
        ("undo_each", {"params": {"id": "$item.name"}, "each": "$output.step_x.parts"}, [("undo-redirected", "rollback")]),
        ("undo_then", {"params": {"id": "$output.step_x.id"}}, [("undo-replaced", "rollback")]),
        ("undo_then", {"then": []}, [("undo-replaced", "rollback")]),
        ("undo_then", {"then": [{"tool": "erase", "params": {"id": "$output.step_x.new"}}]}, []),
    ],
)  # fmt: skip
def test_a_written_undo_is_compared_with_the_registration(
    option: str, rollback: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    """What a plan writes in place of the registration is warned about if it undoes something else, or less."""
    plan = load_plan({"steps": [{**SWAP, "rollback": {"tool": "cancel", **rollback}}]})
    tools = of_python(option)
    assert check_plan(plan, tools) == []
    assert [(each.code, each.path) for each in warnings_of(plan, tools)] == [
        (code, f"$.steps[0].{path}") for code, path in found
    ]
