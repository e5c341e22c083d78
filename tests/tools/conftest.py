"""What all tests of tools share."""

from __future__ import annotations

import pytest

from saga_engine.tools import invoke


@pytest.fixture(autouse=True)
def _no_thread_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of these tests make their calls under one key: a thread that one leaves at work must not hold up the next."""
    monkeypatch.setattr(invoke, "_LEFT", {})
