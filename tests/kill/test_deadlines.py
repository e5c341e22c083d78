"""Processes that are killed, and a deadline that passes while nobody lives: it binds whoever goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tests.kill.polling import eventually, opened
from tests.kill.processes import Processes
from tests.kill.scenarios import NewPlace, Place
from tests.kill.world import step
from tests.support.servers import EmbeddedFolder

#: Long enough for a process on a busy machine to die before it has passed.
DEADLINE_S = 3.0

ALONE: dict[str, Any] = {"deadline_s": DEADLINE_S, "steps": [step(1), step(2), step(3)]}
#: The second step is a question to a person, and the third one still to come.
ASKS: dict[str, Any] = {"deadline_s": DEADLINE_S, "steps": [step(1), step(2, "lose"), step(3)]}
SAGA: dict[str, Any] = {"variant": "keyed", "plan": ALONE}
RESTS: dict[str, Any] = {"variant": "keyed", "plan": ASKS}
SESSION: dict[str, Any] = {"player": "sessions", "variant": "keyed", "agent": "well", "deadline_s": DEADLINE_S}

CASES = {
    "before the first call": ("submit", SAGA, "append:1:after"),
    "in the first call": ("submit", SAGA, "call:1:after"),
    "after the second call": ("submit", SAGA, "append:3:before"),
    "while it rests": ("submit", RESTS, "close_lease:1:before"),
    "a session between two calls": ("live", SESSION, "append:3:after"),
    "a session in a call": ("live", SESSION, "call:2:after"),
}


async def until_late(place: Place) -> None:
    """Until the store's own clock is past the deadline."""
    async with opened(place.url) as store:
        begun_ms = msgspec.json.decode((await store.read(place.saga_id))[0])["at"]

        async def late() -> bool:
            return await store.open_lease("a clock", 1000) > begun_ms + DEADLINE_S * 1000

        await eventually(late, "the deadline")


async def test_a_deadline_that_passes_while_the_process_is_dead(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """Whoever goes on begins nothing more forward, settles what was under way, and undoes what the saga did."""
    places = {case: new_place(embedded.url) for case in CASES}
    for case, (part, how, fault) in CASES.items():
        ended = await asyncio.to_thread(processes.run, part, fault=fault, **how, **places[case].told)
        assert ended.killed, case
    for place in places.values():
        await until_late(place)
    for case, place in places.items():
        how = {"variant": "keyed", **place.told}
        silent = (await asyncio.to_thread(processes.run, "resume-all", answer=False, **how)).told
        before, history = silent["before"], silent["history"]
        passed = [[record["k"] for record in records].count("DeadlinePassed") for records in (before, history)]
        assert passed == [0, 1], case  # it needs nobody's answer
        final = (await asyncio.to_thread(processes.run, "resume-all", **how)).told["final"]
        end = (final["status"], final["report"]["clean"], final["error"] and final["error"]["code"])
        assert end == ("COMPENSATED", True, "deadline"), case
        intended = {record["step"] for record in before if record["k"] == "StepIntended"}
        assert {line.step_id for line in place.ledger.lines(what="sent")} <= intended, case
        assert not place.ledger.standing(), case
        assert place.ledger.compare(final) == [], case
