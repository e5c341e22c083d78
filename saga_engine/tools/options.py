"""The options of ``@tool``: their types for authors of tools, and their defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from saga_engine.plan.tool_spec import After, BreakerPolicy, Effect, OnDoubt, RetryPolicy, Semantic
from saga_engine.tools.error_rules import Raised, Sign
from saga_engine.tools.limits import Hold, ResourceKey

#: Decides whether a result is an error: see :func:`saga_engine.tool`.
FailedCheck = Callable[[Any], Any]

DEFAULT_RETRY: Final = RetryPolicy(max_attempts=4, base_s=1.0, max_s=30.0, jitter=True)


class ToolOptions(TypedDict, total=False):
    """The options of ``@tool(...)``; :func:`saga_engine.tool` explains each."""

    name: str | None
    effect: Effect
    keyed: bool | None
    key_ttl_s: float | None
    undo: str | Callable[..., Any] | None
    undo_params: Mapping[str, Any] | None
    undo_each: str | None
    undo_then: Sequence[Mapping[str, Any]]
    probe: str | Callable[..., Any] | None
    before: str | Callable[..., Any] | None
    after: After
    absent: Mapping[str, Any] | None
    undo_absent: str | Callable[..., Any] | None
    sole_writer: bool
    expect: str | Mapping[str, str] | None
    undo_check: Mapping[str, Any] | None
    verify: bool
    verify_within_s: float
    timeout_s: float
    retry: RetryPolicy
    resource: ResourceKey | None
    hold: Hold | None
    hold_max_s: float | None
    max_concurrency: int | None
    rate: str | None
    breaker: bool | BreakerPolicy
    dedupe_ttl_s: float | None
    last_good_s: float | None
    cost: Mapping[str, float | str] | None
    compensates: bool
    tolerates_absence: bool
    not_done: Iterable[Sign] | Sign
    unknown: Iterable[Sign] | Sign
    raised: Raised | None
    failed: FailedCheck | None
    on_doubt: OnDoubt
    late_s: float | None
    semantic: Semantic | None
    version: str
    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None
    sensitive: Iterable[str]
    redact: Iterable[str] | str
    tags: Iterable[str]
    description: str | None
    use_when: str
    not_when: str
    returns: str


#: Options that name another tool, in the order of ``Tool.spec``.
LINKS: Final = ("undo", "probe", "before", "undo_absent")
#: Of these, the tools that only read.
READS: Final = frozenset({"probe", "before"})
OPTIONS: Final = tuple(ToolOptions.__annotations__)


@dataclass(kw_only=True, eq=False)
class PlainOptions:
    """The options that a tool keeps unchanged."""

    effect: Effect = "write"
    key_ttl_s: float | None = None
    undo: str | Callable[..., Any] | None = None
    undo_params: Mapping[str, Any] | None = None
    undo_each: str | None = None
    undo_then: Sequence[Mapping[str, Any]] = ()
    probe: str | Callable[..., Any] | None = None
    before: str | Callable[..., Any] | None = None
    after: After = "read"
    absent: Mapping[str, Any] | None = None
    undo_absent: str | Callable[..., Any] | None = None
    sole_writer: bool = False
    expect: str | Mapping[str, str] | None = None
    undo_check: Mapping[str, Any] | None = None
    verify: bool = True
    verify_within_s: float = 0.0
    timeout_s: float = 30.0
    retry: RetryPolicy = DEFAULT_RETRY
    hold: Hold | None = None
    hold_max_s: float | None = None
    max_concurrency: int | None = None
    rate: str | None = None
    dedupe_ttl_s: float | None = None
    last_good_s: float | None = None
    cost: Mapping[str, float | str] | None = None
    compensates: bool = False
    tolerates_absence: bool = False
    raised: Raised | None = None
    failed: FailedCheck | None = None
    on_doubt: OnDoubt = "ask"
    late_s: float | None = None
    semantic: Semantic | None = None
    version: str = ""


PLAIN: Final = frozenset(PlainOptions.__dataclass_fields__)


def refuse_unknown(options: Iterable[str]) -> None:
    """Raise ``TypeError`` for an unknown option, as a function call would."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise TypeError(f"tool() got an unexpected keyword argument {unknown[0]!r}; options: {', '.join(OPTIONS)}")
