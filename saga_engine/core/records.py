"""The facts of one saga, as its journal holds them.

A record says what is settled, never what should be done. Every record carries ``at``, Unix milliseconds on the store's
clock. Fields may be added with a default; none is ever renamed, retyped or given another meaning, so a journal written
by an older engine stays readable, and an older engine passes over fields that it does not know (``codec``).
"""

from __future__ import annotations

from typing import Any

import msgspec

from saga_engine.core.alert_records import AlertFailed as AlertFailed
from saga_engine.core.alert_records import AlertIntended as AlertIntended
from saga_engine.core.alert_records import AlertSent as AlertSent
from saga_engine.core.condition_records import OutputChecked as OutputChecked
from saga_engine.core.condition_records import StepSkipped as StepSkipped
from saga_engine.core.each_records import EachExpanded as EachExpanded
from saga_engine.core.effects import FORWARD, Direction, ErrorInfo, Purpose, Unkeyed
from saga_engine.core.end_records import FinallyStarted as FinallyStarted
from saga_engine.core.end_records import SagaCompensated as SagaCompensated
from saga_engine.core.end_records import SagaCompleted as SagaCompleted
from saga_engine.core.end_records import SagaEscalated as SagaEscalated
from saga_engine.core.end_records import SagaWaived as SagaWaived
from saga_engine.core.end_records import StepUnsettled as StepUnsettled
from saga_engine.core.look_records import UndoLooked as UndoLooked
from saga_engine.core.record_base import Record as Record
from saga_engine.core.record_base import ValueRef as ValueRef
from saga_engine.core.undo_call import UndoCall
from saga_engine.core.waiting_records import ChildEnded as ChildEnded
from saga_engine.core.waiting_records import EventArrived as EventArrived
from saga_engine.core.waiting_records import Parent as Parent
from saga_engine.core.waiting_records import StepWaiting as StepWaiting
from saga_engine.plan.operator_limits import Limits


class SagaStarted(Record, frozen=True, tag=True):
    """A plan was accepted. The record holds everything that must stay as it was on that day.

    ``seed`` makes the idempotency keys of this saga unlike those of any other with the same id. ``undos`` and ``reads``
    are the tools' registrations where the plan states nothing; ``tools`` are the digests of their declarations,
    ``sensitive`` the params of each that no view shows (``masking``). A ``session`` has no plan in advance: its calls
    are added one by one, and it is open until it is closed. ``fork_of`` is the id of the saga whose effects this one
    reuses, ``undo_of`` that of the completed one that it undoes. ``limits`` are the operator's on that day; None: no
    other than the engine's. ``tags`` are the saga's own, beside those of its plan. ``template`` is the
    ``NAME@VERSION`` of the template that its plan comes from. ``parent`` waits for its end. ``traceparent`` is the span
    of the code or request that submitted it, or of its parent (W3C Trace Context).
    """

    saga_id: str
    plan: Any
    digest: str
    seed: str
    input: dict[str, Any] | None = None
    undos: dict[str, str] = {}
    reads: list[str] = []
    tools: dict[str, str] = {}
    sensitive: dict[str, list[str]] = {}
    engine: str = ""
    session: bool = False
    fork_of: str = ""
    tags: list[str] = []
    template: str = ""
    refs: dict[str, ValueRef] = {}
    limits: Limits | None = None
    undo_of: str = ""
    parent: Parent | None = None
    traceparent: str = ""


class SagaResumed(Record, frozen=True, tag=True):
    """Another owner took over. Calls that were in flight are in doubt from here on; those that only waited are not.

    ``reason``: why the owner before stopped, if known. ``agent``: a session's agent runs again, so a session that was
    kept for it is not any more.
    """

    owner: str
    epoch: int
    reason: str = ""
    agent: bool = False


class StepIntended(Record, frozen=True, tag=True):
    """The intent of one attempt; nothing is called without it. ``params`` only where bindings made them.

    ``fallback``: which of the step's fallbacks is called; 0 is the step's own tool. ``before``: the value that the call
    is about to change (``images``). ``call``: of an undo of several calls, which of them this is. ``undoes``: the
    step whose undo this forward call is (``undo_by_call``): it has the idempotency key of that. ``unkeyed``: the tool
    honours no key, so a repeat may happen twice; it is ``told`` the key, or ``never``: then no key finds the call.
    """

    step: str
    direction: Direction = FORWARD
    attempt: int = 1
    params: Any = None
    fallback: int = 0
    before: dict[str, Any] | None = None
    call: UndoCall | None = None
    undoes: str = ""
    unkeyed: Unkeyed = ""
    refs: dict[str, ValueRef] = {}


class StepQueued(Record, frozen=True, tag=True):
    """The call that was intended waits for a guard. If its process ends now, it was not made."""

    step: str
    direction: Direction = FORWARD


class StepBegun(Record, frozen=True, tag=True):
    """The wait is over, and the call is about to be made: from here on it may have happened.

    ``before``: the value that it is about to change, read again after the wait.
    """

    step: str
    direction: Direction = FORWARD
    before: dict[str, Any] | None = None
    refs: dict[str, ValueRef] = {}


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model that wrote something, its prompts, and its usage. ``cost_usd`` None: unknown."""

    model: str
    prompt: str = ""
    prompt_digest: str = ""
    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    seconds: float = 0.0


class StepSucceeded(Record, frozen=True, tag=True):
    """The step happened in this direction.

    ``via``: its own response (``call``), a ``probe``'s, an operator's (``decision``), that of an identical call of
    another saga (``deduplicated``; ``source`` made it and owns its effect), the last good result of a read (``cache``,
    ``age_ms`` old), a computation's result (``computed``), or for an undo the value itself, which is as it was before
    the call (``unchanged``), or that its lists are empty (``nothing``). Of a step that waited: the end of its time
    (``timer``), or the ``event`` with the id ``source`` (``entry``: of a wait for several, which of them, from 0).
    ``after``: the value after the call (``images``). ``look``: what tells whether this undo did what it says
    (``verified``); empty: nobody looks.
    """

    step: str
    direction: Direction = FORWARD
    output: Any = None
    via: str = "call"
    source: str = ""
    age_ms: int | None = None
    after: dict[str, Any] | None = None
    entry: int | None = None
    look: str = ""
    refs: dict[str, ValueRef] = {}


class StepRetryScheduled(Record, frozen=True, tag=True):
    """An attempt was not done; the next one is due ``delay_ms`` after ``at``. ``counted``: it counts as an attempt."""

    step: str
    error: ErrorInfo
    delay_ms: int
    direction: Direction = FORWARD
    counted: bool = True


class StepFailed(Record, frozen=True, tag=True):
    """The step was not done and is not retried by itself."""

    step: str
    error: ErrorInfo
    direction: Direction = FORWARD


class StepBlocked(Record, frozen=True, tag=True):
    """The policy refused the call (``rule``), or the operator whom it asked did; nothing was called this time."""

    step: str
    error: ErrorInfo
    rule: str = ""
    direction: Direction = FORWARD


class FallbackChosen(Record, frozen=True, tag=True):
    """The step's call failed permanently; its ``fallback``-th fallback (from 1) is used from here on.

    ``unavailable``: the step's own tool was unreachable, and did not refuse.
    """

    step: str
    fallback: int
    error: ErrorInfo
    unavailable: bool = False


class StepDeferred(Record, frozen=True, tag=True):
    """The step waits until its tool is available again; it is called again ``delay_ms`` after ``at``.

    ``notice`` is the id of the notification; it is omitted if operators have been notified of this step before.
    ``in_doubt``: the call may have happened, and is repeated under its key.
    """

    step: str
    error: ErrorInfo
    delay_ms: int
    notice: str = ""
    in_doubt: bool = False


class StepInDoubt(Record, frozen=True, tag=True):
    """It is unknown whether the call happened. The next way to find out is due ``delay_ms`` after ``at``.

    ``counted``: the attempt that left it unknown counts as one. ``sent``: False if the tool says that the request never
    left, which only its probe may know better. ``at_work``: the call continues in a thread, so an operator is asked at
    once. ``lost``: the process that made the call ended, or was silent for too long (in Temporal, where no
    ``SagaResumed`` says so). ``raised``: the tool ended with an exception that is no statement of its own, so the call
    is repeated once and no more.
    """

    step: str
    error: ErrorInfo
    delay_ms: int = 0
    direction: Direction = FORWARD
    counted: bool = True
    sent: bool = True
    at_work: bool = False
    lost: bool = False
    raised: bool = False


class CompensationRequested(Record, frozen=True, tag=True):
    """The step's call is in doubt, and its undo settles that (``on_doubt``): the saga turns around."""

    step: str


class ProbeIntended(Record, frozen=True, tag=True):
    """A probe is about to ask whether the call happened."""

    step: str
    direction: Direction = FORWARD
    attempt: int = 1


class ProbeFailed(Record, frozen=True, tag=True):
    """The probe could not tell; the next way is due ``delay_ms`` after ``at``.

    ``lost``: the process that asked ended, or was silent for too long (in Temporal, where no ``SagaResumed`` says so).
    """

    step: str
    error: ErrorInfo
    delay_ms: int = 0
    direction: Direction = FORWARD
    lost: bool = False


class StepEscalated(Record, frozen=True, tag=True):
    """An operator is asked about the step, or by it.

    ``kind``: one of ``questions.OPTIONS``. An approval is of the exact call, a semantic compensation of the exact
    steps, with the digest ``call``; ``expires_ms`` (Unix ms on the store's clock) ends both the question and the
    approval. ``ask``: the step itself asks ``text``, of ``to``, and the ``options`` are the plan's; or the answer is
    free, and fits ``schema``. ``found``: a value found by an undo that neither the step nor anybody before left.
    """

    step: str
    question: str
    kind: str
    options: list[str]
    direction: Direction = FORWARD
    error: ErrorInfo | None = None
    call: str = ""
    expires_ms: int | None = None
    rule: str = ""
    text: str = ""
    schema: dict[str, Any] | None = None
    found: dict[str, Any] | None = None
    to: str = ""
    refs: dict[str, ValueRef] = {}


class QuestionResolved(Record, frozen=True, tag=True):
    """An operator answered an open question, once. ``message`` is the id of the message that brought the answer.

    ``look``: as in ``StepSucceeded``, of an undo that was made by hand.
    """

    question: str
    step: str
    decision: str
    direction: Direction = FORWARD
    output: Any = None
    by: str = ""
    note: str = ""
    message: str = ""
    look: str = ""
    refs: dict[str, ValueRef] = {}


class ApprovalExpired(Record, frozen=True, tag=True):
    """No operator answered in time, which denies a call.

    For a question that the step itself asks, ``then`` is what follows: ``fail``, or ``value``, and ``output`` is the
    step's.
    """

    question: str
    step: str
    direction: Direction = FORWARD
    then: str = ""
    output: Any = None


class CallAdded(Record, frozen=True, tag=True):
    """A session's agent makes a call; it is a step from here on. ``after`` are steps that had happened last by then.

    It came after these and all that had happened before any of them, in the order of the journal. Not more than 16 are
    named, and none that comes before another of them.

    ``params`` are values: they contain no bindings. ``undo`` names the tool that undoes the call, with ``undo_params``
    (which may bind the call's own output as ``$output``) or, if omitted, those that its registration implies; with
    ``undo_each`` for each item of a list, and with ``undo_then`` further calls follow (``tool``, ``params``, ``each``).
    ``irreversible``: it writes and cannot be undone, deliberately. ``tool_digest`` is its declaration's; ``sensitive``
    is as in ``SagaStarted``. ``place``: which of the agent's calls it is, from 1, if it takes the place of one that did
    not happen or was undone; 0: the next one. ``builtin``: a step without a tool; its body is ``params[builtin]``.
    ``expect``: as in a plan's step.
    """

    step: str
    tool: str
    params: dict[str, Any]
    place: int = 0
    after: list[str] = []
    undo: str | None = None
    undo_params: dict[str, Any] | None = None
    undo_each: str | None = None
    undo_then: list[dict[str, Any]] = []
    irreversible: bool = False
    read: bool = False
    timeout_s: float | None = None
    tool_digest: str = ""
    sensitive: dict[str, list[str]] = {}
    builtin: str = ""
    expect: str = ""
    refs: dict[str, ValueRef] = {}


class PartialCompensationRequested(Record, frozen=True, tag=True):
    """A session's agent wants these steps undone, and continues.

    ``calls``: how many calls it had made by then; -1: as many as its session has places for.
    """

    steps: list[str]
    calls: int = -1


class SessionClosed(Record, frozen=True, tag=True):
    """A session's agent has ended. With a ``reason`` everything that happened is undone.

    ``message``: the id of the message that brought it, if the session rested when its agent ended.
    """

    reason: str = ""
    note: str = ""
    message: str = ""


class SessionKept(Record, frozen=True, tag=True):
    """A session's agent failed, and the session stays open with what happened.

    An operator is asked about the ``step`` that failed, or about the last one. ``kind``: ``session-kept``, and the
    session also continues when its agent runs again; or ``session-failed``, and the operator answers first. Without
    either by ``expires_ms`` (Unix ms on the store's clock) everything is undone. ``message`` is that of
    ``SessionClosed``.
    """

    step: str
    question: str
    kind: str
    options: list[str]
    error: ErrorInfo | None = None
    expires_ms: int | None = None
    message: str = ""


class EffectTransferred(Record, frozen=True, tag=True):
    """The saga ``to`` owns the effects of these steps from here on.

    A fork, and the rest is undone; or the saga that undoes this one, which has completed.
    """

    steps: list[str]
    to: str
    message: str = ""


class EffectReused(Record, frozen=True, tag=True):
    """A fork, or a saga that undoes another, has the effect of ``source`` (``SAGA/STEP``) and owns it from here on.

    ``key`` is the idempotency key under which it was made, ``fallback`` which of the step's fallbacks it was.
    ``before`` and ``after`` are its images. ``owner``: the saga that owns it instead; only its output is known here.
    ``child``: the saga whose effects it has.
    """

    step: str
    source: str
    fingerprint: str
    output: Any = None
    key: str = ""
    fallback: int = 0
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    refs: dict[str, ValueRef] = {}
    owner: str = ""
    child: str = ""


class UndoRequested(Record, frozen=True, tag=True):
    """The effects of the completed saga are to be undone; ``accepted`` are the steps that remain and have no undo."""

    accepted: list[str] = []
    by: str = ""
    note: str = ""


class StepsAdded(Record, frozen=True, tag=True):
    """Steps were added to the plan; those in ``dropped`` will not run any more.

    ``place``: whose place in the list they take; empty: they stand at its end. ``reasons``: why a step is dropped and
    not replaced. ``by``, ``note``: their author and reason; ``written``: the model. The rest is as in ``SagaStarted``.
    """

    steps: list[Any]
    dropped: list[str] = []
    place: str = ""
    reasons: dict[str, str] = {}
    undos: dict[str, str] = {}
    reads: list[str] = []
    tools: dict[str, str] = {}
    sensitive: dict[str, list[str]] = {}
    by: str = ""
    note: str = ""
    message: str = ""
    written: Written | None = None
    refs: dict[str, ValueRef] = {}


class PlannerAsked(Record, frozen=True, tag=True):
    """A model is about to be asked for steps because of ``step``. ``purpose``: compensate or replan."""

    step: str
    purpose: Purpose


class PlannerGaveUp(Record, frozen=True, tag=True):
    """The model gave no steps: it is asked again after ``delay_ms``, or the saga continues as without a planner (0)."""

    step: str
    purpose: Purpose
    error: ErrorInfo
    written: Written | None = None
    delay_ms: int = 0


class CompensationProposed(Record, frozen=True, tag=True):
    """A model proposed steps that compensate for ``step``, whose effect remains and cannot be undone.

    ``auto``: all their tools may be used without asking, so they run; else an operator is asked first. ``why``: why
    these steps need an approval although their tools do not.
    """

    step: str
    steps: list[Any]
    auto: bool = False
    why: str = ""
    undos: dict[str, str] = {}
    reads: list[str] = []
    tools: dict[str, str] = {}
    sensitive: dict[str, list[str]] = {}
    written: Written | None = None
    refs: dict[str, ValueRef] = {}


class CancelRequested(Record, frozen=True, tag=True):
    """The saga is to be cancelled."""

    by: str = ""
    note: str = ""
    message: str = ""


class MessageRefused(Record, frozen=True, tag=True):
    """A posted message did not fit the saga any more and changed nothing."""

    message: str
    code: str
    reason: str


class DeadlinePassed(Record, frozen=True, tag=True):
    """The saga's deadline passed before all steps were done."""


class CallLimitReached(Record, frozen=True, tag=True):
    """The saga has made as many forward calls as its plan allows."""


class CompensationStarted(Record, frozen=True, tag=True):
    """No forward call is in flight any more; from here on what happened is undone. ``reason``: that of ``Turning``."""

    reason: str
    step: str = ""


class CompensationRefused(Record, frozen=True, tag=True):
    """The pivot happened, so the saga cannot turn around; a failed step becomes a question."""

    reason: str


AnyRecord = (
    SagaStarted
    | SagaResumed
    | StepIntended
    | StepQueued
    | StepBegun
    | StepWaiting
    | ChildEnded
    | EventArrived
    | StepSucceeded
    | StepSkipped
    | OutputChecked
    | StepRetryScheduled
    | StepFailed
    | StepBlocked
    | FallbackChosen
    | StepDeferred
    | StepInDoubt
    | CompensationRequested
    | ProbeIntended
    | ProbeFailed
    | UndoLooked
    | StepEscalated
    | QuestionResolved
    | ApprovalExpired
    | StepsAdded
    | CallAdded
    | EachExpanded
    | PartialCompensationRequested
    | SessionClosed
    | SessionKept
    | EffectReused
    | EffectTransferred
    | UndoRequested
    | PlannerAsked
    | PlannerGaveUp
    | CompensationProposed
    | CancelRequested
    | MessageRefused
    | DeadlinePassed
    | CallLimitReached
    | CompensationStarted
    | CompensationRefused
    | AlertIntended
    | AlertSent
    | AlertFailed
    | FinallyStarted
    | StepUnsettled
    | SagaCompleted
    | SagaCompensated
    | SagaEscalated
    | SagaWaived
)
