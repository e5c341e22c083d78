"""``[escalation]`` of ``saga.toml`` as hooks; the page ``docs/escalation.md`` explains it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from saga_engine.core.questions import OPTIONS
from saga_engine.errors import SettingInvalid
from saga_engine.hooks.tables import AppriseTable, EscalationTable, HookTable, LinksTable, LogTable, WebhookTable
from saga_engine.plan.ask import addressee_problem
from saga_engine.ports import Escalation, EscalationHook, Question
from saga_engine.settings import TableReader, declared_fields

if TYPE_CHECKING:
    from saga_engine.hooks.links import Links

_T = TypeVar("_T")
#: The kinds of questions, and of the notices that ask nothing.
KINDS: Final = (*OPTIONS, "deferred", "finally", "hold-overdue")
_SECRET: Final = re.compile(r"\$secret\.([A-Za-z_]\w*)")
_YEAR_S: Final = 366 * 86400.0
_RECIPIENT: Final = re.compile(r"[\w.-]{1,40}")
_LINKS_HINT: Final = "docs/chat.md shows it"


class QuestionFilter:
    """Passes on questions of some kinds, or to some addressees; the others count as delivered.

    ``others``: the hooks beside it, itself included. What none of them would take for its addressee, it passes on, so
    that a question with an unknown addressee is told to somebody.
    """

    def __init__(
        self,
        hook: EscalationHook,
        kinds: Sequence[str] = KINDS,
        only_to: Sequence[str] = (),
        others: Sequence[EscalationHook] = (),
    ) -> None:
        self.hook = hook
        self.kinds = frozenset(kinds)
        self.only_to = frozenset(name.casefold() for name in only_to)
        self._others = others

    def __repr__(self) -> str:
        return f"QuestionFilter({self.hook!r}, {sorted(self.kinds)}, {sorted(self.only_to)})"

    async def __call__(self, question: Question) -> None:
        """Pass it on, or not."""
        if question.kind in self.kinds and (
            self.for_us(question) or not any(_wants(each, question) for each in self._others)
        ):
            await self.hook(question)

    def for_us(self, question: Question) -> bool:
        """Whether it is of a kind and to an addressee of this hook."""
        return question.kind in self.kinds and (not self.only_to or question.to.casefold() in self.only_to)


def _wants(hook: EscalationHook, question: Question) -> bool:
    return not isinstance(hook, QuestionFilter) or hook.for_us(question)


def hooks_from(
    table: Mapping[str, Any],
    *,
    source: str,
    base: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    language: str = "",
) -> Escalation:
    """The hooks in ``table``, which is ``[escalation]`` of the file ``source`` in the folder ``base``.

    ``$secret.NAME`` in URLs, secrets and headers is read from ``environ`` now. Raises ``SettingInvalid``, also for an
    unknown field, a variable that is not set, and an extra that is not installed: a broken channel must not stay
    undetected until it is needed. ``language``: that of hooks that name none.
    """
    fields = _Fields(f"[escalation] in {source}", table, environ, of=EscalationTable)
    remind_s = fields.seconds("remind_s", least=1.0, zero=True)
    further_after_s = fields.seconds("further_after_s", least=1.0, zero=True)
    payloads = fields.any("payloads")
    if not isinstance(payloads, bool | None):
        fields.refuse("payloads", f"must be true or false, not {payloads!r}")
    links = _links(fields, source, base, environ)
    listed = fields.any("hooks")
    if not isinstance(listed, list):
        fields.refuse("hooks", "must be a list of tables", "write [[escalation.hooks]]")
    fields.end()
    levels: dict[int, list[EscalationHook]] = {1: [], 2: []}
    longest_s = Escalation().timeout_s
    for number, each in enumerate(listed, 1):
        level, hook = _hook(
            _Fields(
                f"[[escalation.hooks]] number {number} in {source}",
                each,
                environ,
                of=HookTable,
                links=links,
                language=language,
            ),
            levels[1],
        )
        levels[level].append(hook)
        longest_s = max(longest_s, _limit_s(hook))
    if levels[2]:
        # Level 2 is notified beside level 1, with a reminder.
        for field, value in (("further_after_s", further_after_s), ("remind_s", remind_s)):
            if not value:
                fields.refuse(field, "is 0, so the hooks of level 2 would never be called")
        if not levels[1]:
            fields.refuse(
                "hooks", "has hooks of level 2 alone", "level 2 is notified beside level 1: add one of level 1"
            )
    return Escalation(tuple(levels[1]), tuple(levels[2]), remind_s, further_after_s, longest_s, payloads)


def links_from(
    table: Mapping[str, Any], *, source: str, base: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Links | None:
    """What makes and reads the links of ``[escalation.links]``; None without that table. Raises ``SettingInvalid``."""
    return _links(_Fields(f"[escalation] in {source}", table, environ, of=EscalationTable), source, base, environ)


def _links(escalation: _Fields, source: str, base: Path | None, environ: Mapping[str, str]) -> Links | None:
    table = escalation.any("links")
    if table is None:
        return None
    from saga_engine.hooks.links import Links

    fields = _Fields(f"[escalation.links] in {source}", table, environ, of=LinksTable)
    url = fields.text("url")
    if not url:
        fields.refuse("url", "is missing", "the address at which the readers of links reach `saga serve`")
    keys = [fields.only_secret("key", one) for one in fields.texts("key") or ()]
    path = fields.text("key_file")
    if bool(keys) == bool(path):
        fields.refuse("key", "or key_file must be given, and not both", 'key = "$secret.SAGA_LINK_KEY"')
    if path:
        try:
            keys = ((base or Path()) / path).read_text().split()
        except (OSError, UnicodeDecodeError) as error:
            fields.refuse("key_file", f"cannot be read ({type(error).__name__})", "a file with a key in each line")
    life_s = fields.seconds("life_s", least=60.0)
    tenant = fields.text("tenant")
    fields.end()
    return fields.made(lambda: Links(url, keys, life_s=life_s, tenant=tenant))


def _limit_s(hook: EscalationHook) -> float:
    """The time limit of a hook: a little longer than its own, because its own error is clearer."""
    inner = hook.hook if isinstance(hook, QuestionFilter) else hook
    return float(getattr(inner, "timeout_s", 0.0)) + 5.0


def _hook(fields: _Fields, others: Sequence[EscalationHook]) -> tuple[int, EscalationHook]:
    kind = fields.text("kind")
    if kind not in _MAKERS:
        fields.refuse("kind", f"cannot be {kind!r}" if kind else "is missing", f"one of: {', '.join(_MAKERS)}")
    of, make = _MAKERS[kind]
    fields.declare(declared_fields(of))
    level = fields.any("level")
    if type(level) is not int or level not in (1, 2):
        fields.refuse("level", f"must be 1 or 2, not {level!r}")
    kinds = fields.texts("kinds")
    for each in kinds or ():
        if each not in KINDS:
            fields.refuse("kinds", f"names {each!r}, which no question is", f"kinds: {', '.join(KINDS)}")
    if kinds == []:
        fields.refuse("kinds", "is empty, so the hook would never be called", "leave it out for all kinds")
    only_to = fields.texts("only_to")
    for each in only_to if only_to is not None else ():
        if problem := addressee_problem(each):
            fields.refuse("only_to", f"names nobody: {problem}")
    if only_to == []:
        fields.refuse("only_to", "is empty, so nobody is named", "leave it out for all addressees")
    hook = make(fields)
    filtered = QuestionFilter(hook, KINDS if kinds is None else kinds, only_to or (), others)
    return level, hook if kinds is None and only_to is None else filtered


def _log(fields: _Fields) -> EscalationHook:
    from saga_engine.hooks.log import LEVELS, LogHook

    name = fields.text("log_level")
    if name not in LEVELS:
        fields.refuse("log_level", f"cannot be {name!r}", f"one of: {', '.join(LEVELS)}")
    fields.end()
    return LogHook(LEVELS[name])


def _webhook(fields: _Fields) -> EscalationHook:
    from saga_engine.hooks.webhook import WebhookHook

    url = fields.revealed("url", fields.text("url"))
    secrets = [fields.only_secret("secret", one) for one in fields.texts("secret") or ()]
    timeout_s = fields.seconds("timeout_s", least=0.1)
    headers = fields.any("headers")
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        fields.refuse("headers", "must be a table of texts")
    sent = {name: fields.revealed("headers", value) for name, value in headers.items()}
    form, to, language = fields.text("form"), fields.recipient(), fields.text("language")
    fields.end()
    if not form:
        if language:
            fields.refuse("language", "is that of a card", "give the card's form as well, or leave it out")
        links = fields.links if to else None
        return fields.made(
            lambda: WebhookHook(
                url,
                secrets,
                timeout_s=timeout_s,
                headers=sent,
                links=links,
                to=to or "webhook",
                pages=fields.links,
            )
        )
    from saga_engine.hooks.card_hook import CardHook

    if fields.links is None:
        fields.refuse("form", "needs [escalation.links]: a card has buttons", _LINKS_HINT)
    if len(secrets) > 1:
        fields.refuse("secret", "of a card is one: robots have no second")
    found, secret = fields.links, "".join(secrets)
    more = fields.language(language)
    return fields.made(
        lambda: CardHook(url, form, found, to=to, secret=secret, timeout_s=timeout_s, headers=sent, **more)
    )


def _apprise(fields: _Fields) -> EscalationHook:
    from saga_engine.hooks.chat import AppriseHook

    urls = [fields.revealed("urls", url) for url in fields.texts("urls") or ()]
    timeout_s = fields.seconds("timeout_s", least=0.1)
    to, language = fields.recipient(), fields.text("language")
    fields.end()
    links = fields.links if to else None
    more = fields.language(language)
    return fields.made(
        lambda: AppriseHook(urls, timeout_s=timeout_s, links=links, to=to or "apprise", pages=fields.links, **more)
    )


#: By the kind of a hook: the fields of its table, and what makes it.
_MAKERS: Final[Mapping[str, tuple[type, Callable[[_Fields], EscalationHook]]]] = {
    "log": (LogTable, _log),
    "webhook": (WebhookTable, _webhook),
    "apprise": (AppriseTable, _apprise),
}


class _Fields(TableReader):
    """The fields of one table; ``environ`` has the secrets, whose values no error repeats."""

    def __init__(
        self,
        where: str,
        table: Any,
        environ: Mapping[str, str],
        *,
        of: type,
        links: Links | None = None,
        language: str = "",
    ) -> None:
        super().__init__(where, table, of=of)
        self._environ = environ
        self.links = links
        self._language = language

    def language(self, named: str) -> dict[str, Any]:
        """The argument of a hook for its language: the one that its table names, else that of the settings."""
        found = named or self._language
        return {"language": found} if found else {}

    def recipient(self) -> str:
        """To whom links are sent, as the journal calls them; empty: no links are sent."""
        name = self.text("recipient")
        if name and not _RECIPIENT.fullmatch(name):
            self.refuse("recipient", "is no name", "1 to 40 letters, digits, '.', '_' and '-'")
        if name and self.links is None:
            self.refuse("recipient", "gets links, and there is no [escalation.links]", _LINKS_HINT)
        return name

    def texts(self, field: str) -> list[str] | None:
        """A list of texts, or a single one; None if it is not given."""
        value = self.any(field)
        if value is None:
            return None
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            self.refuse(field, "must be a text or a list of texts")
        return listed

    def seconds(self, field: str, *, least: float, zero: bool = False) -> float:
        """A number of seconds from ``least`` to a year; with ``zero``, 0 is allowed, too."""
        value = self.any(field)
        fits = not isinstance(value, bool) and isinstance(value, int | float) and isfinite(value)
        if not fits or not (least <= value <= _YEAR_S or (zero and value == 0)):
            never = ", or 0 for never" if zero else ""
            self.refuse(field, f"must be a number of seconds from {least:g} to {_YEAR_S:g}{never}, not {value!r}")
        return float(value)

    def revealed(self, field: str, text: str) -> str:
        """The text with each ``$secret.NAME`` replaced by what the environment has."""

        def value(found: re.Match[str]) -> str:
            known = self._environ.get(found[1])
            if known is None:
                self.refuse(field, f"needs {found[1]}, which the environment does not have", f"set {found[1]}")
            return known

        return _SECRET.sub(value, text)

    def only_secret(self, field: str, text: str) -> str:
        """The value of a text that is wholly ``$secret.NAME``."""
        if not _SECRET.fullmatch(text):
            self.refuse(field, "stands in the file", 'secrets belong into the environment: "$secret.NAME"')
        return self.revealed(field, text)

    def made(self, make: Callable[[], _T]) -> _T:
        """What is made of the table; its errors name the place of its settings."""
        try:
            return make()
        except SettingInvalid as error:
            raise SettingInvalid(f"{self.where}: {error.message}", hint=error.hint) from error
