"""A call that is the undo of another one: an agent or a plan takes back itself what it has done.

A call whose tool undoes an earlier call that stands, with exactly the params that the engine would fill in, *is* that
undo: it has its key, and when it has happened the earlier call counts as undone, once. It takes the newest call that
fits. Where the engine would call the undo several times, or compares the value with a before-image, a call is never
taken for it. A call that only comes near, with another amount, is a call of its own; before the undo of one that it
names an operator is asked (``perhaps_undone``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from saga_engine.core import states as t
from saga_engine.core.effects import FORWARD, ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.errors import BindingUnresolved, JournalUnreadable
from saga_engine.language.errors import said
from saga_engine.plan.undo_calls import undo_call, undo_places
from saga_engine.plan.values import canonical, cut


class Undone(NamedTuple):
    """The step whose undo a call is: it ``stands``, is ``gone`` already, or another such call is ``open``."""

    step: int
    how: Literal["stands", "open", "gone"]


def undone_by(state: State, tool: str, params: Any, index: int = -1) -> Undone | None:
    """The step whose undo a call with these params would be; None: there is none, and it is a call of its own.

    ``index``: the step that makes the call. The newest one that stands counts, else the newest that is undone.
    """
    if state.phase != FORWARD or state.ending is not None:
        return None
    places = state.plan.tools.undone_by(state.plan.steps, tool)
    if not places:
        return None
    wanted, other = canonical(params), None
    newest = sorted(places, key=lambda place: state.steps[place].happened_nth, reverse=True)
    for place in newest:
        step = state.steps[place]
        if place == index or step.status not in (t.SUCCEEDED, t.COMPENSATED) or _undo_has_begun(state, place):
            continue
        made = _filled_in(state, place, tool)
        if made is None or canonical(made) != wanted:
            continue
        if step.status == t.SUCCEEDED and step.undone_by in (-1, index):
            return Undone(place, "stands")
        if other is None or (step.status == t.SUCCEEDED and other.how == "gone"):
            other = Undone(place, "open" if step.status == t.SUCCEEDED else "gone")
    return other


def is_held(state: State, index: int) -> bool:
    """Whether the call of a step that is ready waits for another one, which is the same undo and is not settled."""
    compiled = state.plan.steps[index]
    if not compiled.tool or not state.plan.tools.undone_by(state.plan.steps, compiled.tool):
        return False
    try:
        found = undone_by(state, compiled.tool, compiled.params.resolve(StateScope(state)), index)
    except BindingUnresolved:
        return False
    return found is not None and found.how == "open"


def _undo_has_begun(state: State, index: int) -> bool:
    step = state.steps[index]
    return step.status == t.SUCCEEDED and (step.undo_waits is not None or bool(step.undo and step.undo.attempt))


def _filled_in(state: State, index: int, tool: str) -> Any:
    """What the engine would call the undo with; None: it is not one call of this tool, or nobody can say."""
    calls = _undo_calls(state, index)
    return calls[0][1] if len(calls) == 1 and calls[0][0] == tool else None


def _undo_calls(state: State, index: int) -> list[tuple[str, Any]]:
    """The calls with which the engine would undo a step, each with its tool and its params; none: nobody can say.

    What is undone by the value that was there before is undone only if nobody has changed it since: no call is that.
    """
    rollback = state.undoing(index)
    if rollback is None or not rollback.tool or state.acting(index).before is not None:
        return []
    whole, scope, key = state.whole_rollback(index), StateScope(state), state.plan.steps[index].key
    assert whole is not None
    try:
        calls = [undo_call(whole, place, key, index) for place in undo_places(whole, scope)]
        return [(call.tool, call.params.resolve(scope)) for call in calls]
    except (BindingUnresolved, JournalUnreadable):
        return []


def perhaps_undone(state: State, index: int) -> ErrorInfo | None:
    """Why an operator is asked before the undo of a step: a later call of the same tool names the same object."""
    by = state.steps[index].undone_by
    if by >= 0:  # an operator accepted the doubt
        return _perhaps(state, by, "perhaps_undone.doubt")
    for tool, made in _undo_calls(state, index) if _is_called(state, index) else ():
        for place in state.plan.tools.called(state.plan.steps, tool):
            step = state.steps[place]
            if place == index or step.undoes >= 0 or step.happened_nth <= state.steps[index].happened_nth:
                continue
            if step.status == t.SUCCEEDED and _names_the_same(state, index, made, place):
                return _perhaps(state, place, "perhaps_undone")
    return None


def _is_called(state: State, index: int) -> bool:
    """Whether some step calls a tool that the undo of this one calls."""
    whole = state.whole_rollback(index)
    tools = () if whole is None else (whole.tool, *(call.tool for call in whole.then))
    return any(state.plan.tools.called(state.plan.steps, tool) for tool in tools)


def _perhaps(state: State, by: int, how: str) -> ErrorInfo:
    tool, key = state.acting(by).tool, state.plan.steps[by].key
    return ErrorInfo("perhaps_undone", said(how, step=key, tool=cut(tool, 80)), said("perhaps_undone.hint"))


def _names_the_same(state: State, index: int, made: Any, other: int) -> bool:
    """Whether a call agrees with one of the undo of a step in all that it says of what the step returned."""
    output = state.steps[index].output
    try:
        given = state.acting(other).params.resolve(StateScope(state))
    except (BindingUnresolved, JournalUnreadable):
        return False
    if not isinstance(made, dict) or not isinstance(given, Mapping):
        return False
    key = state.key(index, FORWARD)
    returned = [*_leaves(output), key]
    names = [name for name, value in made.items() if isinstance(value, str | int) and value in returned] or [*made]
    said = [name for name in names if name in given]
    return bool(said) and all(given[name] == made[name] for name in said)


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, Mapping) and depth < 4:
        for each in value.values():
            yield from _leaves(each, depth + 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value
