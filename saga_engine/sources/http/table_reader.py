"""Reads one ``[http.NAME]`` table, field by field; an unread field is a typing error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any, NoReturn

from saga_engine.errors import SettingInvalid


class Fields:
    """The fields of one table. Every method removes a field, and raises ``SettingInvalid`` for a wrong one."""

    def __init__(self, name: str, table: Any, source: str) -> None:
        self.name = name
        self._source = source
        if not isinstance(table, Mapping):
            raise SettingInvalid(f"[http.{name}] in {source} must be a table", tool=name)
        self._left: dict[str, Any] = dict(table)
        self._known: list[str] = []

    def refuse(self, field: str, problem: str, hint: str | None = None) -> NoReturn:
        """Raise the error about a field."""
        message = f"{field} of [http.{self.name}] in {self._source} {problem}"
        raise SettingInvalid(message, hint=hint, tool=self.name, field=field)

    def any(self, field: str, default: Any = None) -> Any:
        """The value unchanged."""
        self._known.append(field)
        return self._left.pop(field, default)

    def text(self, field: str, default: str = "") -> str:
        """A text; the default if it is not given."""
        value = self.any(field, default)
        if not isinstance(value, str):
            self.refuse(field, f"must be a text, not {value!r}")
        return value

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

    def end(self) -> None:
        """Refuse the remaining fields."""
        for field in self._left:
            near = get_close_matches(field, self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"fields: {', '.join(sorted(self._known))}"
            self.refuse(field, "means nothing", hint)
