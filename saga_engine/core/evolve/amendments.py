"""Plans that grow: steps that are added, and steps of semantic compensations."""

from __future__ import annotations

from collections.abc import Mapping

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.asking_later import WAIT_FOR_PLANNER_MS
from saga_engine.core.effects import COMPENSATE, FORWARD
from saga_engine.core.evolve import compensation
from saga_engine.core.evolve.transition import index_of, move, stop, turn_saga, wake
from saga_engine.core.plan_growth import Added
from saga_engine.core.state import State
from saga_engine.core.state_values import Proposal, Replanning, StepState, Underway
from saga_engine.core.verified import evolving as verified
from saga_engine.core.waits import Pending
from saga_engine.errors import JournalUnreadable
from saga_engine.plan.amendments import Addition
from saga_engine.plan.compiled import may_be_looked_at
from saga_engine.plan.each import woven
from saga_engine.plan.values import digest


def steps_added(state: State, record: r.StepsAdded) -> None:
    """Steps were added, by a caller or by a model that was asked for another way."""
    addition = Addition(record.steps, tuple(record.dropped), place=record.place, reasons=record.reasons)
    if isinstance(state.phase, Replanning) and record.written is not None:
        state.pending.pop(state.phase.step, None)
        state.phase = FORWARD
        state.replans += 1
    wake(state)  # it waited for an operator, and now also has other work
    _mark(state, record.sensitive)
    _grow(state, Added(addition, record.undos, frozenset(record.reads)), record.tools)


def call_added(state: State, record: r.CallAdded) -> None:
    """An agent makes a call: its step waits for nothing. A session owns its plan, so the plan grows in place."""
    if state.growth is None:
        raise JournalUnreadable("a call was added to this saga, which was read without a way to grow its plan")
    plan = state.plan
    compiled = state.growth.call(record, len(plan.steps), plan.by_key)
    plan.steps.append(compiled)
    plan.by_key[compiled.key] = compiled.index
    plan.images = plan.images or compiled.before is not None
    plan.looks = plan.looks or may_be_looked_at(compiled)
    # What it came after does not list it in ``dependents``: in a session no step waits for another.
    state.steps.append(StepState(0))
    state.remaining += 1
    state.ready[compiled.index] = None
    if record.tool_digest and state.tools.get(record.tool) != record.tool_digest:
        state.tools = {**state.tools, record.tool: record.tool_digest}
    _mark(state, record.sensitive)
    if state.status == t.PENDING:
        turn_saga(state, "go")


def _mark(state: State, sensitive: Mapping[str, list[str]]) -> None:
    """More params are sensitive; none stops being sensitive, whatever its tool declares later."""
    for tool, names in sensitive.items():
        known = state.sensitive.get(tool, ())
        if not set(names) <= set(known):
            state.sensitive = {**state.sensitive, tool: sorted({*known, *names})}


def _grow(state: State, added: Added, tools: Mapping[str, str]) -> int:
    """Add steps to the plan; returns how many."""
    if state.growth is None:
        raise JournalUnreadable("steps were added to this saga, which was read without a way to grow its plan")
    state.added.append(added)
    before, state.plan = state.plan, state.growth.compile(state.added)
    if state.lists:
        lists = {before.steps[index].key: items for index, items in state.lists.items()}
        state.plan = woven(state.plan, [step.key for step in before.steps], lists)
        state.growth.has_items([step for step in state.plan.steps if step.item is not None])
    state.grown = True
    state.tools = {**state.tools, **tools}
    for key in added.addition.dropped:
        _drop(state, state.plan.by_key[key])
    first = len(state.steps)
    new = state.plan.steps[first:]
    state.steps.extend(StepState(0) for _ in new)
    for compiled in new:
        step = state.steps[compiled.index]
        step.waits = sum(1 for other in compiled.deps if not state.steps[other].settled)
        if compiled.compensates is None:
            state.remaining += 1
        if not step.waits:
            state.ready[compiled.index] = None
    if added.addition.place:
        _reorder(state, first)
    return len(new)


def _reorder(state: State, count: int) -> None:
    """The first ``count`` steps were there before: those that have not started may wait for others now."""
    for compiled in state.plan.steps[:count]:
        step = state.steps[compiled.index]
        if step.status != t.PENDING or compiled.compensates is not None:
            continue
        step.waits = sum(1 for other in compiled.deps if not state.steps[other].settled)
        if step.waits:
            state.ready.pop(compiled.index, None)
        elif (compiled.index, FORWARD) not in state.waiting:
            state.ready[compiled.index] = None


def _drop(state: State, index: int) -> None:
    """The step is not wanted any more; one that has started cannot be dropped, so its record would not exist."""
    step = state.steps[index]
    state.remaining -= 1
    if step.status == t.PENDING:
        move(step, "skip")
        state.ready.pop(index, None)
        state.waiting.pop((index, FORWARD), None)
    elif index in state.failed:
        state.failed.remove(index)


def planner_asked(state: State, record: r.PlannerAsked) -> None:
    """A model is being asked; until it answers, no other request is made."""
    index = index_of(state, record)
    later = state.pending.pop(index, None)
    if record.purpose == "replan":
        state.replan_saw = len(state.steps)
        kind = "replan"
    else:
        kind = state.to_escalate.pop((index, COMPENSATE)) if later is None else later.about
    # ``kind``: of the question that an operator gets if the model gives no steps.
    state.pending[index] = Pending("model", about=kind, of_step=False, holds_end=kind != "replan", here=True)


def overtaken(state: State) -> bool:
    """Whether steps were added while a model was asked for another way: its answer does not consider them."""
    return len(state.steps) > state.replan_saw


def planner_gave_up(state: State, record: r.PlannerGaveUp) -> None:
    """The model gave no steps: it is asked again later, or an operator is asked, or the saga turns around."""
    index = index_of(state, record)
    was = state.pending.pop(index, None)
    kind = was.about if was else ""
    state.ask_crashes.pop(index, None)
    if record.delay_ms and (record.purpose == "compensate" or isinstance(state.phase, Replanning)):
        state.pending[index] = Pending(
            "planner",
            due=record.at + record.delay_ms,
            about=kind,
            until=record.at + record.delay_ms + WAIT_FOR_PLANNER_MS,
            of_step=False,
        )
        state.ask_later_times[index] = state.ask_later_times.get(index, 0) + 1
        return
    if record.purpose == "compensate":
        state.steps[index].semantic = "none" if record.error.error_code == "goal_impossible" else "unanswered"
        state.to_escalate[index, COMPENSATE] = kind
        return
    if isinstance(state.phase, Replanning) and not (was and was.here and overtaken(state)):  # else it is asked anew
        stop(state, "step-failed")


def compensation_proposed(state: State, record: r.CompensationProposed) -> None:
    """Steps are proposed: they are added, or an operator is asked first."""
    index = index_of(state, record)
    asked = state.pending.pop(index, None)
    state.ask_crashes.pop(index, None)
    addition = Addition(record.steps, (), record.step)
    added = Added(addition, record.undos, frozenset(record.reads))
    _mark(state, record.sensitive)
    if record.auto:
        state.steps[index].semantic = Underway(_grow(state, added, record.tools))
        return
    proposal = Proposal(
        added,
        record.tools,
        digest([state.saga_id, record.step, record.steps]),
        asked.about if asked else "",
        record.why,
    )
    state.steps[index].semantic = proposal
    state.to_escalate[index, COMPENSATE] = "compensation"


def compensation_reviewed(state: State, index: int, *, approved: bool) -> None:
    """An operator approved or denied the proposed steps, or did not answer in time."""
    step = state.steps[index]
    move(step, "undo_failed")
    if not isinstance(step.semantic, Proposal):
        raise KeyError(f"no steps are proposed for step {state.plan.steps[index].key}")
    if approved:
        step.semantic = Underway(_grow(state, step.semantic.added, step.semantic.tools))
    else:
        state.to_escalate[index, COMPENSATE] = step.semantic.kind
        step.semantic = "none"


def compensation_happened(state: State, stuck: int) -> None:
    """A step of the semantic compensation of ``stuck`` has happened.

    With the last of them, ``stuck`` is compensated.
    """
    step = state.steps[stuck]
    if not isinstance(step.semantic, Underway):  # another of its steps failed, and an operator is or was asked about it
        if step.undo_waits is None:
            compensation.ask_about_compensations(state, stuck)
        return
    still = step.semantic.open - 1
    if still:
        step.semantic = Underway(still)
        return
    step.semantic = "happened"
    move(step, "compensated_by_others")
    verified.ends(state, stuck)
    compensation.end_undo(state, stuck)


def compensation_failed(state: State, stuck: int) -> None:
    """A step of a semantic compensation failed. No model is asked again: an operator is."""
    step = state.steps[stuck]
    if not isinstance(step.semantic, Underway):
        return
    step.semantic = "none"
    for compiled in state.plan.steps:
        if compiled.compensates != stuck:
            continue
        compensation.close_call(state, compiled.index)
        if state.steps[compiled.index].status == t.PENDING:
            move(state.steps[compiled.index], "skip")
            state.ready.pop(compiled.index, None)
    state.to_escalate[stuck, COMPENSATE] = "undo-failed" if state.undoing(stuck) is not None else "undo-missing"
