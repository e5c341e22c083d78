"""What ``@tool`` accepts, refuses, and makes of a function's signature."""

import asyncio
import datetime as dt
import functools
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Required, TypedDict

import pytest
from pydantic import BaseModel, Field

from saga_engine.errors import ToolInvalid
from saga_engine.plan.tool_spec import BreakerPolicy, RetryPolicy
from saga_engine.tools.context import ToolContext
from saga_engine.tools.decorator import Tool, tool
from saga_engine.tools.registry import ToolRegistry
from tests.tools.calls import spec_of

if TYPE_CHECKING:
    from nowhere import Missing


class Order(TypedDict):
    order_id: str
    price: float


class Leg(TypedDict, total=False):
    order: Required[Order]
    later: "list[Order | None]"


class Tree(TypedDict):
    children: "list[Tree]"


class Passenger(BaseModel):
    name: str
    age: int = Field(ge=0)


@dataclass
class Receipt:
    number: str


def test_bare_and_with_arguments_leave_the_function_callable():
    """A tool is still the function: called directly it does what the function does, with its name and its text."""

    @tool
    def add(a: int, b: int = 1) -> int:
        """Adds.

        Two numbers.
        """
        return a + b

    @tool(name="airline_api", timeout_s=5)
    async def book(flight: str) -> str:
        return flight

    assert add(1, b=2) == 3
    assert asyncio.run(book("X1")) == "X1"
    assert (add.__name__, add.__doc__, add.__wrapped__) == ("add", add.function.__doc__, add.function)
    assert add.description == "Adds.\n\nTwo numbers."
    assert (book.name, book.timeout_s, book.__name__) == ("airline_api", 5, "book")


def test_the_defaults_are_those_of_the_design():
    """A tool that says nothing writes, waits 30 s and is tried four times."""

    @tool
    def act(): ...

    spec = spec_of(act)
    assert (spec.effect, spec.keyed, spec.key_ttl_s, spec.undo, spec.probe) == ("write", False, None, None, None)
    assert (spec.timeout_s, spec.compensates, spec.tolerates_absence) == (30.0, False, False)
    assert spec.retry == RetryPolicy(max_attempts=4, base_s=1.0, max_s=30.0, jitter=True)


def test_the_schema_comes_from_the_signature():
    """Names, types, defaults and constraints of the parameters are the schema; nothing else may be passed."""

    @tool
    def book(
        flight: str,
        day: dt.date,
        passengers: list[Passenger],
        seats: Annotated[int, Field(ge=1, description="how many")] = 1,
        cabin: Literal["eco", "first"] = "eco",
        anything=None,
    ): ...

    schema = spec_of(book).input_schema
    assert schema["required"] == ["flight", "day", "passengers"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["flight"] == {"type": "string"}
    assert schema["properties"]["day"] == {"type": "string", "format": "date"}
    assert schema["properties"]["seats"] == {"type": "integer", "minimum": 1, "description": "how many", "default": 1}
    assert schema["properties"]["cabin"]["enum"] == ["eco", "first"]
    assert schema["properties"]["anything"] == {"default": None}
    assert "Passenger" in schema["$defs"]


def test_context_and_key_are_never_visible_to_the_model():
    """Neither the context nor the key is in the schema, however the annotation is written."""

    @tool
    def one(x: int, ctx: ToolContext, idempotency_key: str): ...

    @tool
    def two(x: int, context: "ToolContext | None" = None): ...

    @tool
    def three(x: int, me: Optional[ToolContext] = None): ...  # noqa: UP045

    @tool
    def four(x: int, me: Annotated["ToolContext", "facts"]): ...

    for made in (one, two, three, four):
        schema = spec_of(made).input_schema
        assert list(schema["properties"]) == ["x"]
        assert schema["required"] == ["x"]
    assert one.keyed
    assert not two.keyed


def test_a_context_that_only_the_type_checker_imports_is_recognised():
    """The name alone is enough where the annotation is a text that cannot be evaluated."""
    space = {}
    exec("def act(x: int, ctx: 'ToolContext', other: 'saga_engine.ToolContext | None' = None): ...", space)
    assert list(spec_of(space["act"]).input_schema["properties"]) == ["x"]


def test_a_parameter_named_ctx_without_the_annotation_is_an_ordinary_one():
    """Only the annotation asks for the context."""

    @tool
    def draw(ctx: str): ...

    assert list(spec_of(draw).input_schema["properties"]) == ["ctx"]


def test_kwargs_make_an_open_schema():
    """``**kwargs`` accepts any name, with the annotated type if there is one."""

    @tool
    def loose(x: int, **kwargs): ...

    @tool
    def typed(**prices: float): ...

    assert spec_of(loose).input_schema["additionalProperties"] is True
    assert spec_of(typed).input_schema["additionalProperties"] == {"type": "number"}
    assert not spec_of(loose).check_params({"x": 1, "y": [2]})
    assert spec_of(typed).check_params({"y": "2"})


def test_the_engine_s_parameters_cannot_be_smuggled_through_an_open_schema():
    """A plan that names the key or the context of an open tool is told that these are not its to set."""

    @tool
    def loose(idempotency_key: str, ctx: ToolContext, **kwargs): ...

    paths = [path for path, _ in spec_of(loose).check_params({"idempotency_key": "mine", "ctx": {}, "free": 1})]
    assert paths == [("idempotency_key",), ("ctx",)]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (Order, "object"),
        (Passenger, "object"),
        (Receipt, "object"),
        (dict[str, int], "object"),
        (str, "string"),
        (dict, None),
        (dict[str, Any], None),
        (Any, None),
        (None, None),
        (object(), None),
    ],
)
def test_the_output_schema_is_what_the_return_annotation_says(hint, expected):
    """An annotation with a shape becomes the output schema; one without says nothing."""

    def act(): ...

    act.__annotations__["return"] = hint
    schema = spec_of(tool(act)).output_schema
    assert (schema and schema["type"]) == expected


def test_typed_dicts_of_the_standard_library_are_read_with_all_that_is_in_them():
    """A nested ``typing.TypedDict`` keeps its required and its optional fields, as a parameter and as an output."""

    @tool
    def act(leg: Leg) -> Leg: ...

    spec = spec_of(act)
    for schema in (spec.input_schema, spec.output_schema):
        assert schema["$defs"]["Order"]["required"] == ["order_id", "price"]
    assert spec.output_schema["required"] == ["order"]
    order = {"order_id": "A", "price": 1.5}
    assert not spec.check_params({"leg": {"order": order, "later": [None, order]}})
    assert spec.check_params({"leg": {"later": [order]}})
    assert spec.check_params({"leg": {"order": {"order_id": "A"}}})


def test_given_schemas_take_the_place_of_derived_ones():
    """``input_schema`` and ``output_schema`` count; the engine's parameters are taken out of them."""

    @tool(
        input_schema={
            "properties": {"x": {"type": "integer"}, "idempotency_key": {"type": "string"}},
            "required": ["x", "idempotency_key"],
            "additionalProperties": False,
        },
        output_schema={"type": "string"},
    )
    def act(**kwargs): ...

    spec = spec_of(act)
    assert list(spec.input_schema["properties"]) == ["x"]
    assert spec.input_schema["required"] == ["x"]
    assert spec.output_schema == {"type": "string"}
    assert spec.keyed


def test_a_given_schema_is_copied():
    """Nobody can change a declaration through the object it was made from."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    made = tool(lambda x: x, name="act", input_schema=schema)
    schema["properties"]["x"]["type"] = "string"
    assert spec_of(made).input_schema["properties"]["x"]["type"] == "integer"


def test_partials_methods_and_callable_objects_are_tools():
    """Whatever can be called by name can be a tool; what a partial has decided is not the model's to change."""

    def book(account: str, flight: str) -> str:
        """Books."""
        return account + flight

    class Desk:
        @tool(undo="cancel")
        def book(self, flight: str) -> str:
            return flight

        @tool(undo=None)
        def cancel(self, flight: str) -> str:
            return flight

        def __call__(self, flight: str) -> str:
            return flight

    part = tool(functools.partial(book, account="me"))
    assert (part.name, part.description, part(flight="X")) == ("book", "Books.", "meX")
    assert list(spec_of(part).input_schema["properties"]) == ["flight"]
    assert spec_of(part).check_params({"flight": "X", "account": "yours"})

    desk = Desk()
    registry = ToolRegistry(desk.book, desk.cancel, tool(desk, name="desk"))
    assert desk.book("X") == "X"
    assert registry.spec("book").undo == "cancel"
    for name in ("book", "cancel", "desk"):
        assert list(registry.spec(name).input_schema["properties"]) == ["flight"]
    with pytest.raises(ToolInvalid, match="method without its object"):
        ToolRegistry(Desk.cancel)


def test_methods_may_name_their_neighbours_as_undo():
    """An undo that is a tool of the same class is bound to the same object."""

    class Desk:
        @tool
        def cancel(self, flight: str): ...

        @tool(undo=cancel)
        def book(self, flight: str): ...

    desk = Desk()
    registry = ToolRegistry(desk.book, desk.cancel)
    assert registry.spec("book").undo == "cancel"


def bad(**options):
    def act(x: int = 0): ...

    return lambda: tool(act, **options)


@pytest.mark.parametrize(
    "make",
    [
        bad(effect="read", undo="cancel"),
        bad(effect="read", tolerates_absence=True),
        bad(effect="destroy"),
        bad(timeout_s=0),
        bad(timeout_s=-1),
        bad(timeout_s=float("nan")),
        bad(timeout_s=float("inf")),
        bad(timeout_s="30"),
        bad(timeout_s=True),
        bad(keyed="yes"),
        bad(keyed=True, key_ttl_s=0),
        bad(undo="act"),
        bad(probe="act"),
        bad(undo=7),
        bad(retry=3),
        bad(retry=RetryPolicy(max_attempts=0)),
        bad(retry=RetryPolicy(base_s=float("nan"))),
        bad(retry=RetryPolicy(max_s=-1)),
        bad(max_concurrency=0),
        bad(max_concurrency=True),
        bad(max_concurrency=1.5),
        bad(resource=""),
        bad(resource=7),
        bad(resource="user:{x.__class__}"),
        bad(resource="user:{x!r}"),
        bad(resource="user:{x:>9}"),
        bad(resource="user:{"),
        bad(resource="user:{}"),
        bad(resource=[]),
        bad(resource=["user:{x}", ""]),
        bad(resource=["user:{x}", 7]),
        bad(resource=["user:{x[0]}"]),
        bad(rate="often"),
        bad(rate="0/s"),
        bad(rate=10),
        bad(breaker="yes"),
        bad(breaker=0),
        bad(breaker=BreakerPolicy(failures=0)),
        bad(breaker=BreakerPolicy(failures=True)),
        bad(breaker=BreakerPolicy(open_s=float("inf"))),
        bad(breaker=BreakerPolicy(open_s=1e12)),
        bad(dedupe_ttl_s=0),
        bad(dedupe_ttl_s=float("nan")),
        bad(dedupe_ttl_s=1e300),
        bad(dedupe_ttl_s=60, effect="read"),
        bad(last_good_s=-1, effect="read"),
        bad(last_good_s=60),
        bad(use_when=None),
        bad(not_when=["never"]),
        bad(returns=7),
        bad(description=b"bytes"),
        bad(use_when="x" * 20_001),
        bad(retry=RetryPolicy(jitter=1)),
        bad(compensates=1),
        bad(tags=[1]),
        bad(name="no spaces"),
        bad(name="1st"),
        bad(name="x" * 65),
        bad(name="tool\n"),
        bad(input_schema=[]),
        bad(input_schema={"type": "array"}),
        bad(input_schema={"properties": {"x": {"default": float("nan")}}}),
        lambda: tool("name"),
        lambda: tool(Order),
        lambda: tool(tool(print_it)),
        lambda: tool(lambda x: x),
        lambda: tool(positional),
    ],
)
def test_contradictions_are_refused_where_they_are_written(make):
    """A declaration that cannot mean anything raises ``ToolInvalid`` at once, with a hint."""
    with pytest.raises(ToolInvalid) as caught:
        make()
    assert caught.value.hint


def print_it(): ...


def positional(x, /): ...


def test_a_tool_cannot_be_its_own_undo_as_a_function():
    """Undoing by doing it again is no undo."""

    def act(): ...

    with pytest.raises(ToolInvalid, match="its own undo"):
        tool(act, undo=act)


@pytest.mark.parametrize(
    "options",
    [
        {"key_ttl_s": 60},
        {"resource": "user:{user_id}"},
        {"resource": ["x:{x}", "user:{user_id}"]},
        {"input_schema": {"properties": {"x": {"type": "nonsense"}}}},
        {"input_schema": {"properties": {"x": {"$ref": "http://192.0.2.1/schema"}}}},
        {"input_schema": {"properties": {"x": {"$ref": "#/$defs/none"}}}},
        {"input_schema": {"properties": {"x": {"pattern": "("}}}},
        {"input_schema": {"properties": {"y": {}}}},
        {"output_schema": {"type": "nonsense"}},
    ],
)
def test_what_only_the_whole_declaration_shows_is_refused_at_registration(options):
    """Schemas, key time and resource are checked when the signature is known, before anything runs."""

    def act(x: str): ...

    with pytest.raises(ToolInvalid) as caught:
        ToolRegistry(tool(act, **options))
    assert caught.value.hint


def test_an_annotation_that_cannot_be_resolved_is_an_error_unless_a_schema_is_given():
    """A type that exists only for the type checker cannot be turned into a schema silently."""

    def act(x: "Missing"): ...

    with pytest.raises(ToolInvalid, match="cannot be resolved"):
        ToolRegistry(act)
    assert ToolRegistry(tool(act, input_schema={"properties": {"x": {}}})).spec("act")


def test_types_that_cannot_come_from_json_are_refused():
    """A parameter that only Python code could fill is no parameter of a tool."""

    def act(lock: asyncio.Lock): ...

    with pytest.raises(ToolInvalid, match="cannot come from JSON"):
        ToolRegistry(act)


def test_a_pydantic_field_as_default_is_refused():
    """The function would get the Field object itself when it is called directly."""

    def act(x: int = Field(3, ge=1)): ...

    with pytest.raises(ToolInvalid, match="Field as its default"):
        ToolRegistry(act)


def test_a_read_with_keyed_is_fine():
    """Keys on reads are unusual, not contradictory."""

    def look(): ...

    assert spec_of(tool(look, effect="read", keyed=True)).keyed


def test_the_digest_tells_what_matters_to_a_running_saga():
    """Name, schemas, effect and keyed are in the digest; texts and times are not."""

    def act(x: int = 0): ...

    base = spec_of(tool(act))
    identity = ["act", base.input_schema, None, "write", False]
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert base.digest == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert spec_of(tool(act, description="other", timeout_s=1)).digest == base.digest
    for options in ({"effect": "read"}, {"keyed": True}, {"name": "b"}, {"output_schema": {"type": "string"}}):
        assert spec_of(tool(act, **options)).digest != base.digest


def test_a_tool_remembers_all_that_was_declared():
    """Options of later use are kept as they were given."""
    made = tool(print_it, tags=("travel",), compensates=True, tolerates_absence=True, max_concurrency=3, resource="r")
    assert (made.tags, made.compensates, made.tolerates_absence) == (("travel",), True, True)
    assert (made.max_concurrency, made.resource) == (3, "r")


FULL = {
    "effect": "write",
    "use_when": "a thing is wanted",
    "not_when": "it is there already",
    "returns": "its number",
    "resource": ["a:{x}", "b"],
    "rate": "10/s",
    "breaker": BreakerPolicy(failures=5, open_s=60),
    "dedupe_ttl_s": 60,
    "max_concurrency": 3,
    "tags": ["travel"],
    "retry": RetryPolicy(max_attempts=2),
}


@pytest.mark.parametrize("options", [{}, FULL, {"effect": "read", "last_good_s": 60.5, "breaker": True}])
def test_a_tool_can_be_made_again_from_its_options(options):
    """``Tool(function, **tool.options())`` is an equal tool with the same spec: overrides and methods rely on it."""

    def act(x: int = 0) -> dict:
        """Does it.

        Args:
            x: how often

        Returns:
            the number
        """

    made = tool(act, **options)
    again = Tool(act, **made.options())
    assert again == made
    assert again.options() == made.options()
    one, other = spec_of(made), spec_of(again)
    assert (one.digest, one.description, one.returns) == (other.digest, other.description, other.returns)
    assert tool(act, **options, timeout_s=7) != made


def test_what_a_model_chooses_by_reaches_the_spec():
    """``use_when``, ``not_when``, ``returns`` and tags stand in the spec without the indentation of the source."""
    spec = spec_of(
        tool(
            print_it,
            **{
                **FULL,
                "resource": "r",
                "use_when": """a thing
        is wanted""",
            },
        )
    )
    assert (spec.use_when, spec.not_when, spec.returns) == ("a thing\nis wanted", "it is there already", "its number")
    assert (spec.tags, spec.remembers) == (("travel",), True)


def test_a_breaker_is_a_policy_or_nothing():
    """``True`` is the default policy, ``False`` is none; a list of resources cannot be changed afterwards."""
    keys = ["a"]
    assert tool(print_it, breaker=True).breaker == BreakerPolicy(3, 30.0)
    assert tool(print_it).breaker is None
    made = tool(print_it, resource=keys)
    keys.append("b")
    assert made.resource == ("a",)


def _yields(x: int) -> Any:
    yield x


async def _yields_later(x: int) -> Any:
    yield x


class _Yields:
    def __call__(self, x: int) -> Any:
        yield x


@pytest.mark.parametrize(
    "function",
    [_yields, _yields_later, functools.partial(_yields, 1), _Yields()],
    ids=["generator", "async generator", "partial", "object"],
)
def test_a_generator_is_no_tool(function: Any) -> None:
    """A call would return before the body has begun, and count as done."""
    with pytest.raises(ToolInvalid, match="a generator is no tool"):
        tool(name="stream")(function)


def test_a_function_that_takes_all_values_of_a_generator_is_a_tool() -> None:
    """Its body has run when it returns."""
    assert tool(functools.wraps(_yields)(lambda x: list(_yields(x)))).name == "_yields"
