"""Sessions that are broken on purpose, to show that their kill matrix can fail. Applied after the fork."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

_HERE = "        state, place, before = self._here(), len(self._made), self._recorded\n"
_CLOSING = "        if not self._handle.done():\n            self._closing = (reason, note)\n"

MUTANTS: dict[str, Mutant] = {
    # What is recorded is not looked at.
    "make every call anew": rewrite((_HERE, f"        return self._new_call(record)\n{_HERE}")),
    # No undo waits for another.
    "forget what came before": rewrite(
        ("    after = -1\n    for index in sorted(chosen", "    return\n    for index in sorted(chosen")
    ),
    # The session is closed as if its agent had not failed.
    "end well whatever happens": rewrite((_CLOSING, f'        reason, note = "", ""\n{_CLOSING}')),
    # A savepoint is where the agent is anyway.
    "roll nothing back": rewrite(
        (
            'if to is None:\n            return await self.close(reason="rolled-back")',
            "if True:\n            return None",
        )
    ),
}
