"""What follows from each answer to a question, before it is given.

An answer is tried on a copy of the state by ``evolve``, so what is told is what the engine does with it, and the lists
are those of the preview of a cancel (``standing``). They name what would be called. Whether that succeeds, nobody knows
before.

The **mark** of an answer stands for the effects that follow from it. An answer that carries a mark is refused when
other effects follow by now (``messages.check_decision``). One answer needs its mark: to repeat a call in doubt whose
tool honours no key. It may happen twice, and nobody finds out later.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from hashlib import sha256
from typing import Any, Final, NamedTuple

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import FORWARD, Direction
from saga_engine.core.evolve import evolve
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import OpenQuestion, Place, Proposal, Replanning
from saga_engine.core.steps import ask
from saga_engine.errors import BindingUnresolved, JournalUnreadable
from saga_engine.language.questions import THEN
from saga_engine.plan.compiled import CompiledStep
from saga_engine.plan.diagram import undo_text
from saga_engine.plan.undo_calls import undo_call, undo_places
from saga_engine.plan.values import canonical, cut, printable

#: How many entries of a list an outlook names; ``more`` counts the others.
_MOST: Final = 20
#: Larger params of a call that would be undone are cut.
_PARAMS_BYTES: Final = 160
#: Beyond so many steps in all copies, the answers of further questions have no outlook in a view.
_MOST_COPIED: Final = 100_000
#: What belongs to a mark. What goes on anyhow (``begins``) does not: it changes with each step.
_MARKED: Final = ("calls", "undoes", "settles", "remains", "elsewhere", "asks", "looks", "model")


class Standing(NamedTuple):
    """Steps as a saga that turns around finds them; ``CancelPreview`` says what each list holds."""

    undoes: list[dict[str, Any]]
    settles: list[dict[str, Any]]
    remains: list[dict[str, Any]]
    elsewhere: list[dict[str, Any]]
    never: list[dict[str, Any]]


def standing(state: State) -> Standing:
    """What an undo would find of a saga as it stands. Undos that are over are in no list."""
    found = Standing([], [], [], [], [])
    happened: list[tuple[int, dict[str, Any]]] = []
    for compiled in state.plan.steps:
        if compiled.kind == "finally":
            continue
        step = state.steps[compiled.index]
        if step.status == t.SUCCEEDED:
            if not _has_effect(compiled) or step.undoes >= 0:
                continue
            body = body_of(state, compiled)
            if not state.owns(compiled.index):
                found.elsewhere.append(body)
            elif state.rollback_of(compiled.index) is not None:
                happened.append((step.happened_nth, body))
            else:
                found.remains.append(body | {"asks": compiled.kind != "irreversible"})
        elif step.status == t.RESOLVED and step.accepted and _has_effect(compiled):
            found.remains.append(body_of(state, compiled) | {"asks": False})
        elif _unsettled(state, compiled):
            found.settles.append(body_of(state, compiled))
        elif step.status in (t.PENDING, t.WAITING, t.ESCALATED):
            found.never.append(body_of(state, compiled))
    found.undoes.extend(body for _, body in sorted(happened, key=lambda each: each[0], reverse=True))
    return found


def body_of(state: State, compiled: CompiledStep) -> dict[str, Any]:
    """A step as previews show it."""
    rollback = state.whole_rollback(compiled.index)
    child = compiled.child is not None  # it is undone by a saga of its own
    return {
        "step_id": compiled.step_id,
        "name": compiled.name,
        "tool": state.acting(compiled.index).tool or compiled.builtin,
        "kind": compiled.kind,
        "status": state.steps[compiled.index].status,
        "undo": compiled.builtin if child else None if rollback is None else undo_text(rollback),
    }


def _has_effect(compiled: CompiledStep) -> bool:
    """Whether there can be something to undo: a read and a built-in step without a rollback leave nothing."""
    return compiled.kind != "read" and (bool(compiled.tool) or compiled.rollback is not None)


def _unsettled(state: State, compiled: CompiledStep) -> bool:
    step = state.steps[compiled.index]
    if compiled.child is not None:
        return compiled.index in state.children()
    if compiled.kind == "read" or not compiled.tool:
        return False
    return bool(step.forward.doubt) or step.status in (t.RUNNING, t.IN_DOUBT)


def cannot_be_made(state: State, index: int) -> str:
    """Why the undo of a step would be a question as things stand: a value that it binds is missing; else empty."""
    whole = state.whole_rollback(index)
    if whole is None:
        return ""
    try:
        for place in undo_places(whole, StateScope(state)):
            undo_call(whole, place, state.plan.steps[index].key, index).params.resolve(StateScope(state))
    except BindingUnresolved as error:
        return error.message
    except JournalUnreadable:
        return ""  # a large value is not at hand: nobody knows
    return ""


# --- of an answer ----------------------------------------------------------------------------------------------------


def outlooks(state: State) -> dict[str, dict[str, dict[str, Any]]]:
    """The outlook of each answer to each open question, by the question's id and the answer.

    Of a saga with many steps and many questions, only the first questions have them.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    room = _MOST_COPIED
    for question in state.questions.values():
        if question.kind == ask.KIND:
            continue  # its answer is only a value: no option does anything by itself
        room -= len(state.steps) * len(question.options)
        if room < 0 and found:
            break
        found[question.id] = outlooks_of(state, question)
    return found


def outlooks_of(state: State, question: OpenQuestion) -> dict[str, dict[str, Any]]:
    """The outlook of each answer to one question."""
    if question.kind == ask.KIND:
        return {}
    return {option: outlook(state, question, option) for option in question.options}


def outlook(state: State, question: OpenQuestion, decision: str) -> dict[str, Any]:
    """What follows from one answer; lists that are empty are left out.

    ``calls``: what is called at once, with ``twice`` where that may happen twice. ``undoes``, ``settles``, ``remains``
    and ``elsewhere``: as in the preview of a cancel, if the saga turns around or has turned around. ``begins``: the
    steps that may still begin, if it goes on forward. ``asks``: what is asked next. ``looks``: the undo
    reads the value again first. ``model``: a model is asked for another way first, and the undos follow only if it
    finds none. ``mark`` stands for all of them but ``begins``.
    """
    body = _follows(state, question, decision)
    marked = {name: _names(body[name]) for name in _MARKED if body.get(name)}
    mark = sha256(canonical([question.id, decision, marked])).hexdigest()[:8]
    more = {name: len(each) - _MOST for name, each in body.items() if isinstance(each, list) and len(each) > _MOST}
    cut = {name: each[:_MOST] if isinstance(each, list) else each for name, each in body.items()}
    return {"mark": mark, **{name: each for name, each in cut.items() if each}, **({"more": more} if more else {})}


def then_words(body: Mapping[str, Any], language: str = "en") -> str:
    """An outlook as one line."""
    words = THEN[language]
    said: list[str] = []
    for call in body.get("calls", ()):
        what = "calls" if call["direction"] == FORWARD else "undo"
        said.append(words[what].format(tool=_text(call["tool"] or call["name"]), step=_text(call["step_id"])))
        said += [words["twice"]] if call.get("twice") else []
    said += [words[name] for name in ("looks", "model") if body.get(name)]
    for name in ("undoes", "settles", "remains", "begins"):
        if body.get(name):
            more = body.get("more", {}).get(name)
            named = [_undo_words(each, words) if name == "undoes" else _name(each) for each in body[name]]
            steps = words["and"].join(named) + (f" +{more}" if more else "")
            said.append(words[name].format(steps=steps))
    said += [words["asks"].format(step=_text(each["step_id"])) for each in body.get("asks", ())]
    return words["joined"].join(said) or words["nothing"]


def _name(step: Mapping[str, Any]) -> str:
    return _text(step["name"] or step["step_id"])


def _undo_words(step: Mapping[str, Any], words: Mapping[str, str]) -> str:
    params = step.get("params")
    said = words["undone-of" if params else "undone"]
    return said.format(step=_name(step), undo=_text(step["undo"]), params=cut(params, _PARAMS_BYTES) if params else "")


def _text(value: Any) -> str:
    return printable(str(value), 80)


def needs_mark(state: State, question: OpenQuestion, decision: str) -> bool:
    """Whether an answer is taken only with its mark: the call that it repeats may happen twice."""
    return decision == "retry" and may_happen_twice(state, question.step, question.direction)


def may_happen_twice(state: State, index: int, direction: Direction) -> bool:
    """Whether a call is in doubt, and its tool would not know a repeat by its key."""
    call = state.steps[index].call(direction) if direction == FORWARD else state.steps[index].undo
    if call is None or not call.doubt or not call.unkeyed:
        return False
    return state.plan.steps[index].kind != "read"


def _names(entries: Any) -> Any:
    if not isinstance(entries, list):
        return bool(entries)
    return [[str(each["step_id"]), each.get("tool", ""), each.get("undo") or "", each.get("kind")] for each in entries]


def _follows(state: State, question: OpenQuestion, decision: str) -> dict[str, Any]:
    if question.kind == "compensation" and decision == "approve":
        return {"calls": _proposed(state, question)}  # the plan, which copies share, would grow
    after = _copy(state)
    key = state.plan.steps[question.step].key
    evolve(
        after,
        r.QuestionResolved(
            at=state.at,
            question=question.id,
            step=key,
            direction=question.direction,
            decision=decision,
        ),
    )
    calls = [_call(state, after, place) for place in _due(state, after)]
    body: dict[str, Any] = {"calls": calls}
    if question.kind == "drift" and decision == "retry":
        body = {"looks": True}
    about = {index for index, _ in _due(state, after)}
    replans = isinstance(after.phase, Replanning)
    if after.turns or replans:
        found = standing(after)
        body["undoes"] = found.undoes
        body["settles"] = [
            each for each in found.settles if state.plan.by_key.get(str(each["step_id"]), -1) not in about
        ]
        body["remains"], body["elsewhere"] = found.remains, found.elsewhere
        body["model"] = replans
    else:
        body["begins"] = [_short(each) for each in standing(after).never if each["status"] == t.PENDING]
        left = [
            each
            for each in after.plan.steps
            if after.steps[each.index].accepted and not state.steps[each.index].accepted
        ]
        body["remains"] = [_short(body_of(after, each)) for each in left]
    body["asks"] = [
        {"step_id": after.plan.steps[index].step_id, "kind": kind} for (index, _), kind in after.to_escalate.items()
    ]
    return body


def _due(before: State, after: State) -> list[Place]:
    """The calls that the answer brings about, each by its step and direction."""
    waiting = [place for place, due in after.waiting.items() if due <= after.at and place not in before.waiting]
    return [*waiting, *((index, FORWARD) for index in after.denied if index not in before.denied)]


def _call(before: State, after: State, place: Place) -> dict[str, Any]:
    index, direction = place
    compiled = after.plan.steps[index]
    if index in after.denied:
        number = after.next_way(index, unavailable=True)
        tool = compiled.fallbacks[number - 1].tool or compiled.tool
    else:
        serving = after.acting(index) if direction == FORWARD else after.undoing(index)
        tool = "" if serving is None else serving.tool
    made: dict[str, Any] = {"step_id": compiled.step_id, "name": compiled.name, "tool": tool, "direction": direction}
    if index not in after.denied and may_happen_twice(before, index, direction):
        made["twice"] = True
    return made


def _proposed(state: State, question: OpenQuestion) -> list[dict[str, Any]]:
    proposal = state.steps[question.step].semantic
    steps = proposal.added.addition.steps if isinstance(proposal, Proposal) else ()
    return [
        {
            "step_id": step.get("step_id", ""),
            "name": step.get("name", ""),
            "tool": step.get("tool", ""),
            "direction": FORWARD,
        }
        for step in steps
    ]


def _short(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in ("step_id", "name", "tool")}


def _copy(state: State) -> State:
    """A state that can change while the first one does not; the plan is shared, and no answer makes it grow."""
    made = object.__new__(State)
    for name in State.__slots__:
        if name == "__weakref__":
            continue
        value = getattr(state, name)
        setattr(made, name, copy(value) if isinstance(value, dict | list) else value)
    made.steps = [copy(step) for step in state.steps]
    for step in made.steps:
        step.forward = copy(step.forward)
        step.undo = copy(step.undo)
    return made
