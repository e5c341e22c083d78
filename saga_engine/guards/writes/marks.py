"""Which calls are writes: what a ticket says of its call (``guard_queue.lua``), and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from saga_engine.core.effects import FORWARD, Done, Outcome, Unknown

if TYPE_CHECKING:
    from saga_engine.ports import Call
    from saga_engine.tools.decorator import AnyTool

#: A write whose undo will ask who has written since: with it the list of a resource begins. And any other write.
_BEGINS: Final = ":b"
_WRITES: Final = ":w"
#: How a call is done that was not made.
_NOTHING: Final = frozenset({"unchanged", "cache"})


def mark_of(tool: AnyTool, call: Call) -> str:
    """What the ticket of a call says of it; empty: it only reads."""
    if tool.effect == "read":
        return ""
    return _BEGINS if tool.before is not None and call.direction == FORWARD and call.undoes is None else _WRITES


def may_have_written(outcome: Outcome) -> bool:
    """Whether a call may have changed something."""
    return outcome.via not in _NOTHING if type(outcome) is Done else type(outcome) is Unknown
