"""JSON from the network. Whatever is in it, decoding it keeps the event loop from nothing for long.

A decoder in C lets no other thread run before it has ended. So a text with many values is decoded value by value, in a
thread; one with more values than any plan may have is refused.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

import msgspec

from saga_engine.errors import RequestInvalid, ValueNotJson
from saga_engine.execution.aside import aside
from saga_engine.execution.plan_cache import no_collection
from saga_engine.plan.effort import spend
from saga_engine.plan.limits import MAX_PLAN_NODES
from saga_engine.plan.strict_json import require_unique

#: The values of one request, at any depth.
MAX_VALUES: Final = MAX_PLAN_NODES + 50_000
#: A text with more values, or one that is longer, is decoded value by value beside the loop.
_MANY: Final = 20_000
_LONG: Final = 2**20
#: The members of a longer one are compared beside the loop.
_SHORT: Final = 64 * 1024
_DEPTH: Final = 500
#: So many tokens are read between two rounds.
_ROUND: Final = 500

_TOKEN: Final = re.compile(rb'[ \t\n\r]*(?:([\[\]{},:])|("[^"\\]{0,4096}")|(")|([^\[\]{},:" \t\n\r]++))')
#: A piece of a text, up to its end or so long that another round begins. It never looks back.
_PIECE: Final = re.compile(rb'(?:[^"\\]{1,4096}+|\\.){0,500}+', re.DOTALL)
_SPACE: Final = re.compile(rb"[ \t\n\r]*")


async def decoded(data: bytes) -> Any:
    """The value of a JSON text.

    Raises ``ValueNotJson`` (a member twice), ``RecursionError``, ``msgspec.MsgspecError`` and ``UnicodeDecodeError`` as
    their decoders do, and ``RequestInvalid`` if there are too many values.
    """
    if len(data) > _LONG or seems_many(data, _MANY):
        return await aside(partial(_sliced, data))
    with no_collection():
        found = msgspec.json.decode(data)
        if len(data) <= _SHORT:
            require_unique(data)
            return found
    await aside(partial(require_unique, data))
    return found


async def require_few_values(data: bytes, most: int) -> None:
    """For a text that somebody else decodes, on the loop. Raises ``RequestInvalid``; what is no JSON is his to refuse.

    It is never decoded whole.
    """
    if not seems_many(data, most):
        return
    try:
        await aside(partial(_sliced, data, most))
    except (ValueNotJson, RecursionError, msgspec.MsgspecError, UnicodeDecodeError):
        raise RequestInvalid(
            f"the request is no JSON, or has more than {most:,} values", status=413, where="body"
        ) from None


def seems_many(data: bytes, most: int) -> bool:
    """Whether there can be more than so many values in a JSON text."""
    return data.count(b",") + data.count(b":") >= most


def _sliced(data: bytes, most: int = MAX_VALUES) -> Any:
    with no_collection():
        return _Slices(data, most).value()


class _Slices:
    """Reads a text token by token; each scalar is what ``msgspec`` makes of it."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data = data
        self._at = 0
        self._most = most
        self._values = 0
        self._open: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str] = []

    def value(self) -> Any:
        """The whole."""
        tokens = 0
        while True:
            tokens += 1
            if not tokens % _ROUND:
                spend()
            mark, scalar = self._token()
            made: Any = scalar
            if mark in (b"[", b"{"):
                made = [] if mark == b"[" else {}
                self._put(made)
                if len(self._open) > _DEPTH:
                    raise RecursionError
                if not self._empty(b"]" if mark == b"[" else b"}"):
                    self._begin(made)
                    continue
            elif mark:
                raise self._wrong()
            else:
                self._put(made)
            if self._ended():
                if _SPACE.fullmatch(self._data, self._at) is None:
                    raise self._wrong()
                return made if not self._open else self._open[0]

    def _put(self, made: Any) -> None:
        self._values += 1
        if self._values > self._most:
            raise RequestInvalid(f"the body has more than {self._most:,} values", status=413, where="body")
        if not self._open:
            return
        inner = self._open[-1]
        if isinstance(inner, list):
            inner.append(made)
        else:
            inner[self._keys[-1]] = made

    def _begin(self, made: dict[str, Any] | list[Any]) -> None:
        self._open.append(made)
        if isinstance(made, dict):
            self._keys.append(self._member(made))

    def _ended(self) -> bool:
        """After a value: whether it is the last one; else the next one follows."""
        while self._open:
            inner = self._open[-1]
            mark, _ = self._token()
            if mark == b",":
                if isinstance(inner, dict):
                    self._keys[-1] = self._member(inner)
                return False
            if mark != (b"]" if isinstance(inner, list) else b"}"):
                raise self._wrong()
            if isinstance(inner, dict):
                self._keys.pop()
            if len(self._open) == 1:
                return True
            self._open.pop()
        return True

    def _member(self, inner: dict[str, Any]) -> str:
        mark, key = self._token()
        if mark or not isinstance(key, str):
            raise self._wrong()
        if key in inner:
            raise ValueNotJson(f"the key {key[:64]!r} occurs twice", hint="keep one of the two")
        if self._token()[0] != b":":
            raise self._wrong()
        return key

    def _empty(self, end: bytes) -> bool:
        found = _SPACE.match(self._data, self._at)
        at = self._at if found is None else found.end()
        if self._data[at : at + 1] == end:
            self._at = at + 1
            return True
        return False

    def _token(self) -> tuple[bytes, Any]:
        found = _TOKEN.match(self._data, self._at)
        if found is None:
            raise self._wrong()
        begin, self._at = found.start(found.lastindex or 0), found.end()
        if found.lastindex == 1:
            return found[1], None
        if found.lastindex == 3:
            self._at = self._end_of_text(self._at)
        return b"", msgspec.json.decode(memoryview(self._data)[begin : self._at])

    def _end_of_text(self, at: int) -> int:
        while True:
            spend()
            found = _PIECE.match(self._data, at)
            end = at if found is None else found.end()
            if self._data[end : end + 1] == b'"':
                return end + 1
            if end == at:
                raise self._wrong()
            at = end

    def _wrong(self) -> msgspec.DecodeError:
        return msgspec.DecodeError(f"JSON is malformed (byte {self._at})")
