"""Messages from other processes: a cancel, an operator's answer, or steps to add. They are posted to a saga.

A message is checked twice: by the sender against the journal as it reads it, so that an operator gets a clear error,
and by the owner against the state at the time of the record. What no longer fits becomes ``MessageRefused``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec

from saga_engine.core import records as r
from saga_engine.core import session_records
from saga_engine.core import transitions as t
from saga_engine.core.bound_outputs import output_is_bound
from saga_engine.core.effects import FORWARD, ErrorInfo
from saga_engine.core.evolve import evolve
from saga_engine.core.outlooks import needs_mark, outlook, then_words
from saga_engine.core.plan_growth import Accepted
from saga_engine.core.redaction import Redaction, agrees
from saga_engine.core.state import State
from saga_engine.core.state_values import OpenQuestion
from saga_engine.core.steps import ask, child, wait
from saga_engine.core.waiting_records import ChildEnd
from saga_engine.errors import (
    AmendRefused,
    CancelRefused,
    DecisionRefused,
    ForkRefused,
    JournalUnreadable,
    PlanInvalid,
)
from saga_engine.language.errors import said
from saga_engine.plan.amendments import Addition
from saga_engine.plan.values import plain, printable

DECISIONS: Final = (
    "happened",
    "not-happened",
    "retry",
    "undone",
    "accept",
    "approve",
    "deny",
    "undo",
    "keep",
    "close",
    "ask-again",
    "answer",
)


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. ``id`` is unique; it makes posting idempotent.

    Raises ``ValueNotJson`` for a text with a lone surrogate, as a terminal makes one of a byte that is no UTF-8.
    """

    id: str
    kind: Literal["cancel", "resolve", "amend", "transfer", "close", "keep", "event", "child"]
    by: str = ""
    note: str = ""
    step: str = ""
    decision: str = ""
    output: Any = None
    question: str = ""
    steps: list[Any] = []
    to: str = ""
    reason: str = ""
    #: Of ``keep``: why the agent failed, whether an operator is asked, and for how long the session is kept.
    error: ErrorInfo | None = None
    ask: bool = False
    idle_ms: int = 0
    #: Of ``event``, whose ``id`` is the event's: its name and key. ``output`` is its payload. ``nth``: for which of the
    #: step's waits the store holds it, from 1; 0: for any.
    event: str = ""
    key: str = ""
    nth: int = 0
    #: Of ``resolve``: the mark of the effects that the sender expects of the answer (``core.outlooks``); empty: any.
    expect: str = ""
    #: Of ``child``: the saga that ``step`` waits for has ended.
    end: ChildEnd | None = None

    def __post_init__(self) -> None:
        plain({"by": self.by, "note": self.note, "step": self.step, "decision": self.decision, "reason": self.reason})


_decoder = msgspec.json.Decoder(Message)


def encode_message(message: Message) -> bytes:
    """The message as it is posted."""
    return msgspec.json.encode(message)


def decode_message(data: bytes) -> Message:
    """A posted message; raises ``JournalUnreadable``."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise JournalUnreadable(
            f"a message of the saga cannot be read: {error}", hint="a newer engine wrote it"
        ) from error


def answer_to(state: State, data: bytes, now_ms: int) -> r.AnyRecord:
    """The record that a posted message makes of the state; an unreadable or unknown one is refused by its id.

    Messages may come from a newer engine, or from any program that reaches the store: they must not stop the saga.
    """
    try:
        return answer(state, decode_message(data), now_ms)
    except Exception as error:  # noqa: BLE001 - whatever it breaks, it is the message's fault, and said in the journal
        reason = error.message if isinstance(error, JournalUnreadable) else f"{type(error).__name__}: {error}"
        return r.MessageRefused(at=now_ms, message=_id_of(data), code="message-unreadable", reason=reason[:500])


def _id_of(data: bytes) -> str:
    """The id that a message gives itself, or one derived from its bytes."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found = None
    said = found.get("id") if isinstance(found, dict) else None
    return said[:200] if isinstance(said, str) and said else f"sha256:{sha256(data).hexdigest()[:16]}"


def answer(state: State, message: Message, now_ms: int) -> r.AnyRecord:
    """The record that a message makes of the state as it is."""
    try:
        if message.kind == "cancel":
            check_cancel(state)
            return r.CancelRequested(at=now_ms, by=message.by, note=message.note, message=message.id)
        if message.kind == "event":
            event = wait.Event(message.id, message.event, message.key, message.output, message.nth)
            return wait.arrived(state, message.step, event, now_ms)
        if message.kind == "child" and message.end is not None:
            return child.ended(state, message.step, message.end, now_ms, message.id)
        if message.kind == "close":
            return _close(state, message, now_ms)
        if message.kind == "keep":
            return _keep(state, message, now_ms)
        if message.kind == "transfer":
            check_transfer(state, message.steps, message.to)
            return r.EffectTransferred(at=now_ms, steps=list(message.steps), to=message.to, message=message.id)
        if message.kind == "amend":
            undos, reads, tools, sensitive = check_amendment(state, message.steps)
            return r.StepsAdded(
                at=now_ms,
                steps=message.steps,
                undos=undos,
                reads=reads,
                tools=tools,
                sensitive=sensitive,
                by=message.by,
                note=message.note,
                message=message.id,
            )
        message, question = _fitting(state, message, now_ms)
    except (CancelRefused, DecisionRefused, AmendRefused, ForkRefused, PlanInvalid) as error:
        return r.MessageRefused(at=now_ms, message=message.id, code=error.code, reason=error.message)
    return r.QuestionResolved(
        at=now_ms,
        question=question.id,
        step=state.plan.steps[question.step].key,
        direction=question.direction,
        decision=message.decision,
        output=_as_journalled(state, question, message.output),
        by=message.by,
        note=message.note,
        message=message.id,
    )


def _as_journalled(state: State, question: OpenQuestion, output: Any) -> Any:
    """An operator's output without what the tool redacts."""
    spec = state.acting(question.step).spec
    if output is None or spec is None or not spec.redact:
        return output
    return Redaction([f"output.{rule}" for rule in spec.redact]).value("output", output)


def to_post(
    state: State, records: Sequence[r.AnyRecord], waiting: Sequence[bytes], message: Message, now_ms: int
) -> Message | None:
    """A cancel or an answer for posting; None: the saga has already received the same.

    ``waiting`` are unread messages. They count as if they were read: the first of two answers holds, although the owner
    has read neither. ``state``, which is that of ``records``, changes with them. Raises ``CancelRefused`` or
    ``DecisionRefused``.
    """
    said = [*records]
    for data in waiting:
        record = answer_to(state, data, now_ms)
        evolve(state, record)
        said.append(record)
    try:
        if message.kind == "cancel":
            check_cancel(state)
            return message
        return _fitting(state, message, now_ms)[0]
    except (CancelRefused, DecisionRefused) as error:
        if repeats(said, message):
            return None
        known = _answer_to(said, message.step) if message.kind == "resolve" else None
        if known is None or message.step in {state.plan.steps[asked.step].key for asked in state.questions.values()}:
            raise
        by = f" by {known.by}" if known.by else ""
        raise DecisionRefused(
            f"step {message.step} was answered already{by}: '{known.decision}'",
            hint=f"`saga history {state.saga_id}` shows it",
            saga_id=state.saga_id,
            decision=known.decision,
            by=known.by,
        ) from error


def repeats(records: Sequence[r.AnyRecord], message: Message) -> bool:
    """Whether the journal already holds what the message says; repeating it is no contradiction."""
    if message.kind == "cancel":
        return any(isinstance(record, r.CancelRequested) for record in records)
    known = _answer_to(records, message.step) if message.kind == "resolve" else None
    if known is None or (message.question and message.question != known.question):
        return False
    return known.decision == message.decision and (message.output is None or agrees(known.output, message.output))


def _answer_to(records: Sequence[r.AnyRecord], step: str) -> r.QuestionResolved | None:
    """The last answer to a question about a step."""
    answers = [record for record in records if isinstance(record, r.QuestionResolved) and record.step == step]
    return answers[-1] if answers else None


def _close(state: State, message: Message, now_ms: int) -> r.SessionClosed:
    closed = session_records.close(state, message.reason, message.note, now_ms, message.id)
    if closed is None:
        raise CancelRefused(f"session {state.saga_id} is closed already, or is none", hint=_see(state))
    return closed


def _keep(state: State, message: Message, now_ms: int) -> r.SessionKept:
    error = message.error or ErrorInfo("session_failed", said("session_failed"))
    kept = session_records.keep(
        state, message.step, error, now_ms, ask=message.ask, idle_ms=message.idle_ms, message=message.id
    )
    if kept is None:
        raise CancelRefused(f"session {state.saga_id} cannot be kept: it is not open any more", hint=_see(state))
    return kept


def _see(state: State) -> str:
    return said("cancel_refused.hint", saga=state.saga_id)


def check_cancel(state: State) -> None:
    """Raises ``CancelRefused`` if the saga cannot be cancelled (any more)."""
    if state.status in t.SAGA_FINAL:
        raise CancelRefused(said("cancel_refused.ended", saga=state.saga_id, status=state.status), hint=_see(state))
    if state.turns:
        raise CancelRefused(said("cancel_refused.turned", saga=state.saga_id), hint=_see(state))
    if state.ending is not None:
        raise CancelRefused(f"saga {state.saga_id} is at its end: its 'finally' runs", hint=_see(state))
    if state.past_pivot:
        pivot = state.plan.steps[state.plan.pivot or 0].key
        raise CancelRefused(
            said("cancel_refused.pivot", saga=state.saga_id, step=pivot), hint=said("cancel_refused.pivot-hint")
        )


def check_amendment(state: State, steps: Sequence[Mapping[str, Any]]) -> Accepted:
    """What is journalled with added steps; raises ``AmendRefused`` or ``PlanInvalid``."""
    if state.status in t.SAGA_FINAL:
        raise AmendRefused(
            said("amend_refused.ended", saga=state.saga_id, status=state.status), hint=said("amend_refused.hint")
        )
    if state.turns:
        raise AmendRefused(said("amend_refused.turned", saga=state.saga_id), hint=said("amend_refused.hint"))
    if state.ending is not None:
        raise AmendRefused(f"saga {state.saga_id} is at its end: its 'finally' runs", hint=said("amend_refused.hint"))
    if state.session:
        raise AmendRefused(said("amend_refused.session", saga=state.saga_id), hint="use `session.call`")
    if not steps:
        raise AmendRefused(said("amend_refused.empty"), hint="give at least one step, as in a plan")
    if state.growth is None:
        raise AmendRefused(f"the plan of saga {state.saga_id} cannot be read here", hint=_see(state))
    return state.growth.check(state.added, Addition(list(steps)))


def check_fork(state: State) -> None:
    """Raises ``ForkRefused`` unless the saga has ended, or rests with nothing in flight and can still turn around."""
    saga = f"saga {state.saga_id}"
    if state.status in t.SAGA_FINAL:
        return
    if state.status != t.ESCALATED or state.in_flight or state.turns:
        hint = "wait until it ends or rests, or cancel it"
        if state.session and not state.turns:
            hint = "wait until its agent ends; one that died runs again, with on_failure='keep', and then it rests"
        raise ForkRefused(f"{saga} is under way ({state.status})", hint=hint)
    pivot = state.plan.pivot
    if pivot is not None and (state.past_pivot or state.steps[pivot].forward.doubt):
        passed = "has passed" if state.past_pivot else "may have passed"
        raise ForkRefused(f"{saga} {passed} its pivot: it can only go forward", hint="answer its open questions")


def check_transfer(state: State, steps: Sequence[str], to: str) -> None:
    """Raises ``ForkRefused`` unless the saga can be forked, and the effects of ``steps`` still exist and are its own.

    A session's agent may have run again since the fork was chosen, and may have rolled them back.
    """
    check_fork(state)
    for key in steps:
        index = state.plan.by_key.get(key, -1)
        step = None if index < 0 else state.steps[index]
        if step is None or step.status != t.SUCCEEDED or not state.owns(index):
            raise ForkRefused(
                f"step {key} of saga {state.saga_id} has changed since saga {to} chose it", hint="repeat the command"
            )


def _fitting(state: State, message: Message, now_ms: int) -> tuple[Message, OpenQuestion]:
    """The answer with its question's id and as its option is written, and the question. Raises ``DecisionRefused``."""
    question = check_decision(state, message, now_ms)
    decision = ask.chosen(question, message.decision)
    return msgspec.structs.replace(message, question=question.id, decision=decision), question


def check_decision(state: State, message: Message, now_ms: int) -> OpenQuestion:
    """The open question that the answer fits at ``now_ms`` (Unix ms); raises ``DecisionRefused``."""
    open_steps = sorted({state.plan.steps[question.step].key for question in state.questions.values()})
    hint = said("decision_refused.open" if open_steps else "decision_refused.none", steps=", ".join(open_steps))
    index = state.plan.by_key.get(message.step)
    if index is None:
        raise DecisionRefused(said("decision_refused.step", saga=state.saga_id, step=message.step), hint=hint)
    found = [question for question in state.questions.values() if question.step == index]
    if message.question:
        found = [question for question in found if question.id == message.question]
    if not found:
        raise DecisionRefused(said("decision_refused.nothing", step=message.step), hint=hint)
    question = found[0]
    if ask.chosen(question, message.decision) not in question.options:
        raise DecisionRefused(
            said(
                "decision_refused.answer",
                answer=printable(message.decision, 120),
                kind=question.kind,
                step=message.step,
            ),
            hint=said("decision_refused.legal", answers=", ".join(question.options)),
        )
    if question.expires is not None and question.expires <= now_ms:
        raise DecisionRefused(
            f"the question about step {message.step} has expired" + _expiry(question),
            hint="`saga resume` goes on with the saga",
        )
    if question.kind == ask.KIND:
        ask.check(state, question, message.output)
        return question
    happened = message.decision == "happened" and question.direction == FORWARD
    if message.output is not None and not happened:
        raise DecisionRefused(said("decision_refused.no-output"), hint="leave --output out")
    if happened:
        _check_output(state, index, message.output)
    _check_mark(state, question, message)
    return question


def _check_mark(state: State, question: OpenQuestion, message: Message) -> None:
    """Raises ``DecisionRefused`` if other effects follow than expected, or if the answer is one that needs its mark."""
    if not message.expect and not needs_mark(state, question, message.decision):
        return
    found = outlook(state, question, message.decision)
    if found["mark"] == message.expect:
        return
    then = then_words(found)
    key = "decision_refused.others" if message.expect else "decision_refused.twice"
    why = said(key, answer=message.decision, step=message.step, then=then, chars=4000)
    raise DecisionRefused(
        why, hint=said("decision_refused.expect", mark=found["mark"]), then=then, expect=found["mark"]
    )


def _expiry(question: OpenQuestion) -> str:
    """What follows from the end of a question's time."""
    if question.kind == ask.KIND:
        return ""
    return ", so the session is undone" if question.of_session else ", which denies the call"


def _check_output(state: State, index: int, output: Any) -> None:
    """Other steps and the undo may bind the output, so an operator has to provide one that fits."""
    serving = state.acting(index)
    if output is None and output_is_bound(state, index):
        raise DecisionRefused(
            said("decision_refused.output", step=state.plan.steps[index].key),
            hint='give it with --output JSON, e.g. --output \'{"order_id": "…"}\'',
        )
    schema = serving.spec.output_schema if serving.spec else None
    if schema is not None and output is not None:
        problems = serving.spec.check_output(output) if serving.spec else ()
        if problems:
            raise DecisionRefused(
                f"the output does not fit the tool's schema: {problems[0][1]}",
                hint="see `saga show --json` and the tool's output_schema",
            )
