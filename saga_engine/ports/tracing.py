"""Spans of the sagas of a process, as the runtime tells of them."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from saga_engine.core.effects import Outcome
from saga_engine.core.records import AnyRecord

if TYPE_CHECKING:
    from saga_engine.core.state import State  # its tables are a library that `saga list` does without


class Tracing(Protocol):
    """Makes spans of durable records. Nothing of it waits for whoever receives the spans."""

    def measure(self, state: State, records: Sequence[AnyRecord]) -> None:
        """Take the records of one append of this process, which drives the saga and has them in ``state``."""

    def taken_over(self, state: State, records: Sequence[AnyRecord]) -> None:
        """Take the journal of a saga before this process continues it."""

    def caller(self, parent: str = "") -> str:
        """The ``traceparent`` for a saga that starts here: of its ``parent``, or of the code that submits it."""
        ...

    def within(
        self, saga_id: str, step: str, direction: str, call: Coroutine[Any, Any, Outcome]
    ) -> Coroutine[Any, Any, Outcome]:
        """The call, made in the context of its span."""
        ...

    async def close(self) -> None:
        """Give the receiver what waits, within some seconds."""
