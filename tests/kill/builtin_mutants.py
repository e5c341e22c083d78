"""Engines that are broken on purpose, to show that the kill matrix of built-in steps can fail. Applied after the fork."""

from __future__ import annotations

from tests.kill.mutants import REPEAT_WHATEVER_IS_IN_DOUBT
from tests.support.mutating import Mutant, rewrite

MUTANTS: dict[str, Mutant] = {
    # A call whose process died is made again, whether its tool honours keys or not.
    "repeat whatever is in doubt": REPEAT_WHATEVER_IS_IN_DOUBT,
    # Whoever sent the event never learns that it was taken.
    "keep from the store that a wait is over": rewrite(
        (
            'found = await self._run("over", channel, keep_ms, _name(waiter), taken, "", about)',
            "found = None",
        )
    ),
}
