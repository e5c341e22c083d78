"""The races of ``wait_races.py`` for a saga that waits for several events, the first of them or all.

The card's and the bank's events lie in channels of their own, so in partitions of their own. What came for a wait for
all is in the journal before the wait is over, and the store holds it until then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from saga_engine import SagaError
from saga_engine.ports import Channel
from tests.support.wait_races import WAIT, Race

How = Literal["first", "all"]
#: The name of a channel by the first letter of its events; some events come twice, and some do not fit.
CHANNELS: Final = {"c": "card", "b": "bank"}
EVENTS: Final = ("c1", "c1", "c2", "b3", "b3", "b4", "c0", "b0")
SCHEMA: Final = {"type": "object", "required": ["sum"]}


class SeveralRace(Race):
    """One play of a seed; ``first`` may name the channels, too: an event that fits comes there."""

    def __init__(
        self, how: How, url: str, folder: Path, seed: int, first: Sequence[str] = (), winner: str = ""
    ) -> None:
        names = (f"{name[0]}{'u' * name.endswith('url')}" for name in first)  # a name must be short
        super().__init__(url, folder, seed, (how, *names), winner)
        self.first = first
        self.how = how
        self._make_several(self.plan["steps"])

    def _make_several(self, steps: list[dict[str, Any]]) -> None:
        events = [{"event": name, "schema": SCHEMA} for name in CHANNELS.values()]
        wait = {name: steps[1]["wait"][name] for name in ("timeout_s", "on_timeout")} | {self.how: events}
        if self.refunds:
            wait["on_late"] = {"tool": "refund", "params": {"sum": f"$output.step_{WAIT}.payload.sum"}}
        if isinstance(wait["on_timeout"], dict):
            nothing = [{"event": name, "key": "", "payload": {"sum": 0}} for name in CHANNELS.values()]
            wait["on_timeout"] = {"value": nothing if self.how == "all" else nothing[0]}
        places = [f"$output.step_{WAIT}[{at}].payload.sum" for at in range(2)]
        paid: Any = places if self.how == "all" else f"$output.step_{WAIT}.payload.sum"
        steps[1] |= {"wait": wait, "rollback": {"tool": "refund", "params": {"sum": paid}}}
        steps[2]["params"] = {"item": {"$first": [places[0] if self.how == "all" else paid, -1]}}

    async def _happens(self, name: str) -> None:
        if name in CHANNELS.values():
            await self._comes(self.dice.choice([event for event in EVENTS if CHANNELS[event[0]] == name][:3]))
        elif name.endswith("url"):
            which = name.removesuffix("-url") if name != "url" else self.dice.choice([*CHANNELS.values()])
            await self._answers([*CHANNELS.values()].index(which))
        else:
            await super()._happens(name)

    async def _event(self) -> None:
        await self._comes(self.dice.choice(EVENTS if not self.first else EVENTS[:-2]))

    async def _comes(self, event: str) -> None:
        payload = {"sum": int(event[1:])} if event[1:] != "0" else {"total": 1}
        with contextlib.suppress(SagaError):  # one that does not fit is refused, if anything waits
            receipt = await self._desk.send_event(CHANNELS[event[0]], self.saga_id, payload, event_id=event)
            self.receipts.setdefault(event, set()).add(receipt.disposition)
        self._notify()

    async def _sent(self) -> dict[str, str]:
        return {
            event.id: event.disposition
            for name in CHANNELS.values()
            for event in await self._desk.events(name, self.saga_id)
        }

    async def _is_awaited(self) -> bool:
        store = self._desk.store.event_store()
        return None not in [await store.first(Channel(name, self.saga_id)) for name in CHANNELS.values()]

    # --- the laws ------------------------------------------------------------------------------------------------

    def _is_made_of(self, history: Sequence[Mapping[str, Any]], end: Mapping[str, Any]) -> bool:
        """The output has what the events brought: in the plan's order, one of each channel, or one of any."""
        found = [self._brought(event) for event in self._took(history, end)]
        if self.how == "first":
            return [end["output"]] == found
        wanted = sorted(found, key=lambda each: [*CHANNELS.values()].index(each["event"]))
        return bool(end["output"] == wanted and [each["event"] for each in wanted] == [*CHANNELS.values()])

    def _brought(self, event: str) -> dict[str, Any]:
        """What the wait makes of an event."""
        of = self._ids.get(event)
        name = CHANNELS[event[0]] if of is None else [*CHANNELS.values()][of]
        return {"event": name, "key": self.saga_id, "payload": {"sum": self._said(event)}}

    def _took(self, history: Sequence[Mapping[str, Any]], end: Mapping[str, Any]) -> list[str]:
        return [*(each["source"] for each in history if each["k"] == "EventArrived"), end["source"]]

    def _sum(self, output: Any) -> Any:
        return output["payload"]["sum"] if self.how == "first" else [each["payload"]["sum"] for each in output]

    def _item(self, output: Any) -> Any:
        return self._sum(output) if self.how == "first" else output[0]["payload"]["sum"]

    def _disposition(self, history: Sequence[Mapping[str, Any]], events: Mapping[str, str]) -> Iterator[str]:
        yield from super()._disposition(history, events)
        arrived = [each for each in history if each["k"] == "EventArrived"]
        if len(arrived) > (self.how == "all"):
            yield f"events arrived for a wait for {self.how}: {arrived}"
