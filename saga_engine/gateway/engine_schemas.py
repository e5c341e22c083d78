"""The declarations of the engine's own tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from saga_engine.operations.params import Schema
from saga_engine.operations.table import OPERATIONS, Operation

INSTRUCTIONS: Final = (
    "This server runs plans: steps that call tools, undone in reverse when one fails. saga_tools lists the tools, "
    "saga_plan_format tells how a plan is written. saga_check lists all problems of a plan, with hints: mend them and "
    "check again. saga_simulate tells what would remain if a step failed. saga_submit starts a plan and answers at "
    "once; follow it with saga_show. saga_amend adds steps to one that runs. saga_undo undoes a saga of yours. An "
    "operator answers questions; you cannot."
)

#: How long a request waits at most for a saga, in seconds: an agent's client gives up later than that.
MAX_WAIT_S: Final = 60.0
_WAITS: Final = "wait so long for its end, or until an operator is asked"
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 1_000_000_000}
_PLAN: Final = {
    "plan": "the plan; saga_plan_format returns its schema",
    "input": "the values of the plan's $input",
}
_SAGA: Final = {"saga_id": "the id that saga_submit returned"}
_PROBLEMS: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"code": _TEXT, "path": _TEXT, "message": _TEXT, "hint": _TEXT},
        "required": ["code", "path", "message", "hint"],
    },
}


#: What no operation is done by only reads.
_READS: Final = Operation("read", "read")
_OPEN: Final = ("additionalProperties", True)


def tool(
    name: str,
    operation: str,
    about: str,
    takes: Mapping[str, str],
    gives: dict[str, Any],
    *,
    own: Mapping[str, Any] = {},
    required: Sequence[str] = (),
) -> dict[str, Any]:
    """A tool. ``takes``: params of the operation, in words for agents; the ``own`` ones are the tool's alone."""
    does = OPERATIONS.get(operation, _READS)
    params = {each: _checked_as(does.params[each], words) for each, words in takes.items()} | dict(own)
    needs = [each for each in does.required if each in takes] + [*required]
    schema: dict[str, Any] = {"type": "object", "properties": params, "additionalProperties": False}
    hints = {"readOnlyHint": True, "openWorldHint": False}
    if does.effect != "read":
        hints = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": does.effect == "settles"}
    return {
        "name": name,
        "description": about,
        "inputSchema": schema | ({"required": needs} if needs else {}),
        "outputSchema": {"type": "object", "properties": gives},
        "annotations": hints,
    }


def _checked_as(schema: Schema, words: str) -> dict[str, Any]:
    """The param as the table has it; a default is left out, and that an object is open: a model pays for each word."""
    kept = {name: each for name, each in schema.items() if name != "default" and (name, each) != _OPEN}
    return {**kept, "description": words}


_STATE: Final[dict[str, Any]] = {"saga_id": _TEXT, "status": _TEXT}
_LISTED: Final = (
    tool(
        "saga_tools",
        "listTools",
        "List the tools that a plan may call: name, description, params, effect, and the tool that undoes it.",
        {},
        {"tools": {"type": "array"}, "total": _COUNT, "next_offset": _COUNT},
        own={"query": {**_TEXT, "description": "a part of the name or description"}, "offset": _COUNT},
    ),
    tool(
        "saga_plan_format",
        "",
        "How a plan is written: its JSON Schema, and the parts of the format that you may use.",
        {},
        {"schema": {"type": "object"}, "may_use": {"type": "object"}, "max_steps": _COUNT},
    ),
    tool(
        "saga_check",
        "checkPlan",
        "List all problems of a plan, each with its path and a hint. Nothing runs.",
        _PLAN,
        {"valid": {"type": "boolean"}, "problems": _PROBLEMS},
    ),
    tool(
        "saga_simulate",
        "simulatePlan",
        "Tell what happens if any single step of a plan fails: what is undone, what remains, what is asked. Nothing "
        "runs.",
        _PLAN,
        {"clean": {"type": "boolean"}, "said": _TEXT, "summary": {"type": "object"}, "scenarios": {"type": "array"}},
    ),
    tool(
        "saga_submit",
        "submitSaga",
        "Start a plan. Answers at once with the saga's id. The same key and plan again is the same saga.",
        _PLAN,
        {**_STATE, "next": _TEXT},
        own={"key": {**_TEXT, "description": "your name for this saga: letters, digits, '.', '_', '-'"}},
        required=["plan"],  # a template is an operator's
    ),
    tool(
        "saga_show",
        "showSaga",
        "The state of a saga of yours: its steps, outputs, open questions, and what remains.",
        {**_SAGA, "step": "only the output of this step, whole, in parts"},
        {
            **_STATE,
            "ended": {"type": "boolean"},
            "steps": {"type": "array"},
            "questions": {"type": "array"},
            "clean": {"type": "boolean"},
        },
        own={
            "wait_s": {**OPERATIONS["showSaga"].params["wait"], "maximum": MAX_WAIT_S, "description": _WAITS},
            "offset": {**_COUNT, "description": "with step: where the part begins (next_offset of the part before)"},
        },
    ),
    tool(
        "saga_list",
        "searchSagas",
        "List your sagas, the latest first.",
        {"status": "the state of the sagas", "cursor": "the cursor of the page before"},
        {"sagas": {"type": "array"}, "cursor": _TEXT},
    ),
    tool(
        "saga_amend",
        "amendSaga",
        "Add steps to a saga of yours that runs. They are checked like a plan, run after its last step, and are undone "
        "with the rest. A step without depends_on follows the one before it.",
        {**_SAGA, "steps": "steps as in a plan, with new ids", "note": "why"},
        _STATE,
    ),
    tool(
        "saga_undo",
        "undoSaga",
        "Undo a saga of yours, in reverse: cancel one that runs, or undo one that has completed.",
        {**_SAGA, "note": "why"},
        _STATE,
    ),
)
#: Their entries in ``tools/list``, by name.
TOOLS: Final[dict[str, dict[str, Any]]] = {each["name"]: each for each in _LISTED}
