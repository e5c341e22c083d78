"""Engines that are broken on purpose."""

from __future__ import annotations

import inspect
import itertools
import sys
import textwrap
from collections.abc import Callable
from types import ModuleType

import pytest

from saga_engine.core import (
    decide,
    evolve,
    finishing,
    images,
    interpret,
    messages,
    other_ways,
    proposed_steps,
    questions,
    session_records,
    settling,
    state,
)
from saga_engine.core import late_events as late
from saga_engine.core.evolve import amendments, calls, compensation, escalation, transition
from saga_engine.core.evolve import final as evolving_final
from saga_engine.core.steps import wait, waiting

Patch = Callable[[pytest.MonkeyPatch], None]


def rewrite(module: ModuleType | type, function: str, *changes: tuple[str, str]) -> Patch:
    """A mutant of one function, made by replacing text in its source; the text must be there."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        source = textwrap.dedent(inspect.getsource(getattr(module, function)))
        for old, new in changes:
            assert old in source, f"{module.__name__}.{function} has changed: the mutant no longer fits"
            source = source.replace(old, new)
        namespace: dict[str, object] = {}
        home = sys.modules[module.__module__] if isinstance(module, type) else module
        exec(compile(source, f"<mutant of {function}>", "exec"), home.__dict__, namespace)
        mutant = namespace[function]
        original = getattr(module, function)
        monkeypatch.setattr(module, function, mutant)
        for kind, handler in list(evolve._HANDLERS.items()):
            if handler is original:
                monkeypatch.setitem(evolve._HANDLERS, kind, mutant)

    return apply


def spread(module: ModuleType, function: str, users: tuple[ModuleType, ...], *changes: tuple[str, str]) -> Patch:
    """The same, where other modules have the function by its name."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        rewrite(module, function, *changes)(monkeypatch)
        for user in users:
            monkeypatch.setattr(user, function, getattr(module, function))

    return apply


def both(*patches: Patch) -> Patch:
    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        for patch in patches:
            patch(monkeypatch)

    return apply


def new_key_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = itertools.count()
    monkeypatch.setattr(state, "idempotency_key", lambda saga, step, *_: f"{saga}:{step}:{next(counter)}")


MUTANTS: dict[str, Patch] = {
    "compensate forwards": both(
        rewrite(compensation, "_send_back", (".dependents\n", ".deps\n")),
        rewrite(compensation, "_let_go", ("[index].deps", "[index].dependents")),
    ),
    "treat unknown as failed": rewrite(
        interpret, "interpret", ('if spec.effect != "read" or outcome.lost:', "if False:")
    ),
    "forget an in-doubt step": lambda monkeypatch: monkeypatch.setattr(
        compensation, "_NOTHING_TO_UNDO", frozenset({*compensation._NOTHING_TO_UNDO, "IN_DOUBT"})
    ),
    "forget the calls in flight at a crash": rewrite(
        evolve,
        "_resumed",
        (
            'calls.doubt(state, index, direction, ErrorInfo("answer_lost", record.reason or _ANSWER_LOST), None)',
            "state.in_flight.pop((index, direction))",
        ),
    ),
    "new key on retry": new_key_each_time,
    "compensate twice": rewrite(calls, "intended", ("state.undo_ready.pop(index, None)", "None")),
    "repeat a write without a key": rewrite(settling, "_repeatable", ("if not spec.keyed:", "if False:")),
    "repeat after the key has expired": rewrite(settling, "_repeatable", ("spec.key_ttl_s is None or", "True or")),
    "a later refusal settles an earlier doubt": rewrite(interpret, "interpret", ("if call.doubt and", "if False and")),
    "start forward calls while turning around": rewrite(
        state.State, "calls_forward", ("any(direction == FORWARD for _, direction in self.in_flight)", "False")
    ),
    "compensate past the pivot": rewrite(
        decide, "_turn_around", ("if pivot is not None and not state.undo_of:", "if False:")
    ),
    "report a failed undo as done": rewrite(
        calls, "failed", ('move(step, "undo_failed")', "compensation.end_undo(state, index); return")
    ),
    "undo before the dependents are undone": both(
        rewrite(compensation, "undo_turn", ("if step.undo_waits != 0:", "if step.undo_waits is None:")),
        rewrite(compensation, "_send_back", ("if not steps[index].undo_waits]", "]")),
    ),
    "undo blindly what does not tolerate it": rewrite(
        settling, "_blind_undo", ("call.spec.tolerates_absence for", "True for")
    ),
    "an approval counts for ever": rewrite(
        state.State, "approval", ("and self.at < approval.until", "and approval.until")
    ),
    "a denied call is made all the same": rewrite(
        escalation, "decided", ('if record.decision == "deny":', "if False:")
    ),
    "a blocked undo counts as done": rewrite(
        calls, "refused", ('move(step, "undo_failed")', 'move(step, "undo"); move(step, "undone")')
    ),
    "a block settles an earlier doubt": rewrite(calls, "refused", ("if call.doubt:", "if False:")),
    "undo what another saga made": rewrite(
        state.State, "owns", ("isinstance(effect, Deduplicated) or", "not isinstance(effect, Deduplicated) and")
    ),
    "undo a fallback by the step's own undo": both(
        rewrite(state.State, "rollback_of", ("if at.using else", "if False else")),
        rewrite(state.State, "whole_rollback", ("using = self.steps[index].using", "using = 0")),
    ),
    "a fallback under the step's own key": rewrite(
        state.State, "key", ("self.seed, step.using, undo)", "self.seed, 0, undo)")
    ),
    "fall back while the step is in doubt": rewrite(
        interpret, "interpret", ("if call.doubt and not (outcome.definite and not outcome.retryable):", "if False:")
    ),
    "run a model's steps without asking": rewrite(
        interpret, "interpret_advice", ("auto = all(", "auto = True or all(")
    ),
    "ask the model again": rewrite(decide, "_stuck", ("and state.steps[index].semantic is None", "")),
    "steps that failed have made up for another": rewrite(
        amendments,
        "compensation_failed",
        ('step.semantic = "none"', "step.semantic = Underway(1); compensation_happened(state, stuck); return"),
    ),
    "the first of several steps makes up for all": rewrite(
        amendments, "compensation_happened", ("step.semantic.open - 1", "0")
    ),
    "wait for steps that were dropped": rewrite(amendments, "_drop", ("state.remaining -= 1", "None")),
    "added steps are started at once": rewrite(amendments, "_grow", ("if not step.waits:", "if True:")),
    "skip the steps that wait for a retry": rewrite(compensation, "close_call", ('move(step, "fail")', "None")),
}


#: Faults that a saga with a plan can show, and that leave no mark in the traces of ``test_replay``.
LATER_MUTANTS: dict[str, Patch] = {
    "a failed undo lets go of the steps before it": rewrite(
        calls,
        "failed",
        (
            'state.to_escalate[index, COMPENSATE] = "undo-failed"',
            (
                'state.to_escalate[index, COMPENSATE] = "undo-failed"\n'
                "        [compensation.undo_turn(state, other) for other in compensation._let_go(state, index)]"
            ),
        ),
    ),
    "end while a step that makes up for another is under way": rewrite(
        state.State,
        "is_undone",
        (" or self.in_flight or self.waiting or self.waits or self.doubts or self.questions", ""),
    ),
    "forget steps that make up for nothing": rewrite(
        compensation, "ask_about_compensations", ("compiled.compensates == stuck", "False")
    ),
    "a call that only waited is in doubt": rewrite(evolve, "_resumed", ('if flight == "queued":', "if False:")),
    "a call that only waited was an attempt": rewrite(
        calls, "never_made", ("_take_back(state, call, direction)", "None")
    ),
    "a call that has begun still waits": rewrite(calls, "begun", ('"queued", "call"', '"queued", "queued"')),
    "ask about a call that is at work": rewrite(calls, "in_doubt", ("if record.at_work:", "if False:")),
    "a request that left counts as never sent": rewrite(calls, "in_doubt", ("was.sent or record.sent", "False")),
    "a call that died with its process counts as never sent": rewrite(
        evolve, "_resumed", ("sent=True, lost=True", "sent=False, lost=True")
    ),
    "turn around for an undo that cannot settle the doubt": rewrite(
        settling, "_undo_settles", ("and _blind_undo(state, index)", "")
    ),
    "a call in doubt waits until its key is forgotten": rewrite(
        settling, "_waits_for_key", ("return _repeatable(spec, call, FORWARD, due,", "return True or (due,")
    ),
    "waiting in doubt forgets the doubt": rewrite(calls, "deferred", ("if record.in_doubt:", "if False:")),
    "a deadline binds only what moves": rewrite(decide, "_bound", ("(moving or idle)", "moving")),
    "drop what was added while the planner was asked": both(
        rewrite(amendments, "overtaken", ("len(state.steps) > state.replan_saw", "False")),
        lambda monkeypatch: monkeypatch.setattr(interpret, "overtaken", lambda _: False),
    ),
    "run larger numbers without asking": rewrite(
        proposed_steps, "_numbers", ("if isinstance(value, bool):", "if True:")
    ),
    "run one tool twice without asking": lambda monkeypatch: monkeypatch.setattr(
        proposed_steps, "Counter", lambda _: {}
    ),
    "drop all steps that have not started": rewrite(other_ways, "_needs", ("if step.data_deps & others:", "if True:")),
    "drop writes without a reason": rewrite(
        other_ways, "_silent", ("if step.key in reasons or", "if True or step.key in reasons or")
    ),
    "make the call that failed again": rewrite(other_ways, "_same", ("one.tool != other.tool", "True")),
    "the pivot does not wait for what replaces a step": rewrite(
        amendments, "_reorder", ("if step.waits:", "if not step.waits:")
    ),
}


#: Faults that only a session can show.
SESSION_MUTANTS: dict[str, Patch] = {
    "a turn closes the questions of a roll-back": both(
        rewrite(
            compensation,
            "close_call",
            ("(question.step, question.direction) == (index, FORWARD)", "question.step == index"),
        ),
        rewrite(compensation, "_close_forward", (" if question.direction == FORWARD", "")),
    ),
    "a turn forgets the undos that wait for a retry": rewrite(
        compensation, "_close_forward", ("if place[1] == FORWARD]", "]\n    state.waiting.clear()")
    ),
    "calls are added on the way back": rewrite(
        session_records,
        "takes_calls",
        ("state.open and not state.turns", "state.open or state.backward"),
    ),
    "calls are added while the session is about to turn around": rewrite(
        session_records, "takes_calls", ("not state.turns", "not state.backward")
    ),
    "an undo in flight ends before those that come before it": rewrite(
        compensation, "end_undo", ("if step.undo_waits != 0:", "if step.undo_waits is None:")
    ),
    "accepting a remainder ends the session": rewrite(decide, "_rest", (" and not state.open", "")),
    "an agent ends a session about which an operator is asked": rewrite(
        session_records, "close", ("not reason and any(", "not reason and False and any(")
    ),
    "a session is kept for ever": rewrite(
        decide, "_expired", ("asked.expires is not None", "asked.expires is not None and not asked.of_session")
    ),
    "calls are added to a session that waits": rewrite(
        session_records, "takes_calls", ("return open_ and not", "return open_ or not")
    ),
    "whatever an operator answers ends a kept session well": rewrite(
        escalation, "_session_decided", ('== "undo"', '== "undone"')
    ),
    "an agent that returns overrules an operator": rewrite(
        escalation, "agent_returned", ('question.kind == "session-kept"', "question.of_session")
    ),
    "a session that is kept is closed": rewrite(escalation, "_session_decided", ('== "keep"', '== "kept"')),
    "a question about a session outlives its end": rewrite(
        transition, "_drop_session_questions", ("if question.of_session", "if False")
    ),
    "an idle session has no deadline": rewrite(
        decide, "_bound", ("(state.questions or state.open)", "state.questions")
    ),
    "calls of one turn are undone side by side": rewrite(compensation, "_in_reverse", ("= after, 1", "= after, 0")),
    "calls are undone in reverse of their making": rewrite(
        compensation, "_in_reverse", ("(state.steps[index].happened_nth or _NOT_KNOWN, index)", "index")
    ),
    "a call in doubt counts as the first": rewrite(compensation, "_in_reverse", ("or _NOT_KNOWN", "or 0")),
}


#: Faults that only a plan that asks can show.
ASK_MUTANTS: dict[str, Patch] = {
    "an answer after the expiry counts": rewrite(messages, "check_decision", ("question.expires <= now_ms", "False")),
    "an option that the engine knows is its own answer": rewrite(
        escalation, "decided", ('if question.kind == "ask":', 'if question.kind == "ask" and record.decision == "yes":')
    ),
    "no answer fails the step, whatever the plan says": rewrite(
        escalation, "approval_expired", ('if record.then == "value":', "if False:")
    ),
    "no answer stops a saga that goes on without": rewrite(
        calls, "not_done", ("error.error_code if error", '"" if error')
    ),
    "no answer denies a call": rewrite(escalation, "approval_expired", ('if question.kind == "ask":', "if False:")),
    "a question outlives the turn": rewrite(compensation, "close_call", ("if waits or asked:", "if waits:")),
}

#: Engines that are broken for the steps of ``finally``.
FINAL_MUTANTS: dict[str, Patch] = {
    "a failed step of finally turns the saga around": rewrite(
        calls, "not_done", ("if state.ending is not None:", "if False:")
    ),
    "a failed step of finally holds back the others": rewrite(
        evolving_final, "ended", ("waiter.waits -= 1", "waiter.waits -= error is None")
    ),
    "the end does not wait for finally": rewrite(
        finishing, "decide", ("if state.in_flight or state.waiting or", "if state.in_flight or")
    ),
    "a doubt of finally counts as not done": rewrite(questions, "_unasked", ("if call.doubt:", "if False:")),
    "finally asks operators": spread(
        questions, "escalate", (settling, decide, interpret), ("if state.ending is not None:", "if False:")
    ),
    "a cancel stops finally": rewrite(messages, "check_cancel", ("if state.ending is not None:", "if False:")),
    "finally has no bound": rewrite(finishing, "decide", ("if now >= ending.until:", "if False:")),
    "the end of finally is not the one that was certain": rewrite(
        finishing, "end", ("status = next(", 'status = "COMPENSATED" or next(')
    ),
    "a saga that was undone retries no step of finally": spread(
        settling, "moot", (interpret,), ("or state.ending is not None", "")
    ),
}


_AGAIN = "r.StepSucceeded(at=now, step=step, output=event.payload, via='event', source=event.id)"
#: Faults that only steps that wait can show.
WAITING_MUTANTS: dict[str, Patch] = {
    "an event counts twice": rewrite(
        wait,
        "arrived",
        ("if wait is None or entry < 0 or", "if False and"),
        ("if wait.due is not None", "if wait is not None and wait.due is not None"),
        ("return came(", f"return {_AGAIN} if entry < 0 else came("),
    ),
    "a time-out after the event": rewrite(calls, "succeeded", ("state.waits.pop(index, None)", "None")),
    "an event after the time-out": rewrite(wait, "arrived", ("if wait.due is not None", "if False")),
    "a wait is lost at a takeover": rewrite(
        evolve, "_resumed", ("state.epoch = record.epoch", "state.epoch = record.epoch\n    state.waits.clear()")
    ),
    "an event that does not fit counts": rewrite(wait, "misfit", ("if schema is None", "if True")),
    "a wait outlives the turn of its saga": rewrite(
        compensation, "compensation_started", ("(t.PENDING, t.WAITING)", "(t.PENDING,)")
    ),
    "a time-out stops a saga that goes on without": rewrite(
        calls, "not_done", ("error.error_code if error", '"" if error')
    ),
    "a time-out is undone like an event": rewrite(state.State, "owns", ('effect.via == "timer"', "False")),
    "an event that was taken is not undone": rewrite(state.State, "owns", ('via == "timer"', 'via == "event"')),
    "what was in time is given back as late": rewrite(
        late, "may_be_late", ("return effect is None or (", "return True or (")
    ),
    "a late event is not given back after a time-out with a value": rewrite(
        late, "may_be_late", ("(isinstance(effect, Made) and", "(False and")
    ),
    "nothing is left for the late events of a saga that was undone": rewrite(
        late, "late_call", ("if step.late is None or", "if step.late is None or state.turns or")
    ),
    "each owner gives a late event back by a saga of its own": rewrite(
        late, "late_call", ("state.seed, state.saga_id", "state.seed, state.epoch")
    ),
    "a sleep ends early": rewrite(waiting, "due_waits", ("open_wait.due <= now", "True")),
    "only an operator moves a saga that waits": rewrite(decide, "_rest", (" or state.waits:", ":")),
    "a saga that waits has no deadline": rewrite(decide, "_bound", ("or state.waits or", "or")),
}


#: Faults that only a model that is away can show.
AWAY_MUTANTS: dict[str, Patch] = {
    "a request for later is lost at a takeover": rewrite(
        evolve, "_resumed", ("state.epoch = record.epoch", "state.epoch = record.epoch\n    state.ask_later.clear()")
    ),
    "a model is asked again at once": rewrite(decide, "_ask_again", ("later.due <= now and ", "")),
    "a model is asked again for ever": rewrite(
        amendments, "planner_gave_up", ("state.ask_later_times.get(index, 0) + 1", "0")
    ),
    "an operator is asked although a model is to be asked again": rewrite(
        amendments, "planner_gave_up", ("get(index, 0) + 1\n        return", "get(index, 0) + 1")
    ),
    "a saga rests although a model is to be asked again": rewrite(decide, "_rest", ("or state.ask_later ", "")),
    "a request for later outlives the turn": spread(
        transition, "stop", (amendments, calls, escalation, evolve), ("state.ask_later.clear()", "None")
    ),
    "a request for later waits for a planner for ever": rewrite(
        decide, "_ask_again", ("elif later.until <= now:", "elif False:")
    ),
    "a process without a planner ends the wait for one": rewrite(
        decide, "_replan", ("later.due if capabilities.planner else later.until", "later.due")
    ),
}


#: Faults that only calls with before-images can show.
IMAGE_MUTANTS: dict[str, Patch] = {
    "drift is overwritten": rewrite(images, "judge", ('else "drift"\n    return', 'else "undo"\n    return')),
    "an unknown after-image counts as the same": rewrite(
        images, "judge", ('return "undo" if sole_writer else "drift"', 'return "undo"')
    ),
    "nothing is ever left to undo": rewrite(images, "judge", ("if same(found, step.before):", "if True:")),
    "an operator's word counts for every value": rewrite(images, "judge", ("and same(found, step.cleared)", "")),
    "the value is read again while the call is in doubt": rewrite(
        images, "needs_image", ("and not state.steps[index].forward.doubt", "")
    ),
    "a retry keeps the value that it read first": rewrite(
        calls, "intended", ("if record.before is not None:", "if step.before is None:")
    ),
    "a call that waited keeps the value that it read first": rewrite(
        calls, "begun", ("if record.before is not None:", "if False:")
    ),
    "a creation is undone like a change": rewrite(state.State, "rollback_of", ("rollback = rollback.absent", "pass")),
    "an unchanged value counts as changed": rewrite(
        images, "settled", ("if same(found, step.before):\n        return _did", "if False:\n        return _did")
    ),
    "an undo that is still to be made counts as made": rewrite(
        images,
        "settled",
        ("if same(found, step.before):\n            return Done", "if True:\n            return Done"),
    ),
    "a call whose value cannot be read is made": rewrite(
        interpret,
        "interpret_read",
        (
            "if not isinstance(image, NotDone):",
            "if isinstance(image, NotDone):\n        image = images.unread(image)\n    if True:",
        ),
    ),
}
