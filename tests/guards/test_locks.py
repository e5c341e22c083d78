"""Resources: one at a time for each key, first come first served, given back on every path."""

import asyncio
import logging

import pytest

from saga_engine.core.effects import Done, NotDone
from saga_engine.errors import StoreUnavailable
from saga_engine.tools.decorator import tool
from tests.guards.world import RealClock, Stage, Watched, guard, poll, step

LONG_MS = 600_000


async def nobody_holds(store, key):
    """Whether the queue is empty: a stranger's ticket would be the first."""
    first = await store.take(key, ["stranger"], LONG_MS)
    await store.give(key, "stranger")
    return first == "stranger"


async def until_joined(store, key, number):
    """Wait until so many tickets stand in the queue, by looking behind the store's back."""
    queue = store._queue_keys(key)[0]
    wire = await store._run.__self__._calls.others._connector.connect()

    async def enough():
        return await wire.call(["ZCARD", queue]) >= number

    await poll(enough)
    await wire.close()


async def test_calls_of_one_resource_run_one_after_the_other_in_order(store):
    """Requirement A3: same key, one at a time, first come first served, across tools; other keys are free."""
    stage = Stage()

    @tool(resource="user:{user_id}")
    async def pay(user_id: int, who: str):
        return await stage.enter(who)

    @tool(resource=lambda params: f"user:{params['user']}")
    async def refund(user: int, who: str):
        return await stage.enter(who)

    tools = guard(store, pay, refund)
    tasks = [
        asyncio.create_task(tools.call("pay", {"user_id": 1, "who": "a"}, step("s1"))),
        asyncio.create_task(tools.call("refund", {"user": 1, "who": "b"}, step("s2"))),
        asyncio.create_task(tools.call("pay", {"user_id": 1, "who": "c"}, step("s3"))),
        asyncio.create_task(tools.call("pay", {"user_id": 2, "who": "other"}, step("s4"))),
    ]
    await stage.until("a")
    await stage.until("other")
    await until_joined(store, "user:1", 3)
    assert sorted(stage.inside) == ["a", "other"]
    for who in ("a", "b", "c"):
        await stage.until(who)
        assert [one for one in stage.inside if one != "other"] == [who]
        stage.let_out(who)
    stage.let_out("other")
    assert await asyncio.gather(*tasks) == [Done(who) for who in ("a", "b", "c", "other")]
    assert [who for who in stage.order if who != "other"] == ["a", "b", "c"]
    await tools.close()
    assert await nobody_holds(store, "user:1")


async def test_two_processes_share_a_resource_in_the_order_of_arrival(store):
    """The queue is the store's: whoever comes later waits, in whichever process it is."""
    stage = Stage()

    @tool(resource="one")
    async def act(who: str):
        return await stage.enter(who)

    here, there = guard(store, act), guard(store, act)
    tasks = []
    for number, (tools, who) in enumerate([(here, "a"), (there, "b"), (here, "c"), (there, "d")], start=1):
        tasks.append(asyncio.create_task(tools.call("act", {"who": who}, step(f"s{number}"))))
        await until_joined(store, "one", number)
    for who in "abcd":
        await stage.until(who)
        assert stage.inside == [who]
        stage.let_out(who)
    assert await asyncio.gather(*tasks) == [Done(who) for who in "abcd"]
    await here.close()
    await there.close()


async def test_an_uncontended_call_costs_one_question_and_one_return(watched):
    """One round trip to take and one to give; a hand-over in the process needs no question more."""
    stage = Stage()

    @tool(resource="one")
    async def act(who: str):
        return await stage.enter(who)

    tools = guard(watched, act)
    tasks = [asyncio.create_task(tools.call("act", {"who": who}, step(f"s{who}"))) for who in "ab"]
    for who in "ab":
        await stage.until(who)
        stage.let_out(who)
    await asyncio.gather(*tasks)
    await tools.close()
    verbs = [verb for verb in watched.verbs() if verb in ("take", "give")]
    assert verbs == ["take", "give", "give"]


async def test_a_step_s_own_resources_are_held_too_even_by_a_tool_without_any(store):
    """Keys that the plan names count like those of the tool, in both directions."""
    stage = Stage()

    @tool
    async def act(who: str):
        return await stage.enter(who)

    tools = guard(store, act)
    first = asyncio.create_task(tools.call("act", {"who": "a"}, step("s1", resources=("room", "desk"))))
    second = asyncio.create_task(
        tools.call("act", {"who": "b"}, step("s2", direction="compensate", resources=("desk",)))
    )
    await stage.until("a")
    await until_joined(store, "desk", 2)
    assert stage.inside == ["a"]
    stage.let_out("a")
    await stage.until("b")
    stage.let_out("b")
    assert await asyncio.gather(first, second) == [Done("a"), Done("b")]
    await tools.close()


async def test_keys_are_taken_in_one_order_and_once_each(watched):
    """No deadlock is possible: whatever the order of the declaration, keys are taken sorted and given back reversed."""

    @tool(resource=["z:{a}", "b", "b", "y", "x", "d", "c"])
    async def act(a: str):
        return a

    tools = guard(watched, act)
    assert await tools.call("act", {"a": "1"}, step(resources=("m", "b", "a"))) == Done("1")
    await tools.close()
    keys = ["a", "b", "c", "d", "m", "x", "y", "z:1"]
    assert [args[0] for verb, args in watched.asked if verb == "take"] == keys
    assert [args[0] for verb, args in watched.asked if verb == "give"] == keys[::-1]


async def test_crossed_resources_do_not_deadlock(store):
    """Two calls that name the same two keys the other way round are both served."""

    @tool(resource=["x", "y"])
    async def one():
        await asyncio.sleep(0)
        return 1

    @tool(resource=["y", "x"])
    async def two():
        await asyncio.sleep(0)
        return 2

    tools = guard(store, one, two)
    calls = [tools.call(name, {}, step(f"s{n}", n)) for n, name in enumerate(["one", "two"] * 10)]
    assert await asyncio.gather(*calls) == [Done(1), Done(2)] * 10
    await tools.close()


async def test_a_wait_ends_with_the_deadline_and_leaves_the_queue(store):
    """Law: 'not done', final, code deadline; nothing was called and the next one is not held up by the ticket."""
    stage = Stage()

    @tool(resource="one")
    async def act(who: str):
        return await stage.enter(who)

    tools = guard(store, act)
    first = asyncio.create_task(tools.call("act", {"who": "a"}, step("s1")))
    await stage.until("a")
    late = await tools.call("act", {"who": "late"}, step("s2", deadline_ms=RealClock().now_ms() + 20))
    assert isinstance(late, NotDone)
    assert (late.error.error_code, late.retryable, late.definite) == ("deadline", False, False)
    third = asyncio.create_task(tools.call("act", {"who": "c"}, step("s3")))
    stage.let_out("a")
    await stage.until("c")
    stage.let_out("c")
    assert await asyncio.gather(first, third) == [Done("a"), Done("c")]
    assert stage.order == ["a", "c"]
    await tools.close()


async def test_waiting_is_not_the_tool_s_time(store):
    """A call that waits longer than its time-out has not timed out: it has not begun."""
    stage = Stage()

    @tool(resource="one", max_concurrency=1)
    async def act(who: str):
        return await stage.enter(who) if who == "first" else who

    tools = guard(store, act)
    first = asyncio.create_task(tools.call("act", {"who": "first"}, step("s1")))
    await stage.until("first")
    second = asyncio.create_task(tools.call("act", {"who": "second"}, step("s2", timeout_s=0.01)))
    await until_joined(store, "one", 2)
    longer = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, longer.set_result, None)
    await longer
    stage.let_out("first")
    assert await asyncio.gather(first, second) == [Done("first"), Done("second")]
    await tools.close()


async def test_a_cancelled_waiter_leaves_the_queue(store):
    """Whoever is cancelled while waiting is not called, and those behind it move up, in other processes too."""
    stage = Stage()

    @tool(resource="one")
    async def act(who: str):
        return await stage.enter(who)

    here, there = guard(store, act), guard(store, act)
    first = asyncio.create_task(here.call("act", {"who": "a"}, step("s1")))
    await stage.until("a")
    cancelled = asyncio.create_task(here.call("act", {"who": "b"}, step("s2")))
    await until_joined(store, "one", 2)
    last = asyncio.create_task(there.call("act", {"who": "c"}, step("s3")))
    await until_joined(store, "one", 3)
    cancelled.cancel()
    stage.let_out("a")
    await stage.until("c")
    stage.let_out("c")
    assert await last == Done("c")
    assert await first == Done("a")
    assert cancelled.cancelled()
    assert stage.order == ["a", "c"]
    await here.close()
    await there.close()
    assert await nobody_holds(store, "one")


@pytest.mark.parametrize("way", ["raise", "hang", "cancel"])
async def test_a_failed_call_gives_its_resource_back(store, way):
    """Errors, time-outs and cancellations free the resource."""
    begun = asyncio.Event()

    @tool(resource="one", max_concurrency=1)
    async def act(how: str):
        begun.set()
        if how in ("hang", "cancel"):
            await asyncio.Event().wait()
        if how == "raise":
            raise ValueError
        return how

    tools = guard(store, act)
    task = asyncio.create_task(tools.call("act", {"how": way}, step(timeout_s=0.001 if way == "hang" else 60)))
    await begun.wait()
    if way == "cancel":
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await tools.call("act", {"how": "fine"}, step("s2")) == Done("fine")
    await tools.close()
    assert await nobody_holds(store, "one")


async def test_a_resource_that_cannot_be_computed_stops_the_call(store):
    """Without its key a call could run beside another: it is not made."""
    called = []

    def broken(params):
        raise RuntimeError("no idea")

    for resource in ("user:{user}", ["a", "user:{user}"], broken, lambda params: 7, lambda params: ["a", 7]):

        @tool(resource=resource, name="act")
        async def act(**params):
            called.append(params)

        tools = guard(store, act)
        outcome = await tools.call("act", {}, step())
        assert isinstance(outcome, NotDone)
        assert (outcome.error.error_code, outcome.retryable) == ("resource_invalid", False)
        await tools.close()
    assert not called
    assert await nobody_holds(store, "a")


async def test_an_undo_touches_only_what_it_has_params_for(watched):
    """Backward a template without its param, or a function that misses one, is no key; the others are held."""

    @tool(resource=["order:{order}", "user:{user}"])
    async def undo(**params):
        return params

    @tool(resource=lambda params: params["user"])
    async def other(**params):
        return params

    tools = guard(watched, undo, other)
    backward = step(direction="compensate")
    assert await tools.call("undo", {"order": 7}, backward) == Done({"order": 7})
    assert await tools.call("other", {}, backward) == Done({})
    await tools.close()
    assert [args[0] for verb, args in watched.asked if verb == "take"] == ["order:7"]


async def test_a_resource_function_may_say_that_nothing_is_touched(watched):
    """``None`` and an empty list are no resource: the store is not asked."""

    @tool(resource=lambda params: params["what"])
    async def act(what):
        return 1

    tools = guard(watched, act)
    assert await tools.call("act", {"what": None}, step()) == Done(1)
    assert await tools.call("act", {"what": []}, step()) == Done(1)
    assert "take" not in watched.verbs()
    await tools.close()


async def test_a_stopped_engine_waits_for_nothing(store):
    """stop_waiting ends every wait at once, and later calls that would have to wait; a free resource is still given."""
    stage = Stage()

    @tool(resource="{key}")
    async def act(who: str, key: str):
        return await stage.enter(who)

    tools = guard(store, act)
    first = asyncio.create_task(tools.call("act", {"who": "a", "key": "one"}, step("s1")))
    await stage.until("a")
    waits = asyncio.create_task(tools.call("act", {"who": "b", "key": "one"}, step("s2", direction="compensate")))
    await until_joined(store, "one", 2)
    tools.stop_waiting()
    for outcome in (await waits, await tools.call("act", {"who": "c", "key": "one"}, step("s3"))):
        assert isinstance(outcome, NotDone)
        assert (outcome.error.error_code, outcome.retryable, outcome.definite) == ("interrupted", True, False)
    free = asyncio.create_task(tools.call("act", {"who": "d", "key": "two"}, step("s4")))
    await stage.until("d")
    stage.let_out("d")
    stage.let_out("a")
    assert await asyncio.gather(first, free) == [Done("a"), Done("d")]
    await tools.close()
    assert await nobody_holds(store, "one")


async def test_holder_and_waiters_are_kept_alive(store):
    """A call and a wait may be longer than the lease: neither loses its place."""
    stage = Stage()

    @tool(resource="one")
    async def act(who: str):
        return await stage.enter(who)

    here, there = guard(store, act, lease_s=2.0), guard(store, act, lease_s=2.0)
    first = asyncio.create_task(here.call("act", {"who": "a"}, step("s1")))
    await stage.until("a")
    second = asyncio.create_task(here.call("act", {"who": "b"}, step("s2")))
    await until_joined(store, "one", 2)
    third = asyncio.create_task(there.call("act", {"who": "c"}, step("s3")))
    longer = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(3.0, longer.set_result, None)
    await longer
    assert stage.inside == ["a"]
    for who in "abc":
        await stage.until(who)
        stage.let_out(who)
    assert await asyncio.gather(first, second, third) == [Done(who) for who in "abc"]
    assert stage.order == ["a", "b", "c"]
    await here.close()
    await there.close()


@pytest.mark.virtual_time
async def test_a_store_that_is_away_stops_who_waits_and_not_who_runs(watched, caplog):
    """Law: without the queue nobody new is called; a call that holds its resource goes on, and a warning is logged."""
    stage = Stage()

    @tool(resource="one")
    async def act(who: str):
        return await stage.enter(who)

    caplog.set_level(logging.WARNING, "saga_engine.guards")
    tools = guard(watched, act, lease_s=30)
    first = asyncio.create_task(tools.call("act", {"who": "a"}, step("s1")))
    await stage.until("a")
    watched.broken["take"] = StoreUnavailable("away")
    outcome = await tools.call("act", {"who": "b"}, step("s2"))
    assert isinstance(outcome, NotDone)
    assert (outcome.error.error_code, outcome.retryable) == ("store_unavailable", True)

    async def warned():
        return "longer than its lease" in caplog.text

    await poll(warned)
    watched.broken.clear()
    stage.let_out("a")
    assert await first == Done("a")
    await tools.close()


async def test_a_lost_resource_is_noticed(store, caplog):
    """Whoever was not kept alive in time has lost its resource: the log says that another call may run beside it."""
    stage = Stage()

    @tool(resource="one")
    async def act(who: str):
        return await stage.enter(who)

    tools = guard(store, act, lease_s=0.05)
    first = asyncio.create_task(tools.call("act", {"who": "a"}, step("s1")))
    await stage.until("a")
    (ticket,) = next(iter(tools._queues._queues.values())).turns
    await store.take("one", ["stranger"], LONG_MS)
    await store.give("one", ticket)  # as the server does when the ticket is not kept alive

    async def warned():
        return "was lost while a call held it" in caplog.text

    await poll(warned)
    stage.let_out("a")
    assert await first == Done("a")
    await tools.close()


async def test_a_key_that_nobody_uses_takes_no_memory(store):
    """Keepers end with the last call of their resource."""

    @tool(resource="{key}")
    async def act(key: str):
        return key

    tools = guard(store, act)
    await asyncio.gather(*(tools.call("act", {"key": f"k{n}"}, step("s1", n)) for n in range(20)))
    await tools.close()
    assert len(tools._queues) == 0


@pytest.mark.parametrize("how", ["template", "function"])
async def test_a_secret_in_a_key_is_never_logged(watched, caplog, how):
    """A key that holds a secret is shown with its marker, or not at all, in logs and in outcomes."""
    keys = {"template": "card:{card}", "function": lambda params: "card:" + params["card"].upper()}

    @tool(resource=keys[how])
    async def act(card: str):
        return card

    tools = guard(watched, act)
    hidden = step(masked={"card": "$secret.CARD"})
    watched.broken = {"give": StoreUnavailable("away")}
    assert await tools.call("act", {"card": "TOPSECRET"}, hidden) == Done("TOPSECRET")
    await poll(lambda: asyncio.sleep(0, "could not be given back" in caplog.text))
    watched.broken = {"take": StoreUnavailable("away")}
    outcome = await tools.call("act", {"card": "TOPSECRET"}, hidden)
    await tools.close()
    assert "TOPSECRET" not in caplog.text
    assert outcome.error.error_code == "store_unavailable"
    assert "TOPSECRET" not in outcome.error.message
    assert ("$secret.CARD" in outcome.error.message) is (how == "template")


async def test_a_key_that_is_a_secret_to_one_call_is_hidden_for_all(store, caplog):
    """Whoever came first: as soon as somebody brings the key as a secret it is not logged any more."""
    stage = Stage()

    @tool(resource="card:{card}")
    async def act(card: str, who: str):
        return await stage.enter(who)

    watched = Watched(store)
    tools = guard(watched, act)
    plain = asyncio.create_task(tools.call("act", {"card": "TOPSECRET", "who": "a"}, step("s1")))
    await stage.until("a")
    masked = {"card": "$secret.CARD", "who": "b"}
    hidden = asyncio.create_task(tools.call("act", {"card": "TOPSECRET", "who": "b"}, step("s2", masked=masked)))
    await until_joined(store, "card:TOPSECRET", 2)
    watched.broken = {"give": StoreUnavailable("away")}
    stage.let_out("a")
    await plain
    await poll(lambda: asyncio.sleep(0, "could not be given back" in caplog.text))
    hidden.cancel()
    await asyncio.wait({hidden})
    await tools.close()
    assert "TOPSECRET" not in caplog.text
