"""The kill matrix over archive and purge: at every moment each saga is in the store, whole, or in a whole file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from saga_engine.analysis.trace_file import verify
from tests.kill.conftest import Place
from tests.kill.processes import Processes
from tests.support.servers import DebianRedis, EmbeddedFolder
from tests.support.topologies import Cluster

NewPlace = Callable[[str], Place]
SAGAS = {"s0": "COMPLETED", "s0-undo": "COMPENSATED", "s1": "COMPLETED", "s2": "COMPLETED"}
#: Before and after each removal, and around the write of a file.
SOME = ["archive:1:before", "archive:2:after", "ended_purge:1:before", "ended_purge:2:after", "ended_purge:4:after"]


def archived(folder: Path) -> list[str]:
    """The sagas of the files, each of which must be whole."""
    found = []
    for path in folder.glob("*/*.jsonl"):
        with path.open("rb") as lines:
            check = verify(lines)
        assert check.broken is None, f"{path}: {check.broken}"
        ((saga_id, status, complete),) = check.sagas
        assert (status, complete) == (SAGAS[saga_id], True)
        found.append(saga_id)
    return found


def killed(processes: Processes, place: Place, fault: str, **more: Any) -> bool:
    """Make sagas, purge them and die at ``fault``; then look, and purge the rest. Whether it came so far."""
    folder = place.ledger.path.parent / "archive"
    how = {"player": "purge", **place.told, **more}
    assert processes.run("make", **how).told["stored"] == SAGAS
    ended = processes.run("purge", **how, archive=str(folder), fault=fault)
    there = processes.run("look", **how).told
    assert there["stored"].items() <= SAGAS.items()
    assert {*there["stored"], *archived(folder)} == {*SAGAS}, f"{fault}: a saga is nowhere"
    assert "s0" not in there["stored"] or "s0-undo" in there["stored"], f"{fault}: an undo left first"
    assert processes.run("purge", **{**how, "mutant": ""}, archive=str(folder)).told["stored"] == {}
    assert sorted(archived(folder)) == sorted(SAGAS), f"{fault}: a saga is not archived, or twice"
    return ended.killed


def each_killed(processes: Processes, new_place: NewPlace, url: str, faults: Sequence[str]) -> None:
    for fault in faults:
        assert killed(processes, new_place(url), fault), fault


def test_no_saga_is_lost_whoever_purges_is_killed(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """Killed around each file and each removal, on the embedded store."""
    each_killed(processes, new_place, embedded.url, SOME)


@pytest.mark.debian_redis
def test_no_saga_is_lost_on_redis(processes: Processes, new_place: NewPlace) -> None:
    """The same on a server of its own."""
    with DebianRedis() as server:
        each_killed(processes, new_place, server.url, SOME)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["embedded", Cluster])
def test_killed_anywhere(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, kind: Any) -> None:
    """At each arrival at each point, also on a cluster."""

    def everywhere(url: str) -> None:
        reached = 0
        for point in ("archive", "ended_purge", "ended_aged", "read", "head", "guard_tally"):
            for when in ("before", "after"):
                number = 1
                while killed(processes, new_place(url), f"{point}:{number}:{when}"):
                    number += 1
                    reached += 1
        assert reached > 40

    if kind == "embedded":
        everywhere(embedded.url)
        return
    with kind() as topology:
        everywhere(topology.url)


@pytest.mark.parametrize(("mutant", "fault"), [("purged first", "archive:1:before"), ("torn", "torn:1:before")])
def test_the_matrix_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, fault: str
) -> None:
    """An engine that removes before it archives, or writes into the file itself, does not get through."""
    with pytest.raises(AssertionError, match=r"nowhere|cut short|no line"):
        killed(processes, new_place(embedded.url), fault, mutant=mutant)
