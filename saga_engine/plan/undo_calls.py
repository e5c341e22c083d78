"""Undos of several calls: which calls an undo consists of, once the lists that it visits are known.

A rollback is one call, and perhaps others that follow it (``CompiledRollback.then``). One with ``each`` stands for a
call for each item of a list, which is bound out of the output or of the value from before the call. Every call is named
by its place: the rollback that it comes from, and its item.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from saga_engine.errors import BindingUnresolved
from saga_engine.plan.bindings import Template
from saga_engine.plan.compiled import CompiledRollback, Item, Params, Scope
from saga_engine.plan.each import ItemParams
from saga_engine.plan.limits import MAX_ITEMS
from saga_engine.plan.problems import Path

#: The name of the list in the template of a rollback's ``each``.
WORD: Final = "each"


class UndoPlace(NamedTuple):
    """One call of an undo: the rollback in the order as written, and the position of its item; -1: it has no list."""

    entry: int
    item: int = -1


def undo_places(rollback: CompiledRollback, scope: Scope) -> list[UndoPlace]:
    """The calls of an undo, in order; none, if all its lists are empty. Raises ``BindingUnresolved``."""
    found: list[UndoPlace] = []
    for entry, call in enumerate((rollback, *rollback.then)):
        if call.each is None:
            found.append(UndoPlace(entry))
        else:
            found += [UndoPlace(entry, item) for item in range(len(_items(call.each, scope)))]
    return found


def undo_call(rollback: CompiledRollback, place: UndoPlace, key: str, index: int) -> CompiledRollback:
    """One call of an undo of the step ``key`` at ``index``."""
    call = (rollback, *rollback.then)[place.entry]
    if place.item >= 0 and call.each is not None:
        params = _ListItemParams(call.params, call.each, place.item, key, index)
        return replace(call, params=params, usual=params if call.usual is call.params else None)
    return call


def written_undos(rollback: CompiledRollback | None, path: Path) -> Iterator[tuple[Path, CompiledRollback]]:
    """The calls of an undo at ``path`` whose params are written, each with its own path."""
    if rollback is None:
        return
    if isinstance(rollback.params, Template) and not rollback.declared:
        yield path, rollback
    for number, call in enumerate(rollback.then):
        yield from written_undos(call, (*path, "then", number))
    yield from written_undos(rollback.absent, (*path, "when_absent"))


def _items(each: Params, scope: Scope) -> Sequence[Any]:
    items = each.resolve(scope)[WORD]
    if not isinstance(items, list):
        raise BindingUnresolved("the list of a rollback's 'each' is no list", hint="bind a list: $output.step_1.items")
    if len(items) > MAX_ITEMS:
        raise BindingUnresolved(f"the list of a rollback's 'each' has {len(items)} items, but {MAX_ITEMS} are allowed")
    return items


class _ListItemParams(ItemParams):
    """Params of the call for one item of a list, which is looked up when they are resolved."""

    __slots__ = ("_each", "_index", "_key", "_number")

    def __init__(self, template: Params, each: Params, number: int, key: str, index: int) -> None:
        super().__init__(template, Item(index, number, key, key, None))
        self._each = each
        self._number = number
        self._key = key
        self._index = index
        self.bound = True

    def resolve(self, scope: Scope) -> dict[str, Any]:
        """The params of the call. Raises ``BindingUnresolved``."""
        items = _items(self._each, scope)
        if self._number >= len(items):
            raise BindingUnresolved(f"the list of a rollback's 'each' has no item {self._number}")
        item = Item(self._index, self._number, self._key, self._key, items[self._number])
        return ItemParams(self._template, item).resolve(scope)
