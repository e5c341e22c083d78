"""The kill matrix over sessions: an agent is killed at every call and every append, and runs again with the same id."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

from tests.kill import laws
from tests.kill.conftest import Place
from tests.kill.gates import Gate
from tests.kill.leases import SHORT_S, until_expired
from tests.kill.matrix import faults_of
from tests.kill.polling import opened
from tests.kill.processes import Ended, Processes
from tests.kill.scenarios import NewPlace, Way, clean
from tests.support.servers import EmbeddedFolder

Told = dict[str, Any]

WAYS: list[Way] = [(point, when) for point in ("append", "call") for when in ("before", "after")]
LATER: list[Way] = [("acquire", "before"), ("acquire", "after"), *WAYS]
#: What each agent does outside, whoever was killed how often: in this order; what stands in one group in any.
DOES = {
    "well": ["a", "b", "c"],
    "ill": ["a", "b", "-b", "-a"],
    "parts": ["a", "b", "c", "-c", "-b", "d"],
    "parts, ill": ["a", "b", "c", "-c", "-b", "d", "-d", "-a"],
    "back": ["a", "b", "-b", "c", "-c", "-a"],
    "kept": ["a", "b", "c"],
    "side": ["a", "bcd", "e", "-e", "-bcd", "-a"],
    "waits": ["a", "b", "c"],
}
ENDS = {agent: "COMPENSATED" if agent in ("ill", "parts, ill", "back", "side") else "COMPLETED" for agent in DOES}


@dataclass
class Stage:
    """Where one agent lives and dies."""

    processes: Processes
    new_place: NewPlace
    url: str
    agent: str
    variant: str
    mutant: str = ""

    def run(self, part: str, place: Place, fault: str = "") -> Ended:
        more = {"mutant": self.mutant} if self.mutant else {}
        how = {"player": "sessions", "agent": self.agent, "variant": self.variant, **place.told, **more}
        return self.processes.run(part, fault=fault, **how)

    def kills(self, way: Way, *, nth: int = 1) -> Iterator[tuple[str, Place]]:
        """Every way that the agent can die (or every ``nth``), each in a place of its own."""
        for fault in islice(faults_of(way), 0, None, nth):
            place = self.new_place(self.url)
            ended = self.run("live", place, fault)
            if not ended.killed:
                assert "error" not in ended.told, ended.told["error"]
                return
            yield fault, place

    def judge(self, place: Place, told: Told, kills: int) -> list[str]:
        if "error" in told:
            return [f"the agent could not go on: {told['error']}"]
        return [
            *_did(self.agent, place),
            *_one_after_another(self.agent, told["history"]),
            *_asked(self.variant, told, place, kills),
            *place.ledger.compare(told["final"]),
            *laws._journal(told),
            *(() if told["final"]["status"] == ENDS[self.agent] else (f"it ended {told['final']['status']}",)),
            *(() if told["final"]["report"]["clean"] else ("the report is not clean",)),
        ]


def _did(agent: str, place: Place) -> Iterator[str]:
    """Outside it is as if nobody had died: no effect twice, none lost, and the undos are the mirror image."""
    lines = [line for line in place.ledger.lines(place.saga_id) if line.what == "applied"]
    happened = [line.value["ref"] if "ref" in line.value else f"-{line.value['cancelled']}" for line in lines]
    rest = list(happened)
    for group in DOES[agent]:
        sign, items = ("-", group[1:]) if group.startswith("-") else ("", group)
        expected = sorted(f"{sign}{item}" for item in items)
        if sorted(rest[: len(expected)]) != expected:
            yield f"outside happened {happened}, and should have {DOES[agent]}"
            return
        del rest[: len(expected)]
    if rest:
        yield f"outside happened {happened}, and should have {DOES[agent]}"


def _one_after_another(agent: str, history: Sequence[dict[str, Any]]) -> Iterator[str]:
    """No undo is begun before those of what came later have ended."""
    added = {record["step"]: record["params"] for record in history if record["k"] == "CallAdded"}
    items = {step: params.get("item", params.get("ref")) for step, params in added.items()}
    own = {step for step, params in added.items() if "ref" in params}  # the agent's own undos
    groups = [group[1:] for group in DOES[agent] if group.startswith("-")]
    undone: set[str] = set()
    for record in history:
        if record.get("direction") != "compensate" and record.get("step") not in own:
            continue
        item = items[record["step"]]
        if record["k"] == "StepSucceeded" or record.get("decision") == "happened":
            undone.add(item)
        elif record["k"] == "StepIntended":
            before = {other for group in groups[: [item in group for group in groups].index(True)] for other in group}
            if not before <= undone:
                yield f"the undo of {item} began before that of {sorted(before - undone)} had ended"


def _asked(variant: str, told: Told, place: Place, kills: int) -> Iterator[str]:
    """A request goes out again only where a key, or a person's word, allows it; and nobody is asked what a key settles."""
    questions = [record for record in told["history"] if record["k"] == "StepEscalated"]
    if variant == "keyed" and questions:
        yield f"somebody was asked for no reason: {questions}"
    again = Counter(
        laws._place(record)
        for record in told["history"]
        if record["k"] == "QuestionResolved" and record["decision"] == "retry"
    )
    sent = Counter((line.step_id, line.direction) for line in place.ledger.lines(place.saga_id, what="sent"))
    for at, count in sent.items():
        allowed = 1 + (again[at] if variant == "bare" else kills)
        if count > allowed:
            yield f"call {at[0]} ({at[1]}) was sent {count} times, {allowed} are allowed"


def killed_once(stage: Stage, *, nth: int = 1) -> dict[str, list[str]]:
    """Kill at each point, let the agent come back, judge: the breaches, by fault."""

    def one(way: Way) -> dict[str, list[str]]:
        return {
            fault: stage.judge(place, stage.run("come-back", place).told, 1)
            for fault, place in stage.kills(way, nth=nth)
        }

    return _together(one, WAYS)


def killed_twice(stage: Stage, *, every: bool) -> dict[str, list[str]]:
    """Kill the agent that has come back as well, and let it come back again.

    ``every``: each pair that leaves another journal or another world. A process that dies beside a call leaves what one
    leaves that dies at the append before or after it, unless calls are made side by side (``test_matrix.every``).
    """
    skipped = "" if not every or stage.agent == "side" else "call"
    firsts, laters = ([way for way in ways if way[0] != skipped] for ways in (WAYS, LATER))

    def one(way: Way) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for index, (first, place) in enumerate(stage.kills(way, nth=1 if every else 3)):
            fresh: Place | None = place
            ways = laters if every else [LATER[index % len(LATER)], LATER[(index + 3) % len(LATER)]]
            for later in ways:
                for second in faults_of(later):
                    at = fresh or stage.new_place(stage.url)
                    if fresh is None:
                        assert stage.run("live", at, first).killed
                    fresh = None
                    ended = stage.run("come-back", at, second)
                    told = stage.run("come-back", at).told if ended.killed else ended.told
                    if ended.killed:
                        # What the second life found is what the third one must find continued.
                        found[f"{first} then {second}"] = stage.judge(at, told, 2)
                    if not ended.killed or not every:
                        break
        return found

    return _together(one, firsts)


def _together(work: Any, ways: Sequence[Way]) -> dict[str, list[str]]:
    with ThreadPoolExecutor(2) as pool:
        return {fault: what for found in pool.map(work, ways) for fault, what in found.items()}


CASES = [(agent, variant) for agent in DOES if agent != "waits" for variant in ("keyed", "bare")]
#: What CI runs.
SHORT = [("well", "bare"), ("kept", "keyed"), ("ill", "keyed"), ("parts, ill", "bare"), ("back", "bare")]
PARAMS = [pytest.param(*case, marks=() if case in SHORT else pytest.mark.slow) for case in CASES]
REACHED = {
    "well": ["append:1:before", "append:4:after", "call:3:before", "call:3:after"],
    "ill": ["append:5:before", "call:3:after", "call:5:after"],
    "parts": ["append:5:after", "call:4:after", "call:6:after"],
    "parts, ill": ["append:5:after", "call:4:after", "call:8:after"],
    "back": ["append:4:after", "call:3:before", "call:3:after", "call:6:after"],
    "kept": ["append:5:before", "append:5:after", "call:3:after"],
    "side": ["append:5:before", "call:4:before", "call:9:after"],
}


@pytest.mark.seeds
@pytest.mark.parametrize(("agent", "variant"), PARAMS)
def test_killed_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, agent: str, variant: str
) -> None:
    """Wherever the agent dies, the next life of it leaves the world as if it had never died."""
    clean(killed_once(Stage(processes, new_place, embedded.url, agent, variant)), REACHED[agent])


@pytest.mark.parametrize(
    ("agent", "variant"), [("parts, ill", "keyed"), pytest.param("side", "bare", marks=pytest.mark.slow)]
)
def test_killed_again_when_it_has_come_back(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, agent: str, variant: str
) -> None:
    """The same for an agent that dies twice (a sample of the pairs)."""
    found = killed_twice(Stage(processes, new_place, embedded.url, agent, variant), every=False)
    clean(found, [])
    assert len(found) >= 8, sorted(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("agent", "variant"), CASES)
def test_killed_again_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, agent: str, variant: str
) -> None:
    """Every pair of a kill and a second kill."""
    clean(killed_twice(Stage(processes, new_place, embedded.url, agent, variant), every=True), [])


# --- two processes -------------------------------------------------------------------------------------------------


def test_two_agents_with_one_id(processes: Processes, new_place: NewPlace, server_url: str) -> None:
    """The first has it; the second hears so and makes no call. When the first is dead, its next life goes on."""
    place = new_place(server_url)
    gate = Gate(place)
    how = {"player": "sessions", "agent": "waits", "variant": "keyed", "lease_s": SHORT_S, **place.told}
    first = processes.start("live", **how)
    gate.wait_for_the_call()
    sent = place.ledger.lines(what="sent")
    second = processes.run("live", **how)
    assert second.told["error"]["code"] == "lease-held"
    assert place.ledger.lines(what="sent") == sent

    first.kill()
    assert first.wait().killed
    gate.open_for_good()
    told = processes.run("come-back", **how).told
    assert told["final"]["status"] == "COMPLETED"
    assert not list(_did("waits", place))
    epochs = [record["epoch"] for record in told["history"] if record["k"] == "SagaResumed"]
    assert epochs == [2]


async def test_an_agent_that_was_frozen_past_its_lease(
    processes: Processes, new_place: NewPlace, server_url: str
) -> None:
    """Another process goes on with its session and ends it; when the old one wakes it makes no call, and hears of the end."""
    place = new_place(server_url)
    how = {"player": "sessions", "agent": "well", "variant": "keyed", "lease_s": SHORT_S, **place.told}
    old = processes.start("live", fault="call:2:before:pause", **how)
    old.wait_until_frozen()
    await until_expired(place)
    new = await asyncio.to_thread(processes.run, "come-back", **how)
    assert new.told["final"]["status"] == "COMPLETED"
    lines = place.ledger.lines()

    old.thaw()
    told = await asyncio.to_thread(old.told)
    assert told["error"]["code"] == "session-ended"
    assert place.ledger.lines() == lines
    assert not list(_did("well", place))


async def test_an_agent_that_was_frozen_and_that_nobody_overtook(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """Its lease is over: it takes its session up from the journal by itself, and the agent notices nothing."""
    for agent, fault in FREEZES:
        place = new_place(embedded.url)
        how = {"player": "sessions", "agent": agent, "variant": "keyed", "lease_s": SHORT_S, **place.told}
        old = processes.start("live", fault=f"{fault}:pause", **how)
        old.wait_until_frozen()
        await until_expired(place)
        old.thaw()
        told = await asyncio.to_thread(old.told)
        assert "error" not in told, (agent, fault, told["error"])
        assert told["final"]["status"] == ENDS[agent], (agent, fault)
        assert not list(_did(agent, place)), (agent, fault)
        assert [record["epoch"] for record in told["history"] if record["k"] == "SagaResumed"] == [2], (agent, fault)


#: In a call, before the append of a call, of a rollback, and of the end.
FREEZES = [
    ("well", "call:2:before"),
    ("side", "append:4:before"),
    ("parts", "append:5:before"),
    ("well", "append:5:before"),
]


# --- an agent that gives up while its session rests ----------------------------------------------------------------


async def _gave_up(place: Place) -> bool:
    """Whether it is durable that the agent gave up: its message, or what came of it."""
    async with opened(place.url) as store:
        (head,) = await store.list()
        return head.messages > 0 or b"SessionClosed" in b"".join(await store.read(head.saga_id))


def test_an_agent_that_is_killed_as_it_gives_up_over_a_question(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """What is durable of its giving up holds: after the answer the session is undone. Before that it is open, and goes on.

    It is killed around the message that says so, and around what comes of it.
    """
    how = {"player": "sessions", "agent": "torn", "variant": "bare"}
    whole = processes.run("live", **how, **new_place(embedded.url).told).told
    assert (whole["final"]["status"], whole["final"]["session"]) == ("ESCALATED", "closed")
    last = whole["counts"]
    assert last["post"] == 1
    points = ["post:1", f"acquire:{last['acquire']}", f"append:{last['append']}"]
    for fault in [f"{point}:{when}" for point in points for when in ("before", "after")]:
        place = new_place(embedded.url)
        ended = processes.run("live", **how, **place.told, fault=fault)
        if not ended.killed:  # it wrote the same in fewer appends than the first life, and got past its last one
            assert fault.startswith("append"), fault
            assert ended.told["counts"]["append"] < last["append"], fault
            continue
        # (How many appends there are depends on what shares one, so the last one of that life may be an earlier one here.)
        durable = asyncio.run(_gave_up(place))
        assert durable or fault == "post:1:before" or fault.startswith("append"), fault
        told = processes.run("resume-all", variant="bare", **place.told).told  # no agent: a person answers
        final, happened = told["final"], [line.direction for line in place.ledger.lines(what="applied")]
        if not durable:
            assert (final["status"], final["session"]) == ("RUNNING", "open"), fault
            final = processes.run("come-back", **how, **place.told).told["final"]
            assert (final["status"], happened) == ("COMPLETED", ["forward", "forward"]), fault
        else:
            assert (final["status"], final["report"]["clean"]) == ("COMPENSATED", True), fault
            assert happened == ["forward", "forward", "compensate", "compensate"], fault
        assert place.ledger.compare(final) == [], fault


# --- the matrix can fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mutant", "agent", "fault"),
    [
        ("make every call anew", "well", "call:2:after"),
        ("forget what came before", "ill", "append:4:after"),
        ("end well whatever happens", "ill", "append:2:after"),
        ("roll nothing back", "parts", "append:2:after"),
    ],
)
def test_the_matrix_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, agent: str, fault: str
) -> None:
    """A session that is broken in the way that the mutant says does not get through."""
    stage = Stage(processes, new_place, embedded.url, agent, "keyed", mutant)
    place = new_place(embedded.url)
    assert stage.run("live", place, fault).killed
    assert stage.judge(place, stage.run("come-back", place).told, 1), f"nothing noticed the mutant '{mutant}'"
