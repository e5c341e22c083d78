"""Guards and growth that are broken on purpose, to show that their kill matrix can fail. Applied after the fork."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

_ALERTS = "    for question, alert in list(state.alerts.items()):\n        crashes"
_ASKED = "    for index, asked in [(index, held) for index, held in state.pending.items() if held.here]:"

MUTANTS: dict[str, Mutant] = {
    # A result that never reached the journal is not found.
    "do not look for a kept result": rewrite(("found = await self.store.recollect(name, owner)", "found = None")),
    # Whoever asks may make the call.
    "claim nothing": rewrite(
        (
            '        code, *rest = await self._run("guard_dedupe", keys, ["claim", owner,',
            '        return Claim("new")\n        code, *rest = await self._run("guard_dedupe", keys, ["claim", owner,',
        )
    ),
    # The step's own rollback, whatever served it.
    "undo the tool that was not used": rewrite(
        (
            "        step = self.plan.steps[index]  # as in ``whole_rollback``",
            "        return self.plan.steps[index].rollback\n        step = self.plan.steps[index]  # as in ``whole_rollback``",
        )
    ),
    # An alert that was under way when its process died is not sent again.
    "take who is being told for told": rewrite(
        (
            _ALERTS,
            f"""\
    for told in [question for question, alert in state.alerts.items() if alert.in_flight]:
        del state.alerts[told]
{_ALERTS}""",
        )
    ),
    # The gate lets every call through.
    "ask nobody": rewrite(("        rules = self._rules(tool.name)\n", "        return None\n")),
    # One order, two questions.
    "ask the model for a second opinion": rewrite(
        (
            "        return await abandonable(advise(state, effect, self._advisor, self._tools, self.capabilities))\n",
            """\
        await abandonable(advise(state, effect, self._advisor, self._tools, self.capabilities))
        return await abandonable(advise(state, effect, self._advisor, self._tools, self.capabilities))
""",
        )
    ),
    # Whoever resumes the saga has it asked once more.
    "forget what the model answered": rewrite(
        (
            _ASKED,
            f"""\
    for index, step in enumerate(state.steps):
        if type(step.semantic).__name__ == "Underway":
            step.semantic = None
            state.to_escalate[index, COMPENSATE] = "undo-missing"
{_ASKED}""",
        )
    ),
}
