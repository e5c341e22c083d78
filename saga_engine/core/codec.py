"""Converts records to bytes and back.

A record is one JSON object: ``k`` its kind, then its fields. Kinds and fields are only added (``records``). The largest
values of a record over 32 KiB are stored once, by digest. The record keeps a reference with their cut form, so that a
view can describe them without fetching them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from saga_engine.core.records import AnyRecord, CallAdded, FinallyStarted, Record, ValueRef
from saga_engine.errors import JournalUnreadable
from saga_engine.plan.preview import brief

#: The format of the journal. A reader refuses a greater one (the store has it in its meta key).
FORMAT: Final = 1
#: The greatest version of a record's meaning that this engine knows.
VERSION: Final = 1
#: A record over this many bytes of JSON loses its large values; they are stored beside the journal.
INLINE_LIMIT: Final = 32 * 1024
#: A value over this many bytes of JSON is shown in its cut form. It is less than the limit above by the size that the
#: rest of a record can have, so every value that is stored beside the journal is shown cut, also by code that still has
#: the whole.
SHOWN_LIMIT: Final = INLINE_LIMIT - 1024

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)
_LARGE_FIELDS: Final = ("plan", "output", "params", "input", "steps", "facts", "items", "before", "after", "found")
#: Those of them that views do not fetch.
_ABRIDGED: Final = ("output", "before", "after", "found")


def encode(record: Record, values: dict[str, bytes]) -> bytes:
    """The bytes of a record; values too large for it are added to ``values`` by digest."""
    data = _encode(record)
    if len(data) <= INLINE_LIMIT:
        return data
    return _encode(_offload(record, values))


def encode_all(records: Sequence[Record], values: dict[str, bytes]) -> list[bytes]:
    """The bytes of records, as ``encode`` makes them."""
    made = list(map(_encode, records))
    if max(map(len, made), default=0) > INLINE_LIMIT:
        for at, data in enumerate(made):
            if len(data) > INLINE_LIMIT:
                made[at] = _encode(_offload(records[at], values))
    return made


def _offload(record: Record, values: dict[str, bytes]) -> Record:
    refs: dict[str, ValueRef] = {}
    changes: dict[str, Any] = {}
    for name in _LARGE_FIELDS:
        value = getattr(record, name, None)
        if value is None:
            continue
        data = _encode(value)
        if len(data) > INLINE_LIMIT // 8:
            ref = refs[name] = _ref(value, data)
            values[ref.digest] = data
            changes[name] = _placeholder(record, name)
    return msgspec.structs.replace(record, refs=refs, **changes) if refs else record


def _placeholder(record: Record, name: str) -> Any:
    """What replaces a value that is stored separately in its field: something that a reader can decode."""
    if name in ("steps", "items"):
        return []
    return {} if isinstance(record, CallAdded | FinallyStarted) else None


def _ref(value: Any, data: bytes) -> ValueRef:
    if isinstance(value, msgspec.Raw):
        value = msgspec.json.decode(data)
    return ValueRef(digest=sha256(data).hexdigest(), bytes=len(data), brief=brief(value))


class Stored:
    """Replaces a large value that has not been fetched, in a record and in a state of such records.

    Such a state is only for views of a saga. A driver has its values whole.
    """

    __slots__ = ("ref",)

    def __init__(self, ref: ValueRef) -> None:
        self.ref = ref

    @property
    def cut(self) -> Any:
        """The cut form."""
        return self.ref.summary if self.ref.brief is None else self.ref.brief


def stored_form(value: Any) -> Stored | None:
    """What replaces a value in views; None if the value is small enough to be shown itself."""
    data = _encode(value)
    return Stored(_ref(value, data)) if len(data) > SHOWN_LIMIT else None


def decode(data: bytes) -> AnyRecord:
    """A record from its bytes. Unknown fields are ignored.

    Raises ``JournalUnreadable`` for an unknown kind (a newer engine wrote it) or a damaged record.
    """
    try:
        record = _decoder.decode(data)
        if record.v > VERSION:
            raise msgspec.ValidationError(f"its version is {record.v}, this engine knows {VERSION}")
        return record
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise JournalUnreadable(
            f"a journal record cannot be read: {error}",
            hint="it was written by a newer saga_engine, or the store was changed by hand; upgrade before resuming",
            record=data[:200].decode(errors="replace"),
        ) from error


class _Dated(msgspec.Struct):
    at: int


_dated: Final = msgspec.json.Decoder(_Dated)


def made_at(data: bytes) -> int | None:
    """When a record was made, also one of a newer engine; None if its bytes do not say it."""
    try:
        return _dated.decode(data).at
    except msgspec.MsgspecError:
        return None


def refs_of(record: Record) -> Mapping[str, ValueRef]:
    """The references a record holds, by field."""
    return getattr(record, "refs", None) or {}


def inflate(record: AnyRecord, values: Mapping[str, bytes]) -> AnyRecord:
    """The record with its large values restored."""
    refs = refs_of(record)
    if not refs:
        return record
    found: dict[str, Any] = {}
    for name, ref in refs.items():
        data = values[ref.digest]
        if sha256(data).hexdigest() != ref.digest:
            raise JournalUnreadable(
                f"the stored value {ref.digest[:12]} does not fit its digest", hint="the store was changed"
            )
        found[name] = msgspec.json.decode(data)
    return msgspec.structs.replace(record, refs={}, **found)


def abridge(record: AnyRecord) -> AnyRecord:
    """The record with ``Stored`` in place of a large output or image. Other large values keep their references."""
    refs = refs_of(record)
    if not refs:
        return record
    found = {name: Stored(refs[name]) for name in _ABRIDGED if name in refs}
    return msgspec.structs.replace(record, **found) if found else record
