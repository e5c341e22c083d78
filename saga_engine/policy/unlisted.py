"""Tools whose forward calls need an approval: nobody has described them, or nothing takes back what they do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from saga_engine.policy.rules import Policy, Rule

if TYPE_CHECKING:
    from saga_engine.tools.decorator import AnyTool

#: The rules' names in records, the attribute of a tool's function that asks for each, and what an operator reads.
UNLISTED: Final = "unlisted-tool"
FINAL: Final = "final-tool"
_RULES: Final = (
    (UNLISTED, "needs_approval", "no operator has described this tool: its server alone says what it does"),
    (FINAL, "is_final", "what this tool does stays: its manifest names no undo (ask = false: it is not asked about)"),
)


def with_unlisted(policy: Policy | None, tools: Iterable[AnyTool]) -> Policy | None:
    """A policy that also asks about each forward call of such tools; None if nothing is asked.

    The policy's own verdicts stay: a call that it denies is denied.
    """
    listed = list(tools)
    for rule, attribute, message in _RULES:
        before = [each for each in policy.rules if each.name.startswith(rule)] if policy is not None else []
        asked = {name for each in before for name in each.tools}
        names = sorted(t.name for t in listed if getattr(t.function, attribute, "") and t.name not in asked)
        if not names:
            continue
        name = f"{rule}-{len(before) + 1}" if before else rule
        made = Rule(name=name, verdict="ask", tools=names, direction="forward", message=message)
        if policy is None:
            policy = Policy([made])
        else:
            policy = policy.tightened(Policy([made], allow_private=policy.allow_private))
    return policy
