"""What every engine offers, whatever runtime drives its sagas: one surface for programs and for the command line.

``Coordinator`` keeps it with the engine's own runtime, ``TemporalCoordinator`` with Temporal's. ``tests/engines`` runs
one suite on both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from saga_engine.analysis.simulation import Rehearsal
from saga_engine.errors import Problem, SagaError
from saga_engine.plan.model import Plan
from saga_engine.ports import Head
from saga_engine.runtime.result import Handle, Outcome

if TYPE_CHECKING:
    from saga_engine.analysis.trace import Export
    from saga_engine.tools.registry import ToolRegistry

PlanSource = Plan | Mapping[str, Any] | str | bytes | Path


class Ownership(NamedTuple):
    """Who acts on a saga that has not ended: ``elsewhere``, a live process other than this one.

    ``unread`` messages wait for whoever drives it next.
    """

    elsewhere: bool = False
    unread: int = 0


class Engine(Protocol):
    """Submits, shows and answers sagas.

    ``drives``: this process calls the tools, so it needs them; else workers do, and this process only waits.
    All methods raise ``StoreUnavailable`` or ``EngineUnavailable`` when the journals cannot be reached. What a runtime
    cannot do raises ``RuntimeUnsupported``.
    """

    drives: bool
    tools: ToolRegistry

    def check(self, plan: PlanSource, *, input: Mapping[str, Any] | None = None) -> list[Problem]:  # noqa: A002
        """All that is wrong with a plan for these tools; an empty list if it can be submitted."""
        ...

    async def simulate(self, plan: PlanSource, *, input: Mapping[str, Any] | None = None) -> Rehearsal:  # noqa: A002
        """What would become of a plan if any one thing went wrong. No tool is called and nothing is stored."""
        ...

    async def submit(
        self,
        plan: PlanSource,
        *,
        saga_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        detach: bool = False,
    ) -> Handle:
        """Journal the plan and return. With ``detach`` workers drive it, and the handle says how it stands now."""
        ...

    async def run(
        self,
        plan: PlanSource,
        *,
        saga_id: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> Outcome:
        """``submit``, then wait until the saga ends or needs a person. Cancelling the wait leaves it running."""
        ...

    async def resume(self, saga_id: str) -> Outcome:
        """Go on with a saga until it ends or needs a person; one that has ended is just shown."""
        ...

    async def resume_all(self) -> dict[str, Outcome | SagaError]:
        """Resume all sagas that can go on. An error stands in its saga's place."""
        ...

    async def wait(self, saga_id: str) -> Outcome:
        """Until a saga ends or needs a person, whoever drives it."""
        ...

    async def cancel(self, saga_id: str, *, by: str = "", note: str = "", wait: bool = True) -> Outcome:
        """Have a saga undone. Without ``wait`` the message is only sent."""
        ...

    async def decide(
        self,
        saga_id: str,
        step_id: int | str,
        decision: str,
        *,
        output: Any = None,
        by: str = "",
        note: str = "",
        wait: bool = True,
    ) -> Outcome:
        """Answer the open question about a step. Without ``wait`` the answer is only sent."""
        ...

    async def amend(
        self, saga_id: str, steps: Sequence[Mapping[str, Any]], *, by: str = "", note: str = "", wait: bool = True
    ) -> Outcome:
        """Add steps to a saga that is under way."""
        ...

    async def ownership(self, saga_id: str) -> Ownership:
        """Whether another process drives a saga, and how many messages nobody has read yet."""
        ...

    async def show(self, saga_id: str, *, full: bool = False) -> Outcome:
        """Where a saga stands. Without ``full``, outputs over 31 KiB are in their cut form."""
        ...

    async def history(self, saga_id: str, *, full: bool = False) -> list[dict[str, Any]]:
        """The saga's records as plain JSON, each with its ``seq``."""
        ...

    def follow(self, saga_id: str, *, since: int = 0) -> AsyncIterator[dict[str, Any]]:
        """The saga's records as they become durable, as ``history`` gives them, until the saga ends."""
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

    # (the last of all, because it takes the name of the type)
    async def list(self, status: str | None = None, *, limit: int = 1000) -> Sequence[Head]:
        """Summaries of sagas, the one that changed last first."""
        ...

    async def close(self) -> None:
        """Start nothing more and end all waits. Whoever waits gets ``Interrupted``; sagas stand as they are."""
