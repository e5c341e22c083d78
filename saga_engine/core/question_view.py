"""What operators are shown of a question: the call that it is about, what is known, and what follows from an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from saga_engine.core import views as v
from saga_engine.core.codec import Stored
from saga_engine.core.effects import COMPENSATE, FORWARD, Direction, ErrorInfo
from saga_engine.core.outlooks import outlooks
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import CallState, OpenQuestion, Proposal, StepState
from saga_engine.errors import BindingUnresolved, JournalUnreadable
from saga_engine.plan.preview import brief


def questions(state: State) -> list[v.QuestionView]:
    """The open questions, each with what follows from its answers (``core.outlooks``)."""
    if not state.questions:
        return []
    follows = outlooks(state)
    return [_question(state, question, follows.get(question.id, {})) for question in state.questions.values()]


def addressed(question: Mapping[str, Any], to: str) -> bool:
    """Whether a shown question is asked of this name, role or address; capitals make no difference."""
    return str(question.get("to") or "").casefold() == to.casefold()


def shown_outlooks(state: State, follows: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Outlooks for operators: what would be undone has the params of its call, which say how much."""
    places = {str(step.step_id): step.index for step in state.plan.steps} if follows else {}
    made: dict[str, dict[str, Any]] = {}
    for option, body in follows.items():
        undoes = [
            {**each, "params": asked_params(state, places[str(each["step_id"])], FORWARD)}
            for each in body.get("undoes", ())
        ]
        made[option] = {**body, "undoes": undoes} if undoes else body
    return made


def _question(state: State, question: OpenQuestion, follows: Mapping[str, dict[str, Any]]) -> v.QuestionView:
    compiled = state.plan.steps[question.step]
    body: dict[str, Any] = {"idempotency_key": None}
    if question.of_call:
        body |= _asked_call(state, question)
    undo = undo_call_of(state, question.step, question.direction)
    if undo is not None:
        body["undo_call"] = v.UndoCallPlace(**undo)
    if question.kind == "approval":
        body |= {"call": question.call, "rule": question.rule, "expires_ms": question.expires}
    if question.found is not None:
        body |= {**images(state.steps[question.step]), "found": _cut_image(question.found)}
    if question.of_session:
        body["expires_ms"] = question.expires
    if question.kind == "ask":
        body |= {"text": question.text, "schema": question.schema, "expires_ms": question.expires}
        body |= {"to": question.to} if question.to else {}
    if question.kind == "compensation":
        steps = proposed_steps(state, question.step)
        body |= {"steps": steps, "call": question.call, "expires_ms": question.expires}
        proposal = state.steps[question.step].semantic
        if isinstance(proposal, Proposal) and proposal.why:
            body["why"] = proposal.why
    return v.QuestionView(
        question_id=question.id,
        step_id=compiled.step_id,
        tool=asked_tool(state, question.step, question.direction),
        direction=question.direction,
        kind=question.kind,
        options=list(question.options),
        error=shown_error(question.error),
        asked_ms=question.at,
        outlooks=shown_outlooks(state, follows),
        **body,
    )


def _asked_call(state: State, question: OpenQuestion) -> dict[str, Any]:
    """The call that a question is about: its params, its key if it has one, and when it was first made."""
    step = state.steps[question.step]
    call = step.forward if question.direction == FORWARD else step.undo or CallState()
    made = bool(call.attempt - call.not_made)
    key = state.key(question.step, question.direction)
    return {
        "params": asked_params(state, question.step, question.direction),
        "idempotency_key": None if call.unkeyed == "never" or not call.attempt else key,
        "called_ms": call.first_at if made and call.first_at else None,
    }


def keyless_since(state: State, question: OpenQuestion) -> int | None:
    """When the call of a question was first made, in Unix ms, if no key finds it; else None."""
    if not question.of_call:
        return None
    call = _asked_call(state, question)
    made_ms: int | None = call["called_ms"]
    return made_ms if call["idempotency_key"] is None else None


def undo_call_of(state: State, index: int, direction: Direction) -> dict[str, int] | None:
    """Which call of an undo of several calls a question is about; None: the undo is one call, or has not begun."""
    call = state.steps[index].undo_call if direction == COMPENSATE else None
    return None if call is None else {"number": call.number, "of": call.of}


def proposed_steps(state: State, index: int) -> list[Any] | None:
    """The steps of a proposed semantic compensation, while an operator is asked about them."""
    proposal = state.steps[index].semantic
    return list(proposal.added.addition.steps) if isinstance(proposal, Proposal) else None


def asked_tool(state: State, index: int, direction: Direction) -> str:
    """The tool that a question about a step concerns."""
    rollback = state.undoing(index) if direction == COMPENSATE else None
    return state.acting(index).tool if rollback is None else rollback.tool


def asked_params(state: State, index: int, direction: Direction) -> dict[str, Any] | None:
    """The params of a step's call in one direction, in a cut form, secrets as markers; None if they are unknown.

    This form is for operators who approve a call, and for views.
    """
    undo = state.steps[index].undo if direction == COMPENSATE else None
    params = None if undo is None else undo.params
    if params is None:
        params = resolved(state, index, direction, AtHand(state))
    if params is None:
        return None
    return brief_params(params)


def brief_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Cut less than elsewhere: an operator's answer depends on it."""
    return {name: brief(value, max_bytes=8192, max_items=20, max_text=1000) for name, value in params.items()}


def resolved(state: State, index: int, direction: Direction, scope: AtHand) -> Mapping[str, Any] | None:
    """The params of a step's call in one direction; None if they are unknown."""
    serving = state.acting(index) if direction == FORWARD else state.undoing(index)
    if serving is None:
        return None
    try:
        params = serving.params.resolve(scope)
    except (BindingUnresolved, JournalUnreadable):
        return None
    if direction == COMPENSATE and serving.spec is None and not params:
        return None  # the tool knows what its registered undo is called with
    return params


class AtHand(StateScope):
    """The values of bindings if some may be missing; a value that was not fetched is none.

    ``seen``: the steps whose outputs were requested.
    """

    __slots__ = ("seen",)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.seen: set[str] = set()

    def output(self, step_key: str) -> Any:
        """The output, if it is at hand; raises ``BindingUnresolved`` and ``JournalUnreadable``."""
        value = super().output(step_key)
        self.seen.add(step_key)
        if isinstance(value, Stored):
            raise JournalUnreadable(f"the output of step {step_key} is not at hand", step=step_key)
        return value


def images(step: StepState) -> dict[str, Any]:
    """The value before and after a step's call, in a cut form; None where there is no image."""
    return {"before": _cut_image(step.before), "after": _cut_image(step.after)}


def _cut_image(image: Any) -> Any:
    if image is None or isinstance(image, Stored):
        return None if image is None else image.cut
    return brief(image, max_bytes=8192, max_items=20, max_text=1000)


def shown_error(error: ErrorInfo | None) -> ErrorInfo | None:
    """An error without the traceback, which does not help an operator."""
    return error if error is None or error.traceback is None else msgspec.structs.replace(error, traceback=None)


def error_dict(error: ErrorInfo | None) -> dict[str, Any] | None:
    """The same as plain JSON."""
    return None if error is None else msgspec.to_builtins(shown_error(error))
