"""The interface that every engine provides, on whatever runtime: one surface for programs and for the command line.

``Coordinator`` implements it with the built-in runtime, ``TemporalCoordinator`` with Temporal. ``tests/engines`` runs
one suite on both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from saga_engine.errors import Problem, SagaError
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.execution.search import SagaPage
from saga_engine.plan.model import Plan
from saga_engine.ports import Head

if TYPE_CHECKING:
    from saga_engine.analysis.simulation import Rehearsal
    from saga_engine.analysis.trace import Export
    from saga_engine.tools.registry import ToolRegistry

PlanSource = Plan | Mapping[str, Any] | str | bytes | Path


class Ownership(NamedTuple):
    """The owner of a saga that has not ended: ``elsewhere``, a live process other than this one.

    ``unread`` messages wait for its next driver.
    """

    elsewhere: bool = False
    unread: int = 0


class Engine(Protocol):
    """Submits, shows and answers sagas.

    ``drives``: this process calls the tools, so it needs them; else workers do, and this process only waits. All
    methods raise ``StoreUnavailable`` or ``RuntimeUnavailable`` when the journals cannot be reached. What a runtime
    cannot do raises ``RuntimeUnsupported``.
    """

    drives: bool
    tools: ToolRegistry

    def check(self, plan: PlanSource, *, input: Mapping[str, Any] | None = None) -> list[Problem]:  # noqa: A002
        """The problems of a plan with these tools; an empty list if it can be submitted."""
        ...

    async def simulate(self, plan: PlanSource, *, input: Mapping[str, Any] | None = None) -> Rehearsal:  # noqa: A002
        """Simulate every single failure of a plan. No tool is called and nothing is stored."""
        ...

    async def submit(
        self,
        plan: PlanSource | None = None,
        *,
        template: str | None = None,
        saga_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        tags: Sequence[str] = (),
        detach: bool = False,
    ) -> Handle:
        """Journal the plan and return. With ``detach`` workers drive it, and the handle has its current state."""
        ...

    async def run(
        self,
        plan: PlanSource | None = None,
        *,
        template: str | None = None,
        saga_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        tags: Sequence[str] = (),
    ) -> SagaResult:
        """``submit``, then wait until the saga ends or needs an operator. Cancelling the wait leaves it running."""
        ...

    async def resume(self, saga_id: str) -> SagaResult:
        """Continue a saga until it ends or needs an operator; one that has ended is only shown."""
        ...

    async def resume_all(self) -> dict[str, SagaResult | SagaError]:
        """Resume all sagas that can continue. An error stands in its saga's place."""
        ...

    async def wait(self, saga_id: str) -> SagaResult:
        """Wait until a saga ends or needs an operator, in whatever process it runs."""
        ...

    async def cancel(self, saga_id: str, *, by: str = "", note: str = "", wait: bool = True) -> SagaResult:
        """Compensate a saga. Without ``wait`` the message is only sent."""
        ...

    async def resolve(
        self,
        saga_id: str,
        step_id: int | str,
        decision: str,
        *,
        output: Any = None,
        by: str = "",
        note: str = "",
        expect: str = "",
        wait: bool = True,
    ) -> SagaResult:
        """Answer the open question about a step. Without ``wait`` the answer is only sent.

        ``expect``: the mark of the effects that it is to have.
        """
        ...

    async def amend(
        self, saga_id: str, steps: Sequence[Mapping[str, Any]], *, by: str = "", note: str = "", wait: bool = True
    ) -> SagaResult:
        """Add steps to a running saga."""
        ...

    async def ownership(self, saga_id: str) -> Ownership:
        """Whether another process drives a saga, and how many messages are unread."""
        ...

    async def show(self, saga_id: str, *, full: bool = False) -> SagaResult:
        """The state of a saga. Without ``full``, outputs over 31 KiB are in their cut form."""
        ...

    async def history(self, saga_id: str, *, full: bool = False) -> list[dict[str, Any]]:
        """The saga's records as plain JSON, each with its ``seq``."""
        ...

    def follow(self, saga_id: str, *, since: int = 0) -> AsyncIterator[dict[str, Any]]:
        """The saga's records as they become durable, in the form of ``history``, until the saga ends."""
        ...

    async def trace(
        self,
        saga_id: str,
        *,
        redact: Sequence[str] = (),
        full: bool = False,
        sign_key: bytes | None = None,
        into: Export | None = None,
    ) -> list[str]:
        """The run of a saga as lines of JSON that need no store (docs/trace.md)."""
        ...

    async def search(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        tags: Sequence[str] = (),
        tool: str | None = None,
        asks: bool = False,
        since_ms: int = 0,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SagaPage:
        """A page of the sagas that fit all of this, the most recently created first."""
        ...

    # (the last of all, because it shadows the type)
    async def list(self, status: str | None = None, *, limit: int = 1000) -> Sequence[Head]:
        """Summaries of sagas, the most recently changed first."""
        ...

    async def close(self) -> None:
        """Start nothing more and end all waits with ``Interrupted``; the sagas stay as they are."""
