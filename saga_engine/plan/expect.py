"""``expect``: a write that is made only if the value is still what its saga last read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from saga_engine.plan.jsonpath import Tail, TailFault, parse
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from saga_engine.plan.compiled import Serving
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.problems import Path

#: The value that the tool's ``before`` reads, as the saga knows it.
KNOWN: Final = "$before"
#: The error of a write that was not made because the value is another one by now. A tool says it, too.
CHANGED: Final = "changed_meanwhile"

_HINT: Final = 'write expect="$before", or expect={"version": "$before.version"}: what the call gets of the value'
_NAME: Final = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)
_MOST: Final = 8


class Expect(NamedTuple):
    """Who compares. ``params``: the other side, and these params tell it what was read; none: the engine does."""

    params: tuple[tuple[str, Tail | None], ...] = ()


def read_expect(given: Any) -> Expect | None:
    """The declaration from its JSON form. Raises ``ValueError`` with the problem and a hint."""
    if given is None:
        return None
    if given == KNOWN:
        return Expect()
    if not isinstance(given, Mapping) or not 0 < len(given) <= _MOST:
        raise ValueError(f"expect={given!r} has no meaning", _HINT)
    if not all(isinstance(name, str) and isinstance(text, str) for name, text in given.items()):
        raise ValueError(f"expect={given!r} has a param that binds nothing", _HINT)
    return _read(tuple(given.items()))


@lru_cache(maxsize=256)
def _read(given: tuple[tuple[str, str], ...]) -> Expect:
    made: list[tuple[str, Tail | None]] = []
    for name, text in given:
        if not _NAME.fullmatch(name) or not text.startswith(KNOWN):
            raise ValueError(f"expect: {name!r} gets {text!r}, which is nothing of the value", _HINT)
        tail = parse(text[len(KNOWN) :]) if text != KNOWN else None
        fault = tail if isinstance(tail, TailFault) else None
        if fault is not None:
            raise ValueError(f"expect: {text!r} is no path: {fault.message}", fault.hint)
        made.append((name, tail))  # type: ignore[arg-type]
    return Expect(tuple(made))


def filled(given: Any) -> tuple[str, ...]:
    """The params that the engine fills, which no plan and no model sees."""
    return tuple(map(str, given)) if isinstance(given, Mapping) else ()


# --- in a plan -------------------------------------------------------------------------------------------------------


def check_expected(made: Draft) -> None:
    """A write that expects what was read needs a tool that says how it is read, and a step that reads it."""
    known = {name for step in made.steps for call in step.servings() for name in (call.tool, _read_of(call))}
    for step in made.steps[made.check_from :]:
        written = made.plan.steps[step.index] if step.index < len(made.plan.steps) else None
        path: Path = ("steps", step.index)
        places: list[tuple[Path, Serving]] = [(path, step)]
        places += [((*path, "fallback", at), each) for at, each in enumerate(step.fallbacks)]
        if written is not None and written.expect is not None and step.builtin:
            message = f"'expect' on a step that calls no tool: '{step.builtin}' changes no value"
            made.problems.add("builtin-invalid", (*path, "expect"), message, "remove 'expect'")
        elif written is not None and written.expect is not None:
            for place, call in places:
                if call.spec is not None and call.before is None:
                    message = f"nothing reads the value before the call of {cut(call.tool, 80)}"
                    hint = "declare the tool with before='the tool that reads it', or leave out 'expect'"
                    made.problems.add("before-missing", (*place, "expect") if call is step else place, message, hint)
        for place, call in places:
            read = call.before
            if read is None or read.expect is None or not _first(made, call, known):
                continue
            message = (
                f"{cut(call.tool, 80)} is called only if the value that {cut(read.tool, 80)} reads is what the saga "
                "last read, and no step reads it"
            )
            hint = f"add a step that calls {cut(read.tool, 80)} with the same params before it"
            made.problems.add("expect-unread", place, message, hint)


def _first(made: Draft, call: Serving, known: set[str]) -> bool:
    """Whether no other call of the plan reads the value, or writes it."""
    assert call.before is not None
    if call.before.tool not in known:
        return True
    others = (each for step in made.steps for each in step.servings() if each is not call)
    return not any(call.before.tool in (each.tool, _read_of(each)) for each in others)


def _read_of(call: Serving) -> str:
    return "" if call.before is None else call.before.tool
