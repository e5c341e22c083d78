"""Errors that an endpoint reports as ordinary results: ``failed`` of an ``[http.NAME]`` table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saga_engine.plan.jsonpath import Mismatch, Tail, TailFault, find, parse
from saga_engine.plan.values import printable
from saga_engine.sources.http.answers import MAX_MESSAGE_CHARS

if TYPE_CHECKING:
    from saga_engine.sources.tables import Fields

_FIELDS = ("path", "is", "code", "message", "retryable")
_HINT = 'failed = { path = "$.status", is = ["error"], message = "$.reason" }'


@dataclass(frozen=True, slots=True)
class Failure:
    """The field by which an answer reports an error. ``values``: the values that do; None: all that are not empty."""

    path: Tail
    values: tuple[Any, ...] | None = None
    code: Tail | None = None
    message: Tail | None = None
    retryable: bool | None = None

    def of(self, answer: Any) -> dict[str, Any] | None:
        """The answer as a structured error; None if it reports none."""
        said = _found(answer, self.path)
        if said in (None, False, "", [], {}) if self.values is None else said not in self.values:
            return None
        told = _found(answer, self.message) if self.message else said
        code = _found(answer, self.code) if self.code else None
        return {
            "success": False,
            "error_code": code if isinstance(code, str | int) and not isinstance(code, bool) else "answer_failed",
            "message": printable(told if isinstance(told, str) else f"the answer says {told!r}", MAX_MESSAGE_CHARS),
            "retryable": self.retryable,
        }


def failure_of(it: Fields) -> Failure | None:
    """The declaration of errors in answers."""
    table = it.table("failed")
    if table is None:
        return None
    for name in table:
        if name not in _FIELDS:
            it.refuse("failed", f"has {name!r}, which means nothing", f"fields: {', '.join(_FIELDS)}")
    path = _path(it, table, "path")
    if path is None:
        it.refuse("failed", "has no path", _HINT)
    values = table.get("is")
    if values is not None and (not isinstance(values, list) or not values):
        it.refuse("failed", f"has is = {values!r}, which is no list of values", _HINT)
    retryable = table.get("retryable")
    if not isinstance(retryable, bool | None):
        it.refuse("failed", f"has retryable = {retryable!r}", "true or false")
    return Failure(
        path,
        None if values is None else tuple(values),
        _path(it, table, "code"),
        _path(it, table, "message"),
        retryable,
    )


def _path(it: Fields, table: dict[str, Any], name: str) -> Tail | None:
    text = table.get(name)
    if text is None:
        return None
    if not isinstance(text, str) or not text.startswith("$"):
        it.refuse("failed", f"has {name} = {text!r}, which is no path", _HINT)
    found = parse(text[1:])
    if isinstance(found, TailFault):
        it.refuse("failed", f"has a {name} that is no path: {found.message}", found.hint)
    return found


def _found(answer: Any, tail: Tail) -> Any:
    try:
        return find(answer, tail)
    except Mismatch:
        return None
