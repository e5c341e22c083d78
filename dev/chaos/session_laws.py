"""The laws of a session after the run: what its agent wanted to do is done once, or is undone.

The ledger is compared with the agent's script, not only with the report: whatever the engine counts as a call, the
agent's item exists once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from dev.chaos.agent import Script
from dev.chaos.told import Told
from saga_engine.core import transitions as t
from saga_engine.testing.ledger import OutsideLedger


def breaches(script: Script, ledger: OutsideLedger, told: Told) -> Iterator[str]:
    """Every law that a session breaks, as sentences."""
    yield from ledger.compare(told.body, _as_plan(told.body))
    yield from _items(script, ledger, told)
    if told.body.get("session") != "closed":
        yield f"it is no session that is closed: {told.body.get('session')}"


def _items(script: Script, ledger: OutsideLedger, told: Told) -> Iterator[str]:
    """In a complete session each item stands once; in another one none stands, unless the report names it."""
    stands = Counter(line.output["ref"] for line in ledger.standing(script.saga_id))
    status, made = told.body["status"], {call.item for call in script.calls}
    wanted = _wanted(script)
    for item, times in sorted(stands.items()):
        if times > 1:
            yield f"the agent wanted {item} once, and it stands {times} times"
        if item not in made or (item not in wanted and status == t.COMPLETED and not told.decided("close")):
            yield f"{item} stands, and the agent did not want it"
    if status == t.COMPLETED and not told.decided("close"):
        yield from (f"the agent wanted {item}, and it does not stand" for item in sorted(wanted) if not stands[item])
    named = {str(step_id) for step_id in told.body["report"]["left_in_place"]}
    for line in ledger.standing(script.saga_id) if status != t.COMPLETED else ():
        if line.step_id not in named:
            yield f"the session is {status}, and {line.output['ref']} stands, which the report does not name"


def _wanted(script: Script) -> set[str]:
    """The items that are to stand in the end: the agent took others back itself, and booked some of those again."""
    wanted: set[str] = set()
    for call in script.calls:
        wanted = wanted - {call.item} if call.back else wanted | {call.item}
    return wanted


def _as_plan(body: Mapping[str, Any]) -> dict[str, Any]:
    """Its calls as a plan: one after the other, so that the order of the undos can be checked."""
    undo = {"tool": "drop", "params": {"request": "$key"}}
    steps = [{"step_id": str(step["step_id"]), "tool": step["tool"], "rollback": undo} for step in body["steps"]]
    return {"steps": steps}
