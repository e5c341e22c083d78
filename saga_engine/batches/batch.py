"""Cancels, resumes or answers many sagas that a search finds: in one place, for each door.

First the sagas are *selected*: each is looked at as it stands, so that what the action would do, and why it would be
refused, is known before anything happens. What is carried out then is the selection, not the search: a saga that fits
the search later is not touched. Each saga is acted on by itself, and an error stands in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar, get_args

from saga_engine.analysis.cancellation import preview_cancel
from saga_engine.core import transitions as t
from saga_engine.core.outlooks import then_words
from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import (
    CancelRefused,
    DecisionRefused,
    LeaseHeld,
    ResumeRefused,
    SagaError,
    SagaNotFound,
    SettingInvalid,
    StoreUnavailable,
)
from saga_engine.execution.owner import is_owned
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.execution.search import MAX_LIMIT, query_of, searched
from saga_engine.loggers import logger_of
from saga_engine.ports import Head, Store
from saga_engine.runtime.journal import beside_state, look_at, read_records, shown

_Item = TypeVar("_Item")
_T = TypeVar("_T")
Verb = Literal["cancel", "resume", "resolve"]

#: Statuses of sagas that an action can concern at all, if a search names none.
_STATUSES: Final[Mapping[Verb, tuple[str, ...]]] = {
    "cancel": (t.PENDING, t.RUNNING, t.ESCALATED),
    "resume": (t.PENDING, t.RUNNING, t.COMPENSATING, t.ESCALATED),
    "resolve": (),  # those that ask
}
_log = logger_of("saga_engine")
#: So many sagas are looked at, or acted on, at a time.
_AT_ONCE: Final = 16


class Resuming(Protocol):
    """What a batch needs of a supervisor."""

    def resume(self, saga_id: str, *, waits: bool = False) -> Handle:
        """Resume one; with ``waits`` until it ends, rests or only waits itself, and is then in the queue."""
        ...


class Acting(Protocol):
    """What a batch needs of a coordinator: the actions on one saga."""

    @property
    def supervisor(self) -> Resuming:
        """Drives sagas here."""
        ...

    async def cancel(self, saga_id: str, *, by: str = "", note: str = "", wait: bool = True) -> SagaResult:
        """Cancel one."""
        ...

    async def enqueue(self, saga_id: str) -> None:
        """Queue one."""
        ...

    async def show(self, saga_id: str) -> SagaResult:
        """Show one."""
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
        """Answer one question."""
        ...


@dataclass(frozen=True, slots=True)
class Selected:
    """One saga of a batch. ``refused``: why nothing would be done to it; None: the action would be taken.

    ``undoes``, ``settles`` and ``remains`` count the steps that a cancel would undo, would first settle, and would
    leave in effect. ``answers``: the questions that would be answered, each with ``step_id``, ``kind``, ``then``
    (in words), and what ``follows`` as the question's outlook has it.
    """

    saga_id: str
    status: str
    refused: SagaError | None = None
    undoes: int = 0
    settles: int = 0
    remains: int = 0
    answers: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As the command line and the HTTP API show it."""
        return {
            "saga_id": self.saga_id,
            "status": self.status,
            "refused": None if self.refused is None else self.refused.to_dict(),
            "undoes": self.undoes,
            "settles": self.settles,
            "remains": self.remains,
            "answers": [
                {"step_id": each["step_id"], "kind": each["kind"], "then": each["then"]} for each in self.answers
            ],
        }


@dataclass(frozen=True, slots=True)
class Batch:
    """An action and the sagas that it was selected for. ``more``: others fit the search as well."""

    verb: Verb
    sagas: tuple[Selected, ...]
    more: bool = False
    decision: str = ""
    output: Any = None
    by: str = ""
    note: str = ""

    @property
    def taken(self) -> list[Selected]:
        """The sagas that would be acted on."""
        return [each for each in self.sagas if each.refused is None]

    def to_dict(self) -> dict[str, Any]:
        """As the command line and the HTTP API show it."""
        return {
            "verb": self.verb,
            "dry_run": True,
            "sagas": [each.to_dict() for each in self.sagas],
            "taken": len(self.taken),
            "refused": len(self.sagas) - len(self.taken),
            "more": self.more,
        }


@dataclass(slots=True)
class BatchReport:
    """What became of a batch: by saga, its state after the action, or the error because of which it is as it was.

    ``refused``: the sagas that the selection had left out, with the reason.
    """

    verb: Verb
    done: dict[str, SagaResult] = field(default_factory=dict)
    failed: dict[str, SagaError] = field(default_factory=dict)
    refused: dict[str, SagaError] = field(default_factory=dict)
    more: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As the command line and the HTTP API show it."""
        errors = {**self.refused, **self.failed}
        sagas = [
            *({"saga_id": each, "status": found.status, "error": None} for each, found in self.done.items()),
            *({"saga_id": each, "status": None, "error": error.to_dict()} for each, error in errors.items()),
        ]
        return {
            "verb": self.verb,
            "dry_run": False,
            "sagas": sorted(sagas, key=lambda each: str(each["saga_id"])),
            "done": len(self.done),
            "failed": len(self.failed),
            "refused": len(self.refused),
            "more": self.more,
        }


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is selected for: an action, and which sagas by id or by a search. ``limit`` bounds a search."""

    verb: Verb
    saga_ids: Sequence[str] = ()
    search: Mapping[str, Any] = field(default_factory=dict)
    limit: int = MAX_LIMIT
    step: str | None = None
    kind: str | None = None
    decision: str = ""
    twice: bool = False

    def check(self) -> None:
        """Raises ``SettingInvalid`` for what cannot be meant."""
        if self.verb not in get_args(Verb):
            raise SettingInvalid(f"many sagas cannot be told to {self.verb!r}", hint=", ".join(get_args(Verb)))
        if self.verb == "resolve" and not self.decision:
            raise SettingInvalid("'resolve' needs a decision", hint="one of the options that `saga inbox` shows")
        if self.twice and self.decision != "retry":
            raise SettingInvalid("'twice' belongs to the decision 'retry'")
        if self.verb != "resolve" and (self.decision or self.step is not None or self.kind is not None):
            raise SettingInvalid(f"'{self.verb}' takes no decision, step or kind", hint="they belong to 'resolve'")
        if bool(self.saga_ids) == any(self.search.values()):
            raise SettingInvalid("give ids of sagas, or a search", hint="a search has a status, name, tag, tool or age")
        if self.limit < 1:
            raise SettingInvalid(f"a batch has at least one saga, not {self.limit}")


async def select(store: Store, wanted: Wanted, *, output: Any, by: str, note: str) -> Batch:
    """See ``Coordinator.select``."""
    wanted.check()
    heads: Sequence[Head | SagaError]
    if wanted.saga_ids:
        heads, more = await _at_once(list(dict.fromkeys(wanted.saga_ids)), partial(_head, store)), False
    else:
        heads, more = await _searched(store, wanted)
    sagas = await _at_once(heads, partial(_selected, store, wanted))
    kept = tuple(each for each in sagas if each is not None)
    return Batch(wanted.verb, kept, more, wanted.decision, output, by, note)


async def act_on(
    engine: Acting,
    batch: Batch,
    *,
    wait: bool,
    on_done: Callable[[str, SagaResult | SagaError], None] | None,
) -> BatchReport:
    """See ``Coordinator.act_on``. What ``on_done`` raises is logged, and changes nothing: the report is complete."""
    report = BatchReport(batch.verb, more=batch.more)
    report.refused = {each.saga_id: each.refused for each in batch.sagas if each.refused is not None}
    away: list[SagaError] = []

    async def act(each: Selected) -> None:
        found: SagaResult | SagaError
        try:
            found = away[0] if away else await _carried_out(engine, batch, each, wait=wait)
        except SagaError as error:
            found = error
            if isinstance(error, StoreUnavailable):
                away.append(error)
        if isinstance(found, SagaError):
            report.failed[each.saga_id] = found
        else:
            report.done[each.saga_id] = found
        if on_done is None:
            return
        try:
            on_done(each.saga_id, found)
        except Exception:  # noqa: BLE001 - code of the caller
            _log.exception("on_done failed for saga %s: the batch goes on", each.saga_id)

    await _at_once(batch.taken, act)
    return report


async def _searched(store: Store, wanted: Wanted) -> tuple[list[Head | SagaError], bool]:
    """The heads of a search, page by page, and whether there are more."""
    asks = bool(wanted.search.get("asks")) or wanted.verb == "resolve"
    query = query_of(**{**wanted.search, "asks": asks}, limit=min(wanted.limit, MAX_LIMIT))
    if not query.statuses:
        query = query._replace(statuses=_STATUSES[wanted.verb])
    found: list[Head | SagaError] = []
    cursor: str | None = None
    while True:
        page = await searched(store, query._replace(limit=min(wanted.limit - len(found), MAX_LIMIT)), cursor)
        found += page.sagas
        cursor = page.cursor
        if cursor is None or len(found) >= wanted.limit:
            return found, cursor is not None


async def _head(store: Store, saga_id: str) -> Head | SagaError:
    try:
        return await store.head(saga_id)
    except SagaNotFound as error:
        return error


async def _selected(store: Store, wanted: Wanted, head: Head | SagaError) -> Selected | None:
    """One saga as it stands; None: the action does not concern it."""
    if isinstance(head, SagaError):
        return Selected(str(head.context.get("saga_id", "")), "", head)
    try:
        if wanted.verb == "resume":
            return Selected(head.saga_id, head.status, _stays(head))
        if wanted.verb == "cancel":
            return await _to_cancel(store, head)
        return await _to_answer(store, head, wanted)
    except StoreUnavailable:
        raise
    except SagaError as error:  # its journal cannot be read, or is gone since
        return Selected(head.saga_id, head.status, error)


def _stays(head: Head) -> SagaError | None:
    """Why a saga would not be resumed."""
    if head.status in SAGA_FINAL:
        return ResumeRefused(f"it has ended: {head.status}", saga_id=head.saga_id)
    if is_owned(head):
        return LeaseHeld("a live process runs it", saga_id=head.saga_id)
    if head.status == t.ESCALATED and not head.messages:
        hint = "answer its question first: `saga inbox`"
        return ResumeRefused("it waits for an operator", hint=hint, saga_id=head.saga_id)
    return None


async def _to_cancel(store: Store, head: Head) -> Selected:
    records = await read_records(store, head.saga_id, whole=False)
    state = await look_at(store, head.saga_id, records)
    found = await beside_state(records, partial(preview_cancel, state))
    if found.refused:
        return Selected(head.saga_id, head.status, CancelRefused(found.refused, saga_id=head.saga_id))
    return Selected(
        head.saga_id,
        head.status,
        undoes=len(found.undoes),
        settles=len(found.settles),
        remains=len(found.remains),
    )


async def _to_answer(store: Store, head: Head, wanted: Wanted) -> Selected | None:
    """The questions of a saga that fit and offer the decision, with what follows from it."""
    asked = [
        each
        for each in (await shown(store, head.saga_id, full=False)).body["questions"]
        if wanted.step in {None, str(each["step_id"])} and wanted.kind in {None, each["kind"]}
    ]
    if not asked:
        return None
    offering = [each for each in asked if wanted.decision in map(str, each["options"])]
    if not offering:
        options = ", ".join(dict.fromkeys(str(option) for each in asked for option in each["options"]))
        said = f"no question of it has the answer '{wanted.decision}'"
        return Selected(head.saga_id, head.status, DecisionRefused(said, hint=f"they take: {options}"))
    answers = []
    for each in offering:
        follows: Mapping[str, Any] = (each.get("outlooks") or {}).get(wanted.decision) or {}
        twice = wanted.decision == "retry" and any(call.get("twice") for call in follows.get("calls", ()))
        if twice and not wanted.twice:
            said = f"step {each['step_id']}: the call may happen twice, because its tool honours no key"
            hint = f"answer it by itself: saga resolve {head.saga_id} {each['step_id']}"
            return Selected(head.saga_id, head.status, DecisionRefused(said, hint=hint))
        # Once one question is answered, other effects may follow from the next: only a single one is bound to them.
        mark = str(follows.get("mark", "")) if twice or len(offering) == 1 else ""
        then = then_words(follows) if follows else ""
        answers.append(
            {"step_id": each["step_id"], "kind": each["kind"], "then": then, "mark": mark, "follows": follows}
        )
    return Selected(head.saga_id, head.status, answers=tuple(answers))


async def _carried_out(engine: Acting, batch: Batch, each: Selected, *, wait: bool) -> SagaResult:
    """Act on one saga."""
    if batch.verb == "cancel":
        return await engine.cancel(each.saga_id, by=batch.by, note=batch.note, wait=wait)
    if batch.verb == "resume":
        if wait:
            # One that waits, for an event or a time, would take the place of those that can go on.
            return await engine.supervisor.resume(each.saga_id, waits=True).wait()
        await engine.enqueue(each.saga_id)
        return await engine.show(each.saga_id)
    found, refused = None, None
    for nth, answer in enumerate(each.answers, 1):
        last = nth == len(each.answers)
        try:
            found = await engine.resolve(
                each.saga_id,
                answer["step_id"],
                batch.decision,
                output=batch.output,
                by=batch.by,
                note=batch.note,
                expect=answer["mark"],
                wait=wait and last,
            )
        except DecisionRefused as error:  # it keeps no other question from its answer
            refused = refused or error
    if refused is not None:
        raise refused
    assert found is not None  # what answers nothing is not selected
    return found


async def _at_once(items: Sequence[_Item], work: Callable[[_Item], Awaitable[_T]]) -> list[_T]:
    """Work on some items at a time; the results have the order of the items. The first error ends all of it."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(item: _Item) -> _T:
        async with room:
            return await work(item)

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        return [*await asyncio.gather(*tasks)]
    finally:
        for task in tasks:
            task.cancel()
