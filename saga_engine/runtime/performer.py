"""Performs effects. It does only what a journalled record orders, and only while the lease has time left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from saga_engine.core.effects import (
    COMPENSATE,
    Alert,
    AnyEffect,
    AskPlanner,
    CallTool,
    ErrorInfo,
    LookAfterUndo,
    NotDone,
    Outcome,
    Probe,
    ReadBefore,
    Unknown,
)
from saga_engine.core.images import Image
from saga_engine.core.interpret import Advice
from saga_engine.core.state import State, StateScope
from saga_engine.errors import SecretMissing
from saga_engine.execution.calls import Lesson, call_of, misfit, scrub
from saga_engine.execution.computing import computed
from saga_engine.execution.planner_requests import advise, capabilities_of
from saga_engine.execution.questions import abandonable, question_of, tell
from saga_engine.language.errors import said
from saga_engine.plan.compiled import CompiledCall, CompiledFallback, CompiledPlan
from saga_engine.plan.tool_spec import Semantic
from saga_engine.ports import Advisor, Call, Escalation, Tools, Tracing
from saga_engine.runtime.image_reader import ImageReader
from saga_engine.runtime.lease import Share
from saga_engine.runtime.secret_scope import SecretScope, secret_value


class Performer:
    """Makes calls, probes and alerts for all sagas of a process."""

    __slots__ = (
        "_advisor",
        "_escalation",
        "_permit",
        "_tools",
        "begun",
        "capabilities",
        "catalog",
        "images",
        "lease",
        "remind_ms",
    )

    def __init__(
        self, tools: Tools, lease: Share, escalation: Escalation, advisor: Advisor | None, semantic: Semantic
    ) -> None:
        self._tools = self.catalog = tools
        self._escalation = escalation
        self._advisor = advisor
        self.lease = lease
        self._permit = lease.check
        #: The reads around calls whose values are watched.
        self.images = ImageReader(tools, lease.check)
        #: What this process can do beside calling tools.
        self.capabilities = capabilities_of(escalation, advisor, semantic)
        self.remind_ms = round(escalation.remind_s * 1000)
        #: How many effects were started: calls, undos, probes, alerts and requests to a model.
        self.begun = 0

    def call(
        self,
        state: State,
        effect: CallTool,
        waits: Callable[[Call, bool], Awaitable[Outcome | None] | None] | None = None,
        wanted: Callable[[], bool] | None = None,
    ) -> Coroutine[Any, Any, Outcome]:
        """One attempt. Raises ``LeaseLost`` before anything is started if the lease has no time left."""
        if state.plan.computes:
            return self._computed_call(state, effect, waits, wanted)
        serving = state.serving(effect.step, effect.direction)
        template = serving.params
        call = call_of(state, effect, effect.direction, serving.timeout_s, self._permit, waits=waits, wanted=wanted)
        if type(serving) is CompiledFallback and serving.way == "cached":
            return self._tools.last_good(serving.tool, template.resolve(StateScope(state)), serving.max_age_s, call)
        if state.plan.images:
            call = self.images.watched(state, effect, call)
        if template.secrets:
            return self._call_with_secrets(state, serving, call)
        params = template.resolve(StateScope(state))
        self._permit()
        return self._tools.call(serving.tool, params, call)

    async def _computed_call(
        self,
        state: State,
        effect: CallTool,
        waits: Callable[[Call, bool], Awaitable[Outcome | None] | None] | None,
        wanted: Callable[[], bool] | None,
    ) -> Outcome:
        """As ``call``, of a plan that computes: what its params compute may be done in a thread."""
        serving, way = state.serving(effect.step, effect.direction), effect.direction
        limit_s, permit = serving.timeout_s, self._permit
        call = await computed(lambda: call_of(state, effect, way, limit_s, permit, waits=waits, wanted=wanted))
        if serving.params.secrets:
            if state.plan.images:
                call = self.images.watched(state, effect, call)
            return await self._call_with_secrets(state, serving, call)
        params = await computed(lambda: serving.params.resolve(StateScope(state)))
        if type(serving) is CompiledFallback and serving.way == "cached":
            return await self._tools.last_good(serving.tool, params, serving.max_age_s, call)
        if state.plan.images:
            call = self.images.watched(state, effect, call)
        self._permit()
        return await self._tools.call(serving.tool, params, call)

    def perform(
        self,
        state: State,
        effect: AnyEffect,
        waits: Callable[[Call, bool], Awaitable[Outcome | None] | None],
        wanted: Callable[[], bool],
    ) -> Awaitable[Any]:
        """The outcome of any effect; raises ``LeaseLost`` before anything is started."""
        if type(effect) is CallTool:
            return self.call(state, effect, waits, wanted)
        if type(effect) is Alert:
            return self.alert(state, effect)
        if type(effect) is AskPlanner:
            return self.advise(state, effect)
        if type(effect) is ReadBefore:
            return self.images.read(state, effect.step)
        if type(effect) is LookAfterUndo:
            return self.look(state, effect)
        assert type(effect) is Probe
        return self.probe(state, effect)

    async def look(self, state: State, effect: LookAfterUndo) -> Image | Outcome:
        """What is there after an undo."""
        if effect.by == "probe":
            return await self._asked(state, Probe(effect.step, COMPENSATE, 1))
        return await self.images.after_undo(state, effect)

    async def _call_with_secrets(self, state: State, serving: CompiledCall, call: Call) -> Outcome:
        scope, template = SecretScope(state), serving.params
        try:
            params = await computed(lambda: template.resolve(scope))
        except SecretMissing as error:
            # Checked before the saga was taken over, so the variable was removed since; nothing has been called.
            return NotDone(ErrorInfo(error_code="secret_missing", message=error.message, suggestion=error.hint))
        refused = misfit(serving.spec, params)
        if refused is not None:
            return refused
        call = call._replace(masked=await computed(lambda: template.resolve(StateScope(state))))
        self.lease.check()
        return scrub(await self._tools.call(serving.tool, params, call), scope.seen)

    async def probe(self, state: State, effect: Probe) -> Outcome:
        """Ask whether the call happened."""
        outcome = await self._asked(state, effect)
        return await self.images.settle(state, effect, outcome) if state.plan.images else outcome

    async def _asked(self, state: State, effect: Probe) -> Outcome:
        """What the tool's probe says."""
        serving = state.serving(effect.step, effect.direction)
        scope = SecretScope(state)
        try:
            params = await computed(lambda: serving.params.resolve(scope))
        except SecretMissing as error:
            return Unknown(ErrorInfo(error_code="secret_missing", message=error.message, suggestion=error.hint))
        call = call_of(state, effect, "probe", serving.timeout_s, self._permit)
        if serving.params.secrets:
            call = call._replace(masked=await computed(lambda: serving.params.resolve(StateScope(state))))
        self.lease.check()
        return scrub(await self._tools.probe(serving.tool, params, call), scope.seen)

    async def learn(self, lesson: Lesson, age_ms: int = 0) -> None:
        """An operator said ``age_ms`` ago that a call happened, and that is durable: de-duplication stores its result.

        Raises ``StoreUnavailable``.
        """
        await self._tools.learn(*lesson, age_ms=age_ms)

    async def alert(self, state: State, effect: Alert) -> ErrorInfo | None:
        """Notify all hooks about a question, concurrently; None if all succeeded."""
        question = question_of(state, effect)
        if question is None:
            return None  # answered in the meantime
        self.lease.check()
        return await tell(self._escalation, question, state.at)

    async def advise(self, state: State, effect: AskPlanner) -> Advice | ErrorInfo:
        """Ask a model for steps."""
        if self._advisor is None:
            return ErrorInfo("planner_unavailable", said("planner_unavailable.here"))
        self.lease.check()
        return await abandonable(advise(state, effect, self._advisor, self._tools, self.capabilities))


class TracedPerformer(Performer):
    """Makes calls and probes in the context of their spans."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Tracing, *settings: Any) -> None:
        super().__init__(*settings)
        self._spans = spans

    def call(
        self,
        state: State,
        effect: CallTool,
        waits: Callable[[Call, bool], Awaitable[Outcome | None] | None] | None = None,
        wanted: Callable[[], bool] | None = None,
    ) -> Coroutine[Any, Any, Outcome]:
        """See ``Performer.call``."""
        made = super().call(state, effect, waits, wanted)
        return self._spans.within(state.saga_id, state.plan.steps[effect.step].key, effect.direction, made)

    async def probe(self, state: State, effect: Probe) -> Outcome:
        """See ``Performer.probe``."""
        made = super().probe(state, effect)
        return await self._spans.within(state.saga_id, state.plan.steps[effect.step].key, effect.direction, made)


def require_secrets(compiled: CompiledPlan) -> None:
    """Raises ``SecretMissing`` before anything is journalled or taken over."""
    for name in compiled.secrets:
        secret_value(name)
