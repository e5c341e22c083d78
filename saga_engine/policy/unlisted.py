"""Tools that no operator has described: every forward call of them needs an approval."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from saga_engine.policy.rules import Policy, Rule

if TYPE_CHECKING:
    from saga_engine.tools.decorator import AnyTool

#: The rule's name in records.
UNLISTED: Final = "unlisted-tool"
_MESSAGE: Final = "no operator has described this tool: its server alone says what it does"


def with_unlisted(policy: Policy | None, tools: Iterable[AnyTool]) -> Policy | None:
    """A policy that also asks about each forward call of the tools that nobody described; None if nothing is asked.

    The policy's own verdicts stay: a call that it denies is denied.
    """
    before = [rule for rule in policy.rules if rule.name.startswith(UNLISTED)] if policy is not None else []
    asked = {name for rule in before for name in rule.tools}
    names = sorted(t.name for t in tools if getattr(t.function, "needs_approval", "") and t.name not in asked)
    if not names:
        return policy
    name = f"{UNLISTED}-{len(before) + 1}" if before else UNLISTED
    rule = Rule(name=name, verdict="ask", tools=names, direction="forward", message=_MESSAGE)
    if policy is None:
        return Policy([rule])
    return policy.tightened(Policy([rule], allow_private=policy.allow_private))
