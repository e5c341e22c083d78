"""Each operation of the engine is at every door, or it is written why not; and a param of it is declared once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from saga_engine import Coordinator
from saga_engine.api.operations import OPERATIONS, Operation
from saga_engine.api.schedules import Schedules
from saga_engine.api.temporal import TemporalCoordinator
from saga_engine.api.unsupported import Unsupported
from saga_engine.cli import app
from saga_engine.errors import RuntimeUnsupported
from saga_engine.execution.templates import Templates
from saga_engine.gateway.engine_schemas import TOOLS
from saga_engine.server.routes import operations as routes

# --- why an operation is not at a door -------------------------------------------------------------------------------


class Why(str):
    """A reason, in the place of a name."""

    __slots__ = ()


AGENTS = Why("an agent reaches its own sagas: what operators set and see is not its affair")
WRITES_PLANS = Why("the agent writes its plans itself")
SIGNED = Why("asked by somebody else's server, with what the engine gave it; no client's affair")
FOR_PAGES = Why("pages follow it; a client of Python or a terminal asks again, or uses `top`")
BATCHES = Why("the options of resolve, resume and cancel that choose many; `Coordinator.select` and `act_on`")
OF_STORE = Why("of the store: `saga_engine.api` has it as a function over one")
KEY_ONLY = Why("a callback's address is a server's, which signs it")


class At(NamedTuple):
    """Where an operation is asked: the command, the tool of `saga mcp --engine`, the method; or why nowhere."""

    cli: str
    mcp: str
    python: str


DOORS: Mapping[str, At] = {
    "submitSaga": At("submit", "saga_submit", "submit"),
    "searchSagas": At("list", "saga_list", "search"),
    "showSaga": At("show", "saga_show", "show"),
    "showHistory": At(
        "history", Why("the agent sees steps, outputs and questions; records are an operator's"), "history"
    ),
    "streamSaga": At("show", Why("a client of MCP waits with wait_s"), "follow"),
    "streamOverview": At("top", AGENTS, FOR_PAGES),
    "cancelSaga": At("cancel", "saga_undo", "cancel"),
    "resolveSaga": At("resolve", Why("an operator answers; an agent cannot"), "resolve"),
    "amendSaga": At("amend", "saga_amend", "amend"),
    "undoSaga": At("undo", "saga_undo", "undo"),
    "forkSaga": At("fork", Why("an agent writes a new plan"), "fork"),
    "resumeSaga": At("resume", Why("workers resume by themselves; " + AGENTS), "resume"),
    "eraseSaga": At("erase", AGENTS, "erase"),
    "checkPlan": At("check", "saga_check", "check"),
    "simulatePlan": At("simulate", "saga_simulate", "simulate"),
    "makePlan": At("plan", WRITES_PLANS, "plan"),
    "sendEvent": At("event", Why("an agent that could send events could answer what others are asked"), "send_event"),
    "listEvents": At("events", AGENTS, "events"),
    "receiveEvent": At(SIGNED, SIGNED, SIGNED),
    "makeCallback": At(KEY_ONLY, KEY_ONLY, "require_waiting"),
    "callBack": At(SIGNED, SIGNED, "answer_wait"),
    "createJob": At(BATCHES, AGENTS, "select"),
    "listJobs": At(BATCHES, AGENTS, BATCHES),
    "showJob": At(BATCHES, AGENTS, BATCHES),
    "listQuestions": At(
        "inbox", Why("saga_show has those of its own sagas; " + AGENTS), Why("show and search have them")
    ),
    "showOverview": At("top", AGENTS, "overview"),
    "listTools": At("tools", "saga_tools", "tool_stats"),
    "listStops": At("stop", AGENTS, OF_STORE),
    "listHolds": At("release", AGENTS, OF_STORE),
    "releaseHold": At("release", AGENTS, OF_STORE),
    "stopCalls": At("stop", AGENTS, OF_STORE),
    "liftStop": At("go", AGENTS, OF_STORE),
    "listSchedules": At("schedule list", AGENTS, "schedules.list"),
    "showSchedule": At("schedule show", AGENTS, "schedules.get"),
    "putSchedule": At("schedule put", AGENTS, "schedules.put"),
    "deleteSchedule": At("schedule delete", AGENTS, "schedules.delete"),
    "pauseSchedule": At("schedule pause", AGENTS, "schedules.pause"),
    "resumeSchedule": At("schedule resume", AGENTS, "schedules.resume"),
    "triggerSchedule": At("schedule trigger", AGENTS, "schedules.trigger"),
    "backfillSchedule": At("schedule backfill", AGENTS, "schedules.backfill"),
    "listTemplates": At("template list", WRITES_PLANS, "templates.list"),
    "showTemplate": At("template show", WRITES_PLANS, "templates.get"),
    "putTemplate": At("template put", WRITES_PLANS, "templates.put"),
    "deleteTemplate": At("template delete", WRITES_PLANS, "templates.delete"),
}
#: What a door has beside the operations, and why it is none.
OWN = {
    "cli": {
        "init": "writes files", "schema": "a document", "worker": "is a process", "serve": "is a process",
        "mcp": "is a process", "doctor": "looks at this machine", "purge": "of the store, by who owns it",
        "graph": "draws", "inspect": "reads files", "trace export": "writes a file", "trace verify": "reads a file",
        "trace replay": "reads a file", "token create": "a server's tokens are made beside it",
        "token list": "a server's tokens", "token revoke": "a server's tokens", "archive list": "reads files",
        "archive show": "reads files", "keys new": "the operator's keys", "keys list": "the operator's keys",
        "keys rewrap": "the operator's keys",
    },
    "mcp": {"saga_plan_format": "a document"},
    "python": {
        "act_on": "carries out what `select` chose", "close": "of the object", "drives": "of the object",
        "enqueue": "of the object: `submit` of what it does not run", "list": "`search` by state alone",
        "open": "of the object", "ownership": "of the process", "plan_and_run": "two operations",
        "planner_may_use": "a setting", "purge": "of the store", "register": "tools of this process",
        "resume_all": "`resume` of each", "schedules.ticks": "what `triggerSchedule` and workers do", "templates.chosen": "of the object",
        "templates.expanded": "of the object", "run": "`submit` and `wait`", "session": "an agent's own program",
        "takes_sagas": "of the object", "trace": "writes a file", "wait": "`show` with wait", "work": "is a worker",
    },
}  # fmt: skip


def commands() -> Iterator[tuple[str, Any]]:
    for name, found in get_command(app).commands.items():  # type: ignore[attr-defined]
        nested = getattr(found, "commands", None)
        yield from ((f"{name} {each}", one) for each, one in nested.items()) if nested else [(name, found)]


def methods() -> set[str]:
    parts = {"schedules": Schedules, "templates": Templates}
    own = {name for name in vars_of(Coordinator) if name not in parts}
    return own | {f"{part}.{name}" for part, kind in parts.items() for name in vars_of(kind)}


def vars_of(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def found_at(door: str) -> set[str]:
    return {"cli": {name for name, _ in commands()}, "mcp": set(TOOLS), "python": methods()}[door]


# --- the measures ----------------------------------------------------------------------------------------------------


def missing(table: Mapping[str, Operation]) -> list[str]:
    """What the doors lack of a table of operations, and have beyond it, without a written reason."""
    served = {each.name for each in routes()}
    lacks = [f"{name}: no route" for name in table if name not in served]
    lacks += [f"{name}: a route of no operation" for name in served - set(table)]
    lacks += [f"{name}: at no door, and no reason" for name in table if name not in DOORS]
    for door in At._fields:
        there, known = found_at(door), {getattr(each, door) for name, each in DOORS.items() if name in table}
        lacks += [f"{name}: not at {door}" for name in known - there if not isinstance(name, Why)]
        lacks += [f"{name}: at {door}, and no operation" for name in there - known - set(OWN[door])]
    return sorted(lacks)


def test_every_operation_is_at_every_door() -> None:
    """A route, a command, a tool and a method; or the reason is written above."""
    assert missing(OPERATIONS) == []
    assert set(DOORS) == set(OPERATIONS)
    for door in At._fields:
        assert set(OWN[door]) <= found_at(door), f"{door} has less beside the operations"


def test_an_operation_that_is_added_in_one_place_is_missed_at_the_others() -> None:
    """In the table; as a route; as a command, a tool or a method."""
    added = {**OPERATIONS, "pruneSagas": Operation("admin", "settles")}
    assert missing(added) == ["pruneSagas: at no door, and no reason", "pruneSagas: no route"]
    without = {name: each for name, each in OPERATIONS.items() if name != "forkSaga"}
    assert missing(without) == [
        "fork: at cli, and no operation",
        "fork: at python, and no operation",
        "forkSaga: a route of no operation",
    ]


def test_temporal_keeps_each_method_of_an_operation_or_refuses_it_by_name() -> None:
    """Nothing is there only sometimes: who writes for both runtimes is told, and meets no ``AttributeError``."""
    named = {each.python for each in DOORS.values() if not isinstance(each.python, Why) and "." not in each.python}
    assert named - vars_of(TemporalCoordinator) == set()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.erase("s", by="ada"),
        lambda client: client.send_event("paid", 7, event_id="e"),
        lambda client: client.answer_wait("s", 1, {}),
        lambda client: client.require_waiting("s", 1),
        lambda client: client.events(limit=3),
        lambda client: client.overview(),
        lambda client: client.tool_stats(),
    ],
)
async def test_what_only_a_store_can_do_is_refused_by_name(call: Callable[[Any], Any]) -> None:
    """With what it needs, and the way that leads on."""
    with pytest.raises(RuntimeUnsupported) as refused:
        await call(Unsupported())
    assert refused.value.hint


#: What a door calls a param that another calls otherwise.
ALIASES = {"given": "input", "tags": "tag", "step": "step_id", "why": "note", "since": "since_ms", "every": "every_s"}
#: What each command has.
COMMON = {"store", "as_json", "debug", "log_level", "log_format", "runtime", "task_queue", "tools", "by", "yes"}
#: So many params of operations are declared more often than once. Only fewer: a door takes what it can from the table.
MOST_AGAIN = 76


def declared() -> dict[tuple[str, str], list[str]]:
    """By operation and param, the doors that declare it themselves, and not by the table."""
    found: dict[tuple[str, str], list[str]] = {}
    taken = dict(commands())
    for route in routes():
        name, at = route.name, DOORS[route.name]
        params = dict(OPERATIONS[name].params)
        given = {**route.query, **(route.body or {}).get("properties", {})}
        doors = {"http": given, "mcp": TOOLS.get(at.mcp, {}).get("inputSchema", {}).get("properties", {})}
        doors["cli"] = {each.name: {} for each in taken[at.cli].params} if at.cli in taken else {}
        for door, schemas in doors.items():
            for each, schema in schemas.items():
                param = ALIASES.get(each, each)
                if each in COMMON:
                    continue
                theirs = params.get(param)
                told = {key: value for key, value in (theirs or {}).items() if key != "description"}
                by_table = theirs is not None and door != "cli" and told.items() <= dict(schema).items()
                found.setdefault((name, param), []).extend([] if by_table else [door])
    return found


def test_a_param_is_declared_once() -> None:
    """Counted: whoever adds one at two doors writes it into the table."""
    again = {key: doors for key, doors in declared().items() if len(doors) + (key[1] in OPERATIONS[key[0]].params) > 1}
    assert sum(len(doors) - (key[1] not in OPERATIONS[key[0]].params) for key, doors in again.items()) <= MOST_AGAIN, (
        again
    )


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_only_reads_is_asked_with_get_or_computes(name: str) -> None:
    """And a token that may only read gets to nothing that writes."""
    (route,) = [each for each in routes() if each.name == name]
    does = OPERATIONS[name]
    assert (route.method == "GET") <= (does.effect == "read")
    assert (does.effect == "read") or does.scope != "read"
    assert route.method not in {"PUT", "DELETE"} or does.effect == "settles"
