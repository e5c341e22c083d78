"""What the adapters' tests book, and in what order."""

from __future__ import annotations

LOG: list[str] = []
FULL: set[str] = set()


def reset() -> None:
    LOG.clear()
    FULL.clear()
