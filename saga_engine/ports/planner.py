"""Requests to a model, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from saga_engine.errors import Problem
from saga_engine.plan.tool_spec import ToolSpec

if TYPE_CHECKING:
    from saga_engine.core.interpret import Advice  # it would import the state machine, which a listing does not need


@dataclass(frozen=True, slots=True)
class Allowance:
    """The remaining budget of one request to a model. ``None``: no limit of its own.

    ``requests`` counts every request on the wire, including those that were refused; ``tokens`` counts input and
    output; ``cost_usd`` applies if the price of the model is known; ``seconds`` covers everything.
    """

    requests: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None

    def after(self, used: PlannerUsage) -> Allowance:
        """What remains of it; ``seconds`` has a clock of its own."""
        return replace(
            self,
            requests=None if self.requests is None else self.requests - used.requests,
            tokens=None if self.tokens is None else self.tokens - used.tokens_in - used.tokens_out,
            cost_usd=None if self.cost_usd is None else self.cost_usd - (used.cost_usd or 0.0),
        )


@dataclass(frozen=True, slots=True)
class Repair:
    """Why a model is asked again: its last answer (as it wrote it), the problems, and the repairs.

    ``prompt`` is ``improve`` for an answer that is valid and could be better.
    """

    answer: str
    problems: Sequence[Problem]
    notes: Sequence[str] = ()
    prompt: Literal["repair", "improve"] = "repair"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Propose a plan that serves ``goal`` with ``tools`` and no others.

    ``input`` are the values of ``$input.…``, ``secrets`` the names (never the values) that ``$secret.…`` may use.
    ``hidden`` are tools that the model may ask for by name, ``answers`` the user's answers to its questions by name.
    ``reads`` names the tools that may be called while planning, ``read_results`` are the results so far. ``now``: the
    user's date, time and time zone as a text, empty if unknown. ``revises``: the plan that is to be changed.
    ``may_use``: parts of the plan format that the caller allows. ``on_failure``: that of the plan, which the model does
    not set; a plan that is replanned has no lists of calls (``each``). Empty: not known.
    """

    goal: str
    tools: Sequence[ToolSpec]
    input: Mapping[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    repair: Repair | None = None
    allowance: Allowance = Allowance()
    hidden: Sequence[ToolSpec] = ()
    answers: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    read_results: Sequence[Mapping[str, Any]] = ()
    now: str = ""
    may_use: tuple[str, ...] = ()
    revises: Mapping[str, Any] | None = None
    on_failure: str = ""


@dataclass(frozen=True, slots=True)
class PastStep:
    """The facts about one step. ``status`` is the step's, ``error`` why it failed; secrets are markers in ``params``.

    ``attempts`` is how often the call that failed was tried, 0 if none failed.

    Outputs may be passed whole: they are cut before a model sees them.
    """

    step_id: int | str
    tool: str
    status: str
    name: str = ""
    params: Mapping[str, Any] | None = None
    output: Any = None
    error: Mapping[str, Any] | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class CompensationRequest:
    """Propose steps that compensate for the remaining effect of ``stuck``, whose undo failed or does not exist.

    ``reason`` is why the saga turned around, such as ``step-failed`` or ``cancelled``, and ``failed`` are the steps
    that came to nothing. ``past`` are the steps that happened, in order. Only ``tools`` may be used, in at most
    ``max_steps`` calls.
    """

    goal: str
    stuck: PastStep
    past: Sequence[PastStep]
    tools: Sequence[ToolSpec]
    max_steps: int = 5
    repair: Repair | None = None
    allowance: Allowance = Allowance()
    reason: str = ""
    failed: Sequence[PastStep] = ()


@dataclass(frozen=True, slots=True)
class ReplanRequest:
    """Propose other steps for the rest of ``goal`` after ``failed`` failed permanently.

    ``past`` are the steps that stand, in order. Of the steps that have not started, ``left`` are those that depend on
    the failed step: they are written again or dropped. ``kept`` are the others: they run as they were planned. Both are
    as in a plan file. ``also_failed`` are steps that failed beside it. New steps need ids that are not ``taken``.
    ``may_use``: the parts that the plan has, and those that the caller allows.
    """

    goal: str
    failed: PastStep
    past: Sequence[PastStep]
    left: Sequence[Mapping[str, Any]]
    tools: Sequence[ToolSpec]
    input: Mapping[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    max_steps: int = 20
    repair: Repair | None = None
    allowance: Allowance = Allowance()
    kept: Sequence[Mapping[str, Any]] = ()
    also_failed: Sequence[PastStep] = ()
    may_use: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannerUsage:
    """The usage of a request. ``cost_usd`` is ``None`` if the price is unknown."""

    tokens_in: int = 0
    tokens_out: int = 0
    requests: int = 0
    cost_usd: float | None = None
    seconds: float = 0.0

    def __add__(self, other: PlannerUsage) -> PlannerUsage:
        """The usage of both."""
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return PlannerUsage(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.requests + other.requests,
            sum(costs) if costs else None,
            self.seconds + other.seconds,
        )

    def to_dict(self) -> dict[str, Any]:
        """The usage as one JSON object."""
        names = ("requests", "tokens_in", "tokens_out", "cost_usd")
        return {**{name: getattr(self, name) for name in names}, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True)
class PlannerAnswer:
    """A model's answer: its ``text``, and the one JSON object in it, as JSON text, empty if there is none.

    The object is a plan, ``{"steps": […]}`` for a compensation or another way (there also with ``"dropped": {"id":
    "why"}``), or ``{"impossible": "why"}``; instead of a plan also ``{"questions": […]}``, ``{"tools": […]}``,
    ``{"reads": […]}`` or ``{"needs": […]}``. It is unchecked. ``prompt`` names the prompts and their versions
    (``propose@2 repair@2``), ``prompt_digest`` is the SHA-256 of what was sent, in hex. ``ended``: ``cut`` if the
    answer reached its longest length, ``refused`` if the model or its provider declined to answer.
    """

    text: str
    json_text: str
    model: str
    prompt: str
    prompt_digest: str
    usage: PlannerUsage
    ended: Literal["", "cut", "refused"] = ""


PlannerRequest = PlanRequest | CompensationRequest | ReplanRequest


class Planner(Protocol):
    """Asks a model once. Everything that a model is asked passes through here; the repair loop stands above it."""

    model: str

    async def ask(self, request: PlannerRequest) -> PlannerAnswer:
        """One answer; the caller limits the time. Raises ``PlannerUnavailable`` or ``ModelUnreachable``."""
        ...


class StepsCheck(Protocol):
    """Finds the problems of proposed steps, against the saga as it stands and the permissions of their author.

    ``dropped``: for another way, why steps are dropped that nothing replaces, by key.
    """

    def __call__(
        self, steps: Sequence[Mapping[str, Any]], dropped: Mapping[str, str] = MappingProxyType({}), /
    ) -> Sequence[Problem]:
        """The problems; none if the engine would add the steps."""
        ...


class Advisor(Protocol):
    """Asks a model for steps until they pass the check, or raises: the exception becomes a record, never a crash."""

    async def advise(self, request: CompensationRequest | ReplanRequest, check: StepsCheck) -> Advice:
        """Steps that compensate for one that stands and cannot be undone, or other steps for the rest of a goal."""
        ...
