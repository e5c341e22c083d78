"""Simulated agents without a plan, each in a session that is kept when a call fails. They are killed and come back.

An agent makes some calls with a wrong item. Such a call fails, the session is kept, and the agent runs again with the
same id, mended. Some agents return to a savepoint before they give up, some take a call back themselves, by its undo,
at any point after it, and some kill their process in the middle of a call, with all other agents in it. What an agent
has learned is in files, which outlive its process.

Everything about session number N follows from N and the seed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from dev.chaos.child import play, together
from dev.chaos.tools import KINDS
from saga_engine import CallFailed, Coordinator, SagaError
from saga_engine.core import transitions as t
from saga_engine.errors import SessionDiverged, SessionEnded

_log = logging.getLogger("dev.chaos.agent")
_AGAIN_S: Final = 0.2
_AT_ONCE: Final = 6
#: A kill comes so many seconds after its call began, at most: before, during or after the effect.
_DYING_S: Final = 0.1
#: The fates of calls.
_LUCKS: Final = ("ok", "ok", "ok", "busy,ok", "lost,ok", "cut,ok", "gone,lost,ok")
#: In the names of the files of agents that killed their process.
DIED: Final = "died"
#: What the log says of an agent that got other answers than before; the run fails then.
DIVERGED: Final = "the agent got another way"


class Call(NamedTuple):
    """One call of an agent. ``wrong``: until it is mended, it is refused. ``dies``: the process is killed in it.

    ``back``: it is the undo of the earlier call with this item, with the params that the engine would fill in.
    """

    kind: str
    item: str
    luck: str
    wrong: bool
    irreversible: bool
    dies: bool
    back: bool = False

    @property
    def tool(self) -> str:
        return f"{'undo' if self.back else 'book'}_{self.kind}"

    def params(self, luck: str) -> dict[str, str]:
        """What the tool is called with."""
        return {"ref" if self.back else "item": self.item, "luck": luck}


class Script(NamedTuple):
    """What an agent does. ``returns``: before it gives up, it returns to the savepoint before its last call."""

    saga_id: str
    calls: tuple[Call, ...]
    returns: bool


class Duties(NamedTuple):
    """The configuration of a process of agents. ``folder``: what the agents have learned."""

    url: str
    world: str
    log: str
    folder: str
    seed: int
    sessions: int
    lease_s: float


def session_id(seed: int, number: int) -> str:
    """The id of a run's session."""
    return f"chaos-{seed}-agent-{number:05d}"


def script(seed: int, number: int) -> Script:
    """What the agent of a run's session does."""
    dice = Random(f"{seed}:agent:{number}")
    count = dice.randint(2, 6)
    wrong = set(dice.sample(range(count), dice.choice((0, 1, 1, 1, 2))))
    dying = dice.randrange(count) if dice.random() < 0.4 else None
    kinds = [dice.choice(KINDS) for _ in range(count)]
    calls = [
        Call(
            kind=kind,
            item=f"a{at}",
            luck=dice.choice(_LUCKS if kind == "bare" else (*_LUCKS, "break,ok", "break,break,ok")),
            wrong=at in wrong,
            irreversible=dice.random() < 0.1,
            dies=at == dying,
        )
        for at, kind in enumerate(kinds)
    ]
    returns = dice.random() < 0.3
    for _ in range(dice.choice((0, 0, 1, 1, 2))):
        _take_back(dice, calls)
    return Script(session_id(seed, number), tuple(calls), returns)


def _take_back(dice: Random, calls: list[Call]) -> None:
    """Have the agent take back one of its calls, at any point after it; sometimes it makes the same call once more."""
    taken = {call.item for call in calls if call.back}
    chosen = [at for at, call in enumerate(calls) if not call.irreversible and call.item not in taken]
    if not chosen:
        return
    at = dice.choice(chosen)
    first = calls[at]._replace(wrong=False, dies=False)
    place = dice.randint(at + 1, len(calls))
    calls.insert(place, first._replace(back=True, dies=dice.random() < 0.1))
    if dice.random() < 0.4:
        calls.insert(dice.randint(place + 1, len(calls)), first)


def main(duties: Duties) -> None:
    """The process; it ends when every session has ended. Sessions that have ended are answered from their journals."""
    play(duties, lambda coordinator: _Agents(coordinator, duties).run())


class _Agents:
    def __init__(self, coordinator: Coordinator, duties: Duties) -> None:
        self._coordinator = coordinator
        self._folder = Path(duties.folder)
        self._left = iter([script(duties.seed, number) for number in range(duties.sessions)])

    async def run(self) -> None:
        """Run the agents of all sessions, some at a time."""
        await together(*(self._one_after_another() for _ in range(_AT_ONCE)))

    async def _one_after_another(self) -> None:
        for todo in self._left:
            await self._see_through(todo)

    async def _see_through(self, todo: Script) -> None:
        """Run an agent again and again, until its session has ended."""
        while True:
            try:
                await self._run(todo)
                return
            except SessionEnded:  # it was cancelled, or undone by an operator
                return
            except SessionDiverged as error:
                if await self._has_ended(todo):  # an operator closed it, and the agent wanted to go on
                    return
                _log.error("%s: session %s: %s", DIVERGED, todo.saga_id, error)
                return
            except CallFailed as error:
                _log.info("session %s: %s", todo.saga_id, error)
            except SagaError as error:  # the store is away, another process has it, or an operator is needed
                _log.info("session %s: not now: %s: %s", todo.saga_id, error.code, error)
                await asyncio.sleep(_AGAIN_S)

    async def _run(self, todo: Script) -> None:
        failed: int | None = None
        mended = [self._knows(todo, "mended", at) for at in range(len(todo.calls))]
        try:
            async with self._coordinator.session(todo.saga_id, on_failure="keep") as session:
                point = session.savepoint()
                for at, call in enumerate(todo.calls):
                    if call.dies and not self._knows(todo, DIED, at):
                        self._learn(todo, DIED, at)
                        delay_s = Random(f"{todo.saga_id}:dies").random() * _DYING_S
                        asyncio.get_running_loop().call_later(delay_s, os.kill, os.getpid(), signal.SIGKILL)
                    luck = "refuse" if call.wrong and not mended[at] else call.luck
                    try:
                        await session.call(call.tool, call.params(luck), irreversible=call.irreversible)
                    except CallFailed:
                        failed = at
                        if todo.returns:
                            await session.rollback(point)
                        raise
                    if at + 2 < len(todo.calls):
                        point = session.savepoint()
        except CallFailed:
            if failed is not None:
                self._learn(todo, "mended", failed)
            raise

    async def _has_ended(self, todo: Script) -> bool:
        while True:
            try:
                return (await self._coordinator.show(todo.saga_id)).status in t.SAGA_FINAL
            except SagaError as error:
                _log.info("session %s: not now: %s: %s", todo.saga_id, error.code, error)
                await asyncio.sleep(_AGAIN_S)

    def _knows(self, todo: Script, what: str, at: int) -> bool:
        return self._note(todo, what, at).exists()

    def _learn(self, todo: Script, what: str, at: int) -> None:
        self._note(todo, what, at).touch()

    def _note(self, todo: Script, what: str, at: int) -> Path:
        return self._folder / f"{todo.saga_id}-{what}-{at}"
