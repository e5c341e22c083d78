"""What the desk sees is measured: which tests run there, which are asked first, and that a witness is one that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.promises import desk
from tests.promises.breaking import Copy, Mutation
from tests.promises.desk import Sight, at_desk, near, page

NODES = [
    "tests/core/test_codec.py::test_golden_bytes[one]",
    "tests/kill/test_matrix.py::test_killed_anywhere_and_resumed[embedded-fails-bare]",
    "tests/scenarios/test_scenarios.py::test_a_scenario[x]",
    "tests/stores/test_conformance.py::TestEmbedded::test_a_smaller_epoch_is_fenced[embedded]",
]


@pytest.mark.parametrize(
    ("test", "only", "there"),
    [
        ("tests/core/test_codec.py::test_golden_bytes", "", True),
        ("tests/core/test_codec.py::test_golden", "", False),
        ("tests/kill/test_matrix.py::test_killed_anywhere_and_resumed", "embedded and fails and bare", True),
        ("tests/kill/test_matrix.py::test_killed_anywhere_and_resumed", "embedded and not bare", False),
        ("saga_engine/testing/conformance.py::test_a_smaller_epoch_is_fenced", "", True),
        ("saga_engine/testing/queue_conformance.py::test_a_smaller", "", False),
    ],
)
def test_a_named_test_is_at_the_desk_with_the_cases_that_are_meant(test: str, only: str, there: bool) -> None:
    """A long form alone does not count, and neither does another case of the same test."""
    assert at_desk(Mutation(test, "x", (), only=only), NODES) is there


def test_the_nearest_tests_are_asked_first() -> None:
    """Those of the room that is changed, then what sees much, then the file of the named test; each once."""
    found = near([Path("saga_engine/core/codec.py")], "tests/kill/test_matrix.py::test_x", NODES)
    assert found == ["tests/core/test_codec.py", "tests/scenarios/test_scenarios.py", "tests/kill/test_matrix.py"]


@pytest.mark.timeout(300)
def test_a_witness_is_a_test_that_failed(tmp_path: Path) -> None:
    """The first test that fails under the mutation is named; if none does, nothing is."""
    tree = Copy(tmp_path / "tree")
    row = Mutation(
        "tests/core/test_codec.py::test_what_cannot_be_understood_is_refused",
        "the version of a record is not looked at",
        (("if record.v > VERSION:\n            raise msgspec", "if False:\n            raise msgspec"),),
    )
    assert desk._falls(tree, row, ["tests/core/test_codec.py"], 200).startswith("tests/core/test_codec.py::test_")
    assert desk._falls(tree, row, ["tests/core/test_transitions.py"], 200) == ""


def test_what_is_not_seen_is_listed_by_name() -> None:
    """With the test that sees it elsewhere, and the share of all."""
    sight = Sight(named=["a", "b"], near=[("c", "tests/x.py::y")], unseen=[("d", "tests/kill/z.py::w")])
    said = page(sight)
    assert "sees 3 of 4 mutations, 75.0%" in said
    assert "| c | `tests/x.py::y` |" in said
    assert "| d | `tests/kill/z.py::w` |" in said


def test_the_page_is_of_this_command() -> None:
    """The page that is kept says what the desk did not see when somebody last looked, and at least 95 % were seen."""
    text = desk.PAGE.read_text(encoding="utf-8")
    assert text.startswith(page(Sight(named=["x"])).partition("\n\n`make test`")[0])
    assert float(text.partition("mutations, ")[2].partition("%")[0]) >= 95
