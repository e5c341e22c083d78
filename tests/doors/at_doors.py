"""Where each operation of the engine is asked, and why it is asked nowhere else."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import typer

from saga_engine import Coordinator
from saga_engine.api.schedules import Schedules
from saga_engine.cli import app
from saga_engine.execution.templates import Templates
from saga_engine.gateway.engine_schemas import TOOLS

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


def commands(group: typer.Typer = app, before: str = "") -> Iterator[tuple[str, Any]]:
    """Each command with its function, whose signature has its options."""
    for each in group.registered_commands:
        yield f"{before}{each.name}", each.callback
    for each in group.registered_groups:
        assert each.typer_instance is not None
        yield from commands(each.typer_instance, f"{before}{each.name} ")


def options(command: Any) -> Mapping[str, inspect.Parameter]:
    """The options and arguments of a command."""
    return inspect.signature(command, eval_str=True).parameters


def method(name: str) -> Any:
    """A method of a coordinator, or of its schedules or templates."""
    part, _, own = name.rpartition(".")
    return getattr({"": Coordinator, "schedules": Schedules, "templates": Templates}[part], own)


def methods() -> set[str]:
    parts = {"schedules": Schedules, "templates": Templates}
    own = {name for name in vars_of(Coordinator) if name not in parts}
    return own | {f"{part}.{name}" for part, kind in parts.items() for name in vars_of(kind)}


def vars_of(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def found_at(door: str) -> set[str]:
    return {"cli": {name for name, _ in commands()}, "mcp": set(TOOLS), "python": methods()}[door]
