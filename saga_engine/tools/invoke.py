"""Makes one call of one tool: fills its parameters, limits its time, and interprets the outcome.

This is the hot path. Everything that can be known about a tool in advance is computed once. An asynchronous tool runs
in its caller's task: its time-out is one timer that cancels this task and then clears the cancellation, which costs a
fraction of a task of its own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextvars import Context, copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from saga_engine.core.effects import Done, ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.language.errors import said
from saga_engine.plan.expect import filled
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.tools.context import ToolContext
from saga_engine.tools.error_rules import NeverSent, rules_of
from saga_engine.tools.outcomes import (
    MAX_OUTPUT_BYTES,
    bounded,
    cancelled_by_itself,
    describe,
    does_not_fit,
    outcome_of_error,
    outcome_of_failure,
    outcome_of_value,
    still_at_work,
    timed_out,
)
from saga_engine.tools.schema_check import OutputCheck
from saga_engine.tools.signature import KEY_PARAMETER, parameters
from saga_engine.tools.threads import Ended, Running, begin_in_thread
from saga_engine.tools.timeouts import Alarm

if TYPE_CHECKING:
    from saga_engine.ports import Call
    from saga_engine.tools.decorator import Tool

Invocation = Callable[[Mapping[str, Any], "Call"], Coroutine[Any, Any, Outcome]]

#: The least time to wait for a thread after its time-out, before an operator is asked.
LATE_S: Final = 30.0

_SCALARS = frozenset({str, int, float, bool, type(None)})


class Caller:
    """Calls one tool. ``invoke`` is the entry point, chosen once for the kind of tool."""

    __slots__ = (
        "_as_it_is",
        "_bare",
        "_coercions",
        "_context",
        "_failed",
        "_fits",
        "_fn",
        "_late_s",
        "_max_bytes",
        "_redaction",
        "_returned_rules",
        "_rules",
        "_untold",
        "_wants_key",
        "_write",
        "invoke",
    )

    def __init__(self, tool: Tool[..., Any], max_output_bytes: int = MAX_OUTPUT_BYTES) -> None:
        self._max_bytes = max_output_bytes
        signature = tool.signature
        self._fn = tool.function
        self._write = tool.effect == "write"
        self._failed = tool.failed
        self._redaction = tool.redaction
        declared = tool.options()["output_schema"]
        own = declared is None or getattr(tool.function, "checks_output", False)
        self._fits = None if own else OutputCheck(tool.name, declared)
        self._as_it_is = self._fits is None and self._redaction is None
        self._late_s = max(tool.timeout_s, LATE_S) if tool.late_s is None else tool.late_s
        self._rules = rules_of(
            tool.function,
            write=self._write,
            keyed=tool.keyed,
            probed=tool.probe is not None,
            tolerates_absence=tool.tolerates_absence,
            signs=(tool.not_done, tool.unknown),
            raised=tool.raised,
        )
        # What the check of a result raises is raised after the call, whoever raises it.
        self._returned_rules = replace(self._rules, raised="unknown") if self._rules.raised else self._rules
        self._context = signature.context
        self._wants_key = signature.wants_key
        self._coercions = signature.coercions
        #: What an undo gets in place of what a write is told of the value: the engine has compared.
        self._untold = {name: None for name in filled(tool.expect) if _is_required(tool, name)}
        self._bare = not (self._context or self._wants_key or self._coercions or filled(tool.expect))
        self.invoke: Invocation = self._call_async if is_async(self._fn) else self._call_sync

    # --- arguments -----------------------------------------------------------------------------------------------

    def _arguments(self, params: Mapping[str, Any], call: Call) -> dict[str, Any]:
        """The keyword arguments of one attempt. The tool gets copies: its changes to them must not reach the plan."""
        arguments: dict[str, Any] = _copied(params if type(params) is dict else dict(params))
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
                None if call.undoes is None else call.undoes[1],
            )
        if self._wants_key:
            arguments[KEY_PARAMETER] = call.idempotency_key
        arguments.update(self._untold if call.expected is None else _copied(dict(call.expected)))
        return arguments

    # --- outcomes ------------------------------------------------------------------------------------------------

    def _returned(self, value: Any) -> Outcome:
        """Interpret a result."""
        if self._failed is None:
            outcome = outcome_of_value(value, self._max_bytes)
            return outcome if self._as_it_is else self._recorded(outcome)
        try:
            said = self._failed(value)
        except Exception as error:  # noqa: BLE001 - the check of the tool's author; the call has been made
            return outcome_of_error(error, write=self._write, rules=self._returned_rules)
        if not said and said != {}:
            return self._recorded(outcome_of_value(value, self._max_bytes))
        return outcome_of_failure(said, value)

    def _recorded(self, outcome: Outcome) -> Outcome:
        """The outcome as the journal may have it: nothing behind this place ever sees a redacted field."""
        if not isinstance(outcome, Done):
            return outcome
        # A read that finds nothing returns null, whatever its schema says of what it finds.
        if self._fits is not None and (self._write or outcome.output is not None):
            found = self._fits(outcome.output)
            if found:
                return does_not_fit(found, hidden=self._redaction is not None)
        if self._redaction is None:
            return outcome
        return outcome._replace(output=self._redaction.value("output", outcome.output))

    def _broken(self, error: BaseException) -> Outcome:
        """Interpret an exception."""
        return outcome_of_error(error, write=self._write, rules=self._rules)

    # --- asynchronous tools --------------------------------------------------------------------------------------

    def _call_async(self, params: Mapping[str, Any], call: Call) -> Coroutine[Any, Any, Outcome]:
        """Start a call without a coroutine of its own: no code of the tool runs before the result is awaited."""
        if _LEFT and (left := _left_of(call)) is not None:
            return self._after(left, params, call)
        timeout_s = call.timeout_s
        if not timeout_s > 0:
            return _told(_no_time(timeout_s))
        try:
            running = self._fn(**self._arguments(params, call))
        except Exception as error:  # noqa: BLE001 - coercion runs the validators of the tool's author
            # The arguments may not fit the signature; then the call itself raises, and no code of the tool has run.
            return _told(_bad_params(error))
        return self._run(running, timeout_s)

    async def _run(self, running: Coroutine[Any, Any, Any], timeout_s: float) -> Outcome:
        """Run the tool up to its first wait, and from there on under an alarm.

        Nothing could interrupt it before that point, so a tool that never waits needs no alarm. Its changes to context
        variables stay in its call: the saga's next call, which this task also makes, sees none of them.
        """
        began_s = machine_clock.monotonic()
        context = copy_context()
        try:
            waits_for = context.run(running.send, None)
        except StopIteration as ended:
            return self._returned(ended.value)
        except asyncio.CancelledError:
            return cancelled_by_itself()
        except BaseException as error:  # noqa: BLE001 - whatever ends a tool is interpreted
            return self._broken(error)
        left_s = timeout_s - (machine_clock.monotonic() - began_s)
        return await self._await(_go_on(running, context, waits_for), max(left_s, 0.0), timeout_s)

    async def _await(self, running: Awaitable[Any], left_s: float, timeout_s: float) -> Outcome:
        """Await the tool in this task for at most ``left_s`` seconds.

        A cancellation that is not the alarm's is raised as ``CancelledError``, even if the tool turned it into another
        error, because an interrupted call is in doubt. A value that the tool returns in spite of a cancellation counts.
        If the cancellation came from outside, it is requested again, so the caller receives it at its next await.
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
            if alarm.rang and not isinstance(error, NeverSent):
                return timed_out(timeout_s)
            if isinstance(error, asyncio.CancelledError):
                return cancelled_by_itself()
            return self._broken(error)
        alarm.stop()
        if alarm.rang:
            task.uncancel()
        if task.cancelling() > asked_before:
            task.uncancel()
            task.cancel()
        return self._returned(value)

    # --- synchronous tools ---------------------------------------------------------------------------------------

    async def _call_sync(self, params: Mapping[str, Any], call: Call) -> Outcome:
        if _LEFT and (left := _left_of(call)) is not None:
            return await self._after(left, params, call)
        timeout_s = call.timeout_s
        if not timeout_s > 0:
            return _no_time(timeout_s)
        try:
            arguments = self._arguments(params, call)
        except Exception as error:  # noqa: BLE001 - coercion runs the validators of the tool's author
            return _bad_params(error)
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        try:
            running = begin_in_thread(functools.partial(self._fn, **arguments))
        except RuntimeError as error:
            return _no_thread(error)
        try:
            ended = await running.wait(timeout_s)
            if ended is None:
                ended = await running.wait(self._late_s)
        except asyncio.CancelledError:
            _leave(running, self, call)
            raise
        if ended is None:
            _leave(running, self, call)
            return still_at_work(timeout_s + self._late_s)
        if inspect.isawaitable(ended.value):
            # A plain function in front of an asynchronous one: its coroutine is still to run, here.
            running_here = _begin(_awaited(ended.value), copy_context())
            return await self._await(running_here, max(end - loop.time(), 0.0), timeout_s)
        return self._ended(ended)

    def _ended(self, ended: Ended) -> Outcome:
        """Interpret the end of a thread."""
        error = ended.error
        if error is None:
            return self._returned(ended.value)
        if isinstance(error, asyncio.CancelledError):
            return cancelled_by_itself()
        return _bad_params(error) if self._never_began(error) else self._broken(error)

    def _never_began(self, error: BaseException) -> TypeGuard[TypeError]:
        """Whether the arguments did not fit the signature: no line of the function ran."""
        traceback = error.__traceback__
        outside = traceback is None or traceback.tb_next is None
        return type(error) is TypeError and outside and inspect.isroutine(self._fn) and not inspect.isbuiltin(self._fn)

    async def _after(self, left: _Left, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make a call of a step whose earlier call may still run in an abandoned thread: first wait for that thread."""
        running, caller, direction = left
        ended = await running.wait(self._late_s)
        if ended is None:
            if call.direction in ("probe", direction):
                return still_at_work(self._late_s)
            return _in_its_way()
        if caller is self and direction == call.direction and not inspect.isawaitable(ended.value):
            return self._ended(ended)  # the call that this one repeats has ended after all
        return await self.invoke(params, call)


class _Left(NamedTuple):
    """A thread that still runs a call after its time-out."""

    running: Running
    caller: Caller
    direction: str


#: By the idempotency key of their call.
_LEFT: dict[str, _Left] = {}


def _leave(running: Running, caller: Caller, call: Call) -> None:
    """Remember a running thread: nobody probes, repeats or undoes its call meanwhile."""
    for key in [key for key, left in _LEFT.items() if left.running.ended is not None]:
        del _LEFT[key]
    if running.ended is None:
        _LEFT[call.idempotency_key] = _Left(running, caller, call.direction)


def _left_of(call: Call) -> _Left | None:
    """The thread that still runs the call that ``call`` probes, repeats or undoes."""
    left = _LEFT.get(call.idempotency_key)
    if left is None and call.undoes is not None:
        left = _LEFT.get(call.undoes[1])
    return left if left is not None and left.running.ended is None else None


def _is_required(tool: Tool[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name, and no default for it."""
    found = parameters(tool.function, tool.name).get(name)
    return found is not None and found.kind is not found.VAR_KEYWORD and found.default is found.empty


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine: functions, partials, methods and objects with an async ``__call__``."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or (
        not inspect.isroutine(fn) and inspect.iscoroutinefunction(type(fn).__call__)
    )


def _copied(value: Any) -> Any:
    if type(value) is dict:
        made = value.copy()
        for key, item in value.items():
            if type(item) not in _SCALARS:
                made[key] = _copied(item)
        return made
    if type(value) is list:
        return [item if type(item) in _SCALARS else _copied(item) for item in value]
    return value


@types.coroutine
def _go_on(running: Coroutine[Any, Any, Any], context: Context, waits_for: Any) -> Generator[Any, Any, Any]:
    """Await the rest of a coroutine that has started in its own context and waits for ``waits_for``."""
    while True:
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - a cancellation, mostly: the coroutine's, not ours
            go_on: Callable[[], Any] = functools.partial(running.throw, error)
        else:
            go_on = functools.partial(running.send, value)
        try:
            waits_for = context.run(go_on)
        except StopIteration as ended:
            return ended.value


@types.coroutine
def _begin(running: Coroutine[Any, Any, Any], context: Context) -> Generator[Any, Any, Any]:
    """Await a coroutine in a context of its own."""
    try:
        waits_for = context.run(running.send, None)
    except StopIteration as ended:
        return ended.value
    return (yield from _go_on(running, context, waits_for))


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


async def _told(outcome: Outcome) -> Outcome:
    """An outcome that is known without a call."""
    return outcome


def _no_time(timeout_s: float) -> NotDone:
    error = ErrorInfo("no_time_left", said("no_time_left", s=f"{timeout_s:g}"), retryable=True)
    return NotDone(error, retryable=True)


def _no_thread(error: RuntimeError) -> NotDone:
    message = said("no_thread", why=describe(error))
    return NotDone(ErrorInfo("no_thread", bounded(message), retryable=True), retryable=True)


def _in_its_way() -> NotDone:
    message = said("call_at_work")
    return NotDone(ErrorInfo("call_at_work", message, retryable=True), retryable=True)


def _bad_params(error: Exception) -> NotDone:
    return NotDone(ErrorInfo("params_invalid", bounded(describe(error)), retryable=False), retryable=False)


def no_probe(name: str) -> Unknown:
    """The answer of a missing probe."""
    return Unknown(ErrorInfo("no_probe", said("no_probe", tool=repr(name))))
