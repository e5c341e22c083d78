"""Cases of the kill matrix beyond calls and appends: what is killed, how often, and what must be true afterwards.

A scenario is a plan with all that its processes need. It is killed at each point of each of its ways, resumed in another
process, and judged by laws that read the journal, the outside ledger and the notes of those who were told or asked,
never the engine's own opinion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from saga_engine.plan.limits import MAX_CRASHES
from saga_engine.testing.ledger import Line
from tests.kill import laws, points
from tests.kill.conftest import Place
from tests.kill.growing_child import BARE, noted
from tests.kill.matrix import faults_of
from tests.kill.processes import Ended, Processes

NewPlace = Callable[[str], Place]
Told = dict[str, Any]
Way = tuple[str, str]

#: The ways of the matrix that is there already.
CALLS = ("append", "call")


@dataclass(frozen=True)
class Scenario:
    """One plan, its tools and its people.

    ``points`` are killed before and after in the first run, ``later`` in those that resume it. ``lead``: an earlier run
    with this fault (or none) comes before, and the kills begin with ``part``. ``end`` is how it ends, ``refused`` how it
    ends if a person says that a call in doubt did not happen.
    """

    plan: Mapping[str, Any]
    variant: str = "keyed"
    points: Sequence[str] = CALLS
    later: Sequence[str] = ("acquire", "post", *CALLS)
    lead: str | None = None
    part: str = "submit"
    end: str = "COMPLETED"
    refused: str = "COMPENSATED"
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ways(self) -> list[Way]:
        return [(point, when) for point in self.points for when in ("before", "after")]

    @property
    def parallel(self) -> bool:
        """Whether steps run side by side."""
        return sum(step.get("depends_on") == [] for step in self.plan["steps"]) > 1

    @property
    def later_ways(self) -> list[Way]:
        return [(point, when) for point in self.later for when in ("before", "after")]


class Stage:
    """Where a scenario is played."""

    def __init__(self, processes: Processes, new_place: NewPlace, url: str, scenario: Scenario) -> None:
        self.scenario = scenario
        self._processes = processes
        self._new_place = new_place
        self._url = url

    def place(self) -> Place:
        return self._new_place(self._url)

    def run(self, part: str, place: Place, fault: str = "", **more: Any) -> Ended:
        scenario = self.scenario
        how = {"player": "growing", "variant": scenario.variant, "plan": scenario.plan, **scenario.more}
        return self._processes.run(part, fault=fault, **{**how, **place.told, **more})

    def first(self, fault: str) -> tuple[Place, Ended]:
        """A run that may be killed, in a place of its own."""
        place, lead = self.place(), self.scenario.lead
        if lead is not None:
            assert self.run("submit", place, lead).killed == bool(lead)
        return place, self.run(self.scenario.part, place, fault)

    def first_kills(self, way: Way, *, nth: int = 1) -> Iterator[tuple[str, Place]]:
        """Every way that it can die (or every ``nth``), each in a place of its own."""
        for fault in islice(faults_of(way), 0, None, nth):
            place, ended = self.first(fault)
            if not ended.killed:
                assert "error" not in ended.told, ended.told["error"]
                return
            yield fault, place

    def judge(self, place: Place, told: Told, kills: int) -> list[str]:
        return breaches(self.scenario, told, place, kills)


# --- killing -------------------------------------------------------------------------------------------------------

Judge = Callable[[Place, Told, int], list[str]]


def killed_at(stage: Stage, faults: Iterable[str], judge: Judge | None = None) -> dict[str, list[str]]:
    """Kill at each of these, resume, judge."""
    found = {}
    for fault in faults:
        place, ended = stage.first(fault)
        assert ended.killed, fault
        found[fault] = (judge or stage.judge)(place, stage.run("resume-all", place).told, 1)
    return found


def killed_once(stage: Stage, judge: Judge | None = None) -> dict[str, list[str]]:
    """Kill at each point of each way, resume, judge: the breaches, by fault."""

    def one(way: Way) -> dict[str, list[str]]:
        found = {}
        for fault, place in stage.first_kills(way):
            found[fault] = (judge or stage.judge)(place, stage.run("resume-all", place).told, 1)
        return found

    return _together(one, stage.scenario.ways)


def killed_twice(stage: Stage, *, every: bool, judge: Judge | None = None) -> dict[str, list[str]]:
    """Kill whoever resumes as well. A sample of the pairs, or ``every`` one that leaves another journal or another world.

    (A process that dies beside a call leaves what one leaves that dies at the append before or after it; single kills
    take both, see ``test_matrix.every``. Where steps run side by side the calls are points of their own.)
    """
    skipped = "" if not every or stage.scenario.parallel else "call"
    ways = [way for way in stage.scenario.ways if way[0] != skipped] or stage.scenario.ways
    later_ways = [way for way in stage.scenario.later_ways if way[0] != skipped]

    def one(way: Way) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for index, (first, place) in enumerate(stage.first_kills(way, nth=1 if every else 3)):
            fresh: Place | None = place
            for series in _seconds(later_ways, index, every=every):
                for second in series:
                    at = fresh or stage.first(first)[0]
                    fresh = None
                    ended = stage.run("resume-all", at, second)
                    told = stage.run("resume-all", at).told if ended.killed else ended.told
                    reached = "" if ended.killed else " (not reached)"
                    found[f"{first} then {second}{reached}"] = (judge or stage.judge)(at, told, 2)
                    if not ended.killed:
                        break
        return found

    return _together(one, ways)


def _seconds(ways: Sequence[Way], index: int, *, every: bool) -> Iterator[Iterator[str]]:
    if every:
        yield from (faults_of(way) for way in ways)
        return
    for shift in (0, 5):
        point, when = ways[(2 * index + shift) % len(ways)]
        yield iter([f"{point}:{2 if point == 'append' and index % 2 else 1}:{when}"])


def _together(work: Callable[[Way], dict[str, list[str]]], ways: Sequence[Way]) -> dict[str, list[str]]:
    """Two at a time: half of a case is waiting for a disk."""
    with ThreadPoolExecutor(2) as pool:
        return {fault: what for found in pool.map(work, ways) for fault, what in found.items()}


def clean(found: Mapping[str, list[str]], reached: Sequence[str]) -> None:
    """No breach anywhere; and the points that the case is about were really reached."""
    missed = [fault for fault in reached if fault not in found and points.is_taken(int(fault.split(":")[1]))]
    assert not missed, f"{missed} were not reached: {sorted(found)}"
    wrong = {fault: what for fault, what in found.items() if what}
    assert not wrong, wrong


# --- the laws ------------------------------------------------------------------------------------------------------

_SETTLES = {
    "StepSucceeded",
    "StepFailed",
    "StepBlocked",
    "StepQueued",
    "StepRetryScheduled",
    "StepDeferred",
    "FallbackChosen",
    "QuestionResolved",
}
_DOUBTS = {"in-doubt", "undo-in-doubt"}


def in_doubt(history: Sequence[Mapping[str, Any]]) -> dict[laws.Place, int]:
    """Calls with an intent and no known result, each with its fallback, read without the engine's help."""
    found: dict[laws.Place, int] = {}
    using: dict[str, int] = {}
    for record in history:
        if record["k"] == "StepIntended":
            if record.get("direction", "forward") == "forward":
                using[record["step"]] = record.get("fallback", 0)
            found[laws._place(record)] = using[record["step"]]
        elif record["k"] == "StepBegun":  # until now it waited for a guard
            found[laws._place(record)] = using[record["step"]]
        elif record["k"] in _SETTLES or (record["k"] == "StepEscalated" and record["kind"] == "approval"):
            found.pop(laws._place(record), None)
    return found


def all_steps(scenario: Scenario, history: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The steps of the plan and those that were added or proposed since, by key."""
    more = [
        step for record in history if record["k"] in ("StepsAdded", "CompensationProposed") for step in record["steps"]
    ]
    return {str(step["step_id"]): step for step in [*scenario.plan["steps"], *more]}


def tool_of(steps: Mapping[str, Mapping[str, Any]], place: laws.Place, fallback: int) -> str:
    """Which tool a call of this step goes to."""
    step = steps[place[0]]
    tool = step["fallback"]["tool"] if fallback else step["tool"]
    return tool if place[1] == "forward" else {"pay": "unpay"}.get(tool, "cancel")


def breaches(scenario: Scenario, told: Told, place: Place, kills: int) -> list[str]:
    """Every law that the resumed saga breaks; ``told`` is what the resuming process said."""
    lines = place.ledger.lines(place.saga_id)
    if told["others"]:
        return [f"other sagas were resumed: {told['others']}"]
    if told["before"] is None:
        return [f"no saga is journalled, and the world was asked: {line}" for line in lines]
    steps = all_steps(scenario, told["history"])
    return [
        *_asked_rightly(scenario, told, steps, kills),
        *_repeats(scenario, told, lines, kills),
        *_end(scenario, told),
        *_agreement(scenario, told, place),
        *laws._journal(told),
        *_approved(told, lines),
        *_advised(told, place),
        *_own_undo(told, lines),
        *(_heard(told, place) if scenario.more.get("tell") else ()),
    ]


def _ends_its_owners(question: Mapping[str, Any]) -> bool:
    return (question.get("error") or {}).get("error_code") == "takeovers_without_progress"


def _asked_rightly(scenario: Scenario, told: Told, steps: Mapping[str, Mapping[str, Any]], kills: int) -> Iterator[str]:
    """What is in doubt, and neither a key nor de-duplication can settle, is asked about; nothing else is.

    But a call whose owners ended so often that it may be what ends them.
    """
    bare = BARE[scenario.variant]
    answered = {(step, "forward" if ":f:" in question else "compensate") for _, step, question in told["messages"]}
    doubted = {at for at, fallback in in_doubt(told["before"]).items() if tool_of(steps, at, fallback) in bare}
    doubted -= {(step, "forward") for step in told["remembered"]}
    asked = {
        (str(question["step_id"]), question["direction"])
        for question in told["resumed"]["questions"]
        if question["kind"] in _DOUBTS and not (kills >= MAX_CRASHES and _ends_its_owners(question))
    }
    # A call that was made since may have come into doubt by itself: that of a tool whose answers are lost.
    lost = {at for at in asked if tool_of(steps, at, 0) == "lose"}
    if asked - lost != doubted - answered - lost:
        yield f"in doubt were {sorted(doubted - answered)}, asked is about {sorted(asked)}"


def _repeats(scenario: Scenario, told: Told, lines: Sequence[Line], kills: int) -> Iterator[str]:
    """No effect twice, ever; and no request twice where nothing says that it may be repeated."""
    applied = Counter((line.step_id, line.direction) for line in lines if line.what == "applied")
    for (step, direction), count in applied.items():
        if count > 1:
            yield f"step {step} ({direction}) happened {count} times"
    again = Counter(
        laws._place(record)
        for record in told["history"]
        if record["k"] == "QuestionResolved" and record["decision"] in ("retry", "not-happened")
    )
    sent = Counter((line.step_id, line.direction, line.tool) for line in lines if line.what == "sent")
    for (step, direction, tool), count in sent.items():
        if tool == "later":
            continue  # it is deferred, and called anew
        allowed = 1 + (again[step, direction] if tool in BARE[scenario.variant] else kills)
        if count > allowed:
            yield f"step {step} ({direction}) was sent to {tool} {count} times, {allowed} are allowed"


def _end(scenario: Scenario, told: Told) -> Iterator[str]:
    """All or nothing. Only a call that a person says did not happen turns it to the other end."""
    decided = [record for record in told["history"] if record["k"] == "QuestionResolved"]
    refused = any(
        record["decision"] == "not-happened" and record.get("direction") != "compensate" for record in decided
    )
    expected = scenario.refused if refused else scenario.end
    if told["final"]["status"] != expected:
        yield f"it ended {told['final']['status']}, not {expected}"


def _agreement(scenario: Scenario, told: Told, place: Place) -> Iterator[str]:
    """The world and the report agree."""
    final, history = told["final"], told["history"]
    added = [step for record in history if record["k"] == "StepsAdded" for step in record["steps"]]
    grown = {**scenario.plan, "steps": [*scenario.plan["steps"], *added]}
    dropped = {key for record in history if record["k"] == "StepsAdded" for key in record.get("dropped", ())}
    found = place.ledger.compare(final, grown)
    yield from (text for text in found if not _beyond_the_ledger(text, final, dropped))
    yield from _made_up_for(told, place.ledger.lines(place.saga_id))


def _beyond_the_ledger(text: str, final: Mapping[str, Any], dropped: set[str]) -> bool:
    """Whether a sentence of the ledger is about something that it does not know.

    A fallback goes out under a key of its own; a step that was dropped did not happen, and the saga completes; a result
    that is shared stands in the name of another saga; what was made up for stands although it counts as compensated, and
    so does what made up for it.
    """
    step = text.removeprefix("step ").partition(":")[0]
    bodies = {str(body["step_id"]): body for body in final["steps"]}
    kept = {key for key, body in bodies.items() if "compensates" in body or "compensated_by_others" in body}
    if step in bodies:
        return (
            step in kept
            or ("fallback" in bodies[step] and "different keys" in text)
            or (step in dropped and "said to be completed" in text)
            or (bodies[step].get("via") == "deduplicated" and "does not stand" in text)
        )
    return any(text.endswith(f"before step {key}, which depends on it") for key in kept)


def _made_up_for(told: Told, lines: Sequence[Line]) -> Iterator[str]:
    """What makes up for a step happens before the steps are undone that it depends on; that step itself stays."""
    final = told["final"]
    kept = {
        str(body["step_id"]): body
        for body in final["steps"]
        if "compensates" in body or "compensated_by_others" in body
    }
    applied = {(line.step_id, line.direction): line.seq for line in lines if line.what == "applied"}
    for key, body in kept.items():
        if body["status"] == "SUCCEEDED" and (key, "forward") not in applied:
            yield f"step {key} is said to have made up for another, and did not happen"
        if (key, "compensate") in applied:
            yield f"step {key} makes up, or was made up for, and was undone as well"
    standing = {step for step, direction in applied if direction == "forward" and (step, "compensate") not in applied}
    if final["status"] == "COMPENSATED" and standing - kept.keys():
        yield f"compensated, and {sorted(standing - kept.keys())} stand"
    undone = [seq for (_, direction), seq in applied.items() if direction == "compensate"]
    compensates = [
        applied[key, "forward"] for key in kept if "compensates" in kept[key] and (key, "forward") in applied
    ]
    if compensates and undone and max(compensates) > min(undone) and not laws.asked(told["history"]):
        yield "a step was undone before what depends on it was made up for"


def _own_undo(told: Told, lines: Sequence[Line]) -> Iterator[str]:
    """A fallback is undone by its own undo, and the undo of the tool that was not used is never called."""
    for body in told["final"]["steps"]:
        own = [line for line in lines if line.step_id == str(body["step_id"]) and line.direction == "compensate"]
        if "fallback" in body and {line.tool for line in own} - {"unpay"}:
            yield f"step {body['step_id']} was served by {body['fallback']['tool']} and undone by {own[0].tool}"


def _approved(told: Told, lines: Sequence[Line]) -> Iterator[str]:
    """The call that needs an approval is made only after one, and each question is answered once."""
    answers = Counter(record["question"] for record in told["history"] if record["k"] == "QuestionResolved")
    yield from (f"question {name} was answered {count} times" for name, count in answers.items() if count > 1)
    given = {record["step"] for record in told["history"] if record.get("decision") == "approve"}
    for line in lines:
        if line.tool == "wire" and line.step_id not in given:
            yield f"step {line.step_id} was called without an approval"


def _advised(told: Told, place: Place) -> Iterator[str]:
    """A model is asked only what the journal orders, and never again what it has answered."""
    asked = Counter(line["about"] for line in noted(place.ledger.path.parent, "asked"))
    ordered = Counter(f"{r['purpose']} {r['step']}" for r in told["history"] if r["k"] == "PlannerAsked")
    for about, count in asked.items():
        if count > ordered[about]:
            yield f"the model was asked to {about} {count} times, the journal orders {ordered[about]}"
    earlier = Counter(line["about"] for line in told["asked_before"])
    open_question = ""
    for record in told["before"]:
        if record["k"] == "PlannerAsked":
            open_question = f"{record['purpose']} {record['step']}"
            continue
        answered = record["k"] in ("PlannerGaveUp", "CompensationProposed") or "written" in record
        answered = answered and not record.get("delay_ms")  # else it could not be reached, and is asked again
        if answered and asked[open_question] != earlier[open_question]:
            yield f"the model was asked to {open_question} again, and had answered"


def _heard(told: Told, place: Place) -> Iterator[str]:
    """Every question and every notice reached somebody, and nobody was told what no record orders."""
    heard = {line["question"] for line in noted(place.ledger.path.parent, "told")}
    due = {record["question"] for record in told["history"] if record["k"] == "StepEscalated"}
    due |= {record["notice"] for record in told["history"] if record.get("notice")}
    if heard != due:
        yield f"people had to hear of {sorted(due)}, and heard of {sorted(heard)}"
