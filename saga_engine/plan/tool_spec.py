"""What the pure packages know of a tool: its declaration, without the function behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from saga_engine.plan.absence import Absence
    from saga_engine.plan.undo_check import UndoCheck

Effect = Literal["read", "write"]
Semantic = Literal["auto", "approve", "never"]
OnDoubt = Literal["ask", "undo"]
After = Literal["read", "output"]

#: The least number of attempts of an undo; beyond it, twice as many as its tool declares.
_LEAST_UNDO_ATTEMPTS = 8

#: Finds the problems in the params of a call: pairs of (path inside the params, message). Pure.
ParamsCheck = Callable[[Any], Sequence[tuple[tuple[str | int, ...], str]]]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast a call is tried again.

    The wait before attempt *n+1* is ``base_s * 2**(n-1)`` seconds, at most ``max_s``. With ``jitter`` it is drawn from
    the upper half of that (AWS Architecture Blog, *Exponential Backoff And Jitter*, 'equal jitter'). ``max_attempts``
    counts the first attempt too.
    """

    max_attempts: int = 4
    base_s: float = 1.0
    max_s: float = 30.0
    jitter: bool = True

    def delay_ms(self, attempt: int, dice: float) -> int:
        """The wait after the ``attempt``-th attempt, in milliseconds; ``dice`` is a number in [0, 1)."""
        # The exponent is bounded so that a huge budget cannot overflow a float.
        full = min(self.max_s, self.base_s * 2.0 ** min(attempt - 1, 62))
        return round(full * (0.5 + dice / 2 if self.jitter else 1.0) * 1000)


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a tool's circuit breaker opens and closes (M. Nygard, *Release It!*).

    ``failures`` in a row open it; unknown outcomes count, a tool's own final refusal does not. After ``open_s`` seconds
    one call is let through: if it succeeds the breaker closes, else it opens again.
    """

    failures: int = 3
    open_s: float = 30.0


def _accept_any(_: Any) -> Sequence[tuple[tuple[str | int, ...], str]]:
    return ()


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool's declaration: what the plan's checks and the saga's semantics may rely on.

    ``keyed``: the tool honours an idempotency key, for ``key_ttl_s`` seconds (``None``: for ever).
    ``told_key``: it gets the key, whether or not it honours it, so an operator may find a call by it.
    ``tolerates_absence``: as an undo, it succeeds when there is nothing (left) to undo, so it may be called when that
    is unknown.
    ``undoes_by_key``: as an undo, it is told the key of the call that it undoes (``ToolContext.undoes``) and has no
    parameters, so it undoes that call or nothing.
    ``on_doubt``: ``undo``: a call in doubt that nothing else can settle starts compensation, if the step's undo
    tolerates absence and needs no output; ``ask``: an operator settles it.
    ``says_refusals``: the declaration says which exceptions are refusals, or that the author has thought of them.
    ``undo_params``: what the undo is called with, if its parameters are not simply those of the output and the call;
    ``undo_each``: it is called once for each item of this list; ``undo_then``: the calls that follow it (``tool``,
    ``params``, ``each``).
    ``remembers``: the engine keeps the tool's results (``dedupe_ttl_s``), so a call in doubt can be looked up there.
    ``last_good_s``: how old the last good result of a read may be to stand in for a call that cannot be made.
    ``before``: the tool that reads what a call is about to change; the answer before the call is its before-image.
    ``after``: where the after-image comes from: the same read (``read``), or the call's own output (``output``).
    ``absent``: which answers of the read mean that there was nothing yet; the undo is then ``undo_absent``.
    ``undo_check``: the read that tells whether the undo did what it says. ``verify``: the engine looks after an undo,
    with that, with ``before`` or with the undo's probe; ``verify_within_s``: so long the old value may still be seen.
    ``resource``: the keys of what a call locks, as templates; ``None``: a function says them.
    ``hold``: the saga keeps them until its end.
    ``sole_writer``: nothing but this tool and its undo changes what the read shows, so the read settles a doubt.
    ``expect``: the call is made only if the read still shows what the saga knows (``plan.expect``).
    ``semantic``: the role of the tool in semantic compensation: ``auto``, a model may use it; ``approve``, only after
    an operator's approval; ``never``, a model may neither use it nor compensate for it. ``None``: the engine's default.
    A tool that says ``auto`` or ``approve`` and has no undo leaves its compensation to the model.
    ``secrets``: the names that ``$secret.NAME`` may have in its params, ``*`` for all; ``None``: not restricted.
    ``sensitive``: params whose values no view of a saga shows.
    ``redact``: fields of its output that never reach the journal (``plan.redacted``).
    ``use_when``, ``not_when``, ``returns``, ``tags``: what a model reads to choose a tool.
    ``declared``: its author said that it is a tool; False: a plain function, of whose effect nobody has said anything.
    ``digest``: a short hash of name, schemas and effect; it shows that a tool changed while a saga was running.
    """

    name: str
    description: str = ""
    effect: Effect = "write"
    keyed: bool = False
    told_key: bool = False
    key_ttl_s: float | None = None
    undo: str | None = None
    undo_params: Mapping[str, Any] | None = None
    undo_each: str | None = None
    undo_then: tuple[Mapping[str, Any], ...] = ()
    probe: str | None = None
    before: str | None = None
    after: After = "read"
    absent: Absence | None = None
    undo_absent: str | None = None
    sole_writer: bool = False
    expect: str | Mapping[str, str] | None = None
    undo_check: UndoCheck | None = None
    verify: bool = True
    verify_within_s: float = 0.0
    resource: tuple[str, ...] | None = ()
    hold: bool = False
    timeout_s: float = 30.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    compensates: bool = False
    tolerates_absence: bool = False
    undoes_by_key: bool = False
    on_doubt: OnDoubt = "ask"
    says_refusals: bool = False
    remembers: bool = False
    last_good_s: float | None = None
    semantic: Semantic | None = None
    secrets: tuple[str, ...] | None = None
    sensitive: tuple[str, ...] = ()
    redact: tuple[str, ...] = ()
    use_when: str = ""
    not_when: str = ""
    returns: str = ""
    tags: tuple[str, ...] = ()
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    output_schema: dict[str, Any] | None = None
    declared: bool = True
    digest: str = ""
    check_params: ParamsCheck = _accept_any
    check_output: ParamsCheck = _accept_any


class ToolCatalog(Protocol):
    """Finds a tool's declaration by name."""

    def spec(self, name: str) -> ToolSpec | None:
        """The declaration of the tool called ``name``; ``None`` if there is none."""
        ...

    def names(self) -> Sequence[str]:
        """The names of all tools, in order of registration."""
        ...


def only_helpers(catalog: ToolCatalog) -> frozenset[str]:
    """The tools that others name as their undo or probe, and that nothing undoes: the engine calls them itself.

    A tool with an undo of its own does something that may be wanted for its own sake, whatever else it undoes.
    """
    specs = [spec for name in catalog.names() if (spec := catalog.spec(name)) is not None]
    named = {
        name
        for spec in specs
        for name in (spec.undo, spec.undo_absent, spec.probe, *(each.get("tool") for each in spec.undo_then))
        if name != spec.name
    }
    return frozenset(spec.name for spec in specs if spec.name in named and spec.undo is None)


@lru_cache(maxsize=256)
def undo_retry(retry: RetryPolicy) -> RetryPolicy:
    """An undo gets more attempts than the call that it undoes: an undo that fails needs an operator."""
    return replace(retry, max_attempts=max(_LEAST_UNDO_ATTEMPTS, 2 * retry.max_attempts))
