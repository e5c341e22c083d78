"""The compiled plans of this process: many sagas have the same plan, and to compile one takes longer than to run it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from saga_engine.core.plan_growth import compile_started, prepare_started, recorded_started
from saga_engine.core.records import SagaStarted
from saga_engine.plan.compiled import CompiledCall, CompiledPlan, CompiledStep
from saga_engine.plan.compiler import Prepared, prepare_plan
from saga_engine.plan.model import Plan
from saga_engine.plan.shapes import Key, Shape, shape_of
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec

#: For each catalog, the cache keeps so many plans at most, and plans of so many bytes of JSON.
MAX_PLANS: Final = 256
MAX_BYTES: Final = 16 * 1024 * 1024
#: And shapes of so many parts together, each of which is a name, a value or a bracket: a few thousand steps.
MAX_PARTS: Final = 50_000
#: So many new objects are looked at in a few ms.
_MANY_NEW: Final = 20_000
#: In a process that has frozen what it loaded, everything is looked at once for so many large plans.
_LOOK_EACH: Final = 256
_FROZEN: Final = count(1)


def compile_submitted(plan: Plan, given: dict[str, Any] | None, catalog: ToolCatalog) -> CompiledPlan:
    """A plan with the input ``given``, checked against the tools as they are. Raises ``PlanInvalid``."""
    return _cached(catalog, plan.json_bytes, given, lambda: _prepare(plan, given, catalog))


def compile_journalled(started: SagaStarted, catalog: ToolCatalog | None) -> CompiledPlan:
    """The plan of a journal. Without a catalog it is enough to view a saga, but not to drive it."""
    if started.session:
        return compile_started(started, catalog)  # the plan grows in place
    body = msgspec.json.encode(started.plan)
    with no_collection():
        recorded = recorded_started(started, body, catalog)
    if recorded is not None:
        return recorded
    content = msgspec.json.encode([msgspec.Raw(body), started.undos, started.reads, started.limits])
    return _cached(catalog, content, started.input, lambda: _with_tools(prepare_started(started, catalog)))


#: The tools that a plan calls, and how each was declared when the plan was compiled; None: it was unknown.
_Declared = Sequence[tuple[str, ToolSpec | None]]


def _prepare(plan: Plan, given: dict[str, Any] | None, catalog: ToolCatalog) -> tuple[Prepared, _Declared]:
    """A plan that was not seen before: compiled from the beginning, unless one of its shape was."""
    key = shape_of(plan)
    if key is None:
        return _with_tools(prepare_plan(plan, catalog, input=given))
    known = _known(catalog)
    kept = known.shape(key)
    if kept is not None and _stand(kept[1], catalog) and (filled := kept[0].filled(plan, given)) is not None:
        return filled, kept[1]
    made, tools = _with_tools(prepare_plan(plan, catalog, input=given))
    if len(key) <= MAX_PARTS and known.again(key) and (shape := Shape.of(made)) is not None:
        known.keep(key, shape, tools)
    return made, tools


def _with_tools(made: Prepared) -> tuple[Prepared, _Declared]:
    return made, tuple({call.tool: call.spec for call in _calls(made.compiled.all_steps())}.items())


def _calls(steps: Iterable[CompiledStep]) -> Iterator[CompiledCall]:
    for step in steps:
        yield from step.calls()
        if step.child is not None:
            yield from _calls(step.child.steps)


def _stand(tools: _Declared, catalog: ToolCatalog) -> bool:
    """Whether the tools are declared as they were: one may be registered, or another one in its place."""
    for name, spec in tools:  # noqa: SIM110 - each saga asks this: a generator is a call more for each tool
        if catalog.spec(name) is not spec and name:
            return False
    return True


class _Plans:
    """Compiled plans by their content, and by their shape; the least recently used is dropped.

    A plan that gets its input from each saga is kept apart from itself without one.
    """

    def __init__(self) -> None:
        self.plans: dict[tuple[bytes, bool], tuple[Prepared, _Declared]] = {}
        self.bytes = 0
        self.shapes: dict[Key, tuple[Shape, _Declared]] = {}
        self.parts = 0
        self.seen: dict[int, None] = {}

    def shape(self, key: Key) -> tuple[Shape, _Declared] | None:
        """What is known of the plans of this shape."""
        with _LOCK:
            kept = self.shapes.pop(key, None)
            if kept is not None:
                self.shapes[key] = kept  # the last one used is last
        return kept

    def again(self, key: Key) -> bool:
        """Whether a plan of this shape was compiled lately: one that nobody writes again is not worth keeping."""
        mark = hash(key)
        with _LOCK:
            if mark in self.seen:
                return True
            self.seen[mark] = None
            if len(self.seen) > 4 * MAX_PLANS:
                del self.seen[next(iter(self.seen))]
        return False

    def keep(self, key: Key, shape: Shape, tools: _Declared) -> None:
        """Keep a shape, and drop others for it."""
        with _LOCK:
            self.parts += 0 if key in self.shapes else len(key)
            self.shapes[key] = shape, tools
            while len(self.shapes) > MAX_PLANS or self.parts > MAX_PARTS:
                oldest = next(iter(self.shapes))
                del self.shapes[oldest]
                self.parts -= len(oldest)


class _NoCatalog:
    """Replaces a missing catalog."""


_NO_CATALOG: Final = _NoCatalog()
_LOCK: Final = threading.Lock()
_PLANS: Final[WeakKeyDictionary[Any, _Plans]] = WeakKeyDictionary()


def _known(catalog: ToolCatalog | None) -> _Plans:
    whose = _NO_CATALOG if catalog is None else catalog
    return _PLANS.get(whose) or _PLANS.setdefault(whose, _Plans())


def _cached(
    catalog: ToolCatalog | None,
    content: bytes,
    given: Mapping[str, Any] | None,
    make: Callable[[], tuple[Prepared, _Declared]],
) -> CompiledPlan:
    known = _known(catalog)
    key = (content, given is not None)
    with _LOCK:  # large plans are compiled in threads
        kept = known.plans.pop(key, None)
        if kept is not None:
            known.plans[key] = kept  # the last one used is last
    compiled: CompiledPlan | None = None
    if kept is not None and catalog is not None and not _stand(kept[1], catalog):
        kept = None
    if kept is not None:
        compiled = kept[0].compiled if given is None else kept[0].with_input(given)
    if compiled is not None:
        return compiled
    with no_collection():
        made, tools = make()
    if kept is None and len(content) <= MAX_BYTES:
        with _LOCK:
            known.bytes += len(content) if key not in known.plans else 0
            known.plans[key] = made if given is None else made.without_input(), tools
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
