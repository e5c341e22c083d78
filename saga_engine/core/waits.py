"""What a step waits for that is no call: time, an event, an operator's answer, another saga."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from saga_engine.core.effects import FORWARD, Direction

#: What ends a wait, beside its due time and the turn of the saga.
WaitsOn = Literal["timer", "event", "decision", "child"]


class Wait(NamedTuple):
    """An open wait. ``due``: when it ends by itself (Unix ms); None: never. ``about``: what it waits for."""

    on: WaitsOn
    due: int | None = None
    about: Any = None
    direction: Direction = FORWARD
