"""Opens the session of an agent: one that is held to everything, or one that only observes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from saga_engine.agents.brought import AgentSession, Life, Registering
from saga_engine.agents.guards import AgentRules
from saga_engine.agents.observing import ObservedSession, observed, observed_path
from saga_engine.agents.replaying import replayed
from saga_engine.agents.watch import Watch
from saga_engine.errors import NeedsPerson
from saga_engine.execution.ids import check_saga_id, new_saga_id
from saga_engine.execution.search import check_tags
from saga_engine.execution.templates import Templates
from saga_engine.plan.operator_limits import Limits, limits_from
from saga_engine.policy.rules import Policy
from saga_engine.ports import Store
from saga_engine.runtime.session import Session
from saga_engine.runtime.session_block import opened
from saga_engine.runtime.session_options import Diverging, OnFailure
from saga_engine.runtime.session_start import session_handle
from saga_engine.runtime.supervisor import Supervisor
from saga_engine.tools.registry import ToolRegistry


class Host(Protocol):
    """The coordinator, as a session needs it."""

    store: Store
    tools: ToolRegistry
    limits: Limits
    policy: Policy | None
    supervisor: Supervisor
    agents: AgentRules

    @property
    def templates(self) -> Templates:
        """The templates of the store."""
        ...


@asynccontextmanager
async def open_session(
    host: Host,
    registering: Registering,
    *,
    saga_id: str | None,
    goal: str,
    on_divergence: Diverging,
    on_failure: OnFailure | None,
    idle_s: float | None,
    deadline_s: float | None,
    max_tool_calls: int | None,
    tags: Sequence[str],
    tools: Iterable[Any],
    limits: Limits | Mapping[str, Any] | None,
    observe: bool | None,
    replay: str | Path | None,
) -> AsyncIterator[Session]:
    """A session for the duration of a block; see ``Coordinator.session``, which has the meaning of each option."""
    if replay is not None:
        async with replayed(replay, [host.tools, *tools], saga_id=saga_id) as again:
            yield again
        return
    name = check_saga_id(saga_id or new_saga_id())
    life = Life(registering, name)
    if path := observed_path(observe, host.agents.observes):
        seen = ObservedSession(name, host.tools, host.policy, host.store.guard_store(), path)
        try:
            async with observed(seen, host.agents.guards, host.tools, life.adopt, tools) as session:
                yield session
        finally:
            life.end(over=True)
        return
    own = {"deadline_s": deadline_s, "max_tool_calls": max_tool_calls}
    check_tags(tags)
    body: dict[str, Any] = {"goal": goal, "steps": []} | ({"tags": list(tags)} if tags else {})
    body |= {key: value for key, value in own.items() if value is not None}
    strict = host.limits.tightened(limits_from(limits))
    handle = partial(session_handle, host.store, host.supervisor, host.tools, limits=strict)

    def made() -> AgentSession:
        session = AgentSession(name, host.tools, diverging=on_divergence, on_failure=on_failure, idle_s=idle_s)
        session.life, session.adopt, session.expanded = life, life.adopt, host.templates.expanded
        session.watch = Watch(
            *(host.tools, host.agents.guards, session.repeats),
            costs_of=host.tools.costs_of,
            now_ms=host.supervisor.clock.now_ms,
        )
        session.bring(*tools)
        return session

    agent = made()
    try:
        async with AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(opened(agent, handle, body))
            except NeedsPerson as error:  # the answer that gives it the session may be read only now
                if error.context.get("kind") != "session-kept":
                    raise
                agent = made()
                session = await stack.enter_async_context(opened(agent, handle, body))
            yield session
    finally:
        life.end(over=agent.at_an_end)
