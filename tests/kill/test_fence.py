"""The fence, proved by its absence: each check that the append script makes is needed, and its loss is noticed.

Two sessions contend for one saga in every order that a few moves allow, beside a model of who may write.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence

import pytest

from saga_engine.errors import LeaseLost
from saga_engine.ports import Acquired, Creation, Entry, Store
from saga_engine.stores import client, open_store, scripts
from saga_engine.stores.scripts import Script
from tests.support.mutating import place

OWNERS = ("A", "B")
LONG_MS = 600_000
#: What may happen next. ``over``: the lease ends. ``writes``: an append under the last epoch that was granted to it;
#: ``late``: under the first one, by a process that was frozen, or over a connection that was given up; ``too``: another
#: record at the same place, as if two drivers of one process had the saga.
MOVES = (
    *("A takes", "B takes", "A over", "B over", "A gives"),
    *("A writes", "B writes", "A writes late", "B writes late", "A writes too"),
)
MUTANTS = {
    "no epoch": ("if found[1] ~= epoch then", "if false then"),
    "no owner": ("local ours = found[2] == owner and alive(tag)", "local ours = alive(tag)"),
    "no session": ("local ours = found[2] == owner and alive(tag)", "local ours = found[2] == owner"),
    "no owner and no session": ("local ours = found[2] == owner and alive(tag)", "local ours = true"),
    "no place in the journal": ("if length ~= seq then\n    return CONFLICT", "if false then\n    return CONFLICT"),
}


class Session:
    """A process, as the store sees it: its lease, and every epoch that it was ever given, with the length it knew."""

    def __init__(self) -> None:
        self.alive = True
        self.granted: list[tuple[int, int]] = []


class Contest:
    """One order of moves on one saga, and the model of who may write: the owner of the last epoch, while it lives."""

    def __init__(self, store: Store, saga_id: str) -> None:
        self.store = store
        self.saga_id = saga_id
        self.sessions = {name: Session() for name in OWNERS}
        self.owner = "A"
        self.epoch = 1
        self.length = 1
        self.sessions["A"].granted.append((1, 1))

    async def begin(self) -> None:
        for name in OWNERS:
            await self.store.open_lease(self._name(name), LONG_MS)
        entry = Entry(self.saga_id, 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))
        await self.store.append(self._name("A"), [entry])

    def _name(self, name: str) -> str:
        return f"{name}-{self.saga_id}"

    async def move(self, move: str) -> str:
        """Make a move; returns the law that broke, or nothing."""
        name, _, what = move.partition(" ")
        session = self.sessions[name]
        if what == "over":
            session.alive = False
            await self.store.close_lease(self._name(name))
        elif what == "gives":
            if self.owner == name and session.granted:
                await self.store.release(self.saga_id, session.granted[-1][0])
                if session.granted[-1][0] == self.epoch:
                    self.owner = ""
        elif what == "takes":
            return await self._take(name, session)
        elif session.granted:
            return await self._write(move, name, session.granted[0 if what.endswith("late") else -1])
        return ""

    async def _take(self, name: str, session: Session) -> str:
        allowed = session.alive and (self.owner in ("", name) or not self.sessions[self.owner].alive)
        try:
            answer = await self.store.acquire(self.saga_id, self._name(name))
        except LeaseLost:
            return "a living session was refused" if session.alive else ""
        if isinstance(answer, Acquired) != allowed:
            return f"{name} asked for the saga, allowed: {allowed}, answer: {answer}"
        if isinstance(answer, Acquired):
            if (answer.epoch, answer.seq) != (self.epoch + 1, self.length):
                return f"taken with {answer}, after epoch {self.epoch} at length {self.length}"
            self.owner, self.epoch = name, answer.epoch
            session.granted.append((answer.epoch, answer.seq))
        return ""

    async def _write(self, move: str, name: str, granted: tuple[int, int]) -> str:
        epoch, seq = granted
        record = f"{name} under {epoch} at {seq}{' too' if move.endswith('too') else ''}".encode()
        allowed = name == self.owner and epoch == self.epoch and self.sessions[name].alive and seq == self.length
        entry = Entry(self.saga_id, seq, epoch, [record])
        (ack,) = (await self.store.append(self._name(name), [entry])).acks
        if (ack.code == "ok") != allowed and not await self._there_already(seq, record):
            return f"{record!r} was acknowledged with {ack.code}, allowed: {allowed}"
        if allowed:
            self.length += 1
        found = len(await self.store.read(self.saga_id))
        return "" if found == self.length else f"the journal has {found} records, {self.length} were allowed"

    async def _there_already(self, seq: int, record: bytes) -> bool:
        """A write that is asked again is acknowledged again; that is no second write."""
        return self.length == seq + 1 and list(await self.store.read(self.saga_id, seq)) == [record]


def orders(length: int) -> Iterator[Sequence[str]]:
    """Every order of moves up to ``length``; those that end in a write are the ones that tell something."""
    for count in range(1, length + 1):
        for moves in itertools.product(MOVES, repeat=count):
            if "writes" in moves[-1] and len(set(moves)) == count:
                yield moves


async def two_owners(length: int) -> str:
    """Play every order; the first law that broke, with the order that broke it."""
    store = open_store("memory://")
    await store.open()
    for number, moves in enumerate(orders(length)):
        contest = Contest(store, f"s{number}")
        await contest.begin()
        for move in moves:
            broken = await contest.move(move)
            if broken:
                return f"{' / '.join(moves)}: {broken}"
    await store.close()
    return ""


async def test_two_owners_in_every_order() -> None:
    """Only the owner of the last epoch writes, only while its session lives, and only where the journal ends."""
    assert await two_owners(3) == ""


@pytest.mark.slow
async def test_two_owners_in_every_longer_order() -> None:
    """The same, one move further."""
    assert await two_owners(4) == ""


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_fence_with_a_hole_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check of the append script, taken out, lets somebody write who must not."""
    old, new = MUTANTS[name]
    broken = place(old).stem
    body = scripts.script(broken).body.decode().replace(old, new).encode()
    mutant = Script(body, hashlib.sha1(body).hexdigest().encode())
    monkeypatch.setattr(client, "script", lambda asked: mutant if asked == broken else scripts.script(asked))
    assert await two_owners(3) != ""
