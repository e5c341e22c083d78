"""The state of a saga, and a handle to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, overload

import msgspec

from saga_engine.core import transitions as t
from saga_engine.core.report import Sources, abridged, sources, view
from saga_engine.core.state import State
from saga_engine.core.views import Answer, Failure, SagaView, StepResult
from saga_engine.errors import StepUnknown
from saga_engine.execution.aside import aside
from saga_engine.execution.event_loops import pass_on, require_loop

_MAX_NAMED: Final = 20
#: A saga with more steps is shown beside the event loop.
_MANY: Final = 500


class Steps(Sequence[StepResult]):
    """The steps in the order of the plan; ``by_id`` finds one by its id, which may be a number or its text."""

    __slots__ = ("_by_key", "_saga_id", "_steps")

    def __init__(self, saga_id: str, steps: Sequence[StepResult]) -> None:
        self._saga_id = saga_id
        self._steps = [*steps]
        self._by_key = {str(step.step_id): step for step in self._steps}

    @overload
    def __getitem__(self, at: int) -> StepResult: ...

    @overload
    def __getitem__(self, at: slice) -> list[StepResult]: ...

    def __getitem__(self, at: int | slice) -> StepResult | list[StepResult]:
        return self._steps[at]

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[StepResult]:
        return iter(self._steps)

    def __repr__(self) -> str:
        return f"Steps({', '.join(f'{step.step_id}: {step.status}' for step in self._steps[:_MAX_NAMED])})"

    def by_id(self, step_id: int | str) -> StepResult:
        """The step with this id. Raises ``StepUnknown``, which is a ``KeyError``."""
        found = self._by_key.get(str(step_id))
        if found is not None:
            return found
        named = [str(step.step_id) for step in self._steps[:_MAX_NAMED]]
        more = f" and {len(self._steps) - _MAX_NAMED} more" if len(self._steps) > _MAX_NAMED else ""
        raise StepUnknown(
            f"saga {self._saga_id} has no step {step_id!r}",
            hint=f"it has {', '.join(named)}{more}" if named else "it has no steps",
            saga_id=self._saga_id,
            step_id=str(step_id),
        )


class SagaResult:
    """The state of a saga. The details are assembled on first use: many callers want only ``status``.

    Outputs are whole in what ``run``, ``wait`` and ``resume`` return. In what ``show`` returns without ``full``, those
    over 31 KiB are in their cut form, with ``output_ref`` (``digest``, ``bytes``) beside them.
    """

    __slots__ = ("_answers", "_body", "_full", "_sources", "_state", "_steps", "_view", "saga_id", "status")

    def __init__(self, state: State, *, full: bool = True, answers: Sequence[Answer] = ()) -> None:
        self.saga_id = state.saga_id
        self.status = state.status
        self._state: State | None = state
        self._full = full
        #: Those of the journal that it was read from: what a process only drove does not have it.
        self._answers = answers
        self._body: dict[str, Any] | None = None
        self._view: SagaView | None = None
        self._sources: Sources = {}
        self._steps: Steps | None = None

    @property
    def view(self) -> SagaView:
        """The saga as it is shown, typed; with whole outputs, unless it was shown without ``full``."""
        if self._view is None:
            assert self._state is not None
            shown, self._sources = view(self._state), sources(self._state)
            shown = shown if self._full else abridged(shown, self._sources)
            self._view, self._state = msgspec.structs.replace(shown, answers=[*self._answers]), None
        return self._view

    @property
    def body(self) -> Mapping[str, Any]:
        """``view`` as the object that ``show --json`` prints."""
        if self._body is None:
            self._body = self.view.plain()
        return self._body

    def __repr__(self) -> str:
        return f"SagaResult({self.saga_id!r}, {self.status})"

    @property
    def completed(self) -> bool:
        """Whether every step happened."""
        return self.status == t.COMPLETED

    @property
    def ended(self) -> bool:
        """Whether the saga will never change again."""
        return self.status in t.SAGA_FINAL

    @property
    def report(self) -> Mapping[str, Any]:
        """The four lists and ``clean``."""
        report: Mapping[str, Any] = self.body["report"]
        return report

    @property
    def steps(self) -> Steps:
        """The steps, typed, in the order of the plan; ``steps.by_id("pay")`` is one of them."""
        if self._steps is None:
            self._steps = Steps(self.saga_id, self.view.steps)
        return self._steps

    @property
    def error(self) -> Failure | None:
        """Why the saga did not simply complete; None if nothing went wrong."""
        return self.view.error

    def output(self, step_id: int | str) -> Any:
        """The whole output of a step, None if it has none.

        Raises ``StepUnknown`` (a ``KeyError``) if there is no such step, ``OutputNotFetched`` (a ``LookupError``) if
        only the cut form of its output is available: a program must not use that as the value.
        """
        return self.steps.by_id(step_id).output

    def to_dict(self, *, full: bool = True) -> dict[str, Any]:
        """The result as one JSON object; without ``full``, large outputs are in their cut form."""
        return dict(self.body) if full else abridged(self.view, self._sources).plain()


async def shown(found: SagaResult, *, full: bool = False) -> dict[str, Any]:
    """``to_dict``; of a large saga it is made beside the event loop."""
    make, state = partial(found.to_dict, full=full), found._state  # noqa: SLF001 - of this module
    return await aside(make) if state is not None and len(state.plan.steps) > _MANY else make()


class Handle:
    """A saga that was submitted or resumed, and a way to wait for it."""

    __slots__ = ("_begin", "_in_store", "_known", "_stored", "saga_id")

    def __init__(
        self,
        saga_id: str,
        future: asyncio.Future[SagaResult] | Callable[[], asyncio.Future[SagaResult]],
        *,
        journalled: bool = True,
    ) -> None:
        """``future`` has the saga's end; a function creates it on first use, because watching costs.

        ``journalled``: whether the saga is known to be in its store; else ``set_journalled`` says so later.
        """
        self.saga_id = saga_id
        self._begin = future if callable(future) else None
        self._known = None if callable(future) else future
        self._in_store = journalled
        self._stored: asyncio.Future[None] | None = None

    @classmethod
    def ended(cls, result: SagaResult) -> Handle:
        """A handle whose ``wait`` returns ``result`` at once."""
        future: asyncio.Future[SagaResult] = asyncio.get_running_loop().create_future()
        future.set_result(result)
        return cls(result.saga_id, future)

    @property
    def _future(self) -> asyncio.Future[SagaResult]:
        if self._known is None:
            assert self._begin is not None
            self._known = self._begin()
        return self._known

    async def journalled(self) -> None:
        """Wait until the saga is in its store. Raises what prevented that."""
        if self._in_store:
            return
        if self._stored is None:
            self._stored = asyncio.get_running_loop().create_future()
        either: list[asyncio.Future[Any]] = [self._stored, self._future]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._in_store:
            self._future.result()  # one that another process found there, or only queued, has ended here

    def set_journalled(self) -> None:
        """The saga is in its store."""
        self._in_store = True
        if self._stored is not None and not self._stored.done():
            self._stored.set_result(None)

    async def wait(self) -> SagaResult:
        """Wait until the saga ends or needs an operator. Cancelling the wait leaves the saga running.

        Raises ``Interrupted`` if the coordinator was closed first, ``StoreUnavailable``, ``LeaseLost``, ``LeaseHeld``
        or ``EventLoopMismatch``.
        """
        future = self._future
        if future.done():
            return future.result()
        require_loop(future.get_loop(), "handle")
        # A separate future for each waiter: cancelling the wait must not affect the saga, nor the other waiters.
        waiter: asyncio.Future[SagaResult] = asyncio.get_running_loop().create_future()
        ended = partial(pass_on, waiter)
        future.add_done_callback(ended)
        try:
            return await waiter
        finally:
            if not future.done():
                future.remove_done_callback(ended)  # a caller that polls leaves nothing behind

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once ``wait`` would return at once."""
        self._future.add_done_callback(lambda _: callback())

    def found(self) -> SagaResult | BaseException | None:
        """What ``wait`` would return or raise at once; None if it would wait."""
        if not self._future.done():
            return None
        if self._future.cancelled():
            return asyncio.CancelledError()
        return self._future.exception() or self._future.result()

    def done(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._future.done()
