"""Questions for the tests of hooks."""

from __future__ import annotations

from typing import Any

from saga_engine.ports import Question

#: The base64 of 32 bytes.
SECRET = "whsec_c2FnYS1lbmdpbmUtdGVzdC1zZWNyZXQtMzItYnl0ZXM="
OTHER_SECRET = "whsec_YW5vdGhlci1zZWNyZXQtb2YtMzItYnl0ZXMtaGVyZSE="


def a_question(**changes: Any) -> Question:
    """A call in doubt, or what is made of it."""
    fields: dict[str, Any] = {
        "saga_id": "trip-42",
        "question_id": "hotel:f:1",
        "step_id": "hotel",
        "step_name": "book the hotel",
        "tool": "book_hotel",
        "direction": "forward",
        "kind": "in-doubt",
        "options": ("happened", "not-happened", "retry", "accept"),
        "error": {"error_code": "read_timeout", "message": "no answer"},
        "goal": "two nights in Graz",
        "asked_ms": 1_800_000_000_000,
    }
    return Question(**fields | changes)
