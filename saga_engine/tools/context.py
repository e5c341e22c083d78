"""The context that a tool gets with a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Passed to a tool whose signature asks for it; never visible to the model.

    ``step_id`` is the step's key as text. ``direction`` is ``forward``, ``compensate``, or ``probe`` when the tool is
    asked whether an earlier call happened. ``attempt`` counts from 1. ``idempotency_key`` is the same for every attempt
    of one step in one direction; in a probe it is the key of the call in question. ``epoch`` is the fencing token: it
    only grows, so a tool that stores the greatest epoch it has seen can refuse a former owner. ``deadline`` is the time
    after which the saga starts no new call, in Unix seconds *of the store's clock* (not of this machine's), or ``None``
    if the saga has no deadline. ``undoes`` is the idempotency key of the call that this one undoes, or None.
    """

    saga_id: str
    step_id: str
    direction: Literal["forward", "compensate", "probe"]
    attempt: int
    idempotency_key: str
    epoch: int
    deadline: float | None
    undoes: str | None = None
