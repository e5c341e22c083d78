"""What a saga waits for that is no call: time, events, an operator's answer, another saga, a model.

What rests, turns, ends, is quiet or due reads ``State.pending`` and knows of each entry only what the entry says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from saga_engine.core.effects import FORWARD, Direction
from saga_engine.plan.wait import SEVERAL

#: What ends a wait, beside its due time and the turn of the saga.
WaitsOn = Literal["timer", "event", "decision", "child"]
#: How often a process that cannot do what is due offers it to others.
OFFER_MS: Final = 60_000


class EventName(NamedTuple):
    """What distinguishes the events for which steps wait."""

    event: str
    key: str


class Pending(NamedTuple):
    """What a step waits for, or what is asked because of it. ``about``: what exactly.

    ``due``: when there is something to do about it (Unix ms); None: never by itself. ``until``: from then on to this
    time a process is looked for that can do it; 0: any can.
    """

    on: WaitsOn | Literal["model", "planner"]
    due: int | None = None
    about: Any = None
    direction: Direction = FORWARD
    until: int = 0
    #: The step itself waits.
    of_step: bool = True
    #: The saga does not turn around before it has ended.
    holds_turn: bool = False
    #: The saga that has turned around does not end before it has ended.
    holds_end: bool = True
    #: This process does it: the saga is not left to others meanwhile.
    here: bool = False

    def next_look(self, now_ms: int) -> int | None:
        """When after ``now_ms`` there is something to do about it; None: nothing will be due."""
        if self.due is None or self.due > now_ms:
            return self.due
        return min(now_ms + OFFER_MS, self.until) if self.until > now_ms else None

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
