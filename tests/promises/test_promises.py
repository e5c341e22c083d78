"""Each promise of docs/guarantees.md, broken: the test that is named for it fails.

A test that stays green when its promise is broken proves nothing. So each named test has at least one mutation: a text
of the engine that is replaced in a copy of the tree, in which that one test is then run.
"""

from __future__ import annotations

import pytest

from tests.promises.breaking import Copy, Mutation, named_tests
from tests.promises.mutations import MUTATIONS


def _marks(row: Mutation) -> list[pytest.MarkDecorator]:
    marks = [] if row.quick else [pytest.mark.slow]
    return [*marks, pytest.mark.xfail(strict=True, reason=row.unnoticed)] if row.unnoticed else marks


ROWS = [pytest.param(row, id=row.id, marks=_marks(row)) for row in MUTATIONS]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("tree"))


def test_every_named_test_has_a_mutation() -> None:
    """Whoever adds a promise, or another test for one, says how it could be broken; none is kept for a test that is gone."""
    assert {row.test for row in MUTATIONS} == set(named_tests())


def test_every_mutation_fits_the_code() -> None:
    """Whoever changes the code that a mutation replaces hears of it at once, and not from the long form."""
    assert [row.id for row in MUTATIONS if not row.fits()] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", ROWS)
def test_the_named_test_notices(tree: Copy, row: Mutation) -> None:
    """With the promise broken, the test that is named for it fails (and is not merely unable to run)."""
    code, said = tree.play(row)
    assert code == 1, f"'{row.breaks}' was not noticed by {row.test} (exit code {code}):\n{said}"
    assert "FAILED" in said, f"{row.test} could not run:\n{said}"
    assert row.hangs == ("Timeout (>" in said), f"{row.test} ended only because its time was up:\n{said}"
