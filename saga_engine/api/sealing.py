"""Which store a process uses: the one that it was given, or one that seals around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
