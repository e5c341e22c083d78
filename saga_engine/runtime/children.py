"""Child sagas: they are started, cancelled and undone here, and their ends are told.

The record of the parent comes first; a child is started after it, and again by each new owner of the parent. That is
the same child: its id and its identity follow from the parent's. Its end is posted to the parent by the process in
which it ended. The same append queues it for a worker, which posts the end if that process dies first. Where no worker
runs, the parent finds out: it looks at its children when it is taken over, and from time to time while it waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol

from saga_engine.core import records as r
from saga_engine.core.child_ends import end_of
from saga_engine.core.effects import COMPENSATE, ErrorInfo
from saga_engine.core.messages import Message, answer, encode_message
from saga_engine.core.state import State
from saga_engine.core.states import ESCALATED, SAGA_FINAL
from saga_engine.core.steps import child
from saga_engine.core.submission import Submission
from saga_engine.core.waiting_records import ChildEnd, Parent
from saga_engine.core.waits import Pending
from saga_engine.errors import (
    LeaseHeld,
    SagaError,
    SagaExists,
    SagaNotFound,
)
from saga_engine.execution.owner import is_owned
from saga_engine.execution.plan_cache import compile_submitted
from saga_engine.execution.result import Handle
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.plan.child_plans import check_input
from saga_engine.plan.model import load_plan
from saga_engine.plan.operator_limits import Limits
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import digest
from saga_engine.ports import Head, Store
from saga_engine.runtime.companions import PASSING, Companion, Kind
from saga_engine.runtime.journal import folded_state, read_records

_log = logger_of("saga_engine.children")

#: A parent looks at its children so long after they have started, then after twice as long, up to the most.
_LOOK_MS: Final = (60_000, 3_600_000)
#: When a parent tries again what another process is just doing.
_AGAIN_MS: Final = 2_000


#: Begins the undo of a completed saga for the parent that waits for it, or finds it: the head of one that exists, or
#: the end of one that has nothing to do. With True no caller waits for it.
BeginUndo = Callable[[str, Parent, bool], Awaitable[Head | ChildEnd | None]]


class Sagas(Protocol):
    """What children need of the supervisor of a process."""

    def find(self, saga_id: str) -> object | None:
        """The saga, if this process drives it."""
        ...

    def notify(self, saga_id: str) -> None:
        """A saga has messages."""
        ...

    def begin(
        self,
        submission: Submission,
        *,
        detach: bool = False,
        reused: Sequence[r.AnyRecord] = (),
        queued: bool = False,
        counted: bool = True,
    ) -> Handle:
        """Start a new saga."""
        ...

    def resume(self, saga_id: str) -> Handle:
        """Resume a saga from its journal."""
        ...


class Family:
    """The child sagas of those that one process drives."""

    __slots__ = ("_begin_undo", "_catalog", "_limits", "_sagas", "_store", "keep_ms")

    def __init__(
        self,
        store: Store,
        catalog: ToolCatalog,
        sagas: Sagas,
        limits: Limits,
        begin_undo: BeginUndo,
        *,
        keep_ms: int,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._sagas = sagas
        self._limits = limits
        self._begin_undo = begin_undo
        self.keep_ms = keep_ms

    async def begin(self, state: State, index: int, *, cancel: bool, queued: bool, now_ms: int) -> ChildEnd | None:
        """Start a child, or continue one that was started; returns its end, if it has one.

        ``queued``: workers may drive it. ``cancel``: it is to be cancelled.
        A parent that turns around meanwhile starts one that is cancelled from its
        first record on: an owner before this one may be about to start the same one.
        """
        saga_id = state.pending[index].about["saga"]
        try:
            head = await self._store.head(saga_id)
        except SagaNotFound:
            if 0 < self.keep_ms <= now_ms - state.steps[index].forward.first_at:
                why = said("child_lost", saga=saga_id)
                return ChildEnd(saga_id, "", error=ErrorInfo("child_lost", why, retryable=False), left=["?"])
            return await self._new(state, index, saga_id, queued=queued)
        if head.digest != _identity(state, index):
            return _not_begun(saga_id, SagaExists.code, said("saga_exists", saga=saga_id))
        if cancel and head.status not in SAGA_FINAL:
            await self._cancel(state, saga_id, queued=queued)
        return await self._continued(head, queued=queued)

    async def undo(self, state: State, index: int, *, queued: bool) -> ChildEnd | None:
        """Start the undo of a child that completed, or continue it; returns its end, if it has one."""
        about = state.pending[index].about
        try:
            found = await self._begin_undo(about["undoes"], child.parent_of(state, index), queued)
        except (*PASSING, LeaseHeld):
            raise
        except SagaError as error:
            return ChildEnd(about["saga"], "", error=ErrorInfo(error.code, error.message[:1000], retryable=False))
        return await self._continued(found, queued=queued) if isinstance(found, Head) else found

    async def tell(self, state: State) -> None:
        """Post the end of a saga to the one that waits for it. Whoever does it again posts the same message."""
        parent = state.parent
        assert parent is not None
        message = Message(id=f"child:{state.saga_id}", kind="child", step=parent.step, end=end_of(state))
        try:
            await self._store.post(parent.saga, encode_message(message), spare_ms=0)
        except SagaNotFound:
            _log.info("saga %s, which waited for saga %s, is gone", parent.saga, state.saga_id)
        else:
            self._sagas.notify(parent.saga)

    async def _new(self, state: State, index: int, saga_id: str, *, queued: bool) -> ChildEnd | None:
        if self._sagas.find(saga_id) is not None:
            return None
        try:
            submission = self._submission(state, index, saga_id)
            if state.turns:
                why = r.CancelRequested(at=0, by=f"saga {state.saga_id}", note="its parent turned around first")
                handle = self._sagas.begin(submission, reused=[why], queued=queued, counted=False)
            else:
                handle = self._sagas.begin(submission, detach=queued)
            await handle.journalled()
        except PASSING:
            raise
        except SagaError as error:
            return _not_begun(saga_id, error.code, error.message)
        return None

    def _submission(self, state: State, index: int, saga_id: str) -> Submission:
        compiled = state.plan.steps[index].child
        assert compiled is not None, "a saga is driven only with its plan at hand"
        plan = load_plan(compiled.plan)
        given = child.input_of(state, index) or None
        check_input(compiled, given)
        self._limits.check_steps(len(plan.steps))
        return Submission(
            saga_id=saga_id,
            plan=plan.json_bytes,
            compiled=self._limits.applied(compile_submitted(plan, given, self._catalog)),
            limits=self._limits,
            digest=_identity(state, index),
            seed=digest(["saga-child-seed/1", state.seed, saga_id])[:16],
            input=given,
            tags=state.tags,
            template=compiled.template,
            parent=child.parent_of(state, index),
        )

    async def _cancel(self, state: State, saga_id: str, *, queued: bool) -> None:
        message = Message(id=f"cancel:{state.saga_id}", kind="cancel", by=f"saga {state.saga_id}", note="its parent")
        await self._store.post(saga_id, encode_message(message), spare_ms=0 if queued else 5_000)
        self._sagas.notify(saga_id)

    async def _continued(self, head: Head, *, queued: bool) -> ChildEnd | None:
        """The end of a saga; one that has none is driven on here, if nothing else drives it."""
        if head.status in SAGA_FINAL:
            return end_of(await folded_state(await read_records(self._store, head.saga_id)))
        if queued or is_owned(head) or self._sagas.find(head.saga_id) is not None:
            return None
        fresh = await self._store.head(head.saga_id)
        if fresh.status != ESCALATED or fresh.messages:
            self._sagas.resume(head.saga_id)
        return None


def _identity(state: State, index: int) -> str:
    """What makes a saga this child and no other: its parent's seed is the parent's alone."""
    step = state.plan.steps[index]
    return digest(["saga-child/1", state.saga_id, state.seed, step.key, state.pending[index].about["saga"]])


def _not_begun(saga_id: str, code: str, why: str) -> ChildEnd:
    return ChildEnd(saga_id, "", error=ErrorInfo(code, why[:1000], retryable=False))


def kin(family: Family) -> tuple[Kind, Kind]:
    """The children of the sagas that one process drives, and the sagas that wait for these."""
    return (
        Kind(lambda state: Children(family, state), "child", begins=True),
        Kind(lambda state: _Telling(family, state), follows=lambda state, _: state.parent is not None),
    )


class _Telling(Companion):
    __slots__ = ("_family", "_state")

    def __init__(self, family: Family, state: State) -> None:
        self._family = family
        self._state = state

    async def last(self, *, queued: bool) -> None:
        del queued
        await self._family.tell(self._state)


class Children(Companion):
    """What one driver has done about the children of its saga."""

    __slots__ = ("_begun", "_cancelled", "_family", "_held", "_look_at", "_state")

    def __init__(self, family: Family, state: State) -> None:
        self._family = family
        self._state = state
        #: The sagas that this driver has started or found.
        self._begun: set[str] = set()
        self._cancelled: set[str] = set()
        #: The ends that it has found.
        self._held: list[tuple[str, ChildEnd]] = []
        #: By saga: when this driver looks at it again.
        self._look_at: dict[str, int] = {}

    @property
    def holds(self) -> bool:
        """Whether there is an end that the saga has not recorded."""
        return bool(self._held)

    def settled(self, now_ms: int) -> bool:
        """Whether there is nothing to do about a child."""
        return not self._held and not self._open(now_ms)

    def due_ms(self) -> int | None:
        """When to look at a child again; None: there is none."""
        waits = {self._state.pending[index].about["saga"] for index in self._state.children()}
        return min((due for saga_id, due in self._look_at.items() if saga_id in waits), default=None)

    def take(self, now_ms: int) -> Iterator[r.AnyRecord]:
        """The records of the ends that were found; each is in the state before the next is made."""
        held, self._held = self._held, []
        for step, end in held:
            index = self._state.plan.by_key[step]
            wait = self._state.pending.get(index)
            if wait is None or wait.on != "child" or wait.about["saga"] != end.saga:
                continue  # its message was read meanwhile
            yield answer(self._state, Message(id=f"child:{end.saga}", kind="child", step=step, end=end), now_ms)

    async def work(self, *, queued: bool, now_ms: int) -> None:
        """Start, continue, cancel or look at the children, whose records are durable."""
        for index in self._open(now_ms):
            wait = self._state.pending.get(index)
            if wait is None or wait.on != "child":
                continue
            saga_id = wait.about["saga"]
            key, turns, first_at = self._state.plan.steps[index].key, self._state.turns, self._begun_at(index, wait)
            try:
                if wait.direction == COMPENSATE:
                    end = await self._family.undo(self._state, index, queued=queued)
                else:
                    cancel = turns and saga_id not in self._cancelled
                    end = await self._family.begin(self._state, index, cancel=cancel, queued=queued, now_ms=now_ms)
            except LeaseHeld:
                self._look_at[saga_id] = now_ms + _AGAIN_MS
                continue
            self._begun.add(saga_id)
            if turns:
                self._cancelled.add(saga_id)
            least, most = _LOOK_MS
            self._look_at[saga_id] = now_ms + min(max(least, now_ms - first_at), most)
            if end is not None:
                self._held.append((key, end))

    def _begun_at(self, index: int, wait: Pending) -> int:
        return self._state.steps[index].call(wait.direction).first_at

    def _open(self, now_ms: int) -> list[int]:
        found = []
        for index in self._state.children():
            wait = self._state.pending[index]
            saga_id = wait.about["saga"]
            turned = wait.direction != COMPENSATE and self._state.turns and saga_id not in self._cancelled
            due = self._look_at.get(saga_id)
            if (saga_id not in self._begun and due is None) or turned or (due is not None and due <= now_ms):
                found.append(index)
        return found
