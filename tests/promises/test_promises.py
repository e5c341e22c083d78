"""Each promise of docs/guarantees.md, broken: the test that is named for it fails.

A test that stays green when its promise is broken proves nothing. So each named test has at least one mutation: a text
of the engine that is replaced in a copy of the tree, in which that one test is then run.
"""

from __future__ import annotations

import ast
from pathlib import Path

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
    """Each text stands once in the package. Whoever changes it, or writes it a second time, hears of it at once."""
    assert [why for row in MUTATIONS if (why := row.misfit())] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", ROWS)
def test_the_named_test_notices(tree: Copy, row: Mutation) -> None:
    """With the promise broken, the test that is named for it fails (and is not merely unable to run)."""
    code, said = tree.play(row)
    assert code == 1, f"'{row.breaks}' was not noticed by {row.test} (exit code {code}):\n{said}"
    assert "FAILED" in said, f"{row.test} could not run:\n{said}"
    assert row.hangs == ("Timeout (>" in said), f"{row.test} ended only because its time was up:\n{said}"


def _move(tree: Copy, name: str, old: str, new: str) -> None:
    """Move a function of the copy to a module of its own, which the old one imports it from."""
    home = tree.folder / old
    source = home.read_text(encoding="utf-8")
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    lines = source.splitlines(keepends=True)
    code = "".join(lines[function.lineno - 1 : function.end_lineno])
    imports = "".join(
        ast.unparse(node) + "\n" for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)
    )
    (tree.folder / new).write_text(f"{imports}\n\n{code}", encoding="utf-8")
    module = new.removesuffix(".py").replace("/", ".")
    home.write_text(source.replace(code, f"from {module} import {name}\n"), encoding="utf-8")


@pytest.mark.timeout(600)
def test_a_function_that_moves_takes_its_mutation_along(tmp_path: Path) -> None:
    """No mutation names a module: after a function has moved, its mutation breaks it there, and the test notices."""
    row = next(row for row in MUTATIONS if row.breaks == "a write without a key is repeated" and not row.only)
    tree = Copy(tmp_path)
    _move(tree, "_repeatable", "saga_engine/core/settling.py", "saga_engine/core/moved.py")
    code, said = tree.run(row)
    assert code == 0, f"the move itself breaks something:\n{said}"
    assert list(row.broken(tree.folder)) == [Path("saga_engine/core/moved.py")]
    code, said = tree.play(row)
    assert code == 1, said
    assert "FAILED" in said
