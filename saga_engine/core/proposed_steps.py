"""Whether an operator approves a semantic compensation although all its tools may run without being asked.

A model takes its numbers from texts of tools. A refund of a larger amount than the step was about, or two refunds for
one step, is more than a compensation, so a person looks at it first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from saga_engine.core.state import State, StateScope
from saga_engine.core.steps import wait
from saga_engine.errors import BindingUnresolved
from saga_engine.plan import schema_types
from saga_engine.plan.bindings import Binder
from saga_engine.plan.problems import Problems
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import cut

_NUMBER = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?")
#: Types of a param that takes no number.
_HARMLESS: Final = frozenset({"boolean", "null", "string"})
_UNKNOWN: Final = object()


def needs_approval(state: State, stuck: int, steps: Sequence[Mapping[str, Any]], catalog: ToolCatalog) -> str:
    """Why an operator approves these steps first; empty: there is no reason of this kind. The steps are checked."""
    calls = Counter(str(step["tool"]) for step in steps)
    twice = next((tool for tool, count in calls.items() if count > 1), None)
    if twice is not None:
        return f"a model proposes {calls[twice]} calls of {cut(twice, 80)}"
    known = _known(state, stuck)
    for step in steps:
        for name, value in step.get("params", {}).items():
            where = f"{cut(step['tool'], 80)}.{cut(name, 80)}"
            found = _value(state, value)
            if found is _UNKNOWN and _may_be_a_number(catalog, str(step["tool"]), name):
                return f"a model proposes steps in which {where} is known only when they run"
            for field, number in _numbers(found, name):
                # A number of the same name is what it can be compared with: an id is no amount.
                if abs(number) > known.get(field, max(known.values(), default=0)):
                    more = f"more than step {state.plan.steps[stuck].key} had"
                    return f"a model proposes {cut(str(number), 40)} for {where}, which is {more}"
    return ""


def _known(state: State, stuck: int) -> dict[str, float]:
    """The largest number of each name in the step's params and output; of a wait, in its event: it has no amount."""
    found: dict[str, float] = {}
    params: Any = None
    with suppress(BindingUnresolved):
        if state.plan.steps[stuck].builtin != wait.KIND:
            params = state.acting(stuck).params.resolve(StateScope(state))
    for name, number in (*_numbers(params), *_numbers(state.steps[stuck].output)):
        found[name] = max(abs(number), found.get(name, 0))
    return found


def _value(state: State, value: Any) -> Any:
    """The value of a param; ``_UNKNOWN`` if it binds what another of the steps has yet to return."""
    unknown = Problems()  # a step that is not in the plan yet: the steps were checked, so it is one of them
    template = Binder(state.plan.by_key, unknown).template({"": value}, "", ())
    try:
        return _UNKNOWN if unknown else template.resolve(StateScope(state))[""]
    except BindingUnresolved:
        return _UNKNOWN


def _may_be_a_number(catalog: ToolCatalog, tool: str, name: str) -> bool:
    spec = catalog.spec(tool)
    if spec is None:
        return True
    known = schema_types.types(spec.input_schema, schema_types.locate(spec.input_schema, (name,)))
    return known is None or bool(known - _HARMLESS)


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """All numbers in a value, each with the name of its field; a text that is a number counts."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield name, value
    elif isinstance(value, str):
        if _NUMBER.fullmatch(value):
            yield name, float(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item, name)
