"""The chain as a whole: its order, the policy at its head, probes, last good results and statistics."""

import asyncio

import pytest

from saga_engine.core.effects import Ask, Blocked, Done, ErrorInfo, NotDone, Unknown
from saga_engine.errors import LeaseLost, OutcomeUnknown, StoreUnavailable, ToolError, ToolMissing
from saga_engine.plan.tool_spec import BreakerPolicy
from saga_engine.tools.decorator import tool
from saga_engine.tools.registry import ToolRegistry
from tests.guards.world import Stage, guard, poll, step, undoing

EVERYTHING = {
    "resource": "one",
    "max_concurrency": 1,
    "rate": "1000/s",
    "breaker": BreakerPolicy(),
    "dedupe_ttl_s": 3600.0,
}


class Policy:
    """A gate that gives one verdict and writes down what it is asked."""

    def __init__(self, verdict=None, names=("act",), error=None):
        self.verdict, self.names, self.error = verdict, names, error
        self.authorized, self.settled_with = [], []

    def concerns(self, name):
        return name in self.names

    async def authorize(self, it, params, call):
        self.authorized.append((it.name, dict(params), call.direction))
        if self.error is not None:
            raise self.error
        return self.verdict

    async def settled(self, it, call, outcome):
        self.settled_with.append(outcome)


async def test_a_tool_without_guards_is_called_as_it_is(watched):
    """Law: it asks the store for nothing, not even at the end."""

    @tool
    async def act(n: int):
        return n

    tools = guard(watched, act, gate=Policy(names=()))
    assert await tools.call("act", {"n": 1}, step()) == Done(1)
    assert await tools.call("act", {"n": 1}, undoing(tool="act")) == Done(1)
    await tools.close()
    assert not watched.asked


async def test_the_order_of_the_guards(watched):
    """Policy, de-duplication, resource, breaker, bulkhead, rate, call; then what was taken is given back."""

    @tool(**EVERYTHING)
    async def act():
        watched.asked.append(("the call", ()))

    gate = Policy()
    tools = guard(watched, act, gate=gate)
    await tools.call("act", {}, step())
    await tools.close()
    shown = [verb for verb in watched.verbs() if verb != "count"]
    assert shown == ["claim", "take", "breakers", "reserve", "the call", "remember", "give"]
    assert (len(gate.authorized), gate.settled_with) == (1, [Done(None)])


@pytest.mark.parametrize(
    "verdict", [Blocked(ErrorInfo("policy_denied", "no"), "rule"), Ask(ErrorInfo("a", ""), "d", 1.0)]
)
@pytest.mark.parametrize("direction", ["forward", "compensate"])
async def test_the_policy_comes_before_all_else_in_both_directions(watched, verdict, direction):
    """Law: its verdict is returned as it is, and no other guard is touched."""

    @tool(**EVERYTHING)
    async def act(n: int):
        raise AssertionError

    tools = guard(watched, act, gate=Policy(verdict))
    assert await tools.call("act", {"n": 1}, step(direction=direction)) == verdict
    assert not watched.asked
    counted = (await tools.stats())["act"]
    assert (counted["calls"], counted["blocked"] + counted["asked"]) == (1, 1)
    await tools.close()


async def test_a_policy_that_fails_allows_nothing(store):
    """Law: fail safe. A store that is away is 'try again'; a defect of the policy blocks the call."""

    @tool
    async def act():
        raise AssertionError

    outcome = await guard(store, act, gate=Policy(error=RuntimeError("defect"))).call("act", {}, step())
    assert isinstance(outcome, Blocked)
    assert outcome.error.error_code == "policy_failed"
    outcome = await guard(store, act, gate=Policy(error=StoreUnavailable("away"))).call("act", {}, step())
    assert isinstance(outcome, NotDone)
    assert (outcome.error.error_code, outcome.retryable) == ("store_unavailable", True)


async def test_every_guard_gives_back_what_it_took(store):
    """Law: after any ending of a call, the next one passes all guards."""
    stage = Stage()

    @tool(**EVERYTHING | {"breaker": False})
    async def act(n: int, how: str):
        if how == "raise":
            raise ValueError
        if how == "hang":
            await stage.enter(n)
        return n

    tools = guard(store, act, gate=Policy())
    for number, how in enumerate(["raise", "hang", "cancel", "raise", "fine"]):
        params = {"n": number, "how": "hang" if how == "cancel" else how}
        call = step("s1", number, timeout_s=0.001 if how == "hang" else 60.0)
        task = asyncio.create_task(tools.call("act", params, call))
        if how == "cancel":
            await stage.until(number)
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert task.result() == Done(4)
    await tools.close()


@pytest.mark.parametrize("option", [*EVERYTHING, "policy", "step"])
async def test_who_was_made_to_wait_asks_again_whether_it_may_begin(store, option):
    """Law: a process that lost its lease while a guard asked or waited begins no call, and holds nothing afterwards."""
    called = []

    @tool(**{option: EVERYTHING[option]} if option in EVERYTHING else {})
    async def act():
        called.append(1)

    def refuse():
        raise LeaseLost("gone")

    tools = guard(store, act, gate=Policy() if option == "policy" else None)
    resources = ("desk",) if option == "step" else ()
    with pytest.raises(LeaseLost):
        await tools.call("act", {}, step(permit=refuse, resources=resources))
    assert not called
    assert await tools.call("act", {}, step(attempt=2, permit=lambda: None, resources=resources)) == Done(None)
    await tools.close()


async def test_probes_pass_no_guard(watched):
    """Law: neither the probe's own guards nor those of the tool keep a probe back."""

    @tool(effect="read", resource="one", rate="1/d", breaker=True, max_concurrency=1)
    async def ask():
        return 7

    @tool(probe=ask, resource="one", rate="1/d", breaker=True)
    async def act():
        return 1

    gate = Policy(Blocked(ErrorInfo("no", "")), names=("act", "ask"))
    tools = guard(watched, act, gate=gate)
    for _ in range(2):
        assert await tools.probe("act", {}, step(direction="probe")) == Done(7)
    assert not watched.asked
    assert not gate.authorized
    await tools.close()


async def test_the_catalog_is_the_registry_s(store):
    """Names and declarations are those of the registry; a name that nobody has is an error with a hint."""

    @tool
    async def act():
        return 1

    registry = ToolRegistry(act)
    tools = guard(store, registry)
    assert tools.names() == ["act"]
    assert tools.spec("act") is registry.spec("act")
    assert tools.spec("none") is None
    for missing in (tools.call, tools.probe):
        with pytest.raises(ToolMissing, match="acd"):
            await missing("acd", {}, step())


async def test_a_tool_that_is_registered_later_is_called_with_its_guards(watched):
    """What is prepared once follows the registry."""

    @tool
    async def one():
        return 1

    @tool(resource="r")
    async def two():
        return 2

    registry = ToolRegistry(one)
    tools = guard(watched, registry)
    assert await tools.call("one", {}, step()) == Done(1)
    registry.add(two)
    assert await tools.call("two", {}, step()) == Done(2)
    assert watched.verbs().count("take") == 1

    async def three():
        return 3

    registry.add(three)
    assert await tools.call("three", {}, step()) == Done(3)
    registry.add(tool(three, resource="r"))  # the declaration takes the place of the plain function
    assert await tools.call("three", {}, step()) == Done(3)
    assert watched.verbs().count("take") == 2
    await tools.close()


# --- last good results -----------------------------------------------------------------------------------------------


async def test_the_last_good_result_of_a_read_stands_in_with_its_age(store):
    """Requirement B5: kept by params; what is too old, or was never good, is not."""
    price = iter([{"price": 1}, {"price": 2}])

    @tool(effect="read", last_good_s=3600)
    async def look(item: str):
        if item == "bad":
            raise ToolError("no")
        return next(price)

    tools = guard(store, look)
    assert await tools.call("look", {"item": "x"}, step()) == Done({"price": 1})
    assert await tools.call("look", {"item": "x"}, step()) == Done({"price": 2})
    await tools.call("look", {"item": "bad"}, step())
    found = None

    async def kept():
        nonlocal found
        found = await tools.last_good("look", {"item": "x"}, 60.0, step("s9"))
        return isinstance(found, Done) and found.output == {"price": 2}

    await poll(kept)
    assert (found.via, found.age_ms >= 0) == ("cache", True)
    for outcome in (
        await tools.last_good("look", {"item": "bad"}, 60.0, step()),
        await tools.last_good("look", {"item": "x"}, -1.0, step()),
    ):
        assert isinstance(outcome, NotDone)
        assert (outcome.error.error_code, outcome.retryable) == ("no_last_good", False)
    await tools.close()


async def test_keeping_a_result_never_fails_a_call(watched, caplog):
    """Best effort: a store that is away costs the copy, no more."""

    @tool(effect="read", last_good_s=3600)
    async def look():
        return 1

    tools = guard(watched, look)
    watched.broken["keep_good"] = StoreUnavailable("away")
    assert await tools.call("look", {}, step()) == Done(1)
    await tools.close()
    assert "away" in caplog.text
    watched.broken = {"good": StoreUnavailable("away")}
    outcome = await tools.last_good("look", {}, 60.0, step())
    assert isinstance(outcome, NotDone)
    assert outcome.error.error_code == "store_unavailable"


# --- statistics ------------------------------------------------------------------------------------------------------


async def test_statistics_are_summed_over_processes(store):
    """What `saga tools --stats` shows: outcomes, waits and the breaker, of guarded tools only."""

    @tool(breaker=BreakerPolicy(failures=2, open_s=600.0), max_concurrency=1)
    async def act(how: str):
        if how == "unknown":
            raise OutcomeUnknown("")
        if how == "no":
            raise ToolError("no")
        return how

    @tool
    async def plain():
        return 1

    here, there = guard(store, act, plain), guard(store, act, plain)
    for tools in (here, there):
        for how in ("fine", "no", "unknown"):
            await tools.call("act", {"how": how}, step())
        await tools.call("plain", {}, step())
    assert isinstance(await there.call("act", {"how": "unknown"}, step()), Unknown)
    assert isinstance(await there.call("act", {"how": "fine"}, step()), NotDone)
    await here.close()
    stats = await there.stats()
    await there.close()
    assert stats.keys() == {"act"}
    breaker = stats["act"].pop("breaker")
    assert breaker == {"state": "open", "failures": 2, "open_s": breaker["open_s"]}
    assert 0 < breaker["open_s"] <= 600
    waited = stats["act"].pop("waited_ms")
    assert waited >= 0
    assert stats["act"] == {
        "calls": 8,
        "done": 2,
        "not_done": 3,
        "unknown": 3,
        "rejected": 1,
        "blocked": 0,
        "asked": 0,
        "deduplicated": 0,
    }


async def test_statistics_that_cannot_be_written_hold_nothing_up(watched, caplog):
    """Nothing depends on them: a store that is away is logged, the calls are done."""

    @tool(max_concurrency=1)
    async def act():
        return 1

    watched.broken["count"] = StoreUnavailable("away")
    tools = guard(watched, act)
    assert await tools.call("act", {}, step()) == Done(1)
    await tools.close()
    assert "away" in caplog.text


async def test_a_repeat_is_not_sent_when_its_key_may_be_forgotten(watched):
    """Past ``key_until_ms`` a call is not made, whatever made it wait; earlier attempts stay as they were."""
    made = []

    @tool(max_concurrency=1)
    async def act(n: int):
        made.append(n)

    tools = guard(watched, act)
    outcome = await tools.call("act", {"n": 1}, step("s1")._replace(key_until_ms=1))
    assert (outcome.error.error_code, outcome.retryable, outcome.definite) == ("key_expired", True, False)
    assert made == []
    await tools.close()
