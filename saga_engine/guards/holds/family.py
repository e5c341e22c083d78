"""Which sagas are one holder: a saga with its children and theirs, and a saga that undoes one of them.

The name of the family is that of the saga at the top; of an undo, that of the saga that it undoes. What a family holds
is released at the end of one saga: the one at the top, or the undo, which goes on when that one has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from saga_engine.ports import Standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from saga_engine.core.state import State
    from saga_engine.ports import Call, HeldResource


class Kin(Protocol):
    """What the journals of other sagas say. All methods raise ``StoreUnavailable``."""

    async def origin(self, saga_id: str) -> Standing | None:
        """What the first record of a saga says of it; None: there is no such saga (any more)."""
        ...

    async def may_turn(self, saga_id: str) -> bool:
        """Whether a saga can be undone whole now."""
        ...

    async def state(self, saga_id: str) -> State | None:
        """What has come of a saga; None: it does not exist (any more). Raises ``JournalUnreadable``."""
        ...


#: So many families are remembered.
_MOST: Final = 4096
#: A chain of parents is not longer (``MAX_CHILD_DEPTH``, and an undo between two).
_DEEPEST: Final = 64


class Member(NamedTuple):
    """The family of a saga, the saga at whose end its holds are released, and when that one began."""

    family: str
    saga: str
    started_ms: int


class Families:
    """The families of the sagas of a process."""

    __slots__ = ("_kin", "_known")

    def __init__(self, kin: Kin | None) -> None:
        self._kin = kin
        self._known: dict[str, Member] = {}

    async def of(self, call: Call) -> Member:
        """The family of the saga of a call. Raises ``StoreUnavailable``."""
        saga_id = call.saga_id
        return await self._of(saga_id, Standing(0) if call.standing is None else call.standing())

    async def named(self, saga_id: str) -> str:
        """The family of a saga. Raises ``StoreUnavailable``."""
        known = self._known.get(saga_id)
        standing = None if self._kin is None or known is not None else await self._kin.origin(saga_id)
        return (known or await self._of(saga_id, standing or Standing(0))).family

    async def _of(self, saga_id: str, standing: Standing) -> Member:
        if self._kin is None or not (standing.parent or standing.undo_of):
            return Member(saga_id, saga_id, standing.started_ms)
        found = self._known.get(saga_id)
        if found is None:
            top, at = await self._top(saga_id, standing)
            family, started_ms = top, at.started_ms
            for _ in range(_DEEPEST):
                if not at.undo_of:
                    break
                before = await self._kin.origin(at.undo_of)
                family, at = (at.undo_of, Standing(0)) if before is None else await self._top(at.undo_of, before)
            found = Member(family, top, started_ms)
            while len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            self._known[saga_id] = found
        return found

    async def may_turn(self, call: Call) -> bool:
        """Whether the saga of a call, and all that wait for it, can be undone whole. Raises ``StoreUnavailable``."""
        if call.standing is None:
            return False
        at = call.standing()
        if at.undo_of or not at.may_turn():
            return False
        for _ in range(_DEEPEST):
            if not at.parent:
                return True
            if self._kin is None or not await self._kin.may_turn(at.parent):
                return False
            above = await self._kin.origin(at.parent)
            if above is None:
                return False
            at = above
        return False

    async def saga_may_turn(self, saga_id: str) -> bool:
        """Whether a saga that waits somewhere can be undone whole. Raises ``StoreUnavailable``."""
        return self._kin is not None and await self._kin.may_turn(saga_id)

    async def _top(self, saga_id: str, at: Standing) -> tuple[str, Standing]:
        """The saga above all that wait for this one."""
        assert self._kin is not None
        for _ in range(_DEEPEST):
            above = await self._kin.origin(at.parent) if at.parent else None
            if above is None:
                break
            saga_id, at = at.parent, above
        return saga_id, at


# --- circles of which each family waits for what the next one holds: pure -------------------------------------------


class InCircle(NamedTuple):
    """A family in a circle, when it began, and its sagas that hold or wait."""

    family: str
    started_ms: int
    sagas: Sequence[str]


def circle_of(family: str, found: Iterable[HeldResource]) -> list[InCircle]:
    """The other families of all circles in which a family waits; none: it waits for somebody who goes on."""
    waits_for: dict[str, set[str]] = {}
    held_by: dict[str, set[str]] = {}
    began: dict[str, int] = {}
    sagas: dict[str, set[str]] = {}
    for each in found:
        holders = {holder.family for holder in each.holders}
        for holder in each.holders:
            began[holder.family] = holder.started_ms
            sagas.setdefault(holder.family, set()).add(holder.saga)
        for ticket, _ in each.waiting:
            saga, _, rest = ticket.partition(" ")
            who = rest.partition(" ")[2] or saga
            sagas.setdefault(who, set()).add(saga)
            for other in holders - {who}:
                waits_for.setdefault(who, set()).add(other)
                held_by.setdefault(other, set()).add(who)
    around = _reached(family, waits_for) & _reached(family, held_by)
    return [InCircle(each, began[each], sorted(sagas[each])) for each in sorted(around - {family}) if family in around]


def _reached(start: str, edges: dict[str, set[str]]) -> set[str]:
    """All that is reached from a family, and itself only by a circle."""
    reached: set[str] = set()
    open_ones = [start]
    while open_ones:
        for each in edges.get(open_ones.pop(), ()):
            if each not in reached:
                reached.add(each)
                open_ones.append(each)
    return reached
