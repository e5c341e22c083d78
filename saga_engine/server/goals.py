"""Goals that people gave a model in the console: the rounds so far, and the plan, until it is submitted or displaced.

They live in this process. An asking belongs to the caller who began it: nobody else sees it or submits its plan. What
is submitted is the plan that the page showed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import PlannerAsks, PlannerNeeds, RequestInvalid, SagaError
from saga_engine.execution.aside import context_of_its_own

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.planner.planning import PlannedPlan
    from saga_engine.server.identity import Identity

#: So many are kept, and so many of one caller are asked at a time.
_MOST: Final = 100
_AT_ONCE: Final = 2


@dataclass(slots=True)
class Asking:
    """One goal. While it has neither ``planned`` nor ``error``, the model is at work."""

    id: str
    owner: tuple[str, str, str]
    goal: str
    input: Mapping[str, Any] | None
    may_use: tuple[str, ...]
    rounds: list[Mapping[str, Any]] = field(default_factory=list)
    planned: PlannedPlan | None = None
    error: SagaError | None = None
    saga_id: str = ""

    @property
    def running(self) -> bool:
        """Whether the model is at work."""
        return self.planned is None and self.error is None

    @property
    def questions(self) -> Sequence[Mapping[str, Any]]:
        """What the model asks before it plans."""
        return self.error.questions if isinstance(self.error, PlannerAsks) else ()

    @property
    def needs(self) -> Sequence[str]:
        """The parts of the format that the model says that it needs."""
        return self.error.needs if isinstance(self.error, PlannerNeeds) else ()


class Goals:
    """The goals of one server."""

    def __init__(self) -> None:
        self._askings: dict[str, Asking] = {}
        self._tasks: dict[asyncio.Task[None], Asking] = {}

    def begin(
        self,
        engine: Coordinator,
        identity: Identity,
        goal: str,
        *,
        given: Mapping[str, Any] | None,
        may_use: Sequence[str],
        answers: Mapping[str, str],
    ) -> Asking:
        """Ask the model in a task. Raises ``RequestInvalid`` while it works for this caller on as many as may be."""
        owner = _owner(identity)
        if sum(each.owner == owner for each in self._tasks.values()) >= _AT_ONCE:
            message = f"the model works on {_AT_ONCE} goals of yours now"
            raise RequestInvalid(message, hint="wait until one is done", where="goal", status=429)
        asking = Asking(secrets.token_urlsafe(16), owner, goal, given, tuple(may_use))
        self._askings[asking.id] = asking
        most = max(len(self._askings) - _MOST, 0)
        for old in [each for each in self._askings.values() if not each.running][:most]:
            del self._askings[old.id]
        task = context_of_its_own().run(asyncio.create_task, _ask(engine, asking, answers))
        self._tasks[task] = asking
        task.add_done_callback(self._tasks.pop)
        return asking

    def of(self, identity: Identity, asking_id: str) -> Asking:
        """An asking of this caller. Raises ``RequestInvalid``."""
        found = self._askings.get(asking_id)
        if found is None or found.owner != _owner(identity):
            hint = "give the goal again: the plans of models are kept until the server ends"
            raise RequestInvalid("there is no such goal", hint=hint, where="path", status=404)
        return found

    async def close(self) -> None:
        """No model is asked any more."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(engine: Coordinator, asking: Asking, answers: Mapping[str, str]) -> None:
    ended: SagaError = RequestInvalid("the server ended before the model was done", hint="give the goal again")
    try:
        asking.planned = await engine.plan(
            asking.goal,
            input=asking.input,
            answers=dict(answers) or None,
            may_use=asking.may_use,
            progress=asking.rounds.append,
        )
        return
    except SagaError as error:
        ended = error
    finally:
        if asking.planned is None:
            asking.error = ended


def _owner(identity: Identity) -> tuple[str, str, str]:
    return identity.tenant, identity.who, identity.token_id
