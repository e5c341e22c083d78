"""Reads what a call is about to change, what it has become, and what an undo finds (``core.images``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from saga_engine.core import expected, images
from saga_engine.core.effects import (
    COMPENSATE,
    FORWARD,
    CallTool,
    Direction,
    Done,
    Drifted,
    ErrorInfo,
    LookAfterUndo,
    NotDone,
    Outcome,
    Probe,
    Unknown,
)
from saga_engine.core.images import Image
from saga_engine.core.keys import read_key
from saga_engine.core.state import State, StateScope
from saga_engine.errors import BindingUnresolved, SecretMissing
from saga_engine.execution.calls import scrub
from saga_engine.execution.computing import computed
from saga_engine.plan.compiled import CompiledRead
from saga_engine.ports import Call, Tools
from saga_engine.runtime.secret_scope import SecretScope

Made = Callable[[], Awaitable[Outcome]]


class ImageReader:
    """Makes the reads around the calls of all sagas of a process."""

    __slots__ = ("_permit", "_tools")

    def __init__(self, tools: Tools, permit: Callable[[], None]) -> None:
        self._tools = tools
        self._permit = permit

    async def read(self, state: State, index: int, direction: Direction = FORWARD) -> Image | NotDone:
        """What the value is now; or why it could not be read. Raises ``LeaseLost``."""
        read = state.acting(index).before
        if read is None:
            message = "the tool declares no read of the value any more, so nobody can tell whether it changed"
            return NotDone(ErrorInfo("image_unread", message, "restore the tool's 'before'", retryable=False), False)
        return await self._made(state, index, direction, read)

    async def after_undo(self, state: State, effect: LookAfterUndo) -> Image | NotDone:
        """What is there after an undo (``core.verified``); or why it could not be read. Raises ``LeaseLost``."""
        if effect.by == "before":
            return await self.read(state, effect.step, COMPENSATE)
        check = state.acting(effect.step).check
        if check is None:
            message = "the tool declares no 'undo_check' any more, so nobody looks after its undo"
            return NotDone(ErrorInfo("image_unread", message, retryable=False), retryable=False)
        return await self._made(state, effect.step, COMPENSATE, check)

    async def _made(self, state: State, index: int, direction: Direction, read: CompiledRead) -> Image | NotDone:
        scope = SecretScope(state)
        try:
            params = await computed(lambda: read.params.resolve(scope))
        except SecretMissing as error:
            return NotDone(ErrorInfo("secret_missing", error.message, error.hint))
        except BindingUnresolved as error:
            return NotDone(ErrorInfo("binding_unresolved", error.message, retryable=False), retryable=False)
        self._permit()
        call = _call_of(state, index, direction, read)
        return images.image_of(read, scrub(await self._tools.read(read.tool, params, call), scope.seen))

    async def read_again(self, state: State, index: int, call: Call) -> Image | NotDone | None:
        """What the value is after the call has waited; None: it has no before-image, or keeps its first one."""
        wanted = call.direction == FORWARD and images.needs_image(state, index) and not expected.expects(state, index)
        return await self.read(state, index) if wanted else None

    def around(self, state: State, effect: CallTool) -> Callable[[Made], Awaitable[Outcome]] | None:
        """What surrounds the call of a step whose value is watched; None: nothing does."""
        if effect.direction == FORWARD:
            read = state.acting(effect.step).before
            return None if read is None else _Forward(self, state, effect.step, read)
        return _Undo(self, state, effect.step) if images.guards_undo(state, effect.step) else None

    def watched(self, state: State, effect: CallTool, call: Call) -> Call:
        """The call with what surrounds it."""
        around = self.around(state, effect)
        if around is None:
            return call
        return call._replace(around=around, expected=self._told(state, effect))

    def _told(self, state: State, effect: CallTool) -> dict[str, Any] | None:
        """What the other side is told of the value that the saga has read; None: it does not compare."""
        read = state.acting(effect.step).before if effect.direction == FORWARD else None
        return None if read is None else expected.filled(read, state.steps[effect.step].before)

    async def settle(self, state: State, effect: Probe, outcome: Outcome) -> Outcome:
        """What is known of a call in doubt once its value has been read; ``outcome`` is what its probe said."""
        index, direction = effect.step, effect.direction
        if type(outcome) is Unknown and images.reads_settle(state, index, direction):
            found = await self.read(state, index, direction)
            return (
                Unknown(found.error) if isinstance(found, NotDone) else images.settled(state, index, direction, found)
            )
        read = state.acting(index).before
        if type(outcome) is Done and direction == FORWARD and read is not None:
            # What is there now may be another's, unless nobody else writes.
            if read.after == "output":
                return outcome._replace(after={"value": outcome.output})
            if read.sole_writer:
                return outcome._replace(after=await self.after(state, index))
        return outcome

    async def after(self, state: State, index: int) -> Image:
        """The value as it is after the call; or that it could not be read."""
        found = await self.read(state, index)
        return images.unread(found) if isinstance(found, NotDone) else found


class _Forward:
    """The call, and the read after it."""

    __slots__ = ("_index", "_read", "_reader", "_state")

    def __init__(self, reader: ImageReader, state: State, index: int, read: CompiledRead) -> None:
        self._reader = reader
        self._state = state
        self._index = index
        self._read = read

    async def __call__(self, make: Made) -> Outcome:
        outcome = await self._made(make)
        if type(outcome) is not Done or outcome.via != "call":
            return outcome
        if self._read.after == "output":
            return outcome._replace(after={"value": outcome.output})
        return outcome._replace(after=await self._reader.after(self._state, self._index))

    async def _made(self, make: Made) -> Outcome:
        """The call, if the value is what the saga expects; else why it was not made."""
        state, index, read = self._state, self._index, self._reader.read
        if self._read.expect is None:
            return await make()
        compares = expected.told(state, index)  # the other side
        if not compares or state.steps[index].forward.doubt:
            said = expected.judged(state, index, await read(state, index))
            if said is not None:
                return said
        outcome = await make()
        if not (compares and expected.is_refusal(outcome)):
            return outcome
        assert isinstance(outcome, NotDone)
        return expected.refused(state, index, outcome, await read(state, index))


class _Undo:
    """The read before an undo, and the undo, if the value is as the step left it."""

    __slots__ = ("_index", "_reader", "_state")

    def __init__(self, reader: ImageReader, state: State, index: int) -> None:
        self._reader = reader
        self._state = state
        self._index = index

    async def __call__(self, make: Made) -> Outcome:
        state, index = self._state, self._index
        read = state.acting(index).before
        found = await self._reader.read(state, index, "compensate")
        if isinstance(found, NotDone) or read is None:
            assert isinstance(found, NotDone), "without a read nothing is found"
            return found
        step, own = state.steps[index], images.would_leave(state, index, found)
        judged = images.judge(step, found, sole_writer=read.sole_writer, own=own)
        if judged == "restored":
            return Done(None, via="unchanged")
        return await make() if judged == "undo" else Drifted(images.drift(read, step), found)


def _call_of(state: State, index: int, direction: Direction, read: CompiledRead) -> Call:
    step = state.plan.steps[index]
    attempt = state.steps[index].call(direction).attempt
    return Call(
        state.saga_id,
        step.key,
        FORWARD,
        max(attempt, 1),
        read_key(state.saga_id, step.key, state.seed),
        state.epoch,
        None,
        read.timeout_s,
        masked=_masked(state, read),
        backward=direction != FORWARD,
    )


def _masked(state: State, read: CompiledRead) -> dict[str, Any] | None:
    return read.params.resolve(StateScope(state)) if read.params.secrets else None
