"""Effects (orders that a journalled record gives) and the outcomes of calls."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import msgspec

Direction = Literal["forward", "compensate"]
FORWARD: Final = "forward"
COMPENSATE: Final = "compensate"
#: What a call's key is to its tool: honoured (empty), only ``told``, so that somebody may find the call by it, or
#: ``never`` even that.
Unkeyed = Literal["", "told", "never"]


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as a tool, or the engine on its behalf, reports it. Journalled as it is.

    ``traceback``: the origin of an unforeseen exception of a tool: files, lines and source lines, never a value.
    """

    error_code: str
    message: str
    suggestion: str | None = None
    retryable: bool | None = None
    traceback: str | None = None


class Done(NamedTuple):
    """The call happened; ``output`` is finite JSON.

    ``via``: ``call``, its own response; ``deduplicated``, the first result of an identical call that ``source``
    (another saga's step) made, so this step has no effect of its own; ``cache``, the last good result of a read,
    ``age_ms`` old; ``unchanged``, an undo that found the value as it was before the call. ``after``: the after-image.
    """

    output: Any
    via: str = "call"
    source: str = ""
    age_ms: int | None = None
    after: dict[str, Any] | None = None


class NotDone(NamedTuple):
    """The call did not happen.

    ``retryable``: as the tool says, ``None`` if it said nothing. ``definite``: the tool itself said so (a ``ToolError``
    or a structured error), so it also covers earlier attempts under the same key. ``counted``: whether it was an
    attempt at all; one that waited until its process closed was none. ``once``: the call is not to be repeated: if the
    statement is wrong, a second call is a second effect. ``held``: a guard (breaker, rate, bulkhead) refused it, so it
    was no attempt; it may be looked at again after ``retry_after_s``, None: it has waited as long as it may.
    """

    error: ErrorInfo
    retryable: bool | None = None
    definite: bool = False
    retry_after_s: float | None = None
    counted: bool = True
    once: bool = False
    held: bool = False


class Unknown(NamedTuple):
    """Whether the call happened is unknown: a time-out, a lost connection, a cancelled call.

    ``sent``: False if the tool's error says that the request never left, and only its probe may know better.
    ``at_work``: the call continues in this process although nothing awaits it any more: until an operator has answered,
    nothing is asked, repeated or undone. ``lost``: the process that made the call ended, or was silent for too long.
    ``raised``: the tool ended with an exception that is no statement of its own: a refusal, or an effect and then a
    fault.
    """

    error: ErrorInfo
    sent: bool = True
    at_work: bool = False
    lost: bool = False
    raised: bool = False


class Blocked(NamedTuple):
    """The policy refused the call: nothing was called, and no retry changes that. ``rule`` names the rule."""

    error: ErrorInfo
    rule: str = ""


class Ask(NamedTuple):
    """The policy requires an approval first: nothing was called.

    ``digest`` identifies the exact call; an approval is valid for nothing else, and for ``expires_s`` seconds.
    """

    error: ErrorInfo
    digest: str
    expires_s: float
    rule: str = ""


class Drifted(NamedTuple):
    """An undo was not called: the value is neither as the step found it nor as it left it. ``found``: its image."""

    error: ErrorInfo
    found: dict[str, Any]


Outcome = Done | NotDone | Unknown | Blocked | Ask | Drifted


class CallTool(NamedTuple):
    """Make one attempt of a step in one direction. Ordered by ``StepIntended``."""

    step: int
    direction: Direction
    attempt: int


class Probe(NamedTuple):
    """Ask whether a call happened. Ordered by ``ProbeIntended``."""

    step: int
    direction: Direction
    attempt: int


class ReadBefore(NamedTuple):
    """Read what a step's call is about to change.

    No record orders it: it has no effect, and its answer is a part of the intent.
    """

    step: int


class LookAfterUndo(NamedTuple):
    """Look whether an undo did what it says, ``by`` a read or its probe (``core.verified``). No record orders it."""

    step: int
    by: str


class Alert(NamedTuple):
    """Notify operators of an open question, in ``round`` 0 for the first time. Ordered by ``AlertIntended``."""

    question: str
    attempt: int
    round: int = 0


Purpose = Literal["compensate", "replan"]


class AskPlanner(NamedTuple):
    """Ask a model for steps: a semantic compensation, or another way.

    Ordered by ``PlannerAsked``.
    """

    step: int
    purpose: Purpose


AnyEffect = CallTool | Probe | Alert | AskPlanner | ReadBefore | LookAfterUndo
