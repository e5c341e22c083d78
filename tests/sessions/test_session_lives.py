"""Sessions over several lives: random agents, crashes anywhere, agents that do otherwise than before. A model beside them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saga_engine import Coordinator, RetryPolicy, Session, ToolContext, ToolError, tool
from saga_engine.core.interpret import Advice
from saga_engine.core.records import Written
from saga_engine.errors import CallFailed, NeedsPerson, SessionDiverged, SessionEnded, StoreUnavailable
from saga_engine.plan.limits import MAX_CRASHES
from saga_engine.ports import CompensationRequest
from saga_engine.stores import open_store
from saga_engine.testing.faults import CALL, Faults, FaultyStore
from tests import tiers

FAST = RetryPolicy(max_attempts=4, base_s=0.001, max_s=0.001)
NAMES = itertools.count()


class World:
    """What stands outside, by key; and what happened, in order."""

    done: dict[str, Any]
    events: list[str]
    faults: Faults

    @classmethod
    def reset(cls) -> None:
        cls.done, cls.events, cls.faults = {}, [], Faults()

    @classmethod
    def do(cls, key: str, event: str, output: Any) -> Any:
        with cls.faults.at(CALL):
            if key not in cls.done:
                cls.done[key] = output
                cls.events.append(event)
            return cls.done[key]


@tool(undo="unbook", retry=FAST)
async def book(what: str, idempotency_key: str, ctx: ToolContext) -> dict:
    if what.startswith("no"):
        raise ToolError("no", error_code="no")
    await asyncio.sleep(0)
    return World.do(idempotency_key, what, {"what": what})


@tool(retry=FAST)
async def unbook(what: str, idempotency_key: str) -> dict:
    for _ in range(10 * int("".join(filter(str.isdecimal, what)) or 0)):
        await asyncio.sleep(0)  # what came later takes longer: undos that ran side by side would end in the wrong order
    return World.do(idempotency_key, f"un{what}", {})


@tool(effect="read", retry=FAST)
async def look(what: str) -> dict:
    return {"seen": what}


TOOLS = [book, unbook, look]


# --- agents --------------------------------------------------------------------------------------------------------

Op = tuple[str, Any]
CALLS = st.sampled_from(["a", "b", "no"])
OPS: st.SearchStrategy[Op] = st.one_of(
    st.tuples(st.just("call"), CALLS),
    st.tuples(st.just("side"), st.lists(CALLS, min_size=2, max_size=3)),
    st.tuples(st.just("look"), st.just("sky")),
    st.tuples(st.just("point"), st.none()),
    st.tuples(st.just("back"), st.integers(0, 3)),
)
SCRIPTS = st.lists(OPS, max_size=9)


async def play(s: Session, script: Sequence[Op]) -> None:
    """An agent that follows its script; each call says at which place it stands in it."""
    points, made = [s.savepoint()], 0
    for verb, what in script:
        if verb == "point":
            points.append(s.savepoint())
        elif verb == "back":
            await s.rollback(points[what % len(points)])
        elif verb == "look":
            made += 1
            assert await s.call(look, what=f"{what}{made}") == {"seen": f"{what}{made}"}
        else:
            names = [f"{name}{made + index}" for index, name in enumerate([what] if verb == "call" else what, 1)]
            made += len(names)
            found = await asyncio.gather(*(s.call(book, what=name) for name in names), return_exceptions=True)
            for name, result in zip(names, found, strict=True):
                if isinstance(result, BaseException) and not isinstance(result, CallFailed):
                    raise result
                assert name.startswith("no") == isinstance(result, CallFailed), (name, result)
                assert isinstance(result, CallFailed) or result == {"what": name}


@dataclass
class Made:
    """One call in the model."""

    what: str
    group: int
    undone: bool = False

    @property
    def stands(self) -> bool:
        return not self.undone and not self.what.startswith(("no", "sky"))


@dataclass
class Model:
    """What a session does, said once more without an engine: a list of calls and of rollbacks."""

    made: list[Made] = field(default_factory=list)
    log: list[tuple[str, Any]] = field(default_factory=list)  # what is recorded: calls, and which of them were undone
    events: list[list[str]] = field(default_factory=list)  # in this order; those of one list in any
    groups: Iterator[int] = field(default_factory=itertools.count)

    def call(self, names: Sequence[str]) -> None:
        group = next(self.groups)
        calls = [Made(name, group) for name in names]
        self.made += calls
        self.log += [("call", name) for name in names]
        self.events.append([call.what for call in calls if call.stands])

    def back(self, to: int) -> None:
        standing = [index for index in range(to, len(self.made)) if self.made[index].stands]
        if standing:
            self.log.append(("back", frozenset(standing)))
        for _, some in itertools.groupby(reversed(standing), lambda index: self.made[index].group):
            listed = list(some)
            self.events.append([f"un{self.made[index].what}" for index in listed])
            for index in listed:
                self.made[index].undone = True

    def play(self, script: Sequence[Op]) -> None:
        points, made = [len(self.made)], 0
        for verb, what in script:
            if verb == "point":
                points.append(len(self.made))
            elif verb == "back":
                self.back(points[what % len(points)])
            else:
                names = [f"{name}{made + index}" for index, name in enumerate(what if verb == "side" else [what], 1)]
                made += len(names)
                self.call(names)

    def agrees(self, events: Sequence[str]) -> bool:
        """Whether this is what happened, in this order."""
        rest = list(events)
        for group in self.events:
            if sorted(rest[: len(group)]) != sorted(group):
                return False
            del rest[: len(group)]
        return not rest


class EndedError(Exception):
    """The agent's own error."""


async def live(url: str, script: Sequence[Op], end: str, fault: str = "", **options: Any) -> None:
    """One life of an agent: ``end`` is well, ill, or gone (without a word)."""
    World.faults = Faults(fault)
    store = FaultyStore(open_store(url), World.faults)
    async with Coordinator.open(store, TOOLS) as engine:
        manager = engine.session("it", **options)
        s = await manager.__aenter__()
        try:
            await play(s, script)
            if end == "ill":
                raise EndedError
        except BaseException as error:
            if not await manager.__aexit__(type(error), error, error.__traceback__):
                raise
        if end == "gone":
            s.link.leave()
            await manager.gen.aclose()  # type: ignore[attr-defined]
        else:
            await manager.__aexit__(None, None, None)


async def body(url: str) -> dict[str, Any]:
    async with Coordinator.open(url, TOOLS) as engine:
        return (await engine.show("it")).body


FAULTS = st.builds(
    "{}:{}:{}:raise".format,
    st.sampled_from(["append", "append", CALL]),
    st.integers(1, 14),
    st.sampled_from(["before", "after"]),
)
QUICK = settings(max_examples=tiers.examples(80), deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(script=SCRIPTS, faults=st.lists(FAULTS, max_size=MAX_CRASHES - 1), end=st.sampled_from(["well", "ill"]))
def test_whatever_dies_when_the_outside_is_as_if_nothing_had(script: list[Op], faults: list[str], end: str) -> None:
    """However often an agent dies and comes back, each effect happens once, in order, and is undone once, in reverse.

    An agent that dies ``MAX_CRASHES`` times in a row during one call is another law's: an operator is asked.
    """
    World.reset()
    model = Model()
    model.play(script)
    if end == "ill":
        model.back(0)
    url = f"memory://lives-{next(NAMES)}"

    async def lives() -> None:
        for fault in [*faults, ""]:
            try:
                await live(url, script, end, fault)
            except StoreUnavailable:
                continue
            except (EndedError, SessionEnded):  # (the end itself may be durable, and the agent dead)
                pass
            return

    asyncio.run(lives())
    assert model.agrees(World.events), (World.events, model.events)
    shown = asyncio.run(body(url))
    assert shown["status"] == ("COMPLETED" if end == "well" else "COMPENSATED")
    assert shown["report"]["clean"]


def test_the_model_can_disagree() -> None:
    """The comparison above is one."""
    model = Model()
    model.play([("call", "a"), ("side", ["b", "a"]), ("back", 0)])
    assert model.agrees(["a1", "a3", "b2", "unb2", "una3", "una1"])
    assert not model.agrees(["a1", "a3", "b2", "una1", "una3", "unb2"])
    assert not model.agrees(["a1", "a3", "b2", "unb2", "una3"])
    assert not model.agrees(["a1", "a1", "a3", "b2", "unb2", "una3", "una1"])


# --- agents that do otherwise --------------------------------------------------------------------------------------


def diverges(recorded: Model, script: Sequence[Op]) -> bool:
    """Whether an agent with this script goes another way than what is recorded, said by walking the list beside it."""
    log = list(recorded.log)
    again = Model()
    points, made = [0], 0
    for verb, what in script:
        if verb == "point":
            points.append(len(again.made))
        elif verb == "back":
            to = points[what % len(points)]
            wanted = frozenset(index for index in range(to, len(again.made)) if again.made[index].stands)
            # Several rollbacks at one place are one, if one agent undoes in one go what the other did in two.
            while wanted and log and log[0][0] == "back" and log[0][1] <= wanted:
                wanted -= log.pop(0)[1]
            if wanted and log:
                return True
            again.back(to)
        else:
            names = [f"{name}{made + index}" for index, name in enumerate(what if verb == "side" else [what], 1)]
            made += len(names)
            for name in names:
                if log and log[0] != ("call", name):
                    return True
                if log:
                    log.pop(0)
            again.call(names)
    return bool(log)


@st.composite
def two_scripts(draw: st.DrawFn) -> tuple[list[Op], list[Op]]:
    """Two agents that begin alike, mostly."""
    first = draw(SCRIPTS)
    shared = draw(st.integers(0, len(first)))
    how = draw(st.sampled_from(["another end", "left out", "put in"]))
    if how == "left out":
        return first, [*first[:shared], *first[shared + 1 :]]
    if how == "put in":
        return first, [*first[:shared], draw(OPS), *first[shared:]]
    return first, [*first[:shared], *draw(SCRIPTS)]


@QUICK
@given(scripts=two_scripts(), end=st.sampled_from(["well", "ill"]))
def test_a_strict_session_tells_of_every_divergence_and_changes_nothing(
    scripts: tuple[list[Op], list[Op]], end: str
) -> None:
    """It is told of just those; the outside and the journal are then as the first life left them."""
    World.reset()
    first, second = scripts
    model = Model()
    model.play(first)
    expected = diverges(model, second)
    url = f"memory://strict-{next(NAMES)}"
    asyncio.run(live(url, first, "gone"))
    before, steps = list(World.events), asyncio.run(body(url))["steps"]
    try:
        asyncio.run(live(url, second, end))
    except SessionDiverged:
        assert expected
        assert World.events == before
        assert asyncio.run(body(url))["steps"] == steps
        assert asyncio.run(body(url))["status"] in ("RUNNING", "PENDING")
    except EndedError:
        # An agent that fails early is undone, whatever the other one did after that.
        assert asyncio.run(body(url))["status"] == "COMPENSATED"
        assert not expected or diverges(model, [*second, ("call", "other")])
    else:
        assert not expected
        whole = Model()
        whole.play(second)
        assert asyncio.run(body(url))["status"] == "COMPLETED"
        assert whole.agrees(World.events)


@QUICK
@given(scripts=two_scripts())
def test_a_session_that_rolls_back_on_divergence_leaves_nothing(scripts: tuple[list[Op], list[Op]]) -> None:
    """All that the first life did is undone in reverse, once, and nothing of the second happens."""
    World.reset()
    first, second = scripts
    model = Model()
    model.play(first)
    expected = diverges(model, second)
    url = f"memory://rollback-{next(NAMES)}"
    asyncio.run(live(url, first, "gone"))
    try:
        asyncio.run(live(url, second, "well", on_divergence="rollback"))
    except SessionDiverged:
        assert expected
        model.back(0)
        assert model.agrees(World.events)
        assert asyncio.run(body(url))["status"] == "COMPENSATED"
    else:
        assert not expected


@QUICK
@given(scripts=two_scripts(), end=st.sampled_from(["well", "ill"]))
def test_a_session_that_goes_on_after_a_divergence_loses_nothing(scripts: tuple[list[Op], list[Op]], end: str) -> None:
    """It ends; nothing is undone twice, and if it fails nothing is left, what only the first life did included."""
    World.reset()
    first, second = scripts
    url = f"memory://continue-{next(NAMES)}"
    asyncio.run(live(url, first, "gone"))
    try:
        asyncio.run(live(url, second, end, on_divergence="continue"))
    except EndedError:
        assert end == "ill"
    shown = asyncio.run(body(url))
    assert shown["status"] == ("COMPLETED" if end == "well" else "COMPENSATED")
    stack: list[str] = []
    for event in World.events:
        if event.startswith("un"):
            assert event.removeprefix("un") in stack, World.events
            stack.remove(event.removeprefix("un"))
        else:
            stack.append(event)
    assert end == "well" or stack == []


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (
            [("call", "a"), ("back", 0), ("call", "b")],
            [("call", "a"), ("call", "b")],
            "rolled back after call 1 before",
        ),
        ([("call", "a"), ("back", 0)], [("call", "a")], "made a rollback before"),
        (
            [("call", "a"), ("call", "b")],
            [("call", "a"), ("back", 0), ("call", "b")],
            "rolls back to call 0 after call 1",
        ),
        ([("call", "a"), ("call", "b")], [("call", "a")], "made 2 calls before, and now ends after call 1"),
        ([("call", "a"), ("call", "b")], [("call", "b"), ("call", "b")], "call 1: the params of book were"),
        ([("call", "a")], [("look", "a")], "call 1: it called book before, and now look"),
    ],
)
def test_a_divergence_is_told_in_words(first: list[Op], second: list[Op], why: str) -> None:
    """The message says at which call the agent went another way, and how."""
    World.reset()
    url = f"memory://words-{next(NAMES)}"
    asyncio.run(live(url, first, "gone"))
    with pytest.raises(SessionDiverged, match=why):
        asyncio.run(live(url, second, "well"))


# --- single cases --------------------------------------------------------------------------------------------------


async def test_an_undo_comes_after_a_hundred_failures() -> None:
    """What failed in between does not make an agent forget what came first."""
    World.reset()
    script: list[Op] = [("call", "a"), *[("call", "no")] * 150, ("call", "b")]
    with pytest.raises(EndedError):
        await live(f"memory://lives-{next(NAMES)}", script, "ill")
    assert World.events == ["a1", "b152", "unb152", "una1"]


async def test_a_slow_call_is_not_forgotten() -> None:
    """A call that is under way while many others come and go is undone after what came after it."""
    World.reset()
    gate = asyncio.Event()

    @tool(undo="unbook", retry=FAST)
    async def slow(what: str, idempotency_key: str) -> dict:
        await gate.wait()
        return World.do(idempotency_key, what, {"what": what})

    async with Coordinator.open("memory://", [*TOOLS, slow]) as engine:
        with pytest.raises(EndedError):
            async with engine.session("it") as s:
                waiting = asyncio.create_task(s.call(slow, what="slow"))
                for number in range(150):
                    await s.call(look, what=f"{number}")
                gate.set()
                await waiting
                await s.call(book, what="last")
                raise EndedError
    assert World.events == ["slow", "last", "unlast", "unslow"]


async def test_a_call_that_is_not_waited_for_is_undone_all_the_same() -> None:
    """Cancelling the wait for a call does not cancel the call: a rollback to before it finds it."""
    World.reset()
    gate, begun = asyncio.Event(), asyncio.Event()

    @tool(undo="unbook", retry=FAST)
    async def slow(what: str, idempotency_key: str) -> dict:
        begun.set()
        await gate.wait()
        return World.do(idempotency_key, what, {"what": what})

    async with Coordinator.open("memory://", [*TOOLS, slow]) as engine, engine.session("it") as s:
        point = s.savepoint()
        waiting = asyncio.create_task(s.call(slow, what="slow"))
        await begun.wait()
        waiting.cancel()
        with pytest.raises(RuntimeError, match="call 1 is in flight"):
            await s.rollback(point)
        gate.set()
        await s.call(look, what="sky")
        await s.rollback(point)
    assert World.events == ["slow", "unslow"]


async def test_a_group_of_errors_that_say_nothing_about_the_work_leaves_a_session_open() -> None:
    """A task group wraps what its tasks raise; a question for a person in it undoes nothing."""
    World.reset()

    @tool(undo="unbook", retry=RetryPolicy(max_attempts=1))
    async def lost(what: str) -> dict:
        raise ConnectionResetError("the line is dead")

    async with Coordinator.open("memory://", [*TOOLS, lost]) as engine:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with engine.session("it") as s:
                await s.call(book, what="a")
                async with asyncio.TaskGroup() as group:
                    group.create_task(s.call(lost, what="b"))
        assert caught.group_contains(NeedsPerson)
        assert (await engine.show("it")).status == "ESCALATED"
    assert World.events == ["a"]


async def test_a_cancel_right_after_the_agent_is_gone_is_heard() -> None:
    """The process is just giving the session up; whoever cancels it then must not be told that all is well."""
    World.reset()
    async with Coordinator.open("memory://", TOOLS) as engine:
        manager = engine.session("it")
        s = await manager.__aenter__()
        await s.call(book, what="a")
        s.link.leave()
        await manager.gen.aclose()  # type: ignore[attr-defined]
        assert (await engine.cancel("it")).status == "COMPENSATED"
    assert World.events == ["a", "una"]


async def test_a_different_undo_is_a_divergence() -> None:
    """The params of the undo are part of the call: another life with other ones would not be undone as it thinks."""
    World.reset()
    url = f"memory://undo-{next(NAMES)}"
    async with Coordinator.open(url, TOOLS) as engine:
        manager = engine.session("it")
        s = await manager.__aenter__()
        await s.call(book, {"what": "a"}, undo=("unbook", {"what": "$output.what"}))
        s.link.leave()
        await manager.gen.aclose()  # type: ignore[attr-defined]
    async with Coordinator.open(url, TOOLS) as engine:
        with pytest.raises(SessionDiverged, match="call 1"):
            async with engine.session("it") as s:
                await s.call(book, {"what": "a"}, undo=("unbook", {"what": "b"}))


class Apologist:
    """An advisor that always knows a way to make up for what stands."""

    async def advise(self, request: Any, check: Any) -> Advice:
        assert isinstance(request, CompensationRequest), "a session is not replanned"
        steps = [{"step_id": "sorry", "tool": "apologise", "params": {}}]
        assert not check(steps)
        return Advice(steps, Written("scripted:model", "p@1", "abc", 1, 1, 1))


async def test_a_session_that_is_stuck_is_settled_with_an_advisor_too() -> None:
    """A model may be at hand that makes up for undos that fail; a session must come to an end, or to a person, then."""
    World.reset()

    @tool(retry=FAST, semantic="auto")
    async def tweet(text: str) -> dict:
        World.events.append("tweet")
        return {}

    @tool(retry=FAST, semantic="auto", compensates=True)
    async def apologise() -> dict:
        World.events.append("sorry")
        return {}

    async with Coordinator.open("memory://", [*TOOLS, tweet, apologise], advisor=Apologist()) as engine:
        with pytest.raises(EndedError):
            async with engine.session("it") as s:
                await s.call(book, what="a")
                await s.call(tweet, text="x")
                raise EndedError
        outcome = await engine.show("it")
        assert outcome.status in ("COMPENSATED", "ESCALATED")
        if outcome.status == "ESCALATED":
            assert (await engine.resolve("it", 2, "accept")).ended
    assert World.events[:2] == ["a", "tweet"]
    assert World.events[-1] == "una"
