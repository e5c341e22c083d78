"""A param of an operation is declared once, in the table, and taken from it at every door, or it is written why not."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple, get_args, get_origin

import pytest
import typer
from typer.testing import CliRunner

from saga_engine.api.engine import Engine
from saga_engine.api.temporal import TemporalCoordinator
from saga_engine.batches.batch import Verb
from saga_engine.cli.from_table import Taken, option
from saga_engine.errors import RequestInvalid, SagaError
from saga_engine.gateway.engine_schemas import TOOLS, tool
from saga_engine.operations.params import TEXT, told
from saga_engine.operations.table import OPERATIONS, Operation
from saga_engine.plan.value_schema import ValueSchema
from saga_engine.server.openapi import openapi
from saga_engine.server.operation import Operation as Route
from saga_engine.server.operation import query_of
from saga_engine.server.problems import STATUS
from saga_engine.server.routes import operations as routes
from saga_engine.server.schemas import COMPONENTS
from tests.doors.at_doors import DOORS, Why, commands, method, options

# --- why a param is not at a door, or a door has one beside the table -------------------------------------------------

WAITS = Why("a command waits for the end; --detach, or no tools, lets a worker do it")
SHOWS = Why("the agent follows its saga with saga_show")
HANDLE = Why("the handle, or `wait`, waits")
ALL = Why("gives all records; what a caller skips is its own affair")
AGENT = Why("an agent sees its own sagas, found by its tag, and a page of them")
BODY = Why("a batch's own form: `select` takes its fields flat, and is a preview by itself")

#: By operation (``*``: any), param and door.
ABSENT: Mapping[tuple[str, str, str], Why] = {
    ("*", "wait", "cli"): WAITS,
    ("*", "wait", "python"): HANDLE,
    ("*", "wait", "mcp"): SHOWS,
    ("submitSaga", "template", "mcp"): Why("templates are an operator's"),
    ("submitSaga", "saga_id", "mcp"): Why("its `key`, which is an id in the agent's own space"),
    ("submitSaga", "tags", "mcp"): AGENT,
    **{("searchSagas", each, "mcp"): AGENT for each in ("name", "tag", "tool", "asks", "since_ms", "limit")},
    ("showSaga", "full", "mcp"): Why("large outputs come in parts: step and offset"),
    ("showSaga", "step", "http"): Why("the body has all steps"),
    ("showSaga", "step", "python"): Why("the result has all steps"),
    **{("showHistory", each, door): ALL for each in ("after", "limit") for door in ("cli", "python")},
    ("streamSaga", "after", "cli"): ALL,
    ("streamSaga", "after", "python"): Why("`since`: the first record itself, and not the one before it"),
    **{("streamSaga", "stops", door): Why("for pages; `saga stop` lists them") for door in ("cli", "python")},
    ("undoSaga", "accept", "mcp"): Why("what remains is accepted by an operator"),
    ("undoSaga", "dry_run", "mcp"): Why("saga_show says what is in effect"),
    ("makeCallback", "expires_s", "python"): Why("the server signs the address"),
    ("callBack", "token", "python"): Why("the server reads it"),
    **{("createJob", each, "python"): BODY for each in ("where", "dry_run")},
    ("listQuestions", "cursor", "cli"): Why("reads all pages"),
    ("releaseHold", "saga_id", "cli"): Why("the same argument: what is listed as a resource, or a saga's id"),
}  # fmt: skip

_TIMES = "the command reads the clock"
_WHO = "a server knows it from the token, a command from --by; an agent is itself"
#: What a door takes beside the table.
BESIDE: Mapping[str, Mapping[tuple[str, str], str]] = {
    "cli": {
        ("submit", "detach"): "a server always does so", ("resume", "everything"): "one id after the other",
        ("resume", "limit"): "a command reads page by page", ("cancel", "limit"): "a command reads page by page",
        ("resolve", "limit"): "a command reads page by page", ("resolve", "about"): "`select` has it; no job has",
        ("list", "newer"): _TIMES, ("list", "older"): _TIMES, ("show", "follow"): "streamSaga",
        ("top", "every_s"): "asks again by itself", ("top", "once"): "asks again by itself",
        ("simulate", "every"): "what is printed", ("plan", "out"): "writes a file",
        ("plan", "then_submit"): "a second operation, with a yes between",
        ("schedule backfill", "limit"): "`Schedules.ticks` has it",
        **{("plan", each): "a setting, for once" for each in (
            "model", "secrets", "rounds", "intent", "on_failure", "may_use", "reads")},
        **{("tools", each): "reads, accepts and imports declarations of this machine" for each in (
            "words", "lint", "stats", "dry_run", "manifest", "server", "tool")},
    },
    "mcp": {
        ("saga_tools", "query"): "a model has little room", ("saga_tools", "offset"): "a model has little room",
        ("saga_show", "offset"): "a model has little room", ("saga_submit", "key"): "an id in the agent's own space",
    },
    "python": {
        **{(each, "by"): _WHO for each in ("cancel", "resolve", "amend", "undo", "erase", "select")},
        **{(each, "detach"): "a server always does so" for each in (
            "submit", "undo", "fork", "send_event", "answer_wait")},
        **{(each, "on_chosen"): "a callback" for each in ("undo", "fork")},
        **{("plan", each): "of this process, or a setting for once" for each in (
            "now", "may_use", "limit", "tags", "on_failure", "intent", "progress")},
        **{("answer_wait", each): "what the token says" for each in ("saga_id", "step_id", "payload", "entry")},
        **{("select", each): "the fields of `where`, flat" for each in (
            "status", "name", "tags", "tool", "asks", "since_ms")},
        **{("select", each): "of a batch: no job has it" for each in ("limit", "step_id", "output")},
        ("schedules.put", "check_tools"): "a server without tools does not", ("schedules.trigger", "key"): "a request's",
        ("follow", "since"): "the record after `after`",
        ("templates.put", "with_tools"): "a server without tools does not",
        ("schedules.backfill", "limit"): "bounds a mistake; a server has the most",
    },
}  # fmt: skip
#: What a door calls a param otherwise.
NAMES: Mapping[tuple[str, str, str], str] = {
    ("showSaga", "wait", "mcp"): "wait_s", ("searchSagas", "tag", "python"): "tags",
    ("pauseSchedule", "note", "python"): "why", ("putTemplate", "reference", "python"): "name",
    ("createJob", "action", "python"): "verb", ("createJob", "sagas", "python"): "saga_ids",
}  # fmt: skip
#: What a method takes otherwise.
OTHERWISE: Mapping[tuple[str, str], str] = {
    **{
        (each, "wait"): "whether, not how long: a program bounds it by itself"
        for each in ("cancel", "resolve", "amend")
    },
    ("erase", "why"): "not needed: a program may have its reasons elsewhere",
}
#: What a door declares again, beside the table.
AGAIN: Mapping[tuple[str, str, str], str] = {
    ("showSaga", "wait", "mcp"): "the table's, and at most a minute: an agent's client gives up sooner than a server's",
}
#: What each command has.
COMMON = {"store", "as_json", "debug", "log_level", "log_format", "runtime", "task_queue", "tools", "by", "yes"}


class Found(NamedTuple):
    """What the doors have of the table: who takes a param, who declares one again, and what has no reason."""

    again: set[tuple[str, str, str]]
    lacking: set[tuple[str, str, str]]
    beside: set[tuple[str, str, str]]


def found() -> Found:
    """Look at each door."""
    again, lacking, beside = set(), set(), set()
    known = dict(commands())
    for route in routes():
        name, at, params = route.name, DOORS[route.name], OPERATIONS[route.name].params
        told_here = {**route.query, **(route.body or {}).get("properties", {})}
        again |= {(name, each, "http") for each, schema in told_here.items() if _bare(schema) != _bare(params[each])}
        taken = {"http": {*told_here, *route.parts}}
        if not isinstance(at.mcp, Why):
            schemas = {_ours(name, each, "mcp"): schema for each, schema in _properties(at.mcp).items()}
            taken["mcp"] = {*schemas}
            again |= {
                (name, each, "mcp") for each in schemas.keys() & params.keys() if not _same(schemas[each], params[each])
            }
            beside |= {("mcp", at.mcp, each) for each in schemas.keys() - params.keys()}
        if not isinstance(at.cli, Why):
            there = {each: taken_of(how) for each, how in options(known[at.cli]).items() if each not in COMMON}
            taken["cli"] = {one.param for one in there.values() if one is not None}
            again |= {(name, each, "cli") for each, one in there.items() if one is None and each in params}
            beside |= {("cli", at.cli, each) for each, one in there.items() if one is None}
        if not isinstance(at.python, Why):
            taken["python"] = {_ours(name, each, "python") for each in _arguments(at.python)}
            beside |= {("python", at.python, each) for each in taken["python"] - params.keys()}
        lacking |= {(name, each, door) for door, names in taken.items() for each in params.keys() - names}
    return Found(again, lacking, beside)


def taken_of(how: inspect.Parameter) -> Taken | None:
    """The param of the table that an option is made from."""
    made = [each.taken for each in getattr(how.annotation, "__metadata__", ()) if hasattr(each, "taken")]
    assert all(each.param in OPERATIONS[each.operation].params for each in made)
    return made[0] if made else None


def _ours(operation: str, name: str, door: str) -> str:
    return next((ours for (of, ours, at), theirs in NAMES.items() if (of, at, theirs) == (operation, door, name)), name)


def _properties(tool: str) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = TOOLS[tool]["inputSchema"]["properties"]
    return properties


def _arguments(name: str) -> Mapping[str, inspect.Parameter]:
    return {each: how for each, how in inspect.signature(method(name)).parameters.items() if each != "self"}


def _bare(schema: Any) -> Any:
    """A schema without defaults."""
    if not isinstance(schema, Mapping):
        return schema
    return {name: _bare(each) for name, each in schema.items() if name != "default"}


def _same(schema: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Whether both check the same; words for a model are its door's."""
    words = {"description", "default", "additionalProperties"}
    told = [{name: each for name, each in one.items() if name not in words} for one in (schema, ours)]
    return told[0] == told[1]


# --- the measures ----------------------------------------------------------------------------------------------------


def test_a_param_is_declared_once() -> None:
    """At each door it is the table's."""
    assert found().again == set(AGAIN)


def without_reason(lacking: set[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    return {each for each in lacking if each not in ABSENT and ("*", *each[1:]) not in ABSENT}


def test_each_door_takes_each_param_or_it_is_written_why_not() -> None:
    """Whoever adds a param to the table is told where it is missed; a reason that is none any more goes."""
    lacking = found().lacking
    assert without_reason(lacking) == set()
    assert {each for each in ABSENT if each[0] != "*"} - lacking == set()


def test_what_a_door_takes_beside_the_table_has_a_reason() -> None:
    """And a reason has its param."""
    beside = {(door, *each) for door, names in BESIDE.items() for each in names}
    assert found().beside == beside


def test_a_param_that_is_added_in_the_table_is_at_the_route_and_missed_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The HTTP API has it at once, in its document as well; the other doors are named."""
    does = OPERATIONS["cancelSaga"]
    more = {"reason": {"type": "string", "maxLength": 5, "description": "Of a list."}}
    monkeypatch.setitem(OPERATIONS, "cancelSaga", does._replace(params={**does.params, **more}))  # type: ignore[arg-type]
    body = _operation("cancelSaga")["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["reason"] == more["reason"]
    assert without_reason(found().lacking) == {("cancelSaga", "reason", door) for door in ("cli", "mcp", "python")}


def _operation(name: str) -> Any:
    return next(
        each for path in openapi(routes())["paths"].values() for each in path.values() if each["operationId"] == name
    )


def test_an_operation_that_is_added_in_the_table_is_checked_so_at_every_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """Type, bounds, default, choices, words, what it needs, gives and how it fails: said once."""
    params = {
        "days": {"type": "integer", "minimum": 1, "maximum": 30, "default": 7, "description": "Older than these."},
        "order": {"type": "string", "enum": ["up", "down"], "description": "Which first."},
        "why": told(TEXT, "The reason."),
    }
    added = Operation("admin", "read", params, ("why",), result="Jobs", errors=("job-not-found",))
    monkeypatch.setitem(OPERATIONS, "pruneSagas", added)  # type: ignore[arg-type]

    async def handle(_: Any) -> Any:
        raise NotImplementedError

    route = Route("pruneSagas", "GET", "/v1/prune", "Prune", handle, {200: "What is left."})  # type: ignore[arg-type]
    told_there = openapi([route])["paths"]["/v1/prune"]["get"]
    assert {each["name"]: each["schema"] for each in told_there["parameters"]} == params
    assert told_there["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/Jobs")
    assert "404" in told_there["responses"]
    assert "`admin`" in told_there["description"]
    with pytest.raises(RequestInvalid):
        query_of(_Asked([("days", "31")]), route.query)  # type: ignore[arg-type]
    assert query_of(_Asked([("days", "30")]), route.query) == {"days": 30}  # type: ignore[arg-type]

    made = tool("saga_prune", "pruneSagas", "Prune.", {"days": "days", "why": "why"}, {})
    gate = ValueSchema(made["inputSchema"])
    assert made["inputSchema"]["required"] == ["why"]
    assert (bool(gate({"why": "", "days": 31})), bool(gate({"why": "", "days": 30})), bool(gate({}))) == (
        True,
        False,
        True,
    )

    app = typer.Typer()
    Days = option("pruneSagas", "days", "--days")
    Order = option("pruneSagas", "order", "--order")

    def prune(days: int = 7, order: str = "up") -> None:
        raise typer.Exit(days)

    prune.__annotations__ = {"days": _annotated(int, Days), "order": _annotated(str, Order), "return": None}
    app.command()(prune)
    run = CliRunner()
    assert (run.invoke(app, ["--days", "30"]).exit_code, run.invoke(app, ["--days", "31"]).exit_code) == (30, 2)
    assert "Older than these." in run.invoke(app, ["--help"]).output
    assert Order.autocompletion("d") == ["down"]


def _annotated(kind: Any, made: Any) -> Any:
    from typing import Annotated

    return Annotated[kind, made]


class _Asked:
    """A request with a query."""

    def __init__(self, items: list[tuple[str, str]]) -> None:
        self.query_params = self
        self._items = items

    def multi_items(self) -> list[tuple[str, str]]:
        return self._items


# --- what a param is, at the doors that are written by hand ------------------------------------------------------------


def checked(kind: Any) -> Iterator[tuple[str, str, Any]]:
    """Each operation that this has a method for, with the method."""
    for name, at in DOORS.items():
        if isinstance(at.python, Why):
            continue
        found_there = method(at.python) if kind is None else getattr(kind, at.python, None)
        if found_there is not None:
            yield name, at.python, found_there


@pytest.mark.parametrize("kind", [None, Engine, TemporalCoordinator], ids=["coordinator", "protocol", "temporal"])
def test_the_python_methods_take_what_the_table_says(kind: Any) -> None:
    """By name, kind of value, default, and whether it is needed; the protocol and Temporal's client as well."""
    wrong = []
    for name, python, there in checked(kind):
        if there.__qualname__.startswith("Unsupported."):
            continue  # it refuses by name, whatever it is given
        does, signature, hints = OPERATIONS[name], inspect.signature(there).parameters, _hints(there)
        for param, schema in does.params.items():
            own = NAMES.get((name, param, "python"), param)
            if own not in signature or (python, own) in OTHERWISE:
                continue
            how = signature[own]
            needed, default = how.default is inspect.Parameter.empty, how.default
            if needed != (param in does.required):
                wrong.append((python, own, "needed" if needed else "not needed"))
            if (
                not needed
                and ("default" in schema or default not in (None, "", ()))
                and default != schema.get("default")
            ):
                wrong.append((python, own, default))
            if not _fits(schema, hints[own]):
                wrong.append((python, own, hints[own]))
    assert wrong == []


def _hints(there: Any) -> Mapping[str, Any]:
    module = vars(sys.modules[there.__module__])
    own = there.__annotations__
    return {name: _evaluated(text, module) for name, text in own.items() if name != "return"}


def _evaluated(text: Any, module: Mapping[str, Any]) -> Any:
    try:
        return eval(text, {"Verb": Verb, "Mapping": Mapping, "Any": Any, **module}) if isinstance(text, str) else text
    except NameError:  # imported for types alone
        return text


def _fits(schema: Mapping[str, Any], hint: Any) -> bool:
    """Whether a value that fits the schema may be passed."""
    text = str(hint)
    kind = schema.get("type")
    if schema.get("format") == "date-time":
        return "datetime" in text
    if "enum" in schema and get_origin(hint) is not None and set(get_args(hint)) == set(schema["enum"]):
        return True
    wanted = {
        "boolean": "bool", "integer": "int", "number": "float", "string": "str", "array": "Sequence", "object": "Mapping",
        None: "Any",
    }  # fmt: skip
    kinds = kind if isinstance(kind, list) else [kind]
    return all(wanted[each] in text or (each == "object" and "Source" in text) for each in kinds)


#: So many params have other words on the command line: it reads files, ages and K=V. Only fewer.
MOST_OTHERWISE = 12


def test_a_param_has_the_same_words_at_the_command_line() -> None:
    """But where it is typed otherwise than it is sent."""
    told_otherwise = {
        (taken.operation, taken.param)
        for _, command in commands()
        for how in options(command).values()
        if (taken := taken_of(how)) is not None and taken.otherwise
    }
    assert 0 < len(told_otherwise) <= MOST_OTHERWISE, told_otherwise


def test_an_option_is_what_the_table_says() -> None:
    """Its type is that of the param, its choices are the table's, and so is a default that it has."""
    wrong = []
    for name, command in commands():
        for each, how in options(command).items():
            if (taken := taken_of(how)) is None:
                continue
            schema = OPERATIONS[taken.operation].params[taken.param]
            hint = get_args(how.annotation)[0]
            if not _typed(schema, hint):
                wrong.append((name, each, str(hint)))
            default = how.default
            if default not in (None, inspect.Parameter.empty, "", False) and default != schema.get("default"):
                wrong.append((name, each, default))
    assert wrong == []


def _typed(schema: Mapping[str, Any], hint: Any) -> bool:
    """Text may be anything that a command reads by itself."""
    parts = [each for each in (get_args(hint) if get_origin(hint) is not list else (hint,)) or (hint,)]
    first = next(each for each in parts if each is not type(None))
    if isinstance(first, type) and issubclass(first, Enum):
        return [each.value for each in first] == schema["enum"]
    if schema.get("type") == "boolean":
        return first is bool
    if schema.get("type") == "integer" and first is not str:
        return first is int
    if schema.get("type") == "array" and first is not str:
        return first == list[str]
    return True


def test_what_an_operation_gives_and_how_it_fails_is_known() -> None:
    """Each result is a schema, each error a code that has its status."""
    results = {each for does in OPERATIONS.values() for each in (does.result, does.preview) if each}
    assert results - set(COMPONENTS) == set()
    codes = {each for does in OPERATIONS.values() for each in does.errors}
    assert codes - set(STATUS) == set()
    assert codes - {kind.code for kind in _kinds(SagaError)} == set()


def _kinds(kind: type[SagaError]) -> Iterator[type[SagaError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)
