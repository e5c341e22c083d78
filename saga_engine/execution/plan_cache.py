"""The compiled plans of this process: many sagas have the same plan, and to compile one takes longer than to run it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from saga_engine.core.plan_growth import compile_started, prepare_started, recorded_started
from saga_engine.core.records import SagaStarted
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiler import Prepared, prepare_plan
from saga_engine.plan.model import Plan
from saga_engine.plan.tool_spec import ToolCatalog

#: For each catalog, the cache keeps so many plans at most, and plans of so many bytes of JSON.
MAX_PLANS: Final = 256
MAX_BYTES: Final = 16 * 1024 * 1024
#: So many new objects are looked at in a few ms.
_MANY_NEW: Final = 20_000
#: In a process that has frozen what it loaded, everything is looked at once for so many large plans.
_LOOK_EACH: Final = 256
_FROZEN: Final = count(1)


def compile_submitted(plan: Plan, given: dict[str, Any] | None, catalog: ToolCatalog) -> CompiledPlan:
    """A plan with the input ``given``, checked against the tools as they are. Raises ``PlanInvalid``."""
    return _cached(catalog, plan.json_bytes, given, lambda: prepare_plan(plan, catalog, input=given))


def compile_journalled(started: SagaStarted, catalog: ToolCatalog | None) -> CompiledPlan:
    """The plan of a journal. Without a catalog it is enough to view a saga, but not to drive it."""
    if started.session:
        return compile_started(started, catalog)  # the plan grows in place
    with no_collection():
        recorded = recorded_started(started, catalog)
    if recorded is not None:
        return recorded
    content = msgspec.json.encode([started.plan, started.undos, started.reads, started.limits])
    return _cached(catalog, content, started.input, lambda: prepare_started(started, catalog))


class _Plans:
    """Compiled plans by their content; the least recently used is dropped.

    A plan that gets its input from each saga is kept apart from itself without one.
    """

    def __init__(self) -> None:
        self.plans: dict[tuple[bytes, bool], Prepared] = {}
        self.bytes = 0


class _NoCatalog:
    """Replaces a missing catalog."""


_NO_CATALOG: Final = _NoCatalog()
_LOCK: Final = threading.Lock()
_PLANS: Final[WeakKeyDictionary[Any, _Plans]] = WeakKeyDictionary()


def _cached(
    catalog: ToolCatalog | None, content: bytes, given: Mapping[str, Any] | None, make: Callable[[], Prepared]
) -> CompiledPlan:
    whose = _NO_CATALOG if catalog is None else catalog
    known = _PLANS.get(whose) or _PLANS.setdefault(whose, _Plans())
    key = (content, given is not None)
    with _LOCK:  # large plans are compiled in threads
        prepared = known.plans.pop(key, None)
        if prepared is not None:
            known.plans[key] = prepared  # the last one used is last
    compiled: CompiledPlan | None = None
    if prepared is not None:
        compiled = prepared.compiled if given is None else prepared.with_input(given)
    if compiled is not None:
        return compiled
    with no_collection():
        made = make()
    if prepared is None and len(content) <= MAX_BYTES and (catalog is None or _is_complete(made.compiled)):
        kept = made if given is None else made.without_input()
        with _LOCK:
            known.bytes += len(content) if key not in known.plans else 0
            known.plans[key] = kept
            while len(known.plans) > MAX_PLANS or known.bytes > MAX_BYTES:
                oldest = next(iter(known.plans))
                del known.plans[oldest]
                known.bytes -= len(oldest[0])
    return made.compiled


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection meanwhile: a plan makes up to a hundred objects for each step, and all of them stay.

    A collection stops every thread, and looks at all of them each time. In a process that has frozen what it loaded
    (``cli/drive.py``), the plan is frozen, too: nothing looks at it any more. It has no cycles, so it is freed as ever.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            if gc.get_count()[0] > _MANY_NEW:
                _set_aside()
            gc.enable()


def _set_aside() -> None:
    """What is new is old at once, without a look at it: the next collection would look, while nothing has a turn."""
    frozen = gc.get_freeze_count()
    gc.freeze()
    if not frozen:
        gc.unfreeze()
    elif next(_FROZEN) % _LOOK_EACH == 0:
        # Whatever was garbage then has been frozen with it.
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def _is_complete(compiled: CompiledPlan) -> bool:
    """Whether every tool of the plan is known. A missing one may be registered later."""
    return all(call.spec is not None for call in compiled.calls())
