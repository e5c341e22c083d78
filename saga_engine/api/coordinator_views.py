"""What a coordinator shows: sagas, journals, traces and counters. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from saga_engine.api.engine import Ownership
from saga_engine.api.requests import export_of
from saga_engine.core.views import entry
from saga_engine.execution.owner import is_owned
from saga_engine.execution.result import SagaResult
from saga_engine.guards.chain import GuardedTools
from saga_engine.ports import Load, Store
from saga_engine.runtime.journal import shown, shown_records
from saga_engine.runtime.record_stream import follow
from saga_engine.runtime.supervisor import Supervisor
from saga_engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from saga_engine.analysis.trace import Export


class Views:
    """The part of ``Coordinator`` that looks."""

    store: Store
    tools: ToolRegistry
    supervisor: Supervisor
    _guards: GuardedTools

    async def overview(self) -> Load:
        """The store's pending work and its workers. Its cost does not grow with the number of sagas."""
        return await self.store.work().overview()

    async def ownership(self, saga_id: str) -> Ownership:
        """Whether another process drives a saga, and how many messages are unread. Raises ``SagaNotFound``."""
        head = await self.store.head(saga_id)
        return Ownership(is_owned(head) and self.supervisor.find(saga_id) is None, head.messages)

    async def show(self, saga_id: str, *, full: bool = False) -> SagaResult:
        """The state of a saga, read from its journal. No tools are needed.

        Without ``full``, outputs over 31 KiB are in their cut form and are not fetched. Raises ``SagaNotFound``, and
        ``JournalUnreadable`` if a large value that is needed is missing.
        """
        return await shown(self.store, saga_id, full=full)

    async def history(self, saga_id: str, *, full: bool = False) -> list[dict[str, Any]]:
        """The saga's records as plain JSON, each with its ``seq``.

        Without ``full``, large values appear as references (``refs``), each with its digest, size and cut form.
        """
        records = await shown_records(self.store, saga_id, whole=full)
        return [entry(seq, record) for seq, record in enumerate(records)]

    def follow(self, saga_id: str, *, since: int = 0) -> AsyncIterator[dict[str, Any]]:
        """The saga's records as they become durable, in the form of ``history``, until the saga ends.

        The saga may run in any process; ``since`` is the first ``seq``. Raises ``SagaNotFound``, ``JournalUnreadable``
        or ``StoreUnavailable``.
        """
        return follow(self.store, saga_id, since)

    async def trace(
        self,
        saga_id: str,
        *,
        redact: Sequence[str] = (),
        full: bool = False,
        sign_key: bytes | None = None,
        into: Export | None = None,
    ) -> list[str]:
        """The run of a saga as lines of JSON that need no store: to audit elsewhere, and to replay (docs/trace.md).

        ``redact``: rules such as ``params.card`` and ``**.ssn``. Without ``full``, values over 31 KiB are in their cut
        form. ``sign_key`` (32 bytes or more) signs the trace. ``into`` continues an open file, by its own rules and
        without an end. Raises ``SagaNotFound``, ``SettingInvalid`` (a rule, a key), ``JournalUnreadable`` or
        ``StoreUnavailable``.
        """
        from saga_engine.runtime.trace_export import trace_lines

        export = export_of(redact, sign_key, into, full=full)
        lines = await trace_lines(self.store, saga_id, export, self.tools)
        return [*lines, export.end()] if into is None else lines

    async def tool_stats(self) -> dict[str, dict[str, Any]]:
        """The counters of the guards in all processes, by tool; tools without guards are not counted."""
        return await self._guards.stats()
