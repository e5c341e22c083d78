"""What the tests of the policy share: tools, calls, policies of one rule, and names that resolve as told."""

from __future__ import annotations

import socket
from decimal import Decimal
from typing import Any

from saga_engine.core.effects import Ask, Blocked
from saga_engine.policy.gate import Gate
from saga_engine.policy.rules import Policy, Rule
from saga_engine.tools.decorator import tool
from tests.tools.calls import a_call

#: Addresses that are public, for names that nobody looks up.
PUBLIC = "93.184.216.34"
PUBLIC_6 = "2606:2800:220:1:248:1893:25c8:1946"
NAMES = {
    "example.com": [PUBLIC],
    "api.example.com": [PUBLIC, PUBLIC_6],
    "evil.example": [PUBLIC],
    "evil-example.com": [PUBLIC],
    "xn--bcher-kva.example": [PUBLIC],
    "inside.example": ["10.1.2.3"],
    "half.example": [PUBLIC, "127.0.0.1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
    "two.example": [PUBLIC, "93.184.216.35"],
    "empty.example": [],
}


async def names(host: str, port: int | None) -> list[str]:
    """A resolver that knows a few names."""
    if host not in NAMES:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return NAMES[host]


@tool
async def pay(**params: Any) -> dict[str, Any]:
    """Pays."""
    return {}


@tool
async def pay_default(amount: float = 5000, note: str | None = None, fee: Decimal = Decimal(9)) -> dict[str, Any]:
    """Pays a lot if nobody says how much."""
    return {}


@tool(effect="read")
async def look(**params: Any) -> dict[str, Any]:
    """Looks."""
    return {}


def a_key_call(step: str = "1", saga: str = "saga", **changes: Any) -> Any:
    """A call of one step, with the key that belongs to it."""
    direction = changes.get("direction", "forward")
    base = a_call(saga_id=saga, step_id=step, idempotency_key=f"{saga}:{step}:{direction[0]}:seed", attempt=1)
    return base._replace(**changes)


def policy_of(*conditions: Any, verdict: str = "deny", base: Any = None, **options: Any) -> Policy:
    """One rule with these conditions; a rule that allows is the only way through."""
    when = [dict(zip(("param", "op", "value"), condition, strict=False)) for condition in conditions]
    default = "deny" if verdict == "allow" else "allow"
    allow_private = options.pop("allow_private", ())
    rule = Rule(name="the rule", verdict=verdict, when=when, **options)
    return Policy([rule], default, allow_private, base=base, resolver=names)


async def says(policy: Policy, params: dict[str, Any], *, made: Any = pay, store: Any = None, **changes: Any) -> str:
    """The verdict on one call."""
    gate, call = Gate(policy, store), a_key_call(**changes)
    waved = store is None and gate.waves_through(made, params, call)
    verdict = word(await gate.authorize(made, params, call))
    assert not waved or verdict == "allow", "what is waved through must be allowed"
    return verdict


def word(outcome: Any) -> str:
    """The verdict behind what a gate says."""
    assert outcome is None or isinstance(outcome, Blocked | Ask)
    return "allow" if outcome is None else "deny" if isinstance(outcome, Blocked) else "ask"


async def both(*condition: Any, params: dict[str, Any], base: Any = None, **options: Any) -> str:
    """How a condition holds: ``yes``, ``no``, or ``doubt``, where the wary hold it and the sure do not."""
    denies = await says(policy_of(condition, base=base, **options), params) == "deny"
    allows = await says(policy_of(condition, base=base, verdict="allow", **options), params) == "allow"
    assert denies or not allows, "what allows for certain must be held by those who deny, too"
    return "yes" if allows else "doubt" if denies else "no"
