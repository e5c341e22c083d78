"""The values of which the state of a saga consists; ``core/state.py`` says what they mean together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import msgspec

from saga_engine.core.effects import FORWARD, Direction, ErrorInfo, Unkeyed
from saga_engine.core.look_records import Look
from saga_engine.core.plan_growth import Added
from saga_engine.core.states import PENDING
from saga_engine.core.undo_call import UndoCall, UndoneCall
from saga_engine.core.waits import Came

Place = tuple[int, Direction]

#: What is in flight: a call, a call that waits for a guard, a probe.
Flight = Literal["call", "intended", "queued", "probe"]


class Doubt(NamedTuple):
    """Some attempt of a call may have happened. ``core/state.py`` says what the fields mean."""

    sent: bool = False
    lost: bool = False
    repeat: Literal["", "wanted", "made"] = ""
    raised: int = 0


class Approval(NamedTuple):
    """An operator permitted the exact call with this digest, until ``until`` (Unix ms)."""

    digest: str
    until: int


class Made(NamedTuple):
    """The step happened in this saga; ``via`` and ``age_ms`` as in ``StepSucceeded``.

    ``to``: the fork that owns the effect since; empty: this saga does.
    """

    via: str
    age_ms: int | None = None
    to: str = ""


class Deduplicated(NamedTuple):
    """An identical call of another saga, ``source``, made the effect and owns it."""

    source: str
    age_ms: int | None


class Reused(NamedTuple):
    """``source`` made the effect under the idempotency key ``key`` and transferred it to this saga; ``to`` as above."""

    source: str
    key: str
    to: str = ""


Effect = Made | Deduplicated | Reused


class Proposal(NamedTuple):
    """Steps that a model proposed as a semantic compensation; an operator reviews them.

    ``kind`` is the question that follows if they are denied, ``why`` the reason why they need an approval although
    their tools do not.
    """

    added: Added
    tools: Mapping[str, str]
    digest: str
    kind: str
    why: str = ""


class Underway(NamedTuple):
    """The steps of a semantic compensation were added, and so many (at least one) have not happened yet."""

    open: int


#: What came of the one request to a model: ``none``, if it gave no steps, or they were denied, not needed or failed;
#: ``unanswered``, if it could not be asked, or gave nothing that can be used: an operator may have it asked again.
Semantic = Proposal | Underway | Literal["happened", "none", "unanswered"]


class Ending(NamedTuple):
    """The end of the saga is certain, and the steps of ``finally`` run: those from the index ``first`` on.

    ``status`` is that of the end; ``until``: when no further call of theirs starts, in Unix ms; ``facts`` are ``$end``.
    """

    status: str
    until: int
    first: int
    facts: Mapping[str, Any]


class Replanning(NamedTuple):
    """Step ``step`` failed, and another way is wanted."""

    step: int


class Turning(NamedTuple):
    """The saga is to turn around. No forward call starts; those in flight are awaited.

    ``reason``: step-failed, blocked, cancelled, deadline, call-limit, in-doubt, accepted, transferred, idle, or that of
    a session that closed. ``said``: who wanted that and why, as far as the record of it says so.
    """

    reason: str
    said: str = ""


class Backward(NamedTuple):
    """The saga has turned around, for ``reason``: what happened is undone. ``said`` as above."""

    reason: str
    said: str = ""


Phase = Literal["forward"] | Replanning | Turning | Backward


class CallState(msgspec.Struct, eq=False, gc=False):
    """One step in one direction: its attempts and their known outcomes.

    ``attempt`` counts all attempts, ``not_made`` those of them that called nothing (an operator was asked first, the
    policy refused), ``tries`` those since the budget was last filled. ``spent_ms`` is the calls' own time, without any
    waits; ``called_at`` is when the one that is in flight was intended. ``held_at`` is when a guard first refused it.
    """

    attempt: int = 0
    not_made: int = 0
    tries: int = 0
    probes: int = 0
    crashes: int = 0  # how many owners in a row ended after they had begun it, or its probe
    lost_probes: int = 0  # how many of them had begun its probe
    takeovers: int = 0  # how many owners in a row ended before it, or its probe, was answered, begun or not
    asked: int = 0  # how often an operator was asked about it
    doubt: Doubt | None = None
    approval: Approval | None = None
    first_at: int = 0
    called_at: int = 0
    held_at: int = 0
    spent_ms: int = 0
    ended_at: int = 0
    error: ErrorInfo | None = None
    params: Any = None  # of an undo: the values of its bindings, for views without the tools
    unkeyed: Unkeyed = ""  # what its latest attempt was to its tool: see ``StepIntended``

    def over(self, at: int) -> None:
        """The call that was in flight, if any, is over; it took its time."""
        if self.called_at:
            if at > self.called_at:
                self.spent_ms += at - self.called_at
            self.called_at = 0

    def owner_ended(self, *, call: bool = False, probe: bool = False) -> None:
        """An owner ended before there was an answer; ``call`` or ``probe`` says what it had begun."""
        self.takeovers += 1
        self.crashes += call or probe
        self.lost_probes += probe

    def answered(self) -> None:
        """It, or its probe, has an answer, or an operator has it tried anew: what ended owners is counted anew."""
        self.crashes = self.lost_probes = self.takeovers = 0

    def called_nothing(self) -> None:
        """The latest intent was not carried out."""
        self.not_made += 1
        self.called_at = 0


_NOTHING_CAME: Final[Mapping[int, Came]] = MappingProxyType({})


class StepState(msgspec.Struct, eq=False, gc=False):
    """One step: its status, its output, and what it still waits for in either direction.

    (A struct, because a saga has many and each starts alike: it is made in a tenth of the time of a class with slots.
    Its defaults are immutable and shared, because a list or dict for each step would cost memory in every saga,
    although few need it. The garbage collector need not visit it: nothing that it holds refers back to it.)
    """

    waits: int  # dependencies that have not succeeded yet
    status: str = PENDING
    forward: CallState = msgspec.field(default_factory=CallState)
    undo: CallState | None = None
    output: Any = None
    undo_output: Any = None
    undo_call: UndoCall | None = None  # None: its undo is one call, or has not begun
    undo_calls: tuple[UndoneCall, ...] = ()  # those of an undo of several calls that have happened
    before: Any = None  # the before-image of its last call that may have happened; None: its call has none
    after: Any = None  # the after-image
    cleared: Any = None  # the image of the value that an operator saw and wants overwritten by the undo
    unchanged: bool = False  # the undo found the value as it was before the call, and called nothing
    effect: Effect | None = None  # None: it is not known to have happened
    using: int = 0  # which of its fallbacks is called; 0: its own tool
    unavailable: bool = False  # its own tool was unreachable
    deferred: int = 0  # how often
    happened_nth: int = 0  # its number in the order in which the saga's steps happened, from 1
    undo_waits: int | None = None  # undos that come before its own and have not ended yet; None: its own is not wanted
    undoes: int = -1  # the step whose undo its call is, or was to be; -1: it is a call of its own
    undone_by: int = -1  # the step whose call is its undo; until that is settled, its own undo does not begin
    undo_next: int = -1  # in a session: the step whose undo comes right after its own
    accepted: bool = False  # RESOLVED: an operator accepted its effect, and did not undo it
    begun: int = 0  # how often it began to wait: an operator may have it begin anew
    event: str = ""  # the id of the event that ended its wait
    came: Mapping[int, Came] = _NOTHING_CAME  # of a wait for several: the events that came, by their place in the plan
    child: str = ""  # the saga that it started last, whose effects are its own
    left: Sequence[str] = ()  # what remains of the sagas that it started: ids of their steps
    hidden: Sequence[str] = ()  # texts in its output that no view shows
    semantic: Semantic | None = None  # None: no model has answered about it
    look: Look | None = None  # how its undo is verified; None: it is not undone, or nobody looks
    settled: bool = False  # its dependents may start: it happened, was skipped, or failed and the saga goes on

    def took(self, event: str, key: str) -> str:
        """The id of the event of this name and key that the step consumed; empty: none, or its wait was in vain."""
        if not self.event or not self.came:
            return self.event
        return next((each.source for each in self.came.values() if (each.event, each.key) == (event, key)), "")

    def call(self, direction: Direction) -> CallState:
        """The call of one direction."""
        if direction == FORWARD:
            return self.forward
        if self.undo is None:
            self.undo = CallState()
        return self.undo


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """An operator is asked about a step; ``options`` are the legal answers. ``at`` and ``expires`` are Unix ms.

    ``call``: for an approval, the digest of the exact call; ``rule`` is the policy's that asks. ``text``: what the step
    itself asks, and ``to`` whom; without options of its own the answer is a value that fits ``schema``. ``found``: the
    image of what an undo found.
    """

    id: str
    step: int
    direction: Direction
    kind: str
    options: tuple[str, ...]
    error: ErrorInfo | None
    at: int
    call: str = ""
    expires: int | None = None
    rule: str = ""
    text: str = ""
    schema: Mapping[str, Any] | None = None
    found: Any = None
    to: str = ""

    @property
    def of_session(self) -> bool:
        """Whether it concerns a session as a whole, whose agent failed; ``step`` then only says where."""
        return self.kind in ("session-failed", "session-kept")

    @property
    def of_call(self) -> bool:
        """Whether it concerns a call of a tool."""
        return not (self.of_session or self.kind == "ask")


class Notice(NamedTuple):
    """A notification about a step that asks nothing."""

    step: int
    kind: str
    error: ErrorInfo


class Alerting(NamedTuple):
    """A notification of a question: in flight, or due at ``due`` (Unix ms); ``round`` counts the reminders."""

    attempt: int
    due: int
    in_flight: bool
    round: int = 0
    crashes: int = 0  # how many owners in a row ended before the notification had an outcome


class Reminder(NamedTuple):
    """Operators were notified and have not answered: when the reminder is due (Unix ms)."""

    due: int
    round: int
