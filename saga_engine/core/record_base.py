"""What all records of a journal share: their base, and the reference to a large value."""

from __future__ import annotations

from typing import Any

import msgspec


class ValueRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """Replaces a large value that is stored once, by digest, beside the journal.

    ``digest`` is the SHA-256 of its JSON, ``bytes`` the length of that. ``brief`` is its cut form (``plan.preview``);
    journals from before there was one have its first characters, ``summary``, instead.
    """

    digest: str
    bytes: int
    summary: str = ""
    brief: Any = None


class Record(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="k", kw_only=True, gc=False):
    """The base of all records. ``v`` is the version of the record's meaning; it is omitted while it is 1.

    (No garbage collection: what a record holds came as JSON and never refers back to it, so it is in no cycle.)
    """

    at: int
    v: int = 1
