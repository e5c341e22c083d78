"""A trace's signature: an HMAC over the last line, and through its ``prev`` over the whole chain.

The chain of hashes alone has no key: an attacker who can rewrite a file can recompute it. The signature needs the key.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Any, Final

from saga_engine.errors import SettingInvalid

ALGORITHM: Final = "HMAC-SHA256"
#: Signed with the line, so that the same key in another place signs nothing that passes for a trace.
_CONTEXT: Final = b"saga-trace/1 end\n"
_MIN_BYTES: Final = 32


class TraceKey:
    """A secret that signs and verifies traces. Raises ``SettingInvalid`` for fewer than 32 bytes."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _MIN_BYTES:
            raise SettingInvalid(
                f"a trace key has at least {_MIN_BYTES} bytes, this one has {len(secret)}",
                hint="openssl rand -hex 32 > trace.key",
            )
        self._secret = secret

    def __repr__(self) -> str:
        return f"TraceKey({self.id})"

    @property
    def id(self) -> str:
        """Distinguishes keys without disclosing them."""
        return sha256(b"saga-trace key\n" + self._secret).hexdigest()[:16]

    def signature(self, line: bytes) -> dict[str, str]:
        """The member ``signature`` of the last line, whose bytes without signature and hash are ``line``."""
        return {"algorithm": ALGORITHM, "key_id": self.id, "value": self._value(line)}

    def problem(self, line: bytes, signature: Any) -> str | None:
        """The problem of a signature of ``line``; None if this key made it."""
        if not isinstance(signature, dict):
            return "it has no signature"
        if signature.get("algorithm") != ALGORITHM:
            return f"it is signed with {str(signature.get('algorithm'))[:40]!r}, this engine verifies {ALGORITHM!r}"
        value = signature.get("value")
        if isinstance(value, str) and value.isascii() and hmac.compare_digest(value, self._value(line)):
            return None
        said = str(signature.get("key_id"))[:40]
        if said != self.id:
            return f"its signature does not fit: it names the key {said!r}, the one that was given is {self.id!r}"
        return "its signature does not fit: the trace was rewritten by somebody without the key"

    def _value(self, line: bytes) -> str:
        return hmac.new(self._secret, _CONTEXT + line, sha256).hexdigest()
