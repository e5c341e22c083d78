"""Mutations of searches, templates and schedules."""

from __future__ import annotations

from tests.promises.breaking import Mutation

OF_SCHEDULES = [
    # 55
    Mutation(
        "saga_engine/testing/search_conformance.py::test_pages_of_a_search_follow_each_other",
        "a page begins one saga too late",
        (("before = page[-1] if", "before = certain[query.limit] if"),),
    ),
    Mutation(
        "tests/stores/test_damage.py::test_every_verb_mends_what_it_meets",
        "the search index is not rebuilt",
        (("      add_postings(tag, string.sub(key, #terms + 1))\n", "      local _ = key\n"),),
        only="search",
    ),
    Mutation(
        "tests/stores/test_damage.py::test_lost_indexes_are_rebuilt_on_request",
        "nothing is rebuilt where nothing is damaged",
        (('tags], ["mark"])', 'tags], ["look"])'), ("for tag in tags), whole=True)", "for tag in tags))")),
    ),
    Mutation(
        "tests/stores/test_damage.py::test_a_rebuild_that_was_cut_off_is_finished",
        "a rebuild that its process did not finish is forgotten",
        (("    call('SET', string.sub(key, 1, -7) .. 'mending', '1')\n", "    local _ = key\n"),),
    ),
    Mutation(
        "tests/sagas/test_search.py::test_lost_terms_are_restored_from_the_journals",
        "a saga that got a term after it had lost the others is not looked at",
        (
            (
                "type(terms) ~= 'string' or not string.find(terms .. '\\n', '\\n' .. ANY .. '\\n', 1, true)",
                "type(terms) ~= 'string'",
            ),
        ),
    ),
    # 56
    Mutation(
        "tests/plan/test_templates.py::test_versions_never_change",
        "the number of a deleted version is used again",
        (("_Latest(latest.version, kept)", "_Latest(max(kept, default=0), kept)"),),
    ),
    Mutation(
        "tests/plan/test_templates.py::test_writers_at_the_same_time_make_different_versions",
        "every writer of a document succeeds",
        (("if revision ~= expected then", "if false then"),),
    ),
    # 57
    Mutation(
        "tests/schedules/test_schedules.py::test_workers_that_slept_for_78_minutes_fire_one_tick",
        "every missed tick happens",
        (('if body.catch_up != "all":', "if False:"),),
    ),
    Mutation(
        "tests/schedules/test_schedules.py::test_a_tick_whose_worker_was_killed_is_begun_once",
        "each worker chooses an id of its own for the saga of a tick",
        (
            (
                "self._submit(name, body, body.pending.saga_id)",
                'self._submit(name, body, f"{body.pending.saga_id}-{secrets.token_hex(2)}")',
            ),
        ),
    ),
    Mutation(
        "tests/schedules/test_schedules.py::test_missed_ticks",
        "a missed tick happens although none should",
        (('body.catch_up == "none" and', 'body.catch_up == "never" and'),),
    ),
    Mutation(
        "tests/schedules/test_schedules.py::test_missed_ticks_that_are_all_caught_up_have_their_turns",
        "a missed tick that meets an unfinished saga is skipped although all should happen",
        (("body.held = missed and", "body.held = False and"),),
    ),
]
