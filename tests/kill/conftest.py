"""Servers, processes and places for the kill tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from saga_engine.stores.embedded import FolderServer, find_binary
from saga_engine.testing.ledger import OutsideLedger
from tests import tiers
from tests.kill import points
from tests.kill.processes import Processes
from tests.kill.teams import Team
from tests.support.servers import GIVE_UP_S, DebianRedis, EmbeddedFolder

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first case of each kill test runs on Debian's Redis in the short form, the others in the long one.

    Where a process dies is the same on both servers, so what a second server adds is seen in few cases.
    """
    begun: set[str] = set()
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("debian_redis") is not None:
            test = item.nodeid.partition("[")[0]
            if test in begun:
                item.add_marker(pytest.mark.slow)
            begun.add(test)


@pytest.fixture(autouse=True)
def some_points(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the desk a test that is marked ``seeds`` kills at the first points of each way, and at some of the others."""
    monkeypatch.setattr(points, "SOME", [True] if tiers.fewer() and request.node.get_closest_marker("seeds") else [])


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    with Processes() as processes:
        yield processes


@contextmanager
def kept_alive(folder: EmbeddedFolder) -> Iterator[EmbeddedFolder]:
    """A server in the folder that has a client of ours, so that it outlives each last `saga` client."""
    socket = FolderServer(folder.path, find_binary()).ensure(GIVE_UP_S)
    with redis.Redis(unix_socket_path=socket) as keeper:
        assert keeper.ping()
        yield folder


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedFolder]:
    with EmbeddedFolder(tmp_path_factory.mktemp("embedded") / "saga") as folder, kept_alive(folder):
        yield folder


@pytest.fixture(scope="module")
def debian_redis() -> Iterator[DebianRedis]:
    with DebianRedis() as server:
        yield server


@pytest.fixture(scope="module", params=["embedded", pytest.param("debian", marks=pytest.mark.debian_redis)])
def server_url(request: pytest.FixtureRequest) -> str:
    """Both real servers in turn."""
    return request.getfixturevalue("embedded" if request.param == "embedded" else "debian_redis").url


class Place(NamedTuple):
    """Where one case happens: a namespace, a saga and a ledger of its own."""

    url: str
    saga_id: str
    ledger: OutsideLedger

    @property
    def told(self) -> dict[str, str]:
        """As a child is told it."""
        return {"url": self.url, "saga_id": self.saga_id, "ledger": str(self.ledger.path)}


@pytest.fixture(scope="module")
def new_place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Place]:
    """Makes places; cheap enough for hundreds. Several threads may ask."""
    folder = tmp_path_factory.mktemp("worlds")
    numbers = itertools.count()

    def make(url: str) -> Place:
        number = next(numbers)
        home: Path = folder / str(number)
        home.mkdir()
        return Place(f"{url}?namespace=k{number}", f"saga-{number}", OutsideLedger(home / "world.db"))

    return make


@pytest.fixture
def new_team(processes: Processes, new_place: Callable[[str], Place]) -> Iterator[Callable[[str], Team]]:
    """Makes the workers of a new place; those that are left are killed."""
    teams: list[Team] = []

    def make(url: str) -> Team:
        teams.append(Team(processes, new_place(url)))
        return teams[-1]

    yield make
    for team in teams:
        team.kill_all()


class Line:
    """Lets processes that line up start at the same moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.mkfifo(folder / "ready")
        os.mkfifo(folder / "go")
        # Held open at both ends, so that nobody waits for the other side when opening it.
        self._ready = os.open(folder / "ready", os.O_RDWR)
        self._go = os.open(folder / "go", os.O_RDWR)

    def start(self, count: int) -> None:
        """When ``count`` processes are ready, let them all go."""
        missing = count
        while missing:
            missing -= len(os.read(self._ready, missing))
        os.write(self._go, b"g" * count)

    def close(self) -> None:
        os.close(self._ready)
        os.close(self._go)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path)
    yield line
    line.close()
