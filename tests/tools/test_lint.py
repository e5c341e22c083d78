"""What is too thin for a model, and what is good enough."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import Field

from saga_engine.tools.decorator import tool
from saga_engine.tools.lint import MANY_TOOLS, Finding, lint
from saga_engine.tools.registry import ToolRegistry


class Order(TypedDict):
    order_id: str


@tool(tolerates_absence=True)
def cancel_flight(order_id: Annotated[str, Field(description="from book_flight")]) -> None:
    """Cancel an order of a flight."""


@tool(undo=cancel_flight, use_when="a traveller needs a seat", not_when="the seat is only looked up")
def book_flight(
    flight: Annotated[str, Field(description="number of the flight, such as LH123")],
    day: dt.date,
    cabin: Literal["eco", "first"] = "eco",
) -> Order:
    """Book one seat on a scheduled flight and pay for it."""
    return {"order_id": f"{flight}{day}{cabin}"}


def found(*tools: Any) -> list[Finding]:
    """What is said of descriptions; what becomes of doubts has a test of its own."""
    return [finding for finding in lint(ToolRegistry(tools)) if finding.code != "doubt-unsettled"]


def codes(*tools: Any) -> set[tuple[str, str, str]]:
    return {(finding.tool, finding.severity, finding.code) for finding in found(*tools)}


def test_well_described_tools_have_no_findings():
    """What says what it does, when, with which forms, and what comes of it, is left in peace."""
    assert found(book_flight) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("act_now", "error", "description-missing")),
        ("   ", ("act_now", "error", "description-missing")),
        ("Act now.", ("act_now", "warning", "description-thin")),
        ("Acts now acting now act", ("act_now", "warning", "description-thin")),
        ("搜索产品", ("act_now", "warning", "description-thin")),
        ("获取产品详情", ("act_now", "warning", "description-thin")),
        ("查询产品详细信息。", ("act_now", "warning", "description-thin")),
        ("Get product details.", ("act_now", "warning", "description-thin")),
        ("Move the robot arm to its place.", ("act_now", "warning", "when-missing")),
        ("把机器人手臂移到它的位置。", ("act_now", "warning", "when-missing")),
    ],
)
def test_thin_descriptions_are_found(text, expected):
    """No description is an error; one that says no more than the name, or nothing of when, is a warning."""

    @tool(description=text, tags="pivot", returns="nothing")
    def act_now(): ...

    assert codes(act_now) - {("act_now", "warning", "when-missing")} | {expected} == {expected}
    assert expected in codes(act_now)


@pytest.mark.parametrize("text", ["Move the arm when the belt has stopped.", "机器人手臂移动工具，用于装配线。"])
def test_a_description_may_say_itself_when_to_use_it(text):
    """``use_when`` is a place, not a duty; Chinese is read as well as English."""

    @tool(description=text, tags="pivot", returns="nothing")
    def move_arm(): ...

    assert found(move_arm) == []


@pytest.mark.parametrize(
    ("name", "hint", "code"),
    [
        ("departure_date", str, "param-undescribed"),
        ("orderId", str, "param-undescribed"),
        ("email", str, "param-undescribed"),
        ("currency", str, "param-undescribed"),
        ("amount", float, "param-undescribed"),
        ("anything", Any, "param-untyped"),
        ("note", str, "params-plain"),
        ("count", int, "params-plain"),
        ("amount_eur", float, "params-plain"),
        ("departure_date", dt.date, None),
        ("email", Annotated[str, Field(pattern="@")], None),
        ("currency", Literal["EUR", "USD"], None),
        ("amount", Annotated[float, Field(description="in euros")], None),
        ("order_id", Annotated[str, "from book_flight"], None),
    ],
)
def test_parameters_whose_type_says_little_are_found(name, hint, code):
    """A date as text, an id, a number without a unit: a model would guess. A format, a choice or a text is enough."""
    scope: dict[str, Any] = {"hint": hint}
    exec(f"def move_arm({name}: hint): ...", scope)
    made = tool(scope["move_arm"], description="Move the arm when told to do so.", tags="pivot", returns="nothing")
    assert [finding.code for finding in found(made)] == ([] if code is None else [code])


def test_open_parameters_are_found():
    """A tool that takes anything makes a model invent parameters."""

    @tool(description="Move the arm when told to do so.", tags="pivot", returns="nothing")
    def move_arm(**options): ...

    assert codes(move_arm) == {("move_arm", "warning", "params-open")}


def test_a_write_without_undo_is_found_unless_it_is_a_pivot_or_an_undo():
    """A plan needs to know how to take it back; a tag says that nothing can."""
    text = "Send the parcel when it is packed."
    plain = tool(lambda: None, name="send_parcel", description=text, returns="nothing")
    assert codes(plain) == {("send_parcel", "warning", "undo-missing")}
    assert codes(tool(lambda: None, name="send_parcel", description=text, returns="nothing", tags=["pivot"])) == set()
    undo = tool(lambda: None, name="send_parcel", description=text, returns="nothing", undo="recall_parcel")
    recall = tool(
        lambda: None, name="recall_parcel", description="Bring a parcel back to its shelf.", returns="nothing"
    )
    assert codes(undo, recall) == set()


def test_an_output_that_others_need_must_be_described():
    """An undo, or a tool that takes what another makes, binds to an output; so does whoever asked a read."""

    @tool(undo="cancel_flight", use_when="a traveller needs a seat")
    def book_flight():
        """Book one seat on a scheduled flight."""

    @tool(effect="read", use_when="a price is asked for")
    def look_up_price():
        """Look up what a scheduled flight costs."""

    @tool(tags="pivot", use_when="the hotel is known")
    def ring_hotel():
        """Ring the reception of a hotel."""

    @tool(tags="pivot", use_when="all is known", returns="nothing")
    def pay_hotel(hotel_id: Annotated[str, "from ring_hotel"]):
        """Pay what a stay costs."""

    assert codes(book_flight, cancel_flight) == {("book_flight", "warning", "output-unknown")}
    assert codes(look_up_price) == {("look_up_price", "warning", "output-unknown")}
    assert codes(ring_hotel) == set()
    assert codes(ring_hotel, pay_hotel) == {("ring_hotel", "warning", "output-unknown")}


def test_look_alikes_are_found():
    """Two tools that say the same cannot be told apart: an error if it is exactly the same, else a warning."""

    def made(name: str, text: str):
        return tool(lambda: None, name=name, description=text, tags="pivot", returns="nothing", use_when="needed")

    one = made("ship_parcel", "Ship a parcel to the customer by the cheapest carrier of the region today.")
    same = made("ship_order", "Ships parcels to the customer, by the cheapest carrier of the region, today!")
    near = made("ship_fast", "Ship a parcel to the customer by the cheapest fast carrier of the region today.")
    other = made("weigh_parcel", "Weigh a parcel on the scales of the hall.")
    assert codes(one, same, other) == {(name, "error", "look-alike") for name in ("ship_parcel", "ship_order")}
    assert codes(one, near, other) == {(name, "warning", "look-alike") for name in ("ship_parcel", "ship_fast")}


@pytest.mark.parametrize(("name", "generic"), [("run", True), ("do_task", True), ("go", True), ("run_report", False)])
def test_generic_names_are_found(name, generic):
    """A name that fits every tool helps to choose none."""
    text = "Print the report of the day when it is asked for."
    made = tool(lambda: None, name=name, description=text, tags="pivot", returns="nothing")
    assert codes(made) == ({(name, "warning", "name-generic")} if generic else set())


def test_many_tools_are_worth_a_hint():
    """Undo and probe tools are not chosen by a model and do not count."""
    texts = [f"Wash the car number {'i' * at} when it is dirty" for at in range(1, MANY_TOOLS + 2)]
    cars = [
        tool(lambda: None, name=f"wash_{at}", description=f"{text} {at} x{at} y{at}", undo="soil", returns="nothing")
        for at, text in enumerate(texts)
    ]
    soil = tool(lambda: None, name="soil", description="Make a clean car dirty again.", returns="nothing")
    assert codes(*cars, soil) == {("", "hint", "many-tools")}
    assert codes(*cars[1:], soil) == set()


@pytest.mark.parametrize(("parameter", "required", "expected"), [("order_id", True, False), ("number", True, True),
                                                                 ("number", False, True), ("flight", False, False)])  # fmt: skip
@pytest.mark.parametrize("described", [True, False])
def test_an_undo_that_cannot_be_filled_is_an_error(parameter, required, expected, described):
    """Its params are looked for by name among those of the call and in its output; without a schema only at the call."""
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "additionalProperties": False}

    @tool(input_schema={**schema, "required": [parameter] if required else []})
    def drop(**params): ...

    @tool(undo=drop)
    def take(flight: str) -> Order: ...

    @tool(undo=drop)
    def take_untold(flight: str) -> dict: ...

    made = take if described else take_untold
    if expected and described and not required:
        return  # refused when it is registered
    wanted = (made.name, "error", "undo-unfillable")
    assert (wanted in codes(made)) == (expected and (described or not required))


def test_a_write_whose_doubts_nothing_settles_is_told():
    """Each time such a tool breaks, a person is asked: its author should know that before it happens."""

    @tool(effect="read")
    def find(idempotency_key: str): ...

    def told(**options):
        @tool(**options)
        def book(): ...

        return "doubt-unsettled" in {
            finding.code for finding in lint(ToolRegistry([book, find])) if finding.tool == "book"
        }

    assert told()
    for options in (
        {"keyed": True},
        {"probe": find},
        {"tolerates_absence": True},
        {"dedupe_ttl_s": 60},
        {"on_doubt": "undo"},
        {"effect": "read"},
    ):
        assert not told(**options)
