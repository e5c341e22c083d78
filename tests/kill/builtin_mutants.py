"""Engines that are broken on purpose, to show that the kill matrix of built-in steps can fail. Applied after the fork."""

from __future__ import annotations

from collections.abc import Callable

MUTANTS: dict[str, Callable[[], None]] = {}
