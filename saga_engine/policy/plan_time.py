"""The policy's verdicts on a plan before it runs, as far as the plan itself determines them.

Nothing is counted, no host is resolved and no ``check`` is called. Values that are bound to outputs and secrets are
unknown, so a verdict that depends on one is not ``certain``. The gate still authorizes every call when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

from saga_engine.core.effects import COMPENSATE, FORWARD, Direction
from saga_engine.errors import Problem
from saga_engine.plan import jsonpath
from saga_engine.plan.amounts import amount, total
from saga_engine.plan.bindings import Template
from saga_engine.plan.values import json_path, printable
from saga_engine.policy.conditions import UNKNOWN
from saga_engine.policy.gate import still_open
from saga_engine.policy.rules import DEFAULT, Policy, PolicyVerdict, RuleMatcher, strictest

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledFallback, CompiledPlan, CompiledRollback, CompiledStep
    from saga_engine.plan.tool_spec import ToolSpec

_REASON_CHARS: Final = 500
_NO_RULE: Final = "no rule of the policy speaks of this call"


@dataclass(frozen=True, slots=True)
class PlannedVerdict:
    """A call of a plan that the policy would deny, or would ask an operator about.

    ``direction``: the call of the step, or its undo. ``rule`` is the rule's name (``default``: no rule matches), and
    ``reason`` its message. ``certain`` is False if the verdict depends on a value that is known only at the call.
    """

    step_id: int | str
    tool: str
    direction: Direction
    verdict: Literal["deny", "ask"]
    rule: str
    reason: str
    certain: bool

    @property
    def text(self) -> str:
        """The verdict as a sentence without its end."""
        would = "" if self.certain else "may "
        verbs = {"deny": "be denied" if would else "is denied", "ask": f"need{'' if would else 's'} approval"}
        call = f"the undo {self.tool}" if self.direction == COMPENSATE else f"the call of {self.tool}"
        why = f": {self.reason}" if self.reason else ""
        return f"step {self.step_id}: {call} {would}{verbs[self.verdict]} by rule '{self.rule}' of the policy{why}"

    def warning(self, plan: CompiledPlan) -> Problem:
        """The verdict as a warning about its plan."""
        path: tuple[str | int, ...] = ("steps", plan.by_key[str(self.step_id)])
        code = {"deny": "policy-denies", "ask": "policy-asks"}[self.verdict]
        hint = (
            "use another tool or other params"
            if self.verdict == "deny"
            else "an operator must be available to approve it"
        )
        return Problem(code, json_path(path), self.text, hint)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        names = ("step_id", "tool", "direction", "verdict", "rule", "reason", "certain")
        return {name: getattr(self, name) for name in names}


def planned_verdicts(policy: Policy, plan: CompiledPlan) -> list[PlannedVerdict]:
    """The calls of a plan that the policy would not simply allow, in the order of the steps."""
    ledger = _Ledger(policy)
    return [found for call in _calls(plan) if (found := ledger.verdict(call)) is not None]


def always_denied(policy: Policy, spec: ToolSpec) -> str | None:
    """The rule by which every forward call of a tool is denied, whatever its params are; None if there is none."""
    found = _Ledger(policy).verdict(_PlannedCall(0, spec.name, spec, None, FORWARD, (FORWARD,), counted=True))
    return found.rule if found is not None and found.verdict == "deny" and found.certain else None


@dataclass(frozen=True, slots=True)
class _PlannedCall:
    """One call. ``params``: None if nothing of them is known; unknown values are ``UNKNOWN``.

    ``ways``: the directions in which it is authorized. ``counted``: it is made if nothing fails.
    """

    step_id: int | str
    tool: str
    spec: ToolSpec | None
    params: Mapping[str, Any] | None
    direction: Direction
    ways: tuple[Direction, ...]
    counted: bool = False


def _calls(plan: CompiledPlan) -> Iterator[_PlannedCall]:
    for whole in plan.all_steps():
        step = whole if whole.each is None else whole.each.item  # what is known before there is a list
        servings: list[CompiledStep | CompiledFallback] = [
            step,
            *(each for each in step.fallbacks if each.way == "tool"),
        ]
        for serving in servings:
            params = _known(serving.params, plan.input)
            if serving.tool:  # a built-in step calls nothing, but it may be undone
                yield _PlannedCall(
                    step.step_id, serving.tool, serving.spec, params, FORWARD, (FORWARD,), counted=serving is step
                )
            for undo in () if serving.rollback is None else serving.rollback.calls():
                yield _undo(step, serving, undo, plan.input)
        if step.late is not None:  # the saga that makes it has limits of its own
            params = _known(step.late.params, plan.input)
            yield _PlannedCall(step.step_id, step.late.tool, step.late.spec, params, FORWARD, (FORWARD,))


def withheld(policy: Policy) -> Callable[[ToolSpec], bool]:
    """Whether a tool is not to be offered to a model, because the policy denies every call of it."""
    return lambda spec: always_denied(policy, spec) is not None


def _undo(
    step: CompiledStep, serving: CompiledStep | CompiledFallback, rollback: CompiledRollback, given: Mapping[str, Any]
) -> _PlannedCall:
    known = serving.spec is not None and (bool(rollback.declared) or serving.spec.undo == rollback.tool)
    same = known and rollback.usual is not None and rollback.params is rollback.usual
    ways: tuple[Direction, ...] = (COMPENSATE,) if same else (COMPENSATE, FORWARD)
    return _PlannedCall(step.step_id, rollback.tool, rollback.spec, _known(rollback.params, given), COMPENSATE, ways)


def _known(params: Any, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Params with ``UNKNOWN`` in place of all values that are known only at the call; None if none is known."""
    if not isinstance(params, Template):
        return None
    unknown = [place.path for place in params.places if not _determined(place, given)]
    if not params.places:
        return params.raw
    made: dict[str, Any] = deepcopy(params.sample(given))
    for path in unknown:
        at: Any = made
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = UNKNOWN
    return made


def _determined(place: Any, given: Mapping[str, Any]) -> bool:
    """Whether the plan's input alone determines a value."""
    if place.source != "input" or place.embedded or place.tail is None:
        return False
    try:
        jsonpath.find(given, place.tail)
    except jsonpath.Mismatch:
        return False
    return True


class _Ledger:
    """Evaluates the calls of one plan in order; the counts of rules grow from call to call."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._made: dict[str, int] = {}
        self._sums: dict[str, list[Decimal] | None] = {}

    def verdict(self, call: _PlannedCall) -> PlannedVerdict | None:
        """The strictest verdict on a call other than allow: a certain one, else one that is possible."""
        found = [each for each in self._found(call) if each[0] != "allow"]
        for sure in (True, False):
            for verdict in ("deny", "ask"):
                for each in found:
                    if each[0] == verdict and each[3] is sure:
                        reason = printable(each[2], _REASON_CHARS)
                        return PlannedVerdict(
                            call.step_id, call.tool, call.direction, verdict, each[1], reason, certain=sure
                        )
        return None

    def _found(self, call: _PlannedCall) -> Iterator[tuple[PolicyVerdict, str, str, bool]]:
        """Verdict, rule, message and certainty of every rule that may stop the call."""
        policy = self._policy
        given = call.params
        params = None if given is None else {**_defaults(call.spec), **given}
        ways = [call.ways] * len(policy.defaults)
        unsure = [False] * len(policy.defaults)
        for rule in policy.concerning(call.tool):
            mine = ways[rule.layer]
            if not mine or (rule.direction is not None and rule.direction not in mine):
                continue
            match = _match(rule, given, params)
            if match is not False and rule.counts:
                match = _both(match, self._passes(rule, params, call, sure=match is True))
            if match is False:
                continue
            if rule.verdict != "allow":
                yield rule.verdict, rule.name, rule.message, match is True and not unsure[rule.layer]
                if rule.verdict == "deny" and match is True and not unsure[rule.layer]:
                    return
            elif match is True:
                ways[rule.layer] = tuple(still_open(mine, rule))
                if not any(ways):
                    return
            else:
                unsure[rule.layer] = True
        left = [
            (default, unsure[layer] or (layer == 0 and policy.check is not None))
            for layer, (default, open_) in enumerate(zip(policy.defaults, ways, strict=True))
            if open_
        ]
        for doubtful in (False, True):
            yield strictest(default for default, doubt in left if doubt is doubtful), DEFAULT, _NO_RULE, not doubtful

    def _passes(
        self, rule: RuleMatcher, params: Mapping[str, Any] | None, call: _PlannedCall, *, sure: bool
    ) -> bool | None:
        """Whether the call passes a limit of the rule after the calls before it; adds it to the counts."""
        before = self._made.get(rule.name, 0)
        sums = self._sums.get(rule.name, [])
        own = _own_amount(rule, params)
        if call.counted and sure:
            self._made[rule.name] = before + 1
            self._sums[rule.name] = None if own is None or sums is None else [*sums, own]
        if rule.max_calls is not None and before >= rule.max_calls:
            return True if call.counted else None
        if rule.summed is None:
            return False
        if own is None or sums is None:
            return None
        passed = total([own, *sums]) > rule.limit
        return passed if call.counted or not passed or own > rule.limit else None


def _match(rule: RuleMatcher, given: Mapping[str, Any] | None, params: Mapping[str, Any] | None) -> bool | None:
    """Whether the conditions of a rule hold for a planned call; None: that depends on values of the call."""
    word: bool | None = True
    for clause in rule.clauses:
        word = _both(word, None if given is None or params is None else clause.foresee(given, params))
    return word


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _own_amount(rule: RuleMatcher, params: Mapping[str, Any] | None) -> Decimal | None:
    """What a call adds to the rule's sum; None if that is not known."""
    if rule.summed is None:
        return Decimal(0)
    if params is None:
        return None
    found = rule.summed.find(params)
    amounts = [None if value is UNKNOWN else amount(value) for value in found.values]
    known = [each for each in amounts if each is not None]
    return None if found.strange or len(known) < len(amounts) else total(known)


def _defaults(spec: ToolSpec | None) -> dict[str, Any]:
    properties: Any = {} if spec is None else spec.input_schema.get("properties", {})
    fields: Sequence[tuple[str, Any]] = list(properties.items()) if isinstance(properties, dict) else []
    found = {name: schema.get("default") for name, schema in fields if isinstance(schema, dict)}
    return {name: value for name, value in found.items() if value is not None}
