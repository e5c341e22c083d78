"""The stage of the kill tests of forks: the saga that is forked, the ways to die, and the laws at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from tests.kill.conftest import Place
from tests.kill.matrix import faults_of
from tests.kill.processes import Ended, Processes
from tests.kill.scenarios import Way
from tests.kill.world import step

NewPlace = Callable[[str], Place]
Told = dict[str, Any]

POINTS = ("guard_tally", "reserve", "guard_claim", "guard_tally_set", "post", "acquire", "append", "call")
WAYS = [(point, when) for point in POINTS for when in ("before", "after")]


def item(step_id: int, name: str, tool: str = "book", **fields: Any) -> dict[str, Any]:
    return step(step_id, tool, params={"item": name}, **fields)


#: It rests because its last step is refused. Steps 2 and 3 rest on the first.
OLD = {
    "on_failure": "pause",
    "steps": [item(1, "a"), item(2, "b", depends_on=[1]), item(3, "c", depends_on=[1]), item(4, "no", "fail")],
}
#: The first two are as they were; another third is wanted, and another fourth.
MENDED = {"steps": [item(1, "a"), item(2, "b", depends_on=[1]), item(3, "C", depends_on=[1]), item(4, "d")]}
WORSE = {"steps": [*MENDED["steps"][:3], item(4, "never", "fail")]}
#: Step 9 did nothing and the old saga went on; it does nothing in the fork, either. Step 2 comes after it.
NOTHING = item(9, "x", "fail", depends_on=[1], on_error="continue")


def going_on(plan: dict[str, Any]) -> dict[str, Any]:
    first, second, *rest = plan["steps"]
    return {**plan, "steps": [first, NOTHING, {**second, "depends_on": [9]}, *rest]}


PLANS = {"completes": MENDED, "fails": WORSE, "passes": going_on(WORSE)}
OLDS = {"completes": OLD, "fails": OLD, "passes": going_on(OLD)}
ENDS = {"completes": "COMPLETED", "fails": "COMPENSATED", "passes": "COMPENSATED"}


class Stage:
    """One mended plan with one variant of the tools."""

    def __init__(
        self, processes: Processes, new_place: NewPlace, url: str, plan: str, variant: str, mutant: str = ""
    ) -> None:
        self.plan = plan
        self.variant = variant
        self._mutant = {"mutant": mutant} if mutant else {}
        self._processes = processes
        self._new_place = new_place
        self._url = url

    def place(self) -> Place:
        """Where a saga rests."""
        place = self._new_place(self._url)
        assert self.run("submit", place, plan=OLDS[self.plan]).told["final"]["status"] == "ESCALATED"
        return place

    def run(self, part: str, place: Place, **more: Any) -> Ended:
        about = {"mended": PLANS[self.plan], "fork_id": f"{place.saga_id}-f", "forks": [f"{place.saga_id}-f"]}
        how = {"player": "fork", "variant": self.variant, **self._mutant, **about}
        return self._processes.run(part, **{**how, **place.told, **more})

    def kills(self, way: Way, nth: int = 1) -> Iterator[tuple[str, Place]]:
        """Every way that the command can die, each in a place of its own."""
        for fault in islice(faults_of(way), 0, None, nth):
            place = self.place()
            ended = self.run("fork", place, fault=fault)
            if not ended.killed:
                assert "error" not in ended.told, ended.told
                return
            yield fault, place

    def judged(self, place: Place) -> list[str]:
        """The same command once more, then whatever people have to answer; what is wrong at the end."""
        again = self.run("fork", place).told
        if "error" in again:
            return [f"the same command again: {again['error']}"]
        return list(self.breaches(place, self.run("settle", place).told))

    def breaches(self, place: Place, told: Told) -> Iterator[str]:
        """The laws, read from the ledger and from what both sagas say."""
        old, new = told["sagas"][place.saga_id], told["sagas"][f"{place.saga_id}-f"]
        refused = any(
            record["k"] == "QuestionResolved" and record["decision"] == "not-happened" and "direction" not in record
            for record in told["history"][new["saga_id"]]
        )
        end = "COMPENSATED" if refused else ENDS[self.plan]
        if new["status"] != end:
            yield f"the fork ended {new['status']}, not {end}"
        if old["status"] != "COMPENSATED" or (old["error"] or {}).get("code") != "transferred":
            yield f"the old saga ended {old['status']} because of {old['error']}"
        yield from self._world(place, new["status"])
        yield from _said(old, new)

    @staticmethod
    def _world(place: Place, end: str) -> Iterator[str]:
        """Each item was booked once at most, cancelled once at most, and stands if and only if it should."""
        booked, cancelled, by = happened(place)
        for name, count in (booked + cancelled).items():
            if booked[name] > 1 or cancelled[name] > 1:
                yield f"{name} was booked {booked[name]} and cancelled {cancelled[name]} times ({count})"
        stands = {name for name in booked if not cancelled[name]}
        wanted = {"a", "b", "C", "d"} if end == "COMPLETED" else set()
        if stands != wanted:
            yield f"{sorted(stands)} stand, not {sorted(wanted)}"
        for name, saga in by.items():
            owner = place.saga_id if name == "c" else f"{place.saga_id}-f"
            if saga != owner:
                yield f"{name} is {owner}'s and was cancelled by {saga}"


def happened(place: Place) -> tuple[Counter[str], Counter[str], dict[str, str]]:
    """What was booked and cancelled how often, and by whom it was cancelled, from the outside world's own books."""
    booked: Counter[str] = Counter()
    cancelled: Counter[str] = Counter()
    by: dict[str, str] = {}
    for line in place.ledger.lines(what="applied"):
        if line.tool == "book":
            booked[line.value["ref"]] += 1
        elif line.tool == "cancel":
            cancelled[line.value["cancelled"]] += 1
            by[line.value["cancelled"]] = line.saga_id
    return booked, cancelled, by


def _said(old: Told, new: Told) -> Iterator[str]:
    """Both reports agree on whose each effect is."""
    handed = {body["step_id"] for body in old["steps"] if body.get("handed_to") == new["saga_id"]}
    taken = {body["source"] for body in new["steps"] if body.get("via") == "fork"}
    if taken != {f"{old['saga_id']}/{step_id}" for step_id in handed} or handed != {1, 2}:
        yield f"handed over were {handed}, taken over {taken}"
    went_on = {"continued": [9]} if any(body["step_id"] == 9 for body in old["steps"]) else {}
    if old["report"] != {**_CLEAN, "compensated": [3], **went_on}:
        yield f"the old saga reports {old['report']}"
    if not new["report"]["clean"]:
        yield f"the fork reports {new['report']}"
    if new["status"] == "COMPENSATED" and not {1, 2} <= set(new["report"]["compensated"]):
        yield f"the fork took over 1 and 2 and undid {new['report']['compensated']}"


_CLEAN = {"compensated": [], "failed": [], "unresolved": [], "left_in_place": [], "clean": True}
REACHED = ["guard_claim:2:after", "guard_tally_set:2:before", "post:1:before", "post:1:after", "acquire:1:after"]
SHORT = [("fails", "bare")]


def together(work: Callable[[Way], dict[str, list[str]]], ways: Sequence[Way] = WAYS) -> dict[str, list[str]]:
    with ThreadPoolExecutor(2) as pool:
        return {fault: what for found in pool.map(work, ways) for fault, what in found.items()}
