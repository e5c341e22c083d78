"""The kill matrix over erasures: wherever the process dies, a repeat ends as if it had not, and takes nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.kill.conftest import Place
from tests.kill.erase_child import OTHER, WORD
from tests.kill.processes import Processes
from tests.support.servers import DebianRedis, EmbeddedFolder

NewPlace = Callable[[str], Place]
#: The saga that is named, with or without its family.
CASES = [("p", True), ("w", True), ("alone", False)]
#: The calls of an erasure that change something, and those between which it looks around.
CHANGES = ["event_forget", "seal_erase"]
LOOKS = ["head", "read", "values", "guard_tally", "event_listed", "event_look"]
SOME = [
    ("p", True, "seal_erase:1:before"),
    ("p", True, "seal_erase:1:after"),
    ("p", True, "seal_erase:4:before"),
    ("p", True, "guard_tally:2:after"),
    ("w", True, "event_forget:1:after"),
    ("w", True, "seal_erase:2:before"),
    ("w", True, "seal_erase:2:after"),
    ("alone", False, "seal_erase:1:before"),
    ("alone", False, "seal_erase:1:after"),
]


def killed(processes: Processes, place: Place, saga: str, fault: str, *, family: bool, mutant: str = "") -> bool:
    """Make sagas, erase one and die at ``fault``, erase it again twice; then look. Whether it came so far."""
    how: dict[str, Any] = {"player": "erase", **place.told, "archive": str(place.ledger.path.parent / "archive")}
    asked = {"saga": saga, "family": family, "mutant": mutant}
    before = processes.run("make", **how).told["stored"]
    first = processes.run("erase", **how, **asked, by="ann", fault=fault)
    amid = processes.run("look", **how).told["stored"]
    again = processes.run("erase", **how, **asked, by="bob").told
    more = processes.run("erase", **how, saga=saga, by="cy").told  # once it is erased, its family need not be named
    told = again["told"]
    gone = {name for name, what in again["stored"].items() if what == "saga-erased"}
    assert gone == {*told["sagas"]}, f"{fault}: it is not told what is erased"
    assert (told["sagas"][0], len(gone)) == (saga, {"p": 5, "w": 2, "alone": 1}[saga]), f"{fault}: a copy stays"
    assert before.keys() == amid.keys() == again["stored"].keys(), f"{fault}: a saga is nowhere"
    for name, what in before.items():
        assert amid[name] in (what, "saga-erased"), f"{fault}: {name} is half erased"
        assert name in gone or again["stored"][name] == what, f"{fault}: {name} is another one"
    assert told["by"] in ("ann", "bob"), f"{fault}: who erased it first is not known"
    assert more["told"] == told, f"{fault}: the repeat says something else"
    if not first.killed:
        assert first.told["told"] == told, f"{fault}: the repeat says something else than the first"
    assert not gone.intersection(again["tagged"]), f"{fault}: it is found by its tag"
    assert again["keys"] == [WORD, OTHER][saga == "w" :], f"{fault}: the keys of events are {again['keys']}"
    return first.killed


@pytest.mark.parametrize(("saga", "family", "fault"), SOME)
def test_an_erasure_that_is_killed_is_ended_by_its_repeat(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, saga: str, family: bool, fault: str
) -> None:
    """Around each change, on the embedded store."""
    assert killed(processes, new_place(embedded.url), saga, fault, family=family)


def everywhere(processes: Processes, new_place: NewPlace, url: str, points: Sequence[str]) -> int:
    """Every arrival at these points; how many there were."""
    reached = 0
    for saga, family in CASES:
        for point in points:
            for when in ("before", "after"):
                number = 1
                while killed(processes, new_place(url), saga, f"{point}:{number}:{when}", family=family):
                    number += 1
                    reached += 1
    return reached


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_anywhere(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder) -> None:
    """At each call of the store."""
    assert everywhere(processes, new_place, embedded.url, CHANGES + LOOKS) > 60


@pytest.mark.debian_redis
def test_killed_at_each_change_on_redis(processes: Processes, new_place: NewPlace) -> None:
    """Each change, on a server of its own."""
    with DebianRedis() as server:
        assert everywhere(processes, new_place, server.url, CHANGES) >= 18


def test_the_matrix_catches_a_tombstone_without_ties(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """An engine whose tombstones do not say what the saga was tied to does not get through."""
    with pytest.raises(AssertionError, match=r"what is erased|copy stays|something else"):
        killed(processes, new_place(embedded.url), "p", "seal_erase:2:before", family=True, mutant="ties are forgotten")
