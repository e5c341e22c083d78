"""LANGUAGE: what the engine says to people, each thing once, in English and in Chinese.

A *fragment* holds the words of one feature, each with its text in every language, and stands beside what uses it:
questions and states here, pages in ``server.console``, the command line in ``cli``, a plan's review in ``planner``,
cards in ``hooks``. A catalogue is made of fragments. Nothing is said in one language only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The texts of each key, in the order of ``LANGUAGES``; ``{name}`` stands for a value.
Fragment = Mapping[str, tuple[str, str]]
#: The tags of the languages.
LANGUAGES: Final = ("en", "zh")


def catalogue(language: str, *fragments: Fragment) -> dict[str, str]:
    """All texts of some fragments in one language. Raises ``ValueError`` for a key that two of them have."""
    at, found = LANGUAGES.index(language), {key: texts for each in fragments for key, texts in each.items()}
    if len(found) < sum(map(len, fragments)):
        raise ValueError("a text stands in two fragments")
    return {key: texts[at] for key, texts in found.items()}


def of_locale(environ: Mapping[str, str]) -> str:
    """The language of a locale, as POSIX finds it; English if it is none of these."""
    named = next((text for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (text := environ.get(name))), "")
    found = named.partition(".")[0].partition("_")[0].lower()
    return found if found in LANGUAGES else LANGUAGES[0]


def capital(text: str) -> str:
    """A text as the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def under(name: str, language: str, fragment: Fragment) -> dict[str, str]:
    """The texts of the keys ``name.…`` in one language, by what stands behind."""
    beginning = f"{name}."
    found = catalogue(language, fragment).items()
    return {key.removeprefix(beginning): text for key, text in found if key.startswith(beginning)}
