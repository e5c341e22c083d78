"""Rotation: the data keys of sagas and of the store are wrapped anew by the current key, and older keys are retired.

Payloads stay as they are. Each wrapped key is replaced on condition that it is still the one that was read, so workers,
other rotations and repeats do no harm, and a rotation that was killed continues where it is repeated.

A key is retired in two steps. First the store says that it wraps nothing new: each process reads that before it begins
a saga, at the latest ``FRESH_S`` after it was said. Then what was begun meanwhile is wrapped anew as well, and the
store refuses the key from then on. Both are bound to the store's own wrapped key: only who has a key can say so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from saga_engine.core.states import SAGA_FINAL, SAGA_STATES
from saga_engine.errors import JournalUnreadable, SagaError, SettingInvalid
from saga_engine.ports import PAGE_START, Head, PagePlace, Query, SearchPlace
from saga_engine.privacy.keyring import Keyring, mark_of, wrapper_of
from saga_engine.privacy.store_key import FRESH_S, About, about_of, said, stored

if TYPE_CHECKING:
    from saga_engine.privacy.sealed_store import SealedStore

#: So many keys are replaced at a time.
_AT_ONCE: Final = 32
_PAGE: Final = 500
#: For requests that are on their way (seconds).
_SPARE_S: Final = 2.0


class Rotated(NamedTuple):
    """What a rotation did: sagas that were wrapped anew, those whose key could not be, and keys retired now."""

    rewrapped: int
    failed: dict[str, SagaError]
    retired: Sequence[str]


class KeyUse(NamedTuple):
    """A key as the store and this process know it. ``state``: current, ready, missing, retiring or retired."""

    name: str
    fingerprint: str
    state: str
    sagas: int
    store: bool


async def rotate(
    store: SealedStore,
    *,
    retire: Sequence[str] = (),
    only: Sequence[str] = (),
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Rotated:
    """Wrap every data key by the current key; then retire the keys with these names.

    ``only``: these sagas alone, also if a retired key wraps them. A saga whose key cannot be opened stays as it is, and
    then nothing is retired. Raises ``SettingInvalid`` for a key that cannot be retired, and
    what a store and a keyring raise.
    """
    keyring = await _newest(store)
    failed: dict[str, SagaError] = {}
    if only:
        heads = [await store.inner.head(saga_id) for saga_id in only]
        return Rotated(await _rewrapped(store, keyring, heads, (), failed), failed, ())
    marks = await _marks(store, keyring, retire)
    await _restate(store, keyring, retiring=marks)
    done = await _all_rewrapped(store, keyring, failed)
    if marks and not failed:
        # Processes that did not know yet may have begun sagas meanwhile.
        await wait(FRESH_S + _SPARE_S)
        done += await _all_rewrapped(store, keyring, failed)
    if marks and not failed:
        await _restate(store, keyring, retired=marks)
    return Rotated(done, failed, list(retire) if not failed else ())


async def uses(store: SealedStore) -> tuple[list[KeyUse], int]:
    """All keys that the store or this process knows, the current one first; and how many sagas are not sealed."""
    sagas: Counter[str] = Counter()
    clear = 0
    async for heads in _pages(store):
        for head in heads:
            sagas.update((_mark(head.key),) if head.key else ())
            clear += not (head.key or b'"erased"' in head.summary)
    about, _, wrapped = about_of(store.found) if store.found else (About(), "", b"")
    own = _mark(wrapped) if wrapped else ""
    return _uses(store.keyring, about, own, sagas), clear


def uses_without_store(keyring: Keyring | None) -> list[KeyUse]:
    """The keys of a keyring, where there is no store yet."""
    return _uses(keyring, About(), "", Counter())


def _uses(keyring: Keyring | None, about: About, own: str, sagas: Counter[str]) -> list[KeyUse]:
    here = [] if keyring is None else [key.mark for key in keyring.keys]
    marks = dict.fromkeys([*here, own, *sagas, *about.retiring, *about.retired])
    marks.pop("", None)

    def state(mark: str) -> str:
        if mark in about.retired:
            return "retired"
        if mark in about.retiring:
            return "retiring"
        return "missing" if mark not in here else "current" if mark == here[0] else "ready"

    named = [(mark, *mark.rsplit(":", 1)) for mark in marks]
    return [KeyUse(name, print_, state(mark), sagas[mark], mark == own) for mark, name, print_ in named]


async def _newest(store: SealedStore) -> Keyring:
    """The keyring of this process, if it may wrap new keys in the store as that is now."""
    if store.keyring is None:
        raise SettingInvalid("there are no keys here to wrap with", hint="docs/privacy.md shows how to give them")
    await store.refresh(at_once=True)
    return store.keyring


def _mark(wrapped: bytes) -> str:
    return mark_of(*wrapper_of(wrapped))


async def _marks(store: SealedStore, keyring: Keyring, names: Sequence[str]) -> list[str]:
    """The keys with these names. Raises ``SettingInvalid`` for one that nobody knows, or that wraps new keys here."""
    if not names:
        return []
    known: dict[str, set[str]] = {}
    for use in (await uses(store))[0]:
        known.setdefault(use.name, set()).add(f"{use.name}:{use.fingerprint}")
    for name in names:
        if name == keyring.current.name:
            raise SettingInvalid(
                f"{name} is the current key: it cannot be retired", hint="put the newer key first in the keyring"
            )
        if name not in known:
            raise SettingInvalid(
                f"neither the keyring nor the store knows a key {name[:80]!r}", hint="`saga keys list` shows them"
            )
    return sorted(mark for name in names for mark in known[name])


async def _restate(
    store: SealedStore, keyring: Keyring, *, retiring: Collection[str] = (), retired: Collection[str] = ()
) -> None:
    """Write what the store says of keys, bound to its own key, which the current key wraps from then on."""
    found = store.found
    while True:
        about, text, wrapped = about_of(found)
        then = About(
            named=about.named,
            retired=sorted({*about.retired, *retired}),
            retiring=sorted({*about.retiring, *retiring} - {*about.retired, *retired}),
        )
        if then == about and _mark(wrapped) == keyring.current.mark:
            break
        new = stored(then, keyring.rewrap("", wrapped, text, said(then)))
        present = await store.inner.seals().replace("", found, new)
        if present == new:
            found = new
            break
        found = present or b""  # somebody else was faster
    store.adopt(found)


async def _all_rewrapped(store: SealedStore, keyring: Keyring, failed: dict[str, SagaError]) -> int:
    done = 0
    async for heads in _pages(store):
        done += await _rewrapped(store, keyring, heads, store.shared.about.retired, failed)
    return done


async def _pages(store: SealedStore) -> AsyncIterator[Sequence[Head]]:
    """All sagas; one may come twice.

    First by the search index, in which none is missed because its status changes; then by status, live ones first,
    because a damaged search index may lack some.
    """
    seen: set[str] = set()
    after: SearchPlace | None = None
    while True:
        heads, after = await store.inner.search(Query(limit=_PAGE), after)
        seen.update(head.saga_id for head in heads)
        yield heads
        if after is None:
            break
    for status in sorted(SAGA_STATES, key=SAGA_FINAL.__contains__):
        at: PagePlace | None = PAGE_START
        while at is not None:
            heads, at = await store.inner.page(status, at)
            yield [head for head in heads if head.saga_id not in seen]
            seen.update(head.saga_id for head in heads)


async def _rewrapped(
    store: SealedStore, keyring: Keyring, heads: Sequence[Head], retired: Collection[str], failed: dict[str, SagaError]
) -> int:
    """How many of these sagas were wrapped anew now."""
    done = 0
    for start in range(0, len(heads), _AT_ONCE):
        some = [_one(store, keyring, head, retired, failed) for head in heads[start : start + _AT_ONCE]]
        done += sum(await asyncio.gather(*some))
    return done


async def _one(
    store: SealedStore, keyring: Keyring, head: Head, retired: Collection[str], failed: dict[str, SagaError]
) -> bool:
    wrapped = head.key
    try:
        while wrapped and _mark(wrapped) != keyring.current.mark:
            if retired:
                keyring.unwrap(head.saga_id, wrapped, retired=retired)
            new = keyring.rewrap(head.saga_id, wrapped)
            present = await store.inner.seals().replace(head.saga_id, wrapped, new)
            if present == new:
                return True
            wrapped = present or b""  # erased or purged meanwhile, or somebody else was faster
    except JournalUnreadable as error:  # a key that is missing, refused or broken
        failed[head.saga_id] = error
    return False
