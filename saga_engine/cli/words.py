"""The words of the command line, in one language: that of the setting ``language``, else that of the locale.

A command finds it at its first word (``choose`` makes it look again). Documents of ``--json``, names of fields, codes
and commands are the same in every language.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any, Final

from saga_engine.language import catalogue, of_locale

_CHOSEN: Final[list[str]] = []


def choose(language: str = "") -> None:
    """Say everything in a language from now on; without one, that of the settings and of the locale then."""
    _CHOSEN[:] = [language] if language else []


def language() -> str:
    """The language of this command."""
    if not _CHOSEN:
        _CHOSEN.append(_found() or of_locale(os.environ))
    return _CHOSEN[0]


def _found() -> str:
    """What the settings say. That they are wrong is told by whoever needs them, in the language of the locale."""
    from saga_engine.errors import SettingInvalid
    from saga_engine.settings import load

    try:
        return load({}).language
    except SettingInvalid:
        return ""


@functools.cache
def _texts(language: str) -> dict[str, str]:
    # Not at start-up: a command that prints JSON alone needs no words.
    from saga_engine.cli.words_lists import LISTS
    from saga_engine.cli.words_runs import RUNS
    from saga_engine.cli.words_shown import SHOWN
    from saga_engine.language.questions import QUESTIONS
    from saga_engine.language.states import STATES

    return catalogue(language, SHOWN, RUNS, LISTS, QUESTIONS, STATES)


@functools.cache
def _codes(language: str) -> dict[str, str]:
    texts = _texts(language)
    return {text: key.partition(".")[2] for key, text in texts.items() if key.startswith(("step.", "status."))}


def say(key: str, /, **values: object) -> str:
    """The words of ``key``, with values in their places. Raises ``KeyError`` for a key that no fragment has."""
    return _texts(language())[key].format(**values)


def counted(key: str, n: int, /, **values: object) -> str:
    """The words for a number of things: those of ``key.one`` for one of them."""
    return say(f"{key}.one" if n == 1 else key, n=n, **values)


def more(n: int) -> str:
    """How many are not named after those that are; nothing if none."""
    return say("more", n=n) if n > 0 else ""


def hidden(n: int) -> list[str]:
    """A line about what is not listed, if anything."""
    return [say("hidden", n=n)] if n > 0 else []


def joined(*parts: str) -> str:
    """Parts of a sentence; empty ones are left out."""
    return say("comma").join(part for part in parts if part)


def state(code: str, of: str = "status") -> str:
    """A state of a saga, or ``of`` a ``step``: in English as the engine names it, and as ``--status`` wants it."""
    return code if language() == "en" else _texts(language()).get(f"{of}.{code}", code)


def named(prefix: str, code: str) -> str:
    """A name of the engine in words where it has any; in English as it is."""
    return code if language() == "en" else _texts(language()).get(f"{prefix}.{code}", code)


def code_of(text: str) -> str:
    """The state that a text names."""
    return text if language() == "en" else _codes(language()).get(text, text)


def told(error: Mapping[str, Any], name: str = "message") -> str:
    """The message of a call's error, or what it suggests (``suggestion``): the engine's own in words."""
    from saga_engine.language.errors import translated

    return translated(str(error.get("error_code") or ""), str(error.get(name) or ""), language())
