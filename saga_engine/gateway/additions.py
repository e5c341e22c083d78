"""What an agent adds to a saga of its own: against which plan it is checked, and when it is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from saga_engine.core.messages import decode_message
from saga_engine.errors import AmendRefused, JournalUnreadable, PlanInvalid, Problem
from saga_engine.plan.misuse import UNUSED, misuses
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import ToolCatalog

Steps = Sequence[Mapping[str, Any]]


class Standing(NamedTuple):
    """A saga before an addition: its plan as far as it has grown, and the steps that its owner has yet to read.

    ``length``: the number of its records.
    """

    plan: Mapping[str, Any]
    steps: Steps
    unread: Steps
    length: int

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]], messages: Sequence[bytes]) -> Standing:
        """From the records, and from the unread messages as they were before these records were read."""
        raw = records[0]["plan"]
        plan = msgspec.json.decode(raw) if isinstance(raw, str | bytes | msgspec.Raw) else raw
        steps = [*plan["steps"]]
        for record in records:
            if record["k"] == "StepsAdded":
                steps += record["steps"]
        unread: list[Mapping[str, Any]] = []
        for data in messages:
            with suppress(JournalUnreadable):  # of a newer engine; it is refused or read there
                unread += decode_message(data).steps
        return cls(plan, steps, unread, len(records))

    def count(self, added: Steps) -> int:
        """How many steps the saga would have: one that was read meanwhile counts once."""
        return len(keys(self.steps) | keys(self.unread)) + len(added)

    def misused(self, added: Steps, catalog: ToolCatalog) -> list[Problem]:
        """What the whole plan has of questions, waits and conditions that decide nothing, and had not before.

        Paths count the added steps from 0; those of the saga itself are named by their ids.
        """
        before = {(each.code, each.path) for each in self._found(self.steps, catalog)}
        new = [each for each in self._found([*self.steps, *added], catalog) if (each.code, each.path) not in before]
        return [Problem(each.code, self._path(each.path), each.message, each.hint) for each in new]

    def _found(self, steps: Steps, catalog: ToolCatalog) -> list[Problem]:
        # Of an answer that no step binds yet, the agent may add the steps that do.
        plan = load_plan({**self.plan, "steps": [*steps]})
        return [each for each in misuses(plan, catalog) if each.code != UNUSED]

    def _path(self, path: str) -> str:
        head, _, rest = path.removeprefix("$.steps[").partition("]")
        if not head.isdigit():
            return path
        at = int(head) - len(self.steps)
        return f"$.steps[{at}]{rest}" if at >= 0 else f"$.saga.{self.steps[int(head)]['step_id']}{rest}"


def keys(steps: Steps) -> set[str]:
    """The ids of the steps, as text."""
    return {str(each.get("step_id")) for each in steps}


async def recorded(records: AsyncIterator[dict[str, Any]], added: Steps) -> None:
    """Wait until one of the records has these steps. Raises ``AmendRefused`` if their owner refuses them."""
    wanted = keys(added)
    async for record in records:
        if record["k"] == "StepsAdded" and keys(record["steps"]) == wanted:
            return
        if record["k"] == "MessageRefused" and record["code"] in {AmendRefused.code, PlanInvalid.code}:
            raise AmendRefused(record["reason"], hint="saga_show tells how the saga stands")
    await asyncio.get_running_loop().create_future()  # it has ended unread, which the request itself will tell
