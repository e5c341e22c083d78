"""Answers of the protocol: results of calls as their servers gave them, and errors that a model can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from saga_engine.core.effects import ErrorInfo
from saga_engine.errors import CallFailed, NeedsPerson, PlanInvalid, SagaError
from saga_engine.gateway.offer import Offered
from saga_engine.gateway.parts import cut_answer, fits
from saga_engine.plan.values import printable
from saga_engine.sources.mcp.results import ANSWER, CONTENT, answer_of

#: The field of ``_meta`` with what the gateway says of an answer.
META: Final = "saga-engine.dev/call"
#: What every result of the newer era says; the SDK leaves it out for clients of the older one.
COMPLETE: Final = {"resultType": "complete"}
_TEXT_CHARS: Final = 4_000


def result(tool: Offered, output: Any, about: dict[str, Any], most_bytes: int = 0) -> dict[str, Any]:
    """The answer to a call that happened: the server's own, with the call's number in ``_meta``.

    Of one over ``most_bytes`` the beginning; 0: none is cut.
    """
    made = answer_of(output)
    if tool.is_structured and "structuredContent" not in made and isinstance(output, dict):
        # A probe or an operator gave the output.
        made["structuredContent"] = {name: value for name, value in output.items() if name not in (ANSWER, CONTENT)}
    made["isError"] = False
    if tool.is_remote and tool.is_structured and "structuredContent" not in made:
        # A client refuses an answer without what its tool declares, unless it is an error.
        note = "result_unknown: the call was done, and nothing is wrong. Only its result is not known."
        made = {"content": [{"type": "text", "text": note}, *made["content"]], "isError": True}
    if not fits(made, most_bytes):
        made, more = cut_answer(output, about, is_structured=tool.is_structured)
        about = about | more
    if late := _late(about):
        made["content"] = [*made["content"], {"type": "text", "text": late}]
    return {**COMPLETE, **made, "_meta": {META: about}}


def document(body: dict[str, Any], *, failed: bool = False) -> dict[str, Any]:
    """The answer of one of the gateway's own tools."""
    text = json.dumps(body, ensure_ascii=False, indent=1)
    content = [{"type": "text", "text": text}]
    return {**COMPLETE, "content": content, "structuredContent": body, "isError": failed}


def bounded(body: Mapping[str, Any], most: int) -> dict[str, Any]:
    """A body whose lists name so many things at most; beside a list that is cut stands how many there are."""
    made: dict[str, Any] = {}
    for name, value in body.items():
        made[name] = value[:most] if isinstance(value, list) else value
        if isinstance(value, list) and len(value) > most:
            made[f"{name}_total"] = len(value)
    return made


def refusal(error: SagaError, about: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer to a call that has no result: a code, what is wrong, and what to do."""
    code, what, hint = _said(error)
    late = _late(about or {})
    lines = [f"{code}: {what}", *([f"Hint: {hint}"] if hint else []), *([late] if late else [])]
    told = {**(about or {}), "error": {"code": code, "message": _short(what), "hint": hint}}
    return {
        **COMPLETE,
        "content": [{"type": "text", "text": _short("\n".join(lines))}],
        "isError": True,
        "_meta": {META: told},
    }


def pending(saga_id: str, step: str, question: dict[str, Any]) -> dict[str, Any]:
    """The answer to a call that waits for an operator."""
    kind = str(question.get("kind", "question"))
    options = [str(each) for each in question.get("options", [])]
    why = {
        "approval": "an operator must approve it; it has not been made",
        "in-doubt": "it was made, and nobody knows yet whether it happened",
    }.get(kind, "an operator is asked about it")
    said = ErrorInfo(kind, str((question.get("error") or {}).get("message", "")))
    text = (
        f"pending: call {step} of saga {saga_id} waits for an operator ({kind}): {why}. {said.message}\n"
        f"Hint: the operator sees it with `saga inbox` and answers with `saga resolve {saga_id} {step} "
        f"{'|'.join(options) or 'ANSWER'}`. Then make the same call again: it gets the result and is not made twice. "
        f"saga_rollback without a savepoint gives up everything."
    )
    about = {"saga_id": saga_id, "call": step, "pending": {"kind": kind, "options": options}}
    return {
        **COMPLETE,
        "content": [{"type": "text", "text": _short(text)}],
        "isError": True,
        "_meta": {META: about},
    }


def _late(about: dict[str, Any]) -> str:
    """What a client's user must know who answered a question that was closed."""
    word = about.get("too_late")
    return f"Note: an operator answered first; the answer of the client's user ({word}) came too late." if word else ""


def _short(text: str) -> str:
    return "\n".join(printable(line, _TEXT_CHARS) for line in text[:_TEXT_CHARS].split("\n"))


def _said(error: SagaError) -> tuple[str, str, str]:
    if isinstance(error, CallFailed):
        return error.error_code or error.code, error.message, error.hint or ""
    if isinstance(error, PlanInvalid):
        what = "; ".join(f"{each.path}: {each.message}" for each in error.problems)
        return error.problems[0].code if error.problems else error.code, what, error.hint or ""
    if isinstance(error, NeedsPerson):
        return error.code, error.message, "`saga inbox` lists the open questions; then make the call again"
    return error.code, error.message, error.hint or ""
