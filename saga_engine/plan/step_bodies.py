"""The bodies of built-in steps as written, and what all models of the format have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from saga_engine.errors import ValueNotJson
from saga_engine.plan import limits
from saga_engine.plan.ask import MAX_QUESTION_CHARS
from saga_engine.plan.values import plain
from saga_engine.plan.wait import SEVERAL


def listed(value: Any) -> Any:
    """JSON has lists where a frozen model has tuples; the strict mode would refuse them."""
    return tuple(value) if isinstance(value, list) else value


def finite(value: Any) -> Any:
    """A JSON value of a bounded size."""
    try:
        checked: Any = plain(value, max_nodes=limits.MAX_PLAN_NODES)
    except ValueNotJson as error:
        raise PydanticCustomError("value_not_json", "{reason}", {"reason": error.message}) from error
    return checked


Values = Annotated[dict[str, Any], AfterValidator(finite)]
Seconds = Annotated[float, Field(gt=0, le=limits.MAX_SECONDS, allow_inf_nan=False)]


class Model(BaseModel, frozen=True, strict=True, extra="forbid", serialize_by_alias=True):
    """A part of the format. Each subclass says ``frozen=True`` itself: a type checker does not take it from here."""


class OtherAnswer(Model, frozen=True):
    """What counts as the answer if nobody gives one."""

    value: Any = Field(description="One of the options, or a value that fits the schema.")


class Ask(Model, frozen=True):
    """A question to a person. Its answer is the step's output: `answer`, `by` and `note`."""

    question: Annotated[str, Field(max_length=MAX_QUESTION_CHARS)] = Field(
        description="The question, which may bind: 'Is {$output.step_1.price} too much?'."
    )
    to: Annotated[str, Field(max_length=limits.MAX_NAME_CHARS)] | None = Field(
        None,
        description="Who is asked: a name, a role or an address; it may bind. Default: any operator. Anybody who may "
        "answer questions may answer it.",
    )
    options: Annotated[tuple[str, ...] | str, BeforeValidator(listed)] | None = Field(
        None, description="The answers to choose from, or a binding to a list of texts. Default: a free answer."
    )
    answer_schema: Values | None = Field(
        None, alias="schema", description="The JSON Schema of a free answer. Default: that of a text."
    )
    expires_s: Seconds | None = Field(
        None, description="The longest wait for an answer, in seconds. Default: as long as the saga's deadline permits."
    )
    on_timeout: Literal["fail", "continue"] | OtherAnswer = Field(
        "fail",
        description=(
            "What an expired question causes. fail: the step fails. continue: it fails, and the saga goes on. An "
            "object with 'value': it is the answer."
        ),
    )


class OtherOutput(Model, frozen=True):
    """The output of the step if no event comes in time."""

    value: Any = Field(description="Any JSON value.")


class Late(Model, frozen=True):
    """The call for an event that comes after its wait is over."""

    tool: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS)] = Field(
        description="The name of the tool to call."
    )
    params: Values = Field(
        default_factory=dict,
        description="The params of the call. They may bind the payload, as the output of this step.",
    )


class AwaitedEvent(Model, frozen=True):
    """One of the events of a wait for several."""

    event: Annotated[str, Field(max_length=limits.MAX_NAME_CHARS)] = Field(
        description="The name of the event: letters, digits, '.', '_', ':' and '-'."
    )
    key: str | int | None = Field(
        None, description="Which of these events: a text or a whole number. It may bind. Default: the saga's id."
    )
    payload_schema: Values | None = Field(
        None, alias="schema", description="The JSON Schema of the payload. Default: any JSON value."
    )


def _one_of_three(schema: dict[str, Any]) -> None:
    schema["oneOf"] = [{"required": [word]} for word in ("event", *SEVERAL)]


def _counted(schema: dict[str, Any]) -> None:
    """Bounds of a list, which pydantic takes for those of a text behind the conversion of the list."""
    for each in schema["anyOf"]:
        if "minLength" in each:
            each |= {"minItems": each.pop("minLength"), "maxItems": each.pop("maxLength")}


# The bounds come last: an event that is wrong would else be missing, too.
_Several = Annotated[
    tuple[AwaitedEvent, ...], BeforeValidator(listed), Field(min_length=1, max_length=limits.MAX_EVENTS)
]


class Wait(Model, frozen=True, json_schema_extra=_one_of_three):
    """An event to wait for. Its payload is the step's output. With ``first`` or ``all`` there are several events."""

    event: Annotated[str, Field(max_length=limits.MAX_NAME_CHARS)] | None = Field(
        None, description="The name of the event: letters, digits, '.', '_', ':' and '-'."
    )
    first: _Several | None = Field(
        None,
        description="In place of an event: several; the first one that comes ends the wait.",
        json_schema_extra=_counted,
    )
    all_of: _Several | None = Field(
        None,
        alias="all",
        description="In place of an event: several; the wait ends when all of them have come.",
        json_schema_extra=_counted,
    )
    key: str | int | None = Field(
        None, description="Which of these events: a text or a whole number. It may bind. Default: the saga's id."
    )
    payload_schema: Values | None = Field(
        None, alias="schema", description="The JSON Schema of the payload. Default: any JSON value."
    )
    timeout_s: Seconds | Annotated[str, Field(max_length=limits.MAX_NAME_CHARS)] | None = Field(
        None, description="The longest wait, in seconds. It may bind. Default: as long as the saga's deadline permits."
    )
    on_timeout: Literal["fail", "continue"] | OtherOutput = Field(
        "fail",
        description=(
            "What follows if no event comes in time. fail: the step fails. continue: it fails, and the saga goes on. "
            "An object with 'value': that is the step's output."
        ),
    )
    on_late: Late | None = Field(
        None, description="The call for an event that comes after the time-out or the undo, such as a refund."
    )


class Child(Model, frozen=True):
    """A child saga: a saga of its own, which the step starts and waits for."""

    plan: Values | None = Field(
        None, description="The plan of the child, as this one. Its bindings find its own steps and input."
    )
    template: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS)] | None = Field(
        None, description="In place of a plan: the name of a template in the store, or 'NAME@VERSION'."
    )
    input_schema: Values | None = Field(
        None, description="The JSON Schema of the child's input; a template brings its own."
    )
    input: Values = Field(
        default_factory=dict, description="The input of the child. It may bind: {'city': '$output.step_1.city'}."
    )
