"""The words of the console: those of its pages, and what the engine says anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from saga_engine.core.session_records import FORKED
from saga_engine.errors import SagaError
from saga_engine.language import LANGUAGES, capital, catalogue
from saga_engine.language.durations import duration
from saga_engine.language.errors import translated as translated_error
from saga_engine.language.questions import QUESTIONS, asked
from saga_engine.language.refusals import REFUSALS
from saga_engine.language.states import STATES
from saga_engine.planner.review_words import REVIEW, translated
from saga_engine.server.console.words_pages import PAGES
from saga_engine.server.console.words_sagas import SAGAS

CATALOGUES: Final = {each: catalogue(each, QUESTIONS, STATES, SAGAS, PAGES) for each in LANGUAGES}
#: The sentences of a plan's review, in each language.
SENTENCES: Final = {each: catalogue(each, REVIEW) for each in LANGUAGES}
_REFUSALS: Final = {each: catalogue(each, REFUSALS) for each in LANGUAGES}
#: The name of each language in itself.
NAMES: Final = {"en": "English", "zh": "中文"}
#: The value of ``lang`` of the pages.
TAGS: Final = {"en": "en", "zh": "zh-Hans"}


class Words:
    """The words of one language."""

    def __init__(self, language: str = "en") -> None:
        self.language = language if language in LANGUAGES else "en"
        self._words = CATALOGUES[self.language]

    def __call__(self, key: str, **values: object) -> str:
        """The words of ``key``, with values in their places. Raises ``KeyError`` for a key that no catalogue has."""
        found = self._words[key]
        return found.format(**values) if values else found

    def said(self, text: str) -> str:
        """A sentence of a plan's review in this language; any other text as it is."""
        return str(translated(text, SENTENCES[self.language]))

    def known(self, prefix: str, name: str) -> str:
        """The words for a name of the engine, ``prefix.name``; the name itself if a newer engine made it up."""
        return self._words.get(f"{prefix}.{name}", name)

    def asks(self, question: Mapping[str, Any]) -> str:
        """What a question asks."""
        kind = "forked" if question.get("question_id") == FORKED else str(question["kind"])[:60]
        return capital(asked(kind, self.language))

    def duration(self, ms: float) -> str:
        """A stretch of time in at most two units."""
        return duration(ms, self.language)

    def error(self, error: Mapping[str, Any]) -> str:
        """The message of an error: in this language if it is the engine's own."""
        return self._own(error, "message")

    def hint(self, error: Mapping[str, Any]) -> str:
        """What an error suggests: in this language if it is the engine's own."""
        return self._own(error, "suggestion")

    def refused(self, error: SagaError, message: str = "") -> str:
        """What an error of the engine says; in another language, above it, what errors of this kind mean."""
        meaning = "" if self.language == "en" else _REFUSALS[self.language].get(error.code, "")
        message = translated_error(error.code, message or error.message, self.language)
        return f"{meaning} {message}" if meaning else message

    def _own(self, error: Mapping[str, Any], name: str) -> str:
        return translated_error(str(error.get("error_code") or ""), str(error.get(name) or ""), self.language)


def language_of(chosen: str | None, accepted: str) -> str:
    """The language that was chosen on the page, else the first that the browser accepts and the console has."""
    if chosen in LANGUAGES:
        return str(chosen)
    for wanted in accepted[:200].lower().split(","):
        name = wanted.split(";", maxsplit=1)[0].strip().split("-", maxsplit=1)[0]
        if name in LANGUAGES:
            return name
    return "en"
