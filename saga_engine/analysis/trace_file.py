"""The lines of a trace: how they are linked, whether the chain holds, and what journals are in it.

A line's ``hash`` is the SHA-256 of its own bytes without the member ``hash``, which comes last; ``prev`` is the hash of
the line before. The chain detects accidents and partial changes. An attacker who can rewrite a file can also rewrite
its chain: an auditor stores the last hash elsewhere, or requires a signature (``trace_signature``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from saga_engine.core.codec import VERSION
from saga_engine.core.records import AnyRecord, SagaStarted
from saga_engine.errors import TraceBroken

if TYPE_CHECKING:
    from saga_engine.analysis.trace_signature import TraceKey

FORMAT: Final = "saga-trace/1"
#: Fields of records that have another name in a line, because the fields of its call use theirs.
RENAMED: Final = {("FallbackChosen", "fallback"): "chosen"}

_TAIL: Final = re.compile(rb',"hash":"([0-9a-f]{64})"\}\n?\Z')
_TAIL_BYTES: Final = len(',"hash":""}') + 64
#: Nothing may be between signature and hash: it would be neither signed nor noticed.
_SIGNATURE: Final = re.compile(rb',"signature":\{[^{}]*\},"hash":"[0-9a-f]{64}"\}\n?\Z')
#: Of a line's kinds, those that stand inside a saga.
_INSIDE: Final = frozenset({"fact", "intent", "call", "probe"})
_IN_EVERY_LINE: Final = (("seq", int), ("type", str), ("prev", str), ("hash", str))
_STRUCTS: Final[dict[str, Any]] = {kind.__name__: kind for kind in AnyRecord.__args__}
_LARGE: Final = ("output", "params", "plan", "input", "steps")

_encode = msgspec.json.Encoder().encode
#: Characters that a terminal interprets: they occur only inside texts, where JSON lets any be escaped.
_RAW: Final = re.compile(r"[^ -~]")


def _safe(data: bytes) -> bytes:
    """The same JSON without characters that a terminal interprets or that change the direction of a line."""
    text = data.decode()
    return data if text.isprintable() else _RAW.sub(_escaped, text).encode()


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if char.isprintable():
        return char
    pairs = char.encode("utf-16-be").hex()
    return "".join(f"\\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))


_decode = msgspec.json.Decoder().decode


class Chain:
    """Numbers lines and links them."""

    __slots__ = ("last", "lines")

    def __init__(self) -> None:
        self.lines = 0
        self.last = ""

    def line(self, body: Mapping[str, Any], key: TraceKey | None = None) -> str:
        """One line, without its line feed; signed with ``key``."""
        data = _safe(_encode({"seq": self.lines, **body, "prev": self.last}))
        if key is not None:
            data = data[:-1] + b',"signature":' + _encode(key.signature(data)) + b"}"
        self.lines += 1
        self.last = sha256(data).hexdigest()
        return f'{data[:-1].decode()},"hash":"{self.last}"}}'


class TracedRecord(NamedTuple):
    """A record of a journal, its line (from 1), and the fields of that line."""

    line: int
    record: AnyRecord
    body: Mapping[str, Any]


class Trace(NamedTuple):
    """One saga of a file. ``complete``: it had ended when it was exported."""

    header: Mapping[str, Any]
    entries: list[TracedRecord]
    complete: bool
    status: str

    @property
    def saga_id(self) -> str:
        """The saga's id."""
        return str(self.header["saga_id"])

    @property
    def redacted(self) -> bool:
        """Whether fields were left out by rules."""
        return bool(self.header.get("redacted") or self.header.get("masked"))


class TraceCheck(NamedTuple):
    """The result of ``verify``. ``last``: the hash of the last good line; ``broken``: None if the file is unaltered.

    ``signed``: whether the last line has a signature, and ``verified``: whether the given key made it.
    """

    lines: int
    sagas: tuple[tuple[str, str, bool], ...]  # id, status, whether it had ended
    last: str
    broken: TraceBroken | None
    signed: bool = False
    verified: bool = False


def verify(lines: Iterable[bytes], key: TraceKey | None = None) -> TraceCheck:
    """Read a whole file, line by line, and check that it is unaltered.

    Without ``key`` the check is only as strong as the chain: a file whose chain was recomputed passes. With it, a file
    that this key did not sign is broken.
    """
    sagas: list[tuple[str, str, bool]] = []
    count, last, signed = 0, "", False
    try:
        for number, body in checked(lines, key):
            count, last = number, body["hash"]
            signed = body["type"] == "end" and "signature" in body
            if body["type"] == "saga-end":
                sagas.append((str(body["saga_id"]), str(body["status"]), bool(body["complete"])))
    except TraceBroken as broken:
        return TraceCheck(count, tuple(sagas), last, broken)
    return TraceCheck(count, tuple(sagas), last, None, signed, signed and key is not None)


def checked(lines: Iterable[bytes], key: TraceKey | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines (from 1) as they are read, each only if it is unaltered. Raises ``TraceBroken``.

    With ``key`` the last line must have its signature.
    """
    last, number = "", 0
    order = _Order()
    for number, data in enumerate(lines, 1):
        body = _parsed(number, data)
        if body["prev"] != last or body["seq"] != number - 1:
            raise _broken(number, "it does not follow the line before it: lines were dropped, added or moved")
        order.take(number, body)
        if key is not None and order.over:
            line = _unsigned(data)
            problem = key.problem(line, body.get("signature"))
            if problem is None and b',"signature":' + _encode(key.signature(line)) + b',"hash":' not in data:
                problem = "its signature was changed: what stands beside its value is not what this key writes"
            if problem is not None:
                raise _broken(number, problem)
        last = body["hash"]
        yield number, body
    if not order.over:
        raise _broken(number + 1, "the file ends here, without its last line: it was cut short")


def _unsigned(data: bytes) -> bytes:
    """The last line's bytes as they were signed: without signature and hash."""
    found = _SIGNATURE.search(data)
    return data if found is None else data[: found.start()] + b"}"


def _parsed(number: int, data: bytes) -> dict[str, Any]:
    found = _TAIL.search(data, max(len(data) - _TAIL_BYTES - 1, 0))
    if found is None:
        raise _broken(number, "it does not end in a hash: it is no line of a trace, or was cut short")
    if sha256(data[: found.start()] + b"}").hexdigest() != found[1].decode():
        raise _broken(number, "it was changed: its hash does not fit")
    if not data.endswith(b"\n"):
        raise _broken(number, "its line feed is missing: the file was cut short")
    try:
        body = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(number, f"it is no JSON: {error}") from error
    if not isinstance(body, dict) or not all(isinstance(body.get(name), of) for name, of in _IN_EVERY_LINE):
        raise _broken(number, "it is no line of a trace")
    return body


class _Order:
    """Which line may follow which."""

    def __init__(self) -> None:
        self.over = False
        self._saga: Any = None
        self._records = 0
        self._sagas = 0
        self._complete = True

    def take(self, number: int, body: Mapping[str, Any]) -> None:
        kind = body["type"]
        if self.over:
            raise _broken(number, "it comes after the end")
        if self._saga is None:
            self._between(number, kind, body)
            return
        if body.get("saga_id") != self._saga:
            raise _broken(number, "it belongs to another saga")
        if kind in _INSIDE:
            self._records += 1
        elif kind == "saga-end":
            if body.get("records") != self._records:
                raise _broken(number, "the saga has another number of records")
            if not isinstance(body.get("status"), str) or not isinstance(body.get("complete"), bool):
                raise _broken(number, "it does not say how the saga ended")
            self._saga = None
            self._complete = self._complete and body["complete"]
        else:
            raise _broken(number, f"the saga before it has no end, and a line of the type {kind[:40]!r} comes")

    def _between(self, number: int, kind: str, body: Mapping[str, Any]) -> None:
        if kind == "saga":
            if body.get("format") != FORMAT:
                said = str(body.get("format"))[:40]
                raise _broken(number, f"its format is {said!r}, this engine reads {FORMAT!r}")
            if not isinstance(body.get("saga_id"), str):
                raise _broken(number, "it names no saga")
            self._saga, self._records = body["saga_id"], 1
            self._sagas += 1
        elif kind == "end":
            if body.get("lines") != number or body.get("sagas") != self._sagas:
                raise _broken(number, "the file has another number of lines or sagas")
            if body.get("complete") is not self._complete:
                raise _broken(number, "it does not say whether all sagas had ended, as their ends do")
            self.over = True
        else:
            raise _broken(number, f"a saga or the end was to come, not a line of the type {kind[:40]!r}")


def read(lines: Iterable[bytes]) -> Iterator[Trace]:
    """The sagas of a file, each when all of it has been checked. Raises ``TraceBroken``.

    A signature comes last and is not checked here: ``verify`` does that before the content is trusted.
    """
    header: Mapping[str, Any] = {}
    entries: list[TracedRecord] = []
    for number, body in checked(lines):
        kind = body["type"]
        if kind == "saga-end":
            yield Trace(header, entries, bool(body["complete"]), str(body["status"]))
        elif kind != "end":
            if kind == "saga":
                header, entries = body, []
            entries.append(TracedRecord(number, _record(number, body), body))


def _record(number: int, body: Mapping[str, Any]) -> AnyRecord:
    """The journal's record that a line was made of; values that the trace does not have whole stay references."""
    name = body.get("record")
    kind = _STRUCTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise _broken(number, f"it has a record of the kind {str(name)[:80]!r}, which this engine does not know")
    if (body["type"] == "saga") != (kind is SagaStarted):
        raise _broken(number, "it has a record of another kind than its type says")
    fields = {field: body[field] for field in kind.__struct_fields__ if field in body}
    for (of, field), other in RENAMED.items():
        if of == name and other in body:
            fields[field] = body[other]
    if name == "StepIntended" and not body.get("bound"):
        fields.pop("params", None)
    refs: dict[str, Any] = {}
    for field in _LARGE:
        ref = body.get(f"{field}_ref")
        if field in fields and isinstance(ref, dict):
            refs[field] = {**ref, "brief": fields.pop(field)}
    if refs:
        fields["refs"] = refs
    try:
        record: AnyRecord = msgspec.convert(fields, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _broken(number, f"its record cannot be read: {error}") from error
    if record.v > VERSION:
        raise _broken(number, f"its record's version is {record.v}, this engine knows {VERSION}")
    return record


def _broken(line: int, what: str) -> TraceBroken:
    return TraceBroken(f"line {line}: {what}", hint="export the trace again", line=line)
