"""The block of a session: it completes the session, or an error that leaves it undoes or keeps the session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from saga_engine.core import transitions as t
from saga_engine.errors import (
    CallInvalid,
    Interrupted,
    JournalConflict,
    LeaseHeld,
    LeaseLost,
    NeedsPerson,
    SagaExists,
    SessionDiverged,
    SessionEnded,
    StoreRefused,
    StoreUnavailable,
    ToolMissing,
)
from saga_engine.execution.result import Handle
from saga_engine.runtime.session import Session
from saga_engine.runtime.session_calls import told_kept

#: Errors that stop an agent and say nothing about its work: the session stays open.
_LEAVES_OPEN: Final = (
    Interrupted,
    JournalConflict,
    LeaseLost,
    NeedsPerson,
    SagaExists,
    LeaseHeld,
    SessionDiverged,
    SessionEnded,
    StoreRefused,
    StoreUnavailable,
    ToolMissing,
    GeneratorExit,
)


def _leaves_open(error: BaseException) -> bool:
    """Whether the error says nothing about the agent's work; a group of errors does not if none in it does."""
    if isinstance(error, BaseExceptionGroup):
        return all(_leaves_open(inner) for inner in error.exceptions)
    # A program whose tools are not all there has done nothing wrong.
    missing = isinstance(error, CallInvalid) and error.error_code == "tool-missing"
    return missing or isinstance(error, _LEAVES_OPEN)


async def _keep_diverged(session: Session, error: BaseException) -> None:
    """A session whose agent diverged still waits for the agent that it was kept for."""
    if session.turned_away and session.on_failure in ("keep", "ask"):
        await asyncio.shield(session.keep(error))


@asynccontextmanager
async def opened(
    session: Session, begin: Callable[[Session, Mapping[str, Any]], Awaitable[Handle]], body: Mapping[str, Any]
) -> AsyncIterator[Session]:
    """The session for the duration of a block: completed at its end, undone if an exception leaves it."""
    name = session.saga_id
    try:
        await session.begin(await begin(session, body))
        yield session
    except BaseException as error:
        if session.turned_away or _leaves_open(error):
            await _keep_diverged(session, error)
            session.link.leave()
            if not isinstance(error, asyncio.CancelledError):
                await session.people_told()
            raise
        if session.failing != "undo":
            outcome = await asyncio.shield(session.keep(error))
            error.add_note(told_kept(name, outcome))
            raise
        note = f"{type(error).__name__}: {error}"
        outcome = await asyncio.shield(session.close(reason="session-failed", note=note))
        if outcome.status != t.COMPENSATED:
            error.add_note(f"session {name} was not undone in full ({outcome.status}): see `saga show {name}`")
        raise
    else:
        try:
            outcome = await session.finish()
        except SessionDiverged as error:
            await _keep_diverged(session, error)
            raise
        if outcome.status == t.ESCALATED:
            raise session.ended(outcome)
        if not outcome.completed and not session.given_up:
            raise SessionEnded(f"session {name} did not complete: {outcome.status}", hint="see `saga show`")
    finally:
        session.link.leave()
