"""The fields of ``[escalation]``, of its links and of its hooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from saga_engine.hooks.links import LIFE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationTable:
    """When and how operators are notified of open questions.

    ``remind_s``: seconds between reminders of an unanswered question; 0: none. ``further_after_s``: after so many
    seconds the hooks of level 2 are notified, too; 0: never. ``payloads``: whether hooks get what a question is about;
    by default unless the store is sealed. ``hooks``, ``links``: tables of their own, below.
    """

    remind_s: float = 3600.0
    further_after_s: float = 86400.0
    payloads: bool | None = None
    hooks: list[Mapping[str, Any]] = field(default_factory=list)
    links: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksTable:
    """Links in messages that answer with one tap.

    ``url``: the address at which their readers reach ``saga serve``. ``key``: ``$secret.NAME``, at least 32 characters;
    several while a key is replaced. ``key_file``: in place of ``key``: a file with a key in each line, relative to
    ``saga.toml``. ``life_s``: how long a link lives, never longer than its question. ``tenant``: that of the sagas
    whose questions are sent.
    """

    url: str
    key: str | list[str] | None = None
    key_file: str | None = None
    life_s: float = LIFE_S
    tenant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookTable:
    """One channel to operators.

    ``kind``: the kind of the channel. ``level``: 1: notified at once and with each reminder; 2: with the first reminder
    after ``further_after_s``. ``kinds``: only questions of these kinds; by default all. ``only_to``: only what plans
    ask of these names, roles or addresses; what no hook of level 1 takes comes here all the same.
    """

    kind: Literal["log", "webhook", "apprise"]
    level: int = 1
    kinds: str | list[str] | None = None
    only_to: str | list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTable(HookTable):
    """A line of the log.

    ``log_level``: its level.
    """

    log_level: Literal["debug", "info", "warning", "error", "critical"] = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTable(HookTable):
    """A POST to a web address, or a card to a chat.

    ``url``: the address; it may hold ``$secret.NAME``. ``secret``: ``$secret.NAME``, with which the body is signed;
    several while one is replaced. ``headers``: further headers, with ``$secret.NAME`` for secrets. ``timeout_s``: the
    time for one delivery. ``form``: the chat whose card is sent: ``slack``, ``feishu``, ``dingtalk`` or ``wecom``.
    ``recipient``: sends links that answer with one tap, to those of this name. ``language``: of the card's own words:
    ``en`` (the default) or ``zh``.
    """

    url: str
    secret: str | list[str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    form: str | None = None
    recipient: str | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppriseTable(HookTable):
    """A message to chats and mail.

    ``urls``: the addresses of apprise; they may hold ``$secret.NAME``. ``timeout_s``: the time for each of them.
    ``recipient``: sends links that answer with one tap, to those of this name. ``language``: of the message's own
    words: ``en`` (the default) or ``zh``.
    """

    urls: str | list[str]
    timeout_s: float = 30.0
    recipient: str | None = None
    language: str | None = None
