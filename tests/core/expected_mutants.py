"""Engines that are broken on purpose where a write expects what its saga has read."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

EXPECTED_MUTANTS: dict[str, Mutant] = {
    "a value that somebody else changed is overwritten": rewrite(
        ("    if isinstance(found, NotDone) or same(found, state.steps[index].before):", "    if True:")
    ),
    "a call in doubt was not made because of what is there": rewrite(
        (
            "    if not state.steps[index].forward.doubt:\n        return changed(",
            "    if True:\n        return changed(state, index, found)._replace(definite=True)\n        return changed(",
        )
    ),
    "a value that nobody looked at settles a doubt": rewrite(
        ("if read.expect is not None and not would_leave(state, index, found):", "if False:")
    ),
    "what is expected is what is there": rewrite(
        (
            "            if expects(self.state, step):\n                out.append(",
            "            if False:\n                out.append(",
        )
    ),
}
