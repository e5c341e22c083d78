"""An undo ahead of its turn: in a session, while an operator is asked about a later call, what provably need not wait.

An agent's calls are undone one by one, last come first, because nobody knows which of them depend on each other. While
such an undo waits for an operator, an earlier call is undone all the same if the before-images prove that it has
nothing to do with any later one that is still to be undone (``_apart``). It is looked at by the same read
before its undo, so one object under two names is *drift*, and is not overwritten. What is not proven waits. In a plan
the graph says what depends on what, and an undo never waits for an independent one.

The record of such an undo changes the order of those that wait (``compensation.goes_ahead``): what was to come after
it still waits for it, and for all that it passed.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from saga_engine.core import states as t
from saga_engine.core.codec import Stored
from saga_engine.core.effects import COMPENSATE
from saga_engine.core.images import has_after
from saga_engine.core.state import State, StateScope
from saga_engine.errors import BindingUnresolved, JournalUnreadable
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.plan.undo_calls import undo_call, undo_places

#: How many undos that wait are looked at, the next ones first.
MOST: Final = 500
#: Steps in these states have nothing to undo: nothing depends on the order of their undos.
_NOTHING_LEFT: Final = frozenset({t.COMPENSATED, t.RESOLVED, t.SKIPPED, t.BLOCKED, t.FAILED})
_DEPTH: Final = 16
_MARK: Final = re.compile(r"[\w-]*\d[\w-]*")


def next_ahead(state: State) -> int | None:
    """The step whose undo may begin although an operator is asked about that of a later one; None: there is none."""
    if state.status == t.ESCALATED or state.undo_ready or _is_one_under_way(state):
        return None
    walls = list(_roots(state))
    if not walls:
        return None
    known: dict[int, _Touched | None] = {}
    for index, _ in islice(held(state), MOST):
        step = state.steps[index]
        if step.status in _NOTHING_LEFT:
            continue
        has_undo = step.status == t.SUCCEEDED and state.undoing(index) is not None
        if step.status == t.SUCCEEDED and not has_undo:
            continue
        if has_undo and step.undone_by < 0 and all(_apart(state, index, wall, known) for wall in walls):
            return index
        walls.append(index)
    return None


def undoes_more(state: State) -> bool:
    """Whether an undo is under way, or begins by itself, although an operator is asked about another one."""
    return bool(state.undo_ready) or _is_one_under_way(state) or next_ahead(state) is not None


def held(state: State) -> Iterator[tuple[int, Sequence[int]]]:
    """The steps whose undo waits for an operator's word about another one, in the order of their undos.

    Each with the steps whose undos come right before its own. One that waits for anything else as well is not among
    them, and neither is what comes after it.
    """
    steps, before = state.steps, dict[int, list[int]]()
    stack = list(_roots(state))
    while stack:
        index = stack.pop()
        following = steps[index].undo_next
        if following < 0:
            continue
        comes_after = before.setdefault(following, [])
        comes_after.append(index)
        if len(comes_after) == steps[following].undo_waits:
            yield following, comes_after
            stack.append(following)


def would_wait(state: State, calls: Iterable[int], asks: Container[int]) -> set[int]:
    """Which of these calls would wait if they were undone in this order, and an operator asked about some of them."""
    known: dict[int, _Touched | None] = {}
    walls: list[int] = []
    waits: set[int] = set()
    for index in calls:
        if index in asks:
            walls.append(index)
        elif any(not _apart(state, index, wall, known) for wall in walls):
            walls.append(index)
            waits.add(index)
    return waits


def _is_one_under_way(state: State) -> bool:
    """Whether an undo whose turn has come is being made, or is to be tried again: the others await it."""
    if any(direction == COMPENSATE for _, direction in state.in_flight):
        return True
    places = (*(place[0] for place in (*state.in_flight, *state.waiting, *state.doubts)), *state.waits)
    return any(state.steps[index].undo_waits == 0 for index in places)


def _roots(state: State) -> dict[int, None]:
    """The steps that are to be undone now, and about which an operator is asked."""
    asked = (question.step for question in state.questions.values() if not question.of_session)
    return {index: None for index in asked if state.steps[index].undo_waits == 0}


# --- what a call has to do with another one --------------------------------------------------------------------------


class _Touched(NamedTuple):
    """What a call changes and names: ``changes`` are the values by which its read finds the object.

    ``given``: what it was called with, ``undone``: what its undo is called with, ``output``: what it returned,
    ``locks``: the keys of its tool.
    """

    changes: tuple[Any, ...]
    given: tuple[Any, ...]
    undone: tuple[Any, ...]
    output: tuple[Any, ...]
    locks: frozenset[str]


def _apart(state: State, earlier: int, later: int, known: dict[int, _Touched | None]) -> bool:
    """Whether the before-images prove that the undo of a call need not wait for that of a later one.

    Each call changes an object of its own, which its read names, and neither names the object of the other, even in a
    part of a text. No value of the later call came from the earlier one's output, as a whole or as a word with a
    digit in free text. The keys that their tools lock
    (``resource``) differ. And it is known how the earlier one left its object.
    """
    step = state.steps[earlier]
    if step.before is None or not has_after(step):
        return False
    for index in (earlier, later):
        if index not in known:
            known[index] = _touched(state, index)
    one, other = known[earlier], known[later]
    if one is None or other is None or one.locks & other.locks:
        return False
    if _names((*one.given, *one.undone), other.changes) or _names((*other.given, *other.undone), one.changes):
        return False
    if _marks(other.given) & _marks(one.output) - _marks(one.given):
        return False
    return not any(_comes_from(each, one) for each in other.given)


def _touched(state: State, index: int) -> _Touched | None:
    """What a call changes and names; None: nobody can say."""
    acting, step = state.acting(index), state.steps[index]
    read = acting.before
    if read is None or read.spec is None or acting.spec is None or not read.spec.input_schema.get("properties"):
        return None  # a read that does not say what it takes gets all params: they do not tell the object
    scope, undone = StateScope(state), list[Any]()
    try:
        params = acting.params.resolve(scope)
        changes = tuple(_leaves(read.params.resolve(scope)))
        given, output = tuple(_leaves(params)), tuple(_leaves(step.output))
        if (whole := state.whole_rollback(index)) is not None:
            for place in undo_places(whole, scope):
                undone += _leaves(undo_call(whole, place, state.plan.steps[index].key, index).params.resolve(scope))
        locks = _locks(acting.spec, params)
    except (BindingUnresolved, JournalUnreadable):
        return None
    return None if locks is None or not changes else _Touched(changes, given, tuple(undone), output, locks)


def _locks(spec: ToolSpec, params: Any) -> frozenset[str] | None:
    """The keys of what a call locks; None: nobody can say."""
    if spec.resource is None or not isinstance(params, Mapping):
        return None
    declared = spec.input_schema.get("properties", {})
    usual = {name: each["default"] for name, each in declared.items() if isinstance(each, dict) and "default" in each}
    try:
        return frozenset(template.format_map({**usual, **params}) for template in spec.resource)
    except (KeyError, ValueError, AttributeError):
        return None


def _marks(values: Iterable[Any]) -> set[str]:
    """What may be ids in texts: words with a digit."""
    return {mark for each in values if isinstance(each, str) for mark in _MARK.findall(each) if len(mark) > 1}


def _comes_from(value: Any, earlier: _Touched) -> bool:
    """Whether a value has a part of what a call returned, and did not get itself."""
    shared = [each for each in earlier.output if _occurs(each, (value,))]
    shared += [value] if _occurs(value, earlier.output) else []
    return any(not _occurs(each, earlier.given) for each in shared)


def _names(given: Sequence[Any], changes: Sequence[Any]) -> bool:
    return all(_occurs(each, given) for each in changes)


def _occurs(value: Any, among: Sequence[Any]) -> bool:
    """Whether a value is among others, or a part of a text of them."""
    if isinstance(value, str):
        return any(value in str(each) for each in among)
    return any(str(value) in each if isinstance(each, str) else each == value for each in among)


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """The texts and numbers in a value, texts in one case. Raises ``JournalUnreadable`` if one is not at hand."""
    if isinstance(value, Stored) or depth > _DEPTH:
        raise JournalUnreadable("a value is not at hand")
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each, depth + 1)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each, depth + 1)
    elif isinstance(value, str) and value:
        yield value.casefold()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value
