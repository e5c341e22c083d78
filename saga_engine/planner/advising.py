"""Requests steps for a saga that is stuck: a model is asked until its steps pass the check, within one allowance.

The prompt contains the saga's history with results of tools, so the answer is as hostile as they are. Nothing in it is
trusted: the saga's own check decides, and tools that the model was not offered are refused.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from saga_engine.core.interpret import Advice
from saga_engine.core.records import Written
from saga_engine.errors import ModelUnreachable, PlannerUnavailable, Problem, SagaError
from saga_engine.plan.problems import known_names
from saga_engine.plan.values import cut, json_path, printable
from saga_engine.planner.allowed_tools import Offer
from saga_engine.planner.repair import mend_form
from saga_engine.planner.repair_loop import DEFAULT_ALLOWANCE, Rounds, Terms
from saga_engine.ports import Allowance, CompensationRequest, Planner, ReplanRequest, StepsCheck

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
    from saga_engine.ports import PlannerAnswer, Repair

#: Chooses tools for a text: at most a given number, with their undos and probes beside them.
SelectTools = Callable[[str, "ToolCatalog", int], Sequence["ToolSpec"]]

_Steps = list[dict[str, Any]]
_COMPENSATION: Final = Terms(
    wanted="steps",
    refused="nothing makes up for the step",
    refused_hint="this is the model's own word; a person decides",
    failed_hint="a person decides; another model may do better",
)
_OTHER_WAY: Final = Terms(
    wanted="steps",
    refused="there is no other way to the goal",
    refused_hint="this is the model's own word",
    failed_hint="another model may do better",
)
_MAX_PROBLEMS = 20
#: How many numbers are tried for an id that is taken.
_NUMBERS = range(2, 12)
_ID_CHARS = 60
_DOUBLE = re.compile(r"^\$\.steps\[(\d+)\]\.step_id\Z")
#: It may find too many (in a text where it would not bind), never too few.
_BOUND = re.compile(r"\$output\.step_([A-Za-z0-9_-]+)")


class ModelAdvisor:
    """A ``ports.Advisor`` that asks a planner, and repeats the question with the problems that the check finds.

    ``rounds``: the maximum number of requests for one answer. ``allowance`` covers all rounds of one answer. ``limit``:
    how many tools the model is offered. Of more, it gets those of the steps in question, then those that ``select``
    finds (without it, the first ones).

    Both questions raise ``GoalImpossible`` (the model says so), ``PlannerFailed`` (no steps that pass),
    ``ModelUnreachable`` and ``PlannerUnavailable``.
    """

    def __init__(
        self,
        planner: Planner,
        *,
        rounds: int = 3,
        allowance: Allowance = DEFAULT_ALLOWANCE,
        select: SelectTools | None = None,
        limit: int = 20,
    ) -> None:
        self._planner = planner
        self._rounds = rounds
        self._allowance = allowance
        self._select = select
        self._limit = limit

    async def compensate(self, request: CompensationRequest, check: StepsCheck) -> Advice:
        """Steps that compensate for one whose effect exists and cannot be undone."""
        if not request.tools:
            raise PlannerUnavailable(
                "no tool may make up for another's call, so no model was asked",
                hint="mark the tools that may with compensates=True",
            )
        # A compensating step is not undone, so it has no rollback to repair: this catalog knows no undos.
        form = Offer(())
        offer = self._offer(request.tools, _words(request.goal, request.stuck), [request.stuck.tool])
        tools = list(offer.offered.values())

        async def ask(repair: Repair | None, left: Allowance) -> PlannerAnswer:
            asked = replace(request, tools=tools, repair=repair, allowance=left)
            return await self._ask(self._planner.compensate(asked))

        def review(data: Mapping[str, Any], notes: list[str]) -> tuple[_Steps | None, list[Problem]]:
            steps, problems = _steps(mend_form(data, form, notes))
            return _reviewed(_without_rollbacks(steps, notes), problems, offer, check, notes)

        return await self._advise(ask, review, _COMPENSATION)

    async def replan(self, request: ReplanRequest, check: StepsCheck) -> Advice:
        """Other steps for the rest of a goal."""
        left_over = [str(step.get("tool", "")) for step in request.left]
        names = " ".join(str(step.get("name") or "") for step in request.left)
        words = f"{_words(request.goal, request.failed)} {names} {' '.join(left_over)}"
        offer = self._offer(request.tools, words, [request.failed.tool, *left_over])
        tools = list(offer.offered.values())

        async def ask(repair: Repair | None, left: Allowance) -> PlannerAnswer:
            asked = replace(request, tools=tools, repair=repair, allowance=left)
            return await self._ask(self._planner.replan(asked))

        def review(data: Mapping[str, Any], notes: list[str]) -> tuple[_Steps | None, list[Problem]]:
            steps, problems = _steps(mend_form(data, offer, notes))
            return _reviewed(steps, problems, offer, check, notes)

        return await self._advise(ask, review, _OTHER_WAY)

    async def _advise(
        self,
        ask: Callable[[Repair | None, Allowance], Awaitable[PlannerAnswer]],
        review: Callable[[Mapping[str, Any], list[str]], tuple[_Steps | None, list[Problem]]],
        terms: Terms,
    ) -> Advice:
        made = await Rounds(self._planner.model, ask, review, self._allowance, terms).run(self._rounds)
        answer, used = made.answer, made.usage
        written = Written(
            model=answer.model,
            prompt=answer.prompt,
            prompt_digest=answer.prompt_digest,
            requests=used.requests,
            tokens_in=used.tokens_in,
            tokens_out=used.tokens_out,
            cost_usd=used.cost_usd,
            seconds=round(used.seconds, 3),
        )
        return Advice(made.value, written)

    async def _ask(self, asking: Awaitable[PlannerAnswer]) -> PlannerAnswer:
        try:
            return await asking
        except SagaError:
            raise
        except Exception as error:
            # A planner may be foreign code: its defect must end the question, never the saga.
            said = printable(f"{type(error).__name__}: {error}", 500)
            raise ModelUnreachable(
                f"{self._planner.model} could not be asked: {said}", hint="this is a defect of the planner"
            ) from error

    def _offer(self, tools: Sequence[ToolSpec], words: str, needed: Sequence[str]) -> Offer:
        """The tools that the model is offered; the undos of all of them are known."""
        whole = Offer(tools)
        if len(tools) <= self._limit:
            return whole
        chosen = {name: spec for name in dict.fromkeys(needed) if (spec := whole.spec(name)) is not None}
        chosen = dict(list(chosen.items())[: self._limit])
        rest = Offer([spec for spec in tools if spec.name not in chosen])
        room = self._limit - len(chosen)
        found = list(rest.offered.values())[:room] if self._select is None else self._select(words, rest, room)
        # The result of ``select`` can only narrow what may be used.
        chosen |= {spec.name: spec for spec in found if spec.name in rest.offered}
        return Offer(list(chosen.values()), whole)


def _words(goal: str, step: Any) -> str:
    """The text that tools are chosen by; it contains no result of a tool."""
    return f"{goal} {step.name} {step.tool}"


# --- review --------------------------------------------------------------------------------------------------------


def _steps(form: Mapping[str, Any]) -> tuple[_Steps, list[Problem]]:
    """The steps of an answer, as far as their form can be read."""
    steps = form.get("steps")
    if not isinstance(steps, list) or not steps:
        hint = "give at least one step, or say under 'impossible' why there is none"
        return [], [Problem("field-invalid", "$.steps", "a list of steps is expected", hint)]
    wrong = [
        Problem("field-invalid", json_path(("steps", index)), "a step is an object", "write each step as an object")
        for index, step in enumerate(steps)
        if not isinstance(step, dict)
    ]
    return (list(steps), []) if not wrong else ([], wrong[:_MAX_PROBLEMS])


def _without_rollbacks(steps: _Steps, notes: list[str]) -> _Steps:
    if not any("rollback" in step for step in steps):
        return steps
    notes.append("the rollbacks were left out: steps that make up for another one are not undone")
    return [{name: value for name, value in step.items() if name != "rollback"} for step in steps]


def _reviewed(
    steps: _Steps, problems: list[Problem], offer: Offer, check: StepsCheck, notes: list[str]
) -> tuple[_Steps | None, list[Problem]]:
    """The steps, repaired if that needs no decision, and their remaining problems."""
    if problems:
        return None, problems
    found = list(check(steps))
    if any(problem.code == "step-duplicate" for problem in found):
        steps, found = _with_other_ids(steps, found, check, notes)
    known = {problem.path for problem in found}
    return steps, [*found, *(problem for problem in _beyond(steps, offer) if problem.path not in known)]


def _with_other_ids(
    steps: _Steps, found: list[Problem], check: StepsCheck, notes: list[str]
) -> tuple[_Steps, list[Problem]]:
    """The steps with other ids in place of those that are taken, and their problems then.

    Only if nothing in the answer names such an id: otherwise only the model knows which of the two steps is meant.
    """
    doubles = {
        int(match[1])
        for problem in found
        if problem.code == "step-duplicate" and (match := _DOUBLE.match(problem.path))
    }
    taken = {str(step.get("step_id")) for index, step in enumerate(steps) if index in doubles}
    if not doubles or taken & set(_named(steps)):
        return steps, found
    for number in _NUMBERS:
        renamed = [
            {**step, "step_id": f"{str(step['step_id'])[:_ID_CHARS]}_{number}"} if index in doubles else step
            for index, step in enumerate(steps)
        ]
        again = list(check(renamed))
        if not any(problem.code == "step-duplicate" for problem in again):
            notes.append(f"ids that were taken got the ending _{number}: {', '.join(sorted(taken))[:200]}")
            return renamed, again
    return steps, found


def _named(value: Any) -> Iterator[str]:
    """All ids of steps that appear anywhere, as a dependency or in a binding."""
    if isinstance(value, str):
        yield from _BOUND.findall(value)
    elif isinstance(value, list):
        for item in value:
            yield from _named(item)
    elif isinstance(value, dict):
        waits = value.get("depends_on")
        yield from (str(each) for each in (waits if isinstance(waits, list) else (waits,)))
        for key, item in value.items():
            yield from _named(key)
            yield from _named(item)


def _beyond(steps: _Steps, offer: Offer) -> list[Problem]:
    """The places where steps call a tool that was not offered; the registered undo of an offered one may undo."""
    found: list[Problem] = []
    for index, step in enumerate(steps):
        for tool, path, undoes in _called(step, ("steps", index)):
            allowed = offer.spec(tool) is not None if undoes else tool in offer.offered
            if not allowed:
                message = f"the tool {cut(tool, 80)} was not offered"
                hint = known_names(sorted(offer.offered), "tools")
                found.append(Problem("tool-not-offered", json_path(path), message, hint))
    return found[:_MAX_PROBLEMS]


def _called(step: Mapping[str, Any], path: tuple[str | int, ...]) -> Iterator[tuple[str, tuple[str | int, ...], bool]]:
    """The tools that a step names, each with its place and whether it only undoes."""
    if isinstance(step.get("tool"), str):
        yield step["tool"], (*path, "tool"), False
    rollback = step.get("rollback")
    if isinstance(rollback, dict) and isinstance(rollback.get("tool"), str):
        yield rollback["tool"], (*path, "rollback", "tool"), True
    fallback = step.get("fallback")
    for number, each in enumerate(fallback if isinstance(fallback, list) else (fallback,)):
        if isinstance(each, dict):
            yield from _called(each, (*path, "fallback", number))
