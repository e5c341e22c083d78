"""What the engine says of a saga after the run, which the laws compare with the external system's ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Told(NamedTuple):
    """What ``show``, ``history`` and ``trace`` say of a saga."""

    body: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    trace: Sequence[bytes]

    def kinds(self) -> Counter[str]:
        """How many records of each kind its journal has."""
        return Counter(record["k"] for record in self.history)

    def decided(self, decision: str) -> bool:
        """Whether an operator gave this answer to any question."""
        return any(record["k"] == "QuestionResolved" and record["decision"] == decision for record in self.history)
