"""Questions to chat, mail and telephones, through the ``apprise`` package (https://github.com/caronc/apprise)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from saga_engine.errors import AlertUndelivered, SettingInvalid
from saga_engine.hooks.links import Links
from saga_engine.hooks.messages import body, title
from saga_engine.language import LANGUAGES
from saga_engine.ports import Question


class AppriseHook:
    """Sends each question to every one of ``urls``, in plain words, with the command lines that answer it.

    All are notified at the same time; ``AlertUndelivered`` names those that failed, by number and service: a URL may be
    a secret. ``timeout_s`` is for each of them. ``links`` adds a link for each answer that one tap may give; ``to``
    names their readers in the journal, and ``pages`` a link to the saga's page in the console. ``language``: that of
    the message's own words, ``en`` or ``zh``. Raises ``SettingInvalid`` for a URL that apprise does not know; needs the
    extra ``apprise``, which is imported when the hook is created.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        timeout_s: float = 30.0,
        links: Links | None = None,
        to: str = "apprise",
        pages: Links | None = None,
        language: str = "en",
    ) -> None:
        if language not in LANGUAGES:
            raise SettingInvalid(
                f"the language of a message cannot be {language!r}", hint=f"one of: {', '.join(LANGUAGES)}"
            )
        self.timeout_s = timeout_s
        self.language = language
        self._links, self._to, self._pages = links, to, pages
        self._services = _services([urls] if isinstance(urls, str) else list(urls))

    def __repr__(self) -> str:
        return f"AppriseHook({', '.join(name for name, _ in self._services)})"

    async def __call__(self, question: Question) -> None:
        """Deliver the question to all; raises ``AlertUndelivered``."""
        about = title(question, self.language)
        links = {} if self._links is None else self._links.of(question, self._to)
        page = "" if self._pages is None else self._pages.saga_page(question.saga_id)
        text = body(question, links, page, language=self.language)
        told = await asyncio.gather(*(self._tell(service, about, text) for _, service in self._services))
        failed = [
            f"{number} ({name}{': ' + problem if problem else ''})"
            for number, ((name, _), problem) in enumerate(zip(self._services, told, strict=True), 1)
            if problem is not None
        ]
        if failed:
            raise AlertUndelivered(
                f"{len(failed)} of {len(told)} apprise URLs took no message: {', '.join(failed)}",
                hint="the logger apprise says more",
            )

    async def _tell(self, service: Any, about: str, text: str) -> str | None:
        """Why the service rejected the message, which may be unknown; None if it accepted it."""
        from apprise import NotifyFormat

        try:
            async with asyncio.timeout(self.timeout_s):
                # The text contains no markup: if the service wants HTML, apprise escapes it.
                taken = await service.async_notify(body=text, title=about, body_format=NotifyFormat.TEXT)
        except TimeoutError:
            return f"not within {self.timeout_s:g} s"
        except Exception as error:  # noqa: BLE001 - one of 150 plugins: what it raises is its failure, and others go on
            return type(error).__name__
        return None if taken else ""


def _services(urls: Sequence[str]) -> list[tuple[str, Any]]:
    """One object for each URL, so that it is known which of them failed."""
    if not urls:
        raise SettingInvalid("an apprise hook has no URL", hint='urls = ["mailto://…", "slack://…"]')
    if find_spec("apprise") is None:
        raise SettingInvalid("chat and mail need apprise", hint="pip install 'saga-engine[apprise]'")
    import apprise

    asset = apprise.AppriseAsset(app_id="saga", app_desc="saga_engine", app_url="")
    found: list[tuple[str, Any]] = []
    for number, url in enumerate(urls, 1):
        with _silent():
            plugin = apprise.Apprise.instantiate(url, asset=asset)
        if plugin is None:
            raise SettingInvalid(
                f"apprise does not understand URL {number} of {len(urls)}, or lacks a package for it",
                hint="`apprise --dry-run -b test URL` on the command line says why",
            )
        service = apprise.Apprise(asset=asset)
        service.add(plugin)
        found.append((str(plugin.service_name), service))
    return found


@contextmanager
def _silent() -> Iterator[None]:
    """Suppresses apprise's log about a malformed URL: it quotes the URL with its tokens."""
    logger = logging.getLogger("apprise")

    def drop(_: logging.LogRecord) -> bool:
        return False

    logger.addFilter(drop)
    try:
        yield
    finally:
        logger.removeFilter(drop)
