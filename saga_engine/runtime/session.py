"""Sessions: an agent that has no plan in advance calls its tools one by one, and gets the safety of a saga.

Each call is a step of a growing saga: journalled before it is made, with a key of its own, guarded, traced, and undone
in reverse when the session fails. After a crash the agent runs again with the same id: a call that stands at the same
position with the same tool and params returns what is recorded, with no call to the outside.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, NamedTuple, TypeVar

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD, ErrorInfo
from saga_engine.core.growth import Growth
from saga_engine.core.state import MAX_PARALLEL, State
from saga_engine.errors import (
    CallBlocked,
    CallFailed,
    Interrupted,
    JournalConflict,
    LeaseLost,
    NeedsPerson,
    PlanInvalid,
    Problem,
    SagaExists,
    SagaOwned,
    SessionDiverged,
    SessionEnded,
    SettingInvalid,
    StoreRefused,
    StoreUnavailable,
    ToolMissing,
)
from saga_engine.plan.tooling import ToolCatalog, ToolSpec
from saga_engine.plan.values import cut, digest, json_path, plain
from saga_engine.runtime.driver import Link
from saga_engine.runtime.outcome import Handle, Outcome

_F = TypeVar("_F", bound=Callable[..., Any])

Diverging = Literal["strict", "continue", "rollback"]
DIVERGING: Final = ("strict", "continue", "rollback")


#: What ends an agent's life, or keeps it from going on, and says nothing about its work: the session stays open.
_LEAVES_OPEN: Final = (
    Interrupted,
    JournalConflict,
    LeaseLost,
    NeedsPerson,
    SagaExists,
    SagaOwned,
    SessionDiverged,
    SessionEnded,
    StoreRefused,
    StoreUnavailable,
    ToolMissing,
    GeneratorExit,
)


class Savepoint(NamedTuple):
    """A place in a session to roll back to: how many calls had been recorded."""

    calls: int


class Undo(NamedTuple):
    """How a call is taken back: a tool, and its params.

    In the params a whole text that is ``$output`` with a path, such as ``"$output.order_id"``, is the call's own
    output.
    """

    tool: str
    params: Mapping[str, Any] | None = None


class Session:
    """One agent's session; made by ``Coordinator.session``.

    Leaving its block completes it; an exception, or ``rollback()``, undoes in reverse what it did.
    """

    def __init__(self, saga_id: str, catalog: ToolCatalog, *, diverging: Diverging) -> None:
        if diverging not in DIVERGING:
            raise SettingInvalid(f"on_divergence={diverging!r} has no meaning", hint=", ".join(DIVERGING))
        self.saga_id = saga_id
        #: What a resumed agent did otherwise than before, in words.
        self.divergence: str | None = None
        self.link = Link(self._on_durable, self._on_driver)
        self._catalog = catalog
        self._diverging = diverging
        self._handle: Handle | None = None
        self._state: State | None = None
        self._calls = 0  # made by the agent so far, in this life
        self._keys: list[str] = []  # the steps that they are
        self._begun = False  # and durable
        self._live = False  # past what is recorded, or apart from it
        self._waiters: list[asyncio.Future[None]] = []
        # What is known to be durable: calls that are settled, that are undone, and that a person is asked about.
        self._settled: set[str] = set()
        self._undone: set[str] = set()
        self._asked: set[str] = set()

    async def begin(self, handle: Handle) -> None:
        """Wait until somebody drives the saga. Raises what keeps it from that, ``SessionEnded``, ``NeedsPerson``."""
        self._handle = handle
        handle.when_done(self._wake)
        while not self._begun:
            await self._changes()

    # --- the agent's side ----------------------------------------------------------------------------------------

    async def call(
        self,
        tool: str | Callable[..., Any],
        /,
        params: Mapping[str, Any] | None = None,
        *,
        undo: str | Callable[..., Any] | Undo | tuple[str, Mapping[str, Any]] | None = None,
        irreversible: bool = False,
        timeout_s: float | None = None,
        **named: Any,
    ) -> Any:
        """Call a tool and return its output; ``params`` and keyword arguments are its params.

        ``undo``: how it is taken back; left out, the tool's registered undo. ``irreversible``: it writes, has no undo,
        and that is meant. Raises ``CallFailed`` (not done), ``CallBlocked`` (the policy), ``NeedsPerson``,
        ``SessionDiverged``, ``SessionEnded``, ``ToolMissing`` or ``ValueNotJson``.
        """
        record = call_record(
            self._catalog,
            _name_of(tool),
            {**(params or {}), **named},
            undo,
            irreversible=irreversible,
            timeout_s=timeout_s,
        )
        self._calls += 1
        key = str(self._calls)
        if not self._live and key in self._here().plan.by_key:
            why = self._difference(key, record)
            if why is None:
                self._keys.append(key)
                return await self._result(key, record)
            await self._diverge(f"call {key}: {why}")
        while True:
            # Its number is settled when it is recorded: calls side by side are numbered in the order of their making.
            mine: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self.link.request(functools.partial(self._add, record, mine))
            key = await self._reached(mine)
            self._keys.append(key)
            try:
                return await self._result(key, record)
            except _NotRecordedError:
                self._keys.remove(key)

    def tool(self, function: _F) -> _F:
        """Wrap a registered tool's function: calling it calls the tool in this session."""
        name = _name_of(function)
        signature = inspect.signature(getattr(function, "function", function))

        @functools.wraps(getattr(function, "function", function))
        async def call(*args: Any, **named: Any) -> Any:
            bound = signature.bind_partial(*args, **named)
            return await self.call(name, bound.arguments)

        return call  # type: ignore[return-value]

    def savepoint(self) -> Savepoint:
        """The place to which ``rollback`` can return."""
        return Savepoint(len(self._keys))

    async def rollback(self, to: Savepoint | None = None) -> Outcome | None:
        """Undo, in reverse, everything since the savepoint, and go on; without one everything, which ends the session.

        Raises ``NeedsPerson`` if an undo fails for good, ``SessionEnded``, and ``RuntimeError`` if calls are in flight.
        """
        state = self._here()
        if to is None:
            return await self.close(reason="rolled-back")
        if any(place[1] == FORWARD for place in state.in_flight):
            raise RuntimeError("a call is in flight: await it before rolling back")
        since = self._keys[to.calls :]
        chosen = [key for key in since if state.steps[state.plan.by_key[key]].status == t.SUCCEEDED]
        if chosen:
            done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self.link.request(functools.partial(_roll_back, chosen, done))
            await self._reached(done)
        open_keys = [key for key in since if _can_be_undone(state, state.plan.by_key[key])]
        while any(key not in self._undone for key in open_keys):
            asked = next((key for key in open_keys if key in self._asked), None)
            if asked is not None:
                raise _needs_person(self.saga_id, asked, "undo-failed")
            await self._changes()
        return None

    async def close(self, *, reason: str = "", note: str = "") -> Outcome:
        """End the session: it is complete, or with a ``reason`` everything it did is undone."""
        if self._handle is None:
            raise SessionEnded(f"session {self.saga_id} has not begun")
        if not self._handle.done():
            self.link.request(functools.partial(_close, reason, note))
        return await self._handle.wait()

    # --- what a call is ------------------------------------------------------------------------------------------

    def _add(self, record: r.CallAdded, mine: asyncio.Future[str], state: State, now: int) -> r.AnyRecord | None:
        """The call as it is recorded: it comes after everything that has happened by now."""
        if mine.cancelled() or not state.open:
            return None
        key = str(len(state.plan.steps) + 1)
        made = r.CallAdded(
            at=now,
            step=key,
            tool=record.tool,
            params=record.params,
            after=_latest(state),
            undo=record.undo,
            undo_params=record.undo_params,
            irreversible=record.irreversible,
            read=record.read,
            timeout_s=record.timeout_s,
            tool_digest=record.tool_digest,
        )
        mine.set_result(key)
        return made

    def _difference(self, key: str, record: r.CallAdded) -> str | None:
        """What the agent does otherwise than what is recorded at the same position."""
        state = self._here()
        step = state.plan.steps[state.plan.by_key[key]]
        if step.tool != record.tool:
            return f"it called {step.tool} before, and now {record.tool}"
        if digest(step.params.raw) != digest(record.params):
            return f"the params of {step.tool} were {cut(step.params.raw, 200)}, and now {cut(record.params, 200)}"
        undo = step.rollback.tool if step.rollback is not None else None
        if undo != record.undo:
            return f"{step.tool} was to be undone by {undo}, and now by {record.undo}"
        return None

    async def _diverge(self, why: str) -> None:
        self.divergence = why
        if self._diverging == "strict":
            raise SessionDiverged(f"session {self.saga_id} does not go as it went before: {why}", saga_id=self.saga_id)
        if self._diverging == "rollback":
            outcome = await self.close(reason="diverged", note=why)
            raise SessionDiverged(
                f"session {self.saga_id} went another way and was undone ({outcome.status}): {why}",
                saga_id=self.saga_id,
            )
        self._live = True

    # --- waiting -------------------------------------------------------------------------------------------------

    async def _result(self, key: str, record: r.CallAdded) -> Any:
        """What came of a call, once that is durable. Raises ``_NotRecordedError`` if the call was lost with a lease."""
        while True:
            state = self._here()
            index = state.plan.by_key.get(key)
            if index is None or state.plan.steps[index].tool != record.tool:
                raise _NotRecordedError
            if key in self._settled:
                step = state.steps[index]
                if step.via:
                    return step.output
                raise _refusal(state, index)
            if key in self._asked:
                kind = next((q.kind for q in state.questions.values() if q.step == index), "?")
                raise _needs_person(self.saga_id, key, kind)
            await self._changes()

    async def _reached(self, mine: asyncio.Future[str]) -> str:
        while not mine.done():
            await self._changes()
        return mine.result()

    async def _changes(self) -> None:
        """Until something more is durable. Raises what ended the saga."""
        handle = self._handle
        assert handle is not None
        if not handle.done():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if handle.done():
            raise self.ended(await handle.wait())

    def ended(self, outcome: Outcome) -> Exception:
        """Why no more calls can be made, once the saga has ended or rests."""
        if outcome.status == t.ESCALATED:
            question = next(iter(outcome.body["questions"]), {"step_id": "?", "kind": "?"})
            return _needs_person(self.saga_id, str(question["step_id"]), str(question["kind"]))
        return SessionEnded(
            f"session {self.saga_id} has ended: {outcome.status}", hint="see `saga show`", saga_id=self.saga_id
        )

    def _here(self) -> State:
        if self._state is None or self._handle is None:
            raise SessionEnded(f"session {self.saga_id} has not begun")
        return self._state

    # --- what the driver tells -----------------------------------------------------------------------------------

    def _on_driver(self, state: State) -> None:
        """Somebody drives the saga from its journal: what its state holds now is durable."""
        self._state = state
        steps = zip(state.plan.steps, state.steps, strict=True)
        known = [(compiled.key, step) for compiled, step in steps]
        self._settled = {key for key, step in known if step.via or step.status in (t.FAILED, t.BLOCKED)}
        self._undone = {key for key, step in known if step.status in (t.COMPENSATED, t.RESOLVED)}
        self._asked = {state.plan.steps[question.step].key for question in state.questions.values()}
        self._wake()

    def _on_durable(self, records: Sequence[r.AnyRecord]) -> None:
        self._begun = True
        for record in records:
            if isinstance(record, r.StepSucceeded | r.StepFailed | r.StepBlocked):
                if record.direction == FORWARD:
                    self._settled.add(record.step)
                elif isinstance(record, r.StepSucceeded):
                    self._undone.add(record.step)
            elif isinstance(record, r.StepEscalated):
                self._asked.add(record.step)
            elif isinstance(record, r.DecisionMade | r.ApprovalExpired):
                self._asked.discard(record.step)
                self._answered(record.step, record.direction)
        self._wake()

    def _answered(self, key: str, direction: str) -> None:
        """A person's answer may settle a call without another record."""
        state = self._here()
        step = state.steps[state.plan.by_key[key]]
        if direction == COMPENSATE and step.status == t.RESOLVED:
            self._undone.add(key)
        elif direction == FORWARD and (step.via or step.status in (t.FAILED, t.BLOCKED)):
            self._settled.add(key)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _can_be_undone(state: State, index: int) -> bool:
    step = state.steps[index]
    return bool(step.via) and state.undoing(index) is not None


@asynccontextmanager
async def opened(
    session: Session, begin: Callable[[Session, Mapping[str, Any]], Awaitable[Handle]], body: Mapping[str, Any]
) -> AsyncIterator[Session]:
    """The session for the length of a block: completed at its end, undone if an exception leaves it."""
    name = session.saga_id
    try:
        await session.begin(await begin(session, body))
        yield session
    except _LEAVES_OPEN:
        raise
    except BaseException as error:
        note = f"{type(error).__name__}: {error}"
        outcome = await asyncio.shield(session.close(reason="session-failed", note=note))
        if outcome.status != t.COMPENSATED:
            error.add_note(f"session {name} was not undone in full ({outcome.status}): see `saga show {name}`")
        raise
    else:
        outcome = await session.close()
        if outcome.status == t.ESCALATED:
            raise session.ended(outcome)
        if not outcome.completed:
            raise SessionEnded(f"session {name} did not complete: {outcome.status}", hint="see `saga show`")
    finally:
        session.link.leave()


class _NotRecordedError(Exception):
    """A call was asked for and its record never became durable: the lease was lost at that moment."""


def _close(reason: str, note: str, state: State, now: int) -> r.AnyRecord | None:
    return r.SessionClosed(at=now, reason=reason, note=note[:1000]) if state.open else None


def _roll_back(chosen: list[str], done: asyncio.Future[str], state: State, now: int) -> r.AnyRecord | None:
    if not done.done():
        done.set_result("")
    standing = [key for key in chosen if state.steps[state.plan.by_key[key]].status == t.SUCCEEDED]
    return r.RolledBack(at=now, steps=standing) if standing and state.open else None


def _latest(state: State) -> list[str]:
    """The steps that have happened and on which none that has happened depends: what comes now comes after these."""
    # No more than this many can have been side by side: whatever is older has something that came after it.
    recent = [step for step in state.plan.steps[-2 * MAX_PARALLEL :] if state.steps[step.index].via]
    covered = {other for step in recent for other in step.deps}
    return [step.key for step in recent if step.index not in covered]


def _refusal(state: State, index: int) -> CallFailed:
    error = state.steps[index].forward.error or ErrorInfo("tool_error", "it was not done")
    tool = state.acting(index).tool
    kind = CallBlocked if state.steps[index].status == t.BLOCKED else CallFailed
    return kind(
        f"{tool}: {error.message}",
        hint=error.suggestion,
        error_code=error.error_code,
        tool=tool,
        step=state.plan.steps[index].key,
        retryable=error.retryable,
    )


def _needs_person(saga_id: str, key: str, kind: str) -> NeedsPerson:
    return NeedsPerson(
        f"session {saga_id} waits for a person: {kind} about call {key}",
        hint=f"answer with `saga resolve {saga_id} {key} …`, then run the agent again with the same id",
        saga_id=saga_id,
        step=key,
        kind=kind,
    )


def call_record(
    catalog: ToolCatalog,
    name: str,
    params: Mapping[str, Any],
    undo: Any,
    *,
    irreversible: bool,
    timeout_s: float | None,
) -> r.CallAdded:
    """A call as it is recorded, but for its place. Raises ``ToolMissing``, ``PlanInvalid``, ``ValueNotJson``."""
    spec = catalog.spec(name)
    if spec is None:
        raise ToolMissing(f"no tool is called {name!r} here", hint="register it with the coordinator", tool=name)
    values: dict[str, Any] = plain(dict(params))
    problems = [
        Problem("params-invalid", json_path(("params", *path)), message) for path, message in spec.check_params(values)
    ]
    undo_tool, undo_params = _undo_of(undo, spec)
    if undo_tool is not None and catalog.spec(undo_tool) is None:
        problems.append(Problem("tool-unknown", "$.undo", f"there is no tool {cut(undo_tool, 80)}"))
    if undo_tool is None and spec.effect == "write" and not irreversible and spec.semantic in (None, "never"):
        hint = "give undo=…, register an undo for the tool, or say irreversible=True"
        problems.append(Problem("rollback-missing", "$", f"{name} writes, and nothing says how that is undone", hint))
    if problems:
        raise PlanInvalid(problems)
    made = r.CallAdded(
        at=0,
        step="0",
        tool=name,
        params=values,
        undo=undo_tool,
        undo_params=undo_params,
        irreversible=irreversible and undo_tool is None,
        read=spec.effect == "read",
        timeout_s=timeout_s,
        tool_digest=spec.digest,
    )
    # Compiled once for its faults: a path in the undo's params that is none must not be recorded.
    Growth.call_of(made, 0, {}, catalog)
    return made


def _undo_of(undo: Any, spec: ToolSpec) -> tuple[str | None, dict[str, Any] | None]:
    if spec.effect == "read":
        return None, None
    if undo is None:
        return spec.undo, None
    if isinstance(undo, tuple):  # Undo is one as well
        tool, params = undo
        return _name_of(tool), None if params is None else plain(dict(params))
    return _name_of(undo), None


def _name_of(tool: Any) -> str:
    return tool if isinstance(tool, str) else str(getattr(tool, "name", "") or getattr(tool, "__name__", repr(tool)))
