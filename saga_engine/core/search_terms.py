"""The terms by which a store finds a saga (``ports.Store.search``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from saga_engine.core.state import State

#: The term of every saga.
ANY: Final = "*"
#: Tools of one saga that it is found by.
_MAX_TOOLS: Final = 200


def terms_of(state: State) -> Sequence[str]:
    """The terms of a saga."""
    name = [named(state.plan.name)] if state.plan.name else []
    return [ANY, *name, *map(tagged, state.tags), *_of_tools(state)]


def terms_from(state: State, start: int) -> Sequence[str]:
    """The terms that the steps from ``start`` on add to those of the steps before them."""
    # The latest steps first: a session calls few tools, over and over.
    before, steps = range(start - 1, -1, -1), state.plan.steps
    new = [tool for tool in _tools_from(state, start) if not any(steps[at].tool == tool for at in before)]
    return [calling(tool) for tool in new[: max(_MAX_TOOLS - start, 0)]]


def _of_tools(state: State) -> Sequence[str]:
    """The terms of the plan's tools, found once for all sagas of a plan; a plan that grows gets more steps."""
    tools, steps = state.plan.tools, state.plan.steps
    if tools.terms is None or tools.terms[0] != len(steps):
        tools.terms = (len(steps), tuple(map(calling, _tools_from(state, 0)[:_MAX_TOOLS])))
    return tools.terms[1]


def _tools_from(state: State, start: int) -> list[str]:
    return list(dict.fromkeys(call.tool for step in state.plan.steps[start:] for call in step.servings() if call.tool))


def named(name: str) -> str:
    """The term of the sagas of plans with this name."""
    return f"name:{name}"


def tagged(tag: str) -> str:
    """The term of sagas with this tag."""
    return f"tag:{tag}"


def calling(tool: str) -> str:
    """The term of sagas with a step that calls this tool."""
    return f"tool:{tool}"
