"""Sagas with large values, and how a store keeps them."""

from __future__ import annotations

from typing import Any

from saga_engine.core import codec
from saga_engine.core import records as r
from tests.core.recording import Recording
from tests.core.stories import SPECS


def big(output: Any) -> Recording:
    steps = [
        {"step_id": 1, "tool": "book", "params": {}},
        {"step_id": 2, "tool": "book", "params": {"all": "$output.step_1"}},
    ]
    return Recording({"steps": steps}, SPECS, output=lambda step: output if step == "1" else {"ref": "x"}).run()


def stored(saga: Recording) -> tuple[list[r.AnyRecord], dict[str, bytes]]:
    """The records as they lie in a store, with large values beside them."""
    values: dict[str, bytes] = {}
    return [codec.decode(codec.encode(record, values)) for record in saga.records], values
