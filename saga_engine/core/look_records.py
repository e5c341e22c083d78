"""The record of a look after an undo, and what a step keeps of it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from saga_engine.core.effects import COMPENSATE, Direction, ErrorInfo
from saga_engine.core.record_base import Record

How = Literal["verified", "said", "later"]


class UndoLooked(Record, frozen=True, tag=True):
    """The engine looked after an undo, or after an operator said that it was done by hand.

    ``how``: it is ``verified``; or it counts as was ``said``, because of the ``error``; or the value may still change,
    and the next look is due ``delay_ms`` after ``at`` (``later``). If the value is not as before, an operator is asked
    (``StepEscalated``).
    """

    step: str
    how: How = "verified"
    error: ErrorInfo | None = None
    delay_ms: int = 0
    direction: Direction = COMPENSATE


class Look(msgspec.Struct, frozen=True):
    """The look at the undo of a step: ``pending``, ``asked`` about, or over.

    ``by``: as in ``plan.undo_looks``. ``since``: when the undo ended (Unix ms). ``times``: how often the value was
    still the old one. ``error``: why an undo that counts as was ``said`` is not verified. ``seen``: the value that the
    operator saw who says that the undo was made by hand.
    """

    by: str = ""
    how: Literal["pending", "asked", "verified", "said"] = "pending"
    since: int = 0
    times: int = 0
    error: ErrorInfo | None = None
    seen: Any = None
