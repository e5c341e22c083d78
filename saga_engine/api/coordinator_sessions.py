"""The sessions of a coordinator's agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from saga_engine.api.plans import Registration
from saga_engine.plan.operator_limits import Limits
from saga_engine.policy.rules import Policy
from saga_engine.ports import Store
from saga_engine.runtime.supervisor import Supervisor
from saga_engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from saga_engine.agents.guards import AgentRules
    from saga_engine.agents.opening import Host
    from saga_engine.api.governing import SettingsChoice
    from saga_engine.runtime.session import Session
    from saga_engine.runtime.session_options import Diverging, OnFailure
    from saga_engine.settings import SettingsFile


class Sessions:
    """The part of ``Coordinator`` for agents that call their tools as they go."""

    store: Store
    tools: ToolRegistry
    limits: Limits
    policy: Policy | None
    supervisor: Supervisor
    #: What the settings say of agents: guards against loops, and whether their sessions only observe.
    agents: AgentRules
    _registration: Registration

    def _read_agents(self, settings: SettingsChoice, files: Sequence[SettingsFile]) -> None:
        from saga_engine.agents.guards import agent_rules

        self.agents = agent_rules(settings, files)

    def session(
        self,
        saga_id: str | None = None,
        *,
        goal: str = "",
        on_divergence: Diverging = "strict",
        on_failure: OnFailure | None = None,
        idle_s: float | None = None,
        deadline_s: float | None = None,
        max_tool_calls: int | None = None,
        tags: Sequence[str] = (),
        tools: Iterable[Any] = (),
        limits: Limits | Mapping[str, Any] | None = None,
        observe: bool | None = None,
        replay: str | Path | None = None,
    ) -> AbstractAsyncContextManager[Session]:
        """A session for an agent that calls its tools as it goes; see ``Session``.

        Leaving the block completes the session; an exception undoes its calls in reverse by default, and is re-raised.
        With the id of an open session (the agent crashed), calls that match the recorded ones return their outcomes.
        ``on_divergence``: what to do when the agent diverges: ``strict`` raises ``SessionDiverged`` and changes
        nothing, ``continue`` continues live from there, ``rollback`` undoes everything; ``append`` compares nothing:
        all calls of this run come after the recorded ones. ``on_failure``: what an exception does: ``undo``; ``keep``
        leaves the session open, and the agent that runs again makes the calls that failed last anew and no other;
        ``ask`` asks an operator which; by default ``undo``, and ``ask`` if a call of an undeclared tool stands.
        ``idle_s``: after so many seconds without the agent or an answer a kept session is undone. ``tags``: words by
        which ``search`` finds a new session. ``tools``: those that only the agent has.
        ``limits``: for a new session, where they are stricter than the operator's. ``observe``: it stops nothing, and
        what the engine would have done is written to a file (docs/observe.md); by default what the settings say.
        ``replay``: a trace file; the agent is answered by it, and nothing is called (docs/debugging.md).
        Raises ``LeaseHeld`` (another process owns it), ``SagaExists`` (the id belongs to a saga with a plan),
        ``SessionEnded``, ``NeedsPerson``, ``ToolMissing``, ``SettingInvalid``.
        """
        from saga_engine.agents.opening import open_session

        return open_session(
            cast("Host", self),
            self._registration,
            saga_id=saga_id,
            goal=goal,
            on_divergence=on_divergence,
            on_failure=on_failure,
            idle_s=idle_s,
            deadline_s=deadline_s,
            max_tool_calls=max_tool_calls,
            tags=tags,
            tools=tools,
            limits=limits,
            observe=observe,
            replay=replay,
        )
