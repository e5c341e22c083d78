"""Asks a model again with the problems of its answer: a number of rounds within one allowance.

One loop serves every planner, with a model behind it or not, and all three requests. Decision 0018 has the reasons why
it is not the loop of pydantic-ai.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from saga_engine.errors import (
    GoalImpossible,
    ModelUnreachable,
    PlanInvalid,
    PlannerFailed,
    PlannerUnavailable,
    Problem,
    SagaError,
)
from saga_engine.plan.values import cut, printable
from saga_engine.ports import Allowance, PlannerUsage, Repair
from saga_engine.ports.machine_clock import machine_clock

if TYPE_CHECKING:
    from saga_engine.ports import PlannerAnswer, PlannerRequest

_T = TypeVar("_T")

_SAID_CHARS: Final = 4000
#: How many answers that are no plan, but ask for something first, are followed without costing a round.
MOST_DETOURS: Final = 4
_REASON_CHARS: Final = 1000


@dataclass(frozen=True, slots=True)
class Terms:
    """Wording of the errors: what is ``wanted`` of the model, what a refusal means, and what may help."""

    wanted: str
    refused: str
    refused_hint: str
    failed_hint: str


#: Gets the entry of the transcript about each round, when the round ends.
Progress = Callable[[Mapping[str, Any]], None]
#: Builds a value from an answer's object and finds its problems; adds its repairs to the notes.
Review = Callable[[Mapping[str, Any], list[str]], tuple[_T | None, list[Problem]]]


@dataclass(frozen=True, slots=True)
class Detour:
    """What follows an answer that asks for something first (``came``): another request, problems, or an error."""

    came: str
    request: PlannerRequest | None = None
    problems: Sequence[Problem] = ()
    error: SagaError | None = None


#: Decides about an answer that is neither steps nor a refusal; None: it is one of these.
Follow = Callable[[Mapping[str, Any]], Awaitable[Detour | None]]


@dataclass(slots=True)
class Rounds(Generic[_T]):
    """One question to one model, asked at most ``rounds`` times. ``used`` and ``transcript`` grow with each round.

    ``request`` is what the model is asked; its ``repair`` and ``allowance`` are set for each round. ``progress`` gets
    the entry of each round as soon as it ends. ``follow`` decides about answers that ask for something first: each
    costs a request of the allowance, and one beyond ``MOST_DETOURS`` a round. ``hint`` is what may help against the
    problems of the last answer; empty: what the terms say.
    """

    model: str
    ask: Callable[[PlannerRequest], Awaitable[PlannerAnswer]]
    request: PlannerRequest
    review: Review[_T]
    terms: Terms
    rounds: int
    allowance: Allowance
    progress: Progress | None = None
    follow: Follow | None = None
    hint: Callable[[Sequence[Problem]], str] | None = None
    spent: int = 0
    used: PlannerUsage = field(default_factory=PlannerUsage)
    transcript: list[dict[str, Any]] = field(default_factory=list)
    started: float = field(default_factory=lambda: machine_clock.monotonic())  # noqa: PLW0108 - read at each use

    async def run(self) -> tuple[_T, PlannerAnswer, tuple[str, ...]]:
        """The first value that passes, its answer, and the notes about it.

        Raises ``GoalImpossible``, ``PlannerFailed`` (with the transcript), ``ModelUnreachable`` (the time is over), and
        the errors of ``ask``.
        """
        try:
            async with asyncio.timeout(self.allowance.seconds) as limit:
                return await self._rounds()
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
            self.used += PlannerUsage(requests=requests if isinstance(requests, int) else 0)
            error.context = {**error.context, **self._so_far()}
            raise

    async def _rounds(self) -> tuple[_T, PlannerAnswer, tuple[str, ...]]:
        repair: Repair | None = None
        detours = 0
        while self.spent < self.rounds:
            answer = await self.ask(replace(self.request, repair=repair, allowance=self._left()))
            self.used += answer.usage
            detour = await self._detour(answer)
            if detour is not None:
                self._write_down(answer, detour.came, detour.problems, ())
                if detour.error is not None:
                    detour.error.context = {**detour.error.context, **self._so_far()}
                    raise detour.error
                if detour.request is not None:
                    self.request = detour.request
                if detour.problems:
                    repair = Repair(answer.json_text, detour.problems)
                detours += 1
                self.spent += detours > MOST_DETOURS or bool(detour.problems)
                continue
            self.spent += 1
            notes: list[str] = []
            value, problems, reason = self._read(answer, notes)
            came = self.terms.wanted if reason is None else "impossible"
            self._write_down(answer, came if answer.json_text else "text", problems, notes)
            if reason is not None:
                message, hint = f"{self.terms.refused}: {reason}", self.terms.refused_hint
                raise GoalImpossible(message, hint=hint, model=answer.model, **self._so_far())
            if value is not None and not problems:
                return value, answer, (*notes, *self._not_applied())
            repair = Repair(answer.json_text or answer.text, problems, notes)
        many = "s" if self.rounds != 1 else ""
        raise self._failed(f"gave no valid {self.terms.wanted} in {self.rounds} round{many}", repair)

    async def once_more(self, answer: PlannerAnswer, problems: Sequence[Problem]) -> tuple[_T, PlannerAnswer] | None:
        """The value of one more answer, which may be better; None: there is none that passes, or no budget for it.

        ``problems`` are what is not yet good in ``answer``, which is valid. Raises nothing of the planner.
        """
        if self.spent >= self.rounds:
            return None
        repair = Repair(answer.json_text, problems, prompt="improve")
        try:
            allowance = self._left()
            async with asyncio.timeout(allowance.seconds):
                better = await self.ask(replace(self.request, repair=repair, allowance=allowance))
        except (PlannerFailed, ModelUnreachable, PlannerUnavailable, TimeoutError) as error:
            requests = getattr(error, "context", {}).get("requests", 0)
            self.used += PlannerUsage(requests=requests if isinstance(requests, int) else 0)
            return None
        self.used += better.usage
        notes: list[str] = []
        value, found, _ = self._read(better, notes)
        self._write_down(better, "improved", found, notes)
        return None if value is None or found else (value, better)

    async def _detour(self, answer: PlannerAnswer) -> Detour | None:
        """What an answer asks for first, if the caller follows such answers."""
        if self.follow is None:
            return None
        try:
            data = read_answer(answer)
        except PlanInvalid:
            return None
        return await self.follow(data)

    def _read(self, answer: PlannerAnswer, notes: list[str]) -> tuple[_T | None, list[Problem], str | None]:
        """The value in an answer, its remaining problems, and the model's reason for giving none."""
        try:
            data = read_answer(answer)
        except PlanInvalid as error:
            return None, error.problems, None
        reason = data.get("impossible")
        if data.get("steps") or reason in (None, "", False):
            return *self.review(data, notes), None
        return None, [], printable(reason if isinstance(reason, str) else str(reason), _REASON_CHARS)

    def _left(self) -> Allowance:
        """The allowance of the next question. Raises ``PlannerFailed`` if nothing remains."""
        left = self.allowance.after(self.used)
        if left.seconds is not None:
            left = replace(left, seconds=max(0.0, left.seconds - (machine_clock.monotonic() - self.started)))
        for name, rest in (("requests", left.requests), ("tokens", left.tokens), ("cost_usd", left.cost_usd)):
            if rest is not None and rest <= 0:
                raise self._failed(f"used up its budget of {name}", None)
        return left

    def _write_down(self, answer: PlannerAnswer, came: str, problems: Sequence[Problem], notes: Sequence[str]) -> None:
        entry = {
            "round": len(self.transcript) + 1,
            "came": came,
            "prompt": answer.prompt,
            "prompt_digest": answer.prompt_digest,
            "answer": printable(answer.text, _SAID_CHARS),
            "problems": [problem.to_dict() for problem in problems],
            "notes": list(notes),
            "usage": answer.usage.to_dict(),
        }
        self.transcript.append(entry)
        if self.progress is not None:
            self.progress(entry)

    def _failed(self, what: str, repair: Repair | None) -> PlannerFailed:
        problems = repair.problems if repair is not None else ()
        first = f"; the last try: {problems[0].message} at {problems[0].path}" if problems else ""
        return PlannerFailed(
            f"{self.model} {what}{first}",
            hint=(self.hint(problems) if self.hint is not None and problems else "") or self.terms.failed_hint,
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

    @property
    def usage(self) -> PlannerUsage:
        """The usage of all rounds so far, with the time since the question began."""
        return replace(self.used, seconds=machine_clock.monotonic() - self.started)

    @property
    def budget(self) -> dict[str, Any]:
        """The budget as one JSON object; null: no limit."""
        return {"rounds": self.rounds, **asdict(self.allowance)}

    def figures(
        self, notes: tuple[str, ...]
    ) -> tuple[int, PlannerUsage, tuple[str, ...], tuple[Any, ...], dict[str, Any]]:
        """Rounds, usage, notes, transcript and budget, as a planned plan has them."""
        return len(self.transcript), self.usage, notes, tuple(self.transcript), self.budget

    def _so_far(self) -> dict[str, Any]:
        """An error's details about the rounds: the number of answers, their text, and the usage of which budget."""
        return {
            "rounds": len(self.transcript),
            "usage": self.usage.to_dict(),
            "budget": self.budget,
            "transcript": self.transcript,
        }


def read_answer(answer: PlannerAnswer) -> dict[str, Any]:
    """The object in an answer, parsed as strictly as a plan file. Raises ``PlanInvalid``."""
    from saga_engine.plan.parser import read_source
    from saga_engine.planner.json_extract import broken_at, is_cut

    if answer.json_text:
        return read_source(answer.json_text)
    hint = "answer with the JSON object alone"
    if answer.ended == "refused":
        message = "the model declined to answer"
        hint = "nothing was planned; say in the JSON object why it cannot be (impossible), if that is so"
    elif answer.ended == "cut":
        message = "the answer was cut off at its longest length"
        hint = (
            "answer in fewer words: no names, no assumptions, no prose; an operator can allow more (max_output_tokens)"
        )
    elif not answer.text.strip():
        message = "the answer is empty"
    elif is_cut(answer.text):
        message = "the JSON object has no end: the answer was cut off"
        hint = "answer in fewer words, with the JSON object alone"
    else:
        message = broken_at(answer.text) or f"the answer is prose, not JSON: {cut(answer.text.strip(), 200)}"
    raise PlanInvalid([Problem("plan-not-json", "$", printable(message, 400), hint)])
