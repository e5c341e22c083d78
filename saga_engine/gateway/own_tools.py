"""The gateway's own tools: savepoint, rollback, status, preview, read and done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from saga_engine.gateway.answers import document
from saga_engine.gateway.work import Work
from saga_engine.plan.value_schema import ValueSchema

Given = Mapping[str, Any]

INSTRUCTIONS: Final = (
    "The tools of this server are transactional. What you change is recorded and can be undone. "
    "Call saga_savepoint before a part of the work that may fail, and saga_rollback to undo what came after it, or "
    "everything. saga_status tells what stands, saga_preview what a rollback would undo. Call saga_done when the task "
    "is complete. A result that begins with 'pending:' waits for an operator: make the same call again later."
)

_TO: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "savepoint": {
            "type": "string",
            "description": "a name that saga_savepoint returned; without one, everything of this task",
        }
    },
    "additionalProperties": False,
}
_PART: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "call": {"type": "string", "description": "the number of the call, as its result or saga_status names it"},
        "offset": {"type": "integer", "minimum": 0, "description": "the character with which the part begins"},
    },
    "required": ["call"],
    "additionalProperties": False,
}
_NOTHING: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


def _declared(name: str, about: str, schema: dict[str, Any], **hints: bool) -> dict[str, Any]:
    return {"name": name, "description": about, "inputSchema": schema, "annotations": hints}


#: Their entries in ``tools/list``.
OWN_TOOLS: Final = (
    _declared(
        "saga_savepoint",
        "Mark what has been done so far. Returns a savepoint for saga_rollback. Changes nothing.",
        _NOTHING,
        readOnlyHint=True,
    ),
    _declared(
        "saga_rollback",
        "Undo what was done since a savepoint, or everything, in reverse. Returns what was undone and what is left.",
        _TO,
        readOnlyHint=False,
        destructiveHint=True,
    ),
    _declared(
        "saga_status",
        "List the calls of this task, what stands, and what waits for an operator.",
        _NOTHING,
        readOnlyHint=True,
    ),
    _declared(
        "saga_preview",
        "Tell what saga_rollback would undo, and what would remain. Changes nothing.",
        _TO,
        readOnlyHint=True,
    ),
    _declared(
        "saga_read",
        "Read the result of an earlier call of this task in parts, if it was too long. Returns a part of its text, and "
        "next_offset unless it is the last.",
        _PART,
        readOnlyHint=True,
    ),
    _declared(
        "saga_done",
        "End this task: what was done stays. The next call begins a new task.",
        _NOTHING,
        readOnlyHint=False,
        destructiveHint=False,
    ),
)


async def _savepoint(work: Work, _: Given) -> dict[str, Any]:
    return document({"savepoint": await work.savepoint()})


async def _rollback(work: Work, given: Given) -> dict[str, Any]:
    report = await work.rollback(given.get("savepoint"))
    return document(report.to_dict(), failed=not report.clean)


async def _status(work: Work, _: Given) -> dict[str, Any]:
    return document(await work.status())


async def _preview(work: Work, given: Given) -> dict[str, Any]:
    return document(await work.preview(given.get("savepoint")))


async def _read(work: Work, given: Given) -> dict[str, Any]:
    return document(await work.read(given["call"], given.get("offset", 0)))


async def _done(work: Work, _: Given) -> dict[str, Any]:
    return document(await work.done())


_MADE: Final[Mapping[str, Callable[[Work, Given], Awaitable[dict[str, Any]]]]] = {
    "saga_savepoint": _savepoint,
    "saga_rollback": _rollback,
    "saga_status": _status,
    "saga_preview": _preview,
    "saga_read": _read,
    "saga_done": _done,
}


_TAKEN: Final[Mapping[str, Given]] = {each["name"]: each["inputSchema"] for each in OWN_TOOLS}
#: What the arguments of each must fit.
_GATES: Final = {name: ValueSchema(schema) for name, schema in _TAKEN.items()}


def is_own(name: str) -> bool:
    """Whether the gateway itself answers calls of this name."""
    return name in _MADE


async def call_own(work: Work, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Call one of them. Raises what its work raises, and ``ValueError`` for arguments that it does not have."""
    arguments = {key: value for key, value in arguments.items() if value is not None}
    if found := _GATES[name](arguments):
        takes = ", ".join(_TAKEN[name]["properties"]) or "no arguments"
        raise ValueError(f"{name} takes {takes}: {found[0][1]}"[:1000])
    return await _MADE[name](work, arguments)
