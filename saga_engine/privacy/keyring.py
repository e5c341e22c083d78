"""The keyring: the operator's keys, which wrap the data keys of sagas. Its first key wraps new ones.

A wrapped key is bound to its saga and to the exact key that wrapped it::

    1 byte format · 1 byte length and the name of the key · 8 bytes of its fingerprint · 12 bytes nonce · 48 bytes
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from saga_engine.errors import KeyMissing, KeyRefused, SagaError, SealBroken, SettingInvalid
from saga_engine.files import replacing
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.privacy.cipher import KEY_BYTES, DataKey, aead, broken, place

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Keys = Mapping[str, bytes]
#: What ``Coordinator.open(privacy=…)`` takes.
KeySource = Keys | Callable[[], Keys]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FORMAT: Final = 1
_FINGERPRINT_BYTES: Final = 8
_NONCE_BYTES: Final = 12
#: A source is read again for an unknown key, but not more often than this (seconds).
_AGAIN_S: Final = 1.0


@dataclass(frozen=True)
class Key:
    """A key of the operator: its name, 32 bytes, and what identifies these without revealing them."""

    name: str
    secret: bytes = field(repr=False)
    fingerprint: bytes

    @cached_property
    def aead(self) -> AESGCM:
        """What wraps with it, made once. Raises ``SettingInvalid`` if the extra is not installed."""
        return aead(self.secret)

    @property
    def mark(self) -> str:
        """Its name and fingerprint, by which a store knows it."""
        return mark_of(self.name, self.fingerprint)

    @classmethod
    def of(cls, name: str, secret: bytes) -> Key:
        """Raises ``SettingInvalid``. No message repeats the key."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SettingInvalid(
                f"a key cannot be called {str(name)[:80]!r}", hint="1 to 64 letters, digits, '.', '_' and '-'"
            )
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            raise SettingInvalid(
                f"the key {name} must be {KEY_BYTES} bytes", hint="docs/privacy.md shows how to make one"
            )
        return cls(name, secret, blake2b(secret, person=b"saga keyring", digest_size=_FINGERPRINT_BYTES).digest())


class Keyring:
    """The keys of a source, which is read again when a key is unknown: rotation needs no restart.

    Raises ``SettingInvalid`` for a source without keys, or with an invalid one, and ``KeyMissing`` if the source fails.
    """

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._read_s = machine_clock.monotonic()
        self._keys = _read(source)

    @property
    def current(self) -> Key:
        """The key that wraps new data keys."""
        return next(iter(self._keys.values()))

    @property
    def keys(self) -> Collection[Key]:
        """All keys, the current one first."""
        return self._keys.values()

    async def reload(self) -> bool:
        """Read the source again; whether there may be other keys now. Raises what the constructor raises."""
        if not callable(self._source) or machine_clock.monotonic() - self._read_s < _AGAIN_S:
            return False
        self._read_s = machine_clock.monotonic()
        self._keys = await asyncio.to_thread(_read, self._source)
        return True

    def new(self, saga_id: str, about: str = "") -> DataKey:
        """A new data key for a saga; ``about``: for the store (empty id), what is bound to its key."""
        secret = os.urandom(KEY_BYTES)
        return DataKey(secret, self._wrap(saga_id, secret, about))

    def unwrap(self, saga_id: str, wrapped: bytes, about: str = "", retired: Collection[str] = ()) -> DataKey:
        """The data key. Raises ``KeyMissing``, ``KeyRefused`` and ``SealBroken``."""
        return DataKey(self._secret(saga_id, wrapped, about, retired), wrapped)

    def rewrap(self, saga_id: str, wrapped: bytes, about: str = "", about_then: str = "") -> bytes:
        """The same data key, wrapped by the current key; ``about_then`` is bound to it from now on.

        Also if a retired key wrapped it: the caller decides. Raises ``KeyMissing``, ``KeyRefused`` and ``SealBroken``.
        """
        return self._wrap(saga_id, self._secret(saga_id, wrapped, about, ()), about_then)

    def _wrap(self, saga_id: str, secret: bytes, about: str) -> bytes:
        key, nonce = self.current, os.urandom(_NONCE_BYTES)
        head = bytes([_FORMAT, len(key.name)]) + key.name.encode() + key.fingerprint
        return head + nonce + key.aead.encrypt(nonce, secret, head + place("data key", saga_id, about))

    def _secret(self, saga_id: str, wrapped: bytes, about: str, retired: Collection[str]) -> bytes:
        from cryptography.exceptions import InvalidTag

        name, fingerprint = wrapper_of(wrapped)
        where = place("data key", saga_id, about)
        context = {"saga_id": saga_id} if saga_id else {}
        if retired and mark_of(name, fingerprint) in retired:
            raise KeyRefused(
                f"the key {name} was retired, and something is still, or again, sealed with it",
                hint="an old copy was put back, or a process still wrote with that key; if you know which, "
                f"`saga keys rewrap {saga_id or '…'}` accepts it",
                key=name,
                **context,
            )
        key = self._keys.get(name)
        if key is None:
            raise missing(name, **context)
        if key.fingerprint != fingerprint:
            raise KeyRefused(
                f"the key {name} of this process is not the one that sealed this",
                hint="two keys have one name: give back the first one, and another name to the second",
                key=name,
                **context,
            )
        size = 2 + len(name) + _FINGERPRINT_BYTES
        head, nonce, sealed = wrapped[:size], wrapped[size : size + _NONCE_BYTES], wrapped[size + _NONCE_BYTES :]
        try:
            return key.aead.decrypt(nonce, sealed, head + where)
        except (InvalidTag, ValueError) as error:
            raise broken(where) from error


def wrapper_of(wrapped: bytes) -> tuple[str, bytes]:
    """The name and the fingerprint of the key that wrapped a data key. Raises ``SealBroken``."""
    if len(wrapped) < 2 or wrapped[0] != _FORMAT:
        raise SealBroken("a wrapped key cannot be read", hint="a newer engine wrote it, or the store was changed")
    end = 2 + wrapped[1]
    return wrapped[2:end].decode("ascii", "replace"), wrapped[end : end + _FINGERPRINT_BYTES]


def mark_of(name: str, fingerprint: bytes) -> str:
    """What stands for a key in a store's own words."""
    return f"{name}:{fingerprint.hex()}"


def missing(name: str, **context: str) -> KeyMissing:
    """The error of a process that lacks a key; ``name`` is empty if it has none at all."""
    what = f"the key {name}" if name else "keys"
    return KeyMissing(
        f"this is sealed, and this process does not have {what}",
        hint="give it with [privacy] in saga.toml or SAGA_PRIVACY_KEYS (docs/privacy.md); nothing was changed",
        **({"key": name} if name else {}),
        **context,
    )


# --- sources -------------------------------------------------------------------------------------------------------


def parse_keys(text: str, where: str) -> Keys:
    """Keys as ``NAME:BASE64``, separated by commas or lines; '#' begins a comment. Raises ``SettingInvalid``."""
    found: dict[str, bytes] = {}
    for line in text.splitlines():
        for item in line.partition("#")[0].split(","):
            if not item.strip():
                continue
            name, colon, encoded = (part.strip() for part in item.partition(":"))
            try:
                secret = base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                secret = b""
            if not colon or not secret:
                # A message must not repeat what may be a key.
                raise SettingInvalid(
                    f"{where} has an entry that is not NAME:BASE64", hint="docs/privacy.md shows how to make one"
                )
            if name in found:
                raise SettingInvalid(f"{where} has the key {name[:64]!r} twice", hint="each key has its own name")
            found[name] = secret
    return found


def keys_from_file(path: Path) -> Callable[[], Keys]:
    """The keys in a file, which nobody else may write. Its source raises ``SettingInvalid``."""

    def read() -> Keys:
        try:
            mode = path.stat().st_mode
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingInvalid(f"the keys in {path} cannot be read: {error}", hint="docs/privacy.md") from error
        if os.name == "posix" and mode & 0o022:
            raise SettingInvalid(f"others may write the keys in {path}", hint=f"chmod 600 {path}")
        return parse_keys(text, str(path))

    return read


def made(name: str) -> str:
    """A new key, as a line of a file of keys. Raises ``SettingInvalid`` for a name that no key can have."""
    secret = os.urandom(KEY_BYTES)
    return f"{Key.of(name, secret).name}:{base64.b64encode(secret).decode()}"


def add_to_file(path: Path, line: str) -> None:
    """Add a key at the end of a file of keys, which is made if there is none. Raises ``SettingInvalid``.

    The file is replaced at once, and is on the disk then: a key that seals something must not be lost.
    """
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        known = parse_keys(before, str(path))
        name = line.partition(":")[0]
        if name in known:
            raise SettingInvalid(f"{path} has the key {name!r} already", hint="each key has its own name")
        if before and not before.endswith("\n"):
            before += "\n"
        # Who may read the file is the operator's choice; nobody else may write it.
        with replacing(path, path.stat().st_mode & 0o755 if before else 0o600) as file:
            file.write(f"{before}{line}\n".encode())
    except (OSError, UnicodeDecodeError) as error:
        raise SettingInvalid(f"the keys in {path} cannot be written: {error}", hint="docs/privacy.md") from error


def _read(source: KeySource) -> dict[str, Key]:
    """The keys of a source. A function of the operator's asks a key service, which may be away."""
    if not callable(source):
        return _keys_of(source)
    try:
        return _keys_of(source())
    except SagaError:
        raise
    except Exception as error:
        # Its text may repeat what was asked for, with a token.
        raise KeyMissing(
            f"the function that returns the keys raised {type(error).__name__}",
            hint="mend it, or wait until the key service is back; nothing was changed",
        ) from error


def _keys_of(found: Keys) -> dict[str, Key]:
    if not isinstance(found, Mapping) or not found:
        raise SettingInvalid("there are no keys to seal with", hint="docs/privacy.md shows how to make one")
    return {name: Key.of(name, secret) for name, secret in found.items()}
