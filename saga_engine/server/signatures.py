"""Signatures of events that other systems send: Standard Webhooks, Stripe, GitHub. They sign the bytes of the body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from saga_engine.errors import SignatureInvalid
from saga_engine.ports.machine_clock import machine_clock

SCHEMES: Final = ("standard", "stripe", "github")


def verified_id(  # noqa: PLR0917
    scheme: str,
    secrets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    tolerance_s: float,
    now_s: float | None = None,
) -> str:
    """The id of a signed event, which is itself signed: a repetition has the same one.

    ``secrets``: any of them, so that one can be replaced by another. Raises ``SignatureInvalid``.
    """
    now = machine_clock.time() if now_s is None else now_s
    if scheme == "standard":
        return _standard(secrets, headers, body, now, tolerance_s)
    if scheme == "stripe":
        return _stripe(secrets, headers, body, now, tolerance_s)
    return _github(secrets, headers, body)


def standard_key(secret: str) -> bytes:
    """The key in a secret of Standard Webhooks. Raises ``ValueError``."""
    return base64.b64decode(secret.removeprefix("whsec_"), validate=True)


def _standard(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float, tolerance_s: float) -> str:
    event_id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    _require_recent(stamp, now, tolerance_s)
    signed = b".".join((event_id.encode(), stamp.encode(), body))
    given = [text.partition(",")[2] for text in headers.get("webhook-signature", "").split() if text.startswith("v1,")]
    expected = [base64.b64encode(_hmac(standard_key(secret), signed)).decode() for secret in secrets]
    _require_one(given, expected)
    if not event_id:
        raise SignatureInvalid("the event has no webhook-id")
    return event_id


def _stripe(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float, tolerance_s: float) -> str:
    parts = [part.partition("=") for part in headers.get("stripe-signature", "").split(",")]
    stamp = next((value for name, _, value in parts if name.strip() == "t"), "")
    _require_recent(stamp, now, tolerance_s)
    given = [value for name, _, value in parts if name.strip() == "v1"]
    signed = stamp.encode() + b"." + body
    _require_one(given, [_hmac(secret.encode(), signed).hex() for secret in secrets])
    found = _json_id(body)
    return found or _digest(body)


def _github(secrets: Sequence[str], headers: Mapping[str, str], body: bytes) -> str:
    given = headers.get("x-hub-signature-256", "").removeprefix("sha256=")
    _require_one([given], [_hmac(secret.encode(), body).hex() for secret in secrets])
    return _digest(body)  # its delivery's id is not signed, and a time is not sent


def _json_id(body: bytes) -> str:
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    named = found.get("id") if isinstance(found, dict) else None
    return named if isinstance(named, str) and named.isprintable() and len(named) <= 200 else ""


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _require_recent(stamp: str, now: float, tolerance_s: float) -> None:
    if not stamp.isascii() or not stamp.isdecimal() or len(stamp) > 12:
        raise SignatureInvalid("the event has no time", hint="compare the scheme of [server.inbound.NAME]")
    if abs(now - int(stamp)) > tolerance_s:
        raise SignatureInvalid(
            f"the event was signed more than {tolerance_s:g} s from now", hint="compare the clocks; see tolerance_s"
        )


def _require_one(given: Sequence[str], expected: Sequence[str]) -> None:
    """Whether one of the signatures fits, in a time that does not tell how nearly."""
    fits = [hmac.compare_digest(one.encode(), other.encode()) for one in given for other in expected]
    if not any(fits):
        raise SignatureInvalid("the signature does not fit", hint="compare the secret of [server.inbound.NAME]")


def at_path(value: Any, path: str) -> Any:
    """The value at a dotted path such as ``data.object.id``; None if there is none."""
    for part in path.split("."):
        if isinstance(value, list) and part.isdecimal() and len(part) < 7 and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


class Callbacks:
    """Makes and reads the tokens of callback URLs: signed, with an end, for one event of one wait of a saga."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def made(  # noqa: PLR0917
        self, tenant: str, saga_id: str, identity: str, step: str, ends_ms: int, entry: int | None = None
    ) -> str:
        """The token for a wait; ``entry``: for which of its events, if it is for several.

        ``identity``: which of the sagas that ever had this id it is.
        """
        parts = [tenant, saga_id, identity, step, ends_ms, *([] if entry is None else [entry])]
        told = _base64(json.dumps(parts, separators=(",", ":")).encode())
        return f"{told}.{_base64(_hmac(self._key, told.encode()))}"

    def read(self, token: str) -> tuple[str, str, str, str, int | None]:
        """Tenant, saga, its identity, step and which of its events. Raises ``SignatureInvalid``."""
        told, _, signature = token.partition(".")
        expected = _base64(_hmac(self._key, told.encode()))
        if not hmac.compare_digest(expected.encode(), signature.encode()):
            raise SignatureInvalid("this is no callback URL of this server", hint="use it as it was made")
        try:
            tenant, saga_id, identity, step, ends_ms, *entry = json.loads(
                base64.urlsafe_b64decode(told + "=" * (-len(told) % 4))
            )
        except (ValueError, binascii.Error) as error:
            raise SignatureInvalid("this is no callback URL of this server") from error
        if ends_ms <= machine_clock.time_ns() // 1_000_000:
            raise SignatureInvalid("the callback URL has expired", hint="have another one made", saga_id=saga_id)
        return tenant, saga_id, identity, step, entry[0] if entry else None


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
