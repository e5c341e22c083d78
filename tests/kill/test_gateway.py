"""The gateway before real servers of others: itself, the servers and the agent die at every append and every call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.kill.processes import Processes
from tests.kill.scenarios import NewPlace
from tests.mcp.real_servers import KINDS
from tests.support.servers import EmbeddedFolder

#: Appends and calls at which the gateway dies, calls at which the server dies (before it has read, or after its work), and
#: calls at which the agent does.
WAYS = [
    *((point, when, "") for point in ("append", "call") for when in ("before", "after")),
    *(("call", when, action) for action in (":server", ":agent") for when in ("before", "after")),
]


def _gone(place: Any) -> None:
    """Wait for the servers of a killed gateway: they end when they have read all that it sent."""
    mark = str(Path(place.ledger.path).parent)
    until = time.monotonic() + 120
    while any(mark in _line(entry) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        assert time.monotonic() < until, "a server outlives its gateway"
        time.sleep(0.02)


def _line(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_text() + (entry / "environ").read_text()
    except OSError:
        return ""


def wrong(told: dict[str, Any], before: str) -> list[str]:
    """The laws that one case broke."""
    return [
        *(
            []
            if told["hash"] == before
            else [f"the world is another one; it ended {told['status']}, asked {told['asked']}"]
        ),
        *([] if told["first"] == before or told["named"] else ["something is left, and the agent was told of nothing"]),
        *([] if told["first"] == before or not told["claimed"] else ["the agent was told that nothing is left"]),
        *([] if told["clean"] else [f"its report is not clean: {told['status']}"]),
        *([] if told["status"] in ("COMPENSATED", "WAIVED", "NOTHING") else [f"it ended {told['status']}"]),
    ]


class Kills:
    """The cases of one server, after a run in which nothing dies."""

    def __init__(self, processes: Processes, new_place: NewPlace, url: str, kind: str, over: str = "stdio") -> None:
        self._processes = processes
        self._new_place = new_place
        self._url = url
        self._how = {"player": "gateway", "kind": kind, "over": over, "states": [], "outputs": []}
        plain = processes.run("submit", fault="", **self._how, **new_place(url).told).told
        assert (plain["hash"], plain["clean"]) == (plain["hashes"][0], True), plain
        assert len(set(plain["hashes"])) == len(plain["hashes"])
        self._how |= {"states": plain["hashes"], "outputs": plain["outputs"]}
        self._counts = plain["counts"]

    def wrong(self, fault: str) -> list[str]:
        """What was wrong after one fault."""
        place = self._new_place(self._url)
        ended = self._processes.run("submit", fault=fault, **self._how, **place.told)
        if ended.killed:  # the gateway was, and has told nothing
            _gone(place)
            ended = self._processes.run("resume", **self._how, **place.told)
        return wrong(ended.told, self._how["states"][0]) if ended.told else ["it told nothing"]

    def faults(self) -> Iterator[str]:
        """Every append and call of the run in which nothing dies."""
        for point, when, action in WAYS:
            for number in range(1, self._counts[point] + 1):
                yield f"{point}:{number}:{when}{action}"


@pytest.mark.parametrize(
    ("kind", "over", "faults"),
    [
        # In an undo; a write that is done and not answered; an agent that does not wait for a write.
        ("filesystem", "stdio", ["append:12:before", "call:2:after:server", "call:2:before:agent"]),
        # In an undo, in the newer era; and a write that never reached the server.
        ("git", "stdio", ["append:11:before", "call:2:before:server"]),
        # Over HTTP: after the first write, and an agent whose connection is cut in its second one.
        ("memory", "http", ["append:4:before", "call:4:after:agent"]),
    ],
)
def test_after_a_kill_the_world_is_as_before(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, kind: str, over: str, faults: list[str]
) -> None:
    """After a rollback, and true answers where an operator was asked, the hash is the one before; all else was named."""
    kills = Kills(processes, new_place, embedded.url, kind, over)
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(faults, pool.map(kills.wrong, faults), strict=True))
    assert not {fault: problems for fault, problems in found.items() if problems}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("over", ["stdio", "http"])
@pytest.mark.parametrize("kind", KINDS)
def test_after_every_kill_the_world_is_as_before(
    processes: Processes, new_place: NewPlace, server_url: str, kind: str, over: str
) -> None:
    """The long form: every append and every call of each server, on both servers of the store, over stdio and HTTP."""
    kills = Kills(processes, new_place, server_url, kind, over)
    faults = list(kills.faults())
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(faults, pool.map(kills.wrong, faults), strict=True))
    assert not {fault: problems for fault, problems in found.items() if problems}
