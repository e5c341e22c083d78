"""Errors that an endpoint reports as ordinary results: ``failed`` of an ``[http.NAME]`` table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan.jsonpath import Mismatch, Tail, TailFault, find, parse
from saga_engine.plan.values import printable
from saga_engine.sources.http.answers import MAX_MESSAGE_CHARS

if TYPE_CHECKING:
    from saga_engine.sources.tables import Fields

_FIELDS = ("path", "is", "is_not", "unless", "code", "message", "retryable")
_EMPTY: tuple[Any, ...] = (None, False, "", [], {})
_HINT = 'failed = { path = "$.status", is = ["error"], message = "$.reason" }'


@dataclass(frozen=True, slots=True)
class Failure:
    """The field by which an answer reports an error. ``values``: the values that do; None: all that are not empty.

    ``fine``: the values that do not; every other one does. ``unless``: a place that is not empty where it is none.
    """

    path: Tail
    values: tuple[Any, ...] | None = None
    fine: tuple[Any, ...] | None = None
    unless: Tail | None = None
    code: Tail | None = None
    message: Tail | None = None
    retryable: bool | None = None

    def _reports(self, said: Any) -> bool:
        if self.values is not None:
            return said in self.values
        return said is not None and said not in self.fine if self.fine is not None else said not in _EMPTY

    def of(self, answer: Any) -> dict[str, Any] | None:
        """The answer as a structured error; None if it reports none."""
        said = _found(answer, self.path)
        if not self._reports(said) or (self.unless and _found(answer, self.unless) not in _EMPTY):
            return None
        told = _found(answer, self.message) if self.message else said
        code = _found(answer, self.code) if self.code else None
        return {
            "success": False,
            "error_code": code if isinstance(code, str | int) and not isinstance(code, bool) else "answer_failed",
            "message": printable(told if isinstance(told, str) else f"the answer says {told!r}", MAX_MESSAGE_CHARS),
            "retryable": self.retryable,
        }


#: No answer reports an error.
NEVER: Final = Failure(Tail(""), values=())


def failure_of(it: Fields) -> Failure | None:
    """The declaration of errors in answers; ``failed = false`` is one that finds none."""
    table = it.any("failed")
    if table is None:
        return None
    if table is False:
        return NEVER
    if not isinstance(table, dict):
        it.refuse("failed", "must be a table, or false", _HINT)
    for name in table:
        if name not in _FIELDS:
            it.refuse("failed", f"has {name!r}, which means nothing", f"fields: {', '.join(_FIELDS)}")
    path = _path(it, table, "path")
    if path is None:
        it.refuse("failed", "has no path", _HINT)
    values, fine = _values(it, table, "is"), _values(it, table, "is_not")
    if values is not None and fine is not None:
        it.refuse("failed", "has both is and is_not", _HINT)
    retryable = table.get("retryable")
    if not isinstance(retryable, bool | None):
        it.refuse("failed", f"has retryable = {retryable!r}", "true or false")
    return Failure(
        path,
        values,
        fine,
        _path(it, table, "unless"),
        _path(it, table, "code"),
        _path(it, table, "message"),
        retryable,
    )


def _values(it: Fields, table: dict[str, Any], name: str) -> tuple[Any, ...] | None:
    values = table.get(name)
    if values is not None and (not isinstance(values, list) or not values):
        it.refuse("failed", f"has {name} = {values!r}, which is no list of values", _HINT)
    return None if values is None else tuple(values)


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
