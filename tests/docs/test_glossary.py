"""The glossary holds every word of the public surface."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import pytest
from typer.main import get_command

import saga_engine
from saga_engine import errors
from saga_engine.cli import app
from saga_engine.core import decide, records, states
from saga_engine.core.messages import DECISIONS
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


# --- the surface ---------------------------------------------------------------------------------------------------


def _terms() -> set[str]:
    """The terms of the glossary: the first cells of its tables, at each comma, without the marks of code."""
    cells = [line.split("|")[1] for line in GLOSSARY.splitlines() if line.startswith("| ")]
    return {term.strip().strip("`") for cell in cells for term in cell.split(",")}


def _words(name: str) -> list[str]:
    """``StepInDoubt``, ``step-in-doubt`` and ``--step_in_doubt`` are all step, in, doubt."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _stem(word: str) -> str:
    """A word without the endings that English puts behind it."""
    for ending in ("ation", "al", "ing", "ed", "er", "es", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
    return word


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
    "kinds of questions": sorted(decide.OPTIONS),
    "decisions": sorted(DECISIONS),
    "error codes": sorted(kind.code for kind in _subclasses(errors, errors.SagaError)),
}


@pytest.mark.parametrize("part", SURFACE)
def test_the_surface_is_made_of_words_of_the_glossary(part: str) -> None:
    """Whatever a user types, imports or reads in a journal is explained, or made of words that are."""
    ordinary = GLOSSARY.split("## Ordinary words\n")[1].split("\n\n")[-1]
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
