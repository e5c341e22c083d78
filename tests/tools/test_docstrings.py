"""What docstrings and annotations tell a model about a tool."""

import datetime as dt
import json
from typing import Annotated, Literal

import pytest
from pydantic import Field

from saga_engine.tools.context import ToolContext
from saga_engine.tools.decorator import tool
from tests.tools.calls import spec_of

GOOGLE = """Book a seat.

Use it once.

Args:
    flight: the number of
        the flight
    seats (int): how many

Returns:
    dict: the order

Raises:
    ToolError: when it is full
"""
SPHINX = """Book a seat.

Use it once.

:param str flight: the number of
    the flight
:param seats: how many
:type seats: int
:returns: dict: the order
:raises ToolError: when it is full
"""


@pytest.mark.parametrize("text", [GOOGLE, SPHINX])
def test_a_docstring_describes_parameters_and_output(text):
    """Both stand in their own place, in the schema and in ``returns``, and only there.

    An annotation that describes its parameter goes before the docstring.
    """

    def book(flight: str, seats: Annotated[int, Field(description="at least one")] = 1): ...

    book.__doc__ = text
    spec = spec_of(tool(book))
    properties = spec.input_schema["properties"]
    assert properties["flight"] == {"type": "string", "description": "the number of the flight"}
    assert properties["seats"]["description"] == "at least one"
    assert spec.returns == "dict: the order"
    assert spec.description.startswith("Book a seat.\n\nUse it once.\n\n")
    assert "ToolError" in spec.description
    assert "the flight" not in spec.description
    assert "the order" not in spec.description
    assert spec_of(tool(book, returns="nothing")).returns == "nothing"


def test_a_docstring_part_that_is_not_understood_is_kept():
    """Nothing that an author wrote is lost: a section that speaks of no parameter stays in the description."""

    def act(x: int): ...

    act.__doc__ = "Acts.\n\nArgs:\n    y: no parameter\n    x: the number"
    spec = spec_of(tool(act))
    assert "y: no parameter" in spec.description
    assert spec.input_schema["properties"]["x"]["description"] == "the number"
    act.__doc__ = "Returns: what you gave.\n\n:mode fast: an odd field"
    assert spec_of(tool(act)).description == act.__doc__


def test_the_engine_s_parameters_are_not_described_to_the_model():
    """A docstring may speak of the context and the key; the model hears of neither."""

    def act(x: int, ctx: ToolContext, idempotency_key: str):
        """Acts.

        Args:
            x: the number
            ctx: the context of the engine
            idempotency_key: the key
        """

    spec = spec_of(tool(act))
    assert spec.description == "Acts."
    assert "context" not in json.dumps(spec.input_schema)


def test_formats_come_from_annotations():
    """Dates, patterns, examples, choices and plain texts in ``Annotated`` reach the schema."""

    def act(
        day: dt.date,
        code: Annotated[str, Field(pattern="^[A-Z]{3}$", examples=["BER"])],
        cabin: Literal["eco", "first"],
        currency: Annotated[str, "ISO 4217"],
    ): ...

    properties = spec_of(tool(act)).input_schema["properties"]
    assert properties["day"] == {"type": "string", "format": "date"}
    assert properties["code"] == {"type": "string", "pattern": "^[A-Z]{3}$", "examples": ["BER"]}
    assert properties["cabin"] == {"type": "string", "enum": ["eco", "first"]}
    assert properties["currency"] == {"type": "string", "description": "ISO 4217"}


def test_texts_are_no_part_of_the_digest_and_names_are():
    """A better docstring makes no other tool; a parameter called ``title`` or ``description`` is no text."""

    def act(x: int, title: str): ...

    plain = spec_of(tool(act)).digest
    act.__doc__ = "Acts.\n\nArgs:\n    x: the number\n    title: the heading"
    assert spec_of(tool(act)).digest == plain

    def with_texts(x: Annotated[int, Field(description="the number", examples=[1], title="X")], title: str): ...

    assert spec_of(tool(with_texts, name="act")).digest == plain

    def other_type(x: int, title: int): ...

    assert spec_of(tool(other_type, name="act")).digest != plain
    schemas = [{"properties": {"x": {"enum": [{"title": word}]}}} for word in ("a", "b")]
    one, other = (spec_of(tool(lambda x: x, name="act", input_schema=schema)).digest for schema in schemas)
    assert one != other
