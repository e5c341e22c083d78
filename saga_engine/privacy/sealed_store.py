"""A store whose payloads are sealed: the shell around any ``Store``.

Each saga has a data key, made with its first records and kept, wrapped, in its head. Sealed with it are its records,
large values, messages, and the texts of its summary; with the store's key what concerns several sagas. Clear remain
ids, states, times, the kind and the step of a record, and the names of tools.

A saga that began before sealing did stays as it is. A saga whose key this process does not have stays untouched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from saga_engine.errors import (
    EraseRefused,
    KeyMissing,
    KeyRefused,
    SagaErased,
    SagaError,
    SagaNotFound,
    SealBroken,
    StoreUnavailable,
)
from saga_engine.loggers import logger_of
from saga_engine.ports import (
    PAGE_START,
    Ack,
    Acquired,
    Apart,
    AppendReply,
    Begun,
    Entry,
    Head,
    Held,
    PagePlace,
    Query,
    Renewal,
    SearchPlace,
    Store,
    Taken,
    Taking,
    WorkStore,
)
from saga_engine.ports.head import tombstone_of
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.privacy.cipher import DataKey, is_sealed_text, message_id, opened_records, place, unbased
from saga_engine.privacy.keyring import Keyring, missing
from saga_engine.privacy.store_key import FRESH_S, StoreKey, begun, refuse_retired, refuse_rolled_back, unlocked
from saga_engine.privacy.wrapper import sealing

_log = logger_of("saga_engine.privacy")

#: So many sagas' keys are remembered.
_KEPT: Final = 10_000
#: The creations of so many sagas may be repeated.
_REPEATED: Final = 4096
#: The fields of a summary that are readable without a key.
_CLEAR: Final = frozenset(
    ("steps", "done", "session", "template", "due_ms", "parent", "children", "waits", "wakes_ms", "questions", "clean")
)
_NO_TEXT: Final = b"{}"


class SealedStore(sealing(Store, Apart)):  # type: ignore[misc]
    """A ``Store`` that seals what it writes into ``inner`` and opens what it reads.

    Without a ``keyring`` it is the way in which a process without keys sees a sealed store: sagas that are not sealed
    are as ever, and everything else raises ``KeyMissing``.
    """

    def __init__(self, inner: Store, keyring: Keyring | None) -> None:
        super().__init__(inner, self)
        self.inner: Store
        self.keyring = keyring
        self._store_key: StoreKey | None = None
        #: The store's own wrapped key, and when it was read (monotonic).
        self.found = b""
        self._read_s = 0.0
        #: Keys by saga; None: it is not sealed.
        self._keys: dict[str, DataKey | None] = {}
        #: Keys of sagas that were created here lately: a repeat after a lost answer must write the same bytes.
        self._new: dict[str, DataKey] = {}

    # --- opening ---

    async def open(self) -> None:
        """Open the inner store, and unlock it. Raises ``KeyMissing``, ``KeyRefused`` and ``SealBroken``, too."""
        await self.inner.open()
        await self.unlock()

    async def unlock(self) -> None:
        """Get the key of the inner store, which is open; it is made if there is none yet."""
        self.found = self.inner.seals().found
        if self.keyring is None:
            return
        found = await begun(self.keyring, self.inner)
        try:
            self.adopt(found)
        except KeyMissing:
            if not await self.keyring.reload():
                raise
            self.adopt(found)

    def adopt(self, found: bytes) -> None:
        """Believe what the store says of its own key. Raises ``KeyMissing``, ``KeyRefused`` and ``SealBroken``."""
        assert self.keyring is not None
        key = unlocked(self.keyring, found)
        if self._store_key is not None:
            refuse_rolled_back(self._store_key.about, key.about)
            if self._store_key.about != key.about:
                self._keys.clear()  # what a retired key wrapped is refused from now on, also if it was known
        self._store_key, self.found, self._read_s = key, found, machine_clock.monotonic()

    async def refresh(self, *, at_once: bool = False) -> None:
        """Read again what the store says of keys, if that is not fresh; so that a retired key wraps nothing new.

        Raises ``KeyRefused`` if the current key of this process is retired, also after its source was read again.
        """
        if self._store_key is None or self.keyring is None:
            return
        if at_once or machine_clock.monotonic() - self._read_s >= FRESH_S:
            await self._read_again()
        about = self._store_key.about
        marks = [*about.retiring, *about.retired]
        if marks and self.keyring.current.mark in marks:
            await self.keyring.reload()
            refuse_retired(self.keyring, marks)

    async def _read_again(self) -> None:
        assert self.keyring is not None
        self._read_s = machine_clock.monotonic()
        try:
            found = await self.inner.seals().replace("", self.found, self.found) or b""
        except StoreUnavailable as error:
            # (On a cluster it may be another primary than the saga's.) A saga must not wait for that.
            _log.warning("what the store says of keys cannot be read, and is used as it was: %s", error)
            return
        self._read_s = 0.0  # unless it is believed
        try:
            self.adopt(found)
        except (KeyMissing, KeyRefused):
            if not await self.keyring.reload():
                raise
            self.adopt(found)

    @property
    def shared(self) -> StoreKey:
        """The store's own key. Raises ``KeyMissing``."""
        if self._store_key is None:
            raise missing("")
        return self._store_key

    # --- keys of sagas ---

    async def key_of(self, saga_id: str) -> DataKey | None:
        """The key of a saga; None if it is not sealed. Raises ``KeyMissing``, ``SagaErased``, ``SagaNotFound``."""
        if saga_id in self._keys:
            return self._keys[saga_id]
        return await self.key_in(await self.inner.head(saga_id))

    async def key_in(self, head: Head) -> DataKey | None:
        """The key of the saga of this head. Raises ``KeyMissing``, ``KeyRefused``, ``SealBroken``, ``SagaErased``."""
        self._refuse_erased(head)
        known = self._keys.get(head.saga_id)
        if known is not None and known.wrapped == head.key:
            return known
        return self._remember(head.saga_id, await self._unwrapped(head) if head.key else None)

    def _refuse_erased(self, head: Head) -> None:
        tombstone = tombstone_of(head.summary)
        if tombstone is None:
            return
        self._keys.pop(head.saga_id, None)
        by = f" by {tombstone['by']}" if tombstone.get("by") else ""
        raise SagaErased(
            f"saga {head.saga_id} was erased{by}: {tombstone.get('why') or 'no reason is given'}",
            hint="its key was destroyed; ids, states and times remain",
            saga_id=head.saga_id,
            **{name: tombstone.get(name) for name in ("by", "why", "at_ms")},
        )

    async def _unwrapped(self, head: Head) -> DataKey:
        if self.keyring is None:
            raise missing("", saga_id=head.saga_id)
        if machine_clock.monotonic() - self._read_s >= FRESH_S:
            await self._read_again()
        retired = self.shared.about.retired
        try:
            return self.keyring.unwrap(head.saga_id, head.key, retired=retired)
        except (KeyMissing, KeyRefused):
            if not await self.keyring.reload():
                raise
            return self.keyring.unwrap(head.saga_id, head.key, retired=retired)

    def _remember(self, saga_id: str, key: DataKey | None) -> DataKey | None:
        self._keys.pop(saga_id, None)
        self._keys[saga_id] = key
        if len(self._keys) > _KEPT:
            del self._keys[next(iter(self._keys))]
        return key

    def _key_for_new(self, saga_id: str) -> DataKey:
        key = self._new.get(saga_id)
        if key is None:
            if self.keyring is None:
                raise missing("", saga_id=saga_id)
            self._new[saga_id] = key = self.keyring.new(saga_id)
            if len(self._new) > _REPEATED:
                del self._new[next(iter(self._new))]
        return key

    # --- the journal ---

    async def append(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        """Group commit. An entry that cannot be sealed fails by itself."""
        return await self._append(self.inner.append, owner, entries)

    @property
    def append_apart(self) -> Callable[[str, Sequence[Entry]], Awaitable[AppendReply]] | None:
        """As that of the inner store; None on one server."""
        apart = getattr(self.inner, "append_apart", None)
        return None if apart is None else lambda owner, entries: self._append(apart, owner, entries)

    async def _append(
        self, append: Callable[[str, Sequence[Entry]], Awaitable[AppendReply]], owner: str, entries: Sequence[Entry]
    ) -> AppendReply:
        sealed: list[Entry] = []
        refused: dict[int, SagaError] = {}
        for at, entry in enumerate(entries):
            try:
                saga_id = entry.saga_id
                if entry.creation is not None:
                    await self.refresh()
                    key: DataKey | None = self._key_for_new(saga_id)
                else:
                    key = self._keys[saga_id] if saga_id in self._keys else await self.key_of(saga_id)
                sealed.append(entry if key is None else self._sealed(entry, key))
            except SagaNotFound:
                sealed.append(entry._replace(records=[b""] * len(entry.records), summary=None, values=None, terms=()))
            except SagaError as error:
                refused[at] = error
        if refused and not sealed:
            raise next(iter(refused.values()))
        reply = await append(owner, sealed)
        return self._opened(entries, reply, refused)

    def _sealed(self, entry: Entry, key: DataKey) -> Entry:
        saga_id, seq = entry.saga_id, entry.seq
        records = [key.seal_record(saga_id, seq + at, data) for at, data in enumerate(entry.records)]
        if not any(entry[4:]):
            return Entry(saga_id, seq, entry.epoch, records)
        creation, values = entry.creation, entry.values
        return entry._replace(
            records=records,
            summary=None if entry.summary is None else _sealed_summary(saga_id, key, entry.summary),
            values=values and dict(_sealed_value(saga_id, key, *item) for item in values.items()),
            creation=creation and creation._replace(digest=self._hidden(saga_id, creation.digest), key=key.wrapped),
            terms=[self.term(text) for text in entry.terms] if entry.terms else (),
        )

    def _opened(self, entries: Sequence[Entry], reply: AppendReply, refused: Mapping[int, SagaError]) -> AppendReply:
        """The reply, for the entries as they came in."""
        if not refused and not reply.late and not any(entry.creation is not None for entry in entries):
            return reply
        acks: list[Ack] = []
        late: dict[int, asyncio.Future[Ack]] = {}
        came = iter(enumerate(reply.acks))
        for at, entry in enumerate(entries):
            if at in refused:
                acks.append(Ack("late"))
                late[at] = _failed(refused[at])
                continue
            place_there, ack = next(came)
            if ack.code == "late":
                late[at] = self._later(entry, reply.late[place_there])
                acks.append(ack)
            else:
                acks.append(self._settled(entry, ack))
        return AppendReply(reply.now_ms, acks, late)

    def _settled(self, entry: Entry, ack: Ack) -> Ack:
        """The ack of an entry; of a creation it decides about the key that was made for it."""
        if entry.creation is None:
            return ack
        if ack.code == "ok":
            if (key := self._new.get(entry.saga_id)) is not None:
                self._remember(entry.saga_id, key)
        elif ack.code == "exists":
            self._new.pop(entry.saga_id, None)
            return ack._replace(digest=self._shown(entry.saga_id, ack.digest))
        elif ack.code == "reserved":
            self._new.pop(entry.saga_id, None)
        return ack

    def _later(self, entry: Entry, reply: asyncio.Future[Ack]) -> asyncio.Future[Ack]:
        found: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()

        def settle(reply: asyncio.Future[Ack]) -> None:
            if found.done():
                return
            if reply.cancelled():
                found.cancel()
            elif error := reply.exception():
                found.set_exception(error)
                found.exception()  # a caller that needs it reads it; no caller has to
            else:
                found.set_result(self._settled(entry, reply.result()))

        reply.add_done_callback(settle)
        return found

    async def reserve(self, saga_id: str, digest: str, of: str, ttl_ms: int) -> str:
        """Reserve an id; the store keeps no digest that reveals the plan."""
        hidden = self._hidden(saga_id, digest)
        return self._shown(saga_id, await self.inner.reserve(saga_id, hidden, of, ttl_ms))

    def _hidden(self, saga_id: str, digest: str) -> str:
        return self.shared.key.seal_text(place("digest", saga_id), digest)

    def _shown(self, saga_id: str, digest: str) -> str:
        """A digest as the engine knows it: those of sagas that are not sealed are clear."""
        if self._store_key is None or not is_sealed_text(digest):
            return digest
        return self.shared.key.open_text(place("digest", saga_id), digest)

    async def read(self, saga_id: str, start: int = 0, most: int = 0) -> Sequence[bytes]:
        """The records from ``start`` on. Raises ``KeyMissing``, ``KeyRefused``, ``SealBroken``, ``SagaErased``, too."""
        # The head is read each time: another process may have erased the saga.
        head, records = await asyncio.gather(self.inner.head(saga_id), self.inner.read(saga_id, start, most))
        return opened_records(saga_id, await self.key_in(head), start, records)

    async def values(self, saga_id: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        """The large values of a saga by digest."""
        key = await self.key_of(saga_id)
        if key is None:
            return await self.inner.values(saga_id, digests)
        names = {key.name("value", digest): digest for digest in digests}
        found = await self.inner.values(saga_id, list(names))
        return {names[name]: key.open_bytes(place("value", saga_id, names[name]), data) for name, data in found.items()}

    # --- heads ---

    async def head(self, saga_id: str) -> Head:
        """The summary of one saga, as far as this process can read it."""
        return await self._readable(await self.inner.head(saga_id))

    async def list(self, status: str | None = None, limit: int = 1000) -> Sequence[Head]:
        """Summaries, as far as this process can read them."""
        return [await self._readable(head) for head in await self.inner.list(status, limit)]

    async def page(self, status: str, at: PagePlace = PAGE_START) -> tuple[Sequence[Head], PagePlace | None]:
        """As the inner store."""
        found, following = await self.inner.page(status, at)
        return [await self._readable(head) for head in found], following

    async def search(self, query: Query, after: SearchPlace | None = None) -> tuple[Sequence[Head], SearchPlace | None]:
        """As the inner store, by keyed terms."""
        terms = [self.term(text) for text in query.terms]
        found, following = await self.inner.search(query._replace(terms=terms), after)
        return [await self._readable(head) for head in found], following

    def term(self, text: str) -> str:
        """A search term as the store has it: names and tags are keyed, tools are clear."""
        kind, colon, name = text.partition(":")
        return f"{kind}:{self.shared.name('term', kind, name)}" if colon and kind in ("name", "tag") else text

    async def _readable(self, head: Head) -> Head:
        """The head with its summary opened. Without its key the clear part remains, and says that it is sealed."""
        if not head.key and b'"sealed"' not in head.summary:
            return head
        try:
            key = await self.key_in(head)
            summary = head.summary if key is None else _opened_summary(head.saga_id, key, head.summary)
            return head._replace(summary=summary, digest=self._shown(head.saga_id, head.digest))
        except SagaErased:
            return head
        except (KeyMissing, KeyRefused):
            return head
        except SealBroken as error:
            _log.warning("the summary of saga %s is not shown: %s", head.saga_id, error)
            return head

    # --- messages ---

    async def acquire(self, saga_id: str, owner: str, dead_owner: str | None = None) -> Acquired | Held:
        """Take the saga. Its messages are opened."""
        found = await self.inner.acquire(saga_id, owner, dead_owner)
        if isinstance(found, Held) or not found.messages:
            return found
        try:
            key = await self.key_of(saga_id)
        except (KeyMissing, KeyRefused, SagaErased, SealBroken):
            return found  # it is ours; reading its journal says what is wrong
        return found._replace(messages=_opened_messages(saga_id, key, found.messages))

    async def post(self, saga_id: str, message: bytes, *, spare_ms: int = 5_000) -> Head:
        """Post a message."""
        key = await self.key_in(await self.inner.head(saga_id))
        if key is not None:
            message = key.seal_message(place("message", saga_id, message_id(message)), message)
        return await self._readable(await self.inner.post(saga_id, message, spare_ms=spare_ms))

    async def messages(self, saga_id: str) -> Sequence[bytes]:
        """The unread messages, oldest first."""
        found = await self.inner.messages(saga_id)
        return _opened_messages(saga_id, await self.key_of(saga_id), found) if found else found

    # --- what sagas share ---

    async def open_lease(
        self, owner: str, ttl_ms: int, partitions: Sequence[int] | None = None, note: bytes = b""
    ) -> int:
        """Start a lease. Its note is sealed; a process without keys makes none."""
        return await self.inner.open_lease(owner, ttl_ms, partitions, self._noted(owner, note))

    @property
    def open_apart(self) -> Callable[[str, int, bytes], Awaitable[Begun]] | None:
        """As that of the inner store; None on one server."""
        apart = getattr(self.inner, "open_apart", None)
        return None if apart is None else lambda owner, ttl_ms, note: apart(owner, ttl_ms, self._noted(owner, note))

    def _noted(self, owner: str, note: bytes) -> bytes:
        if not note or self._store_key is None:
            return b""
        return self.shared.key.seal_bytes(place("lease", owner), note)

    def renew_blocking(
        self, owner: str, ttl_ms: int, limit_s: float, held: Mapping[str, Sequence[str]] | None = None
    ) -> Renewal:
        """As the inner store, with the names of resources as it knows them."""
        if held and self._store_key is not None:
            held = {self.shared.name("resource", name): tickets for name, tickets in held.items()}
        return self.inner.renew_blocking(owner, ttl_ms, limit_s, held)

    def part(self, port: type) -> Any:
        """What seals this part of a store."""
        return _part(port)

    # --- erasing ---

    async def erase(self, saga_id: str, *, by: str, why: str, at_ms: int, ties: Mapping[str, Any]) -> Mapping[str, Any]:
        """Destroy the key of a saga that has ended, and leave a tombstone; returns it. Repeating it changes nothing.

        ``ties``: the sagas that it is tied to, for a purge.

        Raises ``SagaNotFound``, and ``EraseRefused`` for a saga that has not ended or is not sealed.
        """
        head = await self.inner.head(saga_id)
        found = tombstone_of(head.summary)
        if found is not None:
            return found
        if not head.key:
            raise EraseRefused(
                f"saga {saga_id} is not sealed: there is no key to destroy",
                hint="it began before sealing did; docs/privacy.md names what removes it",
                saga_id=saga_id,
            )
        clear = {name: value for name, value in _fields(head.summary).items() if name in _CLEAR}
        tombstone = {"by": by, "why": why, "at_ms": at_ms, **({"ties": dict(ties)} if ties else {})}
        summary = msgspec.json.encode({**clear, "erased": tombstone})
        done = await self.inner.seals().erase(saga_id, summary)
        if done is None:
            raise SagaNotFound(f"no saga {saga_id} in the store at {self.url}", saga_id=saga_id)
        if not done:
            raise EraseRefused(
                f"saga {saga_id} has not ended ({head.status}): it needs its payloads to go on, or to be undone",
                hint=f"saga cancel {saga_id}, or let it end",
                saga_id=saga_id,
            )
        self._keys.pop(saga_id, None)
        self._new.pop(saga_id, None)
        return tombstone


def _fields(summary: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(summary)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _sealed_summary(saga_id: str, key: DataKey, summary: bytes) -> bytes:
    fields = _fields(summary)
    clear = {name: value for name, value in fields.items() if name in _CLEAR}
    if summary in (b"", _NO_TEXT) or (fields and len(clear) == len(fields)):
        return summary
    return msgspec.json.encode({**clear, "sealed": key.seal(place("summary", saga_id), summary)})


def _opened_summary(saga_id: str, key: DataKey, summary: bytes) -> bytes:
    sealed = _fields(summary).get("sealed")
    if not isinstance(sealed, str):
        return summary
    where = place("summary", saga_id)
    return key.open(where, unbased(where, sealed))


def _sealed_value(saga_id: str, key: DataKey, digest: str, data: bytes) -> tuple[str, bytes]:
    return key.name("value", digest), key.seal_bytes(place("value", saga_id, digest), data)


def _opened_messages(saga_id: str, key: DataKey | None, found: Sequence[bytes]) -> Sequence[bytes]:
    return found if key is None else [_opened_message(saga_id, key, data) for data in found]


def _opened_message(saga_id: str, key: DataKey, data: bytes) -> bytes:
    try:
        return key.open_message(place("message", saga_id, message_id(data)), data)
    except SealBroken as error:
        _log.warning("a message of saga %s is refused: %s", saga_id, error)
        # Nothing of it is believed but the id by which the journal says that it was refused.
        return msgspec.json.encode({"id": message_id(data)})


def _failed(error: SagaError) -> asyncio.Future[Ack]:
    found: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
    found.set_exception(error)
    found.exception()  # a caller that needs it reads it; no caller has to
    return found


class SealedWork(sealing(WorkStore)):  # type: ignore[misc]
    """A ``WorkStore`` that opens the journals of the sagas that it takes."""

    async def take(self, owner: str, nonce: str, limit: int, partitions: Sequence[int]) -> Taking:
        """Acquire sagas. One whose journal cannot be opened comes without it: reading it says why."""
        found: Taking = await self.inner.take(owner, nonce, limit, partitions)
        if not found.sagas:
            return found
        return found._replace(sagas=await asyncio.gather(*map(self._opened, found.sagas)))

    async def _opened(self, taken: Taken) -> Taken:
        if taken.records is None:
            return taken
        try:
            key = await self.sealer.key_of(taken.saga_id)
            return taken._replace(records=opened_records(taken.saga_id, key, 0, taken.records))
        except SagaError as error:
            _log.debug("the journal of saga %s is read by itself: %s", taken.saga_id, error)
            return taken._replace(records=None)

    async def restore_terms(self, saga_id: str, terms: Sequence[str]) -> None:
        """Add to the terms of a saga."""
        sealed = (await self.sealer.key_of(saga_id)) is not None
        await self.inner.restore_terms(saga_id, [self.sealer.term(text) for text in terms] if sealed else terms)


@cache
def _part(port: type) -> Any:
    return SealedWork if port is WorkStore else sealing(port)
