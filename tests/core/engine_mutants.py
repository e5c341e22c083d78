"""Engines that are broken on purpose: by texts of the package, wherever they stand (``tests/support/mutating.py``)."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

MUTANTS: dict[str, Mutant] = {
    "compensate forwards": rewrite(
        (".dependents\n", ".deps\n"),
        ("behind = state.plan.steps[index].deps", "behind = state.plan.steps[index].dependents"),
    ),
    "treat unknown as failed": rewrite(('if spec.effect != "read" or outcome.lost:', "if False:")),
    "forget an in-doubt step": rewrite(
        ("elif step.status in _NOTHING_TO_UNDO:", 'elif step.status in {*_NOTHING_TO_UNDO, "IN_DOUBT"}:'),
        ("elif earlier.status in _NOTHING_TO_UNDO:", 'elif earlier.status in {*_NOTHING_TO_UNDO, "IN_DOUBT"}:'),
    ),
    "forget the calls in flight at a crash": rewrite(
        (
            'calls.doubt(state, index, direction, ErrorInfo("answer_lost", record.reason or _ANSWER_LOST), None)',
            "state.in_flight.pop((index, direction))",
        )
    ),
    "new key on retry": rewrite(
        (
            "    if fallback and direction == FORWARD:\n",
            """\
    idempotency_key.made = getattr(idempotency_key, "made", 0) + 1
    return f"{saga_id}:{step_key}:{idempotency_key.made}"
    if fallback and direction == FORWARD:
""",
        )
    ),
    "a refusal by a guard uses up an attempt": rewrite(("if outcome.held and direction == FORWARD", "if False")),
    "a guard holds a step for ever": rewrite(("call.held_at = call.held_at or record.at", "pass")),
    "compensate twice": rewrite(
        (
            "state.undo_ready.pop(index, None)\n        if state.doubts or state.waiting:",
            "None\n        if state.doubts or state.waiting:",
        )
    ),
    "repeat a write without a key": rewrite(("if not spec.keyed:", "if False:")),
    "repeat after the key has expired": rewrite(
        (
            "return spec.key_ttl_s is None or now - call.first_at + timeout_s * 1000 < spec.key_ttl_s * 1000",
            "return True or now - call.first_at + timeout_s * 1000 < spec.key_ttl_s * 1000",
        )
    ),
    "a later refusal settles an earlier doubt": rewrite(
        (
            "if call.doubt and not (outcome.definite and not outcome.retryable):",
            "if False and not (outcome.definite and not outcome.retryable):",
        )
    ),
    "start forward calls while turning around": rewrite(
        ("any(direction == FORWARD for _, direction in self.in_flight)", "False")
    ),
    "compensate past the pivot": rewrite(("if pivot is not None and not state.undo_of:", "if False:")),
    "report a failed undo as done": rewrite(
        (
            'if record.direction == COMPENSATE:\n        move(step, "undo_failed")',
            "if record.direction == COMPENSATE:\n        compensation.end_undo(state, index); return",
        )
    ),
    "undo before the dependents are undone": rewrite(
        (
            "if step.undo_waits != 0:  #",
            "if step.undo_waits is None:  #",
        ),
        ("if not steps[index].undo_waits]", "]"),
    ),
    "undo blindly what does not tolerate it": rewrite(("call.spec.tolerates_absence for", "True for")),
    "an approval counts for ever": rewrite(("and self.at < approval.until", "and approval.until")),
    "a denied call is made all the same": rewrite(('if record.decision == "deny":', "if False:")),
    "a blocked undo counts as done": rewrite(
        (
            'if direction == COMPENSATE:\n        move(step, "undo_failed")',
            'if direction == COMPENSATE:\n        move(step, "undo"); move(step, "undone")',
        )
    ),
    "a block settles an earlier doubt": rewrite(
        ("call = step.call(direction)\n    if call.doubt:", "call = step.call(direction)\n    if False:")
    ),
    "undo what another saga made": rewrite(
        ("isinstance(effect, Deduplicated) or", "not isinstance(effect, Deduplicated) and")
    ),
    "undo a fallback by the step's own undo": rewrite(
        (
            "rollback = step.fallbacks[at.using - 1].rollback if at.using else step.rollback",
            "rollback = step.fallbacks[at.using - 1].rollback if False else step.rollback",
        ),
        (
            "using = self.steps[index].using\n        step = self.plan.steps[index]\n        rollback = step.fallbacks[using - 1].rollback if using else step.rollback",
            "using = 0\n        step = self.plan.steps[index]\n        rollback = step.fallbacks[using - 1].rollback if using else step.rollback",
        ),
    ),
    "a fallback under the step's own key": rewrite(("self.seed, step.using, undo)", "self.seed, 0, undo)")),
    "fall back while the step is in doubt": rewrite(
        ("if call.doubt and not (outcome.definite and not outcome.retryable):", "if False:")
    ),
    "run a model's steps without asking": rewrite(("auto = all(", "auto = True or all(")),
    "ask the model again": rewrite(("and state.steps[index].semantic is None", "")),
    "steps that failed have made up for another": rewrite(
        (
            'step.semantic = "none"\n    for compiled in state.plan.steps:',
            "step.semantic = Underway(1); compensation_happened(state, stuck); return\n    for compiled in state.plan.steps:",
        )
    ),
    "the first of several steps makes up for all": rewrite(("step.semantic.open - 1", "0")),
    "wait for steps that were dropped": rewrite(
        ("step = state.steps[index]\n    state.remaining -= 1", "step = state.steps[index]\n    None")
    ),
    "added steps are started at once": rewrite(
        ("state.remaining += 1\n        if not step.waits:", "state.remaining += 1\n        if True:")
    ),
    "skip the steps that wait for a retry": rewrite(
        ('if waits or asked:\n        move(step, "fail")', "if waits or asked:\n        None")
    ),
}


#: Faults that a saga with a plan can show, and that leave no mark in the traces of ``test_replay``.
LATER_MUTANTS: dict[str, Mutant] = {
    "a failed undo lets go of the steps before it": rewrite(
        (
            'state.to_escalate[index, COMPENSATE] = "undo-failed"\n        return\n    move(step, "fail")',
            'state.to_escalate[index, COMPENSATE] = "undo-failed"\n        [compensation.undo_turn(state, other) for other in compensation._let_go(state, index)]\n        return\n    move(step, "fail")',
        )
    ),
    "end while a step that makes up for another is under way": rewrite(
        (" or self.in_flight or self.waiting or self.doubts or self.questions or self.looks", "")
    ),
    "forget steps that make up for nothing": rewrite(("compiled.compensates == stuck", "False")),
    "a call that only waited is in doubt": rewrite(('if flight in ("intended", "queued"):', "if False:")),
    "a call that only waited was an attempt": rewrite(("_was_none(state, call, direction)", "None")),
    "a call that has begun still waits": rewrite(
        ('("intended", "queued"), "call"', '("intended", "queued"), "queued"')
    ),
    "ask about a call that is at work": rewrite(("if record.at_work:", "if False:")),
    "a request that left counts as never sent": rewrite(("was.sent or record.sent", "False")),
    "a call that died with its process counts as never sent": rewrite(
        ("sent=True, lost=True", "sent=False, lost=True")
    ),
    "turn around for an undo that cannot settle the doubt": rewrite(
        (
            "return wanted and may_turn and certain_undo(state, index)",
            "return wanted and may_turn",
        )
    ),
    "undo by the caller's own params for safety": rewrite(
        ("guards_undo(state, index) or all(call.by_key for call in calls)", "True")
    ),
    "an exception that says nothing is repeated like a time-out": rewrite(("doubt.raised >= MAX_RAISED", "False")),
    "a call in doubt waits until its key is forgotten": rewrite(
        ("return _repeatable(spec, call, FORWARD, due,", "return True or (due,")
    ),
    "waiting in doubt forgets the doubt": rewrite(("if record.in_doubt:", "if False:")),
    "a deadline binds only what moves": rewrite(("(moving or idle)", "moving")),
    "drop what was added while the planner was asked": rewrite(("len(state.steps) > state.replan_saw", "False")),
    "run larger numbers without asking": rewrite(
        (
            "if isinstance(value, bool):\n        return\n    if isinstance(value, int | float):",
            "if True:\n        return\n    if isinstance(value, int | float):",
        )
    ),
    "run one tool twice without asking": rewrite(("in calls.items() if count > 1", "in calls.items() if False")),
    "drop all steps that have not started": rewrite(("if step.data_deps & others:", "if True:")),
    "drop writes without a reason": rewrite(("if step.key in reasons or", "if True or step.key in reasons or")),
    "make the call that failed again": rewrite(("one.tool != other.tool", "True")),
    "the pivot does not wait for what replaces a step": rewrite(("if step.waits:", "if not step.waits:")),
}


#: Faults that only a session can show.
SESSION_MUTANTS: dict[str, Mutant] = {
    "a turn closes the questions of a roll-back": rewrite(
        ("(question.step, question.direction) == (index, FORWARD)", "question.step == index"),
        (
            "places += [question.step for question in state.questions.values() if question.direction == FORWARD]",
            "places += [question.step for question in state.questions.values()]",
        ),
    ),
    "a turn forgets the undos that wait for a retry": rewrite(
        ("if place[1] == FORWARD]", "]\n    state.waiting.clear()")
    ),
    "calls are added on the way back": rewrite(("state.open and not state.turns", "state.open or state.backward")),
    "calls are added while the session is about to turn around": rewrite(
        ("open_ = state.open and not state.turns", "open_ = state.open and not state.backward")
    ),
    "an undo in flight ends before those that come before it": rewrite(
        ("if step.undo_waits != 0:\n            continue", "if step.undo_waits is None:\n            continue")
    ),
    "accepting a remainder ends the session": rewrite((" and not state.open", "")),
    "an agent ends a session about which an operator is asked": rewrite(
        ("not reason and any(", "not reason and False and any(")
    ),
    "a session is kept for ever": rewrite(
        (
            "if asked.expires is not None and asked.expires <= now",
            "if asked.expires is not None and not asked.of_session and asked.expires <= now",
        )
    ),
    "calls are added to a session that waits": rewrite(("return open_ and not", "return open_ or not")),
    "whatever an operator answers ends a kept session well": rewrite(
        (
            'state.open = False\n    if record.decision == "undo":',
            'state.open = False\n    if record.decision == "undone":',
        )
    ),
    "an agent that returns overrules an operator": rewrite(('question.kind == "session-kept"', "question.of_session")),
    "a session that is kept is closed": rewrite(('if record.decision == "keep":', 'if record.decision == "kept":')),
    "a question about a session outlives its end": rewrite(
        (
            "for asked in [question.id for question in state.questions.values() if question.of_session]:",
            "for asked in [question.id for question in state.questions.values() if False]:",
        )
    ),
    "an idle session has no deadline": rewrite(("(state.questions or state.open)", "state.questions")),
    "calls of one turn are undone side by side": rewrite(("= after, 1", "= after, 0")),
    "calls are undone in reverse of their making": rewrite(
        ("return state.steps[index].happened_nth or _NOT_KNOWN, index", "return index, index")
    ),
    "a call in doubt counts as the first": rewrite(("or _NOT_KNOWN", "or 0")),
}


#: Faults that only a plan that asks can show.
ASK_MUTANTS: dict[str, Mutant] = {
    "an answer after the expiry counts": rewrite(("question.expires <= now_ms", "False")),
    "an option that the engine knows is its own answer": rewrite(
        (
            'if question.kind == "ask":  #',
            'if question.kind == "ask" and record.decision == "yes":  #',
        )
    ),
    "no answer fails the step, whatever the plan says": rewrite(('if record.then == "value":', "if False:")),
    "no answer stops a saga that goes on without": rewrite(("error.error_code if error", '"" if error')),
    "no answer denies a call": rewrite(
        (
            'if question.kind == "ask":\n        if record.then == "value":',
            'if False:\n        if record.then == "value":',
        )
    ),
    "a question outlives the turn": rewrite(("if waits or asked:", "if waits:")),
}

#: Engines that are broken for the steps of ``finally``.
FINAL_MUTANTS: dict[str, Mutant] = {
    "a failed step of finally turns the saga around": rewrite(
        (
            "if state.ending is not None:\n        final.ended(state, index, state.steps[index].forward.error)",
            "if False:\n        final.ended(state, index, state.steps[index].forward.error)",
        )
    ),
    "a failed step of finally holds back the others": rewrite(
        (
            "waiter = state.steps[dependent]\n        waiter.waits -= 1",
            "waiter = state.steps[dependent]\n        waiter.waits -= error is None",
        )
    ),
    "the end does not wait for finally": rewrite(("if state.in_flight or state.waiting or", "if state.in_flight or")),
    "a doubt of finally counts as not done": rewrite(
        (
            "if call.doubt:\n        return unsettled(state, index, now, error)",
            "if False:\n        return unsettled(state, index, now, error)",
        )
    ),
    "finally asks operators": rewrite(
        (
            "if state.ending is not None:\n        return _unasked(state, index, now, error, approval)",
            "if False:\n        return _unasked(state, index, now, error, approval)",
        )
    ),
    "a cancel stops finally": rewrite(
        (
            "if state.ending is not None:\n        raise CancelRefused(f\"saga {state.saga_id} is at its end: its 'finally' runs\", hint=_see(state))",
            "if False:\n        raise CancelRefused(f\"saga {state.saga_id} is at its end: its 'finally' runs\", hint=_see(state))",
        )
    ),
    "finally has no bound": rewrite(("if now >= ending.until:", "if False:")),
    "the end of finally is not the one that was certain": rewrite(
        ("status = next(", 'status = "COMPENSATED" or next(')
    ),
    "a saga that was undone retries no step of finally": rewrite(
        (
            "if direction != FORWARD or not state.turns or state.ending is not None:",
            "if direction != FORWARD or not state.turns :",
        )
    ),
}


#: Faults that only steps that wait can show.
WAITING_MUTANTS: dict[str, Mutant] = {
    "an event counts twice": rewrite(
        ("if wait is None or entry < 0 or", "if False and"),
        ("if wait.due is not None", "if wait is not None and wait.due is not None"),
        (
            "return came(",
            "return r.StepSucceeded(at=now, step=step, output=event.payload, via='event', source=event.id) if entry < 0 else came(",
        ),
    ),
    "a time-out after the event": rewrite(("wait = state.pending.pop(index, None)", "wait = None")),
    "an event after the time-out": rewrite(("if wait.due is not None", "if False")),
    "a wait is lost at a takeover": rewrite(
        ("state.epoch = record.epoch", "state.epoch = record.epoch\n    state.pending.clear()")
    ),
    "an event that does not fit counts": rewrite(
        ('if schema is None:\n        return ""', 'if True:\n        return ""')
    ),
    "a wait outlives the turn of its saga": rewrite(("(t.PENDING, t.WAITING)", "(t.PENDING,)")),
    "a time-out stops a saga that goes on without": rewrite(("error.error_code if error", '"" if error')),
    "a time-out is undone like an event": rewrite(('effect.via == "timer"', "False")),
    "an event that was taken is not undone": rewrite(
        ('if type(effect) is Made and effect.via == "timer":', 'if type(effect) is Made and effect.via == "event":')
    ),
    "what was in time is given back as late": rewrite(("return effect is None or (", "return True or (")),
    "a late event is not given back after a time-out with a value": rewrite(
        (
            "return effect is None or (isinstance(effect, Made) and effect.via in in_vain)",
            "return effect is None or (False and effect.via in in_vain)",
        )
    ),
    "nothing is left for the late events of a saga that was undone": rewrite(
        ("if step.late is None or", "if step.late is None or state.turns or")
    ),
    "each owner gives a late event back by a saga of its own": rewrite(
        (
            "token=late_token(state.seed, state.saga_id, step.key),",
            "token=late_token(state.seed, str(state.epoch), step.key),",
        )
    ),
    "what came for a wait that never begins is nobody's": rewrite(
        ("if step.builtin != KIND or at.begun or at.settled or at.status != SKIPPED:", "if True:")
    ),
    "a sleep ends early": rewrite(("open_wait.due <= now", "True")),
    "only an operator moves a saga that waits": rewrite((" or state.pending:", ":")),
    "a saga that waits has no deadline": rewrite(
        (
            "moving = state.ready or state.waiting or state.pending or state.doubts or isinstance(state.phase, Replanning)",
            "moving = state.ready or state.waiting or state.doubts or isinstance(state.phase, Replanning)",
        )
    ),
}


#: Faults that only a model that is away can show.
AWAY_MUTANTS: dict[str, Mutant] = {
    "a request for later is lost at a takeover": rewrite(
        (
            "state.epoch = record.epoch",
            "state.epoch = record.epoch\n    state.pending = {at: each for at, each in state.pending.items() if each.here}",
        )
    ),
    "a model is asked again at once": rewrite(("(later.due or 0) <= now and ", "")),
    "a model is asked again for ever": rewrite(("state.ask_later_times.get(index, 0) + 1", "0")),
    "an operator is asked although a model is to be asked again": rewrite(
        ("get(index, 0) + 1\n        return", "get(index, 0) + 1")
    ),
    "a saga rests although a model is to be asked again": rewrite(
        (" or state.pending:", " or any(each.until == 0 for each in state.pending.values()):")
    ),
    "a request for later outlives the turn": rewrite(
        ('state.pending = {index: each for index, each in state.pending.items() if each.on != "planner"}', "None")
    ),
    "a request for later waits for a planner for ever": rewrite(("elif 0 < later.until <= now:", "elif False:")),
    "a process without a planner ends the wait for one": rewrite(
        ("(later.due or 0) if capabilities.planner else later.until", "(later.due or 0)")
    ),
}


#: Faults that only calls with before-images can show.
IMAGE_MUTANTS: dict[str, Mutant] = {
    "drift is overwritten": rewrite(('else "drift"\n    return', 'else "undo"\n    return')),
    "an unknown after-image counts as the same": rewrite(
        ('return "undo" if sole_writer or own else "drift"', 'return "undo"')
    ),
    "nothing is ever left to undo": rewrite(
        ('if same(found, step.before):\n        return "restored"', 'if True:\n        return "restored"')
    ),
    "an intent does not wait for its look": rewrite(
        ("                wanted.add(step)\n", "                out.append(record)\n")
    ),
    "an operator's word counts for every value": rewrite(("and same(found, step.cleared)", "")),
    "the value is read again while the call is in doubt": rewrite(("and not state.steps[index].forward.doubt", "")),
    "a retry keeps the value that it read first": rewrite(
        (
            "call = step.forward\n        if record.before is not None:",
            "call = step.forward\n        if step.before is None:",
        )
    ),
    "a call that waited keeps the value that it read first": rewrite(
        (
            "if record.before is not None:\n        state.steps[index_of(state, record)].before = record.before",
            "if False:\n        state.steps[index_of(state, record)].before = record.before",
        )
    ),
    "a creation is undone like a change": rewrite(("rollback = rollback.absent", "pass")),
    "an unchanged value counts as changed": rewrite(
        ("if same(found, step.before):\n        return _did", "if False:\n        return _did")
    ),
    "an undo that is still to be made counts as made": rewrite(
        ("if same(found, step.before):\n            return Done", "if True:\n            return Done")
    ),
    "a call whose value cannot be read is made": rewrite(
        (
            "if not isinstance(image, NotDone):",
            "if isinstance(image, NotDone):\n        image = images.unread(image)\n    if True:",
        )
    ),
}
