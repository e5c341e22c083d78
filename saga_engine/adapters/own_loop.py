"""For an agent that loops over a model's answers by itself: a tool call becomes a call of the session.

``registry.openai_tools()`` and ``registry.anthropic_tools()`` are what the model is offered, and ``answer`` makes one
of its calls. What was not done comes back as an error that the model reads and mends; every other error is raised::

    for call in message.tool_calls:
        given = await answer(session, call.function.name, call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": given.content})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from saga_engine.adapters.results import RESULT_BYTES, shown_result
from saga_engine.adapters.tool_adapter import short, words
from saga_engine.core.state_values import Deduplicated
from saga_engine.errors import CallInvalid, PlanInvalid, Problem, SagaError
from saga_engine.plan.values import cut
from saga_engine.runtime.session import Session

_PROBLEMS: Final = 20


class Answer(NamedTuple):
    """What a model gets for one of its calls: ``content`` is a text of JSON, ``is_error`` whether it was not done."""

    content: str
    is_error: bool = False


async def answer(
    session: Session,
    name: str,
    arguments: str | bytes | Mapping[str, Any],
    *,
    irreversible: bool = False,
    result_bytes: int | None = RESULT_BYTES,
) -> Answer:
    """Make a call that a model asked for. ``arguments``: OpenAI's text of JSON, or the ``input`` of Anthropic.

    A call that was not done, an unknown tool and arguments that do not fit are an ``Answer`` with ``is_error``, whose
    content is ``{"error": {"code", "message", "hint", "problems"}}``. One that was not made because another saga has
    made the same (``dedupe_ttl_s``) is answered ``{"deduplicated": true, "result": ...}``. What the model cannot mend
    is raised, such as ``NeedsPerson``, ``SessionDiverged`` and ``StoreUnavailable``. ``irreversible``: the tool writes,
    has no undo, and may be called nevertheless. A result over ``result_bytes`` of JSON is cut; None: never.
    """
    try:
        params = object_of(name, arguments)
        step, output = await session.numbered_call(name, params, irreversible=irreversible)
    except SagaError as error:
        told = words(error)
        if told is None:
            raise
        return Answer(msgspec.json.encode({"error": _body(error, told)}).decode(), is_error=True)
    shown = shown_result(step, output, result_bytes, fetched=False)
    result = {"deduplicated": True, "result": shown} if _repeats(session, step) else shown
    return Answer(msgspec.json.encode(result).decode())


def _repeats(session: Session, step: str) -> bool:
    """Whether a call had no effect of its own, because another saga has just made an identical one."""
    state = session._state  # noqa: SLF001 - a view of the same session; an observed one has none
    return state is not None and isinstance(state.steps[state.plan.by_key[step]].effect, Deduplicated)


def object_of(name: str, arguments: str | bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments as an object. Raises ``CallInvalid``."""
    if isinstance(arguments, Mapping):
        return arguments
    try:
        found = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise _invalid(name, "params-no-json", f"the arguments are no JSON: {error}") from None
    if not isinstance(found, dict):
        raise _invalid(name, "params-no-object", f"the arguments are no object: {cut(found, 80)}")
    return found


def _invalid(name: str, code: str, message: str) -> CallInvalid:
    problem = Problem(code, "$", message, "write the arguments as one JSON object")
    return CallInvalid.of(name, [problem])


def _body(error: SagaError, told: str) -> dict[str, Any]:
    """An error as a model can use it: which code, what is wrong where, and what to do."""
    code = getattr(error, "error_code", "") or error.code
    if isinstance(error, PlanInvalid | CallInvalid):
        return {"code": code, "message": told, "problems": [each.to_dict() for each in error.problems[:_PROBLEMS]]}
    body = {"code": code, "message": short(error.message)}
    return body | {"hint": short(error.hint)} if error.hint else body
