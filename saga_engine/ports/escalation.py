"""Escalation channels, observers and meters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

from saga_engine.core.effects import Direction
from saga_engine.core.records import AnyRecord, Record

if TYPE_CHECKING:
    from saga_engine.core.state import State  # its tables are a library that `saga list` does without


@dataclass(frozen=True, slots=True)
class Question:
    """An escalation: what an operator is asked, and which answers are legal.

    ``kind`` ``deferred`` asks nothing (no options): it reports that a step waits until its tool is available again.
    ``params`` are those of the exact call, secrets as markers. Of an ``approval``, an answer counts until
    ``expires_ms``. ``called_ms``: when a call whose tool sends no key was made: it is looked for by params and time.
    ``outlooks``: what follows from each answer, with its mark (``core.outlooks``).
    It was asked at ``asked_ms`` (Unix ms on the store's clock, like all times). ``round`` counts the reminders: 0 is
    the first notification. For ``compensation``, ``steps`` are what a model proposes. For ``ask``, ``text`` is what the
    step asks, and ``to`` whom (empty: any operator); if its answer is free, ``schema`` is what the value must fit.
    ``undo_call``: which call (``number``, from 0) of an undo of several calls (``of``) it is about. ``sealed``:
    payloads were left out, see ``outline``.
    ``identity``: which of the sagas that ever had this id it is. Links carry it; ``to_dict`` does not.
    """

    saga_id: str
    question_id: str
    step_id: int | str
    step_name: str
    tool: str
    direction: Direction
    kind: str
    options: tuple[str, ...]
    error: Mapping[str, Any] | None
    goal: str
    params: Mapping[str, Any] | None = None
    expires_ms: int | None = None
    round: int = 0
    asked_ms: int | None = None
    steps: Sequence[Mapping[str, Any]] | None = None
    text: str = ""
    schema: Mapping[str, Any] | None = None
    undo_call: Mapping[str, int] | None = None
    sealed: bool = False
    identity: str = ""
    called_ms: int | None = None
    outlooks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    to: str = ""

    @property
    def answerable(self) -> bool:
        """Whether it asks something; a notice does not. The options of a plan's own question may be left out."""
        return bool(self.options) or self.kind == "ask"

    def outline(self) -> Question:
        """What a sealed store has in clear of it: ids, step, tool, kind, times, and the engine's own answers."""
        return replace(
            self,
            step_name="",
            options=() if self.kind == "ask" else self.options,
            error=None,
            goal="",
            params=None,
            steps=None,
            text="",
            schema=None,
            to="",
            outlooks={},
            sealed=True,
        )

    def to_dict(self) -> dict[str, Any]:
        """The question as one JSON object, without the fields that are empty."""
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "identity"}
        found["options"] = list(self.options)
        return {
            name: value
            for name, value in found.items()
            if not (value is None or value is False or value in ("", [], {}))
        }


class EscalationHook(Protocol):
    """Called for each open question at least once.

    ``saga_id``, ``question_id`` and ``round`` together are stable, for de-duplication.
    """

    async def __call__(self, question: Question) -> None:
        """Deliver the question; raising means that it was not delivered, and the call is repeated."""


#: A hook as a user may give it: sync or async. ``Coordinator.open`` makes sync ones async.
AnyHook = EscalationHook | Callable[[Question], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Escalation:
    """The hooks for open questions, and when they are called again.

    ``hooks`` are called at once, and again every ``remind_s`` seconds until an answer. ``further`` are called, too,
    when a question has been open for ``further_after_s`` seconds. 0 seconds: never. A call to a hook that takes longer
    than ``timeout_s`` has failed, and the engine stops waiting for it.

    ``payloads``: whether hooks get what a question is about (goal, params, error, the plan's words); without it they
    get its ``outline``. None: unless the store is sealed.
    """

    hooks: Sequence[AnyHook] = ()
    further: Sequence[AnyHook] = ()
    remind_s: float = 3600.0
    further_after_s: float = 86400.0
    timeout_s: float = 30.0
    payloads: bool | None = None


class Meter(Protocol):
    """Measures what this process has made durable: each record once, by the process that appended it."""

    def measure(self, state: State, records: Sequence[AnyRecord]) -> None:
        """Take the records of one append, which ``state`` has in it. It is called in the event loop.

        So it computes a little and waits for nothing. Its exceptions are logged, never passed on.
        """


class Observer(Protocol):
    """Receives records after they are durable, in a thread. Its exceptions are logged, never passed on.

    It is called for one batch of records at a time. One that takes too long misses the records of that time.
    """

    def __call__(self, saga_id: str, record: Record) -> None:
        """Called for each record, in the order of the journal."""
