"""``ask``: a person's word as a step.

The question is an operator's question like any other (``core.questions``): it opens with ``StepEscalated`` of kind
``ask``, its hooks are notified, and one record ends it: the answer (``QuestionResolved``), its expiry
(``ApprovalExpired``), or the saga's turn. Whatever comes later is refused. Neither text nor answer is interpreted: an
option called *abort* is only a value, and the plan says what follows from it.

The text and the options may bind, so they may come from a model or from the network: both have limits, and options are
words that fit a command line. What cannot be asked fails the step (``ask_invalid``) and is never asked in part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from saga_engine.core import records as r
from saga_engine.core.effects import FORWARD, ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import OpenQuestion
from saga_engine.errors import BindingUnresolved, DecisionRefused
from saga_engine.language.errors import said
from saga_engine.plan.ask import ANSWER, MAX_QUESTION_CHARS, addressee_problem, option_problem
from saga_engine.plan.value_schema import SchemaUnusable, ValueSchema
from saga_engine.plan.values import cut, json_path, printable

#: How large a free answer may be, as JSON: it stays in its record, and is shown whole.
MAX_ANSWER_BYTES: Final = 16_384
KIND: Final = "ask"


class _Asked(NamedTuple):
    """The question with its bindings filled in; without ``options`` the answer is free, and fits ``schema``.

    ``to``: who is asked; empty for any operator.
    """

    text: str
    options: Sequence[str]
    schema: dict[str, Any] | None
    to: str


def begin(state: State, index: int, now: int) -> r.AnyRecord:
    """The record that asks, or the failure of a step that cannot ask."""
    step = state.plan.steps[index]
    try:
        body = step.params.resolve(StateScope(state))[KIND]
        asked = _asked(body)
    except BindingUnresolved as error:
        return _failed(step.key, now, ErrorInfo("binding_unresolved", error.message, retryable=False))
    except ValueError as error:
        return _failed(step.key, now, ErrorInfo("ask_invalid", str(error)[:1000], retryable=False))
    expires_s = body.get("expires_s")
    return r.StepEscalated(
        at=now,
        step=step.key,
        question=f"{step.key}:f:{state.steps[index].forward.asked + 1}",
        kind=KIND,
        options=list(asked.options) or [ANSWER],
        expires_ms=None if expires_s is None else now + round(expires_s * 1000),
        text=asked.text,
        schema=None if asked.options else asked.schema or {"type": "string"},
        to=asked.to,
    )


def as_params(record: r.StepEscalated) -> dict[str, Any]:
    """What was asked, as the params of a call: another saga in which they are the same asks the same."""
    whom = {"to": record.to} if record.to else {}
    return {"text": record.text, "options": record.options, "schema": record.schema, **whom}


def _asked(body: Mapping[str, Any]) -> _Asked:
    """Raises ``ValueError`` for what cannot be asked."""
    text = body["question"]
    if not isinstance(text, str) or not text.strip():
        raise ValueError("the question is no text")
    if len(text) > MAX_QUESTION_CHARS:
        raise ValueError(f"the question has {len(text)} characters, but only {MAX_QUESTION_CHARS} are allowed")
    to = body.get("to")
    if to is not None and (problem := addressee_problem(to)):
        raise ValueError(problem)
    options = body.get("options")
    if options is not None:
        problem = option_problem(options)
        if problem:
            raise ValueError(problem)
        return _Asked(text, options, None, to or "")
    schema = body.get("schema")
    if schema is not None:
        problem = ValueSchema(schema).problem()
        if problem:
            raise ValueError(f"the schema of the answer cannot be used: {problem}")
    return _Asked(text, (), schema, to or "")


def _failed(key: str, now: int, error: ErrorInfo) -> r.StepFailed:
    return r.StepFailed(at=now, step=key, error=error)


# --- the answer ------------------------------------------------------------------------------------------------------


def chosen(question: OpenQuestion, decision: str) -> str:
    """The option that a decision means: capitals make no difference."""
    if decision in question.options:
        return decision
    same = [option for option in question.options if option.casefold() == decision.casefold()]
    return same[0] if same else decision


def check(state: State, question: OpenQuestion, output: Any) -> None:
    """Raises ``DecisionRefused`` if the value of an answer does not fit the question."""
    key = state.plan.steps[question.step].key
    if question.schema is None:
        if output is not None:
            raise DecisionRefused(
                f"the question of step {key} is answered with one of its options, not with a value",
                hint=f"leave --output out; legal answers: {', '.join(question.options)}",
            )
        return
    if output is None:
        raise DecisionRefused(
            f"the question of step {key} wants a value", hint=f"give it with --output JSON; {_wanted(question.schema)}"
        )
    size = len(msgspec.json.encode(output))
    if size > MAX_ANSWER_BYTES:
        raise DecisionRefused(f"the answer has {size} bytes of JSON, but only {MAX_ANSWER_BYTES} are allowed", hint="")
    try:
        found = ValueSchema(question.schema)(output)
    except (SchemaUnusable, ValueError, TypeError) as error:
        raise DecisionRefused(f"the answer cannot be checked: {printable(str(error), 300)}") from error
    if found:
        path, message = found[0]
        raise DecisionRefused(
            f"the answer does not fit: {json_path(path)}: {printable(message, 300)}", hint=_wanted(question.schema)
        )


def _wanted(schema: Mapping[str, Any]) -> str:
    return f"it must fit {cut(schema, 300)}"


def output_of(question: OpenQuestion, record: r.QuestionResolved) -> dict[str, Any]:
    """The step's output after an answer."""
    answer = record.decision if question.schema is None else record.output
    return {"answer": answer, "by": record.by, "note": record.note}


# --- no answer -------------------------------------------------------------------------------------------------------


def expired(state: State, question: OpenQuestion, now: int) -> r.ApprovalExpired:
    """Nobody answered in time: what the step's ``on_timeout`` says."""
    step = state.plan.steps[question.step]
    said: Any = step.params.raw[KIND].get("on_timeout", "fail")
    then, value = str(said), None
    if isinstance(said, Mapping):
        then, value = "value", {"answer": said["value"], "by": "", "note": "", "expired": True}
    return r.ApprovalExpired(at=now, question=question.id, step=step.key, direction=FORWARD, then=then, output=value)


#: The error of a step whose question expired.
EXPIRED: Final = ErrorInfo("ask_expired", said("ask_expired"), retryable=False)
