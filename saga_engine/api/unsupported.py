"""What a coordinator of sagas in Temporal refuses, with the way that leads on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NoReturn

from saga_engine.api.engine import PlanSource
from saga_engine.api.search import SearchesNothing
from saga_engine.errors import RuntimeUnsupported


class Unsupported(SearchesNothing):
    """The part of ``TemporalCoordinator`` that ``Coordinator`` has and Temporal has not."""

    def session(self, saga_id: str | None = None, **_options: Any) -> NoReturn:
        """Raises ``RuntimeUnsupported``: an agent's session needs a store of its own."""
        raise RuntimeUnsupported(
            "sessions are not for Temporal: an agent's calls are made in its own process",
            hint="open a session with Coordinator.open(store), beside the sagas in Temporal",
            **({} if saga_id is None else {"saga_id": saga_id}),
        )

    async def fork(self, saga_id: str, **_options: Any) -> NoReturn:
        """Raises ``RuntimeUnsupported``: who owns an effect is kept in a store."""
        raise RuntimeUnsupported(
            "sagas in Temporal are not forked: which saga owns an effect is kept in a store, and workflows share none",
            hint="run the corrected plan as a new saga",
            saga_id=saga_id,
        )

    async def undo(self, saga_id: str, **_options: Any) -> NoReturn:
        """Raises ``RuntimeUnsupported``: who owns an effect is kept in a store."""
        raise RuntimeUnsupported(
            "completed sagas in Temporal are not undone: which saga owns an effect is kept in a store",
            hint="submit the undos as a new saga",
            saga_id=saga_id,
        )

    async def plan(
        self,
        goal: str,  # noqa: ARG002
        *,
        input: Mapping[str, Any] | None = None,  # noqa: A002, ARG002
        tags: Iterable[str] = (),  # noqa: ARG002
        limit: int | None = None,  # noqa: ARG002
        intent: str | None = None,  # noqa: ARG002
        answers: Mapping[str, Any] | None = None,  # noqa: ARG002
        now: datetime | None = None,  # noqa: ARG002
        revise: PlanSource | None = None,  # noqa: ARG002
        progress: Callable[[Mapping[str, Any]], None] | None = None,  # noqa: ARG002
        may_use: Iterable[str] | None = None,  # noqa: ARG002
        on_failure: str | None = None,  # noqa: ARG002
    ) -> NoReturn:
        """Raises ``RuntimeUnsupported``: a client of Temporal has no planner."""
        raise _no_planner()

    async def plan_and_run(
        self,
        goal: str,  # noqa: ARG002
        *,
        saga_id: str | None = None,  # noqa: ARG002
        input: Mapping[str, Any] | None = None,  # noqa: A002, ARG002
        intent: str | None = None,  # noqa: ARG002
        answers: Mapping[str, Any] | None = None,  # noqa: ARG002
        on_failure: str | None = None,  # noqa: ARG002
        may_use: Iterable[str] | None = None,  # noqa: ARG002
    ) -> NoReturn:
        """Raises ``RuntimeUnsupported``: a client of Temporal has no planner."""
        raise _no_planner()

    async def erase(self, saga_id: str, **_options: Any) -> NoReturn:
        """Raises ``RuntimeUnsupported``: what is erased is the key of a saga in a sealed store."""
        raise RuntimeUnsupported(
            "sagas in Temporal are not erased: erasing destroys the key of a saga in a sealed store",
            hint="delete the workflow in Temporal, or run such sagas with a sealed store",
            saga_id=saga_id,
        )

    async def send_event(self, name: str, key: str | int, payload: Any = None, **_options: Any) -> NoReturn:  # noqa: ARG002
        """Raises ``RuntimeUnsupported``: events and waits find each other in a store."""
        raise _no_events()

    async def answer_wait(self, saga_id: str, step_id: int | str, payload: Any = None, **_options: Any) -> NoReturn:  # noqa: ARG002
        """Raises ``RuntimeUnsupported``: events and waits find each other in a store."""
        raise _no_events(saga_id=saga_id)

    async def require_waiting(self, saga_id: str, step_id: int | str, **_options: Any) -> NoReturn:  # noqa: ARG002
        """Raises ``RuntimeUnsupported``: events and waits find each other in a store."""
        raise _no_events(saga_id=saga_id)

    async def events(self, name: str | None = None, key: str | int | None = None, **_options: Any) -> NoReturn:  # noqa: ARG002
        """Raises ``RuntimeUnsupported``: events and waits find each other in a store."""
        raise _no_events()

    async def overview(self) -> NoReturn:
        """Raises ``RuntimeUnsupported``: Temporal has the queue of its workers."""
        raise RuntimeUnsupported(
            "the work and the workers of Temporal are not counted here: they are the task queue's",
            hint="look at the task queue in Temporal's own UI, or with `temporal task-queue describe`",
        )

    async def tool_stats(self) -> NoReturn:
        """Raises ``RuntimeUnsupported``: workers guard the calls, with the store that they share."""
        raise RuntimeUnsupported(
            "a client of Temporal has no counters of tools: workers guard the calls, with the store that they share",
            hint="ask a Coordinator of the workers' store: Coordinator.open(store).tool_stats()",
        )


def _no_events(**about: str) -> RuntimeUnsupported:
    return RuntimeUnsupported(
        "no saga in Temporal waits for an event: events and waits find each other in a store",
        hint="run plans that wait for events with a store, and send the event to that store",
        **about,
    )


def _no_planner() -> RuntimeUnsupported:
    return RuntimeUnsupported(
        "a coordinator of Temporal asks no model for plans",
        hint="make the plan with `saga plan`, or with the `plan` of a Coordinator, and submit it here",
    )
