"""Mutations of calls, undos, doubts, people and guards."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_UNKNOWN_IS_FAILED = (
    (
        'if spec.effect != "read" or outcome.lost:\n            return r.StepInDoubt',
        "if False:\n            return r.StepInDoubt",
    ),
)
_FORGOTTEN = (("t.RESOLVED, t.COMPENSATED})", "t.RESOLVED, t.COMPENSATED, t.IN_DOUBT, t.ESCALATED})"),)

_SIDE_BY_SIDE = (
    ("sum(1 for other in dependents if steps[other].undo_waits is not None)", "0"),
    ("if step.undo_waits != 0:  #", "if step.undo_waits is None:  #"),
    ("if step.undo_waits != 0:\n", "if step.undo_waits is None:\n"),
)

OF_CALLS = [
    # 4
    Mutation(
        "tests/tools/test_outcomes.py::test_lost_answers_are_unknown",
        "an unknown error is 'not done'",
        (
            (
                "return Unknown(_info(error, False if raised and rules.probed else None), raised=raised)",
                "return NotDone(_info(error))",
            ),
        ),
        quick=True,
    ),
    Mutation(
        "tests/sagas/test_pitfalls.py::test_14_a_time_out_is_not_stored_as_failed",
        "unknown is taken for failed",
        _UNKNOWN_IS_FAILED,
    ),
    # 5
    Mutation(
        "tests/sagas/test_pitfalls.py::test_11_a_charge_that_timed_out_is_not_repeated_without_a_key",
        "a write without a key is repeated",
        (("    if not spec.keyed:\n        return False", "    if not spec.keyed:\n        return True"),),
    ),
    # 6
    *(
        Mutation(
            "tests/sagas/test_keys.py::test_all_attempts_of_a_step_have_one_key_in_each_direction",
            breaks,
            changes,
            quick=breaks == "each attempt has a key of its own",
        )
        for breaks, changes in (
            (
                "each attempt has a key of its own",
                (("        state.key(index, way),\n", "        state.key(index, way) + str(effect.attempt),\n"),),
            ),
            (
                "the undo has the key of the call",
                (("{step_key}:{'f' if direction == FORWARD else 'c'}", "{step_key}:f"),),
            ),
            ("all steps have one key", (("{step_key}:{'f'", "{'f'"),)),
        )
    ),
    Mutation(
        "tests/sagas/test_keys.py::test_a_call_whose_result_was_never_journalled_is_repeated_under_its_key",
        "each owner has keys of its own",
        (("        state.key(index, way),\n", "        state.key(index, way) + str(state.epoch),\n"),),
    ),
    Mutation(
        "tests/sagas/test_keys.py::test_the_same_plan_under_the_same_id_elsewhere_has_other_keys",
        "keys have no seed",
        (
            (":b:{seed}", ":b"),
            ("f{fallback}:{seed}", "f{fallback}"),
            ("c{undo_call}:{seed}", "c{undo_call}"),
            ("'c'}:{seed}", "'c'}"),
        ),
    ),
    Mutation(
        "tests/sagas/test_pitfalls.py::test_15_two_identical_calls_are_two_calls",
        "all steps have one key",
        (("{step_key}:{'f'", "{'f'"),),
    ),
    # 7
    Mutation(
        "tests/sagas/test_pitfalls.py::test_13_a_step_in_doubt_is_not_forgotten_while_others_are_undone",
        "a step in doubt has nothing to undo",
        _FORGOTTEN,
    ),
    Mutation(
        "tests/sagas/test_pitfalls.py::test_20_the_last_step_times_out_and_its_effect_is_not_forgotten",
        "unknown is taken for failed",
        _UNKNOWN_IS_FAILED,
    ),
    # 8
    Mutation(
        "tests/sagas/test_pitfalls.py::test_30_five_actions_are_undone_in_reverse_order",
        "the undos of a list begin side by side",
        _SIDE_BY_SIDE,
        quick=True,
    ),
    Mutation(
        "tests/undo/test_way_back.py::test_a_failed_undo_holds_back_the_steps_before_it_in_the_list",
        "the undos of a list begin side by side",
        _SIDE_BY_SIDE,
    ),
    Mutation(
        "tests/sessions/test_session_turns.py::test_calls_side_by_side_are_undone_one_by_one",
        "the undos of a session begin side by side",
        (("step.undo_next, step.undo_waits = after, 1", "step.undo_next, step.undo_waits = -1, 0"),),
    ),
    Mutation(
        "tests/undo/test_undo_ahead.py::test_what_does_not_depend_on_it_is_undone_while_an_operator_is_asked",
        "an undo that waits for an operator holds up all that were made before",
        (("index = next_ahead(state)\n", "index = None\n"),),
    ),
    Mutation(
        "tests/undo/test_undo_ahead.py::test_what_is_not_proven_waits",
        "an undo that waits for an operator holds up nothing",
        (("step.status == t.SUCCEEDED and walls.apart(index)", "step.status == t.SUCCEEDED"),),
    ),
    Mutation(
        "tests/sagas/test_pitfalls.py::test_03_a_failing_step_of_a_graph_leaves_no_upstream_effect",
        "what nothing waits for is not undone",
        (
            (
                "            if earlier.status == t.SUCCEEDED and has_undo(state, other):\n                _begin_undo(state, other)",
                "            if earlier.status == t.SUCCEEDED and has_undo(state, other):\n                stack.append(other)",
            ),
        ),
    ),
    # 9
    Mutation(
        "tests/sagas/test_pitfalls.py::test_07_a_failed_undo_is_never_stored_as_rolled_back",
        "a failed undo counts as done",
        (
            (
                'record.direction == COMPENSATE:\n        move(step, "undo_failed")\n        state.to_escalate[index, COMPENSATE] = "undo-failed"',
                'record.direction == COMPENSATE:\n        move(step, "undone")\n        compensation.end_undo(state, index)',
            ),
        ),
    ),
    # 10
    Mutation(
        "tests/sagas/test_pitfalls.py::test_28_a_failed_compensation_is_told_to_people",
        "nobody is told of a question",
        (("return await tell(self._escalation, question, state.at)", "return None"),),
        quick=True,
    ),
    Mutation(
        "tests/sagas/test_pitfalls.py::test_12_a_compensation_that_failed_once_can_be_tried_again",
        "'retry' is taken for 'undone'",
        (('if record.decision in ("retry", "undo")', 'if record.decision in ("never",)'),),
    ),
    # 11
    Mutation(
        "tests/sagas/test_pitfalls.py::test_24_an_error_that_a_retry_mends_starts_no_rollback",
        "nothing is tried again",
        (("if again and budget and", "if False and budget and"),),
    ),
    # 18
    Mutation(
        "tests/plan/test_checks.py::test_all_faults_come_at_once",
        "the first problem ends the check",
        (("        if not self.full():\n            assert", "        if not self._listed:\n            assert"),),
    ),
    # 21
    Mutation(
        "tests/guards/test_chain.py::test_the_policy_comes_before_all_else_in_both_directions",
        "the policy is not asked about undos",
        (
            (
                "verdict = await self._gate.authorize(self._tool, params, call)",
                "verdict = None if call.backward or call.direction == 'compensate' else await self._gate.authorize(self._tool, params, call)",
            ),
        ),
    ),
    Mutation(
        "tests/guards/test_chain.py::test_the_policy_comes_before_all_else_in_both_directions",
        "the memory is asked before the policy",
        (
            (
                "        if full or tool.dedupe_ttl_s is not None:\n            inner = Deduplication(tool, inner, self._kept, counts, self._waiting).call\n        if self._gate is not None and self._gate.concerns(name):\n            inner = _Policed(tool, inner, self._gate).call\n",
                "        if self._gate is not None and self._gate.concerns(name):\n            inner = _Policed(tool, inner, self._gate).call\n        if full or tool.dedupe_ttl_s is not None:\n            inner = Deduplication(tool, inner, self._kept, counts, self._waiting).call\n",
            ),
        ),
    ),
    Mutation(
        "tests/guards/test_chain.py::test_a_policy_that_fails_allows_nothing",
        "a policy that fails allows the call",
        (
            (
                '            return Blocked(\n                ErrorInfo("policy_failed"',
                '            verdict = None\n            (\n                ErrorInfo("policy_failed"',
            ),
        ),
    ),
    Mutation(
        "tests/policy/test_gate.py::test_a_limit_that_cannot_be_looked_up_lets_nothing_through",
        "a limit that cannot be written is passed",
        (
            (
                "            await self._store.tally_set(entry.tally, key, entry.text, TALLY_MS, self._call.saga_id)",
                "            with __import__('contextlib').suppress(Exception):\n                await self._store.tally_set(entry.tally, key, entry.text, TALLY_MS, self._call.saga_id)",
            ),
        ),
    ),
    Mutation(
        "tests/policy/test_gate.py::test_a_limit_that_cannot_be_looked_up_lets_nothing_through",
        "a limit that cannot be read is empty",
        (
            (
                "        entries = dict(await self._store.tally(tally, self._call.saga_id))",
                "        try:\n            entries = dict(await self._store.tally(tally, self._call.saga_id))\n        except Exception:\n            entries = {}",
            ),
        ),
    ),
    # 22
    *(
        Mutation(
            "tests/policy/test_gate.py::test_an_approval_is_for_the_exact_call",
            f"an approval holds for any {what}",
            (
                (
                    '[call.saga_id, call.step_id, call.direction, self._tool.name, self._shown, "\\n".join(self._asked)]',
                    "[" + ", ".join(kept) + "]",
                ),
            ),
            quick=what == "params",
        )
        for what, kept in (
            (
                name,
                [
                    text
                    for text in (
                        "call.saga_id",
                        "call.step_id",
                        "call.direction",
                        "self._tool.name",
                        "self._shown",
                        '"\\n".join(self._asked)',
                    )
                    if text != dropped
                ],
            )
            for name, dropped in (
                ("saga", "call.saga_id"),
                ("step", "call.step_id"),
                ("direction", "call.direction"),
                ("tool", "self._tool.name"),
                ("params", "self._shown"),
                ("rule", '"\\n".join(self._asked)'),
            )
        )
    ),
    Mutation(
        "tests/cli/test_configured.py::test_an_approval_shows_the_exact_call_and_lets_it_be_made",
        "an approval is of no use",
        (("if call.approved == exact:", "if False:"),),
    ),
    Mutation(
        "tests/core/test_mutants.py::test_the_simulation_catches",
        "the simulation does not look at approvals",
        (),
        elsewhere=(("tests/core/simulation.py", "and nobody's approval of it is valid\")", '") if False else None'),),
        only="approval",
    ),
    # 46
    Mutation(
        "tests/plan/test_finally.py::test_whatever_becomes_of_them_the_end_is_what_it_was",
        "a step of finally that fails turns the saga around",
        (("final.ended(state, index, state.steps[index].forward.error)\n        return", "pass"),),
    ),
    Mutation(
        "tests/plan/test_finally.py::test_the_end_is_certain",
        "a cancel is accepted while finally runs",
        (
            (
                "    if state.ending is not None:\n        raise CancelRefused(",
                "    if False:\n        raise CancelRefused(",
            ),
        ),
    ),
    # 47
    Mutation(
        "tests/plan/test_lists.py::test_a_list_is_called_item_by_item_and_undone_in_reverse_a_day_later",
        "the undo of a completed saga does not know its lists",
        (("(r.StepsAdded, r.CallAdded, r.EachExpanded)", "(r.StepsAdded, r.CallAdded)"),),
    ),
    Mutation(
        "tests/core/test_lists.py::test_every_law_holds_for_lists",
        "what a list depends on is undone before its items",
        (("dependents=(*steps[before].dependents, *heads)", "dependents=steps[before].dependents"),),
    ),
    # 50
    Mutation(
        "tests/core/test_asking_later.py::test_it_is_asked_three_times_more_with_growing_delays",
        "a model is asked again without end",
        (("state.ask_later_times.get(index, 0) + 1", "0"),),
    ),
    Mutation(
        "tests/core/test_asking_later.py::test_a_crash_forgets_no_request",
        "a new owner forgets what is to be asked later",
        (("    state.epoch = record.epoch\n", "    state.epoch = record.epoch\n    state.pending.clear()\n"),),
    ),
    Mutation(
        "tests/runtime/test_asking_later.py::test_a_worker_without_a_planner_leaves_it_to_one_that_has",
        "a process without a planner gives up at once",
        (("(later.due or 0) if capabilities.planner else later.until", "(later.due or 0)"),),
    ),
    Mutation(
        "tests/planner/test_models.py::test_the_first_requests_of_a_process_all_reach_the_model",
        "each of the first requests to a model imports its package",
        (
            ("_importing = threading.Lock()", '_importing = __import__("contextlib").nullcontext()'),
            ("for module in _MODULES:", 'for module in ("pydantic_ai.exceptions", "pydantic_ai.models"):'),
        ),
    ),
    Mutation(
        "tests/policy/test_gate.py::test_a_question_of_one_policy_hides_no_denial_of_another",
        "a question of the first policy ends the look at the second",
        (("                    ways[rule.layer] = ()\n", "                    ways = [()]\n"),),
    ),
    Mutation(
        "tests/tools/test_secrets.py::test_in_python_as_on_the_command_line_no_secret_is_allowed_by_silence",
        "without a list every secret is allowed",
        (('self._holding("secrets")), *own] or [{}]', 'self._holding("secrets")), *own] or [{"*": ("*",)}]'),),
    ),
    # 83
    Mutation(
        "tests/planner/test_model_rules.py::test_a_value_is_checked_wherever_it_comes_from",
        "the default of a param is the author's to choose",
        (("for at, alternative in enumerate(many):", "for at, alternative in enumerate(many[:-1]):"),),
    ),
    Mutation(
        "tests/planner/test_compensating.py::test_what_is_more_than_the_step_needs_an_approval",
        "what stands in a text of a tool counts as given",
        (("or names_target(field) or bounded or alone:", "or True:"),),
    ),
    Mutation(
        "tests/core/test_settling.py::test_every_call_that_a_proposed_step_may_make_counts",
        "a fallback of a proposed step is not looked at",
        (('for name in ("fallback", "then"):', 'for name in ("then",):'),),
    ),
    # 59
    Mutation(
        "tests/child_sagas/test_child_sagas.py::test_a_cancel_awaits_the_end_of_an_open_child",
        "the turn does not wait for a child",
        (
            (
                "        if self.pending and any(each.holds_turn for each in self.pending.values()):\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutation(
        "tests/child_sagas/test_child_sagas.py::test_an_end_that_nobody_told_is_found",
        "nobody looks for the end of a child",
        (("    if not head.owner and head.summary and ", "    if False and "),),
    ),
    Mutation(
        "tests/child_sagas/test_child_sagas.py::test_a_worker_tells_the_end_that_the_process_of_a_child_did_not",
        "the end of a child is in no queue",
        (("self._told_until_ms() if final else 0", "0 if final else 0"),),
        hangs=True,
    ),
    Mutation(
        "tests/kill/test_told.py::test_a_parent_hears_the_end_of_a_child_whose_process_is_killed_before_it_tells",
        "who undoes a saga that has ended takes it out of the queue, and its parent hears nothing",
        (
            (
                "redis.call('ZADD', tag .. 'due', 'XX', now_ms() + ANOTHER_MS, id)",
                "redis.call('ZREM', tag .. 'due', id)",
            ),
        ),
    ),
    Mutation(
        "tests/waits/test_late_events.py::test_the_payment_for_a_wait_that_the_saga_never_began_is_refunded",
        "what came for a wait that a saga never began is only kept",
        (("        for spot, left in past:\n", "        for spot, left in ():\n"),),
        only="False",
        hangs=True,
    ),
    Mutation(
        "tests/waits/test_late_events.py::test_the_payment_for_a_wait_that_the_saga_never_began_is_refunded",
        "no worker says that the waits of a dead process's saga are over",
        (("not known and any(True for _ in never_begun(state))", "False"),),
        only="True",
        hangs=True,
    ),
    Mutation(
        "tests/waits/test_late_events.py::test_an_event_that_was_held_when_its_wait_ended_goes_to_on_late_at_once",
        "an event that was held for a wait that is over is left to a worker",
        (
            (
                "        for due in moved:\n            await self._bring",
                "        for due in ():\n            await self._bring",
            ),
        ),
        hangs=True,
    ),
    Mutation(
        "tests/child_sagas/test_child_sagas.py::test_what_a_child_leaves_is_in_the_report_of_its_parent",
        "what a child left is no remainder",
        (("        if step.left and state.backward:\n", "        if False:\n"),),
    ),
    Mutation(
        "tests/sessions/test_session_sagas.py::test_a_session_whose_agent_gives_up_cancels_its_open_child",
        "the turn of a session does not wait for its open child",
        (
            (
                "        if self.pending and any(each.holds_turn for each in self.pending.values()):\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutation(
        "tests/sessions/test_session_sagas.py::test_the_version_of_a_template_is_that_of_the_first_life",
        "another life of an agent takes the latest version of a template",
        (('        return child_record({**found, "input": body["input"]}, self.catalog)\n', "        return None\n"),),
    ),
    # 24
    Mutation(
        "tests/policy/test_paths.py::test_outside",
        "links are not followed",
        (("return Path(os.path.realpath(path, strict=True))", "return Path(os.path.abspath(path))"),),
    ),
    Mutation(
        "tests/policy/test_hosts.py::test_hosts_in_params",
        "addresses inside are called",
        (
            (
                "            if reason is not None:\n                which",
                "            if False:\n                which",
            ),
        ),
    ),
    Mutation(
        "tests/policy/test_hosts.py::test_each_host_has_one_spelling",
        "addresses keep their encoding",
        (("return str(IPv4Address(socket.inet_aton(name)))", "return name"),),
    ),
    # 25
    Mutation(
        "tests/policy/test_gate.py::test_a_limit_against_a_model",
        "a call that is in doubt uses up nothing",
        (
            ("if not entries or not isinstance(outcome, NotDone | Blocked | Ask):", "if not entries:"),
            (
                "definite = isinstance(outcome, NotDone) and outcome.definite",
                "definite = getattr(outcome, 'output', None) is None",
            ),
        ),
    ),
    Mutation(
        "tests/policy/test_gate.py::test_a_limit_against_a_model",
        "a 'not done' after a doubt uses up nothing",
        (("if entry.fresh or definite:", "if True:"),),
    ),
    Mutation(
        "tests/policy/test_gate.py::test_counts_live_in_the_store",
        "each process counts for itself",
        (
            (
                'tally = f"{rule.name}\\n{self._call.saga_id}"',
                'tally = f"{rule.name}\\n{self._call.saga_id}\\n{id(self._gate)}"',
            ),
        ),
    ),
    Mutation(
        "tests/policy/test_gate.py::test_parallel_steps_do_not_share_the_last_room",
        "parallel steps are checked side by side",
        (
            (
                "                        await turn.acquire()\n                        lock = turn\n",
                "                        lock = None\n",
            ),
        ),
    ),
    Mutation(
        "tests/privacy/test_sensitive.py::test_the_call_gets_the_value_and_every_view_a_mark",
        "observers hear the values",
        (("if state.sensitive else records", "if False else records"),),
    ),
    Mutation(
        "tests/privacy/test_sensitive.py::test_readers_need_no_tools",
        "show masks nothing",
        (("shown = masked_view(state, shown)", "pass"),),
    ),
    Mutation(
        "tests/privacy/test_sensitive.py::test_a_model_is_told_nothing_sensitive",
        "a model is told the values",
        (("    if mask is not None:\n        params", "    if False:\n        params"),),
    ),
    Mutation(
        "tests/privacy/test_sensitive.py::test_questions_tell_nobody",
        "questions hold the values",
        (("    if mask is None:\n        return question", "    if True:\n        return question"),),
    ),
    Mutation(
        "tests/cli/test_sensitive.py::test_no_command_shows_a_sensitive_value",
        "the commands show the values",
        (("shown = masked_view(state, shown)", "pass"),),
    ),
    # 45
    Mutation(
        "tests/waits/test_asks.py::test_answer_and_expiry_compete_for_one_record",
        "an answer that comes after the expiry counts",
        (("question.expires is not None and question.expires <= now_ms", "False"),),
    ),
    Mutation(
        "tests/waits/test_asks.py::test_the_deadline_binds_a_saga_that_only_asks",
        "a question outlives the deadline of its saga",
        (("idle = not state.in_flight and (state.questions or state.open)", "idle = False"),),
    ),
    Mutation(
        "tests/waits/test_asks.py::test_options_that_look_like_the_engines_own_answers_are_only_values",
        "an option that the engine knows is the engine's answer",
        (
            (
                'if question.kind == "ask":  # whatever',
                'if question.kind == "ask" and record.decision == "abort":  # whatever',
            ),
        ),
    ),
    # 87
    Mutation(
        "tests/engines/test_raised.py::test_no_door_takes_an_exception_for_a_refusal",
        "an exception of a tool with a key is its refusal",
        (("raised = not meaning.stated and rules.raised is not None", "raised = False"),),
    ),
    Mutation(
        "tests/engines/test_raised.py::test_what_another_made_is_never_undone_for_safety",
        "an undo by the caller's own params is made for safety",
        (("guards_undo(state, index) or all(call.by_key for call in calls)", "True"),),
    ),
    Mutation(
        "tests/engines/test_raised.py::test_a_probe_is_no_evidence_that_an_object_was_not_there",
        "an undo by the caller's own params is made for safety",
        (("guards_undo(state, index) or all(call.by_key for call in calls)", "True"),),
    ),
    Mutation(
        "tests/kill/test_raised.py::test_killed_around_a_call_that_raises",
        "an exception of a tool with a key is its refusal",
        (("raised = not meaning.stated and rules.raised is not None", "raised = False"),),
    ),
    Mutation(
        "tests/planner/test_raised.py::test_nobody_is_lied_to",
        "an exception of a tool with a key is its refusal",
        (("raised = not meaning.stated and rules.raised is not None", "raised = False"),),
        only="keyed",
    ),
    # 81
    Mutation(
        "tests/policy/test_governing.py::test_nothing_wins_over_the_operators_file",
        "a program leaves out the operator's file",
        (
            (
                "    return Governing((theirs, *(file for file in files if file != theirs)), operators=1)",
                "    return Governing(files)",
            ),
        ),
    ),
    Mutation(
        "tests/policy/test_governing.py::test_a_program_can_only_add_to_the_policy",
        "a program's own policy replaces that of the files",
        (
            (
                '            found.append(Policy.parse(given, base=Path.cwd(), source="policy"))',
                '            found = [Policy.parse(given, base=Path.cwd(), source="policy")]',
            ),
        ),
    ),
]
