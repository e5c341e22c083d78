"""A planner without a model: its answers come from a script. For tests of agents, and for demonstrations.

::

    planner = ScriptedPlanner(
        {"steps": [{"step_id": "hotel", "tool": "book_hotel", "params": {"hotel": "Savoy"}}]},
        lambda request: {"impossible": f"nothing makes up for {request.stuck.tool}"},
        ModelUnreachable("the line is down"),
    )
    async with Coordinator.open(store="memory://", tools=TOOLS, planner=planner) as coordinator: ...

Its answers are hostile input like a model's: parsed, repaired, checked, and sent back with their problems.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from saga_engine.errors import PlannerUnavailable
from saga_engine.planner.json_extract import find_object
from saga_engine.ports import (
    CompensationRequest,
    PlannerAnswer,
    PlannerRequest,
    PlannerUsage,
    PlanRequest,
    ReplanRequest,
)

#: A plan or its steps, the text of a model, an error to raise, or a function of the request that returns one of these.
Said = Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | Exception
Answer = Said | Callable[[PlannerRequest], Said]
_PURPOSES = {PlanRequest: "propose", CompensationRequest: "compensate", ReplanRequest: "replan"}


class ScriptedPlanner:
    """A ``ports.Planner`` that gives its answers in order, whatever the request.

    ``asked`` are the requests so far. ``usage`` is the cost of each answer. Without a remaining answer it raises
    ``PlannerUnavailable``: a ``ModelUnreachable`` would make a saga wait and ask again.
    """

    def __init__(self, *answers: Answer, model: str = "scripted:planner", usage: PlannerUsage | None = None) -> None:
        self.model = model
        self.answers = list(answers)
        self.asked: list[PlannerRequest] = []
        self._usage = usage or PlannerUsage(requests=1)

    async def ask(self, request: PlannerRequest) -> PlannerAnswer:
        """The next answer of the script."""
        self.asked.append(request)
        if not self.answers:
            raise PlannerUnavailable(f"the script of {self.model} has no answer left", hint="give it more answers")
        said: Any = self.answers.pop(0)
        if callable(said):
            said = said(request)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, Sequence) and not isinstance(said, str):
            said = {"steps": list(said)}
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
        # Nothing was sent, so there is no prompt to digest.
        prompt = f"{_PURPOSES[type(request)]}@script"
        return PlannerAnswer(text, find_object(text), self.model, prompt, "", self._usage)
