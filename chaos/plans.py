"""Random plans: sequences and graphs, bindings, pivots, fallbacks, limits, and the fate of each call.

Everything about saga number N follows from N and the seed, so each saga of a run can be reproduced.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

from chaos.tools import KINDS

#: The time-out of a call that the external system will not answer in time.
IMPATIENT_S: Final = 0.25
_BALLAST: Final = 40_000

#: What happens to a call before an 'ok'; most calls have no fault.
_MISHAPS: Final = ("busy", "gone", "lost", "cut", "late", "hang")
_CLEAR: Final = ("busy", "gone")

Plan = dict[str, Any]


def saga_id(seed: int, number: int) -> str:
    """The id of a run's saga."""
    return f"chaos-{seed}-{number:06d}"


def plan(seed: int, number: int) -> Plan:
    """The plan of a run's saga."""
    return _Drawing(Random(f"{seed}:{number}")).plan()


class _Drawing:
    """One plan under construction."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice

    def _happens(self, percent: float) -> bool:
        return self._dice.random() * 100 < percent

    def plan(self) -> Plan:
        dice = self._dice
        count = dice.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6))
        pivot = dice.randrange(count) if self._happens(25) else None
        graph = pivot is None and self._happens(45)
        failing = dice.randrange(count) if self._happens(40) else None
        steps = [self._step(at, pivot, failing == at) for at in range(count)]
        for at, step in enumerate(steps):
            before = dice.sample(range(at), dice.randint(0, min(at, 2))) if graph else [at - 1][:at]
            if graph:
                step["depends_on"] = sorted(f"s{other}" for other in before)
            if before and self._happens(60):
                step["params"]["after"] = f"$output.step_s{before[0]}.ref"
        body: Plan = {"steps": steps}
        if self._happens(4):
            body["deadline_s"] = dice.choice((0.5, 3, 10))
        if self._happens(3):
            body["max_tool_calls"] = dice.randint(1, 2 * count)
        if self._happens(6):
            body["on_failure"] = "pause"
        return body

    def _step(self, at: int, pivot: int | None, fails: bool) -> dict[str, Any]:
        dice = self._dice
        kind = dice.choice(KINDS)
        step: dict[str, Any] = {"step_id": f"s{at}"}
        luck = self._luck(fails=fails)
        if self._happens(12) and at != pivot:
            return step | {"tool": "look", "kind": "read", "params": {"luck": luck}, **self._patience(luck)}
        step |= {"tool": f"book_{kind}", "params": {"item": f"i{at}", "luck": luck}}
        if self._happens(1):
            step["params"]["size"] = _BALLAST
        if pivot is None or at < pivot:
            step["rollback"] = self._rollback(at, kind)
            if fails and self._happens(30):
                other = dice.choice([each for each in KINDS if each != kind])
                luck = self._luck(fails=self._happens(30))
                step["fallback"] = {
                    "tool": f"book_{other}",
                    "params": {"item": f"f{at}", "luck": luck},
                    "rollback": self._rollback(at, other),
                    **self._patience(luck),
                }
        else:
            step["kind"] = "pivot" if at == pivot else "retriable"
        if self._happens(3):
            step["resource"] = f"seat:{dice.randrange(40)}"
        return step | self._patience(step["params"]["luck"])

    def _rollback(self, at: int, kind: str) -> dict[str, Any]:
        luck = self._luck(fails=False)
        if self._happens(7):
            luck = self._dice.choice(("refuse,ok", "busy,refuse,lost,ok", "refuse", "crash,ok"))
        if self._happens(20):
            return {"tool": "drop", "params": {"request": "$key", "luck": luck}, **self._patience(luck)}
        bound = {"ref": f"$output.step_s{at}.ref", "luck": luck}
        return {"tool": f"undo_{kind}", "params": bound, **self._patience(luck)}

    def _luck(self, *, fails: bool) -> str:
        """The fate of each attempt.

        A call that ends in a refusal has no fault that leaves a doubt: a call is refused permanently only if no attempt
        happens, whichever worker makes it and whenever.
        """
        dice = self._dice
        many = dice.choice((0, 0, 0, 0, 0, 0, 1, 1, 2, 3))
        if fails:
            end = dice.choice(("refuse", "refuse", "crash", "busy"))
            return ",".join([dice.choice(_CLEAR) for _ in range(many)] + [end])
        return ",".join([dice.choice(_MISHAPS) for _ in range(many)] + ["ok"])

    def _patience(self, luck: str) -> dict[str, Any]:
        dice = self._dice
        found: dict[str, Any] = {"timeout_s": IMPATIENT_S} if "late" in luck or "hang" in luck else {}
        if self._happens(10):
            found["retry"] = {"max_attempts": dice.randint(2, 8), "base_s": 0.2, "max_s": dice.choice((0.5, 2.0))}
        return found
