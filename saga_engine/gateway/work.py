"""The work of one agent: its calls as calls of a session, which outlives the agent, its connection and the gateway.

A saga is not a connection. The gateway has an id; its first saga has the same one. When that saga has ended (done, or
undone as a whole), the next call begins another one, ``ID.2`` and so on. A gateway that starts again with its id
continues the open saga: the calls are appended, and nothing is played back to the agent.

A saga whose undo waits for an operator takes no more calls, so the next call begins another one all the same. It stays
on the agent's list of unsettled sagas until it has ended, and every report names it.

An agent that makes a call again after it was told to wait, or after it gave up waiting, gets the outcome of the first
one. The engine cannot know what an agent has heard, so only calls count whose answer was certainly not delivered, and
after a restart of the gateway the last ones, if they had no outcome yet or an operator was asked about them. They count
until the agent makes another call that writes: by then it has gone another way, unless it was told to come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from saga_engine.api import Coordinator
from saga_engine.core.outlooks import cannot_be_made
from saga_engine.core.state import State
from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import (
    CallFailed,
    Interrupted,
    LeaseHeld,
    NeedsPerson,
    SagaError,
    SagaNotFound,
    SessionEnded,
)
from saga_engine.execution.ids import check_saga_id
from saga_engine.gateway.offer import Offered
from saga_engine.gateway.parts import part_of, whole_text
from saga_engine.gateway.report import Report, named, preview_of, report_of, status_of
from saga_engine.loggers import logger_of
from saga_engine.plan.values import digest
from saga_engine.ports import Document, Head, Store
from saga_engine.runtime.journal import folded_state, output_of, read_records
from saga_engine.runtime.session import Savepoint, Session
from saga_engine.runtime.session_calls import call_record
from saga_engine.sources.mcp.helpers import ByHand

_log = logger_of("saga_engine.gateway")

EndPolicy = Literal["keep", "complete", "undo"]
END_POLICIES: Final = ("keep", "complete", "undo")

#: An agent chooses for itself what to do about a call that a breaker refuses, and hears of it at once.
_AT_ONCE: Final = {"guard_wait_s": 0}
#: The intervals, in seconds, at which a held call looks for an operator's answer.
_LOOK_FIRST_S: Final = 0.1
_LOOK_MOST_S: Final = 1.0
#: How many calls an answer names.
_LISTED: Final = 20
#: How long the calls in flight are awaited: a call that an operator has stopped does not end by itself.
FINISH_S: Final = 60.0


class Pending(Exception):
    """A call waits for an operator; ``question`` is what ``show`` says of the question."""

    def __init__(self, saga_id: str, step: str, question: dict[str, Any]) -> None:
        super().__init__(step)
        self.saga_id = saga_id
        self.step = step
        self.question = question


@dataclass(slots=True)
class Call:
    """One request of the agent. ``left``: the agent no longer waits for it. ``again``: it was made before.

    ``is_held``: it is held for a while if an operator is asked. ``late``: what the client's user answered too late.
    """

    saga_id: str = ""
    step: str = ""
    mark: str = ""
    again: bool = False
    left: bool = False
    is_held: bool = True
    late: str = ""

    @property
    def about(self) -> dict[str, Any]:
        """What the answer says of it."""
        more: dict[str, Any] = {"again": True} if self.again else {}
        return {"saga_id": self.saga_id, "call": self.step, **more, **({"too_late": self.late} if self.late else {})}


class _Number(msgspec.Struct):
    """What is stored for a gateway's id: the number of its present saga, and those before it that have not ended."""

    number: int
    unsettled: list[str] = []


class Work:
    """The sagas of one gateway, one after the other. ``kept``: the id is the operator's, and may be used again."""

    def __init__(self, coordinator: Coordinator, name: str, *, kept: bool, goal: str = "", hold_s: float = 0.0) -> None:
        self.name = check_saga_id(name, "id")
        self._coordinator = coordinator
        self._kept = kept
        self._goal = goal
        self._hold_s = hold_s
        self._number: int | None = None
        self._unsettled: list[str] = []  # sagas before the present one that have not ended
        self._session: Session | None = None
        self._block: AbstractAsyncContextManager[Session] | None = None
        self._opening = asyncio.Lock()
        #: Held while a call gets its place, and for the whole of a rollback.
        self._moving = asyncio.Lock()
        self._unheard: dict[str, list[str]] = {}  # by tool and params
        self._heard: set[str] = set()
        self._attended: set[str] = set()  # those for which an agent waits now
        self._told: set[str] = set()  # those that an agent was told to make again
        self._touched = False  # the present saga, by this process
        self._arrived: list[dict[str, Any]] | None = None  # the calls that arrive while a rollback is made
        self._reading = ("", "", "")  # the text that an agent reads in parts now: its saga, its call

    async def saga_id(self) -> str:
        """The present saga. It need not exist yet."""
        if self._number is None:
            found = await self._coordinator.store.documents().read("gateway", self.name) if self._kept else None
            stored = _Number(1) if found is None else msgspec.json.decode(found.body, type=_Number)
            self._number, self._unsettled = stored.number, stored.unsettled
        return self._numbered(self._number)

    @property
    def touched(self) -> bool:
        """Whether this process has worked on the present saga."""
        return self._touched

    def _numbered(self, number: int) -> str:
        return self.name if number == 1 else f"{self.name}.{number}"

    # --- calls ---------------------------------------------------------------------------------------------------

    async def call(self, tool: Offered, params: Mapping[str, Any], call: Call) -> Any:
        """Make a call, or take up the one that was made before; returns its output.

        Raises ``Pending``, and what a call of a session raises.
        """
        call.mark, self._reading = digest([tool.tool, dict(params)]), ("", "", "")
        if self._arrived is not None:
            self._arrived.append(named(tool.tool, params))
        async with self._moving:
            if call.left:
                raise Interrupted("the call was cancelled before it was made")
            call.saga_id = await self.saga_id()
            before = self._before(call.mark)
            if before is None:
                session = await self._opened(tool, params)
                call.saga_id = session.saga_id
                before = self._before(call.mark)  # of another life, which is known now
            if before is None:
                call.step = await session.begin_call(tool.tool, params, irreversible=tool.irreversible)
                if not tool.is_read:  # the agent goes another way
                    self._forget_unheard()
                self._unheard.setdefault(call.mark, []).append(call.step)
            else:
                call.step, call.again = before, True
            if not call.left:
                self._attended.add(call.step)
        return await self._outcome(call)

    def leave(self, call: Call, *, heard: bool) -> None:
        """The agent no longer waits for a call; ``heard``: because it has its outcome."""
        call.left = True
        self._attended.discard(call.step)
        if heard and self._number is not None and call.saga_id == self._numbered(self._number):
            self._drop([call.step])

    def _forget_unheard(self) -> None:
        """Calls that the agent has not asked for again are not taken up later, unless it was told to do that."""
        listed = [step for steps in self._unheard.values() for step in steps]
        self._drop([step for step in listed if step not in self._attended and step not in self._told])

    def _before(self, mark: str) -> str | None:
        return next((step for step in self._unheard.get(mark, ()) if step not in self._attended), None)

    async def _opened(self, tool: Offered, params: Mapping[str, Any]) -> Session:
        """The session for a new call. Raises ``Pending`` if this very call waits since another life."""
        if self._session is None:  # nothing is begun for a call that cannot be made
            catalog = self._coordinator.tools
            call_record(catalog, tool.tool, params, None, irreversible=tool.irreversible, timeout_s=None)
        try:
            return await self._open()
        except NeedsPerson:
            name = await self.saga_id()
            for question in (await self._body(name))["questions"]:
                same = question["tool"] == tool.tool and question.get("params") == dict(params)
                if same and question["direction"] == "forward":
                    raise Pending(name, str(question["step_id"]), question) from None
            raise

    async def _outcome(self, call: Call) -> Any:
        """The output of a call. While an operator is asked, it is held for a while. Raises ``Pending``."""
        until = asyncio.get_running_loop().time() + (self._hold_s if call.is_held else 0)
        store = self._coordinator.store
        head: Head | None = None  # of the journal before the last attempt
        while True:
            try:
                session = await self._same(call)
                return await session.outcome(call.step)
            except LeaseHeld:
                head = None  # the process of the operator's answer has it
            except NeedsPerson:
                self._told.add(call.step)
            if not await changes(store, call.saga_id, head, until):
                questions = (await self._body(call.saga_id))["questions"]
                own = [each for each in questions if str(each["step_id"]) == call.step]
                raise Pending(call.saga_id, call.step, (own or questions or [{}])[0])
            head = await store.head(call.saga_id)

    async def _same(self, call: Call) -> Session:
        """The session of a call that was made. Raises ``SessionEnded``, and ``Interrupted`` if it was not made."""
        session = await self._open() if call.saga_id == await self.saga_id() else None
        if session is None or session.saga_id != call.saga_id:
            raise await self._not_finished(call)
        if not session.knows(call.step):
            self._drop([call.step])
            raise Interrupted(
                f"call {call.step} was not made, because saga {call.saga_id} came to rest before it",
                hint="make it again",
            )
        return session

    async def _not_finished(self, call: Call) -> SessionEnded:
        """Why a call that was made has no outcome, though its saga has ended."""
        body = await self._body(call.saga_id)
        step = next((each for each in body["steps"] if str(each["step_id"]) == call.step), None)
        said = f"saga {call.saga_id} has ended, and this call was not finished in it"
        if step is not None and step["status"] == "RESOLVED" and step["step_id"] in body["report"]["left_in_place"]:
            undone = ", ".join(str(each) for each in body["report"]["compensated"][:_LISTED])
            said = (
                f"an operator accepted call {call.step} as it is: whether it happened is not known, and what it did "
                f"stands. Saga {call.saga_id} has ended ({body['status']}); undone: call {undone or 'none'}"
            )
        hint = "saga_status tells what stands; the next call begins a new saga"
        return SessionEnded(said, hint=hint, saga_id=call.saga_id)

    # --- the session ---------------------------------------------------------------------------------------------

    async def _open(self) -> Session:
        """The open session of the present saga, or of the next one. Raises ``NeedsPerson`` and ``LeaseHeld``."""
        async with self._opening:
            while True:
                self._touched = True
                if self._session is not None and not self._session.at_rest:
                    return self._session
                await self._release()
                saga_id = await self.saga_id()
                session = await self._begun(saga_id)
                if session is not None:
                    return session
                await self._next(saga_id)

    async def _begun(self, saga_id: str) -> Session | None:
        """The session of a saga; None if it has ended."""
        block = self._coordinator.session(
            saga_id, goal=self._goal, on_divergence="append", limits=_AT_ONCE, observe=False
        )
        try:
            session = await block.__aenter__()
        except SessionEnded:
            return None
        except NeedsPerson:
            if (await self._body(saga_id))["session"] == "open":
                raise
            return None  # it is being undone, which waits for an operator
        self._block = block
        if session.turned:  # another process has begun to undo it
            await session.rest()
        if session.at_rest:
            await self._release()
            if (await self._body(saga_id))["session"] == "open":
                raise NeedsPerson(f"saga {saga_id} waits for an operator", saga_id=saga_id)
            return None
        for step, (tool, params) in session.unheard_calls().items():
            steps = self._unheard.setdefault(digest([tool, params]), [])
            if step not in steps and step not in self._heard:
                steps.append(step)
        self._session = session
        return session

    async def _release(self) -> None:
        """Leave the session as it is."""
        block, self._block, self._session = self._block, None, None
        if block is None:
            return
        left = Interrupted("the agent is gone")
        try:
            await block.__aexit__(Interrupted, left, None)
        except SagaError as error:
            if error is not left:
                raise

    async def _next(self, before: str) -> None:
        """Another saga comes after one that takes no more calls, unless it has come already.

        One that has not ended is being undone, which waits for an operator: it is unsettled from now on.
        """
        await self._release()
        if await self.saga_id() != before:
            return
        if (await self._body(before))["status"] not in SAGA_FINAL:
            self._unsettled.append(before)
        number = self._number = (self._number or 1) + 1
        self._unheard, self._heard, self._told, self._touched = {}, set(), set(), False
        if not self._kept:
            return
        documents = self._coordinator.store.documents()
        found = await documents.read("gateway", self.name)
        body = msgspec.json.encode(_Number(number, self._unsettled))
        written = Document(self.name, 0 if found is None else found.revision, body)
        if found is not None and msgspec.json.decode(found.body, type=_Number).number >= number:
            self._number = None  # another gateway with this id went on
        elif await documents.write("gateway", written) is None:
            self._number = None

    def _drop(self, steps: list[str]) -> None:
        """Calls that no repetition may take up any more."""
        self._heard.update(steps)
        rest = {mark: [step for step in listed if step not in steps] for mark, listed in self._unheard.items()}
        self._unheard = {mark: listed for mark, listed in rest.items() if listed}

    # --- what the agent asks for ---------------------------------------------------------------------------------

    async def savepoint(self) -> str:
        """A name for what has been done so far, for ``rollback``; it stays valid when the gateway starts again."""
        async with self._moving:
            saga_id = await self.saga_id()
            if await self._found(saga_id) is None:
                return f"{saga_id}:0"
            session = await self._open()
            await _finished(session)
            return f"{session.saga_id}:{session.savepoint().calls}"

    async def rollback(self, to: str | None) -> Report:
        """Undo everything, which ends the saga, or what came after a savepoint; says what was undone and what is left.

        To a savepoint it waits for the calls in flight first. Raises ``SessionEnded`` for one of another saga.
        """
        async with self._moving:
            arrived = self._arrived = []
            try:
                report = await self._undone(to)
            finally:
                self._arrived = None
            report.made_after = arrived
            return report

    async def _undone(self, to: str | None) -> Report:
        saga_id = await self.saga_id()
        calls = _place(to, saga_id)
        before = await self._found(saga_id)
        if before is None or (before["session"] != "open" and before["status"] in SAGA_FINAL):
            report = Report(saga_id, "NOTHING")
        else:
            report = await self._rolled_back(saga_id, before, calls)
        for name, body in (await self._earlier(saga_id)).items():
            problem = await self._finish(name) if calls is None else None  # an operator may have answered
            report.add_earlier(body, await self._body(name), problem)
        return report

    async def _rolled_back(self, saga_id: str, before: Mapping[str, Any], calls: int | None) -> Report:
        if before["session"] != "open":  # its undo was begun in another life, or by an operator
            problem = await self._finish(saga_id)
        else:
            problem = await (self._undo(saga_id) if calls is None else self._undo_since(calls))
        after = await self._body(saga_id)
        steps = [str(each["step_id"]) for each in after["steps"]][calls or 0 :]
        self._drop(steps)
        if calls is None and after["session"] != "open":
            await self._next(saga_id)
        return report_of(before, after, since=calls or 0, problem=problem)

    async def _earlier(self, but: str) -> dict[str, Mapping[str, Any]]:
        """What ``show`` says of the sagas before the present one that have not ended, by id; without ``but``."""
        await self.saga_id()
        found = {name: await self._found(name) for name in self._unsettled}
        waits = {name: body for name, body in found.items() if body and body["status"] not in SAGA_FINAL}
        self._unsettled = [name for name in self._unsettled if name in waits or name not in found]
        return {name: body for name, body in waits.items() if name != but}

    async def _finish(self, saga_id: str) -> SagaError | None:
        try:
            await self._coordinator.resume(saga_id)
        except SagaError as error:
            return error
        return None

    async def _undo_since(self, calls: int) -> SagaError | None:
        try:
            session = await self._open()
            await _finished(session)
            await session.rollback(Savepoint(calls))
        except (NeedsPerson, SessionEnded, LeaseHeld, Interrupted) as error:
            return error
        return None

    async def _undo(self, saga_id: str) -> SagaError | None:
        try:
            session = await self._open()
        except NeedsPerson:
            try:  # it rests over a question, which the cancel answers, or comes before the undo
                await self._coordinator.cancel(saga_id, by="agent", note="saga_rollback")
            except SagaError as error:
                return error
            return None
        if session.saga_id == saga_id:
            await session.rollback()
        return None

    async def done(self) -> dict[str, Any]:
        """Complete the saga; what it did stays. Raises ``NeedsPerson``."""
        async with self._moving:
            saga_id = await self.saga_id()
            before = await self._found(saga_id)
            if before is None or before["session"] != "open":
                return await self._status(saga_id, before)
            session = await self._open()
            if session.saga_id == saga_id:
                await _finished(session)
                block, self._block, self._session = self._block, None, None
                assert block is not None
                await block.__aexit__(None, None, None)
            after = await self._body(saga_id)
            if after["session"] != "open":
                await self._next(saga_id)
            return await self._status(saga_id, after)

    async def status(self) -> dict[str, Any]:
        """What has been done, what stands, and what waits for an operator."""
        saga_id = await self.saga_id()
        return await self._status(saga_id, await self._found(saga_id))

    async def _status(self, saga_id: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        return status_of(saga_id, body, (await self._earlier(saga_id)).values())

    async def read(self, call: str, first: int) -> dict[str, Any]:
        """A part of the result of a call of the present saga. Raises ``SagaNotFound`` if it has none."""
        saga_id = await self.saga_id()
        if self._reading[:2] != (saga_id, call):
            self._reading = saga_id, call, whole_text(await output_of(self._coordinator.store, saga_id, call))
        return {"call": call, **part_of(self._reading[2], first)}

    async def preview(self, to: str | None) -> dict[str, Any]:
        """What a rollback would undo now, in its order, and what would remain. Raises ``SessionEnded``."""
        saga_id = await self.saga_id()
        calls = _place(to, saga_id)
        body, earlier = await self._found(saga_id), await self._earlier(saga_id)
        tools = self._coordinator.tools
        records = None if body is None else await read_records(self._coordinator.store, saga_id)
        state = None if records is None else await folded_state(records, tools)
        asks = {} if state is None else self._asks(state)
        return preview_of(saga_id, body, earlier.values(), tools, since=calls or 0, asks=asks, state=state)

    def _asks(self, state: State) -> dict[str, str]:
        """The calls whose undo an operator would be asked about, as far as that is known before, and why."""
        tools = self._coordinator.tools
        found: dict[str, str] = {}
        for compiled in state.plan.steps:
            whole = state.whole_rollback(compiled.index)
            if whole is None or state.steps[compiled.index].effect is None:
                continue
            tool = tools.get(whole.tool)
            hand = tool is not None and isinstance(tool.function, ByHand)
            why = f"{whole.tool} is done by hand" if hand else cannot_be_made(state, compiled.index)
            if why:
                found[str(compiled.step_id)] = why
        return found

    async def end(self, policy: EndPolicy) -> None:
        """The agent is gone: apply the policy to what this process has worked on. Errors are logged."""
        if not self._touched:
            return
        saga_id = await self.saga_id()
        try:
            if policy == "undo":
                report = await self.rollback(None)
                _log.info("saga %s: the agent is gone; %s", saga_id, report.summary)
            elif policy == "complete":
                await self.done()
                _log.info("saga %s: the agent is gone, and what it did stays", saga_id)
        except SagaError as error:
            _log.warning("saga %s stays open: %s", saga_id, error)
        finally:
            await self._release()

    async def _found(self, saga_id: str) -> dict[str, Any] | None:
        try:
            return await self._body(saga_id)
        except SagaNotFound:
            return None

    async def _body(self, saga_id: str) -> dict[str, Any]:
        return dict((await self._coordinator.show(saga_id)).body)


async def changes(store: Store, saga_id: str, head: Head | None, until: float) -> bool:
    """Wait until a journal has grown beyond ``head``, or a message is unread; False: not in time."""
    clock, pause_s = asyncio.get_running_loop().time, _LOOK_FIRST_S
    while (rest_s := until - clock()) > 0:
        await asyncio.sleep(min(pause_s, rest_s))
        found = await store.head(saga_id)
        if head is None or found.length != head.length or found.messages:
            return True
        pause_s = min(pause_s * 2, _LOOK_MOST_S)
    return False


async def _finished(session: Session) -> None:
    """Wait for the calls in flight. Raises ``NeedsPerson``, and ``Interrupted`` if they take too long."""
    try:
        async with asyncio.timeout(FINISH_S):
            for step in session.open_calls():
                with suppress(CallFailed):
                    await session.outcome(step)
    except TimeoutError:
        raise Interrupted(
            f"call {', '.join(session.open_calls()[:5])} of saga {session.saga_id} has not ended yet; nothing was done",
            hint="try again later; saga_rollback without a savepoint does not wait for it",
        ) from None


def _place(to: str | None, saga_id: str) -> int | None:
    """How many calls a savepoint keeps; None: there is none. Raises ``SessionEnded``."""
    if to is None:
        return None
    name, _, calls = to.rpartition(":")
    if name != saga_id or not calls.isdecimal() or len(calls) > 9:
        raise SessionEnded(
            f"{to[:80]!r} is no savepoint of saga {saga_id}",
            hint="saga_savepoint returns them; those of a saga that has ended cannot be returned to",
            saga_id=saga_id,
        )
    return int(calls)
