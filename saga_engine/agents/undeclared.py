"""Tools of which nobody has said what they do: plain functions, as most programs have them.

Such a call counts as a write that nothing takes back. It is journalled, and answered from the journal in another life
of its agent; when the session fails an operator is asked before the rest is undone, and the report names it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from saga_engine.core.state import State
from saga_engine.core.states import SUCCEEDED
from saga_engine.loggers import logger_of
from saga_engine.plan.name_guesses import back_of, reads
from saga_engine.plan.tool_spec import ToolCatalog

_log = logger_of("saga_engine")
#: The tools of which this process has said so.
_noted: Final[set[str]] = set()


def note_undeclared(catalog: ToolCatalog, name: str) -> None:
    """Say once of a tool what its calls count as, and the word that would change it."""
    if name not in _noted:
        _noted.add(name)
        what = "the tool %r says nothing of its effect: a write that nothing takes back. %s"
        _log.warning(what, name, word(catalog, name))


def word(catalog: ToolCatalog, name: str) -> str:
    """What would declare a tool, as far as its name tells."""
    if reads(name):
        return 'If it only reads, say @tool(effect="read")'
    undo = back_of(name, catalog.names())
    if undo:
        return f'If {undo!r} takes it back, say @tool(undo="{undo}")'
    return 'Name what takes it back: @tool(undo=…), or @tool(effect="read") if it only reads'


def is_undeclared(catalog: ToolCatalog, name: str) -> bool:
    """Whether nobody has said what a tool does: a plain function without an undo that is not declared a read."""
    spec = catalog.spec(name)
    said = spec is None or spec.declared or spec.undo is not None or spec.effect == "read"
    return not said and spec is not None and spec.semantic in (None, "never")


def undeclared_calls(state: State, catalog: ToolCatalog, deliberate: Collection[str]) -> list[str]:
    """The calls that stand of tools that nobody declared; ``deliberate``: those that are meant to stay."""
    return [
        compiled.key
        for compiled, step in zip(state.plan.steps, state.steps, strict=True)
        if compiled.kind == "irreversible"
        and step.status == SUCCEEDED
        and compiled.key not in deliberate
        and is_undeclared(catalog, compiled.tool)
    ]
