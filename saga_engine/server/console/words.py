"""The words of the console, in one catalogue for each language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from saga_engine.planner.review_words import ENGLISH as REVIEW_ENGLISH
from saga_engine.planner.review_words import translated
from saga_engine.server.console.words_en import WORDS as ENGLISH
from saga_engine.server.console.words_zh import WORDS as CHINESE
from saga_engine.server.console.words_zh_review import SENTENCES as REVIEW_CHINESE

LANGUAGES: Final[Mapping[str, Mapping[str, str]]] = {"en": ENGLISH, "zh": CHINESE}
#: The sentences of a plan's review, in each language.
SENTENCES: Final[Mapping[str, Mapping[str, str]]] = {"en": REVIEW_ENGLISH, "zh": REVIEW_CHINESE}
#: The name of each language in itself.
NAMES: Final = {"en": "English", "zh": "中文"}
#: The value of ``lang`` of the pages.
TAGS: Final = {"en": "en", "zh": "zh-Hans"}


class Words:
    """The words of one language."""

    def __init__(self, language: str = "en") -> None:
        self.language = language if language in LANGUAGES else "en"
        self._words = LANGUAGES[self.language]
        self._sentences = SENTENCES[self.language]

    def __call__(self, key: str, **values: object) -> str:
        """The words of ``key``, with values in their places. Raises ``KeyError`` for a key that no catalogue has."""
        found = self._words[key]
        return found.format(**values) if values else found

    def said(self, text: str) -> str:
        """A sentence of a plan's review in this language; any other text as it is."""
        return str(translated(text, self._sentences))

    def known(self, prefix: str, name: str) -> str:
        """The words for a name of the engine, ``prefix.name``; the name itself if a newer engine made it up."""
        return self._words.get(f"{prefix}.{name}", name)


def language_of(chosen: str | None, accepted: str) -> str:
    """The language that was chosen on the page, else the first that the browser accepts and the console has."""
    if chosen in LANGUAGES:
        return str(chosen)
    for wanted in accepted[:200].lower().split(","):
        name = wanted.split(";", maxsplit=1)[0].strip().split("-", maxsplit=1)[0]
        if name in LANGUAGES:
            return name
    return "en"
