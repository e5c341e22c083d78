"""The compiled plans of this process: many sagas have the same plan, and to compile one takes longer than to run it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from saga_engine.core.plan_growth import compile_started
from saga_engine.core.records import SagaStarted
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import Plan
from saga_engine.plan.tool_spec import ToolCatalog

#: For each catalog, the cache keeps so many plans at most, and plans of so many bytes of JSON.
MAX_PLANS: Final = 256
MAX_BYTES: Final = 16 * 1024 * 1024


def compile_submitted(plan: Plan, given: dict[str, Any] | None, catalog: ToolCatalog) -> CompiledPlan:
    """A plan with the input ``given``, checked against the tools as they are. Raises ``PlanInvalid``."""
    if given is not None:
        return compile_plan(plan, catalog, input=given)  # hardly any other saga has the same input
    return _cached(catalog, plan.json_bytes, lambda: compile_plan(plan, catalog))


def compile_journalled(started: SagaStarted, catalog: ToolCatalog | None) -> CompiledPlan:
    """The plan of a journal. Without a catalog it is enough to view a saga, but not to drive it."""
    if started.session:
        return compile_started(started, catalog)  # the plan grows in place
    content = msgspec.json.encode([started.plan, started.input, started.undos, started.reads, started.limits])
    return _cached(catalog, content, lambda: compile_started(started, catalog))


class _Plans:
    """Compiled plans by their content; the least recently used is dropped."""

    def __init__(self) -> None:
        self.plans: dict[bytes, CompiledPlan] = {}
        self.bytes = 0


class _NoCatalog:
    """Replaces a missing catalog."""


_NO_CATALOG: Final = _NoCatalog()
_PLANS: Final[WeakKeyDictionary[Any, _Plans]] = WeakKeyDictionary()


def _cached(catalog: ToolCatalog | None, content: bytes, make: Callable[[], CompiledPlan]) -> CompiledPlan:
    whose = _NO_CATALOG if catalog is None else catalog
    known = _PLANS.get(whose) or _PLANS.setdefault(whose, _Plans())
    compiled = known.plans.pop(content, None)
    if compiled is None:
        with _no_collection():
            compiled = make()
        if len(content) > MAX_BYTES or (catalog is not None and not _is_complete(compiled)):
            return compiled
        known.bytes += len(content)
    known.plans[content] = compiled  # the last one used is last
    while len(known.plans) > MAX_PLANS or known.bytes > MAX_BYTES:
        oldest = next(iter(known.plans))
        del known.plans[oldest]
        known.bytes -= len(oldest)
    return compiled


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection meanwhile: a plan makes up to a hundred objects for each step, and all of them stay."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _is_complete(compiled: CompiledPlan) -> bool:
    """Whether every tool of the plan is known. A missing one may be registered later."""
    return all(call.spec is not None for call in compiled.calls())
