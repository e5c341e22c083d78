"""The operator's limits on every saga: ``[limits]`` in ``saga.toml``. A plan can only tighten them.

They are journalled when a saga starts, so a change applies to the sagas that start after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from saga_engine.errors import PlanInvalid, Problem, SettingInvalid
from saga_engine.plan.costs import smaller, why_no_budget
from saga_engine.plan.limits import (
    GUARD_WAIT_S,
    MAX_CALLS,
    MAX_CRASHES,
    MAX_GROWN,
    MAX_PARALLEL,
    MAX_SECONDS,
    MOST_CRASHES,
)

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledPlan
    from saga_engine.plan.model import Plan


_WHOLE: Final = {
    "max_calls": MAX_CALLS,
    "max_steps": MAX_GROWN,
    "max_parallel": MAX_PARALLEL,
    "max_crashes": MOST_CRASHES,
}


#: The fields of a compiled plan that an operator may limit.
_limited = attrgetter("deadline_s", "max_tool_calls", "max_parallel", "max_crashes", "guard_wait_s", "max_cost")


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits on each saga.

    ``deadline_s``: the longest time for the whole saga, and ``max_calls``: its forward tool calls, counting each
    attempt; None: no limit of its own. ``max_steps``: the steps of a plan with everything that is added to it, or the
    calls of a session. ``max_parallel``: its calls in flight at a time. ``max_crashes``: after so many processes in a
    row that ended while they made one call, an operator is asked about it. ``guard_wait_s``: a step that a breaker, a
    rate or a bulkhead refuses waits so long, in seconds, before it fails; 0: an open breaker fails it at once.
    ``max_cost``: how much its calls may cost together, by unit: ``{ usd = 5.0, tokens = 200000 }``; a step beyond that
    fails.
    """

    deadline_s: float | None = None
    max_calls: int | None = None
    max_steps: int = MAX_GROWN
    max_parallel: int = MAX_PARALLEL
    max_crashes: int = MAX_CRASHES
    guard_wait_s: float = GUARD_WAIT_S
    max_cost: Mapping[str, float] = {}

    def __post_init__(self) -> None:
        for name, most in _WHOLE.items():
            value = getattr(self, name)
            unset = value is None and name == "max_calls"
            if not unset and (type(value) is not int or not 1 <= value <= most):
                raise SettingInvalid(f"{name} of [limits] must be a whole number from 1 to {most}, not {value!r}")
        for name, least in (("deadline_s", math.ulp(0.0)), ("guard_wait_s", 0.0)):
            seconds = getattr(self, name)
            number = type(seconds) in (int, float) and math.isfinite(seconds)
            unset = seconds is None and name == "deadline_s"
            if not unset and not (number and least <= seconds <= MAX_SECONDS):
                raise SettingInvalid(
                    f"{name} of [limits] must be a number of seconds up to {MAX_SECONDS:g}, not {seconds!r}"
                )
        if why := why_no_budget(self.max_cost):
            raise SettingInvalid(f"max_cost of [limits]: {why}", hint="write { usd = 5.0 }")

    @classmethod
    def parse(cls, table: Mapping[str, Any], source: str) -> Limits:
        """The limits in a table. Raises ``SettingInvalid``."""
        unknown = [name for name in table if name not in cls.__struct_fields__]
        if unknown:
            raise SettingInvalid(
                f"[limits] in {source} sets {unknown[0]}, which is no limit", hint=", ".join(cls.__struct_fields__)
            )
        return cls(**table)

    def tightened(self, other: Limits) -> Limits:
        """The stricter of both, limit by limit."""
        return Limits(
            deadline_s=_less(self.deadline_s, other.deadline_s),
            max_calls=_less(self.max_calls, other.max_calls),
            max_steps=min(self.max_steps, other.max_steps),
            max_parallel=min(self.max_parallel, other.max_parallel),
            max_crashes=min(self.max_crashes, other.max_crashes),
            guard_wait_s=min(self.guard_wait_s, other.guard_wait_s),
            max_cost=smaller(self.max_cost, other.max_cost),
        )

    def applied(self, plan: CompiledPlan) -> CompiledPlan:
        """A compiled plan within these limits. It is the same object if they change nothing."""
        deadline_s, calls = _less(plan.deadline_s, self.deadline_s), _less(plan.max_tool_calls, self.max_calls)
        parallel = min(plan.max_parallel, self.max_parallel)
        changed = {  # in the order of ``_limited``
            "deadline_s": deadline_s,
            "max_tool_calls": calls,
            "max_parallel": parallel,
            "max_crashes": self.max_crashes,
            "guard_wait_s": self.guard_wait_s,
            "max_cost": smaller(plan.max_cost, self.max_cost),
        }
        return plan if _limited(plan) == tuple(changed.values()) else replace(plan, **changed)

    def warnings(self, plan: Plan) -> list[Problem]:
        """Where a plan asks for more than is allowed: it runs with the operator's limit."""
        found: list[Problem] = []
        for field, asked, most in (
            ("deadline_s", plan.deadline_s, self.deadline_s),
            ("max_tool_calls", plan.max_tool_calls, self.max_calls),
        ):
            if asked is not None and most is not None and asked > most:
                message = f"the plan asks for {asked:g}, but the operator allows {most:g}"
                found.append(Problem("limit-tightened", f"$.{field}", message, f"the saga runs with {most:g}"))
        for unit, asked in (plan.max_cost or {}).items():
            most = self.max_cost.get(unit, asked)
            if asked > most:
                message = f"the plan asks for {asked:g} {unit}, but the operator allows {most:g}"
                found.append(Problem("limit-tightened", "$.max_cost", message, f"the saga runs with {most:g}"))
        return found

    def check_steps(self, steps: int, first: int = 0) -> None:
        """Raises ``PlanInvalid`` if a saga would have more steps than allowed; ``first``: how many it has already."""
        if steps > self.max_steps:
            message = f"the saga would have {steps} steps, but only {self.max_steps} are allowed here"
            if first:
                message += f", and it has {first} already"
            hint = "use fewer steps; an operator can raise max_steps in [limits]"
            raise PlanInvalid([Problem("limit-steps", "$.steps", message, hint)])


#: No limits beyond those of the plan format and the engine.
NO_LIMITS: Final = Limits()


def limits_from(given: Limits | Mapping[str, Any] | None) -> Limits:
    """Limits as a program gives them. Raises ``SettingInvalid``."""
    if given is None:
        return NO_LIMITS
    return given if isinstance(given, Limits) else Limits.parse(given, "limits")


def _less(one: Any, other: Any) -> Any:
    """The smaller of two limits; None is no limit."""
    return other if one is None else one if other is None else min(one, other)
