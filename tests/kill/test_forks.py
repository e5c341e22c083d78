"""The kill matrix over forks: whoever dies while effects change hands, each effect is owned, and undone, by one saga."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import pytest

from tests.kill.conftest import Line, Place
from tests.kill.forks import PLANS, REACHED, SHORT, WAYS, WORSE, NewPlace, Stage, Told, happened, item, together
from tests.kill.matrix import faults_of
from tests.kill.processes import Processes
from tests.kill.scenarios import Way, clean
from tests.support.servers import EmbeddedFolder

CASES = [
    pytest.param(plan, variant, marks=() if (plan, variant) in SHORT else pytest.mark.slow)
    for plan in PLANS
    for variant in ("keyed", "bare", "probed")
]


@pytest.mark.parametrize(("plan", "variant"), CASES)
def test_killed_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, plan: str, variant: str
) -> None:
    """Wherever `fork` dies, the same command goes on: nothing is undone by both sagas, done twice, or nobody's."""
    stage = Stage(processes, new_place, embedded.url, plan, variant)
    found = together(lambda way: {fault: stage.judged(place) for fault, place in stage.kills(way)})
    clean(found, [*REACHED, "append:3:before", "append:3:after", "call:1:before", "call:2:after"])


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["fails", "completes"])
def test_somebody_resumes_all_before_the_fork_is_repeated(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, plan: str
) -> None:
    """A saga whose fork died in the middle is resumed by others: what was handed over waits for the fork."""
    stage = Stage(processes, new_place, embedded.url, plan, "keyed")

    def work(way: Way) -> dict[str, list[str]]:
        found = {}
        for fault, place in stage.kills(way):
            assert "error" not in stage.run("resume-all", place).told
            found[fault] = stage.judged(place)
        return found

    clean(together(work), REACHED)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("plan", "variant"), [("completes", "keyed"), ("fails", "keyed"), ("fails", "bare")])
def test_killed_again_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, plan: str, variant: str
) -> None:
    """Every pair of a kill and a kill of the repeated command."""
    stage = Stage(processes, new_place, embedded.url, plan, variant)
    clean(_twice(stage, every=True), [])


@pytest.mark.slow
def test_killed_again_while_repeating(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder) -> None:
    """The same for a sample of the pairs."""
    found = _twice(Stage(processes, new_place, embedded.url, "fails", "keyed"), every=False)
    clean(found, [])
    assert len(found) >= 10, sorted(found)


def _twice(stage: Stage, *, every: bool) -> dict[str, list[str]]:
    """Kill the repeated command as well: a sample of the pairs, or ``every`` one that leaves another journal or world.

    Beside a call that is what the append before or after it leaves (``test_matrix.every``): the steps of these plans
    follow each other once the fork has begun.
    """
    ways = [way for way in WAYS if not every or way[0] != "call"]

    def work(way: Way) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for index, (first, _) in enumerate(stage.kills(way, 1 if every else 5)):
            shift = WAYS.index(way) + index
            for later in ways if every else [WAYS[3 * shift % len(WAYS)]]:
                for second in islice(faults_of(later), None if every else 1):
                    place = stage.place()
                    assert stage.run("fork", place, fault=first).killed
                    killed = stage.run("fork", place, fault=second).killed
                    found[f"{first} then {second}"] = stage.judged(place)
                    if not killed:
                        break
        return found

    return together(work, ways)


# --- two forks of one saga -----------------------------------------------------------------------------------------

DONE = {
    "steps": [
        item(1, "a", depends_on=[]),
        item(2, "b", depends_on=[1]),
        item(3, "c", depends_on=[2]),
        item(4, "d", depends_on=[]),
        item(5, "e", depends_on=[4]),
        item(6, "f", depends_on=[]),
    ]
}
UNWANTED = {"steps": [*DONE["steps"], {**item(7, "no", "fail"), "depends_on": [3, 5, 6]}]}


def forks_at_once(stage: Stage, line: Line, place: Place, ids: list[str], **more: Any) -> list[Told]:
    about = {"player": "fork", "variant": "keyed", "line_up": str(line.folder), "mended": UNWANTED, **place.told}
    racing = [stage._processes.start("fork", **{**about, **more}, fork_id=name) for name in ids]
    line.start(len(ids))
    return [one.told() for one in racing]


def two_forks(stage: Stage, line: Line) -> list[str]:
    """Two processes fork a finished saga at the same moment, and both forks fail."""
    place = stage._new_place(stage._url)
    stage.run("submit", place, plan=DONE)
    ids = [f"{place.saga_id}-{name}" for name in ("x", "y")]
    told = forks_at_once(stage, line, place, ids, **stage._mutant)
    if wrong := [one["error"] for one in told if "error" in one]:
        return [f"{wrong}"]
    taken = Counter(body["source"] for one in told for body in one["final"]["steps"] if body.get("via") == "fork")
    found = [f"{source} was taken over {count} times" for source, count in taken.items() if count > 1]
    if len(taken) != len(DONE["steps"]):
        found.append(f"nobody took over all but {sorted(taken)}")
    booked, cancelled, _ = happened(place)
    # Each of the two has all six, its own or taken over, and undoes them.
    found += [f"{name} was booked {n} times, and cancelled {cancelled[name]}" for name, n in booked.items() if n != 2]
    found += [f"{name} was cancelled {n} times" for name, n in cancelled.items() if n != booked[name]]
    found += [f"{one['final']['status']}" for one in told if one["final"]["status"] != "COMPENSATED"]
    return found


def test_two_processes_fork_the_same_saga(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, line: Line
) -> None:
    """Each effect is taken over by exactly one of the forks; the other makes its own, and both undo what is theirs."""
    stage = Stage(processes, new_place, embedded.url, "completes", "keyed")
    assert [wrong for _ in range(8) for wrong in two_forks(stage, line)] == []


def test_the_same_fork_from_many_processes(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, line: Line
) -> None:
    """One command line, four processes: one fork, driven by one; the others see how it ended, or that it is taken."""
    stage = Stage(processes, new_place, embedded.url, "fails", "keyed")
    for _ in range(4):
        place = stage.place()
        told = forks_at_once(stage, line, place, [f"{place.saga_id}-f"] * 4, mended=WORSE, lease_s=3.0)
        codes = {one["error"]["code"] for one in told if "error" in one}
        assert codes <= {"lease-held", "fork-refused"}
        assert any("final" in one for one in told), told
        assert list(stage.breaches(place, stage.run("settle", place).told)) == []


# --- the matrix can fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mutant", "fault"),
    [
        ("begin without handing over", "append:1:after"),
        ("forget to whom it was handed over", "append:1:after"),
        ("hear only the last message", "post:1:after"),
    ],
)
def test_the_matrix_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, fault: str
) -> None:
    """A fork that begins before its effects are its own, or that cannot go on where it died, does not get through."""
    stage = Stage(processes, new_place, embedded.url, "fails", "keyed", mutant)
    place = stage.place()
    assert stage.run("fork", place, fault=fault).killed
    assert stage.judged(place), f"nothing noticed the mutant '{mutant}'"


def test_the_race_catches(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, line: Line) -> None:
    """Forks that claim nothing own the same effects."""
    stage = Stage(processes, new_place, embedded.url, "completes", "keyed", "claim nothing")
    assert any(two_forks(stage, line) for _ in range(8))
