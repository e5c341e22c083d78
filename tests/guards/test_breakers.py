"""Circuit breakers through the chain: what opens them, who passes, and that their bookkeeping fails no call."""

import asyncio
import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saga_engine.core.effects import Done, ErrorInfo, NotDone, Unknown
from saga_engine.errors import OutcomeUnknown, StoreUnavailable, ToolError
from saga_engine.guards.breakers import failed
from saga_engine.plan.tool_spec import BreakerPolicy
from saga_engine.stores import open_store
from saga_engine.tools.decorator import tool
from tests.guards.world import Stage, guard, poll, step

LONG_S = 600.0


def breaking(policy, called=None, **options):
    """A tool that fails in the way that it is told."""

    @tool(breaker=policy, **options)
    async def act(how: str):
        if called is not None:
            called.append(how)
        if how == "unknown":
            raise OutcomeUnknown("who knows")
        if how == "retryable":
            raise ToolError("not now", retryable=True)
        if how == "defect":
            raise RuntimeError
        if how == "no":
            raise ToolError("never")
        return how

    return act


def is_open(outcome):
    return isinstance(outcome, NotDone) and outcome.error.error_code == "breaker_open"


@pytest.mark.parametrize(
    ("outcome", "bad"),
    [
        (Done(1), False),
        (Unknown(ErrorInfo("e", "")), True),
        (NotDone(ErrorInfo("e", ""), retryable=True, definite=True), True),
        (NotDone(ErrorInfo("e", ""), retryable=True), True),
        (NotDone(ErrorInfo("e", "")), True),
        (NotDone(ErrorInfo("e", ""), definite=True), False),
        (NotDone(ErrorInfo("e", ""), retryable=False, definite=True), False),
        (NotDone(ErrorInfo("params_invalid", ""), retryable=False), False),
    ],
)
def test_what_counts_as_a_failure(outcome, bad):
    """Unknown counts, so does what may pass and what nobody foresaw; a final 'no' is an answer."""
    assert failed(outcome) is bad


async def test_who_comes_a_moment_too_early_keeps_the_place(store):
    """The way to the store and back moves the end of the rest a little: that sends nobody behind all others."""
    called = []
    tools = guard(store, breaking(BreakerPolicy(failures=1, open_s=LONG_S), called))
    await tools.call("act", {"how": "retryable"}, step())
    assert is_open(await tools.call("act", {"how": "fine"}, step(number=2)))
    view, loop = tools._breakers, asyncio.get_running_loop()
    for left_s, made in ((0.05, True), (0.5, False)):
        await view._read()
        view._opens_s["act"] = loop.time() + left_s
        assert (await view.refusal("act", BreakerPolicy(1, LONG_S), step(number=3), trial=False) is None) is made
    assert called == ["retryable"]
    await tools.close()


async def test_failures_in_a_row_open_it_for_all_processes(store):
    """Law: after three failures the next call is 'not done, retryable', not definite, with the wait; nothing is called."""
    called = []
    act = breaking(BreakerPolicy(failures=3, open_s=LONG_S), called)
    here, there = guard(store, act), guard(store, act, breaker_fresh_s=0)
    for how in ("retryable", "defect", "unknown"):
        await here.call("act", {"how": how}, step())
    for tools in (here, there):
        outcome = await tools.call("act", {"how": "fine"}, step())
        assert is_open(outcome)
        assert (outcome.retryable, outcome.definite) == (True, False)
        assert LONG_S - 30 < outcome.retry_after_s <= LONG_S
    assert called == ["retryable", "defect", "unknown"]
    assert (await here.stats())["act"]["rejected"] == 1
    await here.close()
    await there.close()


async def test_a_success_or_a_final_no_begins_the_row_anew(store):
    """Only failures in a row count."""
    tools = guard(store, breaking(BreakerPolicy(failures=2, open_s=LONG_S)))
    for how in ("unknown", "fine", "unknown", "no", "unknown", "fine"):
        assert not is_open(await tools.call("act", {"how": how}, step()))
    await tools.call("act", {"how": "unknown"}, step())
    await tools.call("act", {"how": "unknown"}, step())
    assert is_open(await tools.call("act", {"how": "fine"}, step()))
    await tools.close()


async def test_what_never_reached_the_tool_speaks_neither_for_nor_against_it(store):
    """Law: a call whose params its function refuses is no success: it neither ends a row of failures nor a rest."""

    @tool(breaker=BreakerPolicy(failures=2, open_s=LONG_S))
    async def act(day: dt.date):
        raise ToolError("not now", retryable=True)

    @tool(breaker=BreakerPolicy(failures=2, open_s=LONG_S))
    async def own(retryable: bool):
        raise ToolError("not with these", error_code="params_invalid", retryable=retryable)

    tools = guard(store, [act, own])
    for day in ("2026-01-01", "nonsense", "2026-01-01"):
        assert not is_open(await tools.call("act", {"day": day}, step()))
    assert is_open(await tools.call("act", {"day": "2026-01-01"}, step()))
    backward = step(direction="compensate")
    assert (await tools.call("act", {"day": "nonsense"}, backward)).error.error_code == "params_invalid"
    assert is_open(await tools.call("act", {"day": "2026-01-01"}, step()))
    # A tool that says it itself has answered.
    for retryable in (True, False, True):
        assert not is_open(await tools.call("own", {"retryable": retryable}, step()))
    assert not is_open(await tools.call("own", {"retryable": True}, step()))
    await tools.close()


async def test_a_compensation_passes_and_its_outcome_counts(store):
    """Law: an open breaker never stands in the way of a compensation; its failures open it and its success closes it."""
    tools = guard(store, breaking(BreakerPolicy(failures=1, open_s=LONG_S)))
    backward = step(direction="compensate")
    assert isinstance(await tools.call("act", {"how": "unknown"}, backward), Unknown)
    assert is_open(await tools.call("act", {"how": "fine"}, step()))
    assert await tools.call("act", {"how": "fine"}, backward) == Done("fine")
    assert await tools.call("act", {"how": "fine"}, step()) == Done("fine")
    await tools.close()


async def test_one_trial_decides(store):
    """Law: when the rest is over one call goes, all others do not; its success closes the breaker."""
    stage = Stage()

    @tool(breaker=BreakerPolicy(failures=1, open_s=0.03))
    async def act(who: str):
        if who == "bad":
            raise OutcomeUnknown("")
        return await stage.enter(who)

    here, there = guard(store, act, breaker_fresh_s=0), guard(store, act, breaker_fresh_s=0)
    await here.call("act", {"who": "bad"}, step())

    async def rested():
        return (await store.breakers(["act"]))["act"].opens_ms == 0

    await poll(rested)
    trial = asyncio.create_task(here.call("act", {"who": "trial"}, step()))
    await stage.until("trial")
    for tools in (here, there):
        assert is_open(await tools.call("act", {"who": "other"}, step()))
    assert (await here.stats())["act"]["breaker"]["state"] == "half-open"
    stage.let_out("trial")
    assert await trial == Done("trial")
    others = [asyncio.create_task(tools.call("act", {"who": f"{n}"}, step())) for n, tools in enumerate([here, there])]
    for who in "01":
        await stage.until(who)
        stage.let_out(who)
    assert await asyncio.gather(*others) == [Done("0"), Done("1")]
    await here.close()
    await there.close()


async def test_a_queue_before_the_call_does_not_outlive_the_opening(store):
    """Law: calls that waited for a place while the breaker opened are not made."""
    stage = Stage()

    @tool(breaker=BreakerPolicy(failures=1, open_s=LONG_S), max_concurrency=1)
    async def act(who: str):
        await stage.enter(who)
        raise OutcomeUnknown("")

    tools = guard(store, act)
    calls = [asyncio.create_task(tools.call("act", {"who": who}, step())) for who in "abc"]
    await stage.until("a")
    stage.let_out("a")
    assert [is_open(await one) for one in calls] == [False, True, True]
    assert stage.order == ["a"]
    await tools.close()


async def test_what_never_reached_the_tool_does_not_count(store):
    """No time left is no failure of the tool, and neither is a deadline that passed before its place was free."""
    called = []
    tools = guard(store, breaking(BreakerPolicy(failures=1, open_s=LONG_S), called, max_concurrency=1))
    assert isinstance(await tools.call("act", {"how": "fine"}, step(timeout_s=0.0)), NotDone)
    assert await tools.call("act", {"how": "fine"}, step()) == Done("fine")
    assert called == ["fine"]
    await tools.close()


async def test_successes_of_a_healthy_tool_cost_no_round_trip(watched):
    """The picture of the breakers is shared by all calls of half a second, and a success changes nothing in it."""
    tools = guard(watched, breaking(BreakerPolicy()), breaker_fresh_s=LONG_S)
    for _ in range(5):
        await tools.call("act", {"how": "fine"}, step())
    assert watched.verbs() == ["breakers"]
    await tools.close()


@pytest.mark.parametrize("verb", ["breakers", "breaker_outcome", "breaker_trial"])
async def test_an_outage_in_its_own_bookkeeping_fails_no_call(watched, caplog, verb):
    """Law: what the store cannot say about a breaker is logged, and the call is made."""
    limit = 1 if verb == "breaker_trial" else 3
    tools = guard(watched, breaking(BreakerPolicy(failures=limit, open_s=0.001)), breaker_fresh_s=0)
    if verb == "breaker_trial":
        await tools.call("act", {"how": "unknown"}, step())

        async def rested():
            return (await watched.breakers(["act"]))["act"].opens_ms == 0

        await poll(rested)
    watched.broken[verb] = StoreUnavailable("away")
    assert isinstance(await tools.call("act", {"how": "unknown"}, step()), Unknown)
    assert await tools.call("act", {"how": "fine"}, step()) == Done("fine")
    assert "away" in caplog.text
    await tools.close()


async def test_a_success_waits_for_nothing_and_the_next_call_for_its_report(watched):
    """Law: a result is not held up by the bookkeeping, and no later call looks at a breaker before that is done."""
    tools = guard(watched, breaking(BreakerPolicy(failures=2)), breaker_fresh_s=0)
    await tools.call("act", {"how": "unknown"}, step())
    real, written = watched.breaker_outcome, asyncio.Event()

    async def slow(*args, **named):
        await written.wait()
        return await real(*args, **named)

    watched.breaker_outcome = slow
    assert await tools.call("act", {"how": "fine"}, step()) == Done("fine")
    looks = watched.verbs().count("breakers")
    following = asyncio.create_task(tools.call("act", {"how": "unknown"}, step()))
    for _ in range(50):
        await asyncio.sleep(0)
    assert watched.verbs().count("breakers") == looks
    written.set()
    assert isinstance(await following, Unknown)
    assert (await tools.stats())["act"]["breaker"]["failures"] == 1
    await tools.close()


async def test_a_hanging_store_holds_a_call_up_for_a_bounded_time(watched, monkeypatch):
    """Law: nobody waits for the breaker's bookkeeping longer than its patience."""
    monkeypatch.setattr("saga_engine.guards.breakers._PATIENCE_S", 0.01)

    async def hang(*args):
        await asyncio.Event().wait()

    watched.breakers = hang
    tools = guard(watched, breaking(BreakerPolicy()))
    assert await tools.call("act", {"how": "fine"}, step()) == Done("fine")
    monkeypatch.setattr("saga_engine.guards.chain._CLOSE_S", 0.01)
    await tools.close()


WAYS = st.sampled_from(["unknown", "retryable", "defect", "no", "fine"])
OPS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["forward", "compensate"]), WAYS), max_size=25)


@settings(max_examples=40, deadline=None)
@given(limit=st.integers(1, 4), ops=OPS)
def test_the_chain_follows_the_model(limit, ops):
    """Law: for any calls through two processes, a forward call is made exactly when the model of the breaker is closed."""

    async def run():
        opened = open_store("memory://")
        await opened.open()
        called = []
        act = breaking(BreakerPolicy(failures=limit, open_s=LONG_S), called)
        both = [guard(opened.guard_store(), act, breaker_fresh_s=0) for _ in range(2)]
        row, tripped = 0, False
        for process, direction, how in ops:
            before = len(called)
            outcome = await both[process].call("act", {"how": how}, step(direction=direction))
            made = direction == "compensate" or not tripped
            assert (len(called) > before) is made
            assert is_open(outcome) is not made
            if not made:
                continue
            if how in ("no", "fine"):
                row, tripped = 0, False
            elif not tripped:
                row += 1
                tripped = row >= limit
        for tools in both:
            await tools.close()
        await opened.close()

    asyncio.run(run())
