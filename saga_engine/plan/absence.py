"""Which answer of a read means that there was nothing: the declaration of ``absent``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from saga_engine.plan.values import canonical

#: The parts of a declaration of ``absent``.
PARTS: Final = ("error_code", "null", "fields")
_HINT: Final = 'write absent={"error_code": "not_found"}, {"null": True} or {"fields": {"exists": False}}'


class Absence(NamedTuple):
    """Which answers of a read mean that there was nothing: any of these.

    ``error_codes``: the read fails with one of them. ``null``: it answers null. ``fields``: its answer is an object
    with all of these values.
    """

    error_codes: tuple[str, ...] = ()
    null: bool = False
    fields: tuple[tuple[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The declaration as JSON."""
        parts = {"error_code": list(self.error_codes), "null": self.null, "fields": dict(self.fields)}
        return {name: value for name, value in parts.items() if value}

    def is_error(self, code: str) -> bool:
        """Whether a read that fails with this code found nothing."""
        return code in self.error_codes

    def is_answer(self, value: Any) -> bool:
        """Whether a read with this answer found nothing."""
        if value is None:
            return self.null
        if not self.fields or not isinstance(value, Mapping):
            return False
        return all(name in value and canonical(value[name]) == canonical(wanted) for name, wanted in self.fields)


def read_absence(given: Any) -> Absence:
    """The declaration of ``absent`` from its JSON form. Raises ``ValueError`` with the problem and a hint."""
    if not isinstance(given, Mapping) or not given or not set(given) <= set(PARTS):
        raise ValueError(f"absent={given!r} has no meaning", _HINT)
    codes = given.get("error_code", ())
    codes = (codes,) if isinstance(codes, str) else codes
    if not isinstance(codes, list | tuple) or not all(isinstance(code, str) and code for code in codes):
        raise ValueError("absent.error_code must be an error code, or a list of these", _HINT)
    null = given.get("null", False)
    if null not in (True, False):
        raise ValueError("absent.null must be True or False", _HINT)
    fields = given.get("fields", {})
    if not isinstance(fields, Mapping) or not all(isinstance(name, str) for name in fields):
        raise ValueError("absent.fields must be the values of some fields", _HINT)
    if not (codes or null or fields):
        raise ValueError("absent names no answer", _HINT)
    return Absence(tuple(codes), bool(null), tuple(fields.items()))
