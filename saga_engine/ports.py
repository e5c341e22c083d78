"""The doors of the engine: what the runtime asks of a store, of tools, of listeners and of people.

Everything here is a protocol or a plain message; the rooms behind the doors never import each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from saga_engine.core.effects import Direction, Outcome
from saga_engine.core.records import Record
from saga_engine.errors import Problem
from saga_engine.plan.tooling import ToolCatalog, ToolSpec

if TYPE_CHECKING:
    from saga_engine.core.judge import Advice  # it would bring the state machine along, which a list needs not

# --- the store -----------------------------------------------------------------------------------------------------


class Creation(NamedTuple):
    """What the head of a new saga starts with. ``owned``: the creator's session becomes its owner at epoch 1."""

    digest: str
    owned: bool


class Entry(NamedTuple):
    """One saga's share of a group commit: records to add, on condition of ``epoch`` and of ``seq``.

    ``seq`` is the length that the journal must have before. ``status`` and ``summary`` (JSON) replace those of the
    head when given. ``release`` gives up ownership in the same write, unless mail
    is waiting and the saga has not ended. ``consumed`` messages leave the front of the inbox.
    ``keep_ms`` (with a final status) is how long the finished saga is kept; 0 is for ever. ``values`` are stored once,
    by digest, before the records that refer to them.
    """

    saga_id: str
    seq: int
    epoch: int
    records: Sequence[bytes]
    status: str | None = None
    summary: bytes | None = None
    release: bool = False
    consumed: int = 0
    keep_ms: int = 0
    values: Mapping[str, bytes] | None = None
    creation: Creation | None = None


AckVerdict = Literal["ok", "fenced", "conflict", "exists", "missing"]


class Ack(NamedTuple):
    """What came of one entry.

    ``ok``: durable now, or already there from an earlier try with the same records. ``fenced``: the epoch is not the
    head's, or the owner's session has ended. ``conflict``: the journal does not continue at ``seq``. ``exists``: the
    id to create is taken (``digest`` tells by which plan). ``missing``: no such saga. Whatever is not ``ok`` changed
    nothing. ``inbox`` is the number of messages waiting. ``released``: nobody owns the saga now; a saga with
    mail is given up only if it has ended.
    """

    verdict: AckVerdict
    inbox: int = 0
    digest: str = ""
    released: bool = False


class AppendReply(NamedTuple):
    """The store's answer to a group commit: its clock in Unix milliseconds and one ack for each entry, in order."""

    now_ms: int
    acks: Sequence[Ack]


class Head(NamedTuple):
    """A saga's summary, readable without its journal. Times are Unix milliseconds of the store's clock."""

    saga_id: str
    status: str
    epoch: int
    owner: str
    owner_ttl_ms: int  # what is left of the owner's session; 0: it has ended or there is no owner
    digest: str
    created_ms: int
    changed_ms: int
    length: int
    inbox: int
    summary: bytes


class Acquired(NamedTuple):
    """The saga is ours: its new epoch, the length of its journal, and the messages waiting in its inbox."""

    epoch: int
    seq: int
    inbox: Sequence[bytes]


class Held(NamedTuple):
    """Another session owns the saga for at least ``ttl_ms`` more."""

    owner: str
    ttl_ms: int


class Renewal(NamedTuple):
    """``alive`` is False when the session had already ended. ``wakes`` are owned sagas with a message waiting."""

    now_ms: int
    alive: bool
    wakes: Sequence[str]


@dataclass(frozen=True, slots=True)
class StorePromise:
    """What a store says about its own durability, for the start-up check and for ``saga doctor``.

    ``level`` is what it keeps: ``fsync`` (acknowledged means on disk) or ``relaxed`` (it may lose the last writes, or
    everything). ``findings`` are (severity, text, hint) with severity ``ok``, ``warning`` or ``error``.
    """

    url: str
    server: str
    level: Literal["fsync", "relaxed"]
    findings: Sequence[tuple[str, str, str]] = field(default_factory=tuple)


class Store(Protocol):
    """Where journals are written. A write is atomic for each saga, and durable (at the store's level) when it returns.

    All methods raise ``StoreUnavailable`` when the server cannot be reached within the store's patience, and
    ``StoreRefused`` when it answers with an error. A call that raised ``StoreUnavailable`` may or may not have been
    applied; repeating it with the same arguments is always safe. Leases are judged on the server's clock only.
    """

    url: str

    async def open(self) -> None:
        """Connect, check the format version, and refuse a server that keeps less than the configured level."""

    async def close(self) -> None:
        """Give back connections. Sessions are not ended by this."""

    async def promise(self) -> StorePromise:
        """What the server promises, read from the server now."""
        ...

    async def open_session(self, owner: str, ttl_ms: int) -> int:
        """Start the lease of ``owner`` in every partition; returns the store's clock in Unix ms. Idempotent."""
        ...

    async def renew(self, owner: str, ttl_ms: int) -> Renewal:
        """Extend the lease, unless it has ended in any partition. One round trip."""
        ...

    async def close_session(self, owner: str) -> None:
        """End the lease now: others may take over at once. Idempotent."""

    async def acquire(self, saga_id: str, owner: str, dead_owner: str | None = None) -> Acquired | Held:
        """Take the saga if nobody with a live session has it; each success makes a new, greater epoch.

        ``dead_owner`` names an owner that is provably dead: its live session is no obstacle. Asked again by the owner
        itself, it succeeds (with a new epoch). Raises ``SagaNotFound``.
        """
        ...

    async def release(self, saga_id: str, epoch: int) -> None:
        """Give the saga up, if ``epoch`` is still its epoch. Idempotent."""

    async def append(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        """Group commit: every entry stands or falls by itself, in one round trip and one fsync."""
        ...

    async def read(self, saga_id: str, start: int = 0) -> Sequence[bytes]:
        """The records from ``start`` on, in order. Raises ``SagaNotFound``."""
        ...

    async def values(self, saga_id: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        """The large values of a saga by digest; a missing one raises ``JournalUnreadable``."""
        ...

    async def head(self, saga_id: str) -> Head:
        """The summary of one saga. Raises ``SagaNotFound``."""
        ...

    async def list(self, status: str | None = None, limit: int = 1000) -> Sequence[Head]:
        """Summaries, the one that changed last first; ``status`` None is all."""
        ...

    async def post(self, saga_id: str, message: bytes) -> Head:
        """Put a message into the inbox and wake the owner; returns the head as it then was. Raises ``SagaNotFound``."""
        ...

    async def inbox(self, saga_id: str) -> Sequence[bytes]:
        """The messages waiting, oldest first."""
        ...

    def guard_store(self) -> GuardStore:
        """What the guards of all processes share, in the same place as the journals."""
        ...


# --- what the guards of all processes share --------------------------------------------------------------------------


class Claim(NamedTuple):
    """What the engine's memory of a tool says about a call.

    ``new``: nobody has made it; it is claimed for us now. ``ours``: we claimed it before and no result is known.
    ``done``: ``owner`` made it, ``age_ms`` ago, with ``result`` (JSON). ``busy``: ``owner`` claimed it and has not said
    what came of it.
    """

    verdict: Literal["new", "ours", "done", "busy"]
    owner: str = ""
    result: bytes = b""
    age_ms: int = 0


class BreakerState(NamedTuple):
    """A circuit breaker as all processes see it.

    ``failures`` in a row so far; ``opens_ms`` is how much longer it stays open (0: it is closed, or the time for a
    trial has come); ``tripped``: it is open or waits for its trial.
    """

    failures: int = 0
    tripped: bool = False
    opens_ms: int = 0


class GuardStore(Protocol):
    """Shared, durable state of guards. Every verb is atomic, judged on the server's clock, and safe to repeat.

    All methods raise ``StoreUnavailable`` and ``StoreRefused`` like those of ``Store``. An ``owner`` is an idempotency
    key: the same for every attempt of one step in one direction. ``memory`` is a digest of a call's params.
    """

    async def claim(self, tool: str, memory: str, owner: str, ttl_ms: int) -> Claim:
        """Claim a call before it is made, unless it has been made (or claimed) by another owner within its time.

        Who gets another owner's result is written down as relying on it.
        """
        ...

    async def remember(self, tool: str, memory: str, owner: str, result: bytes, ttl_ms: int) -> None:
        """The claimed call happened, with this result; kept for ``ttl_ms`` from now. Only for the claim's owner."""

    async def forget(self, tool: str, owner: str) -> Sequence[str]:
        """Drop what ``owner`` claimed or made, because it did not happen or is going to be undone.

        Returns the owners that rely on its result; if there are any, nothing is dropped.
        """
        ...

    async def recollect(self, tool: str, owner: str) -> bytes | None:
        """The result of the call that ``owner`` made; None if it is not known."""
        ...

    async def unrely(self, tool: str, owner: str, relying: str) -> None:
        """``relying`` no longer relies on the result of ``owner``."""

    async def saga_status(self, saga_id: str) -> str | None:
        """The status of a saga in this store; None if there is no such saga."""
        ...

    async def take(self, resource: str, tickets: Sequence[str], ttl_ms: int) -> str:
        """Put tickets in the queue for a resource, in this order, or keep those that are in it alive for ``ttl_ms``.

        Returns the ticket whose turn it is: the oldest that is still alive. A ticket that is not kept alive is dropped.
        """
        ...

    async def give(self, resource: str, ticket: str) -> str:
        """Leave the queue, as holder or not; returns the ticket whose turn it is then, or an empty text."""
        ...

    async def reserve(self, rate: str, interval_us: int, burst: int, max_wait_ms: int | None) -> int:
        """Reserve the next free moment of a rate limit (GCRA, ITU-T I.371): how many ms to wait from now.

        -1: the wait would be longer than ``max_wait_ms``, and nothing is reserved.
        """
        ...

    async def breakers(self, tools: Sequence[str]) -> Mapping[str, BreakerState]:
        """The breakers of these tools, in one round trip."""
        ...

    async def breaker_trial(self, tool: str, trial_ms: int) -> bool:
        """Be the one call that is let through; nobody else is for ``trial_ms`` or until its outcome is known."""
        ...

    async def breaker_outcome(self, tool: str, *, failed: bool, failures: int, open_ms: int) -> BreakerState:
        """Count an outcome: ``failures`` failures in a row open the breaker for ``open_ms``, a success closes it."""
        ...

    async def count(self, tool: str, counters: Mapping[str, int]) -> None:
        """Add to the statistics of a tool. It is not idempotent, and nothing depends on it."""

    async def counters(self, tools: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """The statistics of tools, by name of counter."""
        ...

    async def tally(self, name: str) -> Mapping[str, str]:
        """The entries of a tally: texts by owner."""
        ...

    async def tally_set(self, name: str, owner: str, entry: str | None, ttl_ms: int) -> None:
        """Set or (None) remove an owner's entry; the whole tally is kept for ``ttl_ms`` from now."""

    async def keep_good(self, tool: str, memory: str, result: bytes, ttl_ms: int) -> None:
        """Keep the last good result of a read."""

    async def good(self, tool: str, memory: str) -> tuple[bytes, int] | None:
        """The last good result of a read and its age in ms."""
        ...


# --- time ----------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """The store's clock as this process knows it."""

    def now_ms(self) -> int:
        """Unix milliseconds on the store's clock, never going back."""
        ...


# --- tools ---------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """All that a tool, and the guards before it, may know of the call it serves.

    ``deadline_ms`` is on the store's clock; it is None backward, where nothing is given up for lack of time.
    ``masked`` are the params with a marker for each secret, None where they hold none: the form that may be remembered
    and shown. ``approved`` is the digest of the exact call that a person approved, as long as that is valid.
    ``resources`` are those that the plan names for the step. Backward, ``undoes`` is the forward call: the name of its
    tool and its idempotency key. ``permit`` is asked right before the call by whoever made it wait: it raises
    ``LeaseLost`` if this process may not begin a call any more.
    """

    saga_id: str
    step_id: str
    direction: Direction | Literal["probe"]
    attempt: int
    idempotency_key: str
    epoch: int
    deadline_ms: int | None
    timeout_s: float
    masked: Mapping[str, Any] | None = None
    approved: str = ""
    resources: tuple[str, ...] = ()
    undoes: tuple[str, str] | None = None
    permit: Callable[[], None] | None = None


class Tools(ToolCatalog, Protocol):
    """The tools of a process: their declarations, and a way to call them."""

    async def call(self, name: str, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make one call, bounded by ``call.timeout_s``; waiting for its turn does not count.

        Every failure is an outcome; only cancellation and the refusal of ``call.permit`` are raised.
        """
        ...

    async def probe(self, name: str, params: Mapping[str, Any], call: Call) -> Outcome:
        """Ask whether the call of tool ``name`` with this key and these params happened.

        ``Done`` with the output: it did. ``NotDone``: it did not. ``Unknown``: the probe cannot tell.
        """
        ...

    async def last_good(self, name: str, params: Mapping[str, Any], max_age_s: float, call: Call) -> Outcome:
        """The last good result of a read with these params: ``Done`` via ``cache``, or ``NotDone``. Calls nothing."""
        ...


# --- people and listeners ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """An escalation: what a person is asked, and which answers are legal.

    ``kind`` ``parked`` asks nothing (no options): it tells that a step waits until its tool is available again. For
    ``approval``, ``params`` are those of the exact call, secrets as markers, and the answer is wanted until
    ``expires_ms``. It was asked at ``asked_ms`` (Unix ms on the store's clock, like all times). ``round`` counts the
    reminders: 0 is the first time that people are told. For ``remedy``, ``steps`` are those that a model proposes.
    """

    saga_id: str
    question_id: str
    step_id: str
    step_name: str
    tool: str
    direction: Direction
    kind: str
    options: tuple[str, ...]
    error: Mapping[str, Any] | None
    goal: str
    params: Mapping[str, Any] | None = None
    expires_ms: int | None = None
    round: int = 0
    asked_ms: int | None = None
    steps: Sequence[Mapping[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The question as one JSON object, without the fields that are empty."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found["options"] = list(self.options)
        return {name: value for name, value in found.items() if value is not None and value not in ("", [])}


class EscalationHook(Protocol):
    """Told about each open question at least once.

    ``saga_id``, ``question_id`` and ``round`` together are stable, for de-duplication.
    """

    async def __call__(self, question: Question) -> None:
        """Deliver the question; raising means it was not delivered, and it is tried again."""


@dataclass(frozen=True, slots=True)
class Escalation:
    """Who is told about open questions, and when again.

    ``hooks`` are told at once, and again every ``remind_s`` seconds while nobody answers. ``further`` are told, too,
    when a question has been open for ``further_after_s`` seconds. 0 seconds: never.
    """

    hooks: Sequence[EscalationHook] = ()
    further: Sequence[EscalationHook] = ()
    remind_s: float = 3600.0
    further_after_s: float = 86400.0


class Observer(Protocol):
    """Listens to records after they are durable. It must not block; what it raises is logged, never passed on."""

    def __call__(self, saga_id: str, record: Record) -> None:
        """Called for each record, in the order of the journal."""


# --- the planner ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one question to a model may still use. ``None``: no limit of its own.

    ``requests`` counts every request on the wire, also those that were refused; ``tokens`` counts what goes in and
    what comes out; ``cost_usd`` is applied where the price of the model is known; ``seconds`` covers everything.
    """

    requests: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """Why a model is asked again: its last answer (as it wrote it), what is wrong with it, and what was mended."""

    answer: str
    problems: Sequence[Problem]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Propose a plan that serves ``goal`` by ``tools`` and no others.

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
    """What is known of one step. ``status`` is the step's, ``error`` why it failed; secrets are markers in ``params``.

    Outputs may be given whole: they are cut before a model sees them.
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
    """Propose steps that make up for what is left of ``stuck``, whose own undo failed or does not exist.

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
    """Propose other steps for what is left of ``goal`` after ``failed`` came to nothing.

    ``past`` are the steps that stand, in order; ``left`` the steps of the plan that have not begun, as in a plan file.
    New steps need ids that are not ``taken``.
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
    """What asking used. ``cost_usd`` is ``None`` where the price is not known."""

    tokens_in: int = 0
    tokens_out: int = 0
    requests: int = 0
    cost_usd: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PlannerAnswer:
    """What a model said: its ``text``, and in it the one JSON object, as JSON text, empty if there is none.

    The object is a plan, ``{"steps": […]}`` for a compensation or another way, or ``{"impossible": "why"}``. Nothing of
    it has been checked. ``prompt`` names the prompts and their versions (``propose@1 repair@1``), ``prompt_digest``
    is the SHA-256 of what was sent, in hex.
    """

    text: str
    json_text: str
    model: str
    prompt: str
    prompt_digest: str
    usage: PlannerUsage


class Planner(Protocol):
    """Asks a model once. Raises ``PlannerUnavailable`` (not set up), ``ModelUnreachable`` (no answer in time)."""

    model: str

    async def propose(self, request: PlanRequest) -> PlannerAnswer:
        """A plan for a goal."""
        ...

    async def compensate(self, request: CompensationRequest) -> PlannerAnswer:
        """Steps that make up for one that cannot be undone by its own undo."""
        ...

    async def replan(self, request: ReplanRequest) -> PlannerAnswer:
        """Other steps for what is left of a goal."""
        ...


#: Finds what is wrong with proposed steps, against the saga as it stands and what its author may use.
StepsCheck = Callable[[Sequence[Mapping[str, Any]]], Sequence[Problem]]


class Advisor(Protocol):
    """Asks a model for steps until they pass the check, or raises: what it raises becomes a record, never a crash."""

    async def compensate(self, request: CompensationRequest, check: StepsCheck) -> Advice:
        """Steps that make up for one that stands and cannot be undone."""
        ...

    async def replan(self, request: ReplanRequest, check: StepsCheck) -> Advice:
        """Other steps for what is left of a goal."""
        ...
