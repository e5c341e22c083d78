"""Plans of one shape are compiled once, and each has its own values: what is known of a shape changes no plan."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import count
from random import Random
from types import FunctionType, ModuleType
from typing import Any

import pytest

from saga_engine import ToolRegistry, tool
from saga_engine.errors import PlanInvalid, Problem
from saga_engine.execution import plan_cache
from saga_engine.execution.plan_cache import compile_submitted
from saga_engine.plan.compiler import prepare_plan
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.shapes import Shape, shape_of
from saga_engine.plan.tool_spec import ToolSpec


@tool(effect="read")
async def look(ref: str = "", place: str = "") -> dict:
    return {"ref": ref, "size": 1}


@tool(undo="unbook", sensitive=("card",))
async def book(
    city: str, nights: int, card: str = "", guest: dict | None = None, tags: list[str] | None = None
) -> dict:
    return {"ref": "r"}


@tool
async def unbook(ref: str, reason: str = "") -> dict:
    return {"ref": ref}


@tool(undo="restore", before="look", redact=("card.number",))
async def put(ref: str, place: str, size: int | None = None) -> dict:
    return {"ref": ref}


@tool
async def restore(ref: str, place: str = "") -> dict:
    return {}


@tool(undo="unpay", undo_params={"ref": "$output.ref", "mode": "full"})
async def pay(amount: float, to: str) -> dict:
    return {"ref": "p"}


@tool
async def unpay(ref: str, mode: str = "full", note: str = "") -> dict:
    return {}


@tool(undo="unbook", undo_check={"tool": "look", "shows": {"fields": {"ref": ""}}})
async def rent(city: str, when: str) -> dict[str, Any]:
    return {"ref": "c", "city": city}


TOOLS = (look, book, unbook, put, restore, pay, unpay, rent)
#: Marks the values of a plan: no shape has one.
MARK = "mine-"


class Drawing:
    """Random plans: their shapes come from few numbers, so that they come again, and their values from many."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self._numbers = count()

    def plan(self, shape: int) -> dict[str, Any]:
        form = Random(shape)
        steps = [self.step(form, at) for at in range(1, form.randint(2, 5))]
        plan: dict[str, Any] = {"steps": steps}
        head = {
            "goal": self.text(),
            "name": f"{MARK}{next(self._numbers)}",
            "tags": [self.text()],
            "deadline_s": self.dice.choice([5, 60.5]),
            "max_tool_calls": self.dice.randint(5, 50),
            "on_failure": self.dice.choice(["compensate", "pause"]),
        }
        plan |= {name: value for name, value in head.items() if self.dice.random() < 0.3}
        if self.dice.random() < 0.8:
            plan["input"] = {"who": self.text(), "n": self.number(), **({"x": 1} if self.dice.random() < 0.2 else {})}
        return plan

    def text(self) -> str:
        return f"{MARK}{self.dice.choice(['', '$5 ', 'ü', '{}', '$$ '])}{next(self._numbers)}"

    def number(self) -> Any:
        # Now and then a value of another type than the tool takes.
        return self.dice.randint(0, 9) if self.dice.random() < 0.97 else self.dice.choice([None, self.text(), [], 0.5])

    def step(self, form: Random, at: int) -> dict[str, Any]:
        name = form.choice(["book", "put", "pay", "rent", "look", "nothing" if form.random() < 0.02 else "book"])
        step: dict[str, Any] = {"step_id": form.choice([at] * 9 + [f"s{at}"]), "tool": name}
        if self.dice.random() < 0.2:
            step["name"] = self.text()
        step["params"] = {key: self.value(form, key, at) for key in self.keys(form, name)}
        undo = {"book": "unbook", "put": "restore", "pay": "unpay", "rent": "unbook"}.get(name)
        if undo is not None and form.random() < 0.6:
            step["rollback"] = {"tool": undo}
            if form.random() < 0.8:
                own = f"$output.step_{step['step_id']}.ref"
                step["rollback"]["params"] = {"ref": own} | form.choice([{}, {}, self.more(form, undo)])
            if form.random() < 0.2:
                step["rollback"]["timeout_s"] = form.choice([1, 2.5])
        for key, values, often in (
            ("depends_on", [[], [1]], 0.1),
            ("kind", ["compensatable", "irreversible", "pivot", "read"], 0.05),
            ("retry", [{"max_attempts": 2}, {"max_attempts": 2, "jitter": False}, {"base_s": 1}], 0.15),
            ("timeout_s", [1, 2.0], 0.15),
            ("on_error", ["continue", "fail"], 0.1),
            ("when", [[{"value": "$input.n", "op": ">", "to": 1}]], 0.07),
            ("fallback", [{"tool": "look", "params": {"ref": "other"}}], 0.05),
        ):
            if form.random() < often:
                step[key] = form.choice(values)
        return step

    def keys(self, form: Random, name: str) -> list[str]:
        needed = {
            "book": ["city", "nights"],
            "put": ["ref", "place"],
            "pay": ["amount", "to"],
            "rent": ["city", "when"],
        }
        more = {"book": ["card", "guest", "tags"], "put": ["size"], "look": ["ref", "place"]}
        found = [*needed.get(name, []), *(key for key in more.get(name, []) if form.random() < 0.4)]
        form.shuffle(found)
        return found if form.random() < 0.97 else found[1:]

    def more(self, form: Random, undo: str) -> dict[str, Any]:
        other = self.dice.choice(["full", self.text()])  # which is what its registration says
        return {"reason": self.text()} if undo == "unbook" else {"mode": other} if undo == "unpay" else {}

    def value(self, form: Random, key: str, at: int) -> Any:
        if form.random() < 0.04:
            odd = [
                "$secret.CARD",
                "$output.step_9.x",
                "$$key",
                {"$first": ["$input.who", "x"]},
                "$key",
                "a {$$input.n}",
            ]
            return form.choice([*odd, {"$compute": {"add": [1, "$input.n"]}}])
        if key == "guest":
            return {"name": self.text(), "deep": [self.number(), form.choice(["$input.n", 1]), {}], "at": form.random()}
        if key == "tags":
            return [self.text() for _ in range(form.randint(0, 3))] + form.choice(
                [[], ["$input.who"], ["of {$saga.id}"]]
            )
        if key in {"nights", "amount", "size"}:
            return "$input.n" if form.random() < 0.2 else self.number()
        drawn = form.random()
        if drawn < 0.25:
            return "$input.who" if at == 1 or form.random() < 0.3 else f"$output.step_{at - 1}.ref"
        if drawn < 0.4:
            return f"{self.text()} {form.choice(['{$input.who}', '{$saga.id} {$input.n}'])} {self.text()}"
        return self.text() if self.dice.random() < 0.97 else self.number()


def facts(value: Any, seen: Mapping[int, int] | None = None) -> Any:
    """All that a compiled plan is made of, tools' declarations by their identity."""
    seen = dict(seen or {})
    if isinstance(value, ToolSpec):
        return id(value)
    if value is None or isinstance(value, str | bytes | int | float):
        return type(value).__name__, value
    assert id(value) not in seen, "a cycle"
    seen[id(value)] = 1
    if isinstance(value, Mapping):
        return [(key, facts(inner, seen)) for key, inner in value.items()]
    if isinstance(value, frozenset | set):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple | range):
        return type(value).__name__, [facts(inner, seen) for inner in value]
    names = [field.name for field in fields(value) if field.compare] if is_dataclass(value) else _slots(type(value))
    found = {name: facts(getattr(value, name), seen) for name in names}
    if hasattr(value, "usual"):
        found["as usual"] = value.usual is value.params
    return type(value).__name__, found


def _slots(kind: type) -> list[str]:
    return [name for each in kind.__mro__ for name in each.__dict__.get("__slots__", ())]


def anew(plan: Plan, given: dict[str, Any] | None, tools: ToolRegistry) -> Any:
    try:
        return facts(prepare_plan(plan, tools, input=given).compiled)
    except PlanInvalid as error:
        return error.problems


def kept(plan: Plan, given: dict[str, Any] | None, tools: ToolRegistry) -> Any:
    try:
        return facts(compile_submitted(plan, given, tools))
    except PlanInvalid as error:
        return error.problems


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_of_a_known_shape_is_compiled_as_if_nothing_were_known(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any plan, after any others: the same compiled plan, or the same problems in the same order."""
    tools, drawing = ToolRegistry(TOOLS), Drawing(Random(seed))
    filled: list[bool] = []
    fill = Shape.filled

    def noted(self: Shape, plan: Plan, given: Any) -> Any:
        made = fill(self, plan, given)
        filled.append(made is not None)
        return made

    monkeypatch.setattr(Shape, "filled", noted)
    invalid = 0
    for _ in range(500):
        plan = load_plan(drawing.plan(seed * 1000 + drawing.dice.randrange(60)))
        given = drawing.dice.choice([None, None, {"who": drawing.text(), "n": drawing.number()}])
        expected = anew(plan, given, tools)
        assert kept(plan, given, tools) == expected
        assert kept(plan, given, tools) == expected  # and from what is kept by its content
        invalid += isinstance(expected, list) and isinstance(expected[0], Problem)
    assert filled.count(True) > 100
    assert filled.count(False) > 10
    assert 50 < invalid < 450


def test_a_shape_has_no_value_of_any_plan() -> None:
    """What one plan says, secret or not, is in nothing that is kept for others."""
    tools, drawing = ToolRegistry(TOOLS), Drawing(Random(7))
    for _ in range(400):
        kept(load_plan(drawing.plan(drawing.dice.randrange(60))), None, tools)
    known = plan_cache._PLANS[tools]
    assert len(known.shapes) > 10
    texts = list(_texts([known.shapes, known.seen]))
    assert "$input.who" in texts
    assert not [text for text in texts if MARK in text]


def test_the_fields_of_a_sensitive_param_are_kept_by_nobody() -> None:
    """Not only their values: a name of a field may be what must not be seen."""

    @tool(sensitive=("pins",))
    async def keep(pins: dict) -> dict:
        return {}

    tools = ToolRegistry([keep])
    for pin in range(3):
        step = {"step_id": 1, "tool": "keep", "kind": "irreversible", "params": {"pins": {f"{MARK}name": pin}}}
        compile_submitted(load_plan({"steps": [step]}), None, tools)
    known = plan_cache._PLANS[tools]
    assert len(known.seen) == 1
    assert not known.shapes


def _texts(roots: list[Any]) -> Iterator[str]:
    """Every text that is reached from objects, beside declarations and code."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, ToolSpec | type | ModuleType | FunctionType):
            continue
        seen.add(id(value))
        if isinstance(value, str | bytes):
            yield value if isinstance(value, str) else value.decode()
        stack += gc.get_referents(value)


def plan(**params: Any) -> Plan:
    return load_plan({"steps": [{"step_id": 1, "tool": "book", "params": params}]})


def test_a_tool_that_is_declared_anew_has_plans_compiled_anew() -> None:
    """By their content and by their shape: what was found with another declaration says nothing of this one."""
    tools = ToolRegistry([look, book, unbook])
    for nights in range(3):
        compile_submitted(plan(city="x", nights=nights), None, tools)

    @tool(name="book", undo="unbook")
    async def other(city: str, nights: str) -> dict:
        return {}

    tools.drop(["book", "unbook"])
    tools.add(other, unbook)
    for nights in (1, 7):
        with pytest.raises(PlanInvalid) as refused:
            compile_submitted(plan(city="x", nights=nights), None, tools)
        assert [(problem.code, problem.path) for problem in refused.value.problems] == [
            ("params-invalid", "$.steps[0].params.nights")
        ]
    compiled = compile_submitted(plan(city="x", nights="7"), None, tools)
    assert compiled.steps[0].spec is tools.spec("book")


def test_shapes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, and in what they are made of; one that comes once is not kept."""
    tools = ToolRegistry([look, book, unbook])

    def submit(names: int, times: int = 3) -> None:
        for at in range(times):
            compile_submitted(plan(city="x", nights=at, guest={f"name{n}": at for n in range(names)}), None, tools)

    submit(1, 1)
    known = plan_cache._PLANS[tools]
    assert not known.shapes
    monkeypatch.setattr(plan_cache, "MAX_PLANS", 4)
    for names in range(30):
        submit(names)
    assert len(known.shapes) == 4
    assert known.parts == sum(map(len, known.shapes))
    assert len(known.seen) <= 16
    monkeypatch.setattr(plan_cache, "MAX_PARTS", 100)
    submit(30)
    assert 0 < known.parts <= 100
    submit(60)  # has more parts than may be kept at all
    assert 0 < known.parts <= 100


def test_what_has_more_than_values_has_no_shape() -> None:
    """Escapes, secrets, computations and every field beside those of a call: such plans are compiled one by one."""
    for params in ({"city": "$$input.x"}, {"city": "$secret.CARD"}, {"city": {"$first": ["$input.a", 1]}}):
        assert shape_of(plan(**params)) is None
    call = {"step_id": 1, "tool": "book", "params": {"city": "x"}}
    for more in ({"resource": "a"}, {"each": "$input.list"}, {"expect": "$before"}):
        assert shape_of(load_plan({"steps": [call | more]})) is None
    assert shape_of(load_plan({"steps": [call], "finally": [{"step_id": 2, "tool": "look"}]})) is None
    assert shape_of(load_plan({"steps": [{"step_id": 1, "wait": {"event": "x"}}]})) is None
