"""Which store a process uses: the one that it was given, or one that seals around it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import EraseRefused, JournalUnreadable
from saga_engine.ports.machine_clock import machine_clock

if TYPE_CHECKING:
    from saga_engine.ports import Store
    from saga_engine.privacy.keyring import Keyring, KeySource


async def sealed(store: Store, privacy: Keyring | KeySource | None, *, reading: bool = False) -> Store:
    """The store to use in place of ``store``, which is open: itself, if nothing in it is sealed and nothing shall be.

    Without keys a sealed store refuses what is sealed by name. ``reading``: sealing does not begin here. Raises
    ``KeyMissing``, ``KeyRefused``, ``SealBroken`` and ``SettingInvalid``.
    """
    if is_sealed(store) or not (store.seals().found or (privacy is not None and not reading)):
        return store
    from saga_engine.privacy.config import as_keyring
    from saga_engine.privacy.sealed_store import SealedStore

    found = SealedStore(store, as_keyring(privacy))
    await found.unlock()
    return found


def is_sealed(store: Store) -> bool:
    """Whether this process seals what it writes to ``store``, or may read what is sealed in it."""
    return hasattr(store, "unlock")


async def open_sealed(store: Store, privacy: Keyring | KeySource | None) -> Store:
    """Open ``store``; returns the one to use in its place. Raises what ``Store.open`` and ``sealed`` raise."""
    await store.open()
    return await sealed(store, privacy)


async def erase(store: Store, saga_id: str, by: str, why: str) -> Mapping[str, Any]:
    """See ``Coordinator.erase``; returns ``by``, ``why`` and ``at_ms`` of who erased it first."""
    seal = getattr(store, "erase", None)
    if seal is None:
        await store.head(saga_id)  # there may be no such saga
        raise EraseRefused(
            f"saga {saga_id} is not sealed: there is no key to destroy",
            hint="`saga purge` removes ended sagas; docs/privacy.md",
            saga_id=saga_id,
        )
    head = await store.head(saga_id)
    ties: Mapping[str, Any] = {}
    if head.status in SAGA_FINAL:
        from saga_engine.runtime.ties import ties_of

        with suppress(JournalUnreadable):  # what nobody can read is erased without
            ties = (await ties_of(store, head)).to_dict()
    said: Mapping[str, Any] = await seal(saga_id, by=by, why=why, at_ms=machine_clock.time_ns() // 1_000_000, ties=ties)
    return {name: said.get(name) for name in ("by", "why", "at_ms")}
