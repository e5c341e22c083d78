"""``saga`` steps, which run another saga: the word, the schema of their output, and their params."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from saga_engine.plan.values import digest

#: The word of these steps.
KIND: Final = "saga"
#: The schema of the output of a step whose child has completed.
OUTPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"saga_id": {"type": "string"}, "outputs": {"type": "object"}},
    "required": ["saga_id", "outputs"],
}


def shown_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """The params of a ``saga`` step: its plan stands by its digest. The bindings in that plan are the child's own."""
    given = body.get("plan")
    return {"input": {}, **body, **({} if given is None else {"plan": digest(given)})}
