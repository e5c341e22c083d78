"""The records of steps that wait: for time, for an event, or for a child saga, which is a saga of its own."""

from __future__ import annotations

from typing import Any

import msgspec

from saga_engine.core.effects import FORWARD, Direction, ErrorInfo
from saga_engine.core.record_base import Record, ValueRef
from saga_engine.core.waits import WaitsOn


class Parent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The saga and the step that wait for a child; ``depth``: how many sagas are above the child."""

    saga: str
    step: str
    depth: int = 1


class ChildEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a parent is told of the end of its child, or of its undo; the fields are those of ``ChildEnded``."""

    saga: str
    status: str
    output: Any = None
    error: ErrorInfo | None = None
    left: list[str] = []
    hidden: list[str] = []


class StepWaiting(Record, frozen=True, tag=True):
    """A built-in step waits from here on; it holds no task and no worker's place.

    ``on``: what ends the wait. ``due_ms``: when it ends by itself (Unix ms on the store's clock); None: never.
    ``about``: what it waits for. Backward, it waits for the undo of its child, which has completed.
    """

    step: str
    on: WaitsOn
    due_ms: int | None = None
    about: Any = None
    direction: Direction = FORWARD


class EventArrived(Record, frozen=True, tag=True):
    """An event came for a step that waits for all of several, and others have not come yet.

    ``entry``: which of them, from 0 in the plan's order. ``output`` is the payload, ``source`` the sender's id. The
    record of the last one is the step's ``StepSucceeded``.
    """

    step: str
    entry: int
    output: Any = None
    source: str = ""
    refs: dict[str, ValueRef] = {}


class ChildEnded(Record, frozen=True, tag=True):
    """The saga that a step waits for has ended with ``status``; empty: it cannot start, or its undo cannot.

    ``output``: the outputs of its steps, if it completed. ``error``: why it did not. ``left``: the ids of its steps
    whose effects remain. ``hidden``: texts in its output that its own views do not show.
    """

    step: str
    saga: str
    status: str
    direction: Direction = FORWARD
    output: Any = None
    error: ErrorInfo | None = None
    left: list[str] = []
    hidden: list[str] = []
    message: str = ""
    refs: dict[str, ValueRef] = {}
