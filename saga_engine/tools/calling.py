"""Makes one call of one tool: fills its parameters, bounds its time, and tells what came of it.

This is the hot path. Everything that can be known about a tool beforehand is computed once, and an asynchronous tool
runs in its caller's task: its time-out is one timer that cancels this task and takes the cancellation back, which
costs a fraction of what a task of its own would.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from saga_engine.core.effects import ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.tools.alarms import Alarm
from saga_engine.tools.context import ToolContext
from saga_engine.tools.outcomes import (
    bounded,
    cancelled_by_itself,
    describe,
    outcome_of_error,
    outcome_of_value,
    timed_out,
)
from saga_engine.tools.signature import KEY_PARAMETER
from saga_engine.tools.threads import Ended, start_in_thread

if TYPE_CHECKING:
    from saga_engine.ports import Call
    from saga_engine.tools.decorator import Tool

Invocation = Callable[[Mapping[str, Any], "Call"], Coroutine[Any, Any, Outcome]]

_SCALARS = frozenset({str, int, float, bool, type(None)})


class Caller:
    """Calls one tool. ``invoke`` is the way in, chosen once for the kind of tool it is."""

    __slots__ = ("_bare", "_coercions", "_context", "_fn", "_wants_key", "_write", "invoke")

    def __init__(self, tool: Tool[..., Any]) -> None:
        signature = tool.signature
        self._fn = tool.function
        self._write = tool.effect == "write"
        self._context = signature.context
        self._wants_key = signature.wants_key
        self._coercions = signature.coercions
        self._bare = not (self._context or self._wants_key or self._coercions)
        self.invoke: Invocation = self._call_async if is_async(self._fn) else self._call_sync

    # --- arguments -----------------------------------------------------------------------------------------------

    def _arguments(self, params: Mapping[str, Any], call: Call) -> dict[str, Any]:
        """The keyword arguments of one attempt. The tool gets copies: what it does to them must not reach the plan."""
        arguments = {name: value if type(value) in _SCALARS else _copied(value) for name, value in params.items()}
        if self._bare:
            return arguments
        for name, adapter in self._coercions.items():
            if name in arguments:
                arguments[name] = adapter.validate_python(arguments[name])
        for name in self._context:
            deadline_ms = call.deadline_ms
            arguments[name] = ToolContext(
                call.saga_id,
                call.step_id,
                call.direction,
                call.attempt,
                call.idempotency_key,
                call.epoch,
                None if deadline_ms is None else deadline_ms / 1000,
            )
        if self._wants_key:
            arguments[KEY_PARAMETER] = call.idempotency_key
        return arguments

    # --- asynchronous tools --------------------------------------------------------------------------------------

    def _call_async(self, params: Mapping[str, Any], call: Call) -> Coroutine[Any, Any, Outcome]:
        """No coroutine of its own: nothing of the tool runs before what is returned is awaited."""
        timeout_s = call.timeout_s
        if not timeout_s > 0:
            return _told(_no_time(timeout_s))
        try:
            running = self._fn(**self._arguments(params, call))
        except Exception as error:  # noqa: BLE001 - coercion runs the validators of the tool's author
            # Nor do the arguments fit the signature, where the call itself raises: no code of the tool ran.
            return _told(_bad_params(error))
        return self._run(running, timeout_s)

    async def _run(self, running: Coroutine[Any, Any, Any], timeout_s: float) -> Outcome:
        """Run the tool up to where it first waits for something, and on from there under an alarm.

        Until then nothing could interrupt it, so a tool that never waits needs no alarm.
        """
        began_s = monotonic()
        try:
            waits_for = running.send(None)
        except StopIteration as ended:
            return outcome_of_value(ended.value)
        except asyncio.CancelledError:
            return cancelled_by_itself()
        except BaseException as error:  # noqa: BLE001 - whatever ends a tool is judged
            return outcome_of_error(error, write=self._write)
        left_s = timeout_s - (monotonic() - began_s)
        return await self._await(_go_on(running, waits_for), max(left_s, 0.0), timeout_s)

    async def _await(self, running: Awaitable[Any], left_s: float, timeout_s: float) -> Outcome:
        """Await the tool in this task for at most ``left_s`` seconds.

        A cancellation that is not the alarm's leaves as ``CancelledError``, also where the tool turned it into another
        error, because a call that was cut short is in doubt. A value that the tool returns in spite of a cancellation
        counts; if the cancellation came from outside it is asked for again, so the caller meets it at its next await.
        """
        task = asyncio.current_task()
        assert task is not None
        asked_before = task.cancelling()
        alarm = Alarm(task)
        alarm.set(left_s)
        try:
            value = await running
        except BaseException as error:
            alarm.stop()
            if isinstance(error, KeyboardInterrupt):
                raise
            if alarm.rang:
                task.uncancel()
            if task.cancelling() > asked_before:
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise asyncio.CancelledError from error
            if alarm.rang:
                return timed_out(timeout_s, thread=False)
            if isinstance(error, asyncio.CancelledError):
                return cancelled_by_itself()
            return outcome_of_error(error, write=self._write)
        alarm.stop()
        if alarm.rang:
            task.uncancel()
        if task.cancelling() > asked_before:
            task.uncancel()
            task.cancel()
        return outcome_of_value(value)

    # --- synchronous tools ---------------------------------------------------------------------------------------

    async def _call_sync(self, params: Mapping[str, Any], call: Call) -> Outcome:
        timeout_s = call.timeout_s
        if not timeout_s > 0:
            return _no_time(timeout_s)
        try:
            arguments = self._arguments(params, call)
        except Exception as error:  # noqa: BLE001 - coercion runs the validators of the tool's author
            return _bad_params(error)
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        answer = start_in_thread(functools.partial(self._fn, **arguments))
        timer = loop.call_later(timeout_s, _give_up, answer)
        try:
            ended = await answer
        finally:
            timer.cancel()
        if ended is _OVERRUN:
            return timed_out(timeout_s, thread=True)
        if ended.error is not None:
            if isinstance(ended.error, asyncio.CancelledError):
                return cancelled_by_itself()
            return outcome_of_error(ended.error, write=self._write)
        if inspect.isawaitable(ended.value):
            # A plain function in front of an asynchronous one: the work is still to be done, here.
            return await self._await(ended.value, max(end - loop.time(), 0.0), timeout_s)
        return outcome_of_value(ended.value)


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling this makes a coroutine: functions, partials, methods and objects with an async ``__call__``."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or (
        not inspect.isroutine(fn) and inspect.iscoroutinefunction(type(fn).__call__)
    )


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: item if type(item) in _SCALARS else _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [item if type(item) in _SCALARS else _copied(item) for item in value]
    return value


_OVERRUN = Ended(None, None)


@types.coroutine
def _go_on(running: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """Await the rest of a coroutine that has begun and waits for ``waits_for``."""
    while True:
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001 - a cancellation, mostly: the coroutine's, not ours
            thrown = error
        else:
            return (yield from running)
        try:
            waits_for = running.throw(thrown)
        except StopIteration as ended:
            return ended.value


async def _told(outcome: Outcome) -> Outcome:
    """What is known without a call."""
    return outcome


def _give_up(answer: asyncio.Future[Ended]) -> None:
    if not answer.done():
        answer.set_result(_OVERRUN)


def _no_time(timeout_s: float) -> NotDone:
    error = ErrorInfo("no_time_left", f"nothing was called: the time allowed is {timeout_s:g} s", retryable=True)
    return NotDone(error, retryable=True)


def _bad_params(error: Exception) -> NotDone:
    return NotDone(ErrorInfo("params_invalid", bounded(describe(error)), retryable=False), retryable=False)


def no_probe(name: str) -> Unknown:
    """The answer to a probe of a tool that has none."""
    return Unknown(ErrorInfo("no_probe", f"the tool {name!r} has no probe"))
