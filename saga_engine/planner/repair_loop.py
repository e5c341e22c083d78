"""Asking a model again with what was wrong with its answer: a number of rounds within one allowance."""

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

#: What one question may use, with all its rounds, where nothing else is said.
DEFAULT_ALLOWANCE = Allowance(requests=10, tokens=200_000, cost_usd=None, seconds=60.0)
_SAID_CHARS = 4000
_REASON_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Terms:
    """What the errors call things: what is ``wanted`` of the model, what a refusal means, and what may help."""

    wanted: str
    refused: str
    refused_hint: str
    failed_hint: str


@dataclass(frozen=True, slots=True)
class Found(Generic[_T]):
    """A value that passed, the answer that it came from, and what all rounds used."""

    value: _T
    answer: PlannerAnswer
    rounds: int
    usage: PlannerUsage
    notes: tuple[str, ...]
    transcript: tuple[Mapping[str, Any], ...]


#: Asks once, with what was wrong with the last answer and what may still be used.
Ask = Callable[[Repair | None, Allowance], Awaitable["PlannerAnswer"]]
#: Makes a value of an answer's object and finds what is wrong with it; adds to the notes what it mended.
Review = Callable[[Mapping[str, Any], list[str]], tuple[_T | None, list[Problem]]]


@dataclass(slots=True)
class Rounds(Generic[_T]):
    """One question to one model. ``used`` and ``transcript`` grow with each round, up to ``most`` of them."""

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
        """Ask ``rounds`` times at most, until an answer passes.

        Raises ``GoalImpossible``, ``PlannerFailed`` (with the transcript), ``ModelUnreachable`` (the time is over), and
        what ``ask`` raises.
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
            # What the rounds before this one said and cost is not lost with it.
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
            value, problems = self._judged(answer, notes)
            self._write_down(number, answer, problems, notes)
            if value is not None and not problems:
                notes += self._not_applied()
                return Found(value, answer, number, self._usage(), tuple(notes), tuple(self.transcript))
            repair = Repair(answer.json_text or answer.text, problems, notes)
        many = "s" if rounds != 1 else ""
        raise self._failed(f"gave no valid {self.terms.wanted} in {rounds} round{many}", repair)

    def _judged(self, answer: PlannerAnswer, notes: list[str]) -> tuple[_T | None, list[Problem]]:
        """The value in an answer, and what is still wrong with it. Raises ``GoalImpossible``."""
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
        """What the next question may use. Raises ``PlannerFailed`` when there is nothing left."""
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
        """The limits that could not be kept, because nobody said how much was used."""
        found: list[str] = []
        if self.allowance.cost_usd is not None and self.used.cost_usd is None:
            found.append("the price of this model is not known, so the limit on cost was not applied")
        # What took no time was a script.
        if self.allowance.tokens is not None and self.used.seconds and not self.used.tokens_in + self.used.tokens_out:
            found.append("the server does not say how many tokens it used, so the limit on tokens was not applied")
        return found

    def _so_far(self) -> dict[str, Any]:
        """What an error tells about the rounds: how many answers there were, what they said and used of what budget."""
        return {
            "rounds": len(self.transcript),
            "usage": usage_dict(self._usage()),
            "budget": budget_dict(self.allowance, self.most),
            "transcript": self.transcript,
        }


def usage_dict(usage: PlannerUsage) -> dict[str, Any]:
    """What was used, as one JSON object."""
    return {
        "requests": usage.requests,
        "tokens_in": usage.tokens_in,
        "tokens_out": usage.tokens_out,
        "cost_usd": usage.cost_usd,
        "seconds": round(usage.seconds, 3),
    }


def budget_dict(allowance: Allowance, rounds: int) -> dict[str, Any]:
    """What might be used, as one JSON object; null: no limit."""
    return {
        "rounds": rounds,
        "requests": allowance.requests,
        "tokens": allowance.tokens,
        "cost_usd": allowance.cost_usd,
        "seconds": allowance.seconds,
    }


def read_answer(answer: PlannerAnswer) -> dict[str, Any]:
    """The object in an answer, read as strictly as a plan file. Raises ``PlanInvalid``."""
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
    """Why a model says that what was asked for cannot be done, fit to print; ``None`` if it does not say so."""
    reason = data.get("impossible")
    if data.get("steps") or reason in (None, "", False):
        return None
    return printable(reason if isinstance(reason, str) else str(reason), _REASON_CHARS)
