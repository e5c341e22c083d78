"""The kill matrix over what stands before a call: de-duplication, fallbacks, approvals, resources; and over alerts."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from saga_engine.core.states import SAGA_FINAL
from tests.kill.conftest import Line
from tests.kill.growing_child import noted
from tests.kill.polling import eventually, lease_runs_out, opened, ticket_runs_out
from tests.kill.processes import Processes
from tests.kill.scenarios import (
    CALLS,
    NewPlace,
    Place,
    Scenario,
    Stage,
    Told,
    clean,
    killed_at,
    killed_once,
    killed_twice,
)
from tests.kill.world import step
from tests.support.servers import EmbeddedFolder

BUY = {"step_id": 2, "tool": "buy", "params": {"what": "tea"}}
MEMORY = ("append", "call", "guard_claim", "guard_remember")
FALLBACK = {"step_id": 1, "tool": "down", "params": {"item": "i1"}, "fallback": {"tool": "pay"}}
ASK = {"rules": [{"name": "large", "tools": ["wire"], "verdict": "ask"}]}
WIRE = {"step_id": 2, "tool": "wire", "params": {"amount": 1000}}

REMEMBERED = Scenario(
    {"steps": [step(1), BUY, step(3)]}, points=MEMORY, later=("acquire", "guard_recollect", "post", "append", "call")
)
FORGOTTEN = Scenario({"steps": [step(1), BUY, step(3, "fail")]}, points=(*MEMORY, "guard_forget"), end="COMPENSATED")


def fallen(variant: str) -> Scenario:
    """The first tool cannot be reached, another one stands in, and a later step fails."""
    return Scenario({"steps": [FALLBACK, step(2), step(3, "fail")]}, variant, end="COMPENSATED")


def approved(variant: str, *, lead: bool) -> Scenario:
    """A person approves a call; ``lead``: the kills begin with the answer."""
    return Scenario(
        {"steps": [step(1), WIRE, step(3)]},
        variant,
        points=("acquire", "post", *CALLS) if lead else CALLS,
        lead="" if lead else None,
        part="resume-all" if lead else "submit",
        more={"policy": ASK, "answers": {"in-doubt": "retry"}},
    )


SCENARIOS = {
    "remembered": REMEMBERED,
    "forgotten": FORGOTTEN,
    "fallback, keyed": fallen("keyed"),
    "fallback, bare": fallen("bare"),
    "asked, keyed": approved("keyed", lead=False),
    "asked, bare": approved("bare", lead=False),
    "approved, keyed": approved("keyed", lead=True),
    "approved, bare": approved("bare", lead=True),
    "denied": Scenario(
        {"steps": [step(1), WIRE, step(3)]},
        "bare",
        points=("acquire", "post", *CALLS),
        lead="",
        part="resume-all",
        end="COMPENSATED",
        more={"policy": ASK, "answers": {"approval": "deny"}},
    ),
    "told": Scenario(
        {
            "deadline_s": 600,
            "steps": [
                {"step_id": 1, "tool": "lose", "params": {"item": "i1"}, "depends_on": []},
                {
                    "step_id": 2,
                    "tool": "later",
                    "params": {"item": "i2"},
                    "depends_on": [],
                    "fallback": {"queue_s": 0.01},
                },
            ],
        },
        points=("append", "call", "alert"),
        later=("acquire", "post", "append", "call", "alert"),
        more={"tell": True},
    ),
}


#: What CI runs; the others differ from these in the tools only.
SHORT = ["remembered", "forgotten", "fallback, bare", "asked, bare", "denied", "told"]
NAMES = [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in SCENARIOS]
#: Points that each case is about, and so must have been reached.
REACHED = {
    "remembered": [f"guard_{verb}:1:{when}" for verb in ("claim", "remember") for when in ("before", "after")],
    "forgotten": ["guard_forget:1:before", "guard_forget:1:after", "append:6:before"],
    "fallback, keyed": ["call:6:after", "append:7:before"],
    "fallback, bare": ["call:6:after", "append:7:before"],
    "asked, keyed": ["append:3:before", "append:3:after"],
    "asked, bare": ["append:3:before", "append:3:after"],
    "approved, keyed": ["acquire:1:after", "post:1:before", "post:1:after", "call:1:before", "call:1:after"],
    "approved, bare": ["acquire:1:after", "post:1:before", "post:1:after", "call:1:before", "call:1:after"],
    "denied": ["post:1:before", "post:1:after"],
    "told": ["alert:1:before", "alert:1:after", "alert:2:before", "alert:2:after"],
}


@pytest.mark.parametrize("name", NAMES)
def test_killed_anywhere(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, name: str) -> None:
    """Whatever moment a process dies at, the saga ends as it should, and people were asked and told what they had to be."""
    clean(killed_once(Stage(processes, new_place, embedded.url, SCENARIOS[name])), REACHED[name])


@pytest.mark.parametrize(
    "name", ["told", *(pytest.param(name, marks=pytest.mark.slow) for name in ("forgotten", "fallback, bare"))]
)
def test_killed_again_while_resuming(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, name: str
) -> None:
    """The same laws for a resume that is killed and resumed (a sample of the pairs)."""
    found = killed_twice(Stage(processes, new_place, embedded.url, SCENARIOS[name]), every=False)
    clean(found, [])
    assert sum("not reached" not in fault for fault in found) >= 3, sorted(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_killed_again_anywhere(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, name: str) -> None:
    """Every pair of a kill and a second kill."""
    clean(killed_twice(Stage(processes, new_place, embedded.url, SCENARIOS[name]), every=True), [])


# --- de-duplication -------------------------------------------------------------------------------------------------


#: Around the call that is remembered: what becomes of it when its process dies there.
ABOUT_THE_CALL = {
    "guard_claim:1:before": "asked",
    "guard_claim:1:after": "asked",
    "call:2:before": "asked",
    "call:2:after": "asked",
    "guard_remember:1:before": "asked",
    "guard_remember:1:after": "found",
    "append:3:before": "found",
    "append:3:after": "settled",
}


#: Around the record of a person's answer, and what is learned from it before anything follows.
ABOUT_THE_ANSWER = [
    f"{point}:{when}" for point in ("append:1", "guard_remember:1", "append:2") for when in ("before", "after")
]


def second(stage: Stage, place: Place) -> Told:
    """Another saga that makes the identical call."""
    return stage.run("submit", place, saga_id=f"{place.saga_id}-b", plan={"steps": [BUY]}).told


def dying(stage: Stage, faults: Iterable[str]) -> Iterator[tuple[str, Place]]:
    """Runs that die of each of these."""
    for fault in faults:
        place, ended = stage.first(fault)
        assert ended.killed, fault
        yield fault, place


def bought_twice(place: Place) -> list[str]:
    """The identical call never has two effects that stand at the same time, whichever sagas made it."""
    standing: set[tuple[str, str]] = set()
    found = []
    for line in place.ledger.lines(what="applied"):
        if line.tool == "buy":
            standing.add((line.saga_id, line.step_id))
        elif line.direction == "compensate":
            standing.discard((line.saga_id, line.step_id))
        if len(standing) > 1:
            found.append(f"it was bought by {sorted(standing)}")
    return found


def judged_with_a_second(stage: Stage, place: Place, told: Told, kills: int) -> list[str]:
    """The laws, and those of another saga that makes the identical call when the first has ended."""
    found = stage.judge(place, told, kills)
    other = second(stage, place)["final"]
    if other["status"] != "COMPLETED":
        found.append(f"the second is {other['status']}: {other['error']}")
    return [*found, *bought_twice(place)]


def test_what_is_remembered_needs_no_person(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """A call that was remembered and not journalled is found; one that was not remembered is a person's, happened or not."""
    stage = Stage(processes, new_place, embedded.url, REMEMBERED)
    for fault, place in dying(stage, ABOUT_THE_CALL):
        told = stage.run("resume-all", place).told
        questions = [question["kind"] for question in told["resumed"]["questions"]]
        via = told["resumed"]["steps"][1].get("via")
        assert (questions, via) == {
            "asked": (["in-doubt"], None),
            "found": ([], "probe"),
            "settled": ([], None),
        }[ABOUT_THE_CALL[fault]], fault
        assert not stage.judge(place, told, 1), fault


@pytest.mark.parametrize("fault", ["append:1:after", "guard_recollect:1:before", "guard_recollect:1:after"])
def test_a_look_for_a_kept_result_that_was_cut_off_is_made_again(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, fault: str
) -> None:
    """Whoever resumed died while looking: that was no answer, and the next one still needs no person."""
    stage = Stage(processes, new_place, embedded.url, REMEMBERED)
    place, _ = stage.first("guard_remember:1:after")
    assert stage.run("resume-all", place, fault).killed
    told = stage.run("resume-all", place).told
    assert not stage.judge(place, told, 2)
    assert told["final"]["steps"][1]["via"] == "probe"


def test_a_second_saga_while_the_first_is_in_doubt(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """It gets the result that is remembered, is turned away by a claim, or makes the call; the first is settled after it."""
    stage = Stage(processes, new_place, embedded.url, REMEMBERED)
    ends: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {}
    for fault, place in dying(stage, ["append:2:before", *ABOUT_THE_CALL]):
        asyncio.run(lease_runs_out(place.url, place.saga_id))
        other = second(stage, place)["final"]
        ends[other["steps"][0].get("via") or (other["error"] or {}).get("error_code", "call")] += 1
        found = stage.judge(place, stage.run("resume-all", place).told, 1)
        wrong[fault] = [*found, *bought_twice(place)]
        if other["status"] == "COMPENSATED" and other["error"]["error_code"] != "duplicate_in_flight":
            wrong[fault].append(f"the second failed: {other['error']}")
    clean(wrong, list(ABOUT_THE_CALL))
    assert ends.keys() == {"deduplicated", "duplicate_in_flight", "call"}, ends


def test_what_another_saga_relies_on_is_not_undone(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """The first dies with its result remembered, another saga gets it, and only then the first has to be undone."""
    stage = Stage(processes, new_place, embedded.url, FORGOTTEN)
    for _, place in dying(stage, ["guard_remember:1:after", "append:3:after", "call:3:after", "guard_forget:1:before"]):
        other = second(stage, place)["final"]
        assert (other["status"], other["steps"][0]["via"]) == ("COMPLETED", "deduplicated")
        told = stage.run("resume-all", place).told
        (question,) = told["resumed"]["questions"]
        assert (question["kind"], question["error"]["error_code"]) == ("undo-failed", "result_shared")
        assert told["final"]["status"] == "WAIVED"  # the person let it stand
        assert [line.tool for line in place.ledger.standing()] == ["buy"]


@pytest.mark.parametrize("more", [(), (step(9, "lose", depends_on=[]),)], ids=["that ends it", "beside a question"])
def test_what_a_person_said_is_remembered_whenever_its_reader_dies(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, more: tuple[Any, ...]
) -> None:
    """Killed around the record of 'it happened': the identical call of another saga is served, and never made again."""
    stage = Stage(processes, new_place, embedded.url, Scenario({"steps": [{**BUY, "depends_on": []}, *more]}))
    for fault in ABOUT_THE_ANSWER:
        place, ended = stage.first("call:1:after:raise,call:2:after:raise")
        assert ended.told["final"]["status"] == "ESCALATED"
        ended = stage.run("decide", place, fault, answer=[2, "happened", {"ref": "tea"}], by="ada")
        assert ended.killed, fault
        told = stage.run("resume-all", place).told
        assert told["final"]["status"] == "COMPLETED", fault
        other = second(stage, place)["final"]
        assert (other["status"], other["steps"][0]["via"]) == ("COMPLETED", "deduplicated"), fault
        assert [line.tool for line in place.ledger.lines(what="sent")].count("buy") == 1, fault


def test_a_second_saga_after_a_killed_one(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder) -> None:
    """Whatever the first died of: once it has ended, the identical call of another saga is served, and never made twice."""
    stage = Stage(processes, new_place, embedded.url, REMEMBERED)

    clean(killed_at(stage, ABOUT_THE_CALL, partial(judged_with_a_second, stage)), list(ABOUT_THE_CALL))


# --- approvals -----------------------------------------------------------------------------------------------------


def test_an_answer_that_nobody_reads_yet(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder) -> None:
    """Whoever approved died before anybody read it: the saga goes on with that answer, and nobody is asked again."""
    stage = Stage(processes, new_place, embedded.url, SCENARIOS["approved, bare"])
    for fault in ("post:1:after", "acquire:1:before", "acquire:1:after", "append:1:before"):
        place = stage.place()
        assert stage.run("submit", place).told["final"]["questions"][0]["kind"] == "approval"
        assert not place.ledger.lines(what="sent")[1:], "the call waits for its approval"
        assert stage.run("decide", place, fault, answer=[2, "approve"], by="ada").killed, fault
        told = stage.run("resume-all", place).told
        assert told["messages"] == [["resolve", "2", "2:f:1"]], fault
        assert told["resumed"]["status"] == "COMPLETED", fault
        assert not stage.judge(place, told, 1), fault


@pytest.mark.parametrize("variant", ["keyed", "bare"])
def test_two_people_answer_at_once(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, line: Line, variant: str
) -> None:
    """One approves and one denies: exactly one answer counts, the other hears of it, and the world has one of the two."""
    stage = Stage(processes, new_place, embedded.url, SCENARIOS[f"approved, {variant}"])
    place = stage.place()
    stage.run("submit", place)
    how = {
        "player": "growing",
        "variant": variant,
        "policy": ASK,
        "line_up": str(line.folder),
        **place.told,
    }
    racing = {
        by: processes.start("decide", answer=[2, decision], by=by, **how)
        for by, decision in {"ada": "approve", "bob": "deny"}.items()
    }
    line.start(2)
    told = {by: one.told() for by, one in racing.items()}
    after = stage.run("resume-all", place).told  # what came too late is still unread

    (decision,) = [record for record in after["history"] if record["k"] == "QuestionResolved"]
    winner, loser = ("ada", "bob") if decision["by"] == "ada" else ("bob", "ada")
    assert decision["decision"] == ("approve" if winner == "ada" else "deny")
    assert after["final"]["status"] == ("COMPLETED" if winner == "ada" else "COMPENSATED")
    assert sum(record.tool == "wire" for record in place.ledger.lines(what="applied")) == (winner == "ada")
    assert not _wrong_agreement(stage, place, after)
    refused = told[loser].get("error", {}).get("code") == "decision-refused"
    later = [record["code"] for record in after["history"] if record["k"] == "MessageRefused"]
    # Whoever was not refused was told that the saga still runs, never how it ended, and the refusal is journalled.
    assert refused or later == ["decision-refused"] or len(after["messages"]) == 1, told[loser]
    assert refused or told[loser]["final"]["status"] not in SAGA_FINAL, told[loser]


def _wrong_agreement(stage: Stage, place: Place, told: Told) -> list[str]:
    return place.ledger.compare(told["final"], stage.scenario.plan)


# --- resources -----------------------------------------------------------------------------------------------------

ROOM = "room:blue"
HOLDS = {"steps": [{"step_id": 1, "tool": "hold", "params": {"room": "blue"}}]}


def in_and_out(place: Place) -> list[tuple[str, str]]:
    """Who went into the room and out of it, in order."""
    return [(line["saga"], line["what"]) for line in noted(place.ledger.path.parent, "room")]


async def whose_turn(place: Place) -> str:
    """The saga whose call holds the room; a ticket that nobody has leaves the queue as it is."""
    async with opened(place.url) as store:
        return (await store.guard_store().give(ROOM, "nobody")).partition(":")[0]


async def renewed(place: Place, saga_id: str, times: int) -> None:
    """Until a saga's owner has renewed its lease so often: that is how time is told here."""
    async with opened(place.url) as store:
        left_ms = [(await store.head(saga_id)).owner_ttl_ms]

        async def often() -> bool:
            left_ms.append((await store.head(saga_id)).owner_ttl_ms)
            return sum(later > earlier for earlier, later in pairwise(left_ms)) >= times

        await eventually(often, f"{times} renewals of a lease")


async def test_a_killed_holder_gives_the_room_free_and_a_living_one_does_not(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """Nobody else gets in for longer than a lease while the holder lives; when it is killed, the next one does."""
    place = new_place(embedded.url)
    home = place.ledger.path.parent
    how = {"player": "growing", "variant": "keyed", "plan": HOLDS, **place.told}
    os.mkfifo(home / "gate-a")
    os.mkfifo(home / "begun-a")
    holder = processes.start("submit", **{**how, "saga_id": "a", "lease_s": 3.0})
    assert await asyncio.to_thread((home / "begun-a").read_text) == "begun"
    # It stops when it asks for the second time, so it stands in the queue from here on.
    waiter = processes.start("submit", **{**how, "saga_id": "b", "fault": "guard_take:2:before:pause"})
    await asyncio.to_thread(waiter.wait_until_frozen)
    waiter.thaw()
    await renewed(place, "a", 4)  # a lease of three seconds is renewed each second
    assert await whose_turn(place) == "a"
    assert in_and_out(place) == [("a", "enter")]
    assert not waiter.has_ended()

    holder.kill()
    assert (await asyncio.to_thread(holder.wait)).killed
    await ticket_runs_out(place.url, ROOM, "a")
    assert (await asyncio.to_thread(waiter.told))["final"]["status"] == "COMPLETED"
    assert in_and_out(place) == [("a", "enter"), ("b", "enter"), ("b", "accept")]
    (home / "gate-a").unlink()
    told = (await asyncio.to_thread(processes.run, "resume-all", **{**how, "saga_id": "a"})).told
    assert told["final"]["status"] == "COMPLETED"
    assert in_and_out(place)[3:] == [("a", "enter"), ("a", "accept")]


@pytest.mark.parametrize(
    "fault", ["guard_take:1:before", "guard_take:1:after", "call:1:before", "call:1:after", "guard_give:1:before"]
)
def test_one_at_a_time_whoever_dies(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, line: Line, fault: str
) -> None:
    """Four processes want one room and one of them is killed: never two are in it, and all are served."""
    place = new_place(embedded.url)
    how = {"player": "growing", "variant": "keyed", "plan": HOLDS, **place.told}
    sagas = ["a", "b", "c", "d"]
    running = [
        processes.start(
            "submit", **{**how, "saga_id": saga, "fault": fault if saga == "a" else "", "line_up": str(line.folder)}
        )
        for saga in sagas
    ]
    line.start(len(sagas))
    assert running[0].wait().killed
    asyncio.run(ticket_runs_out(place.url, ROOM, "a"))
    ended = dict(zip(sagas, [one.wait() for one in running], strict=True))
    assert [ended[saga].told["final"]["status"] for saga in "bcd"] == ["COMPLETED"] * 3
    assert processes.run("resume-all", **{**how, "saga_id": "a"}).told["final"]["status"] == "COMPLETED"

    inside = ""
    for saga, what in in_and_out(place):
        # Only the one that was killed never leaves: the first time that it was in.
        assert inside == (saga if what == "accept" else "") or (inside == "a" and what == "enter"), in_and_out(place)
        inside = saga if what == "enter" else ""
    assert Counter(line.saga_id for line in place.ledger.lines(what="applied")) == dict.fromkeys(sagas, 1)


# --- the matrix can fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mutant", "name", "fault"),
    [
        ("do not look for a kept result", "remembered", "guard_remember:1:after"),
        ("undo the tool that was not used", "fallback, keyed", "append:6:before"),
        ("take who is being told for told", "told", "alert:1:before"),
        ("ask nobody", "asked, bare", "append:2:before"),
    ],
)
def test_the_matrix_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, name: str, fault: str
) -> None:
    """An engine that is broken in the way that the mutant says does not get through."""
    scenario = SCENARIOS[name]
    stage = Stage(processes, new_place, embedded.url, replace(scenario, more={**scenario.more, "mutant": mutant}))
    assert killed_at(stage, [fault])[fault], f"nothing noticed the mutant '{mutant}'"


def test_the_matrix_catches_a_de_duplication_that_claims_nothing(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """Then a second saga makes a call that has been made."""
    stage = Stage(processes, new_place, embedded.url, replace(REMEMBERED, more={"mutant": "claim nothing"}))
    found = killed_at(stage, ["append:3:after"], partial(judged_with_a_second, stage))
    assert any("it was bought by" in text for text in found["append:3:after"]), found
