"""Engines that are broken on purpose where a completed saga is undone."""

from __future__ import annotations

import pytest

from saga_engine.analysis import undo
from saga_engine.core.evolve import compensation
from tests.core.engine_mutants import Patch, rewrite

_STANDS = (
    "old.steps[compiled.index].status == t.SUCCEEDED\n        and old.steps[compiled.index].effect is not None",
    "True",
)


def own_what_is_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "_owner", lambda *_args: "")


def run_finally_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "first_record", lambda started: started)


UNDO_MUTANTS: dict[str, Patch] = {
    "undo what was skipped": rewrite(undo, "_as_happened", _STANDS),
    "undo what is another saga's": own_what_is_anothers,
    "run finally again": run_finally_again,
    "undo out of order around a skipped step": rewrite(
        compensation, "compensation_started", (" or (pending and state.undo_of)", "")
    ),
    "forget a step that has no undo": rewrite(
        undo,
        "choose_undo",
        (
            "for compiled in _as_happened(old):",
            "for compiled in [x for x in _as_happened(old) if old.acting(x.index).rollback]:",
        ),
    ),
}
