"""Questions as signed POST requests, by the specification of Standard Webhooks (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from saga_engine.errors import SettingInvalid
from saga_engine.hooks.links import Links
from saga_engine.hooks.messages import moment
from saga_engine.hooks.sending import Sender, checked_headers
from saga_engine.ports import Question
from saga_engine.ports.machine_clock import machine_clock

_PREFIX: Final = "whsec_"
#: What the specification asks of a secret, in bytes.
_SECRET_BYTES: Final = range(24, 65)


class WebhookHook:
    """POSTs each question to ``url``, signed with ``secret``: ``whsec_`` and base64.

    To rotate a secret, pass both: the request then has a signature by each. A 2xx response is a delivery; everything
    else raises ``AlertUndelivered``: other statuses, redirects (they are not followed), no response within
    ``timeout_s`` seconds for everything. The response body is not read. ``headers`` are sent along. Neither URL nor
    secret is ever logged or part of an error: both may grant access. With ``links``, ``links`` of the body has the URL
    of each answer that one tap may give; ``to`` names their readers in the journal. With ``pages``, ``page`` of the
    body is the saga's page in the console.

    Raises ``SettingInvalid``; needs the extra ``http``.
    """

    def __init__(
        self,
        url: str,
        secret: str | Sequence[str],
        *,
        timeout_s: float = 10.0,
        headers: Mapping[str, str] | None = None,
        links: Links | None = None,
        to: str = "webhook",
        pages: Links | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self._sender = Sender(url, timeout_s)
        self.host = self._sender.host
        self._keys = [_key(one) for one in ([secret] if isinstance(secret, str) else secret)]
        if not self._keys:
            raise SettingInvalid("a webhook needs a secret", hint=_KEY_HINT)
        self._headers = checked_headers(headers or {})
        self._links, self._to, self._pages = links, to, pages

    def __repr__(self) -> str:
        return f"WebhookHook({self.host})"

    async def __call__(self, question: Question) -> None:
        """Deliver the question; raises ``AlertUndelivered``."""
        links = {} if self._links is None else self._links.of(question, self._to)
        sent = payload(question, links, "" if self._pages is None else self._pages.saga_page(question.saga_id))
        headers = self.signed(message_id(question), int(machine_clock.time()), sent)
        await self._sender.deliver([*self._headers, *headers], sent)

    def signed(self, name: str, timestamp: int, sent: bytes) -> list[tuple[str, str]]:
        """The headers that prove the sender of the body, and the time (Unix seconds)."""
        content = f"{name}.{timestamp}.".encode() + sent
        made = (base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in self._keys)
        return [
            ("webhook-id", name),
            ("webhook-timestamp", str(timestamp)),
            ("webhook-signature", " ".join(f"v1,{one}" for one in made)),
        ]


def message_id(question: Question) -> str:
    """The same for every attempt of one round, so that the receiver recognizes a repeat; another one for a reminder."""
    parts = json.dumps([question.saga_id, question.question_id, question.round])
    return "msg_" + hashlib.sha256(parts.encode()).hexdigest()[:32]


def payload(question: Question, links: Mapping[str, str] | None = None, page: str = "") -> bytes:
    """The body: ``type``, ``timestamp`` (when it was asked), ``data``, the question; ``links`` and ``page`` if any."""
    made: dict[str, Any] = {"type": "saga.question" if question.answerable else "saga.notice"}
    if question.asked_ms is not None:
        made["timestamp"] = moment(question.asked_ms)
    made["data"] = question.to_dict()
    if links:
        made["links"] = dict(links)
    if page:
        made["page"] = page
    return json.dumps(made, separators=(",", ":"), allow_nan=False).encode()


# --- what was configured -------------------------------------------------------------------------------------------

_KEY_HINT: Final = "whsec_ and the base64 of 24 to 64 random bytes"


def _key(secret: str) -> bytes:
    """The bytes that sign. The error about a secret does not contain it."""
    if not secret.startswith(_PREFIX):
        raise SettingInvalid("a webhook's secret must begin with whsec_", hint=_KEY_HINT)
    text = secret.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise SettingInvalid("a webhook's secret is not base64", hint=_KEY_HINT) from None
    if len(key) not in _SECRET_BYTES:
        raise SettingInvalid(f"a webhook's secret has {len(key)} bytes", hint=_KEY_HINT)
    return key
