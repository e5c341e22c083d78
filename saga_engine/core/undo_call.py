"""The calls of an undo of several calls, as records and states name them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from saga_engine.core.effects import ErrorInfo, Unkeyed
from saga_engine.plan.undo_calls import UndoPlace


class UndoCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """Call ``number`` (from 0) of an undo of ``of`` calls; ``entry`` and ``item`` say where it is written."""

    number: int
    of: int
    entry: int = 0
    item: int = -1

    @property
    def place(self) -> UndoPlace:
        """Where it is written."""
        return UndoPlace(self.entry, self.item)


class UndoneCall(NamedTuple):
    """A call of an undo of several calls that happened: its tool, its params and output, and how that is known.

    ``unkeyed``: as in ``StepIntended``.
    """

    tool: str
    params: Any
    output: Any
    attempts: int
    ended_at: int
    via: str
    error: ErrorInfo | None
    unkeyed: Unkeyed = ""
