"""Operations of the API: each is declared once, and its route, its checks and its OpenAPI entry come from that."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from saga_engine.errors import RequestInvalid
from saga_engine.execution.aside import Allowance, allowing
from saga_engine.execution.result import shown as told
from saga_engine.listener.limits import CHECK_S
from saga_engine.operations.params import Schema, made_of
from saga_engine.operations.table import OPERATIONS
from saga_engine.operations.table import Operation as Declared
from saga_engine.plan.value_schema import ValueSchema
from saga_engine.plan.values import cut
from saga_engine.server.bodies import json_of
from saga_engine.server.desk import Desk
from saga_engine.server.identity import NOBODY, Identity
from saga_engine.server.keys import NO_KEY, Answer, Keyed, hashed, shown_again
from saga_engine.server.leaving import CallerLeft, telling_left, unless_left
from saga_engine.tools.trace_context import called_from

if TYPE_CHECKING:
    from saga_engine.api import Coordinator

_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}(\.0{1,9})?", re.ASCII)
#: What any operation takes in the query, whatever its method.
_IN_QUERIES: Final = frozenset({"wait"})
_PART: Final = re.compile(r"\{(\w+)\}")
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request whose scope, query and body have been checked."""

    request: Request
    desk: Desk
    identity: Identity
    engine: Coordinator
    query: Mapping[str, Any]
    body: Any
    key: Keyed = NO_KEY

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    @property
    def saga_id(self) -> str:
        """The saga's id. Raises ``SagaNotFound`` for what is no id."""
        return self.desk.saga_id(self.request)

    @property
    def wait_s(self) -> float:
        """How long the caller wants to wait, at most as long as the server allows."""
        return min(float(self.query.get("wait", 0)), self.desk.settings.max_wait_s)


Handle = Callable[[Incoming], Awaitable[Answer | Response]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. What it needs, takes, gives and does is that of ``operations.table``.

    Its params stand in the path; the others are the query of a GET, and else the body. ``without``: what it does not
    take. ``answers``: what each status means. ``refusals``: the statuses of the route's own problems, beside those of
    the operation's errors. ``takes_any``: the handler reads the bytes itself. ``works``: it takes processor time and
    changes nothing, so it is counted, and given up when its caller leaves; another one is, while it works beside the
    loop. ``asks``: it asks a model, and is given up as well.
    """

    name: str
    method: str
    path: str
    summary: str
    handle: Handle
    answers: Mapping[int, str]
    refusals: Sequence[int] = ()
    without: Collection[str] = ()
    headers: Mapping[str, Schema] = field(default_factory=dict)
    takes_any: bool = False
    about: str = ""
    streams: bool = False
    works: bool = False
    asks: bool = False

    @property
    def does(self) -> Declared:
        """What it is at every door."""
        return OPERATIONS[self.name]

    @property
    def parts(self) -> Sequence[str]:
        """The params in its path."""
        return _PART.findall(self.path)

    @property
    def query(self) -> Mapping[str, Schema]:
        """The params of its query."""
        return {name: each for name, each in self._taken().items() if self.method == "GET" or name in _IN_QUERIES}

    @property
    def body(self) -> Schema | None:
        """The JSON Schema of its body, None: it has none. Clients that are generated require what has a default."""
        if self.method in {"GET", "DELETE"} or self.takes_any:
            return None
        fields = {name: each for name, each in self._taken().items() if name not in self.query}
        return _without_defaults(made_of(fields, [name for name in self.does.required if name in fields]))

    @property
    def may_lack_body(self) -> bool:
        """Whether an empty body counts as ``{}``: nothing is required."""
        return self.body is not None and not ValueSchema({**self.body, **self.does.rules})({})

    def answer(self, status: int) -> Schema | None:
        """The JSON Schema of what it returns with this status; None: it has no body."""
        previews = status == 200 and len(self.answers) > 1
        name = self.does.preview if previews else self.does.result
        return {"$ref": f"#/components/schemas/{name}"} if name else None

    def _taken(self) -> Mapping[str, Schema]:
        kept = {*self.parts, *self.without}
        return {name: each for name, each in self.does.params.items() if name not in kept}

    def endpoint(self, desk: Desk) -> Callable[[Request], Awaitable[Response]]:
        """Its handler."""
        schema, lacks, queried = self.body, self.may_lack_body, self.query
        checks = None if schema is None else ValueSchema(schema)

        async def endpoint(request: Request) -> Response:
            identity = desk.require(request, self.scope) if self.scope else NOBODY
            engine = desk.engine_of(identity)  # before all that says something of the request
            query = query_of(request, queried)
            with allowing(CHECK_S, partial(_working, request, desk, identity)) as allowance:
                body = None if schema is None or checks is None else await _body(request, schema, checks, lacks=lacks)
                incoming = Incoming(request, desk, identity, engine, query, body)
                key = request.headers.get("idempotency-key") if self.keyed else None
                waiting = desk.place(desk.waits, identity) if incoming.wait_s else nullcontext()
                working = desk.place(desk.works, identity) if self.works else nullcontext()
                with called_from(request.headers.get("traceparent")), waiting, working:
                    handled = self._handled(incoming, key)
                    try:
                        if not (self.works or self.asks or (self.method == "GET" and incoming.wait_s)):
                            found = await handled
                        else:
                            allowance.enclosed()
                            found = await unless_left(request, handled)
                    except CallerLeft:
                        return Response(status_code=499)  # nobody reads it
            return found if isinstance(found, Response) else json_response(readable(found, identity))

        return endpoint

    async def _handled(self, incoming: Incoming, key: str | None) -> Answer | Response:
        return await (self.handle(incoming) if key is None else self._once(incoming, key))

    @property
    def scope(self) -> str:
        """What a token must allow; empty: it needs no identity, because what it gets is signed."""
        return self.does.scope

    @property
    def keyed(self) -> bool:
        """Whether an ``Idempotency-Key`` makes it happen once."""
        return bool(self.scope) and self.method != "GET"

    async def _once(self, incoming: Incoming, key: str) -> Answer:
        """The answer to the first request with this key; its saga is shown as it is now."""

        async def act(keyed: Keyed) -> Answer:
            found = await self.handle(replace(incoming, key=keyed))
            assert isinstance(found, Answer)  # streams have no keys
            return found

        request, query = incoming.request, {name: each for name, each in incoming.query.items() if name != "wait"}
        said = msgspec.json.encode([query, incoming.body], order="sorted").decode()
        answer, again = await incoming.desk.keys.once(
            incoming.identity, key, hashed(request.method, request.url.path, said), act
        )
        if not (again and answer.saga_id):
            return answer
        return shown_again(answer, await shown(incoming, answer.saga_id))


async def _body(request: Request, schema: Schema, checks: ValueSchema, *, lacks: bool) -> Any:
    if lacks and not await request.body():
        return {}
    body = await json_of(request)
    if found := checks(body):
        path, message = found[0]
        where = "body" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        raise RequestInvalid(f"the body does not fit: {message}", hint=fields_of(schema, path), where=where, status=422)
    return with_integers(schema, body)


@contextmanager
def _working(request: Request, desk: Desk, identity: Identity, allowance: Allowance, first: bool) -> Iterator[None]:
    """Around each work beside the loop: the first one of a request is counted, and all are given up with the caller.

    The body was read before.
    """
    with desk.place(desk.works, identity) if first else nullcontext(), telling_left(request, allowance.give_up):
        yield


def readable(answer: Answer, identity: Identity) -> Answer:
    """The answer as the caller may read it: of a saga, without the scope ``read``, its id and its status."""
    if not answer.saga_id or identity.may("read"):
        return answer
    told = {name: answer.body[name] for name in ("saga_id", "status")}
    nothing: dict[str, Any] = {
        "goal": "",
        "steps": [],
        "questions": [],
        "report": {},
    }  # a saga has them in every answer
    return replace(answer, body={**told, **nothing, "unread": "this token may not read sagas (scope 'read')"})


async def shown(incoming: Incoming, saga_id: str) -> Any:
    """The body of a saga as it is now, or once it has ended or needs an operator if the caller waits for that."""
    from saga_engine.server import acts

    found = await incoming.engine.show(saga_id)
    return await told(await acts.settled(incoming.desk, incoming.identity, found, incoming.wait_s))


def fields_of(schema: Schema, path: Sequence[str | int]) -> str:
    """In words: the fields of the object at this path of a body, and which of them it needs; empty if it is none."""
    for part in path:
        schema = schema.get("items", {}) if isinstance(part, int) else schema.get("properties", {}).get(part, {})
    known, needed = schema.get("properties", {}), schema.get("required", ())
    if not known:
        return ""
    return f"its fields: {', '.join(known)}" + (f"; it needs {', '.join(needed)}" if needed else "")


def with_integers(schema: Schema, value: Any) -> Any:
    """The value, whose fields are integers where the schema has ``integer``: in JSON Schema 3.0 is one."""
    if isinstance(value, float) and "integer" in schema.get("type", ()) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        known = schema.get("properties", {})
        return {name: with_integers(known[name], part) if name in known else part for name, part in value.items()}
    return value


def _without_defaults(schema: Schema) -> Schema:
    kept = {name: each for name, each in schema.items() if name != "default"}
    if "properties" in kept:
        kept["properties"] = {name: _without_defaults(each) for name, each in kept["properties"].items()}
    return kept


def json_response(answer: Answer) -> Response:
    """An answer as a response."""
    if answer.body is None:
        return Response(status_code=answer.status, headers=dict(answer.headers))
    data = msgspec.json.encode(answer.body, enc_hook=str)
    return Response(data, answer.status, dict(answer.headers), "application/json")


def query_of(request: Request, schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """The query's values, each as its schema says. Raises ``RequestInvalid``."""
    found: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        schema = schemas.get(name)
        if schema is None:
            hint = f"it has: {', '.join(sorted(schemas))}" if schemas else "it has none"
            raise RequestInvalid(f"there is no query parameter {cut(name, 80)}", hint=hint, where="query")
        if schema["type"] == "array":
            found.setdefault(name, []).append(_value(name, text, schema["items"]))
        elif name in found:
            raise RequestInvalid(f"the query parameter {name} is given twice", where=f"query.{name}")
        else:
            found[name] = _value(name, text, schema)
    return found


def _value(name: str, text: str, schema: Schema) -> Any:
    kind = schema["type"]
    try:
        if kind == "boolean":
            return _TRUTH[text]
        if kind != "string" and not (_WHOLE if kind == "integer" else _NUMBER).fullmatch(text):
            raise ValueError(text)
        value: Any = text if kind == "string" else int(text.partition(".")[0]) if kind == "integer" else float(text)
    except (KeyError, ValueError):
        raise RequestInvalid(f"{cut(text, 80)!r} is no {kind}", where=f"query.{name}") from None
    if found := ValueSchema(schema)(value):
        raise RequestInvalid(f"the query parameter {name} does not fit: {found[0][1]}", where=f"query.{name}")
    return value
