"""Hints of the checks in words for a model: no hint names what the model may not use, and none leads in a circle.

The checks advise the author of a plan, who may register an undo, or declare an effect that remains. A model can do
neither: it writes a rollback, orders its steps, or says what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from saga_engine.errors import Problem

_UNDO: Final = "write a 'rollback' if a tool of the lists takes its effect back"
_ONE: Final = (
    'else it is the "kind": "pivot", behind all steps that can be undone; if the plan has a pivot already, it is '
    '"kind": "retriable" with "depends_on": [the pivot\'s id]'
)
_ELSE: Final = "if its effect has to come earlier, or may remain"
#: What a model reads in place of the hint, by code.
_HINTS: Final = {
    "rollback-missing": f"{_UNDO}; {_ONE}",
    "pivot-second": (
        f"{_UNDO} (and remove its kind); else let the one that is most likely to be refused be the pivot, and make the "
        'other one "kind": "retriable", behind it: "depends_on": [the pivot\'s id]'
    ),
    "kind-retriable-before-pivot": (
        f'{_UNDO} (and remove its kind); else, if no step is the pivot yet, make this one "kind": "pivot" behind all '
        "steps that can be undone; if one is, make this one depend on it"
    ),
}
#: The list of calls that cannot be undone.
_LIST: Final = (
    'a list of calls that cannot be undone is "kind": "retriable", behind a pivot, or a tool takes the whole list; '
    "a pivot is one call"
)
#: A step that cannot be undone and is not always wanted.
_WHEN: Final = (
    "remove 'when': if nothing at all is to happen otherwise, let an earlier step fail (a 'failed_when' on its own "
    "output, also of an 'ask')"
)


def for_models(problems: Sequence[Problem], may_use: Sequence[str], *, whole_plan: bool = True) -> list[Problem]:
    """The problems, with hints that a model can follow. ``whole_plan``: it could also say what it needs."""
    found = []
    for each in problems:
        hint = _HINTS.get(each.code, "")
        if each.code == "kind-contradiction" and "'compensatable', but it has no undo" in each.message:
            hint = _HINTS["rollback-missing"]
        if each.code == "kind-contradiction" and each.message.startswith("'when' on a pivot"):
            hint = _WHEN
        if each.code == "each-invalid" and "on a pivot" in each.message:
            hint = _LIST
        elif hint and "irreversible" in may_use:
            hint = f'{hint}; {_ELSE}: "kind": "irreversible"'
        elif hint and whole_plan:
            hint = f'{hint}; {_ELSE}: {{"needs": ["irreversible"]}}'
        found.append(replace(each, hint=hint) if hint else each)
    return found
