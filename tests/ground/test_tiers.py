"""Where a test runs: the table of ``tiers.py`` chooses it, and nothing is lost."""

from __future__ import annotations

import pytest

from tests import tiers
from tests.promises.breaking import GUARANTEES, named_tests
from tests.promises.desk import desk

#: What the promises about other servers, clusters, Temporal, wheels and whole chaos runs need, and a desk may lack.
MORE = (
    "ground/test_wheel.py",
    "stores/test_cluster_away.py",
    "stores/test_durability.py",
    "stores/test_lost_replies.py",
    "temporal/",
    "chaos/test_chaos.py",
)


@pytest.mark.parametrize("row", tiers.ELSEWHERE, ids=lambda row: row.place)
def test_a_row_names_what_is_there_and_why(row: tiers.Row) -> None:
    """A file that was renamed would be at the desk again, and nobody would know why it is slow."""
    assert (tiers.TESTS / row.place).exists()
    assert row.why


def test_what_is_quick_is_there() -> None:
    """And the desk runs it, too: the inner loop is a part of it."""
    assert [name for name in tiers.QUICK if not (tiers.TESTS / name).exists()] == []
    assert [name for name in tiers.QUICK if name.endswith(".py") and not tiers.imported("desk", name)] == []


@pytest.mark.parametrize(
    ("name", "case", "marks", "there"),
    [
        ("plan/test_checks.py", "test_x", (), True),
        ("plan/test_checks.py", "test_x", ("slow",), False),
        ("guards/test_locks.py", "test_x[debian]", ("debian_redis",), False),
        ("temporal/test_sagas.py", "test_x", (), False),
        ("temporal/test_histories.py", "test_x", (), True),
        ("agents/test_agents.py", "test_x", (), False),
    ],
)
def test_a_test_runs_at_the_desk_or_in_the_rest(name: str, case: str, marks: tuple[str, ...], there: bool) -> None:
    """In exactly one of the two, so that ``make check`` runs each once; but for properties, with fewer examples at the desk."""
    assert tiers.runs("desk", name, case, marks) is there
    assert tiers.runs("rest", name, case, marks) is not there
    assert tiers.runs("rest", name, case, (*marks, tiers.PROPERTY))


@pytest.mark.parametrize(("tier", "tried"), [("desk", 2), ("quick", 2), ("rest", 10), (None, 10)])
def test_the_desk_tries_fewer_examples(tier: str | None, tried: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixth, rounded up; all in CI, and where a test is run by itself."""
    monkeypatch.setattr(tiers, "_FEWER", [])
    tiers.begin(tier)
    assert tiers.examples(10) == tried


def test_a_file_of_which_nothing_runs_is_not_imported() -> None:
    """Neither at the desk, where it has no case, nor in the inner loop."""
    assert not tiers.imported("desk", "agents/test_agents.py")
    assert tiers.imported("rest", "agents/test_agents.py")
    assert not tiers.imported("quick", "gateway/test_gateway.py")
    assert tiers.imported("quick", "plan/test_checks.py")


def test_the_page_is_that_of_the_table() -> None:
    """``python -m tests.tiers --write`` writes it."""
    assert tiers.PAGE.read_text(encoding="utf-8") == tiers.page()


@pytest.mark.timeout(600)
def test_each_guarantee_has_its_short_form_at_the_desk() -> None:
    """Of the tests that are named for a promise at least one runs there; so does one of each room."""
    nodes = desk(("--tier", "desk"))
    there = {node.partition("[")[0].rpartition("::")[2] for node in nodes}
    rows = [line for line in _guarantees() if not any(name.rpartition("::")[2] in there for name in line)]
    assert [line for line in rows if not all(name.removeprefix("tests/").startswith(MORE) for name in line)] == []
    seen = {node.split("/")[1] for node in nodes}
    assert [room for room in tiers.rooms() if room not in seen and room not in tiers.WITHOUT] == []


def _guarantees() -> list[list[str]]:
    known = set(named_tests())
    lines = [line for line in GUARANTEES.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    named = [[name for name in known if f"`{name}`" in line] for line in lines]
    return [names for names in named if names]
