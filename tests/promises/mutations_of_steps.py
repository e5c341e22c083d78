"""Mutations of conditions, computations, waits and irreversible steps."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_UNDECIDED = "tests/plan/test_conditional_steps.py::test_conditions_that_cannot_be_evaluated_are_failures"

OF_STEPS = [
    # 51
    Mutation(
        _UNDECIDED,
        "a step is skipped if its conditions cannot be evaluated",
        (("    if truth is False:\n        return r.", "    if truth is not True:\n        return r."),),
    ),
    Mutation(
        _UNDECIDED,
        "an output passes if its conditions cannot be evaluated",
        (("    elif truth is not False:\n", "    elif False:\n"),),
    ),
    Mutation(
        "tests/plan/test_compute.py::test_a_condition_is_true_false_or_undecidable",
        "a comparison that cannot be made is a no",
        (('truth if isinstance(truth, bool) else f"{self._text}: {truth}"', "truth is True"),),
    ),
    # 52
    Mutation(
        "tests/plan/test_compute.py::test_an_expression_has_its_value",
        "amounts are binary floats",
        (
            (
                "return Number(found, isinstance(value, str))",
                "return Number(Decimal(float(found)), isinstance(value, str))",
            ),
        ),
    ),
    Mutation(
        "tests/plan/test_compute.py::test_a_quotient_is_rounded_once",
        "a quotient is rounded to six digits first",
        (("prec=max(whole, 1) + 2", "prec=6"),),
    ),
    Mutation(
        "tests/plan/test_compute.py::test_what_has_no_value_is_a_failure",
        "a result loses digits without a word",
        (("        if len(value.normalize(_EXACT).as_tuple().digits) > _DOUBLE_DIGITS:\n", "        if False:\n"),),
    ),
    # 53
    Mutation(
        "tests/sagas/test_dispositions.py::test_event_time_out_and_cancel_compete_for_one_record",
        "an event at the time-out counts",
        (("    if wait.due is not None and wait.due <= now:\n", "    if False:\n"),),
        quick=True,
    ),
    Mutation(
        "tests/waits/test_wait_races.py::test_the_first_of_those_that_compete_ends_the_wait",
        "an event that is read behind a cancel ends the wait",
        (("    if isinstance(state.phase, Turning):", "    if False:"),),
    ),
    Mutation(
        "tests/waits/test_wait_races.py::test_the_first_of_those_that_compete_ends_the_wait",
        "an event that is read behind the time-out ends the wait",
        (("    if wait.due is not None and wait.due <= now:\n", "    if False:\n"),),
    ),
    Mutation(
        "tests/waits/test_wait_races.py::test_races",
        "the store is not told which event a wait took",
        (("over = [(spot, left_by(self._state, *spot)) for", "over = [(spot, Left()) for"),),
    ),
    Mutation(
        "tests/waits/test_waits.py::test_an_early_event_is_kept",
        "an event that nothing waits for yet is late",
        (("last and 'late\\n' .. last or 'kept'", "'late\\n'"),),
    ),
    Mutation(
        "tests/waits/test_waits.py::test_an_owner_that_dies_before_it_settles_an_event",
        "an event whose owner died is never settled",
        (
            (
                "        if wait is not None and entry >= 0:\n",
                "        if True:\n            return False\n        if wait:\n",
            ),
        ),
    ),
    Mutation(
        "tests/kill/test_builtin_steps.py::test_killed_at_some_points",
        "a bare call of finally is repeated after a crash",
        (("    if not spec.keyed:\n", "    if False:\n"),),
    ),
    # 54
    Mutation(
        "tests/plan/test_conditional_steps.py::test_what_cannot_be_undone_is_reported_as_left",
        "what cannot be undone is not reported",
        (
            (
                'return "left_in_place" if state.undoing(compiled.index) is None else "unresolved"',
                'return None if state.undoing(compiled.index) is None else "unresolved"',
            ),
        ),
    ),
    # 66
    Mutation(
        "tests/waits/test_late_events.py::test_the_payment_that_arrives_after_the_undo_is_refunded_once",
        "a wait that is over leaves nothing for later events",
        (('b"" if call is None else msgspec.json.encode(call)', 'b""'),),
    ),
    Mutation(
        "tests/waits/test_late_events.py::test_an_event_after_the_time_out_is_handled_and_one_in_time_is_not",
        "an event after the value of a time-out is not handled",
        (("effect.via in in_vain", "False"),),
    ),
    Mutation(
        "tests/kill/test_late_events.py::test_a_late_payment_is_refunded_once_whoever_dies",
        "the saga of a late event does not follow from the event",
        (
            (
                "digest(['saga-late/1', token, *what])",
                "digest(['saga-late/1', token, *what, id(object()), __import__('time').time_ns()])",
            ),
        ),
    ),
    Mutation(
        "tests/waits/test_late_events.py::test_an_answer_to_one_wait_that_is_over_is_handled_once_past_the_waits_of_others",
        "each repeat of a late answer is handled by a saga of its own",
        (("digest(made)[:32]", "digest([made, __import__('time').time_ns()])[:32]"),),
    ),
    Mutation(
        "tests/waits/test_answers.py::test_an_answer_in_the_moment_of_the_time_out_is_late",
        "an answer goes past the store, and its saga refuses it",
        (
            (
                'receipt = await events.address(channel, waiter, event, keep_ms=EVENT_KEEP_MS)\n        if receipt.disposition == "occ',
                'receipt = Receipt("held", known=False, payload=event.payload)\n        if receipt.disposition == "occ',
            ),
            (
                'receipt = await events.address(channel, waiter, event, keep_ms=EVENT_KEEP_MS)\n        if receipt.disposition != "held"',
                'receipt = Receipt("held", known=False, payload=event.payload)\n        if receipt.disposition != "held"',
            ),
        ),
    ),
    Mutation(
        "tests/waits/test_answers.py::test_one_wait_has_one_answer",
        "an id that is known is known with any payload",
        (("if known and call('HGET', box, 'm:' .. event) == mark then", "if known then"),),
    ),
    Mutation(
        "tests/waits/test_answers.py::test_a_step_that_waits_again_may_be_answered_again",
        "an event that was held for the wait before is taken by the next one",
        ((" or event.nth not in (0, state.steps[index].begun):", ":"),),
    ),
    Mutation(
        "tests/kill/test_late_events.py::test_a_late_answer_is_refunded_once_whoever_dies",
        "an answer that is held is not due: nobody looks after it if its sender dies",
        (
            (
                "  hold(event, wait)\n  expire()",
                "  hold(event, wait)\n  call('ZREM', due, member(wait, event))\n  expire()",
            ),
        ),
    ),
    # 78
    Mutation(
        "tests/waits/test_several_events.py::test_the_first_event_ends_the_wait_and_the_others_are_late",
        "after the first event the others are nobody's",
        (('if word == "first" else', "if False else"),),
    ),
    Mutation(
        "tests/waits/test_several_events.py::test_the_halves_of_a_wait_that_was_in_vain_are_late",
        "what came for a wait that was in vain counts as taken",
        (("        if not self.event or not self.came:\n", "        if not self.came:\n"),),
    ),
    Mutation(
        "tests/waits/test_several_events.py::test_the_answers_of_a_wait_that_was_in_vain_are_late",
        "an answer in vain leaves nothing to be handled",
        (("        too_late(event, wait, about)\n", "        too_late(event, wait, '')\n"),),
    ),
    Mutation(
        "tests/waits/test_several_events.py::test_answers_in_vain_without_an_on_late_are_for_no_other_wait",
        "an answer in vain is given to another wait",
        (("if call('HEXISTS', box, 'm:' .. event) == 1 then", "if false then"),),
    ),
    Mutation(
        "tests/waits/test_several_events.py::test_an_owner_that_ends_between_two_events_loses_none",
        "what came before is forgotten when another event comes",
        (("{**step.came, entry:", "{entry:"),),
    ),
    Mutation(
        "tests/kill/test_several_events.py::test_no_event_is_lost_or_counts_twice_whoever_dies",
        "a new owner forgets which events came",
        (
            (
                "    state.epoch = record.epoch\n    if record.agent:",
                "    state.epoch = record.epoch\n    for step in state.steps:\n        step.came = {}\n    if record.agent:",
            ),
        ),
    ),
    # 82
    Mutation(
        "tests/plan/test_schema_gate.py::test_a_plan_with_such_a_schema_is_refused_at_every_door",
        "the parts of a schema are not counted",
        (("        if found[at] > MAX_SCHEMAS:", "        if False and found[at] > MAX_SCHEMAS:"),),
    ),
    Mutation(
        "tests/plan/test_schema_gate.py::test_a_tools_schemas_are_refused",
        "the schemas of tools are not counted",
        (("        return Validator(schema, formats=formats)", "        return Validator({}, formats=formats)"),),
    ),
    Mutation(
        "tests/plan/test_schema_cost.py::test_a_check_that_takes_too_much_work_is_not_begun",
        "the work of a check is not counted",
        (("        if self._cost.of(value) > MAX_WORK:", "        if False:"),),
    ),
    # 92
    Mutation(
        "tests/sagas/test_outlooks.py::test_what_is_told_of_an_answer_is_what_follows",
        "an outlook does not say what is undone",
        (('body["undoes"] = found.undoes', 'body["undoes"] = []'),),
    ),
    Mutation(
        "tests/sagas/test_outlooks.py::test_an_answer_is_refused_if_other_effects_follow_by_now",
        "the mark of an answer is not compared",
        (('    if found["mark"] == message.expect:', '    if message.expect or found["mark"] == message.expect:'),),
    ),
    Mutation(
        "tests/sagas/test_outlooks.py::test_a_call_that_may_happen_twice_is_repeated_only_by_who_knows",
        "a bare call is repeated without a word",
        (('return decision == "retry" and may_happen_twice', 'return decision == "never" and may_happen_twice'),),
    ),
    Mutation(
        "tests/server/test_jobs.py::test_a_job_repeats_a_bare_call_only_if_its_sender_knows",
        "a job gives each answer the mark that it needs",
        (('error.context.get("expect") if job.twice else None', 'error.context.get("expect")'),),
    ),
    Mutation(
        "tests/sagas/test_outlooks.py::test_a_call_without_a_key_is_looked_for_by_its_params_and_time",
        "a key that nobody was sent is shown",
        (('"told" if spec.told_key else "never"', '"told" if spec.told_key else "told"'),),
    ),
]
