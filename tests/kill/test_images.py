"""The kill matrix over before-images: a process is killed at every read, call and append, and another one resumes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

from tests.kill.image_child import FIRST
from tests.kill.matrix import faults_of
from tests.kill.processes import Processes
from tests.kill.scenarios import NewPlace
from tests.support.servers import EmbeddedFolder
from tests.support.topologies import Cluster, SentinelTrio

WAYS = [(point, when) for point in ("append", "read", "call") for when in ("before", "after")]


def wrong(told: dict[str, Any], *, stranger: bool) -> list[str]:
    """The laws that one case broke."""
    values = {**FIRST, "c": 99} if stranger else FIRST
    return [
        *([] if told["status"] == ("WAIVED" if stranger else "COMPENSATED") else [f"it ended {told['status']}"]),
        # (An undo whose process was killed may have happened: then the question says so.)
        *(
            []
            if told["asked"] in ([["drift"], ["undo-in-doubt"]] if stranger else [[]])
            else [f"asked: {told['asked']}"]
        ),
        *([] if told["values"] == values else [f"the values are {told['values']}"]),
        # The second call of each undo comes once, and after the first.
        *([] if told["told"] == [["b", None], ["a", FIRST["a"]]] else [f"the undos told {told['told']}"]),
        *(f"overwritten: {write}" for write in told["writes"] if write[0] == "undo" and write[2] == 99),
        *(
            f"{record['step']} was called without its before-image"
            for record in told["history"]
            if record["k"] == "StepIntended" and record.get("direction") is None and record["step"] in "abc"
            if record.get("attempt", 1) == 1 and "before" not in record
        ),
    ]


def killed_and_resumed(
    processes: Processes, new_place: NewPlace, url: str, way: tuple[str, str], *, stranger: bool, nth: int
) -> dict[str, list[str]]:
    """What was wrong after each kill of one way (or every ``nth``)."""
    found: dict[str, list[str]] = {}
    for fault in islice(faults_of(way), 0, None, nth):
        place = new_place(url)
        how = {"player": "images", "stranger": stranger, **place.told}
        if not processes.run("submit", fault=fault, **how).killed:
            assert found, f"nothing was killed at {way}"
            return found
        found[fault] = wrong(processes.run("resume", **how).told, stranger=stranger)
    raise AssertionError("it never ends")


def _over_all(processes: Processes, new_place: NewPlace, url: str, *, stranger: bool, nth: int) -> None:
    with ThreadPoolExecutor(4) as pool:
        runs = [
            pool.submit(killed_and_resumed, processes, new_place, url, way, stranger=stranger, nth=nth) for way in WAYS
        ]
        found = {fault: problems for run in runs for fault, problems in run.result().items()}
    assert not {fault: problems for fault, problems in found.items() if problems}


def test_a_strangers_value_survives_kills(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder) -> None:
    """Whatever was killed when: each undo puts back what its call overwrote, and none overwrites a stranger's value.

    An undo of two calls goes on where it was: its second call comes once, after the first.
    """
    _over_all(processes, new_place, embedded.url, stranger=True, nth=5)


@pytest.mark.slow
@pytest.mark.parametrize("stranger", [True, False])
def test_every_kill_around_before_images(
    processes: Processes, new_place: NewPlace, server_url: str, stranger: bool
) -> None:
    """The long form: every read, call and append, on both servers."""
    _over_all(processes, new_place, server_url, stranger=stranger, nth=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [Cluster, SentinelTrio])
def test_a_strangers_value_survives_kills_elsewhere(processes: Processes, new_place: NewPlace, kind: Any) -> None:
    """The same laws on a cluster and behind Sentinels."""
    with kind() as topology:
        _over_all(processes, new_place, topology.url, stranger=True, nth=1)
