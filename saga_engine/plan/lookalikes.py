"""Finds text that looks like a binding and is not one: the tool would receive it literally.

Authors of plans, people and models, know the templates of other tools. A finding never keeps a plan from running,
because the text may be meant literally. Each finding has the correct spelling if it can be determined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import Problem
from saga_engine.plan.values import cut, json_path

if TYPE_CHECKING:
    from saga_engine.plan.model import Plan
    from saga_engine.plan.problems import Path

CODE: Final = "binding-lookalike"
#: Nobody reads more findings than this.
MAX_FOUND: Final = 50
_MAX_TEXT: Final = 20_000

_WORDS: Final = "outputs?|inputs?|steps?|secrets?|saga|results?"
_REAL: Final = re.compile(r"\{\$+(?:output|input|saga|key|secret)(?!\w)(?:[^'\"{}]|'[^']*'|\"[^\"]*\")*\}")
_WHOLE: Final = re.compile(r"\$+(?:output|input|saga|key|secret)(?!\w)")
#: Text that is not a binding, by its form; the group is the intended binding.
_FORMS: Final = (
    re.compile(r"\$\{\s*\$?([^{}]{1,200}?)\s*\}"),
    re.compile(r"\{\{\s*\$?([^{}]{1,200}?)\s*\}\}"),
    re.compile(r"<([^<>]{1,80} (?:of|from) step [^<>]{1,64})>"),
    re.compile(rf"\{{((?:{_WORDS}|step_[\w-]+)[.\[][^{{}}]{{1,200}})\}}"),
    re.compile(r"(?<![\w$])\$\.((?:steps|outputs?|inputs?)\b[\w.\[\]'\"-]*)"),
    re.compile(rf"(?<![\w$])\$((?:{_WORDS})[.\[][\w.\[\]'\"-]*)"),
    re.compile(r"(?<![\w$])\$(step_[\w-]+(?:[.\[][\w.\[\]'\"-]*)?)"),
    re.compile(r"(?<![\w$])\$(today|now|date|time|timestamp|uuid)(?!\w)"),
)
#: The name of a step with a path; only the plan itself distinguishes it from a price or a variable.
_NAMED: Final = re.compile(r"(?<![\w$])\$([\w-]+)((?:[.\[][\w.\[\]'\"-]*)+)")
_BARE: Final = re.compile(r"(?:output\.step_[\w-]+|input)\.[\w.\[\]'\"-]+")
_TAIL: Final = re.compile(r"[.\[][\w.\[\]'\"-]*")


def lookalikes(plan: Plan) -> list[Problem]:
    """The places of a plan where a binding was probably intended, at most ``MAX_FOUND``."""
    keys = [step.key for step in plan.steps]
    found: list[Problem] = []
    for index, step in enumerate(plan.steps):
        values: list[tuple[Path, Any]] = [((*path, "params"), call.params) for path, call in step.calls()]
        values.insert(1, (("resource",), step.resource))
        for place, value in values:
            for text, path in _texts(value, ("steps", index, *place)):
                for wrong, meant in _suspects(text, keys):
                    if len(found) >= MAX_FOUND:
                        return found
                    message = f"{cut(wrong, 120)} is not a binding; the tool would get it as plain text"
                    found.append(Problem(CODE, json_path(path), message, _hint(meant, keys, whole=wrong == text)))
    return found


def _texts(value: Any, path: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(value, str):
        yield value, path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))


def _suspects(text: str, keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The suspects in a text and the intended bindings; never inside of a real or escaped binding."""
    if _WHOLE.match(text) or not any(mark in text for mark in "${<.") or len(text) > _MAX_TEXT:
        return
    if _BARE.fullmatch(text) and (text.startswith("input.") or _step_of(text.split(".")[1], keys)):
        yield text, text
        return
    rest = _REAL.sub(lambda found: " " * len(found[0]), text)
    for form in _FORMS:
        for found in form.finditer(rest):
            yield found[0], found[1]
        rest = form.sub(lambda found: " " * len(found[0]), rest)
    for found in _NAMED.finditer(rest):
        if _step_of(found[1], keys):
            yield found[0], found[1] + found[2]


def _step_of(word: str, keys: Sequence[str]) -> str:
    return next((key for key in (word, word.removeprefix("step_")) if key in keys), "")


def _hint(meant: str, keys: Sequence[str], *, whole: bool) -> str:
    binding = _binding(meant.strip(), keys)
    if binding:
        return f"write {binding}" if whole else f"write {{{binding}}}"
    if re.fullmatch(r"today|now|date|time|timestamp|uuid", meant):
        return "there is no such value: give it in the plan's input and write $input.NAME"
    return "write $output.step_<id>.field or $input.field; inside a text {$output.step_<id>.field}"


def _binding(meant: str, keys: Sequence[str]) -> str:
    """The intended binding in the correct spelling; empty if it cannot be determined."""
    told = re.fullmatch(r"([\w.\[\]-]+) (?:of|from) step ([\w-]+)", meant)
    if told is not None:
        step = _step_of(told[2], keys)
        return f"$output.step_{step}.{told[1]}" if step else ""
    found = re.match(r"[\w-]+", meant)
    if found is None:
        return ""
    head, tail = found[0], meant[found.end() :]
    if not _TAIL.fullmatch(tail or "."):
        return ""
    if head in {"input", "inputs", "secret", "secrets"}:
        return f"${head.removesuffix('s')}{tail}" if tail else ""
    if head in {"output", "outputs", "step", "steps", "result", "results"}:
        named = re.match(r"[.\[]['\"]?([\w-]+)['\"]?\]?", tail)
        if named is None:
            return ""
        at = int(named[1]) if re.fullmatch(r"steps\[[0-9]{1,6}\].*", meant) else len(keys)
        head, tail = (keys[at] if at < len(keys) else named[1]), tail[named.end() :]
    step = _step_of(head, keys)
    if not step:
        return ""
    tail = re.sub(r"^\.(outputs?|results?)(?=[.\[]|$)", "", tail)
    return f"$output.step_{step}{tail}"
