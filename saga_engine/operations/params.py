"""The params that several operations take, as JSON Schema: what each means is written once, for every door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from saga_engine.core.states import SAGA_STATES
from saga_engine.plan.limits import MAX_TO_CHARS

Schema = Mapping[str, Any]
#: Of a job.
MAX_SAGAS: Final = 10_000


def told(schema: Schema, about: str) -> Schema:
    """The schema with what it means here."""
    return {**schema, "description": about}


def made_of(
    properties: Mapping[str, Any], required: Sequence[str] = (), *, closed: bool = True, about: str = ""
) -> Schema:
    """An object. ``closed``: it has no other fields; what the API gives may get new ones."""
    found: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if required:
        found["required"] = list(required)
    if closed:
        found["additionalProperties"] = False
    if about:
        found["description"] = about
    return found


# --- forms -----------------------------------------------------------------------------------------------------------

TEXT: Final[Schema] = {"type": "string"}
TRUTH: Final[Schema] = {"type": "boolean", "default": False}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
#: Its fields are not listed; clients that are generated take any.
ANY_OBJECT: Final[Schema] = {"type": "object", "additionalProperties": True}
ID: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"}
MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
#: Of templates: ``NAME`` or ``NAME@VERSION``.
REFERENCE: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@[1-9][0-9]{0,8})?$"}
NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 200}
TAG: Final[Schema] = {"type": "string", "minLength": 1}

# --- sagas and plans -------------------------------------------------------------------------------------------------

SAGA: Final = told(ID, "The saga's id.")
STEP: Final[Schema] = {"type": ["string", "integer"]}
PLAN: Final = told(
    ANY_OBJECT, "A plan; docs/plan-format.md says what it must have, and `saga schema` prints its JSON Schema."
)
INPUT: Final = told(ANY_OBJECT, "Values for $input.NAME.")
STEPS: Final[Schema] = {"type": "array", "items": ANY_OBJECT, "minItems": 1, "description": "Steps, as in a plan."}
TAGS: Final[Schema] = {"type": "array", "items": told(TAG, "A word by which the saga is found."), "maxItems": 64}
TEMPLATE: Final = told(REFERENCE, "A template, NAME or NAME@VERSION.")
NOTE: Final[Schema] = {
    "type": "string",
    "maxLength": 2000,
    "default": "",
    "description": "The reason, for the journal.",
}
FULL: Final = told(TRUTH, "Outputs whole. Without it, those over 31 KiB appear in their cut form.")
WAIT: Final[Schema] = {
    "type": "number",
    "minimum": 0,
    "maximum": 3600,
    "description": "Wait up to so many seconds until the saga ends or needs an operator.",
}
AFTER: Final[Schema] = {
    "type": "integer",
    "minimum": -1,
    "maximum": 10**9,
    "description": "Records with a greater seq.",
}

# --- searches --------------------------------------------------------------------------------------------------------

STATUS: Final[Schema] = {"type": "string", "enum": [*SAGA_STATES], "description": "Only sagas of this status."}
OF_PLAN: Final = told(TEXT, "Only sagas of plans with this name.")
WITH_TAG: Final[Schema] = {"type": "array", "items": {"type": "string", "description": "Only sagas with this tag."}}
WITH_TOOL: Final = told(TEXT, "Only sagas with a step that calls this tool.")
ASKS: Final = told(TRUTH, "Only sagas with an open question.")
SINCE_MS: Final[Schema] = {**COUNT, "default": 0, "description": "Only sagas created since then (Unix, in ms)."}
LIMIT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
CURSOR: Final[Schema] = {
    "type": "string",
    "pattern": "^[0-9]{1,13}-[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
    "description": "Continue after the page that gave it.",
}
TO: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_TO_CHARS,
    "description": "Only what a plan asks of this name, role or address.",
}
SAGAS: Final[Schema] = {"type": "array", "items": ID, "minItems": 1, "maxItems": MAX_SAGAS}

# --- answers ---------------------------------------------------------------------------------------------------------

DECISION: Final = told(TEXT, "One of the question's options.")
EXPECT: Final[Schema] = {
    **TEXT,
    "default": "",
    "description": "The `mark` of the answer in the question's `outlooks`: refused if other effects follow by now.",
}
DRY_RUN: Final = told(TRUTH, "Only show what would happen; nothing changes.")

# --- stops, events, schedules ----------------------------------------------------------------------------------------

TOOL: Final = told(NAME, "Only the calls of this tool.")
OF_SAGA: Final = told(ID, "Only the calls of this saga; its whole id.")
EVENT: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$"}
KEY: Final[Schema] = {"type": ["string", "integer"], "minLength": 1, "maxLength": 200}
SCHEDULE: Final[Schema] = {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$",
    "description": "The schedule's name.",
}
