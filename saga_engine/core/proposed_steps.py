"""Whether an operator approves a semantic compensation although all its tools may run without being asked.

A model takes its numbers and its ids from texts of tools. A refund of a larger amount than the step was about, two
refunds for one step, or a refund to somebody whom nobody named is more than a compensation, so a person looks at it
first. Every call that a step may make counts, also that of a fallback: it runs when the first one is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from saga_engine.core.state import State, StateScope
from saga_engine.core.steps import ask, wait
from saga_engine.errors import BindingUnresolved
from saga_engine.plan import schema_types
from saga_engine.plan.binder import Binder
from saga_engine.plan.bindings import FIRST, starts_binding
from saga_engine.plan.identifiers import is_address, is_opaque, names_id, names_target
from saga_engine.plan.problems import Problems
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import cut

_NUMBER = re.compile(r"[+-]?\d{1,300}(?:\.\d{1,300})?")
#: Types of a param that takes no number.
_HARMLESS: Final = frozenset({"boolean", "null", "string"})
_UNKNOWN: Final = object()
_FIELD: Final = re.compile(r"[A-Za-z_]\w*")
#: The words of a schema with which a text is no free one.
_BOUNDS: Final = frozenset({"const", "enum", "format", "pattern"})


def calls_of(written: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tool and the params of every call that a step, as written, may make."""
    if written.get("tool"):
        yield str(written["tool"]), written.get("params") or {}
    for name in ("fallback", "then"):
        some = written.get(name) or ()
        for each in [some] if isinstance(some, Mapping) else some:
            yield from calls_of(each)
    for name in ("rollback", "when_absent"):
        if written.get(name):
            yield from calls_of(written[name])


def needs_approval(state: State, stuck: int, steps: Sequence[Mapping[str, Any]], catalog: ToolCatalog) -> str:
    """Why an operator approves these steps first; empty: there is no reason of this kind. The steps are checked."""
    odd = next((step for step in steps if step.get("each") is not None or not step.get("tool")), None)
    if odd is not None:
        return f"a model proposes step {cut(odd.get('step_id'), 80)}, which is not one call of a tool"
    calls = Counter(tool for step in steps for tool in {tool for tool, _ in calls_of(step)})
    twice = next((tool for tool, count in calls.items() if count > 1), None)
    if twice is not None:
        return f"a model proposes {calls[twice]} calls of {cut(twice, 80)}"
    known, given = _known(state, stuck), _Given(state, stuck, catalog)
    for tool, params in (call for step in steps for call in calls_of(step)):
        for name, value in params.items():
            where = f"{cut(tool, 80)}.{cut(name, 80)}"
            found = _value(state, value)
            if found is _UNKNOWN and _may_be_a_number(catalog, tool, name):
                return f"a model proposes steps in which {where} is known only when they run"
            for field, number in _numbers(found, name):
                # A number of the same name is what it can be compared with: an id is no amount.
                if abs(number) > known.get(field, max(known.values(), default=0)):
                    more = f"more than step {state.plan.steps[stuck].key} had"
                    return f"a model proposes {cut(str(number), 40)} for {where}, which is {more}"
            for field, leaf in _leaves(value if found is _UNKNOWN else found, name):
                if not given.has(leaf, field):
                    return f"a model proposes {cut(str(leaf), 80)} for {where}, which nobody gave"
    return ""


class _Given:
    """What the people who started the saga said, and what its tools returned in fields of their own."""

    def __init__(self, state: State, stuck: int, catalog: ToolCatalog) -> None:
        step = state.plan.steps[stuck]
        said = [state.plan.goal, dict(state.input), {} if step.builtin == wait.KIND else state.acting(stuck).params.raw]
        self._text = "\n".join(str(leaf) for each in said for _, leaf in _leaves(each)).casefold()
        self._values: set[str] = set()
        with suppress(BindingUnresolved):
            self._values |= {str(leaf) for _, leaf in _leaves(state.acting(stuck).params.resolve(StateScope(state)))}
        for each in state.plan.steps:
            output = state.steps[each.index].output
            if output is None:
                continue
            spec = each.spec if each.builtin else catalog.spec(state.acting(each.index).tool)
            schema = None if spec is None else spec.output_schema
            self._values |= {str(leaf) for leaf in _typed(output, schema, (), "", by_person=each.builtin == ask.KIND)}

    def has(self, value: str | int, field: str) -> bool:
        """Whether somebody gave a value, or it is neither an id nor a recipient."""
        if isinstance(value, int):
            if not names_id(field):
                return True
        elif starts_binding(value):
            # What another of the steps returns, in a field that holds such a value.
            return not names_target(field) or names_target(_FIELD.findall(value)[-1])
        elif not value.strip() or not (names_target(field) or is_address(value) or is_opaque(value)):
            return True
        text = str(value)
        if text in self._values:
            return True
        # As a word: 'eve-ada@example.org' gives nobody 'ada@example.org'.
        wanted = re.escape(text.strip().casefold())
        return re.search(rf"(?<![\w.@+-]){wanted}(?![\w@+-]|\.\w)", self._text) is not None


def _typed(
    value: Any, schema: dict[str, Any] | None, path: tuple[str | int, ...], field: str, *, by_person: bool
) -> Iterator[str | int]:
    """The values in an output that are no free text: ids, recipients, and what a schema restricts."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _typed(item, schema, (*path, str(key)), str(key), by_person=by_person)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _typed(item, schema, (*path, at), field, by_person=by_person)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        place = None if schema is None else schema_types.locate(schema, path)
        bounded = isinstance(place, Mapping) and not _BOUNDS.isdisjoint(place)
        alone = not path and is_opaque(str(value))
        if by_person or isinstance(value, int) or names_target(field) or bounded or alone:
            yield value


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str | int]]:
    """All texts and whole numbers in a value, each with the name of its field."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, name if key == FIRST else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item, name)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield name, value


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
