"""Signed links that give one answer to one question: chats send them, the server shows and carries them out.

Who has a link may give its answer until it expires, and nothing else. A link decides nothing by being opened: mail
scanners and chats fetch every link that they see. The page that it opens has a button, and only that decides.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from saga_engine.errors import SettingInvalid, SignatureInvalid
from saga_engine.ports import Question
from saga_engine.ports.machine_clock import machine_clock

#: The path of links on the server; the token follows.
PATH: Final = "/links/"
LIFE_S: Final = 86400.0
_KEY_CHARS: Final = 32
_KEY_HINT: Final = 'python -c "import secrets; print(secrets.token_urlsafe(32))" makes one'
#: How long a page that was opened may be acted on. It is shown afresh after that.
_PAGE_MS: Final = 3_600_000
_MOST_CHARS: Final = 4096


class Link(NamedTuple):
    """What a link is for. ``to``: whom it was sent to; ``ends_ms``: when it expires (Unix ms).

    ``identity``: which of the sagas that ever had this id it is for (``Question.identity``).

    ``name`` is a short name of the link for journals; it is no secret, and does not lead back to the link.
    """

    tenant: str
    saga_id: str
    identity: str
    question_id: str
    option: str
    to: str
    ends_ms: int
    name: str

    @property
    def by(self) -> str:
        """Who answers through it, for the journal."""
        return f"link:{self.to}#{self.name}"


class Links:
    """Makes and reads links. ``url``: the server's address as its readers reach it.

    ``keys`` sign: the first one makes links, any of them reads, so that a key can be replaced while the links of both
    are valid. ``life_s``: how long a link lives; never longer than its question. ``tenant``: of the sagas whose
    questions are sent. Raises ``SettingInvalid``.
    """

    def __init__(self, url: str, keys: str | Sequence[str], *, life_s: float = LIFE_S, tenant: str = "") -> None:
        self.url = _base(url)
        given = [keys] if isinstance(keys, str) else list(keys)
        if not given:
            raise SettingInvalid("links need a key", hint=_KEY_HINT)
        if any(len(key) < _KEY_CHARS for key in given):
            raise SettingInvalid(f"a key of links has less than {_KEY_CHARS} characters", hint=_KEY_HINT)
        # A key is for links alone, whatever else the same text may sign.
        self._keys = [hmac.digest(key.encode(), b"saga one-tap links", "sha256") for key in given]
        self.life_s = life_s
        self.tenant = tenant

    def __repr__(self) -> str:
        return f"Links({self.url})"

    @property
    def host(self) -> str:
        """The name under which the links reach the server."""
        return urlsplit(self.url).hostname or ""

    def of(self, question: Question, to: str) -> dict[str, str]:
        """The URL of each answer that a link may give to this question; ``to``: who gets them."""
        now_ms = _now_ms()
        ends_ms = now_ms + round(self.life_s * 1000)
        if question.expires_ms is not None:
            ends_ms = min(ends_ms, question.expires_ms)
        return {option: self.url + PATH + self._made(question, option, to, ends_ms) for option in linked(question)}

    def saga_page(self, saga_id: str) -> str:
        """The page of a saga in the console, for those who may sign in."""
        return f"{self.url}/ui/sagas/{saga_id}"

    def _made(self, question: Question, option: str, to: str, ends_ms: int) -> str:
        told = [self.tenant, question.saga_id, question.identity, question.question_id, option, to, ends_ms]
        text = _base64(json.dumps(told, separators=(",", ":")).encode())
        return f"{text}.{_base64(_signed(self._keys[0], 'link', text))}"

    def read(self, token: str) -> Link:
        """What a token is for, also if it has expired. Raises ``SignatureInvalid`` for what was not made here."""
        text, _, signature = token.partition(".")
        whole = token.isascii() and len(token) <= _MOST_CHARS
        if not whole or not self._fits(signature, "link", text):
            raise SignatureInvalid("this is not a link of this server", hint="open it as it was sent")
        told = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if len(told) != len(Link._fields) - 1:
            raise SignatureInvalid("this link was made by another version", hint="open the saga in the console")
        return Link._make([*told, hashlib.sha256(token.encode()).hexdigest()[:8]])

    def page_key(self, token: str, call: str) -> str:
        """What the form of a page sends back: it proves that the page was opened, when, and which call it showed."""
        at = str(_now_ms())
        return f"{at}.{_base64(_signed(self._keys[0], 'page', at, token, call))}"

    def fits_page(self, given: str, token: str, call: str) -> bool:
        """Whether the key is that of a page of this link, with this call, opened within the last hour."""
        at, _, signature = given.partition(".")
        if not given.isascii() or not at.isdecimal() or len(at) > 15 or not 0 <= _now_ms() - int(at) <= _PAGE_MS:
            return False
        return self._fits(signature, "page", at, token, call)

    def _fits(self, signature: str, *parts: str) -> bool:
        """Whether any of the keys signed the parts, in a time that does not tell how nearly."""
        return any([hmac.compare_digest(_base64(_signed(key, *parts)), signature) for key in self._keys])  # noqa: C419


def linked(question: Question) -> list[str]:
    """The answers that a link may give: approve and deny, or those that the plan offers; never a claim of a fact."""
    if question.kind in ("approval", "compensation"):
        return [option for option in question.options if option in ("approve", "deny")]
    return [option for option in question.options if option != "answer"] if question.kind == "ask" else []


def _signed(key: bytes, *parts: str) -> bytes:
    return hmac.digest(key, "\0".join(parts).encode(), "sha256")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _base(url: str) -> str:
    try:
        split = urlsplit(url)
        fits = split.scheme in ("http", "https") and split.hostname and not split.query and not split.fragment
        _ = split.port  # a port that is no number is found only when it is read
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        raise SettingInvalid("the url of links is no address of a server", hint="https://saga.example.com")
    return url.rstrip("/")


def _now_ms() -> int:
    return machine_clock.time_ns() // 1_000_000
