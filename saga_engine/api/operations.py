"""What a client may have the engine do: each operation once, with nothing of the door where it is asked.

``server`` gives each a route, ``gateway`` some of them a tool, ``cli`` a command and
``Coordinator`` a method. The name is that of the HTTP operation. What a door adds is its path or name, its texts, and
how it shows the answer; ``tests/doors/test_operations.py`` says why an operation is at no other door.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from saga_engine.core.states import SAGA_STATES

Schema = Mapping[str, Any]
#: ``write``: asked twice, it happens twice, unless a key or an id says that it is the same. ``settles``: asked again,
#: it changes nothing more.
Effect = Literal["read", "write", "settles"]


class Operation(NamedTuple):
    """What a caller needs for it, and what it does. ``scope`` empty: what it gets is signed.

    ``params``: those that more than one door takes, as JSON Schema; a door may describe them in its own words.
    """

    scope: Literal["", "read", "submit", "resolve", "admin"]
    effect: Effect
    params: Mapping[str, Schema] = {}


NOTE: Final[Schema] = {"type": "string", "maxLength": 2000, "description": "Why, for the journal."}
STEPS: Final[Schema] = {"type": "array", "items": {"type": "object", "additionalProperties": True}, "minItems": 1}
STATUS: Final[Schema] = {"type": "string", "enum": [*SAGA_STATES]}
INPUT: Final[Schema] = {"type": "object", "additionalProperties": True, "description": "Values for $input.NAME."}

OPERATIONS: Final[Mapping[str, Operation]] = {
    "submitSaga": Operation("submit", "write", {"input": INPUT}),
    "searchSagas": Operation("read", "read", {"status": STATUS}),
    "showSaga": Operation("read", "read"),
    "showHistory": Operation("read", "read"),
    "streamSaga": Operation("read", "read"),
    "streamOverview": Operation("read", "read"),
    "cancelSaga": Operation("resolve", "settles", {"note": NOTE}),
    "resolveSaga": Operation("resolve", "settles", {"note": NOTE}),
    "amendSaga": Operation("submit", "write", {"steps": STEPS, "note": NOTE}),
    "undoSaga": Operation("resolve", "settles", {"note": NOTE}),
    "forkSaga": Operation("submit", "write"),
    "resumeSaga": Operation("resolve", "settles"),
    "eraseSaga": Operation("admin", "settles"),
    "checkPlan": Operation("read", "read", {"input": INPUT}),
    "simulatePlan": Operation("read", "read", {"input": INPUT}),
    "makePlan": Operation("submit", "read", {"input": INPUT}),
    "sendEvent": Operation("submit", "write"),
    "listEvents": Operation("read", "read"),
    "receiveEvent": Operation("", "write"),
    "makeCallback": Operation("submit", "write"),
    "callBack": Operation("", "write"),
    "createJob": Operation("resolve", "write", {"note": NOTE}),
    "listJobs": Operation("read", "read"),
    "showJob": Operation("read", "read"),
    "listQuestions": Operation("read", "read"),
    "showOverview": Operation("read", "read"),
    "listTools": Operation("read", "read"),
    "listStops": Operation("read", "read"),
    "listHolds": Operation("read", "read"),
    "releaseHold": Operation("admin", "settles"),
    "stopCalls": Operation("admin", "settles", {"note": NOTE}),
    "liftStop": Operation("admin", "settles"),
    "listSchedules": Operation("read", "read"),
    "showSchedule": Operation("read", "read"),
    "putSchedule": Operation("admin", "settles"),
    "deleteSchedule": Operation("admin", "settles"),
    "pauseSchedule": Operation("admin", "settles", {"note": NOTE}),
    "resumeSchedule": Operation("admin", "settles"),
    "triggerSchedule": Operation("submit", "write"),
    "backfillSchedule": Operation("admin", "write"),
    "listTemplates": Operation("read", "read"),
    "showTemplate": Operation("read", "read"),
    "putTemplate": Operation("admin", "settles"),
    "deleteTemplate": Operation("admin", "settles"),
}
