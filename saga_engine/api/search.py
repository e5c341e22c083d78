"""How a runtime lists and searches its sagas and has templates: the built-in one with a store, and Temporal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from saga_engine.api.engine import PlanSource
from saga_engine.errors import RuntimeUnsupported, SettingInvalid
from saga_engine.execution.search import MAX_LIMIT, SagaPage, query_of, searched
from saga_engine.execution.templates import Templates
from saga_engine.ports import Head, Store
from saga_engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from saga_engine.batches.batch import Batch, BatchReport, Verb
    from saga_engine.errors import SagaError
    from saga_engine.execution.result import SagaResult


class Searches:
    """The sagas of a store: part of the ``Coordinator``."""

    store: Store
    tools: ToolRegistry
    _templates: Templates | None = None

    @property
    def templates(self) -> Templates:
        """Named plans in the store, for ``submit(template=…)``."""
        if self._templates is None:  # every submission looks
            self._templates = Templates(self.store.documents(), self.tools)
        return self._templates

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
        """A page of the sagas that fit all of this, the most recently created first; no journal is read.

        ``name`` is the plan's, a step calls ``tool``, ``asks``: a question is open. ``since_ms`` bounds the time of
        creation (Unix ms on the store's clock). ``cursor`` is that of the page before. Raises ``SettingInvalid`` and
        ``StoreUnavailable``.
        """
        query = query_of(status=status, name=name, tags=tags, tool=tool, asks=asks, since_ms=since_ms, limit=limit)
        return await searched(self.store, query, cursor)

    async def select(
        self,
        verb: Verb,
        *,
        saga_ids: Sequence[str] = (),
        status: str | None = None,
        name: str | None = None,
        tags: Sequence[str] = (),
        tool: str | None = None,
        asks: bool = False,
        since_ms: int = 0,
        step_id: int | str | None = None,
        kind: str | None = None,
        decision: str = "",
        twice: bool = False,
        output: Any = None,
        by: str = "",
        note: str = "",
        limit: int = MAX_LIMIT,
    ) -> Batch:
        """Look at the sagas that a ``cancel``, ``resume`` or ``resolve`` would concern; nothing changes.

        ``saga_ids`` names them; else they are those of a ``search``, at most ``limit``, with at least one field given.
        ``resolve`` takes a ``decision``, which answers every open question that offers it, of a ``step_id`` or a
        ``kind`` if they are given; a call that may happen twice is repeated only with ``twice``. What ``act_on``
        carries out is this selection: a saga that fits the search later is not touched. Raises ``SettingInvalid`` and
        ``StoreUnavailable``.
        """
        from saga_engine.batches.batch import Wanted, select

        wanted = Wanted(
            verb,
            saga_ids,
            {"status": status, "name": name, "tags": tags, "tool": tool, "asks": asks, "since_ms": since_ms},
            limit,
            None if step_id is None else str(step_id),
            kind,
            decision,
            twice,
        )
        return await select(self.store, wanted, output=output, by=by, note=note)

    async def act_on(
        self,
        batch: Batch,
        *,
        wait: bool = False,
        on_done: Callable[[str, SagaResult | SagaError], None] | None = None,
    ) -> BatchReport:
        """Carry out what was selected, each saga by itself; an error stands in its saga's place.

        Without ``wait`` the messages are recorded, and workers act on them (of ``resume``: the sagas are queued). With
        it this process does, and needs the tools; a saga that is resumed and only waits is then left to the queue.
        ``on_done`` hears of each saga as it is done; an error of it is logged and ends nothing. Once the store cannot
        be reached, no further saga is tried: its error stands in the place of each.
        """
        from saga_engine.batches.batch import act_on

        return await act_on(self, batch, wait=wait, on_done=on_done)  # type: ignore[arg-type]  # the Coordinator

    # (the last of all, because it shadows the type)
    async def list(self, status: str | None = None, *, limit: int = 1000) -> list[Head]:
        """Summaries of sagas, the most recently changed first; no journal is read."""
        return [*await self.store.list(status, limit=limit)]


class SearchesNothing:
    """Sagas in Temporal: part of the ``TemporalCoordinator``."""

    @property
    def templates(self) -> Templates:
        """Raises ``RuntimeUnsupported``: templates are in a store."""
        raise _no_templates()

    @property
    def schedules(self) -> NoReturn:
        """Raises ``RuntimeUnsupported``: schedules are in a store."""
        raise RuntimeUnsupported("Temporal keeps no schedules of this engine", hint="use `temporal schedule create`")

    async def search(
        self,
        *,
        status: str | None = None,  # noqa: ARG002
        name: str | None = None,  # noqa: ARG002
        tags: Sequence[str] = (),  # noqa: ARG002
        tool: str | None = None,  # noqa: ARG002
        asks: bool = False,  # noqa: ARG002
        since_ms: int = 0,  # noqa: ARG002
        limit: int = 100,  # noqa: ARG002
        cursor: str | None = None,  # noqa: ARG002
    ) -> SagaPage:
        """Raises ``RuntimeUnsupported``: Temporal lists its workflows itself."""
        raise _not_listed()

    async def select(self, verb: str, **_fields: Any) -> NoReturn:  # noqa: ARG002
        """Raises ``RuntimeUnsupported``: Temporal lists its workflows itself."""
        raise _not_listed()

    async def list(self, status: str | None = None, *, limit: int = 1000) -> Sequence[Head]:  # noqa: ARG002
        """Raises ``RuntimeUnsupported``: Temporal lists its workflows itself."""
        raise _not_listed()


def only_plan(plan: PlanSource | None, template: str | None) -> PlanSource:
    """The plan of a submission. Raises ``RuntimeUnsupported`` for a template, and ``SettingInvalid``."""
    if template is not None:
        raise _no_templates()
    if plan is None:
        raise SettingInvalid("nothing to submit", hint="give a plan")
    return plan


def _no_templates() -> RuntimeUnsupported:
    return RuntimeUnsupported(
        "Temporal keeps no templates", hint="submit the plan itself; `saga template show NAME --json` prints it"
    )


def _not_listed() -> RuntimeUnsupported:
    return RuntimeUnsupported(
        "sagas in Temporal are not listed here", hint="Temporal's own UI and `temporal workflow list` list workflows"
    )
