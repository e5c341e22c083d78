"""An undo ahead of its turn: in a session, while an operator is asked about a later call, what provably need not wait.

An agent's calls are undone one by one, last come first, because nobody knows which of them depend on each other. While
such an undo waits for an operator, an earlier call is undone all the same if the before-images prove that it has
nothing to do with any later one that is still to be undone (``_Walls.apart``). It is looked at by the same read
before its undo, so one object under two names is *drift*, and is not overwritten. What is not proven waits. In a plan
the graph says what depends on what, and an undo never waits for an independent one.

The work is bounded: nobody compares large calls, or a call with many that wait. It is then not proven.

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
#: How much one call may say to be compared, and all together with which a call is compared: values, letters.
_ONE: Final = (300, 20_000)
_ALL: Final = (1_000, 40_000)
#: Steps in these states have nothing to undo: nothing depends on the order of their undos.
_NOTHING_LEFT: Final = frozenset({t.COMPENSATED, t.RESOLVED, t.SKIPPED, t.BLOCKED, t.FAILED})
_DEPTH: Final = 16
#: Numbers up to this one, and texts of one letter, name no object beside another value that does.
_TRIVIAL: Final = 9
_LONGEST_BITS: Final = 128
_MARK: Final = re.compile(r"[\w-]*\d[\w-]*")
_NOT_KNOWN = 1 << 62


def next_ahead(state: State) -> int | None:
    """The step whose undo may begin although an operator is asked about that of a later one; None: there is none."""
    if state.status == t.ESCALATED or state.undo_ready or _is_one_under_way(state):
        return None
    walls = _Walls(state)
    for index in _roots(state):
        walls.add(index)
    if not walls.open:
        return None
    for index, _ in islice(held(state), MOST):
        step = state.steps[index]
        if step.status in _NOTHING_LEFT or (step.status == t.SUCCEEDED and not has_undo(state, index)):
            continue
        if step.status == t.SUCCEEDED and walls.apart(index):
            return index
        walls.add(index)
        if not walls.open:
            return None
    return None


def has_undo(state: State, index: int) -> bool:
    """Whether the effect of a step is to be undone: by a call, or by what a person or a model finds."""
    return state.undoing(index) is not None or (state.plan.steps[index].semantic and state.owns(index))


def happened(state: State, index: int) -> tuple[int, int]:
    """What an agent's calls are sorted by, first come first; what may have happened counts as the last of all."""
    return state.steps[index].happened_nth or _NOT_KNOWN, index


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
    """Which of these calls would wait if they were undone, and an operator asked about some of them."""
    walls, chosen, waits, passed = _Walls(state), set(calls), set[int](), 0
    for index in sorted(range(len(state.steps)), key=lambda index: happened(state, index), reverse=True):
        if index in chosen:
            asked = index in asks or _left_to_somebody(state, index)
            if not asked and (not walls.any or (passed < MOST and walls.apart(index))):
                continue
            if not asked:
                waits.add(index)
            passed += walls.any
            walls.add(index)
        elif walls.any:
            passed += 1
    return waits


def _is_one_under_way(state: State) -> bool:
    """Whether an undo whose turn has come is being made, or is to be tried again: the others await it."""
    if any(direction == COMPENSATE for _, direction in state.in_flight):
        return True
    places = (*(place[0] for place in (*state.in_flight, *state.waiting, *state.doubts)), *state.pending)
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

    def names(self) -> tuple[Any, ...]:
        """What names the object. A number like 1 does only if nothing else does."""
        return tuple(each for each in self.changes if not _is_trivial(each)) or self.changes

    def said(self) -> tuple[Any, ...]:
        """All that the call and its undo are told, and look at."""
        return (*self.given, *self.undone, *self.changes)


class _Texts:
    """Values among which others are looked for: as a whole, or as a part of a text."""

    __slots__ = ("_numbers", "_texts", "_whole")

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._whole, self._texts, self._numbers = set[Any](), "", ""
        self.add(values)

    def add(self, values: Iterable[Any]) -> None:
        new = set(values) - self._whole
        self._whole |= new
        self._texts = "\0".join((self._texts, *(each for each in new if isinstance(each, str))))
        self._numbers = "\0".join((self._numbers, *(str(each) for each in new if not isinstance(each, str))))

    def has(self, value: Any) -> bool:
        """Whether a value is among them, or a part of a text of them."""
        if value in self._whole:
            return True
        return str(value) in self._texts or (isinstance(value, str) and value in self._numbers)

    def has_any(self, values: Iterable[Any]) -> bool:
        return any(self.has(each) for each in values)


class _Walls:
    """The later calls that are still to be undone, taken together: what is not apart from all of them waits.

    ``any``: there are some. ``open``: something may be apart from them. It is over once nobody can say what one of
    them touches, or once they say too much to be compared.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[int, _Touched | None] = {}
        self._names: set[Any] = set()
        self._locks: set[str] = set()
        self._said, self._told = _Texts(), _Texts()
        self._values: set[Any] = set()
        self._marks: set[str] = set()
        self._left = list(_ALL)
        self.any, self._closed = False, False

    @property
    def open(self) -> bool:
        return self.any and not self._closed

    def add(self, index: int) -> None:
        self.any = True
        one = None if self._closed else self._touched(index)
        if one is None:
            self._closed = True
            return
        self._left[0] -= len(one.said())
        self._left[1] -= sum(len(str(each)) for each in one.said())
        if min(self._left) < 0:
            self._closed = True
            return
        self._names.update(one.names())
        self._locks |= one.locks
        self._said.add(one.said())
        self._told.add((*one.given, *one.undone))
        self._values.update(one.given, one.undone)
        self._marks |= _marks((*one.given, *one.undone))

    def apart(self, index: int) -> bool:
        """Whether the before-images prove that the undo of a call need not wait for that of any of these later ones.

        Each call changes an object of its own, which its read names, and neither names the object of the other, even
        in a part of a text or by one of several params. No value of a later call or of its undo came from the earlier
        one's output, as a whole or as a word with a digit in free text. The keys that their tools lock (``resource``)
        differ. And it is known how the earlier one left its object.
        """
        step = self._state.steps[index]
        if not self.open or step.undone_by >= 0 or step.before is None or not has_after(step):
            return False
        one = self._touched(index)
        if one is None or one.locks & self._locks:
            return False
        said = _Texts(one.said())
        if said.has_any(self._names) or self._said.has_any(one.names()):
            return False
        if self._marks & (_marks(one.output) - _marks(one.given)):
            return False
        return not self._come_from(one)

    def _come_from(self, one: _Touched) -> bool:
        """Whether a value of these has a part of what a call returned, which that did not get itself."""
        given, output = _Texts(one.given), _Texts(one.output)
        if any(self._told.has(each) and not given.has(each) for each in one.output):
            return True
        return any(output.has(each) and not given.has(each) for each in self._values)

    def _touched(self, index: int) -> _Touched | None:
        if index not in self._known:
            self._known[index] = _touched(self._state, index)
        return self._known[index]


def _left_to_somebody(state: State, index: int) -> bool:
    """Whether a person or a model finds how a call is undone: nobody knows what that touches."""
    return state.undoing(index) is None and has_undo(state, index)


def _touched(state: State, index: int) -> _Touched | None:
    """What a call changes and names; None: nobody can say."""
    acting, step = state.acting(index), state.steps[index]
    read = acting.before
    if read is None or read.spec is None or acting.spec is None or not read.spec.input_schema.get("properties"):
        return None  # a read that does not say what it takes gets all params: they do not tell the object
    if _left_to_somebody(state, index):
        return None
    scope, undone, room = StateScope(state), list[Any](), _Room()
    try:
        params = acting.params.resolve(scope)
        changes = tuple(room.leaves(read.params.resolve(scope)))
        given, output = tuple(room.leaves(params)), tuple(room.leaves(step.output))
        if (whole := state.whole_rollback(index)) is not None:
            for place in undo_places(whole, scope):
                undone += room.leaves(undo_call(whole, place, state.plan.steps[index].key, index).params.resolve(scope))
        locks = locks_of(acting.spec, params)
    except (BindingUnresolved, JournalUnreadable):
        return None
    return None if locks is None or not changes else _Touched(changes, given, tuple(undone), output, locks)


def locks_of(spec: ToolSpec, params: Any) -> frozenset[str] | None:
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


def _is_trivial(value: Any) -> bool:
    return len(value) < 2 if isinstance(value, str) else abs(value) <= _TRIVIAL


class _Room:
    """Gathers what one call says, up to a limit."""

    def __init__(self) -> None:
        self._values, self._letters = _ONE

    def leaves(self, value: Any, depth: int = 0) -> Iterator[Any]:
        """The texts and numbers in a value, texts in one case.

        Raises ``JournalUnreadable`` if one is not at hand, or if it is too much.
        """
        self._values -= 1
        self._letters -= len(value) if isinstance(value, str) else 0
        too_long = isinstance(value, int) and value.bit_length() > _LONGEST_BITS
        if isinstance(value, Stored) or depth > _DEPTH or self._values < 0 or self._letters < 0 or too_long:
            raise JournalUnreadable("a value is not at hand")
        if isinstance(value, Mapping):
            for each in value.values():
                yield from self.leaves(each, depth + 1)
        elif isinstance(value, list | tuple):
            for each in value:
                yield from self.leaves(each, depth + 1)
        elif isinstance(value, str) and value:
            yield value.casefold()
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield value
