"""Requests to a model, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

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


@dataclass(frozen=True, slots=True)
class Repair:
    """Why a model is asked again: its last answer (as it wrote it), the problems, and the repairs."""

    answer: str
    problems: Sequence[Problem]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Propose a plan that serves ``goal`` with ``tools`` and no others.

    ``input`` are the values of ``$input.…``, ``secrets`` the names (never the values) that ``$secret.…`` may use.
    """

    goal: str
    tools: Sequence[ToolSpec]
    input: Mapping[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    repair: Repair | None = None
    allowance: Allowance = Allowance()


@dataclass(frozen=True, slots=True)
class PastStep:
    """The facts about one step. ``status`` is the step's, ``error`` why it failed; secrets are markers in ``params``.

    Outputs may be passed whole: they are cut before a model sees them.
    """

    step_id: int | str
    tool: str
    status: str
    name: str = ""
    params: Mapping[str, Any] | None = None
    output: Any = None
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CompensationRequest:
    """Propose steps that compensate for the remaining effect of ``stuck``, whose undo failed or does not exist.

    ``past`` are the steps that happened, in order. Only ``tools`` may be used, in at most ``max_steps`` calls.
    """

    goal: str
    stuck: PastStep
    past: Sequence[PastStep]
    tools: Sequence[ToolSpec]
    max_steps: int = 5
    repair: Repair | None = None
    allowance: Allowance = Allowance()


@dataclass(frozen=True, slots=True)
class ReplanRequest:
    """Propose other steps for the rest of ``goal`` after ``failed`` failed permanently.

    ``past`` are the steps that stand, in order; ``left`` the steps of the plan that have not started, as in a plan
    file. New steps need ids that are not ``taken``.
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


@dataclass(frozen=True, slots=True)
class PlannerUsage:
    """The usage of a request. ``cost_usd`` is ``None`` if the price is unknown."""

    tokens_in: int = 0
    tokens_out: int = 0
    requests: int = 0
    cost_usd: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PlannerAnswer:
    """A model's answer: its ``text``, and the one JSON object in it, as JSON text, empty if there is none.

    The object is a plan, ``{"steps": […]}`` for a compensation or another way, or ``{"impossible": "why"}``. It is
    unchecked. ``prompt`` names the prompts and their versions (``propose@1 repair@1``), ``prompt_digest`` is the
    SHA-256 of what was sent, in hex.
    """

    text: str
    json_text: str
    model: str
    prompt: str
    prompt_digest: str
    usage: PlannerUsage


class Planner(Protocol):
    """Asks a model once. Raises ``PlannerUnavailable`` (not configured), ``ModelUnreachable`` (no answer in time)."""

    model: str

    async def propose(self, request: PlanRequest) -> PlannerAnswer:
        """A plan for a goal."""
        ...

    async def compensate(self, request: CompensationRequest) -> PlannerAnswer:
        """Steps that compensate for one that its own undo cannot reverse."""
        ...

    async def replan(self, request: ReplanRequest) -> PlannerAnswer:
        """Other steps for the rest of a goal."""
        ...


#: Finds the problems of proposed steps, against the saga as it stands and the permissions of their author.
StepsCheck = Callable[[Sequence[Mapping[str, Any]]], Sequence[Problem]]


class Advisor(Protocol):
    """Asks a model for steps until they pass the check, or raises: the exception becomes a record, never a crash."""

    async def compensate(self, request: CompensationRequest, check: StepsCheck) -> Advice:
        """Steps that compensate for one that stands and cannot be undone."""
        ...

    async def replan(self, request: ReplanRequest, check: StepsCheck) -> Advice:
        """Other steps for the rest of a goal."""
        ...
