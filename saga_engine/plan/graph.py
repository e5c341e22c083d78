"""Order in a graph of steps, given as a list: ``deps[i]`` holds the indexes that step ``i`` waits for.

No function recurses, and all are linear in steps and edges except ``ancestors``, which keeps one bit for each pair of
steps (12.5 MB for 10,000 steps).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def dependents(deps: Sequence[Iterable[int]]) -> list[list[int]]:
    """The reverse of ``deps``, each list in ascending order."""
    result: list[list[int]] = [[] for _ in deps]
    for index, needed in enumerate(deps):
        for before in needed:
            result[before].append(index)
    return result


def sort(deps: Sequence[Iterable[int]]) -> list[int]:
    """An order in which every step stands after those it waits for; steps on or behind a cycle are missing."""
    after = dependents(deps)
    waiting = [0] * len(deps)
    for following in after:
        for index in following:
            waiting[index] += 1
    ready = [index for index, count in enumerate(waiting) if count == 0]
    for index in ready:  # the loop appends to it
        for following_index in after[index]:
            waiting[following_index] -= 1
            if waiting[following_index] == 0:
                ready.append(following_index)
    return ready


def cycles(deps: Sequence[Iterable[int]], ordered: Iterable[int]) -> list[list[int]]:
    """Cycles among the steps that are not in ``ordered``: in each list every step waits for the next one.

    Every group of steps that wait for each other is in at least one of them, if not each of its cycles.
    """
    rest = set(range(len(deps))).difference(ordered)
    # Each remaining step waits for another remaining one; following one such edge from each must meet a cycle.
    follow = {index: min(before for before in deps[index] if before in rest) for index in rest}
    found: list[list[int]] = []
    walk_of: dict[int, int] = {}
    for start in sorted(rest):
        walk: list[int] = []
        at = start
        while at not in walk_of:
            walk_of[at] = start
            walk.append(at)
            at = follow[at]
        if walk_of[at] == start:
            found.append(walk[walk.index(at) :])
    return found


def reach(start: int, edges: Sequence[Iterable[int]]) -> set[int]:
    """All steps that can be reached from ``start`` along ``edges``, without ``start`` itself."""
    seen = {start}
    stack = [start]
    while stack:
        for index in edges[stack.pop()]:
            if index not in seen:
                seen.add(index)
                stack.append(index)
    seen.discard(start)
    return seen


def ancestors(deps: Sequence[Iterable[int]], ordered: Iterable[int]) -> list[int]:
    """For each step the set of all steps before it, as the bits of a number."""
    bits = [0] * len(deps)
    for index in ordered:
        before = 0
        for needed in deps[index]:
            before |= bits[needed] | (1 << needed)
        bits[index] = before
    return bits
