"""Reads what a call is about to change, what it has become, and what an undo finds (``core.images``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import zip_longest
from typing import Any, Final

from msgspec.structs import replace

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
from saga_engine.core.state_values import StepState
from saga_engine.errors import BindingUnresolved, SecretMissing, StoreRefused, StoreUnavailable
from saga_engine.execution.calls import scrub
from saga_engine.execution.computing import computed
from saga_engine.language.errors import said
from saga_engine.plan.compiled import CompiledRead
from saga_engine.ports import Call, Rivals, Tools
from saga_engine.runtime.secret_scope import SecretScope

Made = Callable[[], Awaitable[Outcome]]
#: In an image that an operator is shown: when other sagas last wrote it, in ms, of each resource.
_WRITTEN: Final = "written_ms"


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
            message = said("image_unread.before")
            return NotDone(ErrorInfo("image_unread", message, said("image_unread.hint"), retryable=False), False)
        return await self._made(state, index, direction, read)

    async def after_undo(self, state: State, effect: LookAfterUndo) -> Image | NotDone:
        """What is there after an undo (``core.verified``); or why it could not be read. Raises ``LeaseLost``."""
        if effect.by == "before":
            return _as_seen(state.steps[effect.step], await self.read(state, effect.step, COMPENSATE))
        check = state.acting(effect.step).check
        if check is None:
            message = said("image_unread.check")
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

    async def rivals(self, state: State, index: int, call: Call) -> Rivals | NotDone | None:
        """Which other sagas wrote since the step what its undo would overwrite; or why that is not known."""
        acting = state.acting(index)
        try:
            params = await computed(lambda: acting.params.resolve(SecretScope(state)))
            return await self._tools.rivals(acting.tool, params, call)
        except SecretMissing as error:
            return NotDone(ErrorInfo("secret_missing", error.message, error.hint))
        except BindingUnresolved:
            return None  # nobody knows what the call was made with, so not what it has locked either
        except (StoreUnavailable, StoreRefused) as error:
            why = said("image_unread.rivals", message=error.message)
            return NotDone(ErrorInfo("image_unread", why, error.hint), retryable=True)

    def around(self, state: State, effect: CallTool, call: Call) -> Callable[[Made], Awaitable[Outcome]] | None:
        """What surrounds the call of a step whose value is watched; None: nothing does."""
        if effect.direction == FORWARD:
            read = state.acting(effect.step).before
            return None if read is None else _Forward(self, state, effect.step, read)
        return _Undo(self, state, effect.step, call) if images.guards_undo(state, effect.step) else None

    def watched(self, state: State, effect: CallTool, call: Call) -> Call:
        """The call with what surrounds it."""
        around = self.around(state, effect, call)
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

    __slots__ = ("_call", "_index", "_reader", "_state")

    def __init__(self, reader: ImageReader, state: State, index: int, call: Call) -> None:
        self._reader = reader
        self._state = state
        self._index = index
        self._call = call

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
        seen = _cleared(step, found)
        if seen is not None:
            judged = "undo"
        rivals = await self._reader.rivals(state, index, self._call)
        if isinstance(rivals, NotDone):
            return rivals
        news = rivals is not None and any(
            at > was for at, was in zip_longest(rivals.written_ms, seen or (), fillvalue=0)
        )
        if judged == "undo" and (not news or (step.look is not None and images.same(found, step.cleared))):
            return await make()
        error = images.drift(read, step) if judged == "drift" else _same_again(read)
        return Drifted(*_with_rivals(error, found, rivals))


def _cleared(step: StepState, found: Image) -> Sequence[int] | None:
    """Until when an operator has seen what others wrote, who wants this very value overwritten; None: nobody does."""
    if not isinstance(step.cleared, dict) or not images.same(found, _value_of(step.cleared)):
        return None
    written: Sequence[int] = step.cleared.get(_WRITTEN, ())
    return written


def _value_of(image: Image) -> Image:
    return {name: part for name, part in image.items() if name != _WRITTEN}


def _as_seen(step: StepState, found: Image | NotDone) -> Image | NotDone:
    """An image after the undo: as the operator saw it who says that the undo was made by hand, if it is that one."""
    seen = None if step.look is None else step.look.seen
    if isinstance(seen, dict) and isinstance(found, dict) and not images.same(found, step.after):
        return seen if images.same(found, _value_of(seen)) else found
    return found


def _same_again(read: CompiledRead) -> ErrorInfo:
    return ErrorInfo(
        "drift",
        said("drift.again", tool=read.tool),
        said("drift.hint-overwrites"),
    )


def _with_rivals(error: ErrorInfo, found: Image, rivals: Rivals | None) -> tuple[ErrorInfo, Image]:
    """The question about a drift names who wrote, and what it shows tells until when that is known."""
    if rivals is None:
        return error, found
    advice = f"{rivals.advice}; {said('drift.hint-overwrites')}" if rivals.advice else error.suggestion
    error = replace(error, message=f"{error.message}; {rivals.told}"[:1000], suggestion=advice)
    return error, {**found, _WRITTEN: [*rivals.written_ms]} if any(rivals.written_ms) else found


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
