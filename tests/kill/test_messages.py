"""Cancels and answers from another process than the one that drives the saga, at awkward moments."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

from saga_engine import Coordinator
from saga_engine.core.states import SAGA_FINAL
from tests.kill.conftest import Line, Place
from tests.kill.gates import Gate
from tests.kill.polling import eventually, opened
from tests.kill.processes import Processes, Running
from tests.kill.world import PLANS, TOOLS, step

NewPlace = Callable[[str], Place]

WAITS = {"steps": [step(1), step(2, "wait"), step(3)]}
#: One branch is in doubt for good while the other is still at work.
ASKS = {"steps": [step(1, "lose", depends_on=[]), step(2, "wait", depends_on=[])]}


async def until_told(place: Place) -> None:
    """Until the owner has heard of its messages: the answer to a renewal brings the news. The second one is to be sure."""
    async with opened(place.url) as store:
        left_ms = [(await store.head(place.saga_id)).owner_ttl_ms]

        async def renewed_twice() -> bool:
            left_ms.append((await store.head(place.saga_id)).owner_ttl_ms)
            return sum(later > earlier for earlier, later in itertools.pairwise(left_ms)) >= 2

        await eventually(renewed_twice, "two renewals of the lease")


async def until_asked(place: Place) -> None:
    """Until a question stands in the journal."""
    async with Coordinator.open(place.url, TOOLS["bare"]) as coordinator:

        async def asked() -> bool:
            return bool((await coordinator.show(place.saga_id)).body["questions"])

        await eventually(asked, "the question")


async def look(place: Place) -> tuple[Any, list[dict[str, Any]]]:
    """Where the saga stands and what is in its journal."""
    async with Coordinator.open(place.url, TOOLS["bare"]) as coordinator:
        return await coordinator.show(place.saga_id), await coordinator.history(place.saga_id)


async def unread(place: Place) -> int:
    async with opened(place.url) as store:
        return len(await store.messages(place.saga_id))


def begun(processes: Processes, place: Place, plan: dict[str, Any], variant: str = "bare") -> tuple[Running, Gate]:
    """A saga whose call of `wait` is in flight."""
    gate = Gate(place)
    owner = processes.start("submit", plan=plan, variant=variant, **place.told)
    gate.wait_for_the_call()
    return owner, gate


def test_a_cancel_from_another_process_while_a_call_is_in_flight(
    processes: Processes, new_place: NewPlace, server_url: str
) -> None:
    """The owner hears of it, awaits the call, starts nothing more, and undoes all that happened, that call too (pitfall 1)."""
    place = new_place(server_url)
    owner, gate = begun(processes, place, WAITS)
    told = processes.run("cancel", variant="bare", **place.told).told
    assert told["final"]["status"] == "RUNNING"
    assert told["durable"] == []  # the owner lives, so it is the owner that acts
    asyncio.run(until_told(place))
    gate.open()
    final = owner.told()["final"]

    assert (final["status"], final["error"]["code"], final["report"]["clean"]) == ("COMPENSATED", "cancelled", True)
    assert final["report"]["compensated"] == [1, 2]
    assert place.ledger.compare(final, WAITS) == []
    assert Counter(line.step_id for line in place.ledger.lines(what="sent")) == {"1": 2, "2": 2}


def test_a_cancel_that_meets_a_killed_owner(processes: Processes, new_place: NewPlace, server_url: str) -> None:
    """Nobody drives the saga any more: whoever cancels it undoes it; the call in flight is asked about, not forgotten."""
    place = new_place(server_url)
    owner, gate = begun(processes, place, WAITS)
    owner.kill()
    assert owner.wait().killed
    gate.open_for_good()
    told = processes.run("cancel", variant="bare", **place.told).told
    assert [(q["step_id"], q["kind"]) for q in told["final"]["questions"]] == [(2, "in-doubt")]
    assert told["final"]["report"]["unresolved"] == [1, 2]

    answered = processes.run("decide", variant="bare", answer=[2, "not-happened", None], by="ada", **place.told).told
    assert answered["final"]["status"] == "COMPENSATED"
    assert place.ledger.compare(answered["final"], WAITS) == []


def test_an_answer_while_the_coordinator_is_down(processes: Processes, new_place: NewPlace, server_url: str) -> None:
    """The owner died with one question open and a call in flight: an answer is taken, and the rest is asked about."""
    place = new_place(server_url)
    owner, gate = begun(processes, place, ASKS)
    asyncio.run(until_asked(place))
    owner.kill()
    assert owner.wait().killed
    gate.open_for_good()

    first = processes.run("decide", variant="bare", answer=[1, "happened", {"ref": "i1"}], by="ada", **place.told).told
    assert [(q["step_id"], q["kind"]) for q in first["final"]["questions"]] == [(2, "in-doubt")]
    second = processes.run("decide", variant="bare", answer=[2, "not-happened", None], by="bob", **place.told).told

    assert second["final"]["status"] == "COMPENSATED"
    assert place.ledger.compare(second["final"], ASKS) == []
    assert not place.ledger.standing()


def test_an_answer_to_a_saga_that_rests(processes: Processes, new_place: NewPlace, server_url: str) -> None:
    """The process that asked has ended long ago; whoever answers drives the saga on, and who it was is journalled."""
    place = new_place(server_url)
    how = {"variant": "bare", **place.told}
    assert processes.run("submit", plan=PLANS["succeeds"], fault="call:2:after", **how).killed
    told = processes.run("decide", answer=[2, "happened", {"ref": "i2"}], by="ada", **how).told
    assert told["error"]["code"] == "decision-refused"  # nobody has found out yet that there is a question
    processes.run("resume", **how)
    told = processes.run("decide", answer=[2, "happened", {"ref": "i2"}], by="ada", **how).told
    assert told["final"]["status"] == "COMPLETED"
    _, history = asyncio.run(look(place))
    assert [record["by"] for record in history if record["k"] == "QuestionResolved"] == ["ada"]
    assert place.ledger.compare(told["final"], PLANS["succeeds"]) == []


def test_two_people_answer_at_once(processes: Processes, new_place: NewPlace, server_url: str, line: Line) -> None:
    """One answer counts. Whoever gave the other hears of it, or was told that the saga still runs and finds it refused."""
    place = new_place(server_url)
    how = {"variant": "bare", **place.told}
    assert processes.run("submit", plan=PLANS["succeeds"], fault="call:2:before", **how).killed
    processes.run("resume", **how)
    answers = {"ada": [2, "not-happened", None], "bob": [2, "retry", None]}
    racing = {
        by: processes.start("decide", answer=answer, by=by, line_up=str(line.folder), **how)
        for by, answer in answers.items()
    }
    line.start(2)
    told = {by: one.told() for by, one in racing.items()}

    final, history = asyncio.run(look(place))
    (decision,) = [record for record in history if record["k"] == "QuestionResolved"]
    loser = "bob" if decision["by"] == "ada" else "ada"
    assert final.status == ("COMPENSATED" if decision["by"] == "ada" else "COMPLETED")
    assert place.ledger.compare(final, PLANS["succeeds"]) == []
    refused = told[loser].get("error", {}).get("code") == "decision-refused"
    in_the_journal = [record["code"] for record in history if record["k"] == "MessageRefused"] == ["decision-refused"]
    came_too_late = asyncio.run(unread(place))
    assert in_the_journal + came_too_late <= 1
    assert refused or in_the_journal or came_too_late
    # An ended saga is never shown to the loser as if nothing had happened to the answer.
    assert refused or told[loser].get("final", {}).get("status") not in SAGA_FINAL
