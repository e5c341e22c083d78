"""The declarations of the engine's own tools."""

from __future__ import annotations

from typing import Any, Final

from saga_engine.api.operations import OPERATIONS

INSTRUCTIONS: Final = (
    "This server runs plans: steps that call tools, undone in reverse when one fails. saga_tools lists the tools, "
    "saga_plan_format tells how a plan is written. saga_check lists all problems of a plan, with hints: mend them and "
    "check again. saga_simulate tells what would remain if a step failed. saga_submit starts a plan and answers at "
    "once; follow it with saga_show. saga_amend adds steps to one that runs. saga_undo undoes a saga of yours. An "
    "operator answers questions; you cannot."
)

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 1_000_000_000}
_PLAN: Final[dict[str, Any]] = {
    "plan": {"type": "object", "description": "the plan; saga_plan_format returns its schema"},
    "input": {"description": "the values of the plan's $input"},
}
_SAGA: Final = {"type": "string", "description": "the id that saga_submit returned"}
_PROBLEMS: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"code": _TEXT, "path": _TEXT, "message": _TEXT, "hint": _TEXT},
        "required": ["code", "path", "message", "hint"],
    },
}


def _tool(
    name: str, operation: str, about: str, takes: dict[str, Any], gives: dict[str, Any], *required: str
) -> dict[str, Any]:
    """A tool. ``takes``: its params, in words for agents; those of the operation are checked as at its other doors."""
    does = None if not operation else OPERATIONS[operation]
    params = {} if does is None else does.params
    takes = {each: {**params.get(each, {}), **schema} for each, schema in takes.items()}
    schema: dict[str, Any] = {"type": "object", "properties": takes, "additionalProperties": False}
    hints = {"readOnlyHint": True, "openWorldHint": False}
    if does is not None and does.effect != "read":
        hints = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": does.effect == "settles"}
    return {
        "name": name,
        "description": about,
        "inputSchema": schema | ({"required": [*required]} if required else {}),
        "outputSchema": {"type": "object", "properties": gives},
        "annotations": hints,
    }


_STATE: Final[dict[str, Any]] = {"saga_id": _TEXT, "status": _TEXT}
_LISTED: Final = (
    _tool(
        "saga_tools",
        "listTools",
        "List the tools that a plan may call: name, description, params, effect, and the tool that undoes it.",
        {"query": {**_TEXT, "description": "a part of the name or description"}, "offset": _COUNT},
        {"tools": {"type": "array"}, "total": _COUNT, "next_offset": _COUNT},
    ),
    _tool(
        "saga_plan_format",
        "",
        "How a plan is written: its JSON Schema, and the parts of the format that you may use.",
        {},
        {"schema": {"type": "object"}, "may_use": {"type": "object"}, "max_steps": _COUNT},
    ),
    _tool(
        "saga_check",
        "checkPlan",
        "List all problems of a plan, each with its path and a hint. Nothing runs.",
        _PLAN,
        {"valid": {"type": "boolean"}, "problems": _PROBLEMS},
        "plan",
    ),
    _tool(
        "saga_simulate",
        "simulatePlan",
        "Tell what happens if any single step of a plan fails: what is undone, what remains, what is asked. Nothing "
        "runs.",
        _PLAN,
        {"clean": {"type": "boolean"}, "said": _TEXT, "summary": {"type": "object"}, "scenarios": {"type": "array"}},
        "plan",
    ),
    _tool(
        "saga_submit",
        "submitSaga",
        "Start a plan. Answers at once with the saga's id. The same key and plan again is the same saga.",
        {**_PLAN, "key": {**_TEXT, "description": "your name for this saga: letters, digits, '.', '_', '-'"}},
        {**_STATE, "next": _TEXT},
        "plan",
    ),
    _tool(
        "saga_show",
        "showSaga",
        "The state of a saga of yours: its steps, outputs, open questions, and what remains.",
        {
            "saga_id": _SAGA,
            "wait_s": {
                "type": "number",
                "minimum": 0,
                "maximum": 60,
                "description": "wait so long for its end, or until an operator is asked",
            },
            "step": {**_TEXT, "description": "only the output of this step, whole, in parts"},
            "offset": {**_COUNT, "description": "with step: where the part begins (next_offset of the part before)"},
        },
        {
            **_STATE,
            "ended": {"type": "boolean"},
            "steps": {"type": "array"},
            "questions": {"type": "array"},
            "clean": {"type": "boolean"},
        },
        "saga_id",
    ),
    _tool(
        "saga_list",
        "searchSagas",
        "List your sagas, the latest first.",
        {
            "status": {"description": "the state of the sagas"},
            "cursor": {**_TEXT, "description": "the cursor of the page before"},
        },
        {"sagas": {"type": "array"}, "cursor": _TEXT},
    ),
    _tool(
        "saga_amend",
        "amendSaga",
        "Add steps to a saga of yours that runs. They are checked like a plan, run after its last step, and are undone "
        "with the rest. A step without depends_on follows the one before it.",
        {
            "saga_id": _SAGA,
            "steps": {"description": "steps as in a plan, with new ids"},
            "note": {"description": "why"},
        },
        _STATE,
        "saga_id",
        "steps",
    ),
    _tool(
        "saga_undo",
        "undoSaga",
        "Undo a saga of yours, in reverse: cancel one that runs, or undo one that has completed.",
        {"saga_id": _SAGA, "note": {"description": "why"}},
        _STATE,
        "saga_id",
    ),
)
#: Their entries in ``tools/list``, by name.
TOOLS: Final[dict[str, dict[str, Any]]] = {each["name"]: each for each in _LISTED}
