"""Mutations of workers and of the Temporal runtime."""

from __future__ import annotations

from tests.promises.breaking import Mutation
from tests.promises.mutations_of_stores import DEAF, PERMIT

#: Whoever stops writes nothing any more.
_ABANDONED = (
    ("if records or consumed or self._kept:\n", "if (records or consumed or self._kept) and not self.stopping:\n"),
)
#: Neither the workers' rounds nor the sweep of all sagas find what a dead owner left.
_DEAD_IGNORED = (("            if ttl_ms == 0 or dead:\n", "            if False:\n"),)
_NO_SWEEP = (("                await self.look()\n", "                pass\n"),)
_FORGETS_NONCE = (("self._nonce = self._nonce or secrets.token_hex(8)", "self._nonce = secrets.token_hex(8)"),)

OF_WORKERS = [
    Mutation(
        "tests/kill/test_workers.py::test_a_worker_killed_anywhere",
        "nobody looks after the dead",
        _DEAD_IGNORED + _NO_SWEEP,
        only="embedded",
        hangs=True,
    ),
    Mutation(
        "tests/kill/test_workers.py::test_a_worker_killed_while_it_looks_after_the_dead",
        "nobody looks after the dead",
        _DEAD_IGNORED + _NO_SWEEP,
        only="reclaim and before",
        hangs=True,
    ),
    Mutation(
        "tests/kill/test_workers.py::test_a_worker_killed_while_it_hands_over",
        "nobody looks after the dead",
        _DEAD_IGNORED + _NO_SWEEP,
        only="embedded and before",
        hangs=True,
    ),
    Mutation(
        "tests/kill/test_workers.py::test_two_workers_race_for_two_hundred_sagas",
        "what was taken is offered to others",
        (("      call('ZREM', due, id)\n", ""), (" and ttl_of(tag, found[1]) == 0 then", " then")),
        only="embedded",
        hangs=True,
    ),
    Mutation(
        "tests/kill/test_workers.py::test_a_lost_answer_is_asked_for_again",
        "each request is another one",
        _FORGETS_NONCE,
        only="embedded",
    ),
    Mutation(
        "tests/runtime/test_worker.py::test_a_worker_that_stops_before_it_got_its_answer_leaves_nothing_behind",
        "what an unanswered request took is not asked for",
        (("                if self._nonce:\n", "                if False:\n"),),
    ),
    Mutation(
        "tests/runtime/test_worker.py::test_a_worker_that_is_cancelled_while_it_asks",
        "a cancelled worker does not wait for its answer",
        (
            (
                "            self._room.set()\n            await turns\n            raise",
                "            self._room.set()\n            turns.cancel()\n            raise",
            ),
            ("                if self._nonce:\n", "                if False:\n"),
        ),
    ),
    Mutation(
        "tests/runtime/test_worker.py::test_a_lost_answer_to_an_acquire_leaves_the_saga_to_workers",
        "nothing is owed after a lost answer",
        (("            self.pending.add_unsure(saga_id, AT_ONCE)  # the answer was lost\n", ""),),
    ),
    Mutation(
        "tests/kill/test_workers.py::test_a_frozen_worker_is_overtaken",
        "a call is made after the lease is lost",
        PERMIT + DEAF,
        only="embedded and between",
    ),
    Mutation(
        "tests/kill/test_workers.py::test_sigterm_in_the_middle_of_a_call",
        "what comes of a call while its worker stops is lost",
        _ABANDONED,
        only="embedded",
        hangs=True,
    ),
    *(
        Mutation(
            test,
            "timers are not written into the queue",
            (("  if released and chosen.due_ms then\n", "  if false then\n"),),
            hangs=True,
        )
        for test in (
            "tests/kill/test_workers.py::test_a_timer_outlives_its_worker",
            "tests/runtime/test_worker.py::test_an_approval_expires_with_nobody_but_a_worker",
            "tests/runtime/test_worker.py::test_people_are_reminded_with_nobody_but_a_worker",
            "tests/runtime/test_worker.py::test_people_are_told_at_last",
        )
    ),
    Mutation(
        "tests/kill/test_workers.py::test_an_answer_whose_sender_dies_is_read_by_a_worker",
        "mail brings no worker",
        (("    wait_for_worker(tag, id, soon, now)\n", ""),),
        hangs=True,
    ),
    Mutation(
        "tests/kill/test_trials.py::test_only_the_first_end_of_a_process_costs_bare_calls",
        "bare calls begin beside a suspect",
        (("        elif self._closed and any(", "        elif False and any("),),
        only="call",
    ),
    Mutation(
        "tests/kill/test_trials.py::test_only_the_first_end_of_a_process_costs_bare_calls",
        "a suspect does not wait for the bare calls in flight",
        (("            admitted = self._enter(driver, ends)\n", "            admitted = True\n"),),
        only="probe",
    ),
    Mutation(
        "tests/runtime/test_trials.py::test_bare_calls_and_a_suspect_are_kept_apart",
        "a suspect begins beside bare calls",
        (("        if self._exposed:\n", "        self._exposed = set()\n        if self._exposed:\n"),),
        only="work-poison",
    ),
    # 79
    Mutation(
        "tests/runtime/test_hints.py::test_an_event_wakes_a_worker_that_asks_once_an_hour",
        "a worker that hears of work sleeps on",
        (("            self._hinted = True\n            self._room.set()\n", "            self._hinted = True\n"),),
        hangs=True,
    ),
    Mutation(
        "tests/runtime/test_hints.py::test_work_that_comes_while_the_subscription_is_down_is_found",
        "a worker is not told that it hears nothing any more",
        (("        heard(None)\n", ""),),
        hangs=True,
    ),
    Mutation(
        "tests/runtime/test_hints.py::test_a_worker_without_hints_finds_the_work_by_its_poll",
        "a worker that listens does not ask",
        (
            (
                "            await happens(self._room, self._until_next(taking, pause_s))\n",
                "            await happens(self._room, 3600.0 if self._listening else self._until_next(taking, pause_s))\n",
            ),
        ),
        hangs=True,
    ),
    # 80
    Mutation(
        "tests/runtime/test_crash_loops.py::test_a_probe_that_ends_its_process_is_asked_three_times_at_most",
        "a call may end five processes",
        (("MAX_CRASHES = 3", "MAX_CRASHES = 5"),),
    ),
    Mutation(
        "tests/runtime/test_trials.py::test_a_saga_that_goes_on_after_its_trial_keeps_no_other_out",
        "the saga of a suspect keeps others out until its end",
        ((" and is_tried(tried.state)\n", "\n"),),
        hangs=True,
    ),
    Mutation(
        "tests/runtime/test_trials.py::test_a_trial_that_hangs_keeps_no_other_out_for_ever",
        "a trial that hangs keeps others out for ever",
        (("        return waits and self.drives", "        return self.drives"),),
        hangs=True,
    ),
    Mutation(
        "tests/core/test_settling.py::test_what_has_an_outcome_is_no_suspect",
        "a call is a suspect after its outcome",
        (("    if call.takeovers:\n        call.answered()\n    call.over(", "    call.over("),),
    ),
    Mutation(
        "tests/core/test_settling.py::test_only_owners_that_began_the_call_incriminate_it",
        "each intent of a suspect counts as a call",
        (('"intended" if call.crashes else "call"', '"call"'),),
    ),
    Mutation(
        "tests/runtime/test_crash_loops.py::test_each_owner_that_begins_a_suspect_says_so_first",
        "a suspect is begun without a word in the journal",
        (("            or call.suspect\n", ""),),
    ),
    Mutation(
        "tests/runtime/test_crash_loops.py::test_a_call_of_finally_that_ends_its_owners_leaves_no_saga_that_is_clean",
        "a saga whose last call was given up is clean",
        (("not (remains or unasked)", "not remains"),),
    ),
    Mutation(
        "tests/runtime/test_worker.py::test_a_saga_whose_tool_is_missing_is_left_for_another_worker",
        "a saga is taken before its tools are looked for",
        (
            (
                '    if missing:\n        known = ", ".join(catalog.names())',
                '    if False:\n        known = ", ".join(catalog.names())',
            ),
        ),
    ),
    Mutation(
        "tests/temporal/test_sagas.py::test_the_same_journal_as_in_process",
        "a record is left out",
        (
            (
                "self._records.append(encode(started, self._values))",
                "self._records.append(encode(msgspec.structs.replace(started, engine='x', digest='y'), self._values))",
            ),
        ),
    ),
    Mutation(
        "tests/temporal/test_histories.py::test_a_recorded_history_plays_as_it_went",
        "calls go by another name",
        (('CALL: Final = "saga_call"', 'CALL: Final = "saga_calls"'),),
    ),
    *(
        Mutation(
            test,
            "a call whose worker died was not made",
            (
                (
                    "            return Unknown(info, lost=True)\n",
                    "            return NotDone(info, retryable=True)\n",
                ),
            ),
            only=only,
        )
        for test, only in (("tests/temporal/test_kills.py::test_killed_anywhere", "bare"),)
    ),
    Mutation(
        "tests/temporal/test_kills.py::test_killed_and_restarted_as_another_process",
        "each attempt has a key of its own",
        (("        state.key(index, way),\n", "        state.key(index, way) + str(effect.attempt),\n"),),
    ),
    Mutation(
        "tests/temporal/test_kills.py::test_one_attempt_does_not_switch_off_settling_by_key",
        "a lost worker is an attempt like any other",
        (("            return Unknown(info, lost=True)\n", "            return Unknown(info)\n"),),
    ),
    Mutation(
        "tests/temporal/test_kills.py::test_a_worker_frozen_before_it_began_begins_nothing",
        "a worker does not ask whether a call is still its own",
        (("            await require_ours()\n", ""),),
    ),
    Mutation(
        "tests/temporal/test_kills.py::test_a_worker_that_slept_may_begin_nothing",
        "a worker that slept may begin a call",
        (
            (
                "if activity.is_cancelled() or (self._limit_s and silent_s >= self._limit_s):",
                "if activity.is_cancelled():",
            ),
        ),
    ),
    Mutation(
        "tests/temporal/test_kills.py::test_what_a_lost_activity_tells",
        "a call whose worker died was not made",
        (("            return Unknown(info, lost=True)\n", "            return NotDone(info)\n"),),
    ),
    Mutation(
        "tests/temporal/test_guarded.py::test_a_call_that_no_worker_began_in_time_was_not_made",
        "a call that nobody began is in doubt",
        (
            (
                "            return NotDone(info, retryable=True, counted=False)\n        if cause.type == TimeoutType.HEARTBEAT:",
                "            return Unknown(info)\n        if cause.type == TimeoutType.HEARTBEAT:",
            ),
        ),
    ),
    Mutation(
        "tests/temporal/test_guarded.py::test_a_long_saga_is_continued_in_other_runs",
        "a saga is continued without its last record",
        (
            ("journal=payloads.pack_journal(self._records)", "journal=payloads.pack_journal(self._records[:-1])"),
            (
                '"status": self._here().status, "journal": payloads.pack_journal(self._records)',
                '"status": self._here().status, "journal": payloads.pack_journal(self._records[:-1])',
            ),
            (
                '{\n                "journal": payloads.pack_journal(self._records)',
                '{\n                "journal": payloads.pack_journal(self._records[:-1])',
            ),
        ),
        hangs=True,
    ),
    Mutation(
        "tests/temporal/test_guarded.py::test_a_secret_is_in_no_history",
        "what a tool answers is not scrubbed",
        (
            (
                "outcome = scrub(await self._made(order, params, call), secrets)",
                "outcome = await self._made(order, params, call)",
            ),
        ),
    ),
    Mutation(
        "tests/temporal/test_guarded.py::test_only_marks_become_secrets",
        "marks can be guessed",
        (("    while nonce in text:\n", "    while False:\n"),),
    ),
    Mutation(
        "tests/sagas/test_differing.py::test_what_differs_is_named_and_nothing_else",
        "the order in which names of secrets are written makes a difference",
        (("{name: sorted(listed) for name, listed in each.items()}", "dict(each)"),),
    ),
    Mutation(
        "tests/sagas/test_differing.py::test_doctor_and_top_name_the_process_that_differs",
        "a lease records nothing",
        (('note = b"" if self.governed is None else self.governed.note()', 'note = b""'),),
    ),
]
