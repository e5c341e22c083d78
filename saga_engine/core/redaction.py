"""Leaves fields out of a trace, by rules that name places.

A rule is a dotted path: ``params.card``, ``output.*.ssn``, ``**.ssn``. ``*`` stands for any one field or item, ``**``
for any number of them, including none; a number is an item of a list. The first part is one of ``ROOTS``, or ``*`` or
``**``. The fields that a rule names are replaced by ``[redacted]`` and by no hash: a card number could be guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from saga_engine.errors import SettingInvalid

REDACTED: Final = "[redacted]"
#: The fields that the first part of a rule may name.
ROOTS: Final = ("params", "output", "input", "error", "goal", "note", "by", "reason", "owner")
#: More rules, or longer ones, than anybody writes by hand would make each value a long walk.
MAX_RULES: Final = 200
MAX_PARTS: Final = 32

_Rest = tuple[str, ...]
_WHOLE = re.compile(r"\$(?:output|input|saga|key|secret)(?!\w)")
_EMBEDDED = re.compile(r"\{\$(?:output|input|saga|key|secret)(?!\w)(?:[^'\"{}]|'[^']*'|\"[^\"]*\")*\}")


class Redaction:
    """The rules of one trace. Raises ``SettingInvalid`` for a rule that names nothing."""

    __slots__ = ("_rests", "rules")

    def __init__(self, rules: Sequence[str] = ()) -> None:
        if len(rules) > MAX_RULES:
            raise SettingInvalid(f"{len(rules)} rules of redaction; {MAX_RULES} are allowed", hint="use * or **")
        self.rules = tuple(dict.fromkeys(rules))
        self._rests = tuple(_parsed(rule) for rule in self.rules)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def value(self, root: str, value: Any) -> Any:
        """A value without the fields that the rules name; the same object if they name nothing in it."""
        rests = _advanced(self._rests, root)
        return _walk(value, rests, template=False) if rests else value

    def template(self, value: Any) -> Any:
        """The same for params as a plan has them: bindings stay, because they are no values."""
        rests = _advanced(self._rests, "params")
        return _walk(value, rests, template=True) if rests else value

    def error(self, error: Any) -> Any:
        """The same for an error: only its texts can be redacted."""
        if not isinstance(error, dict):
            return error
        texts = {
            name: error[name] for name in ("message", "suggestion", "traceback") if isinstance(error.get(name), str)
        }
        found = self.value("error", texts)
        if found is texts:
            return error
        return {**error, **(found if isinstance(found, dict) else dict.fromkeys(texts, REDACTED))}

    def steps(self, steps: Any) -> Any:
        """The steps of a plan, with the params of their calls, undos and fallbacks."""
        return [self._step(step) for step in steps] if isinstance(steps, list) else steps

    def plan(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """A whole plan."""
        made = {**plan}
        for name in ("steps", "finally"):
            if name in plan:
                made[name] = self.steps(plan[name])
        if "goal" in plan:
            made["goal"] = self.value("goal", plan["goal"])
        if isinstance(plan.get("input"), dict):
            made["input"] = self.fields("input", plan["input"])
        return made

    def fields(self, root: str, value: Mapping[str, Any]) -> dict[str, Any]:
        """The same for an object that must stay one: if all of it is named, each field is replaced."""
        found = self.value(root, value)
        return found if isinstance(found, dict) else dict.fromkeys(value, REDACTED)

    def _step(self, step: Any) -> Any:
        if not isinstance(step, dict):
            return step
        made = {**step}
        if "params" in step:
            made["params"] = self.template(step["params"])
        if self and isinstance(step.get("each"), dict):  # no rule names a place in the list itself
            made["each"] = {**step["each"], "of": without_values(step["each"].get("of"))}
        for part in ("rollback", "when_absent"):
            if part in step:
                made[part] = self._step(step[part])
        if isinstance(step.get("then"), list):
            made["then"] = self.steps(step["then"])
        if "fallback" in step:
            given = step["fallback"]
            made["fallback"] = self.steps(given) if isinstance(given, list) else self._step(given)
        return made


def _parsed(rule: str) -> _Rest:
    parts = tuple(rule.split("."))
    if not all(parts) or len(parts) > MAX_PARTS:
        raise SettingInvalid(
            f"the rule of redaction {rule[:200]!r} is no path", hint="write params.card, output.*.ssn or **.ssn"
        )
    if parts[0] not in (*ROOTS, "*", "**"):
        raise SettingInvalid(
            f"the rule of redaction {rule[:200]!r} begins with {parts[0][:80]!r}, which no line has",
            hint=f"begin with one of {', '.join(ROOTS)}, or with **",
        )
    return parts


def _advanced(rests: Sequence[_Rest], name: str) -> tuple[_Rest, ...]:
    """The rest of the rules one level down, at the field or item ``name``."""
    found: dict[_Rest, None] = {}
    for rest in _expanded(rests):
        if rest and rest[0] == "**":
            found[rest] = None
        elif rest and rest[0] in ("*", name):
            found[rest[1:]] = None
    return tuple(found)


def _expanded(rests: Sequence[_Rest]) -> list[_Rest]:
    """``**`` may also stand for nothing."""
    found = list(rests)
    for rest in rests:
        while rest and rest[0] == "**":
            rest = rest[1:]  # noqa: PLW2901
            found.append(rest)
    return found


def _walk(value: Any, rests: Sequence[_Rest], *, template: bool) -> Any:
    if () in _expanded(rests):
        return without_values(value) if template else REDACTED
    if isinstance(value, dict):
        changed: dict[str, Any] = {}
        for key, item in value.items():
            below = _advanced(rests, key)
            if below and (new := _walk(item, below, template=template)) is not item:
                changed[key] = new
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [
            _walk(item, below, template=template) if (below := _advanced(rests, str(index))) else item
            for index, item in enumerate(value)
        ]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def agrees(redacted: Any, value: Any) -> bool:
    """Whether a value is the redacted one, as far as that shows."""
    if isinstance(redacted, dict) and isinstance(value, dict):
        return redacted.keys() == value.keys() and all(agrees(part, value[name]) for name, part in redacted.items())
    if isinstance(redacted, list) and isinstance(value, list):
        return len(redacted) == len(value) and all(map(agrees, redacted, value))
    return bool(redacted == value) or redacted == REDACTED


def without_values(value: Any) -> Any:
    """A template with its bindings and nothing else."""
    if isinstance(value, dict):
        return {key: without_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_values(item) for item in value]
    if isinstance(value, str):
        return value if _WHOLE.match(value) else REDACTED + "".join(_EMBEDDED.findall(value))
    return REDACTED
