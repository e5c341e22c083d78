"""The kinds of fields of an ``[http.NAME]`` table."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from saga_engine.settings import TableReader


class Fields(TableReader):
    """The fields of one ``[http.NAME]`` table."""

    def __init__(self, name: str, table: Any, source: str) -> None:
        super().__init__(f"[http.{name}] in {source}", table, tool=name)
        self.name = name

    def flag(self, field: str, *, default: bool = False) -> bool:
        """A boolean."""
        value = self.any(field, default)
        if not isinstance(value, bool):
            self.refuse(field, f"must be true or false, not {value!r}")
        return value

    def number(self, field: str, default: float, *, at_most: float) -> float:
        """A positive number."""
        value = self.any(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
            self.refuse(field, f"must be a positive number, not {value!r}")
        if value > at_most:
            self.refuse(field, f"must be at most {at_most:g}, not {value!r}")
        return value

    def one_of(self, field: str, choices: Sequence[str], default: str) -> str:
        """One of a few words."""
        value = self.text(field, default)
        if value not in choices:
            self.refuse(field, f"cannot be {value!r}", f"one of: {', '.join(choices)}")
        return value

    def table(self, field: str) -> dict[str, Any] | None:
        """A table; ``None`` if it is not given."""
        value = self.any(field)
        if value is not None and not isinstance(value, dict):
            self.refuse(field, 'must be a table, such as { name = "value" }')
        return value

    def statuses(self, field: str) -> frozenset[int] | None:
        """A list of HTTP statuses; ``None`` if it is not given."""
        value = self.any(field)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(code) is int and 200 <= code <= 599 for code in value):
            self.refuse(field, f"must be a list of HTTP statuses from 200 to 599, not {value!r}")
        return frozenset(value)
