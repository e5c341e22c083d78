"""Mutations of guards that sagas share, sessions, forks, traces and fail-over."""

from __future__ import annotations

from tests.promises.breaking import Mutation
from tests.promises.mutations_of_stores import UNWRITTEN

#: A call in doubt is taken for one that was not made.
_DOUBT_LOST = (
    (
        "        calls.doubt(state, index, direction, ErrorInfo(",
        (
            "        state.in_flight.pop((index, direction))\n"
            "        (state.ready if direction == 'forward' else state.undo_ready)[index] = None\n"
            "        (lambda *_: None)(state, index, direction, ErrorInfo("
        ),
    ),
)
#: A fork never passes a step that did nothing.
_NOTHING_PASSED = (
    (
        "        step = self.state.plan.steps[index]\n        if found := self._match(index, self._past.vain",
        "        return\n        step = self.state.plan.steps[index]\n        if found := self._match(index, self._past.vain",
    ),
)
#: Whoever stops writes nothing any more.
_ABANDONED = (
    ("if records or consumed or self._kept:\n", "if (records or consumed or self._kept) and not self.stopping:\n"),
)
_UNCONFIRMED = (("if here < 1 or there < replicas:", "if here < 1:"),)

OF_SUPERVISORS = [
    # 26
    Mutation(
        "tests/guards/test_dedupe.py::test_the_claim_is_written_before_the_call_and_the_result_before_anybody_hears",
        "the result is written after the answer",
        (
            (
                "            await self._kept.remember(identity, outcome, params, call)\n        elif type(outcome) is NotDone and",
                "            import asyncio as a; a.get_running_loop().create_task(self._kept.remember(identity, outcome, params, call))\n        elif type(outcome) is NotDone and",
            ),
        ),
    ),
    Mutation(
        "tests/guards/test_dedupe.py::test_a_crash_between_leaves_a_claim_that_only_its_owner_may_settle",
        "a claim without a result is anybody's",
        (("    return {'busy', holder}", "    return {'new'}"),),
        hangs=True,
    ),
    Mutation(
        "tests/guards/test_dedupe.py::test_nobody_undoes_what_another_saga_relies_on",
        "nobody is written down who got another's result",
        ((", 'by:' .. owner, '')", ")"),),
    ),
    Mutation(
        "tests/stores/test_guards.py::test_kept_results_are_like_their_model",
        "a late result brings back what is being undone",
        ((" or call('HEXISTS', record, 'm:' .. digest) == 0 then", " then"),),
    ),
    # 28
    Mutation(
        "tests/guards/test_processes.py::test_never_two_at_once_and_all_are_served",
        "everybody's turn is at once",
        (("local turn = front()", "local turn = ARGV[1] == 'take' and ARGV[3] or front()"),),
    ),
    Mutation(
        "tests/guards/test_processes.py::test_a_holder_that_blocks_its_loop_past_its_lease_keeps_its_resource",
        "a process that blocks its loop keeps no place in a queue",
        (("remaining_s, self._held())", "remaining_s, {})"),),
    ),
    Mutation(
        "tests/guards/test_processes.py::test_a_holder_that_is_killed_frees_its_resource_after_its_lease",
        "the dead keep their place",
        (
            ("return until_ms and tonumber(until_ms) > now", "return until_ms"),
            ("local DROP_AT_ONCE = 64", "local DROP_AT_ONCE = 0"),
            ("call('PEXPIREAT', queue, at_ms)", "call('PERSIST', queue)"),
            ("call('PEXPIREAT', alive, at_ms)", "call('PERSIST', alive)"),
        ),
        hangs=True,
    ),
    Mutation(
        "tests/guards/test_processes.py::test_a_holder_that_is_provably_dead_keeps_nobody_waiting",
        "whoever is silent counts as dead",
        (("if not provably_dead(process):", "if not process:"),),
    ),
    Mutation(
        "tests/guards/test_processes.py::test_a_process_that_lives_on_a_clone_of_this_machine_keeps_its_resource",
        "whoever is dead here is dead everywhere",
        ((">= tonumber(ARGV[4])", ">= 0"),),
    ),
    Mutation(
        "tests/guards/test_locks.py::test_crossed_resources_do_not_deadlock",
        "resources are taken in the order in which they are named",
        (
            ("is None:\n        return sorted(keys.items())", "is None:\n        return list(keys.items())"),
            (
                ", strict=True))\n    return sorted(keys.items())",
                ", strict=True))\n    return list(keys.items())",
            ),
        ),
        hangs=True,
    ),
    Mutation(
        "tests/stores/test_guards.py::test_queues_are_like_their_model",
        "whoever asks again goes to the end",
        (
            (
                "    if not lives(ticket) or not call('ZSCORE', queue, ticket) then\n      join(ticket)\n    end",
                "    join(ticket)",
            ),
        ),
    ),
    # 29
    Mutation(
        "tests/guards/test_breakers.py::test_failures_in_a_row_open_it_for_all_processes",
        "a failure is not written down",
        (("        bad = failed(outcome)\n", "        bad = False\n"),),
    ),
    Mutation(
        "tests/guards/test_breakers.py::test_one_trial_decides",
        "everybody gets a trial",
        (("    return breaker.trial == nonce and 1 or 0\n", "    return 1\n"),),
        hangs=True,
    ),
    Mutation(
        "tests/guards/test_breakers.py::test_a_compensation_passes_and_its_outcome_counts",
        "an open breaker stops compensations",
        (("if not state.tripped or is_undo(call):", "if not state.tripped:"),),
    ),
    Mutation(
        "tests/guards/test_guard_waits.py::test_sagas_wait_for_a_service_that_is_away",
        "a refusal by a guard is an attempt",
        (("if outcome.held and direction == FORWARD", "if False"),),
    ),
    Mutation(
        "tests/guards/test_guard_waits.py::test_a_step_waits_no_longer_than_the_limit",
        "a step waits for its guard for ever",
        (("call.held_at = call.held_at or record.at", "pass"),),
        hangs=True,
    ),
    Mutation(
        "tests/guards/test_guard_waits.py::test_no_undo_is_held",
        "a rate holds undos",
        (("        if undo:\n            return await self._inner(params, call)\n", ""),),
    ),
    # 31
    Mutation(
        "tests/plan/test_amendments.py::test_what_is_added_is_checked_like_a_plan",
        "added steps are not checked",
        (("check_from=first if fresh else count", "check_from=count"),),
    ),
    Mutation(
        "tests/plan/test_amendments.py::test_a_model_may_use_only_what_it_was_given",
        "a model may use any tool",
        (("if call.tool and call.tool not in bounds.tools:", "if False:"),),
        quick=True,
    ),
    Mutation(
        "tests/plan/test_amendments.py::test_a_model_may_use_only_what_it_was_given",
        "a model may use any secret",
        (('if place.source == "secret" and place.step not in bounds.secrets:', "if False:"),),
    ),
    Mutation(
        "tests/plan/test_amendments.py::test_a_saga_does_not_grow_for_ever",
        "additions are not counted",
        (("if additions > MAX_ADDITIONS:", "if False:"),),
    ),
    Mutation(
        "tests/cli/test_amend.py::test_added_steps_are_undone_with_the_rest",
        "added steps are not undone",
        (
            (
                "    for index, step in enumerate(state.steps):\n        pending = step.status in (t.PENDING, t.WAITING)",
                "    for index, step in enumerate(state.steps):\n        if state.added and index >= 2 and step.status == t.SUCCEEDED:\n            continue\n        pending = step.status in (t.PENDING, t.WAITING)",
            ),
        ),
    ),
    # 32
    Mutation(
        "tests/kill/test_sessions.py::test_killed_anywhere",
        "what was in flight at a crash is called anew",
        _DOUBT_LOST,
        only="well and bare",
    ),
    # 42
    Mutation(
        "tests/sessions/test_kept_sessions.py::test_nine_of_ten_are_done_and_the_tenth_is_mended",
        "a call that failed is never made anew",
        (("return self._is_nothing(key)\n", "return False\n"),),
    ),
    Mutation(
        "tests/kill/test_sessions.py::test_two_agents_with_one_id",
        "a session is taken from its living owner",
        (("if holder ~= owner and holder ~= dead_owner then", "if false then"),),
        only="embedded",
        hangs=True,
    ),
    Mutation(
        "tests/kill/test_sessions.py::test_an_agent_that_is_killed_as_it_gives_up_over_a_question",
        "a session that rests does not hear that its agent gave up",
        (
            (
                'return await self.deliver(Message(secrets.token_hex(8), "close", reason=reason, note=note))',
                "return outcome",
            ),
        ),
    ),
    Mutation(
        "tests/sessions/test_session_lives.py::test_whatever_dies_when_the_outside_is_as_if_nothing_had",
        "each life makes its calls anew",
        (
            (
                "        if not self._live:\n            if before.rollbacks",
                "        if False:\n            if before.rollbacks",
            ),
        ),
    ),
    # 33
    Mutation(
        "tests/core/test_fork.py::test_nothing_runs_that_could_be_taken_over",
        "a step that has changed its id is run again",
        (("for own_only in (True, False):", "for own_only in (True,):"),),
    ),
    Mutation(
        "tests/core/test_fork.py::test_every_effect_has_one_owner",
        "the old saga undoes what it has handed over",
        ((" or effect.to)", ")"),),
    ),
    Mutation(
        "tests/kill/test_forks.py::test_killed_anywhere",
        "what was in flight at a crash is called anew",
        _DOUBT_LOST,
        only="fails and bare",
    ),
    Mutation(
        "tests/core/test_fork.py::test_what_is_reused_needs_nothing_that_runs_again",
        "a step is reused although it binds the output of one that runs again",
        (
            (
                "        if binds(step, self._again) or not self._holding.isdisjoint(before):",
                "        if not self._holding.isdisjoint(before):",
            ),
        ),
    ),
    Mutation(
        "tests/core/test_fork.py::test_a_fork_of_what_went_on_makes_nothing_twice",
        "what followed a step that did nothing is made anew",
        _NOTHING_PASSED,
    ),
    Mutation(
        "tests/kill/test_forks.py::test_killed_anywhere",
        "what followed a step that did nothing is made anew, and killed",
        _NOTHING_PASSED,
        only="passes and bare",
    ),
    Mutation(
        "tests/kill/test_forks.py::test_two_processes_fork_the_same_saga",
        "a fork claims nothing",
        (('if claim.code not in ("new", "ours"):', "if False:"),),
    ),
    # 43
    Mutation(
        "tests/core/test_session_fork.py::test_every_effect_has_one_owner",
        "a fork of a session forgets in which order its effects were made",
        (("    made.opening.sort(key=lambda record: _nth(calls, record))", "    pass"),),
    ),
    Mutation(
        "tests/core/test_session_fork.py::test_what_has_changed_since_the_choice_is_not_handed_over",
        "an effect that was rolled back is transferred",
        (("if step is None or step.status != t.SUCCEEDED or not state.owns(index):", "if step is None:"),),
    ),
    Mutation(
        "tests/kill/test_session_forks.py::test_killed_anywhere",
        "a fork whose process died is refused when it is repeated",
        (("        if self._handed_to != name:\n            check_fork(self._old)", "        check_fork(self._old)"),),
        only="completes and keyed",
    ),
    Mutation(
        "tests/kill/test_session_forks.py::test_its_agent_is_killed_anywhere",
        "each life makes its calls anew",
        (
            (
                "        if not self._live:\n            if before.rollbacks",
                "        if False:\n            if before.rollbacks",
            ),
        ),
        only="completes and keyed",
    ),
    Mutation(
        "tests/kill/test_session_forks.py::test_its_agent_comes_before_the_command_is_repeated",
        "an id that is reserved for a fork is anybody's",
        (("if for_whom[1] and for_whom[1] ~= chosen.digest then", "if false then"),),
    ),
    # 44
    Mutation(
        "tests/undo/test_undo.py::test_what_has_no_undo_is_listed_and_accepted",
        "what has no undo is left in place without a word",
        (("if plan.remains and not accept:", "if False:"),),
    ),
    Mutation(
        "tests/undo/test_undo.py::test_what_a_fork_owns_is_not_undone",
        "an undo owns what a fork reuses",
        (('owners.get(compiled.key, "")', '""'),),
    ),
    Mutation(
        "tests/kill/test_undos.py::test_killed_anywhere",
        "an undo forgets to whom effects were transferred",
        (('    return "" if owner == to else owner', "    return owner"),),
        only="short",
    ),
    # 34
    Mutation(
        "tests/core/test_trace.py::test_tampering_is_found",
        "the hash of a line is not looked at",
        (('if sha256(data[: found.start()] + b"}").hexdigest() != found[1].decode():', "if False:"),),
        quick=True,
    ),
    Mutation(
        "tests/core/test_trace.py::test_a_line_with_a_new_hash_is_found_by_the_next",
        "the hash of the line before is not looked at",
        (('if body["prev"] != last or body["seq"] != number - 1:', 'if body["seq"] != number - 1:'),),
    ),
    Mutation(
        "tests/core/test_trace.py::test_a_signed_trace_cannot_be_rewritten",
        "a signature is not looked at",
        (("            if problem is not None:\n", "            if False:\n"),),
    ),
    Mutation(
        "tests/core/test_trace.py::test_a_signed_trace_is_as_its_signer_wrote_it",
        "a signature is not looked at",
        (("            if problem is not None:\n", "            if False:\n"),),
    ),
    Mutation(
        "tests/core/test_replay.py::test_an_engine_agrees_with_its_own_journal",
        "today's engine waits longer",
        (
            (
                "found = deciding.decide(state, now, self._capabilities[0])",
                "found = deciding.decide(state, now - 1000, self._capabilities[0])",
            ),
        ),
    ),
    # 35
    *(
        Mutation(test, "an acknowledgement waits for no replica", _UNCONFIRMED)
        for test in (
            "tests/kill/test_failover.py::test_a_primary_of_a_cluster_is_killed",
            "tests/kill/test_failover.py::test_the_primary_of_sentinels_is_killed",
            "tests/stores/test_replicated.py::test_nothing_that_others_rely_on_counts_without_the_replica",
        )
    ),
    Mutation(
        "tests/kill/test_matrix_elsewhere.py::test_killed_anywhere_and_resumed",
        "intents are acted on and not written",
        UNWRITTEN,
        only="cluster and graph and bare",
    ),
    # 36
    Mutation(
        "tests/kill/test_failover.py::test_a_driver_notices_that_its_journal_went_back",
        "an append does not look where the journal ends",
        (("    length = push(journal, first, last)\n", "    push(journal, first, last)\n    length = seq\n"),),
    ),
    Mutation(
        "tests/kill/test_failover.py::test_fsync_alone_may_lose_and_never_does_twice",
        "each owner has keys of its own",
        (("        state.key(index, way),\n", "        state.key(index, way) + str(state.epoch),\n"),),
    ),
    Mutation(
        "tests/stores/test_cluster.py::test_nothing_runs_on_half_of_a_slot",
        "a script does not name the key that never exists",
        (("    if not keys:\n        return keys\n", "    return keys\n"),),
    ),
    # 37
    Mutation(
        "tests/chaos/test_chaos.py::test_whatever_goes_wrong_ledger_report_and_journal_agree",
        "each attempt has a key of its own",
        (("        state.key(index, way),\n", "        state.key(index, way) + str(effect.attempt),\n"),),
    ),
    Mutation(
        "tests/runtime/test_given_back.py::test_a_journal_that_went_back_under_its_owner_is_given_up",
        "what is ours and not driven is kept",
        (("                self._pending.add_unsure(saga_id, AT_ONCE)\n", ""),),
    ),
    # 39
    Mutation(
        "tests/engines/test_doubts.py::test_a_person_s_not_happened_takes_the_fallback",
        "what a person says did not happen fails the step",
        (("    return bool(state.next_way(question.step, unavailable=True))", "    return False"),),
        only="own",
    ),
    Mutation(
        "tests/engines/test_doubts.py::test_a_person_s_happened_is_remembered_for_others",
        "nobody learns what a person said",
        (
            (
                "                        await self._performer.learn(lesson)\n",
                "                        pass\n",
            ),
        ),
        only="own",
    ),
    Mutation(
        "tests/kill/test_guards.py::test_what_a_person_said_is_remembered_whenever_its_reader_dies",
        "what a person said is not learned again",
        (
            (
                "            if lesson is not None:\n                await performer",
                "            if False:\n                await performer",
            ),
        ),
        only="ends",
    ),
    Mutation(
        "tests/kill/test_queued.py::test_a_call_that_only_waited_when_its_process_was_killed_is_not_in_doubt",
        "a call that waited is in doubt",
        (('        if flight in ("intended", "queued"):\n', "        if False:\n"),),
        only="alone",
    ),
    Mutation(
        "tests/kill/test_queued.py::test_the_mark_that_it_begins_decides",
        "a call that has begun still counts as waiting",
        (('("intended", "queued"), "call")', '("intended", "queued"), "queued")'),),
    ),
    Mutation(
        "tests/guards/test_guarded_sagas.py::test_a_process_that_lost_its_saga_while_a_call_waited_does_not_begin_it",
        "a call begins before that is durable",
        (
            (
                "            self._noted(call, image, waits)\n            ready = ",
                (
                    "            if not waits:\n                return\n"
                    "            self._noted(call, image, waits)\n            ready = "
                ),
            ),
        ),
    ),
    # 40
    Mutation(
        "tests/runtime/test_deadlines.py::test_a_worker_sees_to_the_deadline_of_a_session_that_another_process_left",
        "a session is given up without the time of its deadline",
        (
            (
                "due_ms = self._in_store(self._machine.due() or 0) if self.state.open else AT_ONCE",
                "due_ms = 0 if self.state.open else AT_ONCE",
            ),
        ),
        hangs=True,
    ),
    Mutation(
        "tests/kill/test_deadlines.py::test_a_deadline_that_passes_while_the_process_is_dead",
        "a deadline binds only what moves",
        (("now >= deadline and (moving or idle)", "now >= deadline and moving"),),
    ),
    # workers
    Mutation(
        "saga_engine/testing/queue_conformance.py::test_many_ask_at_once",
        "what was taken is offered to others",
        (("      call('ZREM', due, id)\n", ""), (" and ttl_of(tag, found[1]) == 0 then", " then")),
    ),
    Mutation(
        "saga_engine/testing/queue_conformance.py::test_taking_is_fenced_by_a_new_epoch",
        "taking makes no new epoch",
        (("add(tag, id, call('HINCRBY', head, 'epoch', 1)", "add(tag, id, call('HINCRBY', head, 'epoch', 0)"),),
    ),
    Mutation(
        "tests/cli/test_worker.py::test_sigterm_hands_over_and_leaves_nothing_behind",
        "what comes of a call while its worker stops is lost",
        _ABANDONED,
    ),
    Mutation(
        "saga_engine/testing/queue_conformance.py::test_a_message_that_the_owner_did_not_read_brings_a_worker",
        "mail brings no worker",
        (("    due_ms = due_ms == 0 and now or math.min(due_ms, now + SOON_MS)\n", ""),),
    ),
    Mutation(
        "saga_engine/testing/queue_conformance.py::test_a_full_queue_takes_no_more",
        "a refused submission is written",
        (
            (
                "    return FULL\n",
                "    push(journal, first, last)\n    call('HSET', head, 'status', 'PENDING', 'epoch', 0, 'owner', '', 'digest', chosen.digest)\n    return FULL\n",
            ),
        ),
    ),
    # Temporal
]
