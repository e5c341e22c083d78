"""Mutations of what is written, kept and owned."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_EPOCH = ("if found[1] ~= epoch then", "if false then")
_SESSION = ("local ours = found[2] == owner and alive(tag)", "local ours = found[2] == owner")
_LENGTH = ("    length = push(journal, first, last)\n", "    push(journal, first, last)\n    length = seq\n")
#: An intent that is acted on, and never written.
UNWRITTEN = (
    (
        "if records or consumed or self._kept:\n",
        "if consumed or not records or any(type(each) is not r.StepIntended for each in records):\n",
    ),
    (
        "self._committed(records, await self._commit(ready, consumed))",
        (
            "written = [each for each in records if type(each) is not r.StepIntended]\n"
            "                    self._committed(records, await self._commit(ready._replace(records=written), consumed))"
        ),
    ),
)
#: The embedded server writes nothing down, and nobody looks whether it does.
_NO_AOF = (('"appendonly": "yes"', '"appendonly": "no"'),)
_UNPROVEN = (
    (
        "            if demanding:\n                demand(await self.promise())",
        "            if demanding:\n                await self.promise()",
    ),
    (
        "            try:\n                demand(await self.promise())",
        "            try:\n                await self.promise()",
    ),
)
#: A process that has lost its lease does not hear of it, and does not look before a call either.
PERMIT = (("self._permit = lease.check", "self._permit = lambda: None"),)
DEAF = (("            callback(frozenset(lost))\n", "            pass\n"),)

OF_STORES = [
    Mutation(
        "tests/core/test_simulation.py::test_every_law_holds_for_sessions",
        "calls are added on the way back",
        (("state.open and not state.turns", "state.open or state.backward"),),
    ),
    Mutation(
        "tests/core/test_mutants.py::test_the_simulation_of_sessions_catches",
        "only plans are simulated",
        (),
        elsewhere=(("tests/core/test_mutants.py", "hunt(name, SessionSimulation)", "hunt(name, Simulation)"),),
        only="idle",
    ),
    # 1
    Mutation(
        "tests/core/test_simulation.py::test_every_law_holds_whatever_happens",
        "a crash forgets the calls in flight",
        (
            (
                "        calls.doubt(state, index, direction, ErrorInfo(",
                "        state.in_flight.pop((index, direction))\n        (lambda *_: None)(state, index, direction, ErrorInfo(",
            ),
        ),
        quick=True,
    ),
    Mutation(
        "tests/kill/test_matrix.py::test_killed_anywhere_and_resumed",
        "intents are acted on and not written",
        UNWRITTEN,
        only="embedded and fails and bare",
    ),
    Mutation(
        "tests/kill/test_matrix.py::test_killed_again_while_resuming",
        "intents are acted on and not written",
        UNWRITTEN,
        only="bare",
    ),
    # 2
    Mutation(
        "tests/stores/test_embedded.py::test_a_server_killed_amid_appends_loses_nothing",
        "the embedded server keeps no append-only file",
        _NO_AOF + _UNPROVEN,
    ),
    Mutation(
        "tests/stores/test_lost_replies.py::test_a_server_that_restarts_keeps_what_it_acknowledged",
        "an append is acknowledged and not added",
        (
            (
                "    length = push(journal, first, last)\n",
                "    length = seq\n",
            ),
        ),
    ),
    Mutation(
        "tests/kill/test_outages.py::test_an_embedded_server_that_is_killed_is_started_again",
        "the embedded server keeps no append-only file",
        _NO_AOF + _UNPROVEN,
    ),
    Mutation(
        "tests/stores/test_power.py::test_what_is_acknowledged_was_synced_before",
        "the embedded server syncs when it likes",
        (('"appendfsync": "always"', '"appendfsync": "no"'), *_UNPROVEN),
        quick=True,
    ),
    Mutation(
        "tests/stores/test_power.py::test_a_server_that_passes_as_durable_syncs_before_it_answers",
        "a server that does not sync passes as durable",
        (('if settings.get("appendfsync") != "always":', "if False:"),),
        elsewhere=(("tests/support/servers.py", '"appendfsync": "always"', '"appendfsync": "no"'),),
    ),
    # 3
    Mutation(
        "tests/stores/test_durability.py::test_a_weak_server_is_refused",
        "a finding refuses nothing",
        (('errors = [finding for finding in promise.findings if finding[0] == "error"]', "errors = []"),),
    ),
    # 12
    Mutation(
        "saga_engine/testing/conformance.py::test_a_smaller_epoch_is_fenced",
        "the epoch is not looked at",
        (_EPOCH,),
        quick=True,
    ),
    Mutation(
        "saga_engine/testing/conformance.py::test_a_lease_that_expired_is_fenced",
        "the session of the owner is not looked at",
        (_SESSION,),
    ),
    Mutation(
        "tests/kill/test_two_owners.py::test_a_frozen_owner_is_overtaken",
        "a call is made after the lease is lost",
        PERMIT + DEAF,
        only="between and intent and undo",
    ),
    Mutation(
        "tests/kill/test_two_owners.py::test_a_frozen_owner_never_makes_the_call_that_it_had_journalled",
        "a call is made after the lease is lost",
        PERMIT + DEAF,
        only="embedded and call",
    ),
    Mutation(
        "tests/kill/test_fence.py::test_two_owners_in_every_order",
        "the epoch is not looked at",
        (_EPOCH,),
    ),
    # 13
    Mutation(
        "tests/stores/test_lost_replies.py::test_a_lost_append_is_applied_once",
        "a write that is there already is added again",
        (("    if there then\n", "    if false then\n"), _LENGTH),
    ),
    Mutation(
        "tests/stores/test_lost_replies.py::test_a_lost_creation_is_one_saga",
        "a creation does not know its own write",
        (("if same(journal, 0, first, last) then", "if false then"),),
    ),
    # 14
    Mutation(
        "tests/cli/test_flows.py::test_submitting_again_returns_the_saga_that_exists",
        "a saga that exists is begun anew",
        (("  if found[1] then\n    if same", "  if false then\n    if same"),),
    ),
    Mutation(
        "tests/cli/test_flows.py::test_an_id_of_another_plan_is_a_conflict",
        "the plan of an id is not compared",
        (('if error.context.get("digest") != saga.digest:', "if False:"),),
    ),
    Mutation(
        "tests/sagas/test_pitfalls.py::test_18_running_a_compensated_saga_again_changes_nothing",
        "a saga that exists is begun anew",
        (("  if found[1] then\n    if same", "  if false then\n    if same"),),
    ),
    # 15
    Mutation(
        "tests/cli/test_interrupts.py::test_a_killed_saga_is_taken_over_at_once",
        "nobody is provably dead",
        (
            (
                "    except ProcessLookupError:\n        return True",
                "    except ProcessLookupError:\n        return False",
            ),
        ),
    ),
    # 16
    Mutation(
        "tests/cli/test_flows.py::test_a_missing_tool_leaves_the_saga_exactly_as_it_is",
        "a saga is taken before its tools are looked for",
        (
            (
                '    if missing:\n        known = ", ".join(catalog.names())',
                '    if False:\n        known = ", ".join(catalog.names())',
            ),
        ),
    ),
    # 17
    Mutation(
        "tests/sagas/test_pitfalls.py::test_17_a_live_but_idle_saga_never_expires",
        "a saga that rests gets a time to live",
        (("self._keep_ms if final else 0", "self._keep_ms if final or resting else 0"),),
    ),
    Mutation(
        "tests/stores/test_keys.py::test_live_sagas_never_expire_and_finished_ones_do",
        "the large values of a finished saga stay for ever",
        (("local ALWAYS_THERE = 2", "local ALWAYS_THERE = 1"), ("more and #KINDS", "more and 2")),
    ),
    Mutation(
        "tests/stores/test_keys.py::test_live_sagas_never_expire_and_finished_ones_do",
        "a live saga gets a time to live with its messages",
        (
            (
                "  if ttl > 0 then\n    redis.call('PEXPIRE', messages, ttl)",
                "  if true then\n    redis.call('PEXPIRE', messages, 86400000)",
            ),
        ),
    ),
    # 19
    Mutation(
        "tests/core/test_codec.py::test_golden_bytes",
        "the default of a field is changed",
        (
            (
                "delay_ms: int = 0\n    direction: Direction = FORWARD\n    counted",
                'delay_ms: int = 0\n    direction: Direction = "compensate"\n    counted',
            ),
        ),
    ),
    Mutation(
        "tests/core/test_codec.py::test_every_kind_of_record_stays_readable",
        "a field of a record is renamed",
        (("    attempt: int = 1\n    params", "    attempts: int = 1\n    params"),),
        quick=True,
    ),
    Mutation(
        "tests/core/test_codec.py::test_what_cannot_be_understood_is_refused",
        "the version of a record is not looked at",
        (("if record.v > VERSION:\n            raise msgspec", "if False:\n            raise msgspec"),),
    ),
    # 70
    Mutation(
        "tests/kill/test_purge.py::test_no_saga_is_lost_whoever_purges_is_killed",
        "a saga is not archived before it is purged",
        (("            if self._archive is not None:\n", "            if False:\n"),),
    ),
    Mutation(
        "tests/privacy/test_retention.py::test_a_saga_and_what_took_over_its_effects_leave_in_order",
        "an undo leaves before the saga whose effects it has",
        (("            return ORIGIN\n", "            pass\n"),),
    ),
    Mutation(
        "tests/privacy/test_retention.py::test_a_child_stays_as_long_as_its_parent",
        "a child leaves before its parent",
        (("            return PARENT\n", "            pass\n"),),
    ),
    # 20
    Mutation(
        "tests/ground/test_wheel.py::test_the_wheel_runs_the_articles_plan",
        "the scripts are not packed",
        (),
        elsewhere=(
            (
                "pyproject.toml",
                "[tool.hatch.build.targets.wheel]\n",
                '[tool.hatch.build.targets.wheel]\nexclude = ["*.lua"]\n',
            ),
        ),
    ),
    Mutation(
        "tests/ground/test_wheel.py::test_the_base_install_starts_without_any_extra",
        "the base install needs an extra",
        (
            (
                "from typing import TYPE_CHECKING, Any\n\nfrom saga_engine._version import",
                "import pydantic_ai  # noqa: F401\nfrom typing import TYPE_CHECKING, Any\n\nfrom saga_engine._version import",
            ),
        ),
    ),
    # 72
    Mutation(
        "tests/stores/test_cluster_away.py::test_a_worker_starts_while_a_primary_is_away",
        "a lease begins in all partitions or not at all",
        (("if self._open_apart is None:", "if True:"),),
        only="freeze and p00",
    ),
    Mutation(
        "tests/stores/test_cluster_away.py::test_what_was_away_is_verified_before_anything_is_written_to_it",
        "a new connection is not verified",
        (("        if self.demanding:\n            demand_kept", "        if False:\n            demand_kept"),),
    ),
    Mutation(
        "tests/stores/test_cluster_away.py::test_a_stop_holds_while_its_original_cannot_be_read",
        "stops that cannot be read hold nothing",
        (("                return latest\n", "                return latest[0], {}\n"),),
    ),
    # 91
    Mutation(
        "tests/stores/test_slots.py::test_a_wait_behind_answered_calls_is_no_outage",
        "a wait behind answered calls counts as an outage",
        (("return max(self._slots.answered_s - self._asked_s, 0.0)", "return 0.0"),),
    ),
    Mutation(
        "tests/stores/test_slots.py::test_a_busy_loop_is_no_outage",
        "an answer that a busy loop has not read counts as none",
        (("if now_s - due_s <= _LATE_S:", "if True:"),),
    ),
    Mutation(
        "tests/stores/test_slots.py::test_an_outage_ends_the_wait_of_all",
        "a call that gives up counts as answered",
        (
            (
                "            slots.failed(error)\n            raise TransientError",
                "            slots.answered()\n            raise TransientError",
            ),
        ),
    ),
    Mutation(
        "tests/stores/test_slots.py::test_a_lease_is_renewed_before_all_other_calls",
        "leases are renewed behind all other calls",
        (('return self.renewals if name == "renew" else', "return"),),
    ),
]
