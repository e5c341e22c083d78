"""The laws of late events: each is handled by one saga, once, and no other event is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dev.chaos import plans
from dev.chaos.told import Told
from dev.chaos.world import LATE
from saga_engine import Coordinator
from saga_engine.core import transitions as t
from saga_engine.ports import ListedEvent
from saga_engine.testing.ledger import OutsideLedger

_TAG: Final = "late-event"
_PAGE: Final = 500


async def all_late(coordinator: Coordinator) -> list[str]:
    """The ids of all sagas that handle late events, as the store finds them."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await coordinator.search(tags=[_TAG], limit=_PAGE, cursor=cursor)
        found += [head.saga_id for head in page.sagas]
        cursor = page.cursor
        if cursor is None:
            return found


def breaches(
    plan: Mapping[str, Any],
    told: Told,
    events: Sequence[ListedEvent],
    late: Sequence[Told],
    ledger: OutsideLedger,
) -> Iterator[str]:
    """Every law that a saga with late events breaks, as sentences. ``late``: the sagas that handle them."""
    waits = {step["step_id"]: step["wait"] for step in plan["steps"] if "wait" in step}
    ends = {str(step["step_id"]): step.get("via") for step in told.body["steps"]}
    begun = Counter(str(record["step"]) for record in told.history if record["k"] == "StepWaiting")
    made = Counter(
        line.output["ref"]
        for each in late
        for line in ledger.lines(each.body["saga_id"])
        if line.what == "applied" and line.direction == "forward"
    )
    for event in events:
        handled = event.disposition == "handled"
        times = made[plans.payload(event.channel, event.id)["id"]]
        if times > 1 or (times and not handled):
            yield f"the event {event.id} is {event.disposition}, and was handled {times} times"
        if not handled:
            continue
        waiter = "" if event.waiter is None else event.waiter.step
        if "on_late" not in waits.get(waiter, {}):
            yield f"the event {event.id} is handled for step {waiter}, which has no on_late"
        # (After the first of several the others are late. An operator may have had a wait that was in vain begin anew.)
        if ends.get(waiter) == "event" and "first" not in waits.get(waiter, {}) and begun[waiter] == 1:
            yield f"the event {event.id} is handled for step {waiter}, which had ended with an event in time"
    handlers = sum(event.disposition == "handled" for event in events)
    if len(late) != handlers:
        yield f"{handlers} late events are handled, by {len(late)} sagas"
    for each in late:
        saga_id = each.body["saga_id"]
        if each.body["status"] == t.COMPLETED and not ledger.standing(saga_id):
            yield f"the late saga {saga_id} completed, and made nothing"
        if not saga_id.startswith(f"{told.body['saga_id']}{LATE}"):
            yield f"the late saga {saga_id} is of another saga"
