"""Questions as signed POST requests, by the specification of Standard Webhooks (https://www.standardwebhooks.com)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from saga_engine._version import __version__
from saga_engine.errors import AlertUndelivered, SettingInvalid
from saga_engine.hooks.messages import moment
from saga_engine.ports import Question

if TYPE_CHECKING:
    import ssl

_PREFIX: Final = "whsec_"
#: What the specification asks of a secret, in bytes.
_SECRET_BYTES: Final = range(24, 65)
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[ -~]*")
#: Headers that the hook itself sets.
_OURS: Final = frozenset(
    {"host", "content-type", "content-length", "connection", "transfer-encoding"}
    | {"webhook-id", "webhook-timestamp", "webhook-signature"}
)


class WebhookHook:
    """POSTs each question to ``url``, signed with ``secret``: ``whsec_`` and base64.

    To rotate a secret, pass both: the request then has a signature by each. A 2xx response is a delivery; everything
    else raises ``AlertUndelivered``: other statuses, redirects (they are not followed), no response within
    ``timeout_s`` seconds for everything. The response body is not read. ``headers`` are sent along. Neither URL nor
    secret is ever logged or part of an error: both may grant access.

    Raises ``SettingInvalid``; needs the extra ``http``.
    """

    def __init__(
        self,
        url: str,
        secret: str | Sequence[str],
        *,
        timeout_s: float = 10.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if find_spec("httpx2") is None:
            raise SettingInvalid("webhooks need httpx2", hint="pip install 'saga-engine[http]'")
        self.timeout_s = timeout_s
        self.host = _host(url)
        self._url = url
        self._keys = [_key(one) for one in ([secret] if isinstance(secret, str) else secret)]
        if not self._keys:
            raise SettingInvalid("a webhook needs a secret", hint=_KEY_HINT)
        self._headers = _checked(headers or {})
        self._tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"WebhookHook({self.host})"

    async def __call__(self, question: Question) -> None:
        """Deliver the question; raises ``AlertUndelivered``."""
        sent = payload(question)
        headers = self.signed(message_id(question), int(time.time()), sent)
        try:
            async with asyncio.timeout(self.timeout_s):
                status = await self._post(headers, sent)
        except TimeoutError as error:
            raise self._undelivered(f"did not answer within {self.timeout_s:g} s") from error
        except Exception as error:
            # Only the name of the exception: its text may contain the URL.
            raise self._undelivered(f"could not be reached ({type(error).__name__})") from error
        if not 200 <= status < 300:
            raise self._undelivered(*_refusal(status))

    def signed(self, name: str, timestamp: int, sent: bytes) -> list[tuple[str, str]]:
        """The headers that prove the sender of the body, and the time (Unix seconds)."""
        content = f"{name}.{timestamp}.".encode() + sent
        made = (base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in self._keys)
        return [
            ("webhook-id", name),
            ("webhook-timestamp", str(timestamp)),
            ("webhook-signature", " ".join(f"v1,{one}" for one in made)),
        ]

    async def _post(self, headers: list[tuple[str, str]], sent: bytes) -> int:
        """The status of the response. A separate connection: questions are rare.

        It is sent without httpx2's client, which logs whole URLs and uses the proxies of the environment.
        """
        import httpx2

        if self._tls is None:
            self._tls = httpx2.create_ssl_context()
        request = httpx2.Request(
            "POST",
            self._url,
            headers=[*self._headers, ("Content-Type", "application/json"), ("Connection", "close"), *headers],
            content=sent,
            extensions={"timeout": httpx2.Timeout(self.timeout_s).as_dict()},
        )
        async with httpx2.AsyncHTTPTransport(verify=self._tls) as transport:
            response = await transport.handle_async_request(request)
            await response.aclose()
            return response.status_code

    def _undelivered(self, what: str, hint: str | None = None) -> AlertUndelivered:
        return AlertUndelivered(f"the webhook at {self.host} {what}", hint=hint, host=self.host)


def message_id(question: Question) -> str:
    """The same for every attempt of one round, so that the receiver recognizes a repeat; another one for a reminder."""
    parts = json.dumps([question.saga_id, question.question_id, question.round])
    return "msg_" + hashlib.sha256(parts.encode()).hexdigest()[:32]


def payload(question: Question) -> bytes:
    """The body: ``type``, ``timestamp`` (when it was asked) and ``data``, the question."""
    made: dict[str, Any] = {"type": "saga.question" if question.options else "saga.notice"}
    if question.asked_ms is not None:
        made["timestamp"] = moment(question.asked_ms)
    made["data"] = question.to_dict()
    return json.dumps(made, separators=(",", ":"), allow_nan=False).encode()


def _refusal(status: int) -> tuple[str, str | None]:
    if 300 <= status < 400:
        return f"answered with a redirect ({status}), which is not followed", "give the URL that it leads to"
    if status == 410:
        return "says that it is gone (410)", "remove it from [escalation]"
    if status in (401, 403):
        return f"refused the question ({status})", "does it have the same secret?"
    return f"answered {status}", None


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


def _host(url: str) -> str:
    """The host of a URL that a question can be sent to."""
    try:
        split = urlsplit(url)
        _ = split.port  # a port that is no number is found only when it is read
    except ValueError:
        raise SettingInvalid("a webhook's URL cannot be understood", hint="write https://host/path") from None
    if split.scheme not in ("http", "https") or not split.hostname:
        raise SettingInvalid("a webhook's URL must begin with https:// or http:// and have a host")
    if split.username is not None or split.password is not None:
        raise SettingInvalid("a webhook's URL has a user or a password", hint="send an Authorization header instead")
    if not split.hostname.isascii() or not url.isprintable():
        raise SettingInvalid("a webhook's URL has characters that no URL has", hint="write the host in Punycode")
    return split.hostname


def _checked(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise SettingInvalid(f"the header {name!r} of a webhook has characters that no header has")
        if name.lower() in _OURS:
            raise SettingInvalid(f"the header {name} of a webhook is set by the hook itself")
    given = {name.lower() for name in headers}
    agent = [] if "user-agent" in given else [("User-Agent", f"saga-engine/{__version__}")]
    return [*agent, *headers.items()]
