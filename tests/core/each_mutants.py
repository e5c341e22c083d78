"""Engines that are broken on purpose where steps have lists."""

from __future__ import annotations

import pytest

from saga_engine.core.evolve import amendments, calls
from saga_engine.core.evolve import each as expanding
from saga_engine.core.steps import each
from saga_engine.plan import each as lists
from tests.core.engine_mutants import Patch, rewrite


def _items(*changes: tuple[str, str]) -> Patch:
    """In the steps of the items, wherever they are added."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        rewrite(lists, "add_items", *changes)(monkeypatch)
        monkeypatch.setattr(expanding, "add_items", lists.add_items)

    return apply


def _begin(*changes: tuple[str, str]) -> Patch:
    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        rewrite(each, "begin", *changes)(monkeypatch)
        monkeypatch.setitem(__import__("saga_engine.core.steps", fromlist=["_BEGIN"])._BEGIN, each.KIND, each.begin)

    return apply


def forgotten_at_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(amendments, "_grow", ("if state.lists:", "if False:"))(monkeypatch)


EACH_MUTANTS: dict[str, Patch] = {
    "start all items at once": _items(("if number < lanes else (first + number - lanes,)", "")),
    "let what depends on a list start with its first item": _items(
        ("replace(of, deps=(*of.deps, *tails)", "replace(of, deps=(*of.deps, *tails[:0])")
    ),
    "undo what a list depends on before its items": _items(
        ("dependents=(*steps[before].dependents, *heads)", "dependents=steps[before].dependents")
    ),
    "give all items one key": rewrite(lists, "item_key", ('f"{parent}[{number}]"', 'f"{parent}[0]"')),
    "call the items that the list leaves out": _begin(("if truth:", "if True:")),
    "complete without the items": rewrite(expanding, "expanded", ("state.remaining += len(made)", "pass")),
    "lose the items when steps are added": forgotten_at_growth,
    "stop at an item whose failure is collected": rewrite(
        calls, "not_done", ("state.plan.steps[index].goes_on(", "False and state.plan.steps[index].goes_on(")
    ),
}
