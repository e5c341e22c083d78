"""Effects (imperatives that a journalled record orders) and the three-valued outcome of a call."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

Direction = Literal["forward", "compensate"]
FORWARD: Direction = "forward"
COMPENSATE: Direction = "compensate"


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool, or the engine on its behalf, says went wrong. Journalled as it is."""

    error_code: str
    message: str
    suggestion: str | None = None
    retryable: bool | None = None


class Done(NamedTuple):
    """The call happened; ``output`` is finite JSON."""

    output: Any


class NotDone(NamedTuple):
    """The call did not happen.

    ``retryable``: the tool's own word, ``None`` if it said nothing. ``definite``: the tool itself said so
    (a ``ToolError`` or a structured error), so the word also covers earlier attempts under the same key.
    """

    error: ErrorInfo
    retryable: bool | None = None
    definite: bool = False
    retry_after_s: float | None = None


class Unknown(NamedTuple):
    """Nobody can tell whether the call happened: a time-out, a lost connection, a cancelled call."""

    error: ErrorInfo


Outcome = Done | NotDone | Unknown


class CallTool(NamedTuple):
    """Make one attempt of a step in one direction. Ordered by ``StepIntended``."""

    step: int
    direction: Direction
    attempt: int


class Probe(NamedTuple):
    """Ask the tool's owner whether a call happened. Ordered by ``ProbeIntended``."""

    step: int
    direction: Direction
    attempt: int


class Alert(NamedTuple):
    """Tell people about an open question. Ordered by ``AlertIntended``."""

    question: str
    attempt: int


AnyEffect = CallTool | Probe | Alert
