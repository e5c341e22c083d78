"""Asks a model again with the problems of its answer: a number of rounds within one allowance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from saga_engine.errors import (
    GoalImpossible,
    ModelUnreachable,
    PlanInvalid,
    PlannerFailed,
    PlannerUnavailable,
    Problem,
)
from saga_engine.plan.values import printable
from saga_engine.ports import Allowance, PlannerUsage, Repair

if TYPE_CHECKING:
    from saga_engine.ports import PlannerAnswer

_T = TypeVar("_T")

#: The default allowance of one question, with all its rounds.
DEFAULT_ALLOWANCE = Allowance(requests=10, tokens=200_000, cost_usd=None, seconds=60.0)
_SAID_CHARS = 4000
_REASON_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Terms:
    """Wording of the errors: what is ``wanted`` of the model, what a refusal means, and what may help."""

    wanted: str
    refused: str
    refused_hint: str
    failed_hint: str


@dataclass(frozen=True, slots=True)
class Found(Generic[_T]):
    """A value that passed, its answer, and the usage of all rounds."""

    value: _T
    answer: PlannerAnswer
    rounds: int
    usage: PlannerUsage
    notes: tuple[str, ...]
    transcript: tuple[Mapping[str, Any], ...]


#: Asks once, with the problems of the last answer and the remaining allowance.
Ask = Callable[[Repair | None, Allowance], Awaitable["PlannerAnswer"]]
#: Builds a value from an answer's object and finds its problems; adds its repairs to the notes.
Review = Callable[[Mapping[str, Any], list[str]], tuple[_T | None, list[Problem]]]


@dataclass(slots=True)
class Rounds(Generic[_T]):
    """One question to one model. ``used`` and ``transcript`` grow with each round, up to ``most`` rounds."""

    model: str
    ask: Ask
    review: Review[_T]
    allowance: Allowance
    terms: Terms
    used: PlannerUsage = field(default_factory=PlannerUsage)
    transcript: list[dict[str, Any]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    most: int = 0

    async def run(self, rounds: int) -> Found[_T]:
        """Ask at most ``rounds`` times, until an answer passes.

        Raises ``GoalImpossible``, ``PlannerFailed`` (with the transcript), ``ModelUnreachable`` (the time is over), and
        the errors of ``ask``.
        """
        self.most = rounds
        try:
            async with asyncio.timeout(self.allowance.seconds) as limit:
                return await self._rounds(rounds)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ModelUnreachable(
                f"{self.model} gave no {self.terms.wanted} within {self.allowance.seconds:g} seconds",
                hint="ask again, or allow more time: SAGA_MODEL_TOTAL_S",
                **self._so_far(),
            ) from error
        except (ModelUnreachable, PlannerUnavailable) as error:
            # The answers and the usage of earlier rounds are not lost with it.
            requests = error.context.get("requests", 0)
            self._count(PlannerUsage(requests=requests if isinstance(requests, int) else 0))
            error.context = {**error.context, **self._so_far()}
            raise

    async def _rounds(self, rounds: int) -> Found[_T]:
        repair: Repair | None = None
        for number in range(1, rounds + 1):
            answer = await self.ask(repair, self._left())
            self._count(answer.usage)
            notes: list[str] = []
            value, problems = self._reviewed(answer, notes)
            self._write_down(number, answer, problems, notes)
            if value is not None and not problems:
                notes += self._not_applied()
                return Found(value, answer, number, self._usage(), tuple(notes), tuple(self.transcript))
            repair = Repair(answer.json_text or answer.text, problems, notes)
        many = "s" if rounds != 1 else ""
        raise self._failed(f"gave no valid {self.terms.wanted} in {rounds} round{many}", repair)

    def _reviewed(self, answer: PlannerAnswer, notes: list[str]) -> tuple[_T | None, list[Problem]]:
        """The value in an answer, and its remaining problems. Raises ``GoalImpossible``."""
        try:
            data = read_answer(answer)
        except PlanInvalid as error:
            return None, error.problems
        reason = impossible(data)
        if reason is not None:
            self._write_down(len(self.transcript) + 1, answer, [], notes)
            raise GoalImpossible(
                f"{self.terms.refused}: {reason}",
                hint=self.terms.refused_hint,
                model=answer.model,
                **self._so_far(),
            )
        return self.review(data, notes)

    def _left(self) -> Allowance:
        """The allowance of the next question. Raises ``PlannerFailed`` if nothing remains."""
        whole, used = self.allowance, self.used
        left = Allowance(
            None if whole.requests is None else whole.requests - used.requests,
            None if whole.tokens is None else whole.tokens - used.tokens_in - used.tokens_out,
            None if whole.cost_usd is None else whole.cost_usd - (used.cost_usd or 0.0),
            whole.seconds,
        )
        for name, rest in (("requests", left.requests), ("tokens", left.tokens), ("cost_usd", left.cost_usd)):
            if rest is not None and rest <= 0:
                raise self._failed(f"used up its budget of {name}", None)
        return left

    def _count(self, usage: PlannerUsage) -> None:
        known = [cost for cost in (self.used.cost_usd, usage.cost_usd) if cost is not None]
        self.used = PlannerUsage(
            self.used.tokens_in + usage.tokens_in,
            self.used.tokens_out + usage.tokens_out,
            self.used.requests + usage.requests,
            sum(known) if known else None,
            self.used.seconds + usage.seconds,
        )

    def _usage(self) -> PlannerUsage:
        return replace(self.used, seconds=time.monotonic() - self.started)

    def _write_down(self, number: int, answer: PlannerAnswer, problems: list[Problem], notes: list[str]) -> None:
        self.transcript.append(
            {
                "round": number,
                "prompt": answer.prompt,
                "prompt_digest": answer.prompt_digest,
                "answer": printable(answer.text, _SAID_CHARS),
                "problems": [problem.to_dict() for problem in problems],
                "notes": list(notes),
                "usage": usage_dict(answer.usage),
            }
        )

    def _failed(self, what: str, repair: Repair | None) -> PlannerFailed:
        problems = repair.problems if repair is not None else ()
        first = f"; the last try: {problems[0].message} at {problems[0].path}" if problems else ""
        return PlannerFailed(
            f"{self.model} {what}{first}",
            hint=self.terms.failed_hint,
            problems=[problem.to_dict() for problem in problems],
            **self._so_far(),
        )

    def _not_applied(self) -> list[str]:
        """The limits that could not be enforced, because the usage was not reported."""
        found: list[str] = []
        if self.allowance.cost_usd is not None and self.used.cost_usd is None:
            found.append("the price of this model is not known, so the limit on cost was not applied")
        # An answer that took no time came from a script.
        if self.allowance.tokens is not None and self.used.seconds and not self.used.tokens_in + self.used.tokens_out:
            found.append("the server does not say how many tokens it used, so the limit on tokens was not applied")
        return found

    def _so_far(self) -> dict[str, Any]:
        """An error's details about the rounds: the number of answers, their text, and the usage of which budget."""
        return {
            "rounds": len(self.transcript),
            "usage": usage_dict(self._usage()),
            "budget": budget_dict(self.allowance, self.most),
            "transcript": self.transcript,
        }


def usage_dict(usage: PlannerUsage) -> dict[str, Any]:
    """The usage, as one JSON object."""
    return {
        "requests": usage.requests,
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "cost_usd": usage.cost_usd,
        "seconds": round(usage.seconds, 3),
    }


def budget_dict(allowance: Allowance, rounds: int) -> dict[str, Any]:
    """The budget, as one JSON object; null: no limit."""
    return {
        "rounds": rounds,
        "requests": allowance.requests,
        "tokens": allowance.tokens,
        "cost_usd": allowance.cost_usd,
        "seconds": allowance.seconds,
    }


def read_answer(answer: PlannerAnswer) -> dict[str, Any]:
    """The object in an answer, parsed as strictly as a plan file. Raises ``PlanInvalid``."""
    from saga_engine.plan.parser import read_source
    from saga_engine.planner.json_extract import is_cut

    if not answer.json_text:
        cut_off = is_cut(answer.text)
        message = (
            "the JSON object has no end: the answer was cut off" if cut_off else "the answer has no object with steps"
        )
        hint = "answer in fewer words, with the JSON object alone" if cut_off else "answer with the JSON object alone"
        raise PlanInvalid([Problem("plan-not-json", "$", message, hint)])
    return read_source(answer.json_text)


def impossible(data: Mapping[str, Any]) -> str | None:
    """The model's reason why the request is impossible, fit to print; ``None`` if it gives none."""
    reason = data.get("impossible")
    if data.get("steps") or reason in (None, "", False):
        return None
    return printable(reason if isinstance(reason, str) else str(reason), _REASON_CHARS)
