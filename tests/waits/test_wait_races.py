"""Event, time-out, cancel, answer and the ends of processes, in any order and at the same time, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from saga_engine.runtime import events as delivering
from tests.support.servers import EmbeddedFolder
from tests.support.wait_races import Race, movable_clock

#: How many plays CI makes, in groups; the long form makes many more.
SHORT, GROUP, LONG = 30, 10, 1000

#: What competes for a wait, in order, and what ends it. Its owner learns of it at the end, and where it is said.
ORDERS = (
    ("event cancel", "event"),
    ("event learn time cancel", "event"),
    ("event learn cancel", "event"),
    ("cancel event", "cancel"),
    ("cancel time event", "cancel"),
    ("cancel learn event time", "cancel"),
    ("time event", "time"),
    ("time learn event cancel", "time"),
    ("time cancel event", "cancel"),
    ("url event cancel", "event"),
    ("url learn time cancel", "event"),
    ("cancel url", "cancel"),
    ("cancel learn url time", "cancel"),
    ("time url url", "time"),
    ("time learn url event", "time"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedFolder]:
    folder = tmp_path_factory.mktemp("races")
    with movable_clock(folder), EmbeddedFolder(folder / "saga") as server:
        yield server


async def races(server: EmbeddedFolder, seeds: range, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(delivering, "_TELL_AGAIN_MS", 0)
    return [sentence for seed in seeds for sentence in await Race(server.url, folder, seed).play()]


@pytest.mark.parametrize("first", range(0, SHORT, GROUP))
async def test_races(server: EmbeddedFolder, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record ends the wait, each call happens once, and journal, report, store and ledger agree on all of it."""
    assert await races(server, range(first, first + GROUP), tmp_path, monkeypatch) == []


@pytest.mark.parametrize(("first", "winner"), ORDERS)
async def test_the_first_of_those_that_compete_ends_the_wait(
    server: EmbeddedFolder, first: str, winner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes first ends the wait, also if the owner learns of all of them at once; a time counts when it is read."""
    monkeypatch.setattr(delivering, "_TELL_AGAIN_MS", 0)
    for seed in range(2):
        assert await Race(server.url, tmp_path, seed, first.split(), winner).play() == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SHORT, SHORT + LONG, 100))
async def test_many_races(server: EmbeddedFolder, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same over many more seeds."""
    assert await races(server, range(first, first + 100), tmp_path, monkeypatch) == []
