"""What goes on beside a driver, of a kind that the engine does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from saga_engine.core.records import AnyRecord, MessageRefused
from saga_engine.errors import StoreUnavailable
from saga_engine.runtime import companions
from saga_engine.runtime.companions import Companion, Companions, Kind

AWAY = StoreUnavailable("the store is away", hint="it is a test")


class Letters(Companion):
    """Writes letters; each answer is a record."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.begun = self.done = 0
        self.told: list[bool] = []
        self.refusals: list[str] = []
        self.answers: list[Any] = []
        self.free = asyncio.Event()
        self.error: Exception | None = None

    @property
    def holds(self) -> bool:
        return bool(self.answers)

    def take(self, now_ms: int) -> Iterator[AnyRecord]:
        while self.answers:
            yield self.answers.pop(0)

    def settled(self, now_ms: int) -> bool:
        return self.done > 0

    def due_ms(self) -> int | None:
        return 7

    def refused(self, message: Any, record: MessageRefused) -> None:
        self.refusals.append(record.code)

    async def work(self, *, queued: bool, now_ms: int) -> None:
        self.begun += 1
        await self.free.wait()
        if self.error is not None:
            raise self.error
        self.done += 1
        self.answers.append(("answered", now_ms))

    async def last(self, *, queued: bool) -> None:
        if self.error is not None:
            raise self.error
        self.told.append(queued)


def state(on: str = "letter", status: str = "RUNNING") -> Any:
    return SimpleNamespace(
        pending={0: SimpleNamespace(on=on)} if on else {}, status=status, saga_id="s", backward=False
    )


def beside(whose: Any, roused: list[int] | None = None, **kind: Any) -> tuple[Companions, list[Letters]]:
    made: list[Letters] = []

    def companion(of: Any) -> Letters:
        made.append(Letters(of))
        return made[-1]

    found = Companions((Kind(companion, **kind),), whose, lambda: None if roused is None else roused.append(1))
    return found, made


async def attend(them: Companions, *, busy: bool = False, stopping: bool = False) -> None:
    await them.attend(busy=busy, stopping=stopping, queued=True, now_ms=5)


async def test_it_begins_with_its_first_wait() -> None:
    """A saga that waits for something else has none."""
    them, made = beside(state("other"), on="letter")
    assert not them.begin()
    assert them.settled(0)
    them, made = beside(state(), on="letter")
    assert them.begin()
    assert them.begin()
    assert len(made) == 1
    assert (them.settled(0), them.due_ms()) == (False, 7)


async def test_its_work_goes_on_beside_calls_and_wakes_the_driver() -> None:
    """It is begun once, and joined as soon as no call is made."""
    roused: list[int] = []
    them, made = beside(state(), roused, on="letter")
    them.begin()
    for _ in range(3):
        await attend(them, busy=True)
        await asyncio.sleep(0)
    assert made[0].begun == 1
    assert not roused
    made[0].free.set()
    await attend(them)
    assert made[0].begun == made[0].done == 1
    assert roused == [1]
    assert them.holds
    assert list(them.take(0)) == [("answered", 5)]
    assert not them.holds


@pytest.mark.virtual_time
async def test_what_fails_in_passing_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Beside calls it stops nothing; without one the driver has the error."""
    roused: list[int] = []
    them, made = beside(state(), roused, on="letter")
    them.begin()
    made[0].error = AWAY
    made[0].free.set()
    await attend(them, busy=True)
    await asyncio.wait(them.tasks())
    assert "is tried again: the store is away" in caplog.text
    assert not roused
    await asyncio.sleep(companions.AGAIN_S)  # (in virtual time)
    assert roused == [1]  # although no call of the saga has ended
    with pytest.raises(StoreUnavailable):
        await attend(them)
    made[0].error = None
    await attend(them)
    assert made[0].begun == 3


@pytest.mark.parametrize("begins", [True, False])
async def test_a_driver_that_stops_begins_nothing_new(begins: bool) -> None:
    """What only tells others of what there is goes on."""
    them, made = beside(state(), on="letter", begins=begins)
    them.begin()
    made[0].free.set()
    await attend(them, stopping=True)
    assert made[0].begun == (0 if begins else 1)


@pytest.mark.parametrize(("status", "told"), [("COMPLETED", [True]), ("ESCALATED", [])])
async def test_others_are_told_of_the_end(status: str, told: list[bool]) -> None:
    """Also if nothing went on beside it before; a saga that only rests has no end."""
    them, made = beside(state("", status), follows=lambda *_: True)
    assert them.follows()
    assert await them.ended(queued=True)
    assert [each for one in made for each in one.told] == told


async def test_an_end_that_cannot_be_told_is_left_to_a_worker() -> None:
    """What came before it is awaited."""
    them, made = beside(state(status="COMPLETED"), on="letter")
    them.begin()
    await attend(them, busy=True)
    made[0].error = AWAY
    made[0].free.set()
    assert not await them.ended(queued=False)
    assert made[0].begun == 1
    made[0].error = None
    assert await them.ended(queued=False)
    assert made[0].told == [False]


async def test_it_answers_for_the_messages_that_are_refused_with_its_codes() -> None:
    """Also if it had nothing to do before."""
    them, made = beside(state(""), refusals=frozenset({"letter-late"}))
    for code in ("other", "letter-late"):
        record = MessageRefused(at=0, message="m", code=code, reason="late")
        them.refused(b'{"id":"m","kind":"event"}', record)
    assert [each.refusals for each in made] == [["letter-late"]]
