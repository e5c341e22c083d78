"""Tools whose forward calls need an approval: nobody has described them, or nothing takes back what they do.

The author of a plan says of such a step that it is the pivot. An agent that calls tools one by one has said nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from saga_engine.policy.rules import Policy, Rule

if TYPE_CHECKING:
    from saga_engine.tools.decorator import AnyTool

#: The rules' names in records, the attribute of a tool's function that asks for each, and what an operator reads.
UNLISTED: Final = "unlisted-tool"
ASKED: Final = "asked-tool"
FINAL: Final = "final-tool"
_RULES: Final = (
    (UNLISTED, "needs_approval", "no operator has described this tool: its server alone says what it does"),
    (ASKED, "is_asked", "its manifest says that an operator is asked about each call (ask = true)"),
)
#: The rules for the calls of agents that follow no plan.
_OF_AGENTS: Final = (
    *_RULES,
    (FINAL, "is_final", "what this tool does stays: its manifest names no undo (ask = false: it is not asked about)"),
)


def with_unlisted(policy: Policy | None, tools: Iterable[AnyTool], *, of_agents: bool = False) -> Policy | None:
    """A policy that also asks about each forward call of such tools; None if nothing is asked.

    ``of_agents``: about what stays as well. The policy's own verdicts stay: a call that it denies is denied.
    """
    listed = list(tools)
    for rule, attribute, message in _OF_AGENTS if of_agents else _RULES:
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
