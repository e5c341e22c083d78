"""What a saga looks like to whoever looks at it: the one description of its view, its steps, questions and answers.

``report.view`` makes these structs of a state. ``show``, the console, the API, the gateway and traces show them, and
the JSON Schema of the API and its reference are made from them (``server.schemas``). The order of the fields is that of
the JSON. A field with a default is left out where it has that value; ``UNSET``: where the field does not apply.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from saga_engine.core.effects import Direction, ErrorInfo
from saga_engine.core.states import SAGA_STATES
from saga_engine.errors import OutputNotFetched

Count = Annotated[int, Meta(ge=0)]
StepId = Annotated[int | str, Meta(description="The id of a step, as in the plan.")]
SagaStatus = Annotated[str, Meta(extra_json_schema={"enum": [*SAGA_STATES]})]
SagaId = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
#: Values of plans and tools, and objects whose fields others name.
AnyObject = dict[str, Any]


class View(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whatever is shown; ``plain`` is its JSON."""

    def plain(self) -> dict[str, Any]:
        """The object as `--json` and the API give it."""
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


class OutputRef(View, frozen=True, kw_only=True):
    """What an output in its cut form is the cut form of."""

    digest: Annotated[str, Meta(description="SHA-256 of the JSON")]
    bytes: Count


class CallResult(View, frozen=True, kw_only=True):
    """A step's call in one direction. Times are Unix milliseconds of the store's clock.

    ``params`` are in the form of views: cut, with markers for secrets; None where a binding has no value.
    ``idempotency_key`` is None until the first attempt, and of a tool that gets none.
    ``traceback``: where the tool raised an unforeseen exception.
    """

    step_id: StepId
    name: str
    tool: str
    kind: str = ""
    builtin: Annotated[str, Meta(description="the word of a built-in step")] = ""
    status: str
    attempts: Count
    error: Annotated[ErrorInfo | None, Meta(description="null once the call happened")]
    started_ms: int | None
    ended_ms: int | None
    took_ms: Annotated[int | None, Meta(description="the calls' own time")]
    params: Annotated[AnyObject | None, Meta(description="those of the call; secrets as their markers")]
    idempotency_key: str | None
    next_try_ms: Annotated[int | None, Meta(description="when it is tried again")] = None
    traceback: Annotated[str | None, Meta(description="where its tool raised")] = None
    #: ``output`` refuses the cut form.
    shown: Annotated[Any, Meta(description="what it returned, or its cut form")] = msgspec.field(name="output")
    output_ref: Annotated[
        OutputRef | None, Meta(description="`digest` (SHA-256 of the JSON) and `bytes` of an output in its cut form")
    ] = None

    @property
    def cut(self) -> bool:
        """Whether only the cut form of the output is at hand."""
        return self.output_ref is not None

    @property
    def output(self) -> Any:
        """The output, None if there is none. Raises ``OutputNotFetched`` if only its cut form is available."""
        if self.cut:
            raise OutputNotFetched(
                f"the output of step {self.step_id} was not fetched", hint="use show(..., full=True)"
            )
        return self.shown


class UndoCallResult(View, frozen=True, kw_only=True):
    """One call of an undo of several calls."""

    tool: str
    status: str
    attempts: Count
    ended_ms: int | None
    params: AnyObject | None
    idempotency_key: str | None
    error: ErrorInfo | None
    shown: Any = msgspec.field(name="output")
    output_ref: OutputRef | None = None
    via: str = ""


class UndoResult(CallResult, frozen=True, kw_only=True):
    """The undo of a step. ``verified``: whether the engine looked, and saw that it did what it says."""

    verified: Annotated[bool | None, Meta(description="of an undo: that a look after it saw it done")] = None
    unverified_because: str = ""
    via: Annotated[str, Meta(description="`unchanged`: nothing was left to undo")] = ""
    calls: Annotated[list[UndoCallResult] | None, Meta(description="of an undo of several calls")] = None


class Fallback(View, frozen=True, kw_only=True):
    """The fallback of a step that is used."""

    number: Count
    tool: str


class Waits(View, frozen=True, kw_only=True):
    """What a step waits for."""

    on: str
    due_ms: int | None
    about: Any


class Came(View, frozen=True, kw_only=True):
    """An event that came for a step."""

    event: str
    key: str


class Child(View, frozen=True, kw_only=True):
    """The saga that a step runs."""

    saga_id: str
    left: Annotated[list[str], Meta(description="the effects that it left")] = []


class StepResult(CallResult, frozen=True, kw_only=True):
    """A step: its forward call, and its undo as ``compensation``.

    ``model_asked_ms``: when a model that could not be reached is asked again because of this step.
    """

    kind: str
    compensation: Annotated[
        UndoResult | None,
        Meta(description="null, or the undo with the same fields; of an undo of several calls also `calls`"),
    ]
    before: Annotated[Any, Meta(description="what a read showed before the call")] = None
    after: Annotated[Any, Meta(description="what a read showed after it")] = None
    via: Annotated[str, Meta(description="how the outcome is known, unless the step's own call returned it")] = ""
    source: Annotated[str, Meta(description="whose result it has")] = ""
    age_ms: Annotated[int | None, Meta(description="the age of that result")] = None
    handed_to: Annotated[str, Meta(description="the fork or undo that has its effect")] = ""
    fallback: Annotated[Fallback | None, Meta(description="`number` and `tool` of the fallback that is used")] = None
    deferred: Annotated[int, Meta(description="that it waits until its tool is available again")] = 0
    waits: Annotated[Waits | None, Meta(description="what it waits for, and until when")] = None
    came: Annotated[list[Came], Meta(description="the events that came so far")] = []
    on_late: Annotated[str, Meta(description="the tool that a late event would call")] = ""
    model_asked_ms: Annotated[int | None, Meta(description="when a model is asked about it again")] = None
    child: Annotated[Child | None, Meta(description="the child saga that it runs")] = None
    dropped: Annotated[bool, Meta(description="a planner dropped it")] = False
    compensates: Annotated[int | str | None, Meta(description="the step that it compensates for")] = None
    compensated_by_others: Annotated[bool, Meta(description="that other steps compensated for it")] = False
    undoes: Annotated[int | str | None, Meta(description="the step that its call took back")] = None
    undone_by: Annotated[int | str | None, Meta(description="the step whose call took it back")] = None
    verified: Annotated[bool | None, Meta(description="of an undo: that a look after it saw it done")] = None
    unverified_because: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether its call happened and its effect remains."""
        return self.status == "SUCCEEDED"


class Failure(View, frozen=True):
    """Why a saga did not simply complete. ``step_id`` is None where that concerns no single step."""

    code: str
    step_id: int | str | None = None
    error_code: str | None = None
    message: str | None = None
    suggestion: str | None = None


class UndoCallPlace(View, frozen=True, kw_only=True):
    """Which call of an undo of several calls a question is about; ``number`` counts from 0."""

    number: Count
    of: Count


class QuestionView(View, frozen=True, kw_only=True):
    """An open question of a saga; a field that does not apply is left out."""

    question_id: str
    step_id: StepId
    tool: str
    direction: Direction
    kind: str
    options: Annotated[list[str], Meta(description="the decisions that answer it")]
    error: ErrorInfo | None
    idempotency_key: Annotated[str | None, Meta(description="that of the call")]
    asked_ms: Count
    params: Annotated[AnyObject | UnsetType | None, Meta(description="of the call")] = UNSET
    called_ms: Annotated[int | UnsetType | None, Meta(description="when the call was made")] = UNSET
    undo_call: Annotated[UndoCallPlace | UnsetType, Meta(description="which call of an undo of several")] = UNSET
    before: Annotated[Any | UnsetType, Meta(description="of drift the value before the call")] = UNSET
    after: Annotated[Any | UnsetType, Meta(description="the value as the call left it")] = UNSET
    found: Annotated[Any | UnsetType, Meta(description="the value now")] = UNSET
    text: Annotated[str | UnsetType, Meta(description="what a plan asks")] = UNSET
    schema: Annotated[AnyObject | UnsetType | None, Meta(description="what the value of an answer must fit")] = UNSET
    steps: Annotated[list[Any] | UnsetType | None, Meta(description="of a semantic compensation what it would do")] = (
        UNSET
    )
    call: Annotated[str | UnsetType, Meta(description="of an approval the digest of the call")] = UNSET
    rule: Annotated[str | UnsetType, Meta(description="of an approval the rule that asks")] = UNSET
    expires_ms: Annotated[int | UnsetType | None, Meta(description="until when an answer counts")] = UNSET
    to: Annotated[str | UnsetType, Meta(description="whom it asks")] = UNSET
    why: Annotated[str | UnsetType, Meta(description="why a model proposes the steps")] = UNSET
    outlooks: Annotated[dict[str, AnyObject], Meta(description="of each answer what follows from it, with its `mark`")]


class Answer(View, frozen=True, kw_only=True):
    """The answer to a question, and whose it is."""

    question_id: str
    step_id: StepId
    kind: str
    decision: Annotated[str, Meta(description="`expired`: nobody answered in time")]
    by: str
    note: str
    at_ms: Count


class Counts(View, frozen=True, kw_only=True):
    """Of the steps that can leave an effect: how many there are, of how many it stands, and how many are in doubt."""

    steps: Count
    in_effect: Count
    in_doubt: Count


class Dropped(View, frozen=True, kw_only=True):
    """A step that a planner dropped and nothing replaces."""

    step_id: StepId
    reason: str


class LastStep(View, frozen=True, kw_only=True):
    """A step of the plan's ``finally``."""

    step_id: StepId
    status: str


class ReportView(View, frozen=True, kw_only=True):
    """Lists of step ids and one word.

    ``compensated``: undone, by the engine or by hand. ``failed``: the undo failed and no decision has been made yet.
    ``unresolved``: it is unknown whether its effect remains, or its undo has not ended. ``left_in_place``: its effect
    remains for good. ``clean`` is True when the saga has ended and no unintended effect remains: the last three are
    empty, and no call of ``finally`` was given up because its processes ended, as nobody is asked about that. A saga
    that still moves forward, or completed, has no remainder: its effects are intended. ``semantic``: other steps
    compensated for it. ``dropped``: a planner dropped it and nothing replaces it, with the reason. ``skipped``: its
    conditions did not hold. ``continued``: it failed, and the saga went on. ``verified``: the engine looked after the
    undo, and it did what it says. These five are present only if not empty.
    ``finally``: the status of each step of the plan's ``finally``, present once they run.
    """

    compensated: list[StepId]
    failed: list[StepId]
    unresolved: list[StepId]
    left_in_place: list[StepId]
    verified: list[StepId] = []
    semantic: list[StepId] = []
    dropped: list[Dropped] = []
    skipped: list[StepId] = []
    continued: list[StepId] = []
    last: list[LastStep] | None = msgspec.field(name="finally", default=None)
    clean: bool

    def remains(self) -> bool:
        """Whether something is left that nobody intended."""
        return bool(self.failed or self.unresolved or self.left_in_place or self.semantic)


class Parent(View, frozen=True, kw_only=True):
    """The saga, and its step, that waits for this one."""

    saga_id: str
    step_id: StepId


class SagaView(View, frozen=True, kw_only=True):
    """A saga, as `saga show --json` prints it."""

    saga_id: SagaId
    status: SagaStatus
    ending: Annotated[str, Meta(description="the status that it will have once `finally` is over")] = ""
    goal: str
    session: Annotated[Literal["open", "closed"] | None, Meta(description="whether its agent may still call")] = None
    parent: Annotated[Parent | None, Meta(description="the saga that waits for it")] = None
    undo_of: Annotated[str, Meta(description="the saga that it undoes")] = ""
    undone_by: Annotated[str, Meta(description="the saga that undoes it")] = ""
    started_ms: Count
    ended_ms: int | None
    steps: Annotated[list[StepResult], Meta(description="each step, in the order of the plan")]
    counts: Annotated[
        Counts,
        Meta(
            description="of the steps that can leave an effect: how many there are, whose effect stands (whatever "
            "became of an undo), and which are in doubt. Every view counts so; reads, undos and `finally` are not "
            "counted"
        ),
    ]
    report: Annotated[
        ReportView,
        Meta(
            description="lists of step ids: `compensated`, `failed`, `unresolved`, `left_in_place`, and if they apply "
            "`semantic`, `skipped`, `continued`, `dropped`; and `clean`"
        ),
    ]
    error: Annotated[
        Failure | None,
        Meta(
            description="why it did not simply complete: `code`, and if known `step_id`, `error_code`, `message`, "
            "`suggestion`"
        ),
    ]
    questions: Annotated[list[QuestionView], Meta(description="open questions")]
    answers: Annotated[
        list[Answer],
        Meta(description="who answered earlier ones; not in the output of a command that ran the saga itself"),
    ] = []


class HeadView(View, frozen=True, kw_only=True):
    """A saga in a list, as `saga list --json` prints it."""

    saga_id: SagaId
    status: SagaStatus
    created_ms: Count
    changed_ms: Count
    owner: str | None
    records: Count
    waiting_messages: Count
    summary: AnyObject


class Entry(View, frozen=True, kw_only=True):
    """A record of a journal (docs/semantics.md)."""

    seq: Count
    k: str
    at: Count


def entry(seq: int, record: Any) -> dict[str, Any]:
    """A line of a history: a record as plain JSON, with its place in the journal."""
    return {"seq": seq, **(record if isinstance(record, dict) else msgspec.to_builtins(record))}
