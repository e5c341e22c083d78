"""The branches of a plan: steps of which each run makes some and never others, because their conditions exclude them.

A simulation assumes that conditions hold. Of two steps that never both run, that would be a run that there is not: an
effect of the one would remain when the other fails. So each branch is simulated for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan.comparisons import COMPARISONS, ComparisonInvalid, predicate
from saga_engine.plan.conditions import Conditions, Fixed
from saga_engine.plan.effort import spend

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledPlan

#: The branches of one plan: each shares the time of the simulation.
_MAX_BRANCHES: Final = 16
_OTHER: Final = "\x00another value"


def branches(plan: CompiledPlan) -> Sequence[CompiledPlan]:
    """The plan with the steps of each branch alone; the plan itself if no conditions exclude each other."""
    raws = {step.index: step.when.raw for step in plan.steps if step.when is not None and step.when.raw is not None}
    if len(raws) < 2:
        return [plan]
    outs: list[frozenset[int]] = [frozenset()]
    for ways in (found for subject in _subjects(raws.values()) if (found := _ways(raws, *subject))):
        never = [frozenset(index for index, holds in way.items() if not holds) for way in ways]
        both = list(dict.fromkeys(one | other for one in outs for other in never))
        if len(both) <= _MAX_BRANCHES:  # else this value decides nothing here: all of its steps count as run
            outs = both
    if len(outs) == 1:
        return [plan]
    # A step that no value here lets run is no step that never runs: it is simulated among all the others.
    unseen = [plan] if frozenset.intersection(*outs) else []
    return [*(_without(plan, out) for out in outs), *unseen]


def _without(plan: CompiledPlan, out: frozenset[int]) -> CompiledPlan:
    never = Conditions(Fixed(False))
    steps = [replace(step, when=never) if step.index in out else step for step in plan.steps]
    return replace(plan, steps=steps)


def _subjects(raws: Iterator[Any] | Any) -> list[tuple[str, list[Any]]]:
    """The bindings that conditions compare with constants, each with these."""
    found: dict[str, list[Any]] = {}
    for raw in raws:
        for each in _compared(raw):
            to = each["to"]
            found.setdefault(each["value"], []).extend(to if each["op"] in {"in", "not-in"} else [to])
    return list(found.items())


def _compared(raw: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(raw, list):
        for each in raw:
            yield from _compared(each)
    elif isinstance(raw, Mapping) and raw.get("op") in COMPARISONS:
        value, to = raw.get("value"), raw.get("to")
        listed = raw["op"] not in {"in", "not-in"} or isinstance(to, list)
        if isinstance(value, str) and value.startswith("$") and "$" not in repr(to) and listed:
            yield raw
    elif isinstance(raw, Mapping):
        for name in ("any", "all", "not"):
            if name in raw:
                yield from _compared(raw[name])


def _ways(raws: Mapping[int, Any], subject: str, constants: Sequence[Any]) -> list[dict[int, bool]]:
    """What the value of a binding can decide: which steps run; none if no two of them exclude each other."""
    numbers = sorted({each for each in constants if isinstance(each, int | float) and not isinstance(each, bool)})
    values: list[Any] = [*constants, *(not each for each in constants if isinstance(each, bool))]
    values += [near for each in numbers for near in (each - 1, each + 1)]
    for low, high in pairwise(numbers):
        with suppress(OverflowError):  # an integer that no float can be
            values.append(low / 2 + high / 2)
    if all(isinstance(each, str) for each in constants):
        values.append(_OTHER)
    ways: list[dict[int, bool]] = []
    for value in values:
        spend()
        truths = {index: truth for index, raw in raws.items() if (truth := _truth(raw, subject, value)) is not None}
        if truths not in ways:
            ways.append(truths)
    known = {index for way in ways for index in way}
    apart = any(
        one < other
        and not any(way.get(one) and way.get(other) for way in ways)
        and any(way.get(one) for way in ways)
        and any(way.get(other) for way in ways)
        for one in known
        for other in known
    )
    return ways if apart else []


def _truth(raw: Any, subject: str, value: Any) -> bool | None:
    """Whether a condition holds if a binding has this value; None: others decide."""
    if isinstance(raw, list):
        return _all([_truth(each, subject, value) for each in raw])
    if not isinstance(raw, Mapping):
        return None
    if "not" in raw:
        return _opposite(_truth(raw["not"], subject, value))
    if isinstance(raw.get("all"), list):
        return _all([_truth(each, subject, value) for each in raw["all"]])
    if isinstance(raw.get("any"), list):
        return _opposite(_all([_opposite(_truth(each, subject, value)) for each in raw["any"]]))
    if raw.get("value") != subject or raw.get("op") not in COMPARISONS or "$" in repr(raw.get("to")):
        return None
    try:
        truth = predicate(str(raw["op"]), raw.get("to"))(value)
    except ComparisonInvalid:
        return None
    return truth if isinstance(truth, bool) else None


def _all(truths: Sequence[bool | None]) -> bool | None:
    return False if False in truths else None if None in truths else True


def _opposite(truth: bool | None) -> bool | None:
    return None if truth is None else not truth
