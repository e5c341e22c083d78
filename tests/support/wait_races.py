"""One saga that waits for an event and then for an answer, and all that may happen to it, drawn from a seed.

The store is a real server, the engine is whole, and its effects are in a ledger. What may happen: the event (in time,
early, twice, another one, one that does not fit), an answer to the wait by its callback URL, the time-out (the server's clock is put on), a cancel, an answer, the
end of the process at an append, at a call or between two of them, and another process that takes over, also while the
first one lives. Some happen at the same time.

A process that ends here is a coordinator that reaches nothing any more (``Process``): neither its store nor the outside
world; its memory is gone for whoever comes after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from saga_engine import Coordinator, SagaError, ToolContext, tool
from saga_engine.api.events import LATE_TAG
from saga_engine.core import transitions as t
from saga_engine.core.keys import idempotency_key
from saga_engine.core.state import State
from saga_engine.core.steps.wait import answer_id
from saga_engine.errors import EventRefused, StoreUnavailable
from saga_engine.ports import Channel
from saga_engine.runtime.events import Events
from saga_engine.runtime.journal import read_records, state_of
from saga_engine.stores import open_store, scripts
from saga_engine.testing.faults import Fault, Faults, FaultyStore
from saga_engine.testing.ledger import Line, OutsideLedger
from tests.kill.polling import eventually

#: The step that waits, its time-out and that of the question, in seconds.
WAIT, PATIENCE_S = "2", 3600
#: The key at which the server finds by how much its clock is put on, in ms.
SHIFT: Final = "test:shift"
EVENTS: Final = ("e1", "e1", "e1", "e2", "e2", "wrong")
#: What may happen, by how often it is drawn.
HAPPENINGS: Final = {"event": 4, "url": 3, "time": 2, "cancel": 1, "die": 3, "take over": 2, "answer": 3, "settle": 4}
#: What competes for the wait.
TOGETHER: Final = (
    ("cancel", "event"),
    ("time", "event"),
    ("time", "cancel", "event"),
    ("event", "cancel"),
    ("time", "die", "event"),
    ("time", "url"),
    ("url", "url", "cancel"),
    ("url", "event"),
    ("time", "die", "url"),
)
#: What an answer says; the first one that is accepted counts.
ANSWERS: Final = (5, 5, 6)


@contextmanager
def movable_clock(folder: Path) -> Iterator[None]:
    """The scripts of stores ask a clock that a test puts on; the leases, which the server itself ends, keep real time."""
    copy = folder / "lua"
    shutil.copytree(scripts._FOLDER, copy)
    prelude = copy / "prelude.lua"
    text = prelude.read_text()
    now = "return time[1] * 1000 + math.floor(time[2] / 1000)"
    assert text.count(now) == 1
    prelude.write_text(text.replace(now, f"{now} + (tonumber(redis.call('GET', '{SHIFT}') or '0') or 0)"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripts, "_FOLDER", copy)
        scripts.script.cache_clear()
        yield
    scripts.script.cache_clear()


def plan_of(dice: Random) -> dict[str, Any]:
    """A plan: a booking, the wait, what its event pays for, a question, and a last call that may fail."""
    on_timeout = dice.choice(("fail", "fail", "continue", {"value": {"sum": 0}}))
    paid = {"$first": ["$output.step_2.sum", -1]}
    wait = {"event": "paid", "timeout_s": PATIENCE_S, "on_timeout": on_timeout}
    wait["schema"] = {"type": "object", "required": ["sum"]}
    fails = dice.random() < 0.2
    steps: list[dict[str, Any]] = [
        {"step_id": 1, "tool": "book", "params": {"item": "a"}},
        {"step_id": 2, "wait": wait, "rollback": {"tool": "refund", "params": {"sum": "$output.step_2.sum"}}},
        {"step_id": 3, "tool": "book", "params": {"item": paid}},
        {"step_id": 4, "ask": {"question": "Ship?", "options": ["yes", "no"], "expires_s": PATIENCE_S}},
        {"step_id": 5, "tool": "refuse" if fails else "book", "params": {"item": "$output.step_4.answer"}},
    ]
    steps[3]["ask"]["on_timeout"] = dice.choice(("fail", {"value": "no"}))
    if dice.random() < 0.3:
        del steps[3:]
    return {"steps": steps}


class Process(Faults):
    """A process of the engine, which may end at any of its points; nothing of it reaches anything after that."""

    def __init__(self) -> None:
        super().__init__(actions={"die": lambda _: self.die()})
        self.dead = False

    def die(self) -> None:
        """End. What is under way may have reached the other side."""
        self.dead = True
        raise StoreUnavailable("injected: the process has ended", hint="this is a test", url="")

    def arm(self, point: str, ahead: int, when: Any) -> None:
        """Let it end at a point that it comes to."""
        number = self.counts[point] + ahead
        self._waiting[(point, number, when)] = Fault(point, number, when, "die")

    @contextmanager
    def at(self, point: str) -> Iterator[None]:
        """As any fault point; a dead process neither asks nor hears the answer."""
        if self.dead:
            self.die()
        with super().at(point):
            yield
        if self.dead:
            self.die()


def tools_of(process: Process, ledger: OutsideLedger) -> list[Any]:
    """The tools as a process has them; the outside world keeps keys."""

    def act(ctx: ToolContext, name: str, output: Any) -> Any:
        with process.at("call"):
            ledger.sent(ctx, name)
            return ledger.apply(ctx, name, output)

    @tool(keyed=True, undo="unbook")
    async def book(item: Any, ctx: ToolContext) -> dict[str, Any]:
        return act(ctx, "book", {"item": item})  # type: ignore[no-any-return]

    @tool(keyed=True, tolerates_absence=True)
    async def unbook(item: Any, ctx: ToolContext) -> dict[str, Any]:
        return act(ctx, "unbook", {"item": item})  # type: ignore[no-any-return]

    @tool(keyed=True)
    async def refund(sum: Any, ctx: ToolContext) -> dict[str, Any]:  # noqa: A002 - a param
        return act(ctx, "refund", {"sum": sum})  # type: ignore[no-any-return]

    @tool(keyed=True, undo="unbook")
    async def refuse(item: Any, ctx: ToolContext) -> dict[str, Any]:
        with process.at("call"):
            ledger.sent(ctx, "refuse", item)
        raise ValueError("never")

    return [book, unbook, refund, refuse]


@asynccontextmanager
async def _running(url: str, process: Process, ledger: OutsideLedger) -> AsyncIterator[Coordinator]:
    """A process. What it does when it ends reaches nothing if it is dead."""
    store = open_store(url)
    try:
        async with Coordinator.open(
            FaultyStore(store, process),  # type: ignore[arg-type]
            tools_of(process, ledger),
            lease_s=1200,  # a renewal on a slow machine would tell it of messages before it is to learn of them
            on_escalation=(),
        ) as engine:
            yield engine
    except StoreUnavailable:
        assert process.dead
    finally:
        await store.close()


#: How often is looked, in the end, for what is not settled yet; the clock moves on during the first looks only.
_LOOKS = 800
_MOVES = 40


class Race:
    """One play of a seed."""

    def __init__(self, url: str, folder: Path, seed: int, first: Sequence[str] = (), winner: str = "") -> None:
        self.saga_id = "-".join((*first, str(seed)))
        self.url = f"{url}?namespace=race-{self.saga_id}"
        self.dice = Random(seed)
        self.plan = plan_of(self.dice)
        #: What happens first, in this order, to the saga that waits; its process learns of it at the end or when said.
        self.first = first
        self.winner = winner
        #: Whether a caller waits in the process that drives the saga; else the saga returns to the queue while it waits.
        self.attended = self.dice.random() < 0.5
        self.ledger = OutsideLedger(folder / f"{self.saga_id}.db")
        self.told: list[str] = []
        self.receipts: dict[str, set[str]] = {}
        #: The answers that were accepted for the events of the wait.
        self.answered: dict[int | None, set[int]] = {}
        #: Whether what comes too late is refunded.
        self.refunds = seed % 2 == 0
        if self.refunds:
            self._wait["on_late"] = {"tool": "refund", "params": {"sum": "$output.step_2.sum"}}
        self._tells = True
        self._stack = AsyncExitStack()
        #: All processes; the last one is to drive the saga.
        self._engines: list[tuple[Process, Coordinator]] = []

    @property
    def _wait(self) -> dict[str, Any]:
        return self.plan["steps"][1]["wait"]  # type: ignore[no-any-return]

    async def play(self) -> list[str]:
        """Play it; returns every breach of a law as a sentence."""
        async with self._stack:
            # Those who send, cancel and answer do so in a process of their own, which never dies.
            self._desk = await self._stack.enter_async_context(
                Coordinator.open(self.url, tools_of(Process(), self.ledger), on_escalation=())
            )
            await self._set_clock(0)
            if self.dice.random() < 0.2 and not self.first:
                await self._event()  # before anything waits for it
            await self._desk.submit(self.plan, saga_id=self.saga_id, detach=True)
            await self._take_over()
            if self.first or self.dice.random() < 0.7:
                await self._settle()  # it waits
            if self.first:  # and the store knows of it
                await eventually(self._is_awaited, "the wait to be registered")
            if self.first:
                self._tells = False
                for name in (*self.first, "learn"):
                    await self._happens(name)
                self._tells = True
            for _ in range(self.dice.randint(1, 5)):
                names = self._drawn()
                self.told.append(" + ".join(names))
                if self.dice.random() < 0.5:
                    self._tells = False  # its process learns of all of them at once
                await asyncio.gather(*(self._happens(name) for name in names))
                self._learns()
            await self._bring_to_an_end()
            return await self._breaches()

    # --- what happens --------------------------------------------------------------------------------------------

    def _drawn(self) -> Sequence[str]:
        dice = self.dice
        if dice.random() < 0.6:
            return dice.choice(TOGETHER)
        return dice.choices(list(HAPPENINGS), list(HAPPENINGS.values()), k=dice.choice((1, 1, 2, 3)))

    async def _happens(self, name: str) -> None:
        match name:
            case "event":
                await self._event()
            case "url":
                await self._answers(None)
            case "time":
                await self._put_clock_on(4000 if self.first else self.dice.choice((1000, 4000)))
            case "cancel":
                await self._say(self._desk.cancel(self.saga_id, by="ada", wait=False))
            case "answer":
                by, word = self.dice.choice(("ada", "bob")), self.dice.choice(("yes", "no"))
                await self._say(self._desk.resolve(self.saga_id, 4, word, by=by, wait=False))
            case "die":
                self._die()
            case "take over":
                await self._take_over()
            case "settle":
                await self._settle()
            case "learn":
                self._learns()
                await self._settle()
                self._tells = False

    def _learns(self) -> None:
        self._tells = True
        self._notify()
        if self.first or self.dice.random() < 0.7:
            self._drive()

    async def _event(self) -> None:
        event = self.dice.choice(EVENTS if not self.first else EVENTS[:-1])
        payload = {"total": 1} if event == "wrong" else {"sum": int(event[1:])}
        with contextlib.suppress(SagaError):  # one that does not fit is refused, if anything waits
            receipt = await self._desk.send_event("paid", self.saga_id, payload, event_id=event)
            self.receipts.setdefault(event, set()).add(receipt.disposition)
        self._notify()

    async def _answers(self, entry: int | None) -> None:
        """An answer to the wait, or to one of its events."""
        said = self.dice.choice(ANSWERS)
        with contextlib.suppress(EventRefused):  # it does not wait yet, or had its end, or another answer
            await self._desk.answer_wait(self.saga_id, WAIT, {"sum": said}, entry=entry)
            self.answered.setdefault(entry, set()).add(said)
        self._notify()

    async def _say(self, posting: Any) -> None:
        with contextlib.suppress(SagaError):  # it has ended, or no such question is open
            await posting
        self._notify()

    async def _set_clock(self, shift_ms: int) -> None:
        await self._desk.store._plain("SET", SHIFT, str(shift_ms))  # type: ignore[attr-defined]
        self._shift_ms = shift_ms

    async def _put_clock_on(self, seconds: int) -> None:
        await self._set_clock(self._shift_ms + seconds * 1000)
        for _, engine in self._engines:  # the next renewal would tell them
            clock = engine.supervisor.clock
            clock.set(clock.now_ms() + seconds * 1000)
        self._notify()

    def _notify(self) -> None:
        """What the next renewal of its lease tells a process: there are messages."""
        for _, engine in self._engines:
            if self._tells:
                engine.supervisor.notify(self.saga_id)

    def _die(self) -> None:
        at = self.dice.choice(("now", "append", "append", "call", "event_register", "event_over"))
        ahead, when = self.dice.choice((1, 1, 2)), self.dice.choice(("before", "after"))
        process, _ = self._engines[-1]
        if at == "now":
            process.dead = True
        else:
            process.arm(at, ahead, when)

    async def _take_over(self) -> None:
        """Another process continues the saga. The one before it may live, and is thought dead."""
        process = Process()
        engine = await self._stack.enter_async_context(_running(self.url, process, self.ledger))
        self._engines.append((process, engine))
        owner = (await self._desk.store.head(self.saga_id)).owner
        if owner:
            await self._desk.store.close_lease(owner)
        self._drive()

    async def _take_over_if_left(self, saga_id: str) -> None:
        """What a process began that has died since is continued by the desk: nobody else is there."""
        head = await self._desk.store.head(saga_id)
        engines = [self._desk, *(engine for process, engine in self._engines if not process.dead)]
        if head.status in t.SAGA_FINAL or head.owner in {engine.supervisor._owner() for engine in engines}:
            return
        if head.owner:
            await self._desk.store.close_lease(head.owner)
        self._desk.supervisor.resume(saga_id)

    def _drive(self) -> None:
        process, engine = self._engines[-1]
        if not process.dead:
            engine.supervisor.resume(self.saga_id, waits=not self.attended)

    # --- until it has ended --------------------------------------------------------------------------------------

    async def _state(self) -> State:
        return state_of(await read_records(self._desk.store, self.saga_id))

    async def _settle(self) -> None:
        """Until nothing moves it by itself, or its process is dead."""
        await eventually(self._rests, f"saga {self.saga_id} to rest: {self.told}")

    async def _rests(self) -> bool:
        if self._engines[-1][0].dead:
            return True
        head = await self._desk.store.head(self.saga_id)
        if head.status in t.SAGA_FINAL:
            return True
        state = await self._state()
        if head.messages or not state.only_waits():
            self._drive()
            return False
        return bool(state.pending or state.questions)

    async def _sent(self) -> dict[str, str]:
        """What the store says of each event that was sent."""
        return {event.id: event.disposition for event in await self._desk.events("paid", self.saga_id)}

    async def _is_awaited(self) -> bool:
        return await self._desk.store.event_store().first(Channel("paid", self.saga_id)) is not None

    async def _bring_to_an_end(self) -> None:
        for _ in range(40):
            if self._engines[-1][0].dead:
                await self._take_over()
            await self._settle()
            state = await self._state()
            if state.status in t.SAGA_FINAL:
                break
            if not self._engines[-1][0].dead:
                self.told.append("end: " + await self._next(state))
                self._drive()
        for look in range(_LOOKS):  # a sender or an owner that ended: workers look after what is held, or late
            if not {"held", *(["late"] if self.refunds else [])} & {*(await self._sent()).values()}:
                break
            if look < _MOVES:
                await self._put_clock_on(PATIENCE_S)  # what came for a wait is looked at again when that is due
            desk = self._desk
            events = Events(desk.store, desk.supervisor, desk._begin_late)
            await events.tell_again(range(desk.store.work().count))
            await asyncio.sleep(0.001 if look < _MOVES else 0.01)  # a saga of a late event needs a moment of its own
        for _ in range(_LOOKS):
            begun = (await self._desk.search(tags=[LATE_TAG])).sagas
            if len(begun) >= [*(await self._sent()).values()].count("handled"):
                break
            await asyncio.sleep(0.01)  # what began it says so first
        for late in begun:
            await self._take_over_if_left(late.saga_id)
            await self._desk.wait(late.saga_id)

    async def _next(self, state: State) -> str:
        """What a saga that rests waits for: its event or its time, an answer, or an operator who knows the truth."""
        for question in state.questions.values():
            step = state.plan.steps[question.step].key
            if question.kind == "ask":
                await self._happens(self.dice.choice(("answer", "time")))
                return "answer"
            found = self.ledger.find(idempotency_key(self.saga_id, step, question.direction, state.seed))
            word = "not-happened" if found is None else "happened"
            output = found.output if found is not None and question.direction == "forward" else None
            await self._say(self._desk.resolve(self.saga_id, step, word, output=output, by="ada", wait=False))
            return word
        await self._happens(self.dice.choice(("event", "time")))
        return "event or time"

    # --- the laws ------------------------------------------------------------------------------------------------

    async def _breaches(self) -> list[str]:
        body = (await self._desk.show(self.saga_id, full=True)).to_dict()
        history = await self._desk.history(self.saga_id)
        events = await self._sent()
        state = await self._state()
        self._ids = {answer_id(state, 1, entry): entry for entry in self.answered}
        found = [
            *self._ends(body),
            *self._late(events),
            *self._disposition(history, events),
            *self._people(history, body),
        ]
        found += [*self._payment(body, history), *self._ledger(body)]
        return [f"{sentence} (seed {self.saga_id}: {self.told})" for sentence in found]

    def _ends(self, body: Mapping[str, Any]) -> Iterator[str]:
        if body["status"] not in t.SAGA_FINAL:
            yield f"it has not ended: {body['status']}"
        elif body["questions"]:
            yield "it has ended with an open question"

    def _disposition(self, history: Sequence[Mapping[str, Any]], events: Mapping[str, str]) -> Iterator[str]:
        """One record ends the wait; the store, the senders and the journal agree on what became of each event."""
        ends = [
            each
            for each in history
            if each["k"] in _SETTLES and each["step"] == WAIT and each.get("direction", "forward") == "forward"
        ]
        turned = next((at for at, each in enumerate(history) if each["k"] in _TURNS), len(history))
        due = next((each["due_ms"] for each in history if each["k"] == "StepWaiting" and each["step"] == WAIT), None)
        if len(ends) > 1:
            yield f"its wait has {len(ends)} ends"
        for end in ends:
            if history.index(end) > turned:
                yield f"its wait ended by {end} after the saga had turned"
            if end.get("via") == "event" and (end["at"] >= due or not self._is_made_of(history, end)):
                yield f"its wait, due at {due}, ended by {end}"
            if end.get("via") != "event" and end["at"] < due:
                yield f"its wait, due at {due}, was over at {end['at']}"
        winner = "event" if ends and ends[0].get("via") == "event" else "time" if ends else "cancel"
        if self.first and winner != self.winner:
            yield f"{self.first} happened in this order, and its wait ended by {winner}"
        taken = {event for end in ends if end.get("via") == "event" for event in self._took(history, end)}
        if taken != {event for event, disposition in events.items() if disposition == "taken"}:
            yield f"its wait took {taken}, the store says {events}"
        for event, disposition in events.items():
            if disposition == "held":
                yield f"the event {event} is held for a saga that has ended"
            if {"taken", "late", "refused"} & self.receipts.get(event, set()) - {disposition}:
                yield f"the event {event} is {disposition}, its sender was told {self.receipts[event]}"

    def _late(self, events: Mapping[str, str]) -> Iterator[str]:
        """What was too late is refunded, once, or listed; an answer that was accepted is neither lost nor two."""
        for entry, said in self.answered.items():
            became = {events.get(event) for event, of in self._ids.items() if of == entry}
            if len(said) > 1 or not became <= {"taken", "handled" if self.refunds else "late"}:
                yield f"to {entry} the answers {said} were accepted, and are {became}"
        lines = [line for line in self.ledger.lines(what="applied") if line.saga_id != self.saga_id]
        refunded = sorted(line.output["sum"] for line in lines)
        late = sorted(self._said(event) for event, became in events.items() if became in ("late", "handled"))
        if refunded != ([sum_ for sum_ in late if sum_] if self.refunds else []):
            yield f"too late were {late}, and {refunded} was refunded"

    def _said(self, event: str) -> int:
        """What an event brought; 0: it fits no wait, and an operator is asked about it; -1: an answer of no wait."""
        if event.startswith("answer-"):
            return min(self.answered[self._ids[event]]) if event in self._ids else -1
        return 0 if event == "wrong" else int(event[1:])

    def _is_made_of(self, history: Sequence[Mapping[str, Any]], end: Mapping[str, Any]) -> bool:
        """Whether the output of the wait is what its event brought."""
        return bool(end["output"] == {"sum": self._said(end["source"])})

    def _took(self, history: Sequence[Mapping[str, Any]], end: Mapping[str, Any]) -> list[str]:
        """The events that ended the wait."""
        return [end["source"]]

    def _sum(self, output: Any) -> Any:
        """What a wait with this output was paid."""
        return output["sum"]

    def _item(self, output: Any) -> Any:
        """What the call after a wait with this output books."""
        return self._sum(output)

    def _people(self, history: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> Iterator[str]:
        """The question has one answer: the first, or what its expiry says."""
        ends = [
            each for each in history if each["k"] in ("QuestionResolved", "ApprovalExpired") and each["step"] == "4"
        ]
        if len(ends) > 1:
            yield f"its question has {len(ends)} ends"
        for end in ends[:1]:
            output = body["steps"][3]["output"] or {}
            if end["k"] == "QuestionResolved" and (end["decision"], end["by"]) != (output["answer"], output["by"]):
                yield f"its question was answered by {end}, and its output is {output}"

    def _payment(self, body: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """What was paid is refunded if and only if the saga is undone, once; what was not paid is not."""
        paid = [self._sum(each["output"]) for each in history if each.get("via") == "event"]
        refunded = [line.output["sum"] for line in self._lines("applied") if line.tool == "refund"]
        wanted = paid if body["status"] == t.COMPENSATED else []
        if refunded != wanted:
            yield f"it is {body['status']}, was paid {paid} and refunded {refunded}"
        booked = [line.output["item"] for line in self._lines("applied") if (line.step_id, line.tool) == _PAID]
        first = body["steps"][1]["output"]
        if len(booked) > 1 or (booked and booked != [self._item(first) if first else -1]):
            yield f"its wait gave {first}, and it booked {booked}"

    def _ledger(self, body: Mapping[str, Any]) -> Iterator[str]:
        """The report agrees with the ledger. What the wait stands for was done by the sender, not by a call."""
        lines = [line for line in self._lines() if line.step_id != WAIT]
        effects = Counter((line.step_id, line.direction) for line in lines if line.what == "applied")
        for place, times in effects.items():
            if times > 1:
                yield f"{place} happened {times} times"
        steps = [step for step in body["steps"] if str(step["step_id"]) != WAIT]
        yield from _Lines(lines).compare({**body, "steps": steps})

    def _lines(self, what: Any = None) -> list[Line]:
        """Those of the saga itself."""
        return [line for line in self.ledger.lines(what=what) if line.saga_id == self.saga_id]


class _Lines(OutsideLedger):
    """Some lines of a ledger."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def lines(self, saga_id: str | None = None, *, what: Any = None) -> Sequence[Line]:
        return [line for line in self._lines if what is None or line.what == what]


_SETTLES: Final = frozenset({"StepSucceeded", "StepFailed"})
_TURNS: Final = frozenset({"CancelRequested", "CompensationStarted"})
_PAID: Final = ("3", "book")
