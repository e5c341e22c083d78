"""One call of one tool: what it is given, how its time is bounded, and who may cancel it."""

import asyncio
import datetime as dt
import functools
import threading
from collections import deque
from dataclasses import dataclass
from decimal import Decimal

import pytest
from pydantic import BaseModel

from saga_engine.core.effects import Done, NotDone, Unknown
from saga_engine.errors import ToolError, ToolMissing
from saga_engine.tools import threads
from saga_engine.tools.context import ToolContext
from saga_engine.tools.decorator import tool
from saga_engine.tools.registry import ToolRegistry
from saga_engine.tools.timeouts import Alarm
from tests.tools.calls import PATIENCE_S, SHORT_S, a_call, call, is_timeout

# --- what a tool is given --------------------------------------------------------------------------------------------


async def test_sync_and_async_tools_give_their_results():
    """Both kinds of function are called by name and their values are outputs."""

    async def later(x):
        return {"x": x}

    def now(x):
        return {"x": x}

    for function in (later, now, functools.partial(later), functools.partial(now)):
        assert await call(tool(function), {"x": 1}) == Done({"x": 1})


async def test_context_and_key_are_filled_by_the_engine():
    """The context holds the facts of the call, the deadline in Unix seconds; a plan cannot forge them."""
    seen = []

    @tool
    async def act(ctx: ToolContext, idempotency_key: str, **rest):
        seen.append((ctx, idempotency_key, rest))

    params = {"ctx": "forged", "idempotency_key": "forged", "x": 1}
    await call(act, params, deadline_ms=1_700_000_000_500, direction="compensate")
    context = ToolContext("saga", "2", "compensate", 3, "key-1", 7, 1_700_000_000.5)
    assert seen == [(context, "key-1", {"x": 1})]


async def test_every_attempt_carries_the_same_key():
    """Pitfall 11, as far as this room goes: what the call says is what the tool gets, attempt after attempt."""
    keys = []

    @tool
    async def charge(idempotency_key: str):
        keys.append(idempotency_key)
        raise TimeoutError

    registry = ToolRegistry(charge)
    for attempt in (1, 2, 3):
        assert isinstance(await registry.call("charge", {}, a_call(attempt=attempt)), Unknown)
    assert keys == ["key-1"] * 3


async def test_params_become_what_the_annotations_ask_for():
    """JSON is turned into dates, decimals, models and tuples; params that are left out keep their defaults."""

    class Passenger(BaseModel):
        name: str

    @dataclass
    class Bag:
        kg: int

    async def act(day: dt.date, price: Decimal, who: list, bag, pair: tuple[int, int] = (0, 0)):
        return [day == dt.date(2026, 3, 1), price == Decimal("1.5"), who == [Passenger(name="A")], bag == Bag(3), pair]

    act.__annotations__ |= {"who": list[Passenger], "bag": Bag | None}
    params = {"day": "2026-03-01", "price": "1.5", "who": [{"name": "A"}], "bag": {"kg": 3}}
    assert await call(act, params) == Done([True, True, True, True, [0, 0]])


async def test_params_that_do_not_fit_are_not_done_and_not_retried():
    """No code of the tool ran: the call did not happen, and the same params will not fit later."""

    async def act(day: dt.date, n: int = 0):
        raise AssertionError

    def act_sync(day: dt.date):
        raise AssertionError

    for function, params in (
        (act, {"day": "never"}),
        (act, {"day": "2026-01-01", "x": 1}),
        (act_sync, {"day": "never"}),
    ):
        outcome = await call(function, params)
        assert isinstance(outcome, NotDone)
        assert (outcome.retryable, outcome.definite, outcome.error.error_code) == (False, False, "params_invalid")


async def test_a_tool_cannot_change_the_plan_through_its_params():
    """The tool gets copies: the next attempt sees the params as they were."""

    @tool
    async def act(items: list, options: dict):
        items.append(1)
        options["deep"]["x"] = 1

    params = {"items": [], "options": {"deep": {}}}
    await call(act, params)
    assert params == {"items": [], "options": {"deep": {}}}


# --- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ToolError("no", error_code="no"), ValueError("x"), TimeoutError(), SystemExit(1)])
async def test_errors_are_outcomes_in_both_kinds_of_tools(error):
    """Whatever ends a tool is interpreted, never raised; threads and coroutines are treated alike."""

    async def later():
        raise error

    def now():
        raise error

    ends = [await call(later), await call(now)]
    expected = NotDone if isinstance(error, ToolError | ValueError) else Unknown
    assert [type(end) for end in ends] == [expected, expected]
    said = [(end.error.error_code, end.error.message, end.error.retryable) for end in ends]
    assert said[0] == said[1]


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_a_server_error_depends_on_what_the_tool_does(effect):
    """A 502 leaves a write in doubt; a read can simply be repeated."""

    class BadGateway(Exception):
        status_code = 502

    async def act():
        raise BadGateway

    assert isinstance(await call(tool(act, effect=effect)), Unknown if effect == "write" else NotDone)


async def test_a_keyboard_interrupt_leaves_the_call():
    """Ctrl-C is not an answer of the tool."""

    def act():
        raise KeyboardInterrupt

    registry = ToolRegistry(act)
    coroutine = registry.call("act", {}, a_call())
    with pytest.raises(KeyboardInterrupt):
        await coroutine


async def test_generators_are_not_results():
    """A function that returns a generator never looks like a success: nobody takes its values."""

    def lines():
        return (line for line in "ab")

    async def stream():
        return (line for line in "ab")

    for function in (lines, stream):
        assert (await call(function)).error.error_code == "result_not_json"


async def test_nan_is_never_silently_null():
    """A result that is not finite JSON happened and cannot be recorded."""

    async def price():
        return {"price": float("nan")}

    outcome = await call(price)
    assert isinstance(outcome, Unknown)
    assert outcome.error.error_code == "result_not_json"


@pytest.mark.parametrize("effect", ["write", "read"])
async def test_a_result_that_does_not_fit_the_declared_schema_is_no_result(effect):
    """The caller gets no field that is not there. Whether the call happened is unknown, so a probe or an operator settles it."""
    schema = {"type": "object", "required": ["ref"], "properties": {"ref": {"type": "string"}}}
    results = iter([{"ref": "1"}, {"error": None}, {"ref": 1}, None])

    @tool(effect=effect, output_schema=schema)
    def act():
        return next(results)

    assert await call(act) == Done({"ref": "1"})
    for what in ("ref", "at ref"):
        outcome = await call(act)
        assert isinstance(outcome, Unknown)
        assert outcome.error.error_code == "output_invalid"
        assert what in outcome.error.message
    outcome = await call(act)  # a read that finds nothing
    assert isinstance(outcome, Done if effect == "read" else Unknown)


async def test_no_value_of_a_redacted_result_is_told():
    @tool(output_schema={"type": "object", "properties": {"card": {"type": "integer"}}}, redact=["card"])
    def act():
        return {"card": "4111"}

    outcome = await call(act)
    assert isinstance(outcome, Unknown)
    assert "4111" not in outcome.error.message


async def test_a_plain_function_in_front_of_an_asynchronous_one_is_awaited():
    """A wrapper that hides ``async`` costs a thread, not the result; its time is bounded as a whole."""

    async def inner(wait):
        if wait:
            await asyncio.Event().wait()
        return "inner"

    def outer(wait=False):
        return inner(wait)

    assert await call(outer) == Done("inner")
    loop = asyncio.get_running_loop()
    waits = []
    call_later = loop.call_later
    loop.call_later = lambda delay, *args: waits.append(delay) or call_later(delay, *args)
    try:
        assert is_timeout(await call(outer, {"wait": True}, timeout_s=0.05))
    finally:
        del loop.call_later
    in_thread, in_loop = waits
    assert in_loop < in_thread == 0.05


async def test_an_unknown_name_is_raised_not_recorded():
    """A missing tool is never a failure of the step."""
    registry = ToolRegistry(tool(lambda: None, name="book_flight"))
    for ask in (registry.call, registry.probe):
        with pytest.raises(ToolMissing, match="book_flght") as caught:
            await ask("book_flght", {}, a_call())
        assert "book_flight" in caught.value.hint


# --- time ------------------------------------------------------------------------------------------------------------


async def test_a_time_out_of_an_async_tool_is_unknown_and_leaves_no_cancellation_behind():
    """Requirement A2 and pitfall 14: the tool is stopped, the answer is 'unknown', the caller goes on as if nothing was."""
    stopped = []

    async def act():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    outcome = await call(act, timeout_s=SHORT_S)
    assert is_timeout(outcome)
    assert stopped == [True]
    assert asyncio.current_task().cancelling() == 0
    await asyncio.wait_for(asyncio.sleep(0), PATIENCE_S)


async def test_a_sync_tool_that_overruns_its_time_is_awaited_and_its_result_counts():
    """Its thread goes on, so the engine will know more than any probe: nothing is asked meanwhile."""
    go = threading.Event()

    def act():
        go.wait(PATIENCE_S)
        return "late"

    asked = asyncio.ensure_future(call(act, timeout_s=SHORT_S))
    await asyncio.wait([asked], timeout=20 * SHORT_S)
    assert not asked.done()
    go.set()
    assert await asked == Done("late")


async def test_a_thread_that_never_ends_leaves_the_call_unknown_and_at_work():
    """It is awaited for a bounded time; then a person must look, because the thread is still at work."""
    go = threading.Event()
    try:
        made = tool(name="stuck", late_s=SHORT_S)(lambda: go.wait(PATIENCE_S))
        outcome = await call(made, timeout_s=SHORT_S)
        assert is_timeout(outcome)
        assert outcome.at_work
        assert "still at work" in outcome.error.message
    finally:
        go.set()


async def test_nothing_is_asked_repeated_or_undone_while_a_thread_is_at_work_on_the_call():
    """A thread that was left behind is waited for by whoever comes next for the same call: probe, repeat or undo."""
    go, made = threading.Event(), []

    @tool(effect="read")
    def find(idempotency_key: str):
        made.append("probe")

    @tool
    async def cancel():
        made.append("undo")

    @tool(probe=find, undo=cancel)
    def book():
        go.wait(PATIENCE_S)
        made.append("booked")
        return "A1"

    registry = ToolRegistry([book])
    first = asyncio.ensure_future(registry.call("book", {}, a_call()))
    await asyncio.sleep(0)
    first.cancel()  # the lease is lost, for example
    await asyncio.wait([first])
    later = [
        asyncio.ensure_future(registry.probe("book", {}, a_call())),
        asyncio.ensure_future(registry.call("book", {}, a_call(attempt=4))),
        asyncio.ensure_future(
            registry.call("cancel", {}, a_call(idempotency_key="c", direction="compensate", undoes=("book", "key-1")))
        ),
    ]
    await asyncio.wait(later, timeout=20 * SHORT_S)
    assert made == []
    go.set()
    _, repeated, _ = await asyncio.gather(*later)
    assert repeated == Done("A1")
    assert made[0] == "booked"
    assert sorted(made) == ["booked", "probe", "undo"]


async def test_a_thread_that_cannot_be_started_has_called_nothing(monkeypatch):
    """The machine has no more threads: that is 'not done', and worth another try."""

    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_idle", deque())
    monkeypatch.setattr(threading.Thread, "start", start)
    outcome = await call(tool(lambda: 1, name="one"))
    assert isinstance(outcome, NotDone)
    assert (outcome.error.error_code, outcome.retryable) == ("no_thread", True)


async def test_arguments_that_do_not_fit_are_no_error_of_the_tool_s():
    """A function that was never entered has done nothing; a TypeError from inside it leaves that open."""

    def act(**rest):
        return _two(1)

    def _two(_one, _other):
        return None

    inside = await call(act)
    assert isinstance(inside, Unknown)

    def strict(day):
        return day

    outcome = await call(strict, {})
    assert isinstance(outcome, NotDone)
    assert outcome.error.error_code == "params_invalid"


async def test_a_value_in_spite_of_the_time_out_counts():
    """A tool that finishes its work when it is cancelled has done it."""

    async def act():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done after all"

    assert await call(act, timeout_s=SHORT_S) == Done("done after all")
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("error", [ValueError("x"), ToolError("not done"), ConnectionRefusedError(), SystemExit()])
async def test_an_error_upon_the_time_out_is_still_a_time_out(error):
    """What a tool raises because it was cut short proves nothing."""

    async def act():
        try:
            await asyncio.Event().wait()
        finally:
            raise error

    assert is_timeout(await call(act, timeout_s=SHORT_S))


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
async def test_without_time_nothing_is_called(timeout_s):
    """A call that could only time out is not begun."""
    called = []

    async def later():
        called.append(1)

    def now():
        called.append(1)

    for function in (later, now):
        outcome = await call(function, timeout_s=timeout_s)
        assert isinstance(outcome, NotDone)
        assert (outcome.retryable, outcome.definite) == (True, False)
    assert not called


async def test_the_timer_of_a_finished_call_rings_for_nobody():
    """After a call has ended, its timer is gone: a later await is not cancelled."""

    async def act():
        return 1

    registry = ToolRegistry(act)
    for _ in range(50):
        assert await registry.call("act", {}, a_call(timeout_s=0.5)) == Done(1)
    late = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.6, late.set_result, "undisturbed")
    assert await late == "undisturbed"


# --- cancellation ----------------------------------------------------------------------------------------------------


async def started(function, **changes):
    """A task that is inside the tool."""
    inside = asyncio.Event()

    async def act():
        inside.set()
        return await function()

    task = asyncio.create_task(call(act, **changes))
    await asyncio.wait_for(inside.wait(), PATIENCE_S)
    return task


async def test_an_outer_cancellation_leaves_the_call_as_itself():
    """Pitfall 1: whoever cancels the caller gets ``CancelledError``, never an outcome that looks settled."""
    task = await started(asyncio.Event().wait)
    task.cancel("stop")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_an_outer_cancellation_of_a_sync_tool_abandons_its_thread():
    """The caller is free at once; the thread's late answer disturbs nobody."""
    inside, go, ended = threading.Event(), threading.Event(), threading.Event()

    def act():
        inside.set()
        go.wait(PATIENCE_S)
        ended.set()

    task = asyncio.create_task(call(act))
    assert await asyncio.to_thread(inside.wait, PATIENCE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    assert await asyncio.to_thread(ended.wait, PATIENCE_S)


async def test_an_outer_cancellation_that_the_tool_turns_into_an_error_is_still_one():
    """An interrupted call is in doubt; the error it ends with must not pass for 'not done'."""

    async def act():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ToolError("looks settled") from None

    task = await started(act)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_outer_cancellation_that_the_tool_swallows_reaches_the_caller_after_the_value():
    """Neither is lost: the value is returned, and the next await of the caller is cancelled."""
    values = []
    inside = asyncio.Event()

    async def act():
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished"

    async def caller():
        values.append(await call(act))
        await asyncio.sleep(0)
        values.append("not reached")

    task = asyncio.create_task(caller())
    await asyncio.wait_for(inside.wait(), PATIENCE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert values == [Done("finished")]
    assert task.cancelling() == 1


@pytest.mark.parametrize("outer_first", [True, False])
async def test_time_out_and_outer_cancellation_in_one_moment_is_a_cancellation(outer_first, monkeypatch):
    """When both happen before the task runs again, the outer one is neither swallowed nor taken for the time-out."""
    alarms = []
    monkeypatch.setattr(Alarm, "set", lambda alarm, _left_s: alarms.append(alarm))
    task = await started(asyncio.Event().wait)
    ring = alarms[0].ring
    for act in (task.cancel, ring) if outer_first else (ring, task.cancel):
        act()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert task.cancelling() == 1


async def test_an_outer_cancellation_during_the_clean_up_after_a_time_out_wins():
    """A tool may take its time to clean up; who cancels it meanwhile gets the cancellation."""
    cleaning = asyncio.Event()

    async def act():
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(call(act, timeout_s=SHORT_S))
    await asyncio.wait_for(cleaning.wait(), PATIENCE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_enclosing_time_out_is_not_confused_with_the_tool_s():
    """``asyncio.timeout`` around a call raises its own ``TimeoutError``."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SHORT_S):
            await call(asyncio_wait)


async def asyncio_wait():
    await asyncio.Event().wait()


async def test_a_tool_that_cancels_itself_is_unknown():
    """A cancellation that nobody asked for is an answer of the tool, and leaves everything open."""

    async def later():
        raise asyncio.CancelledError

    async def awaits_cancelled():
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    def now():
        raise asyncio.CancelledError

    for function in (later, awaits_cancelled, now):
        outcome = await call(function)
        assert isinstance(outcome, Unknown)
        assert outcome.error.error_code == "cancelled"
    assert asyncio.current_task().cancelling() == 0
