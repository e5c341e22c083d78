"""Mutations are found by their text, wherever it stands."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from saga_engine.core import settling
from saga_engine.core.keys import idempotency_key
from saga_engine.core.state import State
from tests.core.hunts import HUNTS
from tests.kill import builtin_mutants, fork_child, growing_mutants, late_child, mutants, session_mutants, several_child
from tests.support.mutating import Misfit, broken, install, place, rewrite

KILLED = [builtin_mutants, fork_child, growing_mutants, late_child, mutants, session_mutants, several_child]


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A package of two modules."""
    package = tmp_path / "saga_engine"
    package.mkdir()
    (package / "one.py").write_text("def f() -> int:\n    return 1\n")
    (package / "two.lua").write_text("return 1 -- like f\n")
    return tmp_path


def test_a_text_is_found_wherever_it_stands(moved: Path) -> None:
    """No module is named: the same change fits after the function has moved."""
    change = ("    return 1\n", "    return 2\n")
    assert broken([change], moved) == {Path("saga_engine/one.py"): "def f() -> int:\n    return 2\n"}
    (moved / "saga_engine/one.py").rename(moved / "saga_engine/three.py")
    assert broken([change], moved) == {Path("saga_engine/three.py"): "def f() -> int:\n    return 2\n"}


@pytest.mark.parametrize(("text", "where"), [("return 1", "2 times"), ("return 3", "0 times (nowhere)")])
def test_a_text_that_is_not_unique_is_refused(text: str, where: str, moved: Path) -> None:
    """Else it would break another place than the one that is meant, or none."""
    with pytest.raises(Misfit, match="must stand once") as refused:
        place(text, moved)
    assert where in str(refused.value)


def test_a_change_that_an_earlier_one_took_away_is_refused(moved: Path) -> None:
    """A mutation whose second half does nothing is half a mutation."""
    with pytest.raises(Misfit, match="took this text away"):
        broken([("return 1\n", "pass\n"), ("    return 1\n", "    pass\n")], moved)


def test_a_function_is_changed_for_whoever_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other modules imported it by its name: it keeps its identity and gets other code, and its own again."""
    held, genuine = idempotency_key, idempotency_key("s", "1", "forward", "seed")
    with monkeypatch.context() as patch:
        rewrite(("'c'}:{seed}", "'c'}:another"))(patch)
        assert held("s", "1", "forward", "seed") == "s:1:f:another"
    assert held("s", "1", "forward", "seed") == genuine


def test_a_method_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a method, of a property or of a function inside another one belongs to what is called."""
    before = State.calls_forward.__code__
    rewrite(("if self.pending and any(each.holds_turn for each in self.pending.values()):", "if False:"))(monkeypatch)
    assert State.calls_forward.__code__ is not before


def test_what_is_no_function_cannot_be_changed_in_a_process() -> None:
    """A constant was read when its module was imported: to change the text now would change nothing."""
    with pytest.raises(Misfit, match="only what a function does"):
        install(("_NOT_KNOWN = 1 << 62", "_NOT_KNOWN = 1 << 61"))
    assert settling.begin is not None


@pytest.mark.parametrize("kind", HUNTS, ids=lambda kind: kind.__name__)
def test_every_mutant_of_the_engine_fits_the_code(kind: type) -> None:
    """Each text stands once in the package. Whoever changes it, or writes it a second time, hears of it at once."""
    for name, mutant in HUNTS[kind].items():
        assert broken(mutant.changes), name


@pytest.mark.parametrize("child", KILLED, ids=lambda child: child.__name__.rpartition(".")[2])
def test_every_mutant_of_the_kill_tests_fits_the_code(child: ModuleType) -> None:
    """The same for the engines that are broken in processes which are killed."""
    for name, mutant in child.MUTANTS.items():
        assert broken(mutant.changes), name
