"""Which other sagas have written since a step's own write, and have not taken that back.

The store tells of each write the key of its call, and so its saga and step; the journal of that saga tells what came of
it. What is not known counts as a write: at worst a person is asked without need.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from saga_engine.core import states as t
from saga_engine.core.effects import FORWARD
from saga_engine.errors import SagaError, StoreUnavailable
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.ports import Rivals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saga_engine.core.state import State
    from saga_engine.guards.holds.family import Families, Kin
    from saga_engine.ports import Call, GuardStore, Write

_log = logger_of("saga_engine.guards")

#: So many writes are named.
_NAMED: Final = 3
#: An effect passes from saga to saga (forks, undos) no more often.
_PASSED_ON: Final = 16
#: An undo that has just been made may not be in its journal yet: how often, and when, that is read again.
_LOOKS: Final = 20
_LOOK_S: Final = 0.025


class _Came(NamedTuple):
    """What came of a write: whether it stands, the key of its text, what its undo would need, the status of its saga.

    Without a text it was no write.
    """

    stands: bool
    text: str = ""
    hint: str = ""
    status: str = ""


_NO_WRITE: Final = _Came(stands=False)
_BACK: Final = _Came(False, "drift.wrote-back")
#: Steps in these states have changed nothing.
_NOT_DONE: Final = frozenset({t.FAILED, t.BLOCKED, t.SKIPPED})


class Writers:
    """Who wrote the resources of this store."""

    __slots__ = ("_families", "_kin", "_store")

    def __init__(self, store: GuardStore, families: Families, kin: Kin | None) -> None:
        self._store = store
        self._families = families
        self._kin = kin

    async def since(self, keys: Sequence[str], call: Call) -> Rivals | None:
        """Who else has written any of these since the call that an undo takes back; None: nobody is known of.

        Raises ``StoreUnavailable`` and ``StoreRefused``.
        """
        assert call.undoes is not None, "it is an undo"
        own = call.undoes[1]
        family = (await self._families.of(call)).family
        ours = {call.saga_id, family, own.partition(":")[0]}
        newest, told = list[int](), dict[str, tuple[str, str]]()
        for key in keys:
            found = await self._of(key, own, ours, family)
            newest.append(max((write.at_ms for write, came in found if came.stands), default=0))
            for write, came in found:
                if came != _NO_WRITE:  # of each saga the last one is named
                    told.setdefault(write.key.partition(":")[0], (_told(write, came), came.hint))
        if not told:
            return None
        named = [*told.values()][:_NAMED]
        hints = dict.fromkeys(hint for _, hint in named if hint)
        return Rivals("; ".join(words for words, _ in named), "; ".join(hints), (*newest,))

    async def _of(self, key: str, own: str, ours: set[str], family: str) -> list[tuple[Write, _Came]]:
        """The writes of others since the own one, the newest first, until enough of them stand."""
        writes = await self._store.writes(key)
        # The own write is not among them if the list was too long, or is younger than it: then all came later.
        since = max((write.at_ms for write in writes if write.key == own), default=0)
        later = [write for write in writes if write.at_ms > since]
        known = {write.key for write in later}
        found: list[tuple[Write, _Came]] = []
        for write in reversed(later):
            saga = write.key.partition(":")[0]
            if saga in ours or (top := await self._families.named(saga)) == family:
                continue
            found.append((write, await self._came_of(write, known, top)))
            if sum(came.stands for _, came in found) == _NAMED:
                break
        return found

    async def _came_of(self, write: Write, known: set[str], top: str) -> _Came:
        """What came of a write of another saga; ``top``: the saga above it."""
        saga, _, rest = write.key.partition(":")
        step, _, way = rest.partition(":")
        for _ in range(_LOOKS):
            state = await self._state(saga)
            if state is None or step not in state.plan.by_key or not write.key.endswith(f":{state.seed}"):
                return _Came(True, "drift.wrote-lost")
            index = state.plan.by_key[step]
            forward = state.key(index, FORWARD)
            if way.startswith("c"):  # of a write that is among these, that one tells
                return _NO_WRITE if forward in known else _Came(True, "drift.wrote-undo")
            if forward != write.key:
                return _NO_WRITE  # a fallback has taken its place, so it did not happen
            owner = await self._owner(state, index)
            if owner is None:
                return _Came(True, "drift.wrote-lost")
            index = owner.plan.by_key[step]
            undone = any(key.startswith(f"{owner.saga_id}:{step}:c") for key in known)
            if owner.steps[index].status != t.COMPENSATING or not undone:
                return _what(owner, index, top if owner is state else owner.saga_id)
            await asyncio.sleep(_LOOK_S)
        return _Came(True, "drift.wrote-undoing", said("drift.hint-wait", saga=saga))

    async def _owner(self, state: State, index: int) -> State | None:
        """The saga to which the effect of a step has passed: a fork, or an undo; None: it is not known."""
        step = state.plan.steps[index].key
        at: State | None = state
        for _ in range(_PASSED_ON):
            to = "" if at is None else getattr(at.steps[at.plan.by_key[step]].effect, "to", "")
            if not to:
                return at
            at = await self._state(to)
            if at is not None and step not in at.plan.by_key:
                return None
        return None

    async def _state(self, saga_id: str) -> State | None:
        try:
            return None if self._kin is None else await self._kin.state(saga_id)
        except StoreUnavailable:
            raise
        except SagaError as error:
            _log.warning("what saga %s wrote is not known: %s", saga_id, error.message)
            return None


def _what(owner: State, index: int, top: str) -> _Came:
    """What came of a step's write, by the journal of the saga that owns its effect."""
    step = owner.steps[index]
    if step.status in _NOT_DONE:
        return _NO_WRITE
    if step.status == t.COMPENSATED or (step.status == t.RESOLVED and not step.accepted):
        return _BACK
    if owner.undoing(index) is None or owner.status in (t.WAIVED, t.COMPENSATED):
        return _Came(True, "drift.wrote-stays")
    if owner.turns or owner.backward:
        return _Came(True, "drift.wrote-undoing", said("drift.hint-wait", saga=owner.saga_id))
    if owner.status == t.COMPLETED:
        return _Came(True, "drift.wrote", said("drift.hint-undo", saga=top))
    return _Came(True, "drift.wrote-runs", said("drift.hint-cancel", saga=top), owner.status)


def _told(write: Write, came: _Came) -> str:
    saga, step, *_ = write.key.split(":", 2)
    at = datetime.fromtimestamp(write.at_ms / 1000, UTC).isoformat(timespec="seconds")
    return said(came.text, saga=saga, step=step, at=at, status=came.status)
