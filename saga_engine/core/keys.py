"""Idempotency keys: the same for every attempt of one step in one direction, and for nothing else.

``SAGA:STEP:f:SEED``. Saga and step ids hold no colon, so two different calls never share a key. The seed distinguishes
a purged and resubmitted id, or the same id in another store, for a tool that remembers keys. The key is not derived
from the arguments, because two identical calls are two calls (docs/decisions/0003).
"""

from __future__ import annotations

from hashlib import sha256

from saga_engine.core.effects import FORWARD, Direction


def identity_of(saga_id: str, seed: str) -> str:
    """Which saga it is: another one that gets its id later, or in another store, has another identity.

    What outlives a saga and acts on one (a link, a callback URL) carries it. It does not tell the seed.
    """
    return sha256(f"identity:{saga_id}:{seed}".encode()).hexdigest()[:32]


def read_key(saga_id: str, step_key: str, seed: str) -> str:
    """The key of the reads around a step's calls: they are calls of their own, and change nothing."""
    return f"{saga_id}:{step_key}:b:{seed}"


def idempotency_key(  # noqa: PLR0917
    saga_id: str, step_key: str, direction: Direction, seed: str, fallback: int = 0, undo_call: int = 0
) -> str:
    """The key of one step in one direction; at most 230 characters of visible ASCII.

    Each of a step's fallbacks is another call, so it has its own key: ``f1``, ``f2``, … for ``f``. So is each call
    of an undo of several calls: ``c``, then ``c1``, ``c2``, …
    """
    if fallback and direction == FORWARD:
        return f"{saga_id}:{step_key}:f{fallback}:{seed}"
    if undo_call and direction != FORWARD:
        return f"{saga_id}:{step_key}:c{undo_call}:{seed}"
    return f"{saga_id}:{step_key}:{'f' if direction == FORWARD else 'c'}:{seed}"
