"""Data keys: AES-256-GCM (NIST SP 800-38D) with nonces that follow from what is sealed.

A store recognises a write that is repeated after a lost answer by its bytes, so the same data at the same place must
give the same bytes. The nonce is a keyed digest of place and data (the construction of SIV, Rogaway and Shrimpton,
*Deterministic Authenticated-Encryption*, 2006): it repeats only together with both, and reveals nothing but that.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from saga_engine.errors import SealBroken, SettingInvalid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
#: The beginning of sealed bytes; no JSON begins so.
_BYTES: Final = b"\x01S"
#: The beginning of a sealed text.
_TEXT: Final = "~s1."


class _Shown(msgspec.Struct, omit_defaults=True):
    """What a sealed record shows: its kind, when it was made, and its step."""

    k: str = ""
    at: int = 0
    step: str = ""


class _Named(msgspec.Struct):
    id: str = ""


_shown: Final = msgspec.json.Decoder(_Shown)
_named: Final = msgspec.json.Decoder(_Named)
_encode: Final = msgspec.json.Encoder().encode


class DataKey:
    """The key of one saga, or of the store. ``wrapped`` is the form in which the store keeps it."""

    __slots__ = ("_aead", "_names", "_nonces", "_secret", "wrapped")

    def __init__(self, secret: bytes, wrapped: bytes) -> None:
        self._aead = aead(secret)
        self._nonces = _subkey(secret, b"saga nonces", _NONCE_BYTES)
        self._secret = secret
        #: Most sagas have nothing whose name is keyed.
        self._names: blake2b | None = None
        self.wrapped = wrapped

    # --- bytes ---

    def seal(self, place: bytes, data: bytes, head: bytes = b"") -> bytes:
        """The sealed form of ``data``, which opens at no other place; after ``head``, which stays clear."""
        digest = self._nonces.copy()
        digest.update(b"%d:%b%b" % (len(place), place, data))
        nonce = digest.digest()
        return b"%b%b%b" % (head, nonce, self._aead.encrypt(nonce, data, place))

    def open(self, place: bytes, sealed: bytes) -> bytes:
        """What was sealed at this place. Raises ``SealBroken``."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._aead.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place)
        except (InvalidTag, ValueError) as error:
            raise broken(place) from error

    def seal_bytes(self, place: bytes, data: bytes) -> bytes:
        """Sealed bytes that can be told from others (``is_sealed``)."""
        return _BYTES + self.seal(place, data)

    def open_bytes(self, place: bytes, data: bytes) -> bytes:
        """The content of ``seal_bytes``. Raises ``SealBroken``."""
        if not data.startswith(_BYTES):
            raise broken(place)
        return self.open(place, data[len(_BYTES) :])

    # --- records: their kind, time and step stay readable ---

    def seal_record(self, saga_id: str, seq: int, data: bytes) -> bytes:
        """A sealed record. What it shows is bound to it."""
        try:
            shown = _encode(_shown.decode(data))
        except msgspec.MsgspecError:
            shown = b"{}"  # whatever a newer engine writes
        return self.seal(_place_of(saga_id, seq, shown), data, b"%b%b\0" % (_BYTES, shown))

    def open_record(self, saga_id: str, seq: int, data: bytes) -> bytes:
        """The record. Raises ``SealBroken``."""
        shown, end, sealed = data[len(_BYTES) :].partition(b"\0")
        place = _place_of(saga_id, seq, shown)
        if not (data.startswith(_BYTES) and end):
            raise broken(place)
        return self.open(place, sealed)

    # --- texts and JSON ---

    def seal_text(self, place: bytes, text: str) -> str:
        """A sealed text, without characters that mean anything to a store."""
        return _TEXT + base64.urlsafe_b64encode(self.seal(place, text.encode("utf-8", "surrogatepass"))).decode()

    def open_text(self, place: bytes, text: str) -> str:
        """The content of ``seal_text``. Raises ``SealBroken``."""
        if not is_sealed_text(text):
            raise broken(place)
        return self.open(place, unbased(place, text.removeprefix(_TEXT))).decode("utf-8", "surrogatepass")

    def seal_message(self, place: bytes, data: bytes) -> bytes:
        """A sealed message: JSON that begins with its id, by which the store knows one that is posted again."""
        sealed = base64.b64encode(self.seal(place, data)).decode()
        return b'{"id":%b,"sealed":"%b"}' % (_encode(message_id(data)), sealed.encode())

    def open_message(self, place: bytes, data: bytes) -> bytes:
        """The message. Raises ``SealBroken``."""
        try:
            found = msgspec.json.decode(data, type=dict[str, str])["sealed"]
        except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
            raise broken(place) from error
        return self.open(place, unbased(place, found))

    # --- names ---

    def name(self, *parts: str) -> str:
        """A name in place of one that would reveal a value: the same parts have the same one. 32 hex digits."""
        if self._names is None:
            self._names = _subkey(self._secret, b"saga names", 16)
        digest = self._names.copy()
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(data))
            digest.update(data)
        return digest.hexdigest()


def _subkey(secret: bytes, purpose: bytes, size: int) -> blake2b:
    """A keyed digest for one purpose alone."""
    return blake2b(key=blake2b(key=secret, person=purpose, digest_size=KEY_BYTES).digest(), digest_size=size)


def aead(secret: bytes) -> AESGCM:
    """AES-256-GCM with this key. Raises ``SettingInvalid`` if the extra is not installed."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise SettingInvalid(
            "sealing needs an extra that is not installed", hint="pip install 'saga-engine[privacy]'"
        ) from error
    return AESGCM(secret)


def is_sealed(data: bytes) -> bool:
    """Whether bytes are sealed."""
    return data.startswith(_BYTES)


def is_sealed_text(text: str) -> bool:
    """Whether a text is sealed."""
    return text.startswith(_TEXT)


def shown_of(data: bytes) -> dict[str, object]:
    """What a sealed record shows without a key, as it stands there: nobody has vouched for it."""
    try:
        found = msgspec.json.decode(data[len(_BYTES) :].partition(b"\0")[0], type=_Shown)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {"k": found.k, "at": found.at, **({"step": found.step} if found.step else {})}


def message_id(data: bytes) -> str:
    """The id that a message gives itself; empty if it is none."""
    try:
        return _named.decode(data).id
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def unbased(place: bytes, text: str) -> bytes:
    """The bytes of a text in Base64. Raises ``SealBroken``."""
    try:
        return base64.b64decode(text, altchars=b"-_" if "-" in text or "_" in text else None, validate=True)
    except ValueError as error:
        raise broken(place) from error


def place(kind: str, *parts: str) -> bytes:
    """The place of a payload: what it is, and where."""
    return b"\0".join([kind.encode(), *(f"{len(part)}:{part}".encode("utf-8", "surrogatepass") for part in parts)])


def broken(place: bytes) -> SealBroken:
    """The error of a payload that does not open at its place."""
    what = place.partition(b"\0")[0].decode("ascii", "replace")
    return SealBroken(
        f"a sealed {what} is not what was written at its place",
        hint="it was changed, moved from elsewhere, or put there by another program: restore it from a backup",
        place=place.decode("utf-8", "replace")[:200].replace("\0", " "),
    )


def _place_of(saga_id: str, seq: int, shown: bytes) -> bytes:
    return b"record\0%b\0%d\0%b" % (saga_id.encode(), seq, shown)


def opened_records(saga_id: str, key: DataKey | None, start: int, records: Sequence[bytes]) -> Sequence[bytes]:
    """The records of a saga. Raises ``SealBroken``; one in clear among sealed ones was put there by somebody else."""
    if key is not None:
        return [key.open_record(saga_id, start + at, data) for at, data in enumerate(records)]
    if any(map(is_sealed, records)):
        raise SealBroken(
            f"the records of saga {saga_id} are sealed, and its key is gone from its head",
            hint="something outside the engine removed it; restore it from a backup",
            saga_id=saga_id,
        )
    return records
