"""What a tool may know about the call that it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Passed to a tool whose signature asks for it; never visible to the model.

    ``step_id`` is the step's key as text. ``direction`` is ``forward``, ``compensate``, or ``probe`` when the tool is
    asked whether an earlier call happened. ``attempt`` counts from 1. ``idempotency_key`` is the same for every attempt
    of one step in one direction; in a probe it is the key of the call that is asked about. ``epoch`` is the fencing
    token: it only grows, so a tool that remembers the greatest one it has seen can refuse an older coordinator.
    ``deadline`` is the moment after which the saga wants no new call, in Unix seconds *of the store's clock* (not of
    this machine's), or ``None`` if the saga has no deadline.
    """

    saga_id: str
    step_id: str
    direction: Literal["forward", "compensate", "probe"]
    attempt: int
    idempotency_key: str
    epoch: int
    deadline: float | None
