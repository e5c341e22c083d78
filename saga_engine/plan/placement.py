"""Where added steps stand in a plan's list: at its end, or in the place of steps that will not run any more.

The order of the list decides what a step without ``depends_on`` waits for. Steps that replace a failed one take its
place, so that what follows it in the list, and is kept, follows them. What cannot be undone still comes after what can:
the pivot waits for every new step that can be undone, and a new retriable step waits for the pivot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from saga_engine.plan import graph

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledStep
    from saga_engine.plan.draft import Block, Draft


def arrange(made: Draft) -> None:
    """Set the order of the list of a draft."""
    blocks = made.blocks
    order = list(range(blocks[0].first if blocks else len(made.steps)))
    for block in blocks:
        indexes = list(range(block.first, block.end))
        at = made.by_key.get(block.place)
        if at is None or at not in order:
            order += indexes
            continue
        made.placed |= set(indexes)
        # The pivot and what follows it have a place of their own: behind all that can be undone.
        split = next((new for new in indexes if made.steps[new].kind in {"pivot", "retriable"}), block.end)
        head, tail = list(range(block.first, split)), list(range(split, block.end))
        _insert(order, head, [at, *_named(made, head)])
        behind = [at, *head, *_named(made, tail), *_before_the_pivot(made, block, order)]
        _insert(order, tail, behind)
    made.position = {index: position for position, index in enumerate(order)}
    made.order = order


def _insert(order: list[int], indexes: list[int], behind: Sequence[int]) -> None:
    """Insert steps behind the last of others."""
    positions = {index: position for position, index in enumerate(order)}
    last = max(positions[index] for index in behind if index in positions)
    order[last + 1 : last + 1] = indexes


def _named(made: Draft, indexes: Sequence[int]) -> Iterator[int]:
    """The steps that these name, in a binding or in ``depends_on``."""
    for index in indexes:
        for wanted in made.plan.steps[index].depends_on or ():
            if str(wanted) in made.by_key:
                yield made.by_key[str(wanted)]
        for template, _, _, undo in made.bound.get(index, ()):
            for place in () if undo else template.places:
                if place.source == "output":
                    yield made.by_key[place.step]


def _before_the_pivot(made: Draft, block: Block, order: Sequence[int]) -> Iterator[int]:
    """The steps behind which a new pivot, or what follows the old one, stands."""
    for index in order:
        step = made.steps[index]
        wanted = step.key not in made.dropped
        if step.kind == "compensatable" and wanted:
            yield index
        if step.kind == "pivot" and (wanted or step.key in block.dropped):
            yield index


def around_the_pivot(made: Draft) -> None:
    """Have the pivot wait for every placed step that can be undone, and placed retriable steps wait for the pivot."""
    pivots = [step for step in made.steps if step.kind == "pivot" and step.key not in made.dropped]
    if not made.placed or len(pivots) != 1:
        return
    pivot = pivots[0]
    for index in sorted(made.placed):
        step = made.steps[index]
        if step.key in made.dropped or step is pivot:
            continue
        if step.kind == "compensatable":
            _wait(made, pivot, step)
        elif step.kind == "retriable":
            _wait(made, step, pivot)


def _wait(made: Draft, step: CompiledStep, earlier: CompiledStep) -> None:
    """Have a step wait for an ``earlier`` one, unless that would be a cycle."""
    deps = [each.deps for each in made.steps]
    if earlier.index not in step.deps and step.index not in graph.reach(earlier.index, deps):
        step.deps = tuple(sorted({*step.deps, earlier.index}))
