"""Built-in steps: what the checks know of each word. Its form is in ``plan.model``, its meaning in ``core.steps``.

A built-in step has no tool. Its body, with its bindings, is the step's params under its word, and its ``spec`` declares
a call that nobody makes: it says which outputs other steps may bind. It is a read, unless there is something to undo:
the event that a ``wait`` took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan import words
from saga_engine.plan.ask import ask_output, check_ask
from saga_engine.plan.child import OUTPUT
from saga_engine.plan.tool_spec import Effect, ToolSpec
from saga_engine.plan.value_schema import ValueSchema
from saga_engine.plan.wait import check_wait, wait_output

if TYPE_CHECKING:
    from saga_engine.plan.bindings import Template
    from saga_engine.plan.problems import Path, Problems

_Check = Callable[["Problems", Any, "Template", "Path"], None]

#: What is wrong with the body of a step, by its word.
_CHECKS: Final[Mapping[str, _Check]] = {"ask": check_ask, "wait": check_wait}
#: The schema of its output, if its body determines one.
_OUTPUTS: Final[Mapping[str, Callable[[Any], dict[str, Any] | None]]] = {
    "ask": ask_output,
    "saga": lambda _: dict(OUTPUT),
    "wait": wait_output,
}
#: The error code of a step that was in vain (``core.steps``), for ``"on_timeout": "continue"``.
_IN_VAIN: Final = {"ask": "ask_expired", "wait": "wait_timed_out"}


def tolerated(word: str, body: Any) -> str:
    """The error code of a failure from which the saga goes on, because the body says so; empty: there is none."""
    return _IN_VAIN[word] if word in _IN_VAIN and body.get("on_timeout") == "continue" else ""


def builtin_spec(word: str, body: Any, *, undone: bool = False, late: bool = False) -> ToolSpec:
    """The declaration of a built-in step; ``undone``: it has a rollback; ``late``: its body had an ``on_late``."""
    schema: Mapping[str, Any] | None = None
    if word in _OUTPUTS:
        schema = _OUTPUTS[word]({**body, "on_late": True} if late else body)
    elif word not in words.BUILTINS and words.known(word):
        schema = words.word(word).output
    effect: Effect = "write" if undone else "read"
    if schema is None:
        return ToolSpec(name=word, effect=effect)
    return ToolSpec(name=word, effect=effect, output_schema=dict(schema), check_output=ValueSchema(schema))


def check_builtin(problems: Problems, word: str, params: Template, path: Path) -> None:
    """Add the problems of the built-in step at ``path`` that its bindings leave visible."""
    if word in _CHECKS:
        _CHECKS[word](problems, params.raw[word], params, (*path, word))
    elif word not in words.BUILTINS:
        words.check(problems, word, params, (*path, word))
