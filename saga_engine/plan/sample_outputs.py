"""Sample outputs for a simulated plan: plausible by the tools' schemas, with the values that the plan binds to.

The real outputs are unknown here. So params are not checked against sample values, and a binding without a possible
sample (a wildcard, a descendant) counts as resolved. A binding to a value that a tool's schema excludes stays without a
sample: the real saga would fail there, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from saga_engine.errors import BindingUnresolved
from saga_engine.plan import jsonpath, schema_types, words
from saga_engine.plan.ask import sample_ask
from saga_engine.plan.bindings import Place, Template
from saga_engine.plan.compiled import (
    CompiledPlan,
    CompiledRollback,
    CompiledStep,
    Params,
    Scope,
    Serving,
)
from saga_engine.plan.conditions import Conditions, Fixed
from saga_engine.plan.each import ItemParams, add_items
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.plan.undo_params import UndoParams
from saga_engine.plan.wait import several

#: The limit on sample values in one output; a schema from the network may require any number.
_MAX_VALUES: Final = 500
#: The limit on the length of a sample list.
_MAX_ITEMS: Final = 32
_MAX_DEPTH: Final = 12

Outputs = Mapping[tuple[int, int], Any]
_Path = tuple[str | int, ...]


def rehearsable(plan: CompiledPlan) -> tuple[CompiledPlan, Outputs]:
    """The plan for simulation, and the outputs of its calls by step index and number of the fallback (0: none).

    All tools must be known (``spec``).
    """
    plan = _with_items(plan)
    makers: dict[tuple[int, int], _Output] = {}
    every = [*plan.all_steps()]
    for step in every:
        makers[step.index, 0] = _output(step.key, step)
        for number, fallback in enumerate(step.fallbacks, 1):
            makers[step.index, number] = _output(step.key, fallback)
    demands: dict[str, dict[str, jsonpath.Tail]] = {}
    builtin = [step.params for step in plan.steps if step.builtin]
    for params in [*(call.params for call in plan.calls()), *builtin]:
        for key, tail in _bound_to(params):
            demands.setdefault(key, {})[tail.text] = tail
    by_key = {step.key: step.index for step in every}
    unmade: set[tuple[str, str]] = set()
    for key, wanted in demands.items():
        index = by_key[key]
        for number in range(len(every[index].fallbacks) + 1):
            unmade |= {(key, text) for text in makers[index, number].make(wanted.values())}
    steps = [_step(step, unmade, makers[step.index, 0].value) for step in plan.steps]
    final = [_step(step, unmade, makers[step.index, 0].value) for step in plan.final]
    return replace(plan, steps=steps, final=final), {place: maker.value for place, maker in makers.items()}


def _bound_to(params: Params) -> Iterator[tuple[str, jsonpath.Tail]]:
    """The places in outputs that a template needs: a step's key, and the path after it."""
    for place in _places(params):
        if place.source == "output" and place.tail is not None:
            yield place.step, place.tail


def _places(params: Params) -> Sequence[Place]:
    return params.places if isinstance(params, Template | ItemParams) else ()


def _with_items(plan: CompiledPlan) -> CompiledPlan:
    """The plan with two items for each list, whatever is in it; the list itself is a computation behind them."""
    lists = [step.index for step in plan.steps if step.each is not None]
    if not lists:
        return plan
    steps, by_key = list(plan.steps), dict(plan.by_key)
    for index in lists:
        add_items(steps, by_key, index, ["<item>", "<item>"], len(steps))
        steps[index] = replace(steps[index], builtin="compute", each=None)
    return plan.with_steps(steps, by_key)


# --- one output ----------------------------------------------------------------------------------------------------


def _output(key: str, serving: Serving) -> _Output:
    made = _Output(serving.spec.output_schema if serving.spec else None, key)
    rollback = serving.rollback
    params = None if rollback is None else rollback.params
    registered = isinstance(params, UndoParams) or (isinstance(params, ItemParams) and params.registered)
    if rollback is not None and registered and rollback.spec is not None:
        # A registered undo takes its required params from the output if the call did not have them.
        required = rollback.spec.input_schema.get("required")
        names = required if isinstance(required, list) else []
        made.need([(str(name),) for name in names if name not in serving.params.raw])
    return made


class _Output:
    """One output under construction."""

    def __init__(self, schema: dict[str, Any] | None, key: str) -> None:
        self._schema = schema
        self._key = key
        self._left = _MAX_VALUES
        self.value: Any = {} if schema is None else deepcopy(self._made((), key))

    def make(self, wanted: Collection[jsonpath.Tail]) -> list[str]:
        """Put a value wherever a binding points; returns the tails for which no sample is possible."""
        self.need([tail.path for tail in wanted if not tail.selectors])
        return [tail.text for tail in wanted if not self._has(tail)]

    def need(self, paths: Sequence[_Path]) -> None:
        """Put a value at the end of each path, unless the schema excludes it."""
        for path in paths:
            if not self._excluded(path):
                self._place(path)

    def _excluded(self, path: _Path) -> bool:
        return self._schema is not None and schema_types.locate(self._schema, path) is schema_types.ABSENT

    def _has(self, tail: jsonpath.Tail) -> bool:
        try:
            jsonpath.find(self.value, tail)
        except jsonpath.Mismatch:
            return not tail.selectors and self._excluded(tail.path)
        return True

    def _place(self, path: _Path) -> None:
        box: list[Any] = [self.value]
        parent: Any = box
        key: str | int = 0
        name = self._key
        for part in path:
            at = parent[key]
            if isinstance(part, str):
                name = part
                at = at if isinstance(at, dict) else {}
                at.setdefault(part, None)
            else:
                needed = part + 1 if part >= 0 else -part
                if needed > _MAX_ITEMS:
                    return
                at = at if isinstance(at, list) else []
                at += [None] * (needed - len(at))
            parent[key] = at
            parent, key = at, part
        if parent[key] is None:
            parent[key] = deepcopy(self._made(path, name))
        self.value = box[0]

    def _made(self, path: _Path, name: str) -> Any:
        """The smallest value that the schema allows at a place; a marker if the schema says nothing."""
        marker = f"<{name}>"
        node = schema_types.locate(self._schema, path) if self._schema is not None else None
        self._left -= 1
        if not isinstance(node, dict) or self._left < 0 or len(path) > _MAX_DEPTH:
            return marker
        if "const" in node:
            return node["const"]
        for keyword in ("enum", "examples"):
            choices = node.get(keyword)
            if isinstance(choices, list) and choices:
                return choices[0]
        if "default" in node:
            return node["default"]
        return self._of_kind(_kind(node), node, path, name, marker)

    def _of_kind(self, kind: str, node: dict[str, Any], path: _Path, name: str, marker: str) -> Any:
        if kind == "object":
            required = node.get("required")
            names = [each for each in required if isinstance(each, str)] if isinstance(required, list) else []
            return {each: self._made((*path, each), each) for each in names[: max(self._left, 0)]}
        if kind == "array":
            return [self._made((*path, at), name) for at in range(_count(node.get("minItems")))]
        if kind in ("integer", "number"):
            least = node.get("minimum")
            return least if isinstance(least, int | float) and not isinstance(least, bool) else 1
        return {"boolean": True, "null": None}.get(kind, marker)


def _kind(node: Mapping[str, Any]) -> str:
    given = node.get("type")
    names = given if isinstance(given, list) else [given]
    found = next((name for name in names if isinstance(name, str) and name != "null"), None)
    if found is not None:
        return found
    if "null" in names:
        return "null"
    return "object" if "properties" in node else "array" if "items" in node else "string"


def _count(least: Any) -> int:
    return min(least, _MAX_ITEMS) if isinstance(least, int) and least > 0 else 0


# --- the plan ------------------------------------------------------------------------------------------------------


class _Unread:
    """Params with a value that has no sample; the simulated tools do not read them."""

    __slots__ = ("bound", "outputs", "outputs_or_default", "raw", "secret_params", "secrets")

    def __init__(self, params: Params, raw: dict[str, Any] | None = None) -> None:
        self.bound = False
        self.secrets = params.secrets
        self.secret_params = params.secret_params
        self.outputs, self.outputs_or_default = params.outputs, params.outputs_or_default
        self.raw = params.raw if raw is None else raw

    def resolve(self, scope: Scope) -> dict[str, Any]:  # noqa: ARG002
        return self.raw


def without_result(plan: CompiledPlan, index: int) -> CompiledPlan:
    """The plan with a computation that has no result."""
    return _with(plan, replace(plan.steps[index], params=_NoResult(plan.steps[index].params)))


def skipping(plan: CompiledPlan, index: int) -> CompiledPlan:
    """The plan with a step whose ``when`` does not hold."""
    return _with(plan, replace(plan.steps[index], when=Conditions(Fixed(False))))


def failing(plan: CompiledPlan, index: int) -> CompiledPlan:
    """The plan with a step whose output means failure."""
    return _with(plan, replace(plan.steps[index], failed_when=Conditions(Fixed(True))))


def _with(plan: CompiledPlan, other: CompiledStep) -> CompiledPlan:
    return replace(plan, steps=[other if step.index == other.index else step for step in plan.steps])


def _assumed(conditions: Conditions | None, *, holds: bool) -> Conditions | None:
    """Conditions as a simulation evaluates them: what outputs decide is assumed."""
    return Conditions(Fixed(holds)) if conditions is not None and conditions.outputs else conditions


class _NoResult(_Unread):
    __slots__ = ()

    def resolve(self, scope: Scope) -> dict[str, Any]:  # noqa: ARG002
        raise BindingUnresolved("the computation has no result")


def _step(step: CompiledStep, unmade: set[tuple[str, str]], output: Any) -> CompiledStep:
    step = replace(step, when=_assumed(step.when, holds=True), failed_when=_assumed(step.failed_when, holds=False))
    if step.item is not None and step.failed_when is not None:
        step = replace(step, failed_when=Conditions(Fixed(False)))
    if step.items >= 0:
        return replace(step, params=_Unread(step.params, {"compute": output}))
    if step.builtin == "compute" and any(place.source == "output" for place in _places(step.params)):
        return replace(step, params=_Unread(step.params, {"compute": output}))  # what it computes with is unknown
    if step.builtin == "wait" or (step.builtin and step.builtin not in words.BUILTINS):
        params = _Unread(step.params, {step.builtin: _unbound(step.params.raw[step.builtin])})
        return replace(step, params=params, rollback=_rollback(step.rollback, unmade, unread=False))
    if step.builtin == "ask":
        return replace(step, params=_Unread(step.params, {"ask": sample_ask(step.params.raw["ask"])}))
    return replace(
        step,
        spec=_lenient(step.spec),
        params=_params(step.params, unmade),
        rollback=_rollback(step.rollback, unmade, unread=step.before is not None),
        fallbacks=tuple(
            replace(
                each,
                spec=_lenient(each.spec),
                params=_params(each.params, unmade),
                rollback=_rollback(each.rollback, unmade, unread=each.before is not None),
            )
            for each in step.fallbacks
        ),
    )


def _rollback(
    rollback: CompiledRollback | None, unmade: set[tuple[str, str]], *, unread: bool
) -> CompiledRollback | None:
    """``unread``: it may need the value from before the call, which has no sample."""
    if rollback is None:
        return None
    params = _Unread(rollback.params) if unread else _params(rollback.params, unmade)
    if rollback.each is not None:
        params = _Unread(rollback.params)  # its items are samples
    return replace(
        rollback,
        spec=_lenient(rollback.spec),
        params=params,
        each=None if rollback.each is None else _Unread(rollback.each, {"each": ["<item>", "<item>"]}),
        then=tuple(call for each in rollback.then if (call := _rollback(each, unmade, unread=unread)) is not None),
        absent=_rollback(rollback.absent, unmade, unread=unread),
    )


def _params(params: Params, unmade: set[tuple[str, str]]) -> Params:
    unread = any((key, tail.text) in unmade for key, tail in _bound_to(params))
    unknown = any(place.source == "item" or place.computed for place in _places(params))
    return _Unread(params) if unread or unknown else params


def _lenient(spec: ToolSpec | None) -> ToolSpec | None:
    return None if spec is None else replace(spec, check_params=lambda _: ())


def _unbound(body: Any) -> Any:
    """The body of a step that waits, for a simulation: what binds becomes a time, or a key."""
    if isinstance(body, str):
        return 1 if "$" in body else body
    if isinstance(body, dict):
        bound = {name: value for name, value in body.items() if isinstance(value, str) and "$" in value}
        # A simulation begins in 1970, so no moment of a plan means anything there: it is soon.
        bound |= {name: value for name, value in body.items() if name == "until"}
        samples = {"until": "1970-01-01T00:16:41Z", "timeout_s": 1, "key": "sample"}
        made = {name: samples[name] if name in bound and name in samples else value for name, value in body.items()}
        if word := several(body):
            made[word] = [
                {**each, "key": f"sample {number}"} if "$" in str(each.get("key", "")) else each
                for number, each in enumerate(body[word])
            ]
        return made
    return body
