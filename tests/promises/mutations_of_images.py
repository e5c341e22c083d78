"""Mutations of before-images, drift and undos of several calls."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_FIRST_AGAIN = (("    place = places[done]\n", "    place = places[0]\n"),)
_OVERWRITES = (('else "drift"\n    return', 'else "undo"\n    return'),)

_WHICH = "tests/undo/test_which_undo.py::"
_BACK = "tests/undo/test_undo_by_call.py::"

OF_IMAGES = [
    # 83
    Mutation(
        f"{_WHICH}test_a_named_undo_is_the_registered_one",
        "a named undo forgets what the registration says of its params",
        (("        if said.only_names and meant is not None:\n", "        if False:\n"),),
        quick=True,
        only="undo_params-plan",
    ),
    Mutation(
        f"{_WHICH}test_a_named_undo_is_the_registered_one",
        "an undo that an agent names forgets what the registration says of it",
        (("    return said.like(registered)\n", "    return said\n"),),
        only="undo_params-session",
    ),
    Mutation(
        f"{_WHICH}test_a_models_plan_undoes_as_the_registration_says",
        "a named undo forgets what the registration says of its params",
        (("        if said.only_names and meant is not None:\n", "        if False:\n"),),
        only="named-undo_params",
    ),
    Mutation(
        f"{_WHICH}test_a_named_undo_compiles_to_the_registered_one",
        "an undo that follows a registered one is forgotten when its tool is named",
        (
            (
                "        made.then = tuple(then)\n        made.needs_output = _needs",
                "        made.needs_output = _needs",
            ),
        ),
    ),
    Mutation(
        f"{_WHICH}test_the_journal_says_what_a_named_undo_was_registered_with",
        "a named undo is what the tool registers today",
        (("registered, gone = of_slot(kept.get(slot)), of_slot", "registered, gone = declared, of_slot"),),
    ),
    Mutation(
        f"{_WHICH}test_a_written_undo_is_compared_with_the_registration",
        "what a registered undo calls as well may be left out",
        (('        if later["tool"] not in tools:\n', "        if False:\n"),),
    ),
    # 84
    Mutation(
        f"{_WHICH}test_a_registration_with_a_lookalike_is_refused",
        "a text that resembles a binding is registered",
        (("        if wrong:\n            meant = re.search(", "        if False:\n            meant = re.search("),),
    ),
    Mutation(
        f"{_WHICH}test_an_undo_binds_the_param_of_its_call",
        "an undo gets the marker of a secret in place of the secret",
        (("return self.find(scope.params(self._step))", "return self.find({'sku': '$secret.SKU'})"),),
    ),
    # 86
    Mutation(
        f"{_BACK}test_a_call_that_takes_one_back_is_its_undo",
        "what is taken back is undone again",
        (
            (
                "    if compiled.compensates is not None or serving.before is not None:\n        return None\n",
                "    return None\n",
            ),
        ),
        quick=True,
    ),
    Mutation(
        f"{_BACK}test_a_repeat_gets_the_first_answer",
        "what is taken back twice is called twice",
        (('    if taken is not None and taken.how == "gone" and at.status == PENDING:\n', "    if False:\n"),),
    ),
    Mutation(
        f"{_BACK}test_the_undo_of_a_call_is_never_undone",
        "an undo is undone",
        (("        if self.steps[index].undoes >= 0:\n            return False\n", ""),),
    ),
    Mutation(
        f"{_BACK}test_the_newest_that_stands_is_taken_back",
        "the oldest call that fits is taken back",
        (
            (
                "key=lambda place: state.steps[place].happened_nth, reverse=True)",
                "key=lambda place: state.steps[place].happened_nth)",
            ),
        ),
    ),
    Mutation(
        f"{_BACK}test_a_near_miss_is_a_call_of_its_own_and_is_asked_about",
        "an undo does not look at near misses",
        (
            (
                "            if step.status == t.SUCCEEDED and _names_the_same(state, index, made, place):\n",
                "            if False:\n",
            ),
        ),
    ),
    Mutation(
        f"{_BACK}test_an_operator_settles_a_doubt_about_it",
        "an undo that may have happened is made again",
        (("    if by >= 0:  # an operator accepted the doubt\n", "    if False:\n"),),
        only="accept",
    ),
    Mutation(
        f"{_BACK}test_the_tool_is_told_which_call_it_undoes",
        "only an undo of the engine's is told which call it undoes",
        (("    undone = index if backward else at.undoes\n", "    undone = index if backward else -1\n"),),
        only="session",
    ),
    Mutation(
        "tests/kill/test_sessions.py::test_killed_anywhere",
        "what was recorded as an undo needs an undo of its own while the session is undone",
        (
            (
                '            if recorded.tool == tool and recorded.kind == "irreversible":\n                return True\n',
                "",
            ),
        ),
        only="back-bare",
    ),
    Mutation(
        f"{_BACK}test_a_result_that_is_taken_back_is_not_given_to_another_saga",
        "what an agent takes back is kept for other sagas",
        (
            (
                "        if call.direction == COMPENSATE or call.undoes is not None:\n            refused",
                "        if call.direction == COMPENSATE:\n            refused",
            ),
        ),
    ),
    Mutation(
        "tests/gateway/test_gateway.py::test_an_agent_that_takes_back_its_own_payment_is_paid_back_once",
        "a call that took another one back is reported as left",
        (('    if "undoes" in step and status == "SUCCEEDED":', "    if False:"),),
    ),
    Mutation(
        "tests/temporal/test_taking_back.py::test_a_step_that_takes_one_back_is_its_undo",
        "only an undo of the engine's is told which call it undoes",
        (("    undone = index if backward else at.undoes\n", "    undone = index if backward else -1\n"),),
    ),
    Mutation(
        "tests/core/test_simulation.py::test_no_effect_is_undone_twice",
        "two calls of one moment take the same one back",
        (("            if not (meet and _is_twice(made, out)):\n", "            if True:\n"),),
    ),
    # 46
    Mutation(
        "tests/core/test_simulation.py::test_no_stranger_is_overwritten",
        "drift is overwritten",
        _OVERWRITES,
    ),
    Mutation(
        "tests/core/test_mutants.py::test_the_simulation_of_images_catches",
        "strangers write nothing",
        (),
        elsewhere=(
            (
                "tests/core/image_simulation.py",
                "if self.dice.random() < (0.3 if self.world.standing.get(step.key) else 0.1) * self.trouble:",
                "if self.dice.random() < 0:",
            ),
        ),
        only="drift",
    ),
    Mutation(
        "tests/kill/test_images.py::test_a_strangers_value_survives_kills",
        "drift is overwritten",
        _OVERWRITES,
    ),
    Mutation(
        "tests/undo/test_before_images.py::test_drift_is_asked_about",
        "drift is overwritten",
        _OVERWRITES,
        quick=True,
    ),
    Mutation(
        "tests/undo/test_before_images.py::test_a_read_that_ended_while_the_store_wrote_is_not_made_twice",
        "a read whose result nobody looked at yet is made again",
        (("self._looking.update(ready.looks)", "pass"),),
    ),
    Mutation(
        "tests/undo/test_undo_calls.py::test_every_call_happens_in_order_under_its_own_key",
        "an undo goes on with its first call",
        _FIRST_AGAIN,
    ),
    Mutation(
        "tests/undo/test_undo_calls.py::test_an_operator_answers_about_one_call_or_the_whole_undo",
        "what an operator says of one call counts for all",
        (("if not compensation", "if True or not compensation"),),
    ),
    Mutation(
        "tests/temporal/test_sagas.py::test_an_undo_of_several_calls",
        "an undo goes on with its first call",
        _FIRST_AGAIN,
    ),
    Mutation(
        "tests/undo/test_before_images.py::test_after_an_operator_s_happened_the_call_s_own_value_is_no_drift",
        "what the call would have left counts as drift",
        (('return "undo" if sole_writer or own else "drift"', 'return "undo" if sole_writer else "drift"'),),
    ),
    # 101
    Mutation(
        "tests/undo/test_verified_undos.py::test_an_undo_that_only_says_so_is_asked_about",
        "a value that is as the call left it counts as undone",
        (
            (
                'would_leave(state, index, found):\n        return "left"',
                'would_leave(state, index, found):\n        return "verified"',
            ),
        ),
        quick=True,
        only="before",
    ),
    Mutation(
        "tests/undo/test_verified_undos.py::test_an_undo_that_did_what_it_says_is_verified",
        "nobody looks whether an undo did what it says",
        (("        if by and not (record.via in", "        if False and not (record.via in"),),
    ),
    Mutation(
        "tests/undo/test_verified_undos.py::test_what_an_operator_undid_by_hand_is_looked_at",
        "what an operator says of an undo is believed",
        (("_by(state, state.plan.by_key[record.step], by_hand=True)", '""'),),
    ),
    Mutation(
        "tests/undo/test_verified_undos.py::test_an_undo_of_the_same_value_waits_for_the_look",
        "an undo that is asked about holds up no undo of the same value",
        (
            (
                'step.look = replace(step.look, how="asked")\n    state.looks[index] = -1',
                'step.look = replace(step.look, how="asked")\n    del state.looks[index]',
            ),
        ),
    ),
    Mutation(
        "tests/kill/test_verified.py::test_an_undo_is_looked_at_after_a_kill",
        "an undo that another process has made is believed",
        (("        if by and not (record.via in", "        if False and not (record.via in"),),
        only="seen-True",
    ),
    Mutation(
        "tests/core/test_simulation.py::test_an_undo_that_only_says_so_is_found_out",
        "the saga ends while an undo is looked at",
        (("self.doubts or self.questions or self.looks", "self.doubts or self.questions"),),
    ),
    Mutation(
        "tests/core/test_mutants.py::test_the_simulation_of_lying_undos_catches",
        "the simulated undos do not lie",
        (),
        elsewhere=(
            ("tests/core/lying_simulation.py", "self.lies_of.random() < self.often", "self.lies_of.random() < 0"),
        ),
        only="nobody",
    ),
    # 102
    Mutation(
        "tests/isolation/test_expected_values.py::test_a_value_that_changed_is_not_overwritten",
        "a value that somebody else changed is overwritten",
        (("    if isinstance(found, NotDone) or same(found, state.steps[index].before):", "    if True:"),),
        quick=True,
    ),
    Mutation(
        "tests/isolation/test_expected_values.py::test_an_agent_reads_again_and_decides_anew",
        "a second read is not what the saga knows",
        (("if when > newest and _concerns", "if found is None and _concerns"),),
    ),
    Mutation(
        "tests/isolation/test_expected_values.py::test_a_call_in_doubt_is_looked_at_before_it_is_repeated",
        "a call in doubt counts as not made because of what is there",
        (
            (
                "    if not state.steps[index].forward.doubt:\n        return changed(",
                "    if True:\n        return changed(",
            ),
        ),
    ),
    Mutation(
        "tests/isolation/test_expected_values.py::test_the_other_side_is_told_what_was_read",
        "what the other side refuses is refused like anything else",
        (("if not (compares and expected.is_refusal(outcome)):", "if True:"),),
    ),
    Mutation(
        "tests/kill/test_expected.py::test_nobody_is_overwritten_after_a_kill",
        "a call in doubt is repeated without a look",
        (
            (
                "if not compares or state.steps[index].forward.doubt:",
                "if not compares and not state.steps[index].forward.doubt:",
            ),
        ),
    ),
    Mutation(
        "tests/core/test_simulation.py::test_no_stranger_is_overwritten_unseen",
        "what is expected is what is there",
        (("            if expects(self.state, step):\n", "            if False:\n"),),
    ),
]
