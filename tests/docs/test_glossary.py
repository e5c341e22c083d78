"""The glossary holds every word of the public surface, and the pages use each word in its one meaning."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import pytest
from typer.main import get_command

import saga_engine
from saga_engine import errors
from saga_engine.cli import app
from saga_engine.core import questions, records, states
from saga_engine.core.messages import DECISIONS
from tests.docs.pages import PAGES, ROOT, prose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
DECIDED = ROOT / "docs" / "decisions"
PROMPTS = ROOT / "planner_prompts"
#: Decisions are never rewritten, prompts speak to a model.
OURS = [page for page in PAGES if DECIDED not in page.parents and PROMPTS not in page.parents]


# --- the surface ---------------------------------------------------------------------------------------------------


def _terms() -> set[str]:
    """The terms of the glossary: the first cells of its tables, at each comma, without the marks of code."""
    cells = [line.split("|")[1] for line in GLOSSARY.splitlines() if line.startswith("| ")]
    return {term.strip().strip("`") for cell in cells for term in cell.split(",")}


def _words(name: str) -> list[str]:
    """``StepInDoubt``, ``step-in-doubt`` and ``--step_in_doubt`` are all step, in, doubt."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _stem(word: str) -> str:
    """A word without the ending that English puts behind it."""
    endings = (
        e
        for e in ("ation", "al", "ing", "ed", "er", "es", "s", "e", "y")
        if word.endswith(e) and len(word) - len(e) >= 3
    )
    return word.removesuffix(next(endings, ""))


def _commands() -> Iterator[tuple[str, object]]:
    for name, command in get_command(app).commands.items():
        yield name, command
        yield from getattr(command, "commands", {}).items()


def _options(command: object) -> set[str]:
    return {
        option
        for param in command.params
        for option in (*getattr(param, "opts", ()), *getattr(param, "secondary_opts", ()))
        if option.startswith("--")
    }


def _subclasses(module: object, base: type) -> list[type]:
    return [found for found in vars(module).values() if inspect.isclass(found) and issubclass(found, base)]


SURFACE = {
    "commands": sorted({name for name, _ in _commands()}),
    "options": sorted({option for _, command in _commands() for option in _options(command)}),
    "public names": sorted(saga_engine.__all__),
    "kinds of records": sorted(kind.__name__ for kind in _subclasses(records, records.Record)),
    "kinds of questions": sorted(questions.OPTIONS),
    "decisions": sorted(DECISIONS),
    "error codes": sorted(kind.code for kind in _subclasses(errors, errors.SagaError)),
}


@pytest.mark.parametrize("part", SURFACE)
def test_the_surface_is_made_of_words_of_the_glossary(part: str) -> None:
    """Whatever a user types, imports or reads in a journal is explained, or made of words that are."""
    ordinary = (ROOT / "tests" / "docs" / "ordinary_words.txt").read_text(encoding="utf-8")
    known = {_stem(word) for term in _terms() for word in _words(term)} | {_stem(word) for word in _words(ordinary)}
    unknown = {name: [word for word in _words(name) if _stem(word) not in known] for name in SURFACE[part]}
    assert {name: words for name, words in unknown.items() if words} == {}
    assert SURFACE[part]


def test_every_state_and_decision_has_its_row() -> None:
    """States and decisions are explained one by one, and no others are."""
    all_states = {*states.SAGA_STATES, *states.STEP_STATES}
    rows = {term for line in GLOSSARY.splitlines() if line.startswith("| `") for term in _code(line.split("|")[1])}
    assert rows == all_states | set(DECISIONS)


def test_a_term_has_one_row() -> None:
    """One word, one meaning."""
    cells = [line.split("|")[1] for line in GLOSSARY.splitlines() if line.startswith("| ")]
    terms = [term.strip() for cell in cells for term in cell.split(",")]
    named = [term for term in terms if term not in ("term", "state", "decision", "---")]
    assert sorted(named) == sorted(set(named))


def _code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


# --- words that have another meaning ---------------------------------------------------------------------------------

#: What a word may not be used for any more, and the word that is meant. (A class of one letter keeps a renaming of words in
#: the whole tree from changing the pattern.)
FORBIDDEN = {
    r"\bprocess(?:es)?(?:'s|')? sessions?\b|\bsession of (?:a|the) process\b": "a process holds a lease",
    r"\b(?:saga's|its|an?|the saga's|empty) inbox\b": "a saga has messages; the inbox is the operators'",
    r"\bTemporal(?:'s)? engine\b|\bengine of Temporal\b": "Temporal is a runtime",
    r"\b(?:saga's outcome|outcome of (?:a|the|each|every) saga)\b": "a saga has a result",
    r"\bju[d]g(?:e|es|ed|ing|ment)\b": "interpret, check, authorize, verify or review",
    r"\b(?:person|people|operators?)(?: has| have| must| may)? decid(?:e|es|ed)\b": "operators resolve questions",
    r"\broll(?:s|ed|ing)?[ -]back (?:a|the|every|each|this) saga\b|\broll-back\b": "a saga is compensated",
    r"\bre[m]embered (?:calls?|results?|outcomes?)\b|\bengine's memory\b|\bmemory of (?:calls|results)\b": "de-duplication",
    r"\bfallback plans?\b": "a prepared plan",
    r"\b(?:is|are|was|were|be) par[k]ed\b|\bpar[k]ed (?:steps?|sagas?|calls?)\b": "deferred",
    r"\brem[e]d(?:y|ies)\b": "semantic compensation",
    r"\bhand(?:s|ed|ing)? over\b": "transfer an effect, release a saga",
    r"\bma(?:de|ke|kes|king) up for\b": "compensate for",
    r"\bwhoever\b": "say who",
}


def _help() -> Iterable[tuple[str, str]]:
    for name, command in _commands():
        texts = [
            command.help or "",
            command.epilog or "",
            *(getattr(param, "help", "") or "" for param in command.params),
        ]
        yield f"saga {name} --help", " ".join(texts)


def _said(page: Path) -> str:
    """The page's prose in one line, without code and without the words that it only quotes."""
    return re.sub(r"\s+", " ", re.sub(r"`[^`]*`|(?<!\*)\*[^*]+\*(?!\*)", "", prose(page)))


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_word_has_an_old_meaning(pattern: str) -> None:
    """Docs and the help of commands use each word as the glossary does."""
    pages = [(str(page.relative_to(ROOT)), _said(page)) for page in OURS if page.name != "glossary.md"]
    found = [
        f"{where}: … {text[max(0, match.start() - 40) : match.end() + 20]} …"
        for where, text in (*pages, *_help())
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]
    assert found == [], f"the glossary says: {FORBIDDEN[pattern]}"
