"""Runs activities for a workflow, each with one attempt, and interprets how they end.

*Not done* is reported only if it is provable: a worker never began the call (the server gave it to no worker in time),
the worker itself says that it did not, or its last heartbeat said that a guard kept the call waiting. Any other failure
(a worker that died or froze, a lost answer) leaves the outcome of the call unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from saga_engine.core.asking_later import UNREACHED
from saga_engine.core.effects import ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.core.plan_growth import Growth
from saga_engine.core.state import State
from saga_engine.errors import PlanInvalid, SagaError
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.temporal import payloads
from saga_engine.temporal.activity_inputs import CallOrder

#: Temporal repeats nothing by itself: the core decides whether a call may be repeated.
_ONCE: Final = RetryPolicy(maximum_attempts=1)
#: How long a call may wait for the guards, in addition to its own time.
_TURN_S: Final = 86_400.0
#: The waits for a worker that has the tool.
_ABSENT_FIRST_S: Final = 1.0
_ABSENT_MOST_S: Final = 60.0
#: How long the saga waits until an operator's decision is remembered for identical calls.
_LEARN_S: Final = 60.0
#: How long hooks and models may take.
_ALERT_S: Final = 600.0
_ASK_S: Final = 3600.0


async def perform_call(
    order: CallOrder, lease_s: float, unwanted: Callable[[], bool], waits: Callable[[ErrorInfo], None]
) -> Outcome | dict[str, Any]:
    """Make a call once; a dict if its tool has changed so that the params do not fit (nothing was called then).

    While no worker has the tool, or its secret, the call waits, with the journal unchanged, until it is ``unwanted``.
    ``waits`` receives the reason.
    """
    wait_s = _ABSENT_FIRST_S
    while True:
        said = await _called(order, lease_s)
        if not isinstance(said, ErrorInfo):
            if wait_s > _ABSENT_FIRST_S:
                workflow.set_current_details("")
            return said
        if said.error_code == "worker_foreign":  # a worker that runs sagas says so itself, once
            workflow.logger.warning("%s waits: %s", order.summary, said.message)
        waits(said)
        workflow.set_current_details(f"{order.summary} waits: {said.message}")
        try:
            await workflow.wait_condition(unwanted, timeout=wait_s)
            return Unknown(said) if order.probing else NotDone(said, counted=False)
        except TimeoutError:
            wait_s = min(2 * wait_s, _ABSENT_MOST_S)


async def _called(order: CallOrder, lease_s: float) -> Outcome | dict[str, Any] | ErrorInfo:
    """Run one activity; an ``ErrorInfo`` if this worker cannot make the call but another may."""
    within = order.begin_within_s
    try:
        body: dict[str, Any] = await workflow.execute_activity(
            payloads.CALL,
            order.body,
            result_type=dict[str, Any],
            schedule_to_start_timeout=None if within is None else timedelta(seconds=within),
            start_to_close_timeout=timedelta(seconds=order.timeout_s + _TURN_S),
            heartbeat_timeout=timedelta(seconds=lease_s),
            retry_policy=_ONCE,
            summary=order.summary,
        )
    except ActivityError as error:
        return what_came(error, probing=order.probing)
    outcome = payloads.read_outcome(body)
    if outcome is not None:
        return outcome
    if body.get("is") == "changed":
        return body
    if body.get("is") == "absent":
        return payloads.read_error(body["error"])
    return Unknown(ErrorInfo("worker_newer", f"a worker of another version answered {str(body.get('is'))[:80]!r}"))


def what_came(error: ActivityError, *, probing: bool) -> Outcome | ErrorInfo:
    """Interpret an activity's failure; an ``ErrorInfo`` if another worker can still make the call.

    A probe that was not made says nothing about the call in question; its worker is gone.
    """
    outcome = _what_came(error.cause)
    return Unknown(outcome.error, lost=True) if probing and isinstance(outcome, NotDone) else outcome


def _what_came(cause: BaseException | None) -> Outcome | ErrorInfo:
    if isinstance(cause, ActivityTimeout):
        if payloads.WAITS in cause.last_heartbeat_details:
            info = ErrorInfo("worker_lost", "its worker is lost; the call had waited for a guard", retryable=True)
            return NotDone(info, retryable=True, counted=False)
        if cause.type == TimeoutType.SCHEDULE_TO_START:
            info = ErrorInfo("no_worker", "no worker began the call in time; nothing was called", retryable=True)
            return NotDone(info, retryable=True, counted=False)
        if cause.type == TimeoutType.HEARTBEAT:
            info = ErrorInfo("worker_lost", "the worker that had the call does not answer any more")
            return Unknown(info, lost=True)
        return Unknown(ErrorInfo("timeout", "the worker did not say in time what came of the call"))
    if isinstance(cause, ApplicationError):
        if cause.type == payloads.NOT_CALLED:
            info = ErrorInfo("interrupted", cause.message[:1000], retryable=True)
            return NotDone(info, retryable=True, counted=False)
        if cause.type == "NotFoundError":  # the SDK's name for an activity that the worker does not have
            return ErrorInfo("worker_foreign", "a worker on this task queue runs no sagas")
        return Unknown(ErrorInfo("worker_failed", f"{cause.type}: {cause.message}"[:1000]))
    said = "its worker was stopped" if cause is None else f"{type(cause).__name__}: {cause}"
    return Unknown(ErrorInfo("worker_stopped", f"it is not known what came of the call: {said}"[:1000]), lost=True)


async def perform_lesson(body: dict[str, Any]) -> None:
    """Have a worker remember an operator's decision about a call. A failure is logged: the claim has no result."""
    try:
        await workflow.execute_activity(
            payloads.LEARN,
            body,
            start_to_close_timeout=timedelta(seconds=_LEARN_S / 4),
            schedule_to_close_timeout=timedelta(seconds=_LEARN_S),
        )
    except ActivityError as error:
        workflow.logger.warning("what a person said of a call of %s is not remembered: %s", body["tool"], error.cause)


async def perform_alert(question: dict[str, Any] | None, now_ms: int, lease_s: float) -> ErrorInfo | None:
    """Send the alerts; None if all were sent, or if the question has been answered meanwhile."""
    if question is None:
        return None
    try:
        said = await workflow.execute_activity(
            payloads.ALERT,
            {"question": question, "now_ms": now_ms},
            result_type=dict[str, Any],
            start_to_close_timeout=timedelta(seconds=_ALERT_S),
            heartbeat_timeout=timedelta(seconds=lease_s),
            retry_policy=_ONCE,
        )
    except ActivityError as error:
        return ErrorInfo("alert_failed", f"the worker that was to notify operators failed: {error.cause}"[:1000])
    return None if said.get("error") is None else payloads.read_error(said["error"])


async def perform_question(body: dict[str, Any], lease_s: float) -> dict[str, Any] | ErrorInfo:
    """Ask a model for steps; its answer as ``payloads.advice_body`` makes it."""
    try:
        said: dict[str, Any] = await workflow.execute_activity(
            payloads.ASK,
            body,
            result_type=dict[str, Any],
            start_to_close_timeout=timedelta(seconds=_ASK_S),
            heartbeat_timeout=timedelta(seconds=lease_s),
            retry_policy=_ONCE,
        )
    except ActivityError as error:
        # A worker that died or froze is like a model that is away: another worker may be there later.
        code = UNREACHED if isinstance(error.cause, ActivityTimeout) else "planner_unavailable"
        return ErrorInfo(code, f"the worker that was to ask failed: {error.cause}"[:1000])
    return said


async def the_means() -> dict[str, Any]:
    """The workers' capabilities beside calls. The activity changes nothing, so Temporal may repeat it."""
    said: dict[str, Any] = await workflow.execute_activity(
        payloads.CAPABILITIES, result_type=dict[str, Any], start_to_close_timeout=timedelta(seconds=10)
    )
    return said


@contextmanager
def refused() -> Iterator[None]:
    """An engine's refusal as a rejected update: it adds nothing to the history."""
    try:
        yield
    except SagaError as error:
        problems: Sequence[Any] = [each.to_dict() for each in error.problems] if isinstance(error, PlanInvalid) else ()
        details = {"message": error.message, "hint": error.hint, "problems": list(problems)}
        raise ApplicationError(error.message, details, type=error.code, non_retryable=True) from error


@contextmanager
def growing(state: State, started: Any, catalog: ToolCatalog) -> Iterator[None]:
    """Let the saga's plan grow with a different tool catalog, for a check that changes nothing."""
    before, state.growth = state.growth, Growth(started, catalog)
    try:
        yield
    finally:
        state.growth = before
