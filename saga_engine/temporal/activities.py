"""The activities of a worker: calls and probes, alerts, and questions to a model.

Each activity sends heartbeats. Right before a call begins, it checks once more that Temporal has not given it up: a
process that was frozen must not resume and begin a call that has been settled meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import Any, Final, Protocol

import msgspec
from temporalio import activity
from temporalio.exceptions import ApplicationError

from saga_engine.analysis.trace import declared
from saga_engine.core.decide import Capabilities
from saga_engine.core.effects import AskPlanner, Done, ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.core.fold import state_of
from saga_engine.core.interpret import Advice
from saga_engine.core.masking import Mask
from saga_engine.core.redaction import REDACTED
from saga_engine.core.state import State
from saga_engine.errors import LeaseLost
from saga_engine.execution.calls import misfit, scrub
from saga_engine.execution.questions import tell
from saga_engine.loggers import logger_of
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
from saga_engine.ports import Call, Escalation, Question, Tools
from saga_engine.ports.defects import log_defect
from saga_engine.temporal import payloads
from saga_engine.temporal.pulse import beating, require_ours
from saga_engine.temporal.secrets import filled

_QUESTION_FIELDS: Final = frozenset(each.name for each in fields(Question))

#: So many warnings are remembered, so that none is repeated.
_MOST_SAID: Final = 10_000

_log = logger_of("saga_engine.worker")

Asking = Callable[[State, AskPlanner], Awaitable[Advice | ErrorInfo]]


class WorkerClock(Protocol):
    """The clock that guards use; it is set from Temporal's."""

    def set(self, now_ms: int) -> None:
        """Set the clock to ``now_ms`` (Unix ms)."""


class Activities:
    """The activities of one worker.

    ``ask`` asks a model for steps (None: this worker has no planner). ``most_bytes`` is the largest output that
    Temporal accepts; None: any, because large ones are stored beside it.
    """

    def __init__(
        self,
        tools: Tools,
        *,
        clock: WorkerClock,
        escalation: Escalation,
        ask: Asking | None,
        capabilities: Capabilities,
        most_bytes: int | None,
    ) -> None:
        self._tools = tools
        self._clock = clock
        self._escalation = escalation
        self._ask = ask
        self._capabilities = capabilities
        self._most_bytes = most_bytes
        self._said: set[tuple[str, str, str]] = set()

    def all(self) -> list[Callable[..., Any]]:
        """All activities, for a worker."""
        return [self.call, self.learn, self.alert, self.ask, self.capabilities]

    @activity.defn(name=payloads.CALL)
    async def call(self, body: dict[str, Any]) -> dict[str, Any]:
        """Make a call, a probe, a read, or a lookup of a cached result, once."""
        order = msgspec.convert(body, payloads.Order)
        self._clock.set(round(activity.info().started_time.timestamp() * 1000))  # the server's time
        spec = self._tools.spec(order.tool)
        if spec is None:
            return self._absent(
                order, ErrorInfo("tool_missing", f"no worker that answers has the tool {order.tool[:80]!r}")
            )
        values = {name: os.environ.get(name) for name in order.secrets}
        missing = sorted(name for name, value in values.items() if value is None)
        if missing:
            message = f"the environment of the worker has no {', '.join(missing)}"
            hint = "set it in the environment of the workers, and start them again"
            return self._absent(order, ErrorInfo("secret_missing", message, suggestion=hint))
        secrets = {name: value for name, value in values.items() if value is not None}
        params = filled(order.params, order.nonce, secrets) if secrets else order.params
        if order.digest and spec.digest != order.digest and order.way == "call":
            problems = spec.check_params(params)
            if problems:
                refused = NotDone(ErrorInfo("params_invalid", problems[0][1][:1000]))
                said = payloads.outcome_body(scrub(refused, secrets))
                return {"is": "changed", "declared": declared({order.tool: ""}, self._tools), "error": said["error"]}
        unfit = misfit(spec, params) if secrets and order.way == "call" else None
        if unfit is not None:
            return payloads.outcome_body(unfit)
        async with beating() as pulse:
            await require_ours()
            call = payloads.read_call(order.call)._replace(permit=pulse.permit, waits=pulse.waits)
            outcome = scrub(await self._made(order, params, call), secrets)
        if not isinstance(outcome, Done):
            log_defect(
                _logged(outcome.error, spec, params, private=order.private),
                tool=order.tool,
                saga_id=call.saga_id,
                step=order.step_id,
                direction=call.direction,
                attempt=call.attempt,
            )
        return self._told(outcome)

    def _absent(self, order: payloads.Order, error: ErrorInfo) -> dict[str, Any]:
        """This worker cannot make the call; another one may. Nothing was called. The log says so once."""
        said = (activity.info().workflow_id or "", str(order.step_id), error.message)
        if said not in self._said:
            if len(self._said) >= _MOST_SAID:
                self._said.clear()
            self._said.add(said)
            _log.warning("saga %s: step %s waits until a worker can make its call: %s", *said)
        return {"is": "absent", "error": msgspec.to_builtins(error)}

    async def _made(self, order: payloads.Order, params: dict[str, Any], call: Call) -> Outcome:
        assert call.permit is not None
        try:
            call.permit()
            if order.way == "probe":
                return await self._tools.probe(order.tool, params, call)
            if order.way == "read":
                return await self._tools.read(order.tool, params, call)
            if order.way == "cached":
                return await self._tools.last_good(order.tool, params, order.max_age_s, call)
            return await self._tools.call(order.tool, params, call)
        except LeaseLost as error:
            raise ApplicationError(error.message, type=payloads.NOT_CALLED, non_retryable=True) from error

    def _told(self, outcome: Outcome) -> dict[str, Any]:
        if isinstance(outcome, Done) and self._most_bytes is not None:
            size = len(msgspec.json.encode(outcome.output))
            if size > self._most_bytes:
                # It happened, but its result cannot be returned.
                text = (
                    f"the output has {size} bytes; more than {self._most_bytes} go through Temporal only with a store"
                )
                hint = "give workers and clients the same store, which keeps large values"
                outcome = Unknown(ErrorInfo("output_too_large", text, suggestion=hint))
        return payloads.outcome_body(outcome)

    @activity.defn(name=payloads.LEARN)
    async def learn(self, body: dict[str, Any]) -> None:
        """Remember an operator's 'happened' about a call, for identical calls of other sagas."""
        if self._tools.spec(body["tool"]) is None:
            raise ApplicationError(f"no worker that answers has the tool {body['tool'][:80]!r}")  # another may have it
        await self._tools.learn(body["tool"], body["params"], body["output"], payloads.read_call(body["call"]))

    @activity.defn(name=payloads.ALERT)
    async def alert(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send an alert about a question."""
        given = {name: value for name, value in body["question"].items() if name in _QUESTION_FIELDS}
        question = Question(**{**given, "options": tuple(given["options"])})
        async with beating():
            error = await tell(self._escalation, question, body["now_ms"])
        return {"error": None if error is None else msgspec.to_builtins(error)}

    @activity.defn(name=payloads.ASK)
    async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """Ask a model for steps."""
        if self._ask is None:
            return payloads.advice_body(ErrorInfo("planner_unavailable", "no planner is set up here"), {})
        async with beating():
            state = _state(body, self._tools)
            advice = await self._ask(state, AskPlanner(state.plan.by_key[body["step"]], body["purpose"]))
        return payloads.advice_body(advice, _declared_for(advice, self._tools))

    @activity.defn(name=payloads.CAPABILITIES)
    async def capabilities(self) -> dict[str, Any]:
        """The capabilities of this worker beside calls."""
        capabilities = self._capabilities
        return {
            "alerting": capabilities.alerting,
            "planner": capabilities.planner,
            "semantic": capabilities.semantic,
            "remind_ms": round(self._escalation.remind_s * 1000),
        }


def _logged(error: ErrorInfo, spec: ToolSpec, params: Mapping[str, Any], *, private: bool) -> ErrorInfo:
    """An error in a form fit for this worker's log. The worker does not know the rest of the saga."""
    mask = Mask({spec.name: spec.sensitive})
    for name in mask.names(spec.name) & params.keys():
        mask.learn(params[name])
    masked = mask.error(error)
    return msgspec.structs.replace(masked, message=REDACTED, suggestion=None) if private else masked


def _state(body: Mapping[str, Any], catalog: ToolCatalog) -> State:
    """The state of the saga, for a model's prompt. Raises ``JournalUnreadable``."""
    values = {digest: payloads.unpack(text) for digest, text in body["values"].items()}
    return state_of(payloads.whole_records(payloads.unpack_journal(body["journal"]), values), catalog)


def _declared_for(advice: Advice | ErrorInfo, catalog: ToolCatalog) -> dict[str, Any]:
    """The declarations of the tools that a model's steps use, and of their undos."""
    if isinstance(advice, ErrorInfo):
        return {}
    return declarations_of(advice.steps, catalog)


def declarations_of(steps: Any, catalog: ToolCatalog) -> dict[str, Any]:
    """The declarations of the tools that steps name, and of their registered undos; steps may be any JSON."""
    names: dict[str, str] = {}

    def look(value: Any) -> None:
        if isinstance(value, dict):
            tool = value.get("tool")
            if isinstance(tool, str):
                names[tool] = ""
                spec = catalog.spec(tool)
                if spec is not None and spec.undo is not None:
                    names.update(dict.fromkeys([spec.undo, *(call["tool"] for call in spec.undo_then)], ""))
            for part in ("rollback", "then", "when_absent", "fallback"):
                look(value.get(part))
        elif isinstance(value, list | tuple):
            for item in value:
                look(item)

    look(list(steps))
    return declared(names, catalog)
