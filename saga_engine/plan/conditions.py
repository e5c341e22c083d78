"""Conditions of a plan: comparisons of values, combined. There are no expression texts.

``{"value": V, "op": OP, "to": W}`` compares two values, of which each may bind; ``{"value": V, "op": "exists"}`` and
``"absent"`` ask whether a binding has a value. ``{"any": […]}``, ``{"all": […]}`` and ``{"not": …}`` combine them, and
a list is as ``all``.

The logic has three values (Kleene's). A comparison that cannot be evaluated (a text where a number is needed, a binding
without a value) is undecidable, and so is the whole if it depends on it. That is a failure, never a silent false.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import BindingUnresolved
from saga_engine.plan.comparisons import COMPARISONS, ComparisonInvalid, Predicate, Truth, predicate
from saga_engine.plan.compiled import Condition, Conditions
from saga_engine.plan.problems import known_names
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from saga_engine.plan.binder import Binder
    from saga_engine.plan.bindings import Place, Template
    from saga_engine.plan.compiled import Scope
    from saga_engine.plan.problems import Path, Problems

OPS: Final = (*COMPARISONS, "exists", "absent")
#: Nested combinations of one condition.
MAX_DEPTH: Final = 8
#: Comparisons of one condition.
MAX_COMPARISONS: Final = 100
#: For others: a condition of this module, and the conditions of one field of a step.
__all__ = ["Condition", "ConditionReader", "Conditions", "Fixed"]
_HINT: Final = 'write {"value": "$output.step_1.total", "op": ">", "to": 100}'


class Fixed(Condition):
    """A condition whose truth is known."""

    __slots__ = ("_truth",)

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def evaluate(self, scope: Scope) -> Truth:  # noqa: ARG002
        """Its truth."""
        return self._truth


class _Comparison(Condition):
    __slots__ = ("_check", "_op", "_templates", "_text")

    def __init__(self, op: str, templates: Template, check: Predicate | None, text: str) -> None:
        self._op = op
        self._templates = templates
        self._check = check
        self._text = text

    def evaluate(self, scope: Scope) -> Truth:
        try:
            sides = self._templates.resolve(scope)
        except BindingUnresolved as error:
            if self._op in {"exists", "absent"} and error.context.get("absent"):
                return self._op == "absent"
            return error.message
        if self._op in {"exists", "absent"}:
            return self._op == "exists"
        try:
            check = self._check or predicate(self._op, sides["to"])
        except ComparisonInvalid as error:
            return f"{self._text}: {error}"
        truth = check(sides["value"])
        return truth if isinstance(truth, bool) else f"{self._text}: {truth}"


class _Not(Condition):
    __slots__ = ("_inner",)

    def __init__(self, inner: Condition) -> None:
        self._inner = inner

    def evaluate(self, scope: Scope) -> Truth:
        truth = self._inner.evaluate(scope)
        return not truth if isinstance(truth, bool) else truth


class _Combined(Condition):
    """All of some conditions, or any: decided by the first that is ``decisive``, else undecidable if one of them is."""

    __slots__ = ("_decisive", "_inner")

    def __init__(self, inner: Sequence[Condition], *, decisive: bool) -> None:
        self._inner = inner
        self._decisive = decisive

    def evaluate(self, scope: Scope) -> Truth:
        unknown: Truth | None = None
        for each in self._inner:
            truth = each.evaluate(scope)
            if truth is self._decisive:
                return truth
            if not isinstance(truth, bool) and unknown is None:
                unknown = truth
        return not self._decisive if unknown is None else unknown


class ConditionReader:
    """Compiles the conditions of one step; wrong ones become problems.

    ``item``: they are evaluated for each item of a list, so ``$item`` and ``$index`` bind.
    """

    def __init__(self, binder: Binder, problems: Problems, own: str, *, item: bool = False) -> None:
        self._binder = binder
        self._problems = problems
        self._own = own
        self._item = item
        self._left = MAX_COMPARISONS
        #: Everything that they bind, with the whole path in the plan.
        self.bound: list[Place] = []

    def read(self, raw: Any, path: Path, depth: int = 0) -> Condition:
        """The condition that stands at ``path``; of a wrong one, one that is never evaluated."""
        if isinstance(raw, list):
            return self._combined(raw, path, depth, decisive=False)
        if depth >= MAX_DEPTH:
            return self._wrong("limit-depth", path, f"a condition is nested deeper than {MAX_DEPTH} levels", "")
        if isinstance(raw, dict) and len(raw) == 1:
            ((name, inner),) = raw.items()
            place: Path = (*path, name)
            if name == "not":
                return _Not(self.read(inner, place, depth + 1))
            if name in {"any", "all"}:
                return self._combined(inner, place, depth, decisive=name == "any")
        return self._comparison(raw, path)

    def _combined(self, raw: Any, path: Path, depth: int, *, decisive: bool) -> Condition:
        if not isinstance(raw, list) or not raw:
            return self._wrong("condition-invalid", path, "a list of conditions is expected", _HINT)
        inner = [self.read(each, (*path, number), depth + 1) for number, each in enumerate(raw)]
        return inner[0] if len(inner) == 1 else _Combined(inner, decisive=decisive)

    def _comparison(self, raw: Any, path: Path) -> Condition:
        if not isinstance(raw, dict) or "value" not in raw or "op" not in raw:
            message = "a condition has 'value', 'op' and 'to', or one of 'any', 'all' and 'not'"
            return self._wrong("condition-invalid", path, message, _HINT)
        op = raw["op"]
        if op not in OPS:
            hint = self._problems.did_you_mean(str(op), OPS) or known_names(OPS, "comparisons")
            return self._wrong("condition-invalid", (*path, "op"), f"there is no comparison {cut(op, 40)}", hint)
        wanted = {"value", "op"} if op in {"exists", "absent"} else {"value", "op", "to"}
        if raw.keys() != wanted:
            odd = min(raw.keys() ^ wanted, key=str)
            message = f"'{op}' takes no {cut(odd, 40)}" if odd in raw else f"'{op}' needs '{odd}'"
            return self._wrong("condition-invalid", path, message, _HINT)
        self._left -= 1
        if self._left < 0:
            return self._wrong("limit-nodes", path, f"more than {MAX_COMPARISONS} comparisons", "let a tool decide")
        sides = {name: raw[name] for name in ("value", "to") if name in raw}
        template = self._binder.template(sides, self._own, path, item=self._item)
        asks = op in {"exists", "absent"}
        for place in template.places:
            if place.source == "secret":
                self._wrong("condition-invalid", path, "a secret cannot be compared", "bind it in a call's params")
            self.bound.append(place._replace(path=(*path, *place.path), optional=place.optional or asks))
        bound = {place.path[0] for place in template.places}
        if asks and "value" not in bound:
            message = f"'{op}' asks about a binding, and this value is always there"
            return self._wrong("condition-invalid", (*path, "value"), message, "bind a value: $output.step_1.ref")
        check: Predicate | None = None
        if "to" in sides and "to" not in bound:
            try:
                check = predicate(op, sides["to"])
            except ComparisonInvalid as error:
                return self._wrong("condition-invalid", (*path, "to"), str(error), "")
        return _Comparison(op, template, check, cut(raw["value"], 80))

    def _wrong(self, code: str, path: Path, message: str, hint: str) -> Condition:
        self._problems.add(code, path, message, hint)
        return Condition()
