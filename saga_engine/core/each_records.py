"""The record of a step with ``each``: its list is known."""

from __future__ import annotations

from typing import Any

from saga_engine.core.record_base import Record, ValueRef


class EachExpanded(Record, frozen=True, tag=True):
    """The list of a step with ``each``: a step for each of the ``items`` is added, ``STEP[0]`` for the first."""

    step: str
    items: list[Any] = []
    refs: dict[str, ValueRef] = {}
