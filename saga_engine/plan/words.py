"""Words of steps that are brought, by a folder of ``saga_engine.ext`` or another package: found here, nowhere else.

Such a word stands in a step in place of ``tool``: ``{"step_id": 1, "sleep": "PT90M"}``. A folder of ``saga_engine.ext``
has the name of its word and a ``WORD`` in its ``__init__``; another package declares an entry point of the group
``saga_engine.words``, with the word as its name, that leads to one. Neither is imported before a step has the word, so
a word that nobody uses costs nothing. ``docs/extending.md`` is the guide.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from saga_engine.errors import ExtensionMissing
from saga_engine.plan.value_schema import SchemaUnusable, ValueSchema
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from saga_engine.plan.bindings import Template
    from saga_engine.plan.problems import Path, Problems

#: The words of the steps that the plan's own rooms know.
BUILTINS: Final = ("ask", "compute", "saga", "wait")
#: The group of the entry points by which other packages bring words.
GROUP: Final = "saga_engine.words"
_FOLDER: Final = "saga_engine.ext"


class Unfit(Exception):
    """The body of a step cannot be carried out: a problem of the plan if it shows there, else the step fails."""


class Done(NamedTuple):
    """The step has succeeded, with this output: a JSON value."""

    output: Any = None


class Until(NamedTuple):
    """The step waits until this time (Unix ms) and then succeeds, with what ``Word.ended`` says."""

    due_ms: int


class Prompt(NamedTuple):
    """What a planner tells a model of the word: a few words, a paragraph, and an answer of JSON that uses it."""

    short: str
    about: str
    example: str


def _nothing(_body: Any) -> None:
    return None


class Word(NamedTuple):
    """A word of a step: the form of its body, and what it does.

    ``about`` and ``schema`` (a JSON Schema of the body, bindings replaced) describe it. ``begin`` takes the bound body
    and the time (Unix ms), and ``ended`` the bound body once the time of ``Until`` has come: both are pure, because a
    journal is read again after a crash and must say the same. ``check`` looks at a body without bindings when a plan is
    checked. Either raises ``Unfit``. ``output`` is the schema of the output, if it is known. ``told`` says for people
    what a step will do; ``prompt`` says it to a model: without it no model's plan may use the word.
    """

    about: str
    schema: Mapping[str, Any]
    begin: Callable[[Any, int], Done | Until]
    ended: Callable[[Any], Any] = _nothing
    check: Callable[[Any], None] = _nothing
    output: Mapping[str, Any] | None = None
    told: Callable[[Any], str] | None = None
    prompt: Prompt | None = None


@cache
def shipped() -> tuple[str, ...]:
    """The words of this package's own folders, in order."""
    try:
        places = import_module(_FOLDER).__path__
    except ModuleNotFoundError:
        return ()
    return tuple(sorted(each.name for each in pkgutil.iter_modules(places) if each.ispkg))


@cache
def _brought() -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points  # it reads the metadata of every package

    return {each.name: each for each in entry_points(group=GROUP)}


def names() -> tuple[str, ...]:
    """Every word that this process has, those of other packages included."""
    return (*shipped(), *sorted(_brought().keys() - set(shipped())))


def known(name: str) -> bool:
    """Whether this process has the word."""
    return name in shipped() or name in _brought()


def word(name: str) -> Word:
    """What a word means. Raises ``ExtensionMissing`` if no package here brings it, or one brings something else."""
    found = _word(name)
    if found is None:
        raise missing([name])
    return found


@cache
def _word(name: str) -> Word | None:
    if name in shipped():
        made = import_module(f"{_FOLDER}.{name}").WORD
    elif name in _brought():
        made = _brought()[name].load()
    else:
        return None
    if not isinstance(made, Word):
        raise ExtensionMissing(
            f"what the package of the word {cut(name, 64)} brings is no Word, but {type(made).__name__}",
            hint=f"its entry point in the group {GROUP} leads to a saga_engine.plan.words.Word",
            words=[name],
        )
    return made


def missing(wanted: list[str], **context: Any) -> ExtensionMissing:
    """The refusal of what needs words that this process lacks."""
    return ExtensionMissing(
        f"this process lacks what steps need: {', '.join(wanted)}",
        hint=f"install the package that brings it; words here: {', '.join(names()) or 'none'}",
        words=wanted,
        **context,
    )


def check(problems: Problems, name: str, params: Template, path: Path) -> None:
    """Add the problem of a body at ``path`` that its bindings leave visible."""
    if not known(name):
        hint = missing([name]).hint
        problems.add("field-unknown", path, f"no package here brings the word {cut(name, 64)}", hint or "")
        return
    if params.places:
        return
    body, meaning = params.raw[name], word(name)
    try:
        for place, message in ValueSchema(meaning.schema)(body)[:1]:
            problems.add("field-invalid", (*path, *place), message, meaning.about)
            return
        meaning.check(body)
    except (Unfit, SchemaUnusable) as error:
        problems.add("builtin-invalid", path, str(error)[:1000], meaning.about)


def told(name: str, body: Any) -> str:
    """What a step with this word does, for people; its body if the word does not say."""
    describe = word(name).told if known(name) else None
    return f"{name} {cut(body, 200)}" if describe is None else describe(body)
