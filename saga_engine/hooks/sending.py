"""One POST to a configured address: separate connections, no redirects, no proxies, no logs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from saga_engine._version import __version__
from saga_engine.errors import AlertUndelivered, SettingInvalid

if TYPE_CHECKING:
    import ssl

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[ -~]*")
#: Headers that hooks themselves set.
_OURS: Final = frozenset(
    {"host", "content-type", "content-length", "connection", "transfer-encoding"}
    | {"webhook-id", "webhook-timestamp", "webhook-signature"}
)


class Sender:
    """POSTs JSON to ``url``. Raises ``SettingInvalid``; needs the extra ``http``."""

    def __init__(self, url: str, timeout_s: float) -> None:
        if find_spec("httpx2") is None:
            raise SettingInvalid("webhooks need httpx2", hint="pip install 'saga-engine[http]'")
        self.host = _host(url)
        self._url = url
        self._timeout_s = timeout_s
        self._tls: ssl.SSLContext | None = None

    async def deliver(
        self, headers: Sequence[tuple[str, str]], sent: bytes, *, query: str = "", read_bytes: int = 0
    ) -> bytes:
        """The first bytes of a 2xx response's body. Raises ``AlertUndelivered`` for everything else."""
        try:
            async with asyncio.timeout(self._timeout_s):
                status, body = await self._post(headers, sent, query, read_bytes)
        except TimeoutError as error:
            raise self.undelivered(f"did not answer within {self._timeout_s:g} s") from error
        except Exception as error:
            # Only the name of the exception: its text may contain the URL.
            raise self.undelivered(f"could not be reached ({type(error).__name__})") from error
        if not 200 <= status < 300:
            raise self.undelivered(*_refusal(status))
        return body

    def undelivered(self, what: str, hint: str | None = None) -> AlertUndelivered:
        """The error that says what the receiver did."""
        return AlertUndelivered(f"the webhook at {self.host} {what}", hint=hint, host=self.host)

    async def _post(
        self, headers: Sequence[tuple[str, str]], sent: bytes, query: str, read_bytes: int
    ) -> tuple[int, bytes]:
        """The status of the response, and the first bytes of its body. A separate connection: questions are rare.

        It is sent without httpx2's client, which logs whole URLs and uses the proxies of the environment. ``query`` is
        added to that of the URL.
        """
        import httpx2

        if self._tls is None:
            self._tls = httpx2.create_ssl_context()
        request = httpx2.Request(
            "POST",
            f"{self._url}{'&' if '?' in self._url else '?'}{query}" if query else self._url,
            headers=[("Content-Type", "application/json"), ("Connection", "close"), *headers],
            content=sent,
            extensions={"timeout": httpx2.Timeout(self._timeout_s).as_dict()},
        )
        async with httpx2.AsyncHTTPTransport(verify=self._tls) as transport:
            response = await transport.handle_async_request(request)
            try:
                found = b""
                if read_bytes:
                    async for part in response.aiter_raw():
                        found += part
                        if len(found) >= read_bytes:
                            break
                return response.status_code, found[:read_bytes]
            finally:
                await response.aclose()


def _refusal(status: int) -> tuple[str, str | None]:
    """What a status other than 2xx means, and what to do."""
    if 300 <= status < 400:
        return f"answered with a redirect ({status}), which is not followed", "give the URL that it leads to"
    if status == 410:
        return "says that it is gone (410)", "remove it from [escalation]"
    if status in (401, 403):
        return f"refused the question ({status})", "does it have the same secret?"
    return f"answered {status}", None


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


def checked_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers to send along. Raises ``SettingInvalid``."""
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise SettingInvalid(f"the header {name!r} of a webhook has characters that no header has")
        if name.lower() in _OURS:
            raise SettingInvalid(f"the header {name} of a webhook is set by the hook itself")
    given = {name.lower() for name in headers}
    agent = [] if "user-agent" in given else [("User-Agent", f"saga-engine/{__version__}")]
    return [*agent, *headers.items()]
