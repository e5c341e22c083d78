"""Questions as cards to the incoming webhooks of chats, with a button for each answer that one tap may give."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from saga_engine.errors import SettingInvalid
from saga_engine.hooks.cards import FORMS, LIMITS, encoded, message
from saga_engine.hooks.links import Links
from saga_engine.hooks.sending import Sender, checked_headers
from saga_engine.language import LANGUAGES
from saga_engine.ports import Question
from saga_engine.ports.machine_clock import machine_clock

#: The forms whose robots may ask for a signature.
_SIGNED: Final = frozenset({"feishu", "dingtalk"})
_READ_BYTES: Final = 4096
#: What vendors say in an answer with status 200, and what to do.
_HINTS: Final[Mapping[tuple[str, int], str]] = {
    ("feishu", 19021): "the robot's signature: give its key as secret, and compare the clocks",
    ("feishu", 19022): "the robot's list of addresses lacks this machine",
    ("feishu", 19024): "the robot asks for a keyword: let it ask for a signature instead",
    ("feishu", 11232): "the robot is sent too many messages",
    ("dingtalk", 310000): "the robot's security: give its SEC… as secret, or let it accept this address",
    ("dingtalk", 130101): "the robot is sent too many messages: 20 a minute",
    ("dingtalk", 300001): "the robot does not know the access_token of the URL",
    ("wecom", 93000): "the robot does not know the key of the URL",
    ("wecom", 45009): "the robot is sent too many messages: 20 a minute",
}


class CardHook:
    """POSTs each question as a card to ``url``, the incoming webhook of a chat; ``form`` names the chat.

    ``links`` makes the buttons, and ``to`` names those who can tap them, for the journal. ``secret``: that of a robot
    of Feishu or DingTalk that asks for signatures. ``language``: that of the card's own words, ``en`` or ``zh``. An
    answer that the chat calls an error is one, also with status 200: ``AlertUndelivered``. Neither URL nor secret is
    ever logged or part of an error.

    Raises ``SettingInvalid``; needs the extra ``http``.
    """

    def __init__(
        self,
        url: str,
        form: str,
        links: Links,
        *,
        to: str = "",
        secret: str = "",
        timeout_s: float = 10.0,
        headers: Mapping[str, str] | None = None,
        language: str = "en",
    ) -> None:
        if form not in FORMS:
            raise SettingInvalid(f"the form of a card cannot be {form!r}", hint=f"one of: {', '.join(FORMS)}")
        if secret and form not in _SIGNED:
            raise SettingInvalid(f"a webhook of {form} has no secret", hint="its URL is the secret")
        if language not in LANGUAGES:
            raise SettingInvalid(
                f"the language of a card cannot be {language!r}", hint=f"one of: {', '.join(LANGUAGES)}"
            )
        self.timeout_s = timeout_s
        self.form = form
        self.language = language
        self._sender = Sender(url, timeout_s)
        self.host = self._sender.host
        self._links, self._to, self._secret = links, to or form, secret
        self._headers = checked_headers(headers or {})

    def __repr__(self) -> str:
        return f"CardHook({self.form}, {self.host})"

    async def __call__(self, question: Question) -> None:
        """Deliver the question; raises ``AlertUndelivered``."""
        body, query = self._signed(message(question, self._links, self._to, self.form, self.language))
        sent = encoded(body)
        if len(sent) > LIMITS[self.form].message_bytes:
            raise self._sender.undelivered(f"takes no card of {len(sent)} bytes", "saga inbox shows the question")
        answered = await self._sender.deliver(self._headers, sent, query=query, read_bytes=_READ_BYTES)
        code = _code(self.form, answered)
        if code != 0:
            said = f"the code {code}" if code is not None else "no code"
            raise self._sender.undelivered(
                f"refused the card with {said}", _HINTS.get((self.form, code or 0), "the chat's documentation says why")
            )

    def _signed(self, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """The body and the query with the signature that the robot asks for."""
        if not self._secret:
            return body, ""
        if self.form == "feishu":
            stamp = str(int(machine_clock.time()))
            signature = hmac.digest(f"{stamp}\n{self._secret}".encode(), b"", hashlib.sha256)
            return {"timestamp": stamp, "sign": base64.b64encode(signature).decode(), **body}, ""
        stamp = str(machine_clock.time_ns() // 1_000_000)
        signature = hmac.digest(self._secret.encode(), f"{stamp}\n{self._secret}".encode(), hashlib.sha256)
        return body, f"timestamp={stamp}&sign={quote(base64.b64encode(signature), safe='')}"


def _code(form: str, answered: bytes) -> int | None:
    """What the chat answered: 0 is well; None if it is not its form of an answer."""
    if form == "slack":
        return 0  # its status says it
    try:
        found = json.loads(answered)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    code = found.get("code", found.get("StatusCode")) if form == "feishu" else found.get("errcode")
    return code if isinstance(code, int) and not isinstance(code, bool) else None
