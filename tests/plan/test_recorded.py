"""The plan of a journal is the one that was submitted, also if its steps are compiled only when they are first used."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from saga_engine import Coordinator, ToolError, tool
from saga_engine.core.fold import fold
from saga_engine.errors import PlanInvalid
from saga_engine.plan.compiled import CompiledPlan, CompiledStep
from saga_engine.plan.compiler import check_plan, compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.operator_limits import Limits
from saga_engine.plan.recorded import LEAST_STEPS, LaterStep, RecordedPlan, recorded_plan
from saga_engine.runtime.journal import decoded, drivable, state_of
from saga_engine.tools.registry import ToolRegistry


@tool(undo="unbook")
async def book(what: str = "", n: int = 0, where: str = "", idempotency_key: str = "") -> dict:
    return {"ref": "r", "places": ["x"]}


@tool
async def unbook(ref: str) -> dict:
    return {}


@tool(undo="unbook", undo_params={"ref": "$output.ref"})
async def reserve(what: str = "") -> dict:
    return {"ref": "r"}


@tool(before="look", undo="put")
async def change(item: str = "", value: int = 0) -> dict:
    return {"item": item}


@tool
async def put(item: str, value: int = 0) -> dict:
    return {}


@tool(effect="read")
async def look(item: str = "") -> dict:
    return {"value": 1}


TOOLS = ToolRegistry([book, unbook, reserve, change, put, look])


def plain(value: Any, seen: dict[int, Any]) -> Any:
    """A compiled thing as plain data, whatever its class."""
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    if isinstance(value, Mapping):
        return {key: plain(each, seen) for key, each in value.items()}
    if isinstance(value, list | tuple | range) and not hasattr(value, "_fields"):
        return [plain(each, seen) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if callable(value):
        return "a function"
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = "above"
    if isinstance(value, CompiledStep):
        names: Any = CompiledStep.__dataclass_fields__
    elif isinstance(value, CompiledPlan):
        names = CompiledPlan.__dataclass_fields__.keys() - {"tools", "tool_terms"}
    else:
        names = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
        names |= getattr(value, "__dict__", {}).keys()
    made = {name: plain(getattr(value, name), seen) for name in sorted(names) if hasattr(value, name)}
    seen[id(value)] = made
    return made


def both(body: dict[str, Any], given: dict[str, Any] | None = None) -> tuple[CompiledPlan | None, CompiledPlan]:
    """A plan as its journal gives it, and compiled as a whole with what was journalled of it."""
    plan = load_plan(body)
    submitted = compile_plan(plan, TOOLS, input=given)
    undos, reads = submitted.undos, submitted.reads
    whole = compile_plan(load_plan(body), TOOLS, input=given, undos=undos, reads=reads)
    return recorded_plan(plan.json_bytes, TOOLS, given=given, undos=undos, reads=reads, least=1), whole


def step_of(dice: random.Random, number: int) -> dict[str, Any]:
    """Some step, with whatever a step may have."""
    name = dice.choice(["book", "book", "reserve", "change", "look"])
    params: dict[str, Any] = {}
    earlier = dice.randrange(number) if number else None
    values: list[Any] = ["x", "costs $5", "$$input.a", "$input.a", "$saga.id", "$key", {"a": ["{$saga.id}"]}, "é\u2028"]
    if earlier is not None:
        values += [f"$output.step_{earlier}", f"$output.step_{earlier}.ref", f"to {{$output.step_{earlier}.ref}}"]
        values += [f"$output.step_{earlier}.places[0]", f"$output.step_{earlier}['ref']"]
        values.append({"$first": [f"$output.step_{earlier}.ref", "none"]})
    if name == "change":
        params = {"item": dice.choice(["x", "$input.a"]), "value": 3}
    elif name != "look" and dice.random() < 0.8:
        params = {"what": next(each for each in iter(lambda: dice.choice(values), None) if not isinstance(each, dict))}
    step: dict[str, Any] = {"step_id": number, "tool": name} | ({"params": params} if params else {})
    if dice.random() < 0.3 and name == "book":
        undo: dict[str, Any] = {"tool": "unbook"}
        if dice.random() < 0.7:
            undo["params"] = {
                "ref": dice.choice([f"$output.step_{number}.ref", "r", f"r {{$output.step_{number}.ref}}"])
            }
        step["rollback"] = undo | dice.choice([{}, {"timeout_s": 4}, {"retry": {"max_attempts": 3}}])
    if dice.random() < 0.3:
        step["depends_on"] = dice.sample(range(number), min(number, dice.randrange(3)))
    extra = dice.choice(
        [{}, {}, {}, {"name": "a name"}, {"timeout_s": 5}, {"retry": {"max_attempts": 2}}, "kind", "more"]
    )
    if extra == "kind":
        extra = {} if name == "look" or "rollback" in step else {"kind": dice.choice(["irreversible", "compensatable"])}
    elif extra == "more":
        condition = [{"value": "$input.a", "op": "==", "to": "x"}]
        extra = dice.choice([{"when": condition}, {"on_error": "continue"}, {"resource": "r:{$input.a}"}])
    return step | extra


def plan_of(dice: random.Random) -> dict[str, Any]:
    """Some plan that a saga may have."""
    while True:
        body = {"input": {"a": "x"}, "steps": [step_of(dice, number) for number in range(dice.randrange(2, 12))]}
        body |= dice.choice([{}, {"name": "n", "tags": ["t"], "goal": "g", "deadline_s": 9.0, "max_tool_calls": 99}])
        if not check_plan(load_plan(body), TOOLS):
            return body


@pytest.mark.parametrize("seed", range(150))
def test_a_recorded_plan_is_the_plan(seed: int) -> None:
    """Whatever steps it has: order, calls, undos, declarations and each step are those of the whole compiler."""
    dice = random.Random(seed)
    body = plan_of(dice)
    later, whole = both(body, dice.choice([None, {"a": "y"}]))
    assert isinstance(later, RecordedPlan)
    assert {call.tool for call in later.calls()} == {call.tool for call in whole.calls()}
    later.tools.look(later.steps)
    whole.tools.look(whole.steps)
    assert (later.tools.seen, later.tools.meet) == (whole.tools.seen, whole.tools.meet)
    for name in ("book", "unbook", "reserve", "change", "put", "look"):
        assert later.tools.called(later.steps, name) == whole.tools.called(whole.steps, name)
        assert later.tools.undone_by(later.steps, name) == whole.tools.undone_by(whole.steps, name)
    assert plain(later, {}) == plain(whole, {})


@pytest.mark.parametrize(
    "more",
    [
        {"finally": [{"step_id": "end", "tool": "look"}]},
        {"steps": [{"step_id": 0, "tool": "look"}, {"step_id": 1, "tool": "book", "kind": "pivot"}]},
        {"steps": [{"step_id": 0, "tool": "book", "each": {"of": ["a"]}, "params": {"what": "$item"}}]},
        {"steps": [{"step_id": 0, "saga": {"plan": {"steps": [{"step_id": 0, "tool": "look"}]}}}]},
    ],
    ids=["finally", "a pivot", "a list", "a child"],
)
def test_what_reaches_beyond_a_step_is_compiled_as_a_whole(more: dict[str, Any]) -> None:
    """No part of the order is found twice."""
    later, _ = both({"steps": [{"step_id": 0, "tool": "look"}]} | more)
    assert later is None


@pytest.mark.parametrize(
    "steps",
    [
        [{"step_id": 0, "tool": "book"}, {"step_id": "0", "tool": "book"}],
        [{"step_id": 0, "tool": "book", "params": {"what": "$output.step_7.ref"}}],
        [{"step_id": 0, "tool": "book", "depends_on": [7]}],
        [{"step_id": 0, "tool": "book", "params": {"what": "$output.step_0.ref"}}],
        [{"step_id": 0, "tool": "book", "params": {"what": "$output.step_1.ref"}}, {"step_id": 1, "tool": "book"}],
        [{"step_id": 0, "tool": "book", "depends_on": [1]}, {"step_id": 1, "tool": "book", "depends_on": [0]}],
    ],
)
def test_the_faults_of_an_order_are_told_by_the_compiler(steps: list[dict[str, Any]]) -> None:
    """A journal that was changed by hand is refused as before."""
    body = msgspec.json.encode({"steps": steps})
    with contextlib.suppress(PlanInvalid):
        assert recorded_plan(body, TOOLS, given=None, undos={}, reads=(), least=1) is None
    with pytest.raises(PlanInvalid):
        compile_plan(load_plan({"steps": steps}), TOOLS, undos={}, reads=())


def chain(length: int) -> dict[str, Any]:
    first = {"step_id": 0, "tool": "book", "params": {"what": "x"}}
    params = ({"what": f"$output.step_{at - 1}.ref", "n": at} for at in range(1, length))
    return {"steps": [first, *({"step_id": at, "tool": "book", "params": of} for at, of in enumerate(params, 1))]}


def compiled_steps(plan: CompiledPlan) -> int:
    """How many steps are compiled: to ask a step itself would compile it."""
    params = CompiledStep.__dict__["params"]
    found = 0
    for step in plan.steps:
        try:
            params.__get__(step)
            found += 1
        except AttributeError:
            assert type(step) is LaterStep
    return found


async def test_who_takes_a_saga_over_compiles_what_is_left(tmp_path) -> None:
    """A journal of 600 steps, of which three are left: these are compiled, and one that tells which tools they need."""
    length, left = 600, 3
    async with Coordinator.open(f"embedded://{tmp_path}", [book, unbook], lease_s=60) as coordinator:
        result = await coordinator.run(chain(length))
        data = await coordinator.store.read(result.saga_id)
        records = await decoded(coordinator.store, result.saga_id, data[: 2 * (length - left) + 1])
        state = await drivable(result.saga_id, records, coordinator.tools)
        assert isinstance(state.plan, RecordedPlan)
        assert compiled_steps(state.plan) == 1
        async with asyncio.timeout(60):
            whole = await coordinator.store.read(result.saga_id)
        assert len(whole) > len(records)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_saga_that_is_taken_over_goes_on(tmp_path, fails: bool) -> None:
    """Its process has died: forward and back it makes the calls that were left, with the right params and keys."""
    length = LEAST_STEPS + 20
    stop, seen = asyncio.Event(), list[Any]()
    numbers = itertools.count()

    @tool(name="book", undo="unbook")
    async def counted(idempotency_key: str, what: str, n: int = 0) -> dict:
        at = next(numbers)
        seen.append((what, n))
        if at == length - 5 and not stop.is_set():
            stop.set()
            await asyncio.Event().wait()
        if fails and n == length - 2:
            raise ToolError("no")
        return {"ref": f"r{n}"}

    @tool(name="unbook")
    async def undone(idempotency_key: str, ref: str) -> dict:
        seen.append(ref)
        return {}

    url = f"embedded://{tmp_path}"
    async with Coordinator.open(url, [counted, undone], lease_s=60) as first:
        await first.submit(chain(length), saga_id="s")
        await stop.wait()
    async with Coordinator.open(url, [counted, undone], on_escalation=()) as second:
        state = state_of(await decoded(second.store, "s", await second.store.read("s")), second.tools)
        assert isinstance(state.plan, RecordedPlan)
        seen.clear()
        result = await second.resume("s")
    expected = [(f"r{n - 1}", n) for n in range(length - 5, length)]
    if fails:
        expected = expected[:-1] + [f"r{n}" for n in range(length - 3, -1, -1)]
    assert seen == expected
    assert result.status == ("COMPENSATED" if fails else "COMPLETED")


def test_limits_and_tools_that_are_missing() -> None:
    """The operator's limits of that day hold, and a tool that is gone leaves an empty declaration."""
    body = json.dumps(chain(5), separators=(",", ":")).encode()
    limits = Limits(max_calls=7, deadline_s=3.0)
    for catalog in (TOOLS, ToolRegistry([look]), None):
        undos = {str(at): "unbook" for at in range(5)}
        later = recorded_plan(body, catalog, given=None, undos=undos, reads=(), limits=limits, least=1)
        whole = limits.applied(compile_plan(load_plan(chain(5)), catalog, undos=undos, reads=()))
        assert isinstance(later, RecordedPlan)
        assert plain(later, {}) == plain(whole, {})
        assert later.tools.seen == 5
        assert (later.max_tool_calls, later.deadline_s) == (7, 3.0)


async def test_a_fold_is_the_same(tmp_path) -> None:
    """States of both plans are equal after each record."""
    async with Coordinator.open(f"embedded://{tmp_path}", [book, unbook]) as coordinator:
        result = await coordinator.run(chain(LEAST_STEPS))
        records = await decoded(coordinator.store, result.saga_id, await coordinator.store.read(result.saga_id))
        started = records[0]
        later = state_of(records, coordinator.tools)
        whole = fold(
            records, compile_plan(load_plan(chain(LEAST_STEPS)), coordinator.tools, undos=started.undos, reads=())
        )
    assert isinstance(later.plan, RecordedPlan)
    assert repr(later.steps) == repr(whole.steps)
    assert (later.status, later.ready, later.remaining) == (whole.status, whole.ready, whole.remaining)
