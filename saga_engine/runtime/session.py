"""Sessions: an agent without a plan calls its tools one by one, and gets the safety of a saga.

Each call is a step of a growing saga: journalled before it is made, with its own key, guarded, traced, and undone in
reverse when the session fails. After a crash the agent runs again with the same id. A call at the same position with
the same tool and params then returns the recorded outcome, without an external call.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD, ErrorInfo
from saga_engine.core.messages import Message
from saga_engine.core.session_records import MAX_AFTER, add_call, close, keep, partial_compensation
from saga_engine.core.state import State
from saga_engine.core.undo_ahead import undoes_more
from saga_engine.core.undo_by_call import undone_by
from saga_engine.errors import CancelRefused, SessionDiverged, SessionEnded, ValueNotJson
from saga_engine.execution.event_loops import of_one_loop
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.plan.compiled import CompiledStep
from saga_engine.plan.model import Plan
from saga_engine.plan.parser import Source
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import plain
from saga_engine.runtime.driver import ALERT_GRACE_S
from saga_engine.runtime.link import Link
from saga_engine.runtime.session_calls import (
    NumberedOutput,
    Undo,
    call_record,
    difference,
    failure_of,
    has_undo,
    is_kept,
    name_of,
    needs_person,
    next_number,
    no_more_calls,
    refusal,
    stands,
    to_undo,
)
from saga_engine.runtime.session_history import Recorded, recorded_calls
from saga_engine.runtime.session_options import Diverging, OnFailure, Watching, check_options
from saga_engine.runtime.session_steps import SessionSteps


class Savepoint(NamedTuple):
    """A place in a session to return to: how many calls the agent had made."""

    calls: int


@of_one_loop
class Session(SessionSteps):
    """One agent's session; created by ``Coordinator.session``.

    Leaving its block completes it. An exception undoes its calls in reverse, keeps it or asks an operator;
    ``rollback()`` undoes its calls.
    """

    def __init__(
        self,
        saga_id: str,
        catalog: ToolCatalog,
        *,
        diverging: Diverging,
        on_failure: OnFailure | None = None,
        idle_s: float | None = None,
    ) -> None:
        check_options(diverging, on_failure, idle_s)
        self.saga_id = saga_id
        #: How a resumed agent diverged, in words.
        self.divergence: str | None = None
        self.link = Link(self._on_durable, self._on_driver)
        #: How a message reaches the session when no process drives it.
        self.deliver: Callable[[Message], Awaitable[SagaResult]] | None = None
        #: Reads the plans of children that are templates.
        self.expanded: Callable[[Plan | Source], Awaitable[Plan | Source]] | None = None
        #: Registers a tool that the agent brings.
        self.adopt: Callable[[Any], bool] | None = None
        #: What is asked about each call before it is made.
        self.watch: Watching | None = None
        #: The tools that can be called.
        self.catalog = catalog
        self._diverging = diverging
        #: What becomes of the session if its agent fails; None: an operator is asked if undeclared calls stand.
        self.on_failure = on_failure
        self._idle_ms = round((idle_s or 0) * 1000)
        self._handle: Handle | None = None
        self._state: State | None = None
        self._made: list[str] = []  # the agent's calls in this life, by place: the keys of their steps
        self._last = 0  # the number of the last call that was recorded or is wanted
        self._begun = False  # and durable
        self._live = False  # diverged from what was recorded
        self._complete = False  # before this life began
        self._turned_away: SessionDiverged | None = None  # it cannot continue after this in this life
        self._recorded = Recorded()  # in other lives
        self._unheard: set[str] = set()  # calls of other lives whose outcomes the agent may not know
        self._repeated: set[str] = set()  # those of them that this life has rolled back as well
        # What the agent wants recorded and is not durable; requested again if it is lost with a lease.
        self._wanted: dict[int, r.CallAdded] = {}
        self._rolling: tuple[list[str], int] = ([], -1)  # and after how many calls
        self._closing: tuple[str, str] | None = None
        self._keeping: tuple[str, ErrorInfo] | None = None
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}  # by the call that they wait for; "": for anything
        # What is known to be durable: calls that are settled, that are undone, and that an operator is asked about.
        self._settled: set[str] = set()
        self._undone: set[str] = set()
        self._asked: set[str] = set()
        self._latest: dict[int, None] | None = None  # the latest that have happened, in order; None: to be found anew

    def recall(self, records: Sequence[r.AnyRecord]) -> None:
        """Receive the journal before the session starts: no state contains where an agent rolled back."""
        self._recorded = recorded_calls(records, keeps=self.on_failure in ("keep", "ask"))

    def repeat(self, state: State) -> None:
        """The session is complete: calls are answered from ``state``, and none can be added."""
        self._complete = self._begun = True
        self._on_driver(state)

    async def begin(self, handle: Handle) -> None:
        """Wait until the saga has a driver. Raises what prevents that, ``SessionEnded``, ``NeedsPerson``."""
        self._handle = handle
        handle.when_done(self._wake)
        while not self._begun:
            await self._changes()
        if self._diverging == "append":
            self._append()
        while self._recorded.anew and self._here().is_returning():  # what is made anew must have been undone before
            self._require_unasked(self._asked)
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
        expect: str | None = None,
        **named: Any,
    ) -> Any:
        """Call a tool and return its output; ``params`` and keyword arguments are its params.

        ``undo``: its undo; by default the tool's registered one. ``irreversible``: the tool writes and has no undo,
        deliberately; a plain function that nobody declared counts so. ``expect``: ``"$before"``: only if what its
        ``before`` reads is what the session last read. Raises ``CallFailed`` (not done; ``CallInvalid``: it cannot be
        made so), ``CallBlocked`` (the policy), ``NeedsPerson``, ``SessionDiverged``, ``SessionEnded``, ``PlanInvalid``.
        """
        values = {**params, **named} if isinstance(params, Mapping) else named if params is None else params
        how: dict[str, Any] = {"undo": undo, "irreversible": irreversible, "timeout_s": timeout_s, "expect": expect}
        return (await self.numbered_call(tool, values, **how)).output

    async def numbered_call(
        self,
        tool: str | Callable[..., Any],
        params: Mapping[str, Any],
        *,
        undo: str | Callable[..., Any] | Undo | tuple[str, Mapping[str, Any]] | None = None,
        irreversible: bool = False,
        timeout_s: float | None = None,
        expect: str | None = None,
    ) -> NumberedOutput:
        """``call``, and the key of its step beside its output."""
        undoes = undo is None and isinstance(params, Mapping) and self._takes_back(name_of(tool), params)
        meant = irreversible or undoes  # it needs no undo of its own
        how: dict[str, Any] = {"timeout_s": timeout_s, "expect": expect}
        record = call_record(self.catalog, name_of(tool), params, undo, irreversible=meant, **how)
        if self.watch is not None:
            self.watch.call(record, irreversible=meant, state=self._state, made=self._made)
        key = await self._placed(record)
        return NumberedOutput(key, await self._result(key, record))

    def _takes_back(self, tool: str, params: Mapping[str, Any]) -> bool:
        """Whether a call is the undo of one that the agent has made, or was it when it was recorded."""
        spec = self.catalog.spec(tool)
        if self._state is None or spec is None or spec.undo is not None or spec.effect == "read":
            return False
        place, plan = len(self._made), self._state.plan
        if place < len(self._recorded.keys) and not self._live:
            recorded = plan.steps[plan.by_key[self._recorded.keys[place]]]
            if recorded.tool == tool and recorded.kind == "irreversible":
                return True
        try:
            given = plain(dict(params))
        except ValueNotJson:
            return False  # the call is refused in words, like any other
        return undone_by(self._state, tool, given) is not None

    def repeats(self, record: r.CallAdded) -> bool:
        """Whether the next call, if it is this one, is answered as another life recorded it."""
        key = None if self._live else next(iter(self._recorded.keys[len(self._made) :]), None)
        return key is not None and not self._is_open(key) and difference(self._here(), key, record) is None

    def outputs(self) -> Mapping[str, Any]:
        """The recorded outputs of the calls that happened, by the keys of their steps."""
        state = self._here()
        steps = zip(state.plan.steps, state.steps, strict=True)
        return {compiled.key: step.output for compiled, step in steps if step.effect and compiled.key in self._settled}

    def savepoint(self) -> Savepoint:
        """The place to which ``rollback`` can return."""
        return Savepoint(len(self._made))

    async def rollback(self, to: Savepoint | None = None) -> SagaResult | None:
        """Undo, in reverse, everything since the savepoint, and continue.

        Without one everything, which ends the session.

        Raises ``NeedsPerson`` if an undo fails permanently, ``SessionDiverged``, ``SessionEnded``, and ``RuntimeError``
        if calls are in flight.
        """
        state = self._here()
        if to is None:
            return await self.close(reason="rolled-back")
        waits = [key for key in self._made if key not in self._settled]
        if waits:
            self._require_unasked(waits)
            raise RuntimeError(f"call {waits[0]} is in flight: await it before rolling back")
        await self._repeat_rollback(to)
        while self._here().is_returning():  # a rollback that another life started
            self._require_unasked(() if undoes_more(self._here()) else self._asked)
            await self._changes()
        state = self._here()
        since = self._made[to.calls :]
        chosen = [key for key in since if stands(state, key)]
        if any(to_undo(state, state.plan.by_key[key]) for key in chosen):
            self._rolling = (chosen, len(self._made))
            self._request_rollback()
        open_keys = {key for key in since if has_undo(state, state.plan.by_key[key])}
        while self._here().is_returning() or not open_keys <= self._undone:
            self._require_unasked(() if undoes_more(self._here()) else open_keys)
            await self._changes()
        self._rolling = ([], -1)
        return None

    async def close(self, *, reason: str = "", note: str = "") -> SagaResult:
        """End the session: it is complete, or with a ``reason`` everything it did is undone.

        A session that rests over a question receives the reason as a message, and is undone when the question is
        answered.
        """
        if self._handle is None:
            raise SessionEnded(f"session {self.saga_id} has not begun")
        if not self._handle.done():
            self._closing = (reason, note)
            self.link.request(lambda state, now: close(state, reason, note, now))
        outcome = await self._handle.wait()
        if not (reason and outcome.status == t.ESCALATED and outcome.body["session"] == "open"):
            return outcome
        self._closing = (reason, note)
        assert self.deliver is not None
        try:
            return await self.deliver(Message(secrets.token_hex(8), "close", reason=reason, note=note))
        except CancelRefused:  # it was closed, or ended, meanwhile
            return outcome

    async def keep(self, error: BaseException) -> SagaResult:
        """Leave the session open with what happened, because its agent failed; an operator is asked if they decide.

        A session that rests over a question receives that as a message.
        """
        assert self._handle is not None
        found = failure_of(error)
        step, why = found if found[0] in self._made else ("", found[1])
        if not self._handle.done():
            self._keeping = (step, why)
            self.link.request(self._keep_now)
            self.link.leave()
        outcome = await self._handle.wait()
        if not (outcome.status == t.ESCALATED and outcome.body["session"] == "open") or is_kept(outcome):
            return outcome
        assert self.deliver is not None
        ask = self.failing == "ask"
        kept = Message(secrets.token_hex(8), "keep", step=step, error=why, ask=ask, idle_ms=self._idle_ms)
        try:
            return await self.deliver(kept)
        except CancelRefused:  # it was closed, or ended, meanwhile
            return outcome

    @property
    def failing(self) -> OnFailure:
        """What an error of the agent does now."""
        unsaid = self.watch.failing(self._state) if self.watch and self._state else "undo"
        return self.on_failure or unsaid

    def _keep_now(self, state: State, now: int) -> r.SessionKept | None:
        step, why = self._keeping or ("", ErrorInfo("", ""))
        return keep(state, step, why, now, ask=self.failing == "ask", idle_ms=self._idle_ms)

    async def finish(self) -> SagaResult:
        """End the session at the end of its block. Raises ``SessionDiverged`` if it went further before."""
        assert self._handle is not None
        if not self._live and (self._complete or not self._handle.done()):
            if self._turned_away is not None:
                raise self._turned_away
            made = len(self._made)
            if self._remains() or self._recorded.rollbacks:
                what = f"{len(self._recorded.keys)} calls" if self._remains() else "a rollback"
                await self._diverge(f"it made {what} before, and now ends after call {made}")
        return await self.close()

    @property
    def turned_away(self) -> bool:
        """Whether the agent was refused because it diverged; whatever error it then ends with changes nothing."""
        return self._turned_away is not None

    @property
    def given_up(self) -> bool:
        """Whether the agent itself undid everything."""
        return self._closing is not None and self._closing[0] == "rolled-back"

    # --- what a call is ------------------------------------------------------------------------------------------

    def _add_next(self, state: State, now: int) -> r.AnyRecord | None:
        """The next call as it is recorded, in the order of their creation, even after some were lost with a lease."""
        number = len(state.plan.steps) + 1
        record = self._wanted.get(number)
        if record is None:
            return None
        after = [state.plan.steps[index].key for index in self._latest_of(state)]
        return add_call(state, record, after, now)

    def _request_rollback(self) -> None:
        chosen, calls = self._rolling
        self.link.request(lambda state, now: partial_compensation(state, chosen, now, calls))

    def _latest_of(self, state: State) -> list[int]:
        """The calls that are known to have happened last and that stand, without those before another of these."""
        if self._latest is None:
            self._latest = {}
            known = (
                compiled
                for compiled in state.plan.steps
                if stands(state, compiled.key) and compiled.key in self._settled
            )
            for compiled in sorted(known, key=lambda compiled: state.steps[compiled.index].happened_nth):
                self._happened(compiled)
        return sorted(self._latest)

    def _happened(self, compiled: CompiledStep) -> None:
        """A call is the latest of all. The earliest are dropped: what comes after a later one comes after them, too."""
        latest = self._latest
        assert latest is not None
        for before in compiled.deps:
            latest.pop(before, None)
        latest[compiled.index] = None
        while len(latest) > MAX_AFTER:
            del latest[next(iter(latest))]

    async def _placed(self, record: r.CallAdded) -> str:
        """Give the call its place, which is fixed when it is made, and its step. Raises ``SessionDiverged``."""
        if self._turned_away is not None:
            raise self._turned_away
        state, place, before = self._here(), len(self._made), self._recorded
        if not self._live:
            if before.rollbacks and before.rollbacks[0][0] <= place:
                at = before.rollbacks[0][0]
                await self._diverge(f"it rolled back after call {at} before, and now makes call {place + 1}")
            elif place < len(before.keys):
                key = before.keys[place]
                if self._is_open(key):
                    return self._new_call(record)
                why = difference(state, key, record)
                if why is None:
                    self._made.append(key)
                    return key
                if await self._turns_out_open(key):
                    return self._new_call(record, place)
                await self._diverge(f"call {place + 1}: {why}")
        return self._new_call(record)

    async def _turns_out_open(self, key: str) -> bool:
        """Wait for the outcome of a call that was under way when the session was kept; the place is taken meanwhile."""
        if key not in self._recorded.anew or key in self._settled:
            return False
        self._made.append(key)
        while key not in self._settled:
            self._require_unasked((key,))
            await self._changes(key)
        return self._is_open(key)

    def _new_call(self, record: r.CallAdded, taken: int | None = None) -> str:
        """A call of this life alone gets a step of its own, at a ``taken`` place or the next. Nothing is awaited."""
        self._last = next_number(self._here(), self._last)
        key = str(self._last)
        if taken is None:
            taken = len(self._made)
            self._made.append(key)
        self._made[taken] = key
        place = taken + 1 if taken < len(self._recorded.keys) else 0
        self._wanted[self._last] = msgspec.structs.replace(record, place=place)
        self.link.request(self._add_next)
        return key

    def _is_open(self, key: str) -> bool:
        """Whether a recorded call is made anew: it did not happen, or was undone, before the session was kept."""
        if key not in self._recorded.anew or self._complete:
            return False
        return self._is_nothing(key)

    def _is_nothing(self, key: str) -> bool:
        """Whether a call did not happen, or was undone."""
        step = self._here().steps[self._here().plan.by_key[key]]
        return step.status in (t.FAILED, t.BLOCKED, t.COMPENSATED) or (step.status == t.RESOLVED and not step.accepted)

    def _remains(self) -> bool:
        """Whether other lives made calls that this one has not come to, beside those that are made anew or not."""
        rest = self._recorded.keys[len(self._made) :]
        return not all(key in self._recorded.anew and self._is_nothing(key) for key in rest)

    async def _repeat_rollback(self, to: Savepoint) -> None:
        """Check whether a rollback at this place is the recorded one. Raises ``SessionDiverged``."""
        if self._turned_away is not None:
            raise self._turned_away
        if self._live:
            return
        state = self._here()
        since, made, rollbacks = set(self._made[to.calls :]), len(self._made), self._recorded.rollbacks
        undoable = {key for key, index in state.plan.by_key.items() if has_undo(state, index)}
        # What it would undo, had nothing of it been undone before; an empty rollback counts as none.
        wanted = (since & undoable) - self._repeated
        while rollbacks and rollbacks[0][0] == made and rollbacks[0][1] & undoable <= since:
            self._repeated |= rollbacks.pop(0)[1]
        wanted -= self._repeated
        elsewhere = bool(rollbacks) and rollbacks[0][0] == made
        if wanted and (elsewhere or self._remains()):
            await self._diverge(f"it rolls back to call {to.calls} after call {made}, where it did not before")

    async def _diverge(self, why: str) -> None:
        """Apply the divergence policy.

        After ``continue`` the agent has left the recorded calls, and comes after them.
        """
        self.divergence = why
        if self._diverging == "continue":
            self._append()
            return
        # Set before anything is awaited: an agent that swallows it, or makes another call meanwhile, gets no further.
        self._turned_away = SessionDiverged(
            f"session {self.saga_id} does not go as it went before: {why}", saga_id=self.saga_id
        )
        if self._complete:
            self._turned_away = SessionDiverged(
                f"session {self.saga_id} is complete, nothing of it is changed any more, and it does not go as it went "
                f"before: {why}",
                hint="open a session with another id for other work",
                saga_id=self.saga_id,
            )
        elif self._diverging == "rollback":
            outcome = await self.close(reason="diverged", note=why)
            self._turned_away = SessionDiverged(
                f"session {self.saga_id} went another way and was undone ({outcome.status}): {why}",
                saga_id=self.saga_id,
            )
        raise self._turned_away

    def _append(self) -> None:
        """The agent comes after the recorded calls, and repeats none of them."""
        self._live = True
        self._unheard = self._recorded.unheard
        self._made += self._recorded.keys[len(self._made) :]
        self._recorded = Recorded()

    # --- waiting -------------------------------------------------------------------------------------------------

    async def _result(self, key: str, record: r.CallAdded | None) -> Any:
        """The outcome of a call, once it is durable."""
        while True:
            state = self._here()
            index = state.plan.by_key.get(key)
            if index is not None and key in self._settled:
                if record is not None and difference(state, key, record) is not None:
                    # The lease was lost, and another life of the agent was faster with a call of this number.
                    raise SessionDiverged(
                        f"session {self.saga_id} went on in another process: {difference(state, key, record)}",
                        saga_id=self.saga_id,
                    )
                if state.steps[index].effect:
                    return state.steps[index].output
                raise refusal(state, index)
            self._require_unasked((key,))
            await self._changes(key)

    def _require_unasked(self, keys: Iterable[str]) -> None:
        """Raises ``NeedsPerson`` if an operator is asked about one of these calls."""
        asked = next((key for key in keys if key in self._asked), None)
        if asked is not None:
            state = self._here()
            index = state.plan.by_key[asked]
            kind = next((question.kind for question in state.questions.values() if question.step == index), "?")
            raise needs_person(self.saga_id, asked, kind)

    async def _changes(self, key: str = "") -> None:
        """Wait until something more is durable, of one call if it is given. Raises what ended the saga."""
        handle = self._handle
        assert handle is not None
        if not handle.done():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(key, []).append(waiter)
            await waiter
        if handle.done():
            raise self.ended(await handle.wait())

    async def people_told(self) -> None:
        """Wait until the session rests, if an operator is asked; but no longer than notifications may take."""
        handle = self._handle
        if self._asked and handle is not None and not handle.done():
            rests = asyncio.ensure_future(handle.wait())
            await asyncio.wait([rests], timeout=ALERT_GRACE_S)
            rests.cancel()

    def ended(self, outcome: SagaResult) -> Exception:
        """Why no more calls can be made, once the saga has ended or rests."""
        return no_more_calls(self.saga_id, outcome, complete=self._complete)

    def _here(self) -> State:
        if self._state is None or self._handle is None:
            raise SessionEnded(f"session {self.saga_id} has not begun")
        return self._state

    # --- what the driver tells -----------------------------------------------------------------------------------

    def _on_driver(self, state: State) -> None:
        """A driver has folded the journal: what its state holds now is durable."""
        self._state = state
        steps = zip(state.plan.steps, state.steps, strict=True)
        known = [(compiled.key, step) for compiled, step in steps]
        self._settled = {key for key, step in known if step.effect or step.status in (t.FAILED, t.BLOCKED)}
        self._undone = {key for key, step in known if step.status in (t.COMPENSATED, t.RESOLVED)}
        self._asked = {state.plan.steps[question.step].key for question in state.questions.values()}
        self._latest = None
        self._last = max(self._last, len(known))
        self._wanted = {number: call for number, call in self._wanted.items() if number > len(known)}
        for _ in self._wanted:
            self.link.request(self._add_next)
        if self._rolling[0]:
            self._request_rollback()
        if self._closing is not None:
            reason, note = self._closing
            self.link.request(lambda state, now: close(state, reason, note, now))
        if self._keeping is not None:
            self.link.request(self._keep_now)
        self._wake()

    def _on_durable(self, records: Sequence[r.AnyRecord]) -> None:
        self._begun = True
        for record in records:
            if isinstance(record, r.CallAdded):
                self._wanted.pop(int(record.step), None)
            elif isinstance(record, r.StepSucceeded | r.StepFailed | r.StepBlocked | r.ChildEnded):
                if record.direction == FORWARD:
                    self._settle(record.step)
                elif isinstance(record, r.StepSucceeded) or getattr(record, "status", "") in (t.COMPENSATED, t.WAIVED):
                    self._undone.add(record.step)
            elif isinstance(record, r.PartialCompensationRequested):
                self._latest = None
            elif isinstance(record, r.StepEscalated):
                self._asked.add(record.step)
            elif isinstance(record, r.QuestionResolved | r.ApprovalExpired):
                self._asked.discard(record.step)
                self._answered(record.step, record.direction)
        self._wake({"", *(str(getattr(record, "step", "")) for record in records)})

    def _answered(self, key: str, direction: str) -> None:
        """An operator's answer may settle a call without another record."""
        state = self._here()
        step = state.steps[state.plan.by_key[key]]
        if direction == COMPENSATE and step.status == t.RESOLVED:
            self._undone.add(key)
        elif direction == FORWARD and (step.effect or step.status in (t.FAILED, t.BLOCKED)):
            self._settle(key)

    def _settle(self, key: str) -> None:
        """The outcome of a call is durable."""
        self._settled.add(key)
        state = self._here()
        compiled = state.plan.steps[state.plan.by_key[key]]
        if self._latest is not None and state.steps[compiled.index].effect:
            self._happened(compiled)

    def _wake(self, keys: Iterable[str] | None = None) -> None:
        """Something is durable of these calls; by default, of any. Waking all for each would cost a wave's square."""
        for key in [*self._waiters] if keys is None else keys:
            for waiter in self._waiters.pop(key, ()):
                if not waiter.done():
                    waiter.set_result(None)
