"""Where each test runs, and why: what ``make quick``, ``make test`` and ``make check`` choose.

*The desk* (``--tier desk``, ``make test``) has a short form of every suite and ends within five minutes. *The rest*
(``--tier rest``) is what ``make check`` adds, in CI. *Quick* (``--tier quick``, ``make quick``) is the inner loop. Without
``--tier`` pytest runs whatever it is given.

A test is at the desk unless a row of ``ELSEWHERE`` names its file or folder. ``keep`` is an expression as of ``-k``, over
the id of a case, which chooses the cases that stay; where it is empty, nothing does, and the desk does not even import
the file. Marks that need a program of the system (``OF_THE_SYSTEM``) are for CI, but for the few files of
``SYSTEM_AT_DESK``, whose tests are skipped where the program is missing.

A property of hypothesis (``PROPERTY``) is tried with a sixth of its examples at the desk, and once more in the rest, with
all of them: so ``examples`` gives the number where a test asks for its own. So is what plays fixed seeds (``SEEDS``), and
what kills at each point of a run: at the desk at the first points and at some of the others (``kill/points.py``).

``python -m tests.tiers --write`` writes the table of ``tests/README.md``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from _pytest.mark.expression import Expression

TESTS: Final = Path(__file__).parent
PAGE: Final = TESTS / "README.md"
TIERS: Final = ("quick", "desk", "rest")

#: Marks of tests that drive a program of the system, so that a desk without it loses nothing.
OF_THE_SYSTEM: Final = ("debian_redis", "chromium")

#: Files whose tests of such a program the desk runs where it is: they cost little, and nothing else sees what they see.
SYSTEM_AT_DESK: Final = (
    "privacy/test_sealing.py",
    "stores/test_damage.py",
    "stores/test_durability.py",
    "stores/test_keys.py",
    "stores/test_lost_replies.py",
    "stores/test_power.py",
)

#: What a test counts as that hypothesis gives its examples: it runs at the desk and in the rest.
PROPERTY: Final = "hypothesis"
#: The mark of tests that count the seeds that they play with ``examples``.
SEEDS: Final = "seeds"
#: The desk tries one of so many examples.
_ONE_OF: Final = 6
_FEWER: list[str] = []

#: What the inner loop runs.
QUICK: Final = (
    "plan",
    "core/test_codec.py",
    "core/test_fold.py",
    "core/test_lists.py",
    "core/test_parallel_limit.py",
    "core/test_settling.py",
    "core/test_state.py",
    "core/test_transitions.py",
    "scenarios",
    "sagas/test_api.py",
    "sessions/test_sessions.py",
    "cli/test_flows.py",
    "cli/test_startup.py",
)


#: Rooms of which the desk runs nothing, because each of their tests needs what a desk may lack.
WITHOUT: Final = ("agents", "deploy", "llm")


class Row(NamedTuple):
    """A file or folder of which the desk runs only a part."""

    place: str
    why: str
    keep: str = ""


_CLUSTERS: Final = "starts clusters or sentinels of six processes"
_TEMPORAL: Final = "starts a server of Temporal"
_PROCESSES: Final = "starts process after process"
_BROWSER: Final = "drives a browser"
_BUILD: Final = "builds or checks what is published"
_FOREIGN: Final = "drives programs of others"
_READS_ALL: Final = "reads the whole tree"
_SAMPLE: Final = "one case of each kind"
_ONE_PLAN: Final = "kills at every point: one plan"
_EACH_COMMAND: Final = "runs command after command"
_EXAMPLE: Final = "plays a whole example"
_MODEL: Final = "random orders beside a model"

ELSEWHERE: Final = (
    Row("adapters/test_examples.py", _FOREIGN),
    Row("adapters/test_langchain.py", "imports LangChain, which takes as long as the rest of the room"),
    Row("adapters/test_large_results.py", "imports LangChain"),
    Row("adapters/test_pydantic_ai.py", "imports pydantic-ai, which takes a sixth of what collecting all tests does"),
    Row("agents", _FOREIGN),
    Row("barriers/test_async.py", _SAMPLE, "not postgresql"),
    Row("barriers/test_barrier.py", _SAMPLE, "not postgresql"),
    Row(
        "barriers/test_sagas.py",
        "one database, one death",
        "sqlite and not two_processes or in-the-call or arrives_after",
    ),
    Row("chaos/test_broken_chaos.py", "chaos with engines that are broken on purpose", "whole and list_choice"),
    Row("chaos/test_chaos.py", "chaos on every store"),
    Row("cli/test_amend.py", _SAMPLE, "not do_not_fit or plan-not-json"),
    Row("cli/test_bad_states.py", _PROCESSES),
    Row("cli/test_big_results.py", _SAMPLE),
    Row("cli/test_debugging.py", _PROCESSES, "not next_try"),
    Row("cli/test_fork.py", _PROCESSES, "not session"),
    Row("cli/test_interrupts.py", _PROCESSES, "first or taken_over"),
    Row("cli/test_loop_watch.py", _PROCESSES),
    Row("cli/test_manners.py", _PROCESSES, "not cannot_be_written"),
    Row("cli/test_plan.py", _EACH_COMMAND, "json or help"),
    Row("cli/test_startup.py", _SAMPLE, "not imports_nothing_but_typer or args0 or args2"),
    Row("cli/test_temporal_runtime.py", _TEMPORAL),
    Row("cli/test_transcripts.py", "plays every command: one transcript", "archive or screen or each_command"),
    Row("cli/test_worker.py", _PROCESSES, "hands_over"),
    Row("core/test_digest.py", _SAMPLE, "not another_process and not is_named"),
    Row("core/test_fingerprint.py", _PROCESSES, "not another_process"),
    Row("core/test_fork.py", _SAMPLE, "one_owner or same_call or could_be_taken or needs_nothing or went_on"),
    Row("core/test_rehearsal.py", "plays every scenario", "not every_scenario"),
    Row(
        "core/test_replay.py",
        "engines that are broken on purpose",
        "not another_engine and not its_own_journal and not declarations_are_enough",
    ),
    Row("core/test_simulation.py", "that the seeds reach every end is a matter of CI", "not reach"),
    Row("deploy", _BUILD),
    Row("docs/test_changelog.py", _READS_ALL),
    Row("docs/test_comparison.py", "runs the programs of the page"),
    Row("docs/test_examples.py", "runs each example of each page", "README.md"),
    Row("docs/test_glossary.py", _READS_ALL, "not old_meaning"),
    Row("docs/test_site.py", _BUILD),
    Row("docs/test_symptoms.py", _READS_ALL),
    Row("docs/test_tree.py", _READS_ALL),
    Row("docs/test_walkthroughs.py", "follows each page as a reader would"),
    Row("doors/test_doors.py", "every exception at every door: two doors", "not raises or plan or session"),
    Row("ext/test_absence.py", _PROCESSES, "imports_no_extension or names_an_extension"),
    Row("ext/test_extending.py", _PROCESSES, "not lacks_it and not checked_simulated"),
    Row("gateway/test_asked_clients.py", _PROCESSES),
    Row("gateway/test_cost.py", _SAMPLE, "not 150"),
    Row("gateway/test_http.py", _PROCESSES, "not told_to_stop"),
    Row("gateway/test_own_server.py", _EXAMPLE),
    Row("gateway/test_process.py", _PROCESSES),
    Row("gateway/test_unsettled.py", _PROCESSES),
    Row("ground/test_benchmark.py", "runs the benchmark"),
    Row("ground/test_booking.py", _PROCESSES, "not every_scene"),
    Row("ground/test_clocks.py", _READS_ALL, "not at_one_place"),
    Row("ground/test_faults.py", _PROCESSES, "not comparison"),
    Row("ground/test_lock.py", _BUILD),
    Row("ground/test_makefile.py", _BUILD),
    Row("ground/test_memory_folder.py", _PROCESSES),
    Row("ground/test_one_of_each.py", _READS_ALL),
    Row("ground/test_reading.py", _READS_ALL),
    Row("ground/test_release.py", _BUILD),
    Row("ground/test_scale.py", "sagas by the thousand"),
    Row("ground/test_score.py", _PROCESSES),
    Row("ground/test_stages.py", _PROCESSES, "budget"),
    Row("ground/test_tiers.py", "collects all tests of the desk", "not guarantee"),
    Row("ground/test_wheel.py", _BUILD),
    Row("ground/test_windows.py", _READS_ALL),
    Row("guards/test_hold_processes.py", _PROCESSES, "not random_sagas"),
    Row("guards/test_hold_races.py", "a lease lost at one request after the other", "not any_request"),
    Row("guards/test_processes.py", _PROCESSES, "provably_dead"),
    Row("isolation/test_rival_kills.py", _PROCESSES, "written"),
    Row("isolation/test_rival_writers.py", _MODEL),
    Row("kill/test_cut_lines.py", _SAMPLE, "embedded-before-bare or embedded-after-keyed"),
    Row("kill/test_expected.py", _SAMPLE, "left1"),
    Row("kill/test_failover.py", _CLUSTERS),
    Row("kill/test_fence.py", "every order of two owners", "not every_order"),
    Row("kill/test_forks.py", _ONE_PLAN, "not killed_anywhere and not many_processes"),
    Row("kill/test_gateway.py", _FOREIGN),
    Row("kill/test_growing.py", _ONE_PLAN),
    Row("kill/test_guards.py", _ONE_PLAN, "not killed_anywhere and not killed_again and not second_saga"),
    Row("kill/test_http.py", _ONE_PLAN),
    Row("kill/test_lists.py", _ONE_PLAN, "embedded"),
    Row("kill/test_matrix.py", _ONE_PLAN, "fails-keyed"),
    Row("kill/test_matrix_elsewhere.py", _CLUSTERS),
    Row("kill/test_outages.py", _ONE_PLAN, "comes_back"),
    Row("kill/test_sealed.py", _ONE_PLAN, "without_the_key"),
    Row("kill/test_session_forks.py", _ONE_PLAN, "not killed_anywhere or fails-bare and not its_agent"),
    Row("kill/test_sessions.py", _ONE_PLAN, "not killed_anywhere and not killed_again or kept-keyed or well-bare"),
    Row("kill/test_several_events.py", _ONE_PLAN, "embedded-false or catches"),
    Row("kill/test_told.py", _ONE_PLAN, "not begins_although or undo"),
    Row("kill/test_trials.py", _ONE_PLAN, "not only_the_first or probe"),
    Row("kill/test_verified.py", _SAMPLE, "seen or undo-True"),
    Row("kill/test_versions.py", "imports an older version beside this one"),
    Row("kill/test_workers.py", _ONE_PLAN, "not killed_anywhere or embedded"),
    Row("llm", "needs a model that is compiled first"),
    Row("mcp/test_calls.py", _FOREIGN, "not official_sdk"),
    Row("mcp/test_imports.py", _PROCESSES),
    Row("mcp/test_real_servers.py", _FOREIGN),
    Row("mcp/test_more_servers.py", _FOREIGN),
    Row("mcp/test_published_servers.py", _FOREIGN),
    Row("plan/test_checks.py", "the largest plans", "not largest"),
    Row("plan/test_loading.py", _PROCESSES, "not costs_no_memory or small or deep or large"),
    Row("planner/test_eval_parts.py", "starts a server for each world", "not parts-ticket"),
    Row("planner/test_evals.py", "runs the program of the evaluation", "not wire"),
    Row("planner/test_example.py", _EXAMPLE),
    Row(
        "planner/test_models.py",
        _SAMPLE,
        "openai:gpt-4o or not every_provider and not first_requests and not does_not_have",
    ),
    Row("planner/test_stuck_sagas.py", _SAMPLE),
    Row("policy/test_gate.py", _MODEL, "not against_a_model"),
    Row(
        "privacy/test_conformance.py",
        "every law of a store once more, sealed; what sealing changes has tests of its own",
    ),
    Row("promises/test_desk.py", "breaks a promise in a copy of the tree", "not witness"),
    Row("promises/test_promises.py", "breaks each promise in a copy of the tree", "fits or has_a_mutation"),
    Row("runtime/test_big_results.py", _SAMPLE),
    Row("runtime/test_crash_loops.py", _PROCESSES, "not probe_that_ends"),
    Row(
        "runtime/test_hot_path.py",
        "sagas of many thousand steps",
        "not whole_cost and not thousand and not glance and not spans",
    ),
    Row("runtime/test_growth.py", "sagas of hundreds and thousands of steps"),
    Row("runtime/test_resume_all.py", "hundreds of sagas", "not hundreds"),
    Row("sagas/test_differing.py", _PROCESSES, "not doctor_and_top"),
    Row("sagas/test_hanging.py", _PROCESSES),
    Row("server/console/test_accessibility.py", _BROWSER),
    Row("server/console/test_browser.py", _BROWSER),
    Row("server/console/test_inert.py", _BROWSER),
    Row("server/console/test_large.py", _BROWSER),
    Row("server/console/test_links_browser.py", _BROWSER),
    Row("server/console/test_phone.py", _BROWSER),
    Row("server/console/test_pictures.py", _BROWSER),
    Row("server/test_demo_page.py", _EXAMPLE),
    Row("server/test_keys.py", _SAMPLE, "not sealed"),
    Row("server/test_matrix.py", _SAMPLE, "not three_tenants or red"),
    Row("server/test_process.py", _PROCESSES, "before_it_answers"),
    Row("server/test_schemathesis.py", "thousands of random requests"),
    Row("server/test_server_kills.py", _PROCESSES),
    Row("server/test_turns.py", _SAMPLE, "not (members or values or almost or children or wrong or twice)"),
    Row("server/test_typescript.py", _FOREIGN),
    Row("server/test_webhook_example.py", _EXAMPLE),
    Row("sessions/test_session_lives.py", _SAMPLE, "rolls_back"),
    Row("sessions/test_session_scale.py", "sagas of many thousand calls"),
    Row("stores/test_cluster.py", _CLUSTERS),
    Row("stores/test_cluster_away.py", _CLUSTERS),
    Row("stores/test_guards.py", _MODEL, "not like_their_model"),
    Row("stores/test_mail.py", "every order of senders and readers"),
    Row("stores/test_replicated.py", _CLUSTERS),
    Row("stores/test_sentinel.py", _CLUSTERS),
    Row("telemetry/test_killed.py", _PROCESSES, "costs_no_saga"),
    Row("telemetry/test_prometheus.py", _FOREIGN),
    Row(
        "temporal",
        f"{_TEMPORAL}: the desk replays the recorded histories, and asks one workflow of each kind",
        "test_histories or test_queries or no_worker_began or continued_in_other or secret_is_in_no_history or only_marks"
        " or same_journal_as or takes_one_back or undo_of_several_calls or that_slept",
    ),
    Row("undo/test_undo_ahead.py", _SAMPLE, "not comparison_is_bounded or values"),
    Row("undo/test_verified_faces.py", _PROCESSES, "not command_line"),
    Row("waits/test_several_races.py", _SAMPLE, "catch"),
    Row("waits/test_subscription.py", _EXAMPLE),
    Row("waits/test_wait_races.py", _SAMPLE, "compete or races[1"),
)


def _within(place: str, name: str) -> bool:
    return name == place or name.startswith(f"{place}/")


@functools.cache
def _rows(name: str) -> list[Row]:
    return [row for row in ELSEWHERE if _within(row.place, name)]


@functools.cache
def _kept(keep: str) -> Expression:
    return Expression.compile(keep)


def imported(tier: str, name: str) -> bool:
    """Whether a tier has anything in a file (its name below ``tests``)."""
    if tier == "quick":
        return any(_within(place, name) for place in QUICK)
    if tier == "desk":
        return all(row.keep for row in _rows(name))
    return True


def at_desk(name: str, case: str, marks: Sequence[str]) -> bool:
    """Whether the desk runs a test: its file's name below ``tests``, the rest of its id, and its marks."""
    if "slow" in marks or (set(OF_THE_SYSTEM) & set(marks) and name not in SYSTEM_AT_DESK):
        return False
    words = f"{name}::{case}".lower()
    return all(row.keep and _kept(row.keep).evaluate(lambda word, **_: word.lower() in words) for row in _rows(name))


def begin(tier: str | None) -> None:
    """Before the tests are imported: which tier it is."""
    _FEWER[:] = [tier] if tier in ("desk", "quick") else []


def examples(count: int) -> int:
    """How many examples of a property are tried, of so many in CI."""
    return -(-count // _ONE_OF) if _FEWER else count


def fewer() -> bool:
    """Whether ``examples`` gives fewer: what shows only among many is not looked for then."""
    return bool(_FEWER)


def runs(tier: str, name: str, case: str, marks: Sequence[str]) -> bool:
    """Whether a tier runs a test."""
    if tier == "quick":
        return imported(tier, name) and at_desk(name, case, marks)
    here = at_desk(name, case, marks)
    return here if tier == "desk" else not here or PROPERTY in marks or SEEDS in marks


def rooms() -> list[str]:
    """The folders of tests."""
    return sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")})


def _cells(place: str) -> tuple[str, str]:
    """Whether the inner loop and the desk run a room."""
    quick = any(_within(place, each) or _within(each, place) for each in QUICK)
    rows = [row for row in ELSEWHERE if _within(place, row.place) and row.place != place]
    whole = next((row for row in ELSEWHERE if row.place == place), None)
    if whole is not None:
        return "", f"only `{whole.keep}`" if whole.keep else ""
    return ("some" if quick and place not in QUICK else "yes" if quick else ""), "most" if rows else "yes"


def page() -> str:
    """The table of where each suite runs."""
    lines = [
        "# Where each test runs",
        "",
        "Written by `python -m tests.tiers --write` from the table in [tiers.py](tiers.py), whose docstring says how a",
        "test is chosen. `make check` runs everything, the desk's tests first. `make test-long` adds every case that is",
        f"marked `slow`. Cases that are marked {' or '.join(f'`{mark}`' for mark in OF_THE_SYSTEM)} need a program of",
        f"the system and run in CI only, but for those of {', '.join(f'`{name}`' for name in SYSTEM_AT_DESK)}.",
        "A property of hypothesis is tried with a sixth of its examples at the desk, and what plays seeds with a",
        "sixth of them; what kills at each point of a run kills at some of them. In CI once more with all.",
        "",
        "| room | `make quick` | `make test` | `make check` |",
        "|---|---|---|---|",
    ]
    for room in rooms():
        quick, desk = _cells(room)
        lines.append(f"| {room} | {quick} | {desk} | yes |")
    lines += ["", "## Not at the desk", "", "| suite | what stays at the desk | why |", "|---|---|---|"]
    lines += [f"| `{row.place}` | {f'`{row.keep}`' if row.keep else 'nothing'} | {row.why} |" for row in ELSEWHERE]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(page())
