"""Several events, time-out, cancel, answer and the ends of processes, in any order and at the same time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from saga_engine.ports import Receipt
from saga_engine.runtime import events as delivering
from saga_engine.stores.events import RedisEvents
from tests.support.mutating import rewrite
from tests.support.servers import EmbeddedFolder
from tests.support.several_races import How, SeveralRace
from tests.support.wait_races import movable_clock

Breaking = Callable[[pytest.MonkeyPatch], None]
#: How many plays CI makes of each kind, in groups; the long form makes many more.
SHORT, LONG = 10, 500

#: What competes for a wait, in order, and what ends it. Its owner learns of it at the end, and where it is said.
ORDERS = (
    ("first", "card bank cancel", "event"),
    ("first", "bank learn card cancel", "event"),
    ("first", "cancel card bank", "cancel"),
    ("first", "time bank card", "time"),
    ("all", "card bank cancel", "event"),
    ("all", "bank learn card cancel", "event"),
    ("all", "bank learn card learn time cancel", "event"),
    ("all", "card cancel bank", "cancel"),
    ("all", "card learn cancel bank", "cancel"),
    ("all", "card time bank", "time"),
    ("all", "bank learn time card", "time"),
    ("first", "card-url bank cancel", "event"),
    ("first", "time bank-url card-url", "time"),
    ("all", "card-url bank-url cancel", "event"),
    ("all", "bank-url learn card learn time", "event"),
    ("all", "card-url learn cancel bank-url", "cancel"),
    ("all", "card-url learn time bank-url", "time"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedFolder]:
    folder = tmp_path_factory.mktemp("races")
    with movable_clock(folder), EmbeddedFolder(folder / "saga") as server:
        yield server


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "_TELL_AGAIN_MS", 0)


async def races(how: How, server: EmbeddedFolder, seeds: range, folder: Path) -> list[str]:
    return [sentence for seed in seeds for sentence in await SeveralRace(how, server.url, folder, seed).play()]


@pytest.mark.parametrize("how", ["first", "all"])
async def test_races(how: How, server: EmbeddedFolder, tmp_path: Path) -> None:
    """One record ends the wait; each event is taken by it, or late; journal, report, store and ledger agree on that."""
    assert await races(how, server, range(SHORT), tmp_path) == []


@pytest.mark.parametrize(("how", "first", "winner"), ORDERS)
async def test_the_first_of_those_that_compete_ends_the_wait(
    how: How, server: EmbeddedFolder, first: str, winner: str, tmp_path: Path
) -> None:
    """Whoever comes first ends the wait; a wait for all has come to its end when the last one has come."""
    for seed in range(2):
        assert await SeveralRace(how, server.url, tmp_path, seed, first.split(), winner).play() == []


def takes_each_at_once(patch: pytest.MonkeyPatch) -> None:
    async def arrived(self: RedisEvents, channel: Any, waiter: Any, event: str, *, keep_ms: int, again_ms: int) -> None:
        await self.over(channel, waiter, keep_ms=keep_ms, taken=event)

    patch.setattr(RedisEvents, "arrived", arrived)


def past_the_store(patch: pytest.MonkeyPatch) -> None:
    async def address(self: RedisEvents, channel: Any, waiter: Any, event: Any, *, keep_ms: int) -> Receipt:
        return Receipt("held", known=False, waiter=waiter, payload=event.payload)

    patch.setattr(RedisEvents, "address", address)


def as_many_as_one_likes(patch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    patch.setattr(delivering, "answer_id", lambda *_: f"answer-{next(numbers)}")


@pytest.mark.parametrize(
    ("broken", "how", "first", "winner", "sentence"),
    [
        pytest.param(
            takes_each_at_once,
            "all",
            "card learn cancel bank",
            "cancel",
            "the store says",
            id="what came in vain is taken",
        ),
        pytest.param(
            rewrite(
                (
                    "outputs = [found[number].output() for number in sorted(found)]",
                    "outputs = [found[number].output() for number in found]",
                )
            ),
            "all",
            "bank learn card learn",
            "event",
            "ended by",
            id="in the order in which they came",
        ),
        pytest.param(
            past_the_store,
            "all",
            "card-url learn cancel",
            "cancel",
            "were accepted",
            id="an answer in vain is lost",
        ),
        pytest.param(
            past_the_store,
            "first",
            "time card-url",
            "time",
            "were accepted",
            id="an answer in the moment of the time-out is lost",
        ),
        pytest.param(
            as_many_as_one_likes,
            "first",
            "time card-url learn card-url",
            "time",
            "too late were",
            id="a wait has several answers",
        ),
    ],
)
async def test_the_races_catch(
    server: EmbeddedFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Breaking,
    how: How,
    first: str,
    winner: str,
    sentence: str,
) -> None:
    """An engine that takes what came in vain, or another order, or that loses or repeats an answer, breaks a law."""
    broken(monkeypatch)
    race = SeveralRace(how, server.url, tmp_path, 90, first.split(), winner)
    said = await race.play()
    assert any(sentence in each for each in said), said


@pytest.mark.slow
@pytest.mark.parametrize("how", ["first", "all"])
@pytest.mark.parametrize("first", range(SHORT, SHORT + LONG, 100))
async def test_many_races(how: How, first: int, server: EmbeddedFolder, tmp_path: Path) -> None:
    """The same over many more seeds."""
    assert await races(how, server, range(first, first + 100), tmp_path) == []
