"""The store's own data key: for what belongs to no saga, or to several."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from saga_engine.errors import KeyRefused, SealBroken
from saga_engine.ports import Store
from saga_engine.privacy.cipher import DataKey, is_sealed, is_sealed_text, place
from saga_engine.privacy.keyring import Keyring

#: A process reads again what the store says of keys before it begins a saga, if that is older than this (seconds).
FRESH_S: Final = 10.0


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a store's sealing, bound to its wrapped key.

    ``named``: names that would reveal values are keyed (locks, digests of calls, keys of events, search terms). They
    are where the store was empty when sealing began; elsewhere processes that began before would not find them.
    ``retired``: keys (name and fingerprint) that wrap nothing any more; what one wraps nevertheless is refused.
    ``retiring``: keys that wrap nothing new, and still open what they wrap.
    """

    named: bool = True
    retired: list[str] = []
    retiring: list[str] = []


class StoreKey(NamedTuple):
    """The store's key, and what is bound to it."""

    key: DataKey
    about: About

    # --- what a store that began unsealed may hold in clear ---

    def open(self, where: bytes, data: bytes) -> bytes:
        """The content of sealed bytes; what was there before sealing began is returned as it is."""
        return data if not self.about.named and not is_sealed(data) else self.key.open_bytes(where, data)

    def open_text(self, where: bytes, text: str) -> str:
        """The content of a sealed text; what was there before sealing began is returned as it is."""
        return text if not self.about.named and not is_sealed_text(text) else self.key.open_text(where, text)

    def name(self, kind: str, *parts: str) -> str:
        """What stands for a name in the store: the last of the parts itself if names are clear here."""
        return self.key.name(kind, *parts) if self.about.named else parts[-1]

    def token(self, kind: str, *parts: str) -> str:
        """As ``name``, but ``untoken`` reads it."""
        return self.key.seal_text(place(kind, *parts[:-1]), parts[-1]) if self.about.named else parts[-1]

    def untoken(self, kind: str, *parts: str) -> str:
        """The content of a ``token``."""
        return self.open_text(place(kind, *parts[:-1]), parts[-1])


class Sealer(Protocol):
    """What the parts of a sealed store need of it."""

    @property
    def shared(self) -> StoreKey:
        """The store's own key. Raises ``KeyMissing``."""
        ...

    async def key_of(self, saga_id: str) -> DataKey | None:
        """The key of a saga; None if it is not sealed."""
        ...

    def term(self, text: str) -> str:
        """A search term as the store has it."""
        ...

    def part(self, port: type) -> Any:
        """What seals this part of a store."""
        ...


def about_of(stored: bytes) -> tuple[About, str, bytes]:
    """What a store says about its sealing, the same as it stands there, and its wrapped key. Raises ``SealBroken``."""
    said, _, wrapped = stored.partition(b"\0")
    try:
        return msgspec.json.decode(said, type=About), said.decode(), wrapped
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SealBroken("the store's own key cannot be read", hint="the store was changed, or is newer") from error


def stored(about: About, wrapped: bytes) -> bytes:
    """The form in which a store keeps both."""
    return said(about).encode() + b"\0" + wrapped


def said(about: About) -> str:
    """The text that is bound to the wrapped key."""
    return msgspec.json.encode(about).decode()


def refuse_retired(keyring: Keyring, marks: Collection[str]) -> None:
    """Raises ``KeyRefused`` if this process would wrap new keys with one of these, which are retired or retiring."""
    if marks and keyring.current.mark in marks:
        raise KeyRefused(
            f"the current key of this process, {keyring.current.name}, was retired in this store",
            hint="this process has an old keyring: give it the one with the newer key first",
            key=keyring.current.name,
        )


def unlocked(keyring: Keyring, found: bytes) -> StoreKey:
    """The store's key. Raises ``KeyMissing``, ``KeyRefused`` and ``SealBroken``."""
    about, text, wrapped = about_of(found)
    refuse_retired(keyring, about.retired)
    return StoreKey(keyring.unwrap("", wrapped, text, about.retired), about)


async def begun(keyring: Keyring, store: Store) -> bytes:
    """The store's wrapped key, which is made now if it has none. Raises what the verbs of a store raise."""
    seals = store.seals()
    if seals.found:
        return seals.found
    empty = not await store.list(limit=1) and not await store.event_store().listed(None, 1)
    about = About(named=empty)
    new = keyring.new("", said(about))
    # Another process may be faster; then its key is the store's.
    return await seals.replace("", b"", stored(about, new.wrapped)) or b""


def refuse_rolled_back(before: About, now: About) -> None:
    """Raises ``KeyRefused`` if a store does not say any more that a key is retired: an old copy was put back."""
    lost = sorted({*before.retired} - {*now.retired})
    if lost:
        name = lost[0].rpartition(":")[0]
        raise KeyRefused(
            f"this store had retired the key {name}, and does not say so any more",
            hint="an old copy of the store's own key was put back: restore the newer one, or retire the key again and "
            "restart this process",
            key=name,
        )
