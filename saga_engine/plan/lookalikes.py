"""Finds text that looks like a binding and is not one: the tool would receive it literally.

Authors of plans, people and models, know the templates of other tools. A finding never keeps a plan from running,
because the text may be meant literally. Each finding has the correct spelling if it can be determined.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from saga_engine.errors import Problem
from saga_engine.plan.values import cut, json_path

if TYPE_CHECKING:
    from saga_engine.plan.model import Plan
    from saga_engine.plan.problems import Path

CODE: Final = "binding-lookalike"
#: Nobody reads more findings than this.
MAX_FOUND: Final = 50
_MAX_TEXT: Final = 20_000

_CLOCK: Final = "today|now|date|time|timestamp|uuid|tomorrow|yesterday|current_?date|current_?time"
_WORDS: Final = "outputs?|inputs?|steps?|secrets?|saga|results?|params?"
_REAL: Final = re.compile(
    r"\{\$++(?:output|input|saga|key|secret|item|index|end)(?!\w)(?:[^'\"{}]|'[^']*'|\"[^\"]*\")*+\}"
)
_WHOLE: Final = re.compile(r"\$++(?:output|input|saga|key|secret|item|index|end)(?!\w)")
#: Text that is not a binding, by its form; the group is the intended binding.
_FORMS: Final = (
    re.compile(r"\$\{\s*\$?([^{}]{1,200}?)\s*\}"),
    re.compile(r"\{\{\s*\$?([^{}]{1,200}?)\s*\}\}"),
    re.compile(r"[<\[]((?:the )?[^<>\[\]]{1,80} (?:of|from) step [^<>\[\]]{1,64})[>\]]"),
    re.compile(rf"<((?:{_WORDS}|step_[\w-]+)[.\[][^<>]{{1,200}})>"),
    re.compile(rf"\$\(((?:{_WORDS}|step_[\w-]+)[.\[][^()]{{1,200}})\)"),
    re.compile(rf"\{{((?:{_WORDS}|step_[\w-]+)[.\[][^{{}}]{{1,200}})\}}"),
    re.compile(r"(?<![\w$])\$\.((?:steps|outputs?|inputs?)\b[\w.\[\]'\"-]*)"),
    re.compile(rf"(?<![\w$])\$((?:{_WORDS})[.\[][\w.\[\]'\"-]*)"),
    re.compile(r"(?<![\w$])\$(step_[\w-]+(?:[.\[][\w.\[\]'\"-]*)?)"),
    re.compile(r"(?<![\w$])\$(outputs?_[\w-]+[.\[][\w.\[\]'\"-]*)"),
    re.compile(rf"(?<![\w$])\$({_CLOCK})(?!\w)", re.IGNORECASE),
)
#: A real binding between the braces of another template: its value would stand between braces.
_DOUBLED: Final = re.compile(r"(?:\{|\$)\{\$((?:output|input|saga|key|secret|item|index|end)(?!\w)[^{}]{0,200})\}\}?")
#: The name of a step with a path; only the plan itself distinguishes it from a price or a variable.
_NAMED: Final = (
    re.compile(r"(?<![\w$])\$([\w-]+)((?:[.\[][\w.\[\]'\"-]*)+)"),
    re.compile(r"(?:[%$]?\{|<|\$\()\s*([\w-]+)((?:[.\[][\w.\[\]'\"-]*)+)\s*[}>)]"),
)
_BARE: Final = re.compile(r"(?:output\.step_[\w-]+|step_[\w-]+|input)\.[\w.\[\]'\"-]+")
#: What other templates call the item of a list, and its position; only in a step that has one.
_ITEM: Final = re.compile(r"(?:items?|each|element|row|this|loop\.item)(?=[.\[]|$)")
_INDEX: Final = re.compile(r"(?:index|i|loop\.index0?)")
_LISTED: Final = r"(?:items|each|element|row|this|loop\.(?:item|index0?))(?:[.\[][\w.\[\]'\"-]*)?"
_OF_ITEM: Final = (re.compile(rf"\{{\$({_LISTED})\}}"), re.compile(rf"(?<![\w$])\$({_LISTED})(?!\w)"))
#: What the registration of an undo may bind, as a whole text; and a step's output as a plan binds it.
_OF_UNDO: Final = re.compile(r"\$(?:(?:output|before)(?![^.\[])|params[.\[]|key\Z|(item)(?![^.\[])|(index)\Z)")
_OF_PLAN: Final = re.compile(r"\$output\.step_[A-Za-z0-9_-]+((?:[.\[].*)?)\Z", re.DOTALL)
_UNDO_HINT: Final = "a whole text binds: $output.FIELD, $params.NAME of the call, $before.FIELD or $key"
_VARIABLE: Final = re.compile(r"\$([\w-]+)")
_TAIL: Final = re.compile(r"[.\[][\w.\[\]'\"-]*")


class Lookalike(NamedTuple):
    """A finding: the text that is not a binding, and the intended binding; empty if it cannot be determined."""

    problem: Problem
    wrong: str
    binding: str


def lookalikes(plan: Plan) -> list[Problem]:
    """The places of a plan where a binding was probably intended, at most ``MAX_FOUND``."""
    return [each.problem for each in find_lookalikes(plan)]


def find_lookalikes(plan: Plan, others: Sequence[str] = ()) -> list[Lookalike]:
    """The same findings with their parts. ``others``: keys of steps that exist beside those of the plan."""
    keys = [*(step.key for step in plan.steps), *others]
    found: list[Lookalike] = []
    for index, step in enumerate(plan.steps):
        values: list[tuple[Path, Any]] = [((*path, "params"), call.params) for path, call in step.calls()]
        values.insert(1, (("resource",), step.resource))
        for place, value in values:
            for text, path in _texts(value, ("steps", index, *place)):
                for wrong, meant in _suspects(text, keys, has_list=step.each is not None):
                    if len(found) >= MAX_FOUND:
                        return found
                    message = f"{cut(wrong, 120)} is not a binding; the tool would get it as plain text"
                    binding = (_item(meant.strip()) if step.each is not None else "") or _binding(meant.strip(), keys)
                    hint = _hint(binding, meant, whole=wrong == text)
                    found.append(Lookalike(Problem(CODE, json_path(path), message, hint), wrong, binding))
    return found


def own_lookalikes(value: Any, own: Collection[str], path: Path, *, listed: bool) -> Iterator[tuple[Path, str, str]]:
    """The texts in what a tool says of its undo that are no bindings there: their places, the texts, and the cures.

    ``own``: the names of the tool's params. ``listed``: the undo has a list, whose items bind.
    """
    for text, place in _texts(value, path):
        found = _OF_UNDO.match(text)
        if found is not None and (listed or not (found[1] or found[2])):
            plan_form = _OF_PLAN.match(text)
            if plan_form is not None:
                yield place, text, f"write $output{plan_form[1]}: it is the call's own output"
            continue
        names = "|".join(map(re.escape, own))
        named = re.fullmatch(rf"\$?\{{?\s*({names})\s*\}}?", text) if own and text[:1] in "${" else None
        wrong = (
            text == "$params"
            or _WHOLE.match(text)
            or _REAL.search(text)
            or named
            or next(_suspects(text, [*own]), None)
        )
        if wrong:
            meant = re.search(rf"(?<![\w.])(?:input\.|params?\.)?({names})(?!\w)", text) if own else None
            hint = f"write $params.{meant[1]}" if meant is not None else _UNDO_HINT
            yield place, text, hint


def _texts(value: Any, path: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(value, str):
        yield value, path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))


def _suspects(text: str, keys: Sequence[str], *, has_list: bool = False) -> Iterator[tuple[str, str]]:
    """The suspects in a text and the intended bindings; never inside of a real or escaped binding."""
    if _WHOLE.match(text) or not any(mark in text for mark in "${<[.") or len(text) > _MAX_TEXT:
        return
    if _BARE.fullmatch(text) and _binding(text, keys):
        yield text, text
        return
    alone = _VARIABLE.fullmatch(text)
    if alone is not None and _step_of(alone[1], keys) and not alone[1].isdecimal():
        yield text, alone[1]
        return
    for found in _DOUBLED.finditer(text):
        yield found[0], found[1]
    text = _DOUBLED.sub(lambda found: " " * len(found[0]), text)
    rest = _REAL.sub(lambda found: " " * len(found[0]), text)
    for form in (*_OF_ITEM, *_FORMS) if has_list else _FORMS:
        for found in form.finditer(rest):
            yield found[0], found[1]
        rest = form.sub(lambda found: " " * len(found[0]), rest)
    for form in _NAMED:
        for found in form.finditer(rest):
            if _step_of(found[1], keys) and not found[1].isdecimal():
                yield found[0], found[1] + found[2]
        rest = form.sub(lambda found: " " * len(found[0]), rest)


def _step_of(word: str, keys: Sequence[str]) -> str:
    return next((key for key in (word, word.removeprefix("step_")) if key in keys), "")


def _hint(binding: str, meant: str, *, whole: bool) -> str:
    if binding:
        return f"write {binding}" if whole else f"write {{{binding}}}"
    if re.fullmatch(_CLOCK, meant.strip().removeprefix("$"), re.IGNORECASE):
        return "there is no such value: give it in the plan's input and write $input.NAME"
    return "write $output.step_<id>.field or $input.field; inside a text {$output.step_<id>.field}"


def _item(meant: str) -> str:
    """The intended binding to the item of the step's list, or to its position; empty if it is neither."""
    if _INDEX.fullmatch(meant):
        return "$index"
    found = _ITEM.match(meant)
    tail = "" if found is None else meant[found.end() :]
    return f"$item{tail}" if found is not None and _TAIL.fullmatch(tail or ".") else ""


def _binding(meant: str, keys: Sequence[str]) -> str:
    """The intended binding in the correct spelling; empty if it cannot be determined."""
    told = re.fullmatch(r"(?:the )?([\w.\[\]-]+) (?:of|from) step ([\w-]+)", meant)
    if told is not None:
        step = _step_of(told[2], keys)
        tail = "" if re.fullmatch(r"outputs?|results?", told[1]) else f".{told[1]}"
        return f"$output.step_{step}{tail}" if step else ""
    meant = re.sub(r"^(outputs?)_", r"\1.", meant)
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
