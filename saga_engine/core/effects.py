"""Effects (imperatives that a journalled record orders) and the outcome of a call."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

Direction = Literal["forward", "compensate"]
FORWARD: Direction = "forward"
COMPENSATE: Direction = "compensate"


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool, or the engine on its behalf, says went wrong. Journalled as it is.

    ``traceback``: where an unforeseen exception of a tool came from: files, lines and source lines, never a value.
    """

    error_code: str
    message: str
    suggestion: str | None = None
    retryable: bool | None = None
    traceback: str | None = None


class Done(NamedTuple):
    """The call happened; ``output`` is finite JSON.

    ``via``: ``call``, its own answer; ``shared``, the first result of an identical call that ``source`` (another saga's
    step) made, so this step has no effect of its own; ``cache``, the last good result of a read, ``age_ms`` old.
    """

    output: Any
    via: str = "call"
    source: str = ""
    age_ms: int | None = None


class NotDone(NamedTuple):
    """The call did not happen.

    ``retryable``: the tool's own word, ``None`` if it said nothing. ``definite``: the tool itself said so
    (a ``ToolError`` or a structured error), so the word also covers earlier attempts under the same key.
    ``counted``: whether it was an attempt at all; one that was kept waiting until its process closed was none.
    ``once``: the call is not to be repeated: if the word is wrong, a second call is a second effect.
    """

    error: ErrorInfo
    retryable: bool | None = None
    definite: bool = False
    retry_after_s: float | None = None
    counted: bool = True
    once: bool = False


class Unknown(NamedTuple):
    """Nobody can tell whether the call happened: a time-out, a lost connection, a cancelled call.

    ``sent``: False if the tool's error says that the request never left, and only its probe may know better.
    ``at_work``: the call goes on in this process although nobody waits for it any more: until a person has looked,
    nothing is asked, repeated or undone.
    """

    error: ErrorInfo
    sent: bool = True
    at_work: bool = False


class Blocked(NamedTuple):
    """The policy refused the call: nothing was called, and no retry changes that. ``rule`` names what refused it."""

    error: ErrorInfo
    rule: str = ""


class Ask(NamedTuple):
    """The policy wants a person's word first: nothing was called.

    ``digest`` identifies the exact call; an approval counts for nothing else, and for ``expires_s`` seconds.
    """

    error: ErrorInfo
    digest: str
    expires_s: float
    rule: str = ""


Outcome = Done | NotDone | Unknown | Blocked | Ask


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
    """Tell people about an open question, in ``round`` 0 for the first time. Ordered by ``AlertIntended``."""

    question: str
    attempt: int
    round: int = 0


Purpose = Literal["compensate", "replan"]


class AskPlanner(NamedTuple):
    """Ask a model for steps: to make up for one that cannot be undone, or for another way.

    Ordered by ``PlannerAsked``.
    """

    step: int
    purpose: Purpose


AnyEffect = CallTool | Probe | Alert | AskPlanner
