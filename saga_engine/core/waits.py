"""What a step waits for that is no call: time, events, an operator's answer, another saga."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from saga_engine.core.effects import FORWARD, Direction
from saga_engine.plan.wait import SEVERAL

#: What ends a wait, beside its due time and the turn of the saga.
WaitsOn = Literal["timer", "event", "decision", "child"]


class EventName(NamedTuple):
    """What distinguishes the events for which steps wait."""

    event: str
    key: str


class Wait(NamedTuple):
    """An open wait. ``due``: when it ends by itself (Unix ms); None: never. ``about``: what it waits for."""

    on: WaitsOn
    due: int | None = None
    about: Any = None
    direction: Direction = FORWARD

    @property
    def word(self) -> str:
        """``first`` or ``all`` of a wait for several events; empty for any other."""
        return "" if self.on != "event" else next((word for word in SEVERAL if word in self.about), "")

    def events(self) -> Sequence[EventName]:
        """The events that it is for, in the plan's order."""
        if self.on != "event":
            return ()
        word = self.word
        return [EventName(each["event"], each["key"]) for each in (self.about[word] if word else (self.about,))]


class Came(NamedTuple):
    """An event that came for a wait for several: its name and key, the sender's id of it, and its payload."""

    event: str
    key: str
    source: str
    payload: Any = None

    def output(self) -> dict[str, Any]:
        """As the output of the step has it."""
        return {"event": self.event, "key": self.key, "payload": self.payload}
