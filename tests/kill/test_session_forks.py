"""The kill matrix over forks of sessions: whoever dies at whatever place, each effect is owned, and undone, by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from tests.kill import points
from tests.kill.conftest import Place
from tests.kill.forks import SHORT, WAYS, together
from tests.kill.forks import Stage as PlanStage
from tests.kill.matrix import faults_of
from tests.kill.processes import Ended, Processes
from tests.kill.scenarios import NewPlace, Way, clean
from tests.support.servers import EmbeddedFolder

#: The old agent fails at its fourth call, and its third was wrong.
OLD = ["a", "b", "c", "no"]
MENDED = {"completes": ["a", "b", "C", "d"], "fails": ["a", "b", "C", "no"]}
REACHED = ["guard_claim:2:after", "guard_tally_set:2:before", "post:1:before", "post:1:after", "acquire:1:after"]
AGENT: list[Way] = [(point, when) for point in ("acquire", "append", "call") for when in ("before", "after")]
CASES = [
    pytest.param(plan, variant, marks=() if (plan, variant) in SHORT else pytest.mark.slow)
    for plan in MENDED
    for variant in ("keyed", "bare", "probed")
]


class Stage(PlanStage):
    """One mended agent with one variant of the tools; its laws are those of forks of plans."""

    def place(self) -> Place:
        """Where a session is kept."""
        place = self._new_place(self._url)
        ended = self.run("agent", place, session_id=place.saga_id, items=OLD, on_failure="keep")
        assert ended.told["final"]["status"] == "ESCALATED"
        return place

    def run(self, part: str, place: Place, **more: Any) -> Ended:
        return super().run(part, place, **{"mended": None, "run_from": "3", **more})

    def lives(self, place: Place, fault: str = "") -> Ended:
        """The mended agent, with the fork's id."""
        more = {"session_id": f"{place.saga_id}-f", "items": MENDED[self.plan], "on_failure": "undo"}
        return self.run("agent", place, fault=fault, **more)

    def judged(self, place: Place) -> list[str]:
        """The same command once more, then the agent, then whatever people have to answer."""
        told: dict[str, Any] = {}
        for work in (lambda: self.run("fork", place), lambda: self.lives(place), lambda: self.run("settle", place)):
            told = work().told
            if "error" in told:
                return [f"it could not go on: {told['error']}"]
        return list(self.breaches(place, told))

    def stayed(self, place: Place) -> Iterator[str]:
        """What is wrong if the fork's id is another session's: the fork is refused, and nothing changes hands."""
        error = self.run("fork", place).told.get("error", {"code": "nothing"})
        if error["code"] != "saga-exists":
            yield f"the fork with a taken id: {error}"
        old = self.run("show", place).told["final"]
        if handed := [body["step_id"] for body in old["steps"] if "handed_to" in body]:
            yield f"{handed} were transferred to a session that is no fork"

    def deaths(self, way: Way, nth: int = 1) -> Iterator[tuple[str, Place]]:
        """Every way that the fork's agent can die, each in a place of its own."""
        for fault in islice(faults_of(way), 0, None, nth):
            place = self.place()
            assert "error" not in self.run("fork", place).told
            ended = self.lives(place, fault)
            if not ended.killed:
                assert "error" not in ended.told, ended.told
                return
            yield fault, place


@pytest.mark.seeds
@pytest.mark.parametrize(("plan", "variant"), CASES)
def test_killed_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, plan: str, variant: str
) -> None:
    """Wherever `fork` dies, the same command goes on, and then the agent: nothing is undone by both, twice or by nobody."""
    stage = Stage(processes, new_place, embedded.url, plan, variant)
    reached = [*REACHED, "append:3:before", "append:3:after", "call:1:before", "call:1:after"]
    those = {(fault.split(":")[0], fault.split(":")[2]) for fault in reached}
    ways = [way for way in WAYS if way in those or not points.SOME]
    found = together(lambda way: {fault: stage.judged(place) for fault, place in stage.kills(way)}, ways)
    clean(found, reached)


@pytest.mark.parametrize(
    ("plan", "variant"),
    [pytest.param(*case.values, marks=() if case.values == ("fails", "bare") else pytest.mark.slow) for case in CASES],
)
def test_its_agent_is_killed_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, plan: str, variant: str
) -> None:
    """Wherever the fork's agent dies, it goes on with the same id; what was reused is neither made again nor forgotten."""
    stage = Stage(processes, new_place, embedded.url, plan, variant)
    found = together(lambda way: {fault: stage.judged(place) for fault, place in stage.deaths(way)}, AGENT)
    clean(found, ["acquire:1:after", "append:1:before", "append:2:after", "call:1:before", "call:1:after"])


@pytest.mark.parametrize(
    "ways",
    [[("reserve", "before"), ("reserve", "after"), ("post", "after")], pytest.param(WAYS, marks=pytest.mark.slow)],
)
def test_its_agent_comes_before_the_command_is_repeated(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, ways: list[Way]
) -> None:
    """Wherever `fork` dies, an agent that starts at once with its id neither owns nor loses what was transferred.

    It is refused once the id is reserved; before that it makes a session of its own, and the fork is refused.
    """
    stage = Stage(processes, new_place, embedded.url, "completes", "keyed")
    refused: set[str] = set()

    def work(way: Way) -> dict[str, list[str]]:
        found = {}
        for fault, place in stage.kills(way):
            told = stage.lives(place).told
            if "error" in told:
                refused.add(fault)
                assert "reserved" in told["error"]["message"], told
            took = "error" in told or any(body.get("via") == "fork" for body in told["final"]["steps"])
            found[fault] = stage.judged(place) if took else list(stage.stayed(place))
        return found

    found = together(work, ways)
    clean(found, ["reserve:1:before", "reserve:1:after", "post:1:after"])
    assert {"reserve:1:after", "post:1:after"} <= refused, refused
    assert "reserve:1:before" not in refused


@pytest.mark.slow
@pytest.mark.parametrize("plan", list(MENDED))
def test_somebody_resumes_all_before_the_fork_is_repeated(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, plan: str
) -> None:
    """A session whose fork died in the middle is resumed by others: what was handed over waits for the fork."""
    stage = Stage(processes, new_place, embedded.url, plan, "keyed")

    def work(way: Way) -> dict[str, list[str]]:
        found = {}
        for fault, place in stage.kills(way):
            assert "error" not in stage.run("resume-all", place).told
            found[fault] = stage.judged(place)
        return found

    clean(together(work), REACHED)


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
