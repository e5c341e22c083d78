"""A compiled plan: the graph, the templates of all params, and the declaration of each step's tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from saga_engine.errors import BindingUnresolved
from saga_engine.plan.absence import Absence
from saga_engine.plan.child import OUTPUT
from saga_engine.plan.expect import Expect
from saga_engine.plan.limits import GUARD_WAIT_S, MAX_CRASHES, MAX_PARALLEL
from saga_engine.plan.tool_spec import After, RetryPolicy, ToolSpec

#: ``compensation``: a step that compensates for one that cannot be undone. It runs on the way back and is never undone.
#: ``finally``: a step of the plan's ``finally``; it runs after all others and is never undone.
Kind = Literal["compensatable", "pivot", "retriable", "irreversible", "read", "compensation", "finally"]
OnFailure = Literal["compensate", "pause", "replan"]


class Scope(Protocol):
    """Gives a template the values of its bindings."""

    @property
    def saga_id(self) -> str:
        """The saga's id."""
        ...

    @property
    def input(self) -> Mapping[str, Any]:
        """The plan's input."""
        ...

    @property
    def item(self) -> Any:
        """The item of a list that is being visited; raises ``BindingUnresolved`` where there is none."""
        ...

    @property
    def index(self) -> int:
        """Its position, from 0; raises ``BindingUnresolved`` where there is none."""
        ...

    @property
    def end(self) -> Mapping[str, Any]:
        """How the saga ended; empty if it has not."""
        ...

    def output(self, step_key: str) -> Any:
        """The output of a step; raises ``BindingUnresolved`` if it has none."""
        ...

    def params(self, step_key: str) -> Any:
        """The resolved forward params of a step, without secrets."""
        ...

    def before(self, step_key: str) -> Any:
        """The value as it was before a step's call; raises ``BindingUnresolved`` if there is none."""
        ...

    def key(self, step_key: str) -> str:
        """The forward idempotency key of a step."""
        ...

    def secret(self, name: str) -> str:
        """The secret's value, or its marker if the value must not appear."""
        ...


class WithoutList:
    """A part of a ``Scope`` in which no list is visited."""

    __slots__ = ()

    @property
    def item(self) -> Any:
        """Raises ``BindingUnresolved``."""
        raise BindingUnresolved("$item has no list here")

    @property
    def index(self) -> int:
        """Raises ``BindingUnresolved``."""
        raise BindingUnresolved("$index has no list here")


class Item(NamedTuple):
    """One item of a step with ``each``: the index and the key of that step; the item's position, key and value."""

    parent: int
    number: int
    parent_key: str
    key: str
    value: Any


class Condition:
    """A compiled condition."""

    __slots__ = ()

    def evaluate(self, scope: Scope) -> bool | str:
        """True, False, or why neither."""
        raise NotImplementedError


class Conditions(NamedTuple):
    """The conditions of one field of a step. ``outputs``: keys of the steps whose outputs they need.

    ``raw`` is how they are written.
    """

    condition: Condition
    outputs: frozenset[str] = frozenset()
    bound: bool = False
    raw: Any = None

    def evaluate(self, scope: Scope) -> bool | str:
        """True, False, or why neither."""
        return self.condition.evaluate(scope)


class Params(Protocol):
    """A template of params, compiled once. Bound values are data and are never searched for bindings."""

    #: Whether it has a binding; if not, ``resolve`` always gives the same params.
    bound: bool
    #: Names of the secrets it needs.
    secrets: frozenset[str]
    #: The top-level params that hold a secret: their values are known only at the call.
    secret_params: frozenset[str]
    #: Keys of the steps whose outputs it needs.
    outputs: frozenset[str]
    #: The same, and the steps whose outputs have a default.
    outputs_or_default: frozenset[str]
    #: The params as written, with their bindings; empty if the plan does not specify them.
    raw: dict[str, Any]

    def resolve(self, scope: Scope) -> dict[str, Any]:
        """The params of a call; raises ``BindingUnresolved``."""
        ...


@dataclass(slots=True)
class CompiledRead:
    """The read that shows what a call is about to change; ``after``, ``absent``, ``sole_writer`` as in ``ToolSpec``.

    Or that of its ``undo_check``, which finds what it must show ``absent``.
    """

    tool: str
    spec: ToolSpec | None
    params: Params
    retry: RetryPolicy
    timeout_s: float
    after: After = "read"
    absent: Absence | None = None
    sole_writer: bool = False
    #: The call is made only if the read still shows what the saga knows.
    expect: Expect | None = None
    #: Never: a read has no undo.
    rollback: None = None


@dataclass(slots=True)
class CompiledRollback:
    """How to undo a step. ``needs_output``: impossible without the step's own output.

    ``usual``: the params of the registered undo, if ``tool`` is that undo; None if it is another tool. ``absent``: the
    undo of a call that created what it would otherwise have changed. ``then``: the calls that follow it, in order.
    ``each``: it is called once for each item of this list (``undo_calls``). ``needs_output`` speaks of all its calls.
    ``by_key``: it names what it undoes by the step's forward key, which nothing but that call ever had.
    """

    tool: str
    spec: ToolSpec | None
    params: Params
    retry: RetryPolicy
    timeout_s: float
    needs_output: bool
    usual: Params | None = None
    absent: CompiledRollback | None = None
    then: tuple[CompiledRollback, ...] = ()
    each: Params | None = None
    #: What the tool's declaration says of params and further calls, as JSON; empty: nothing, or the plan says it.
    declared: str = ""
    by_key: bool | None = None

    def __post_init__(self) -> None:
        if self.by_key is None:  # whatever else takes the place of its params later, the binding stays what it is
            places = getattr(self.params, "places", ())
            told = self.spec is not None and self.spec.undoes_by_key
            self.by_key = told or any(place.source == "key" and not place.optional for place in places)

    def calls(self) -> Iterator[CompiledRollback]:
        """Every call of the undo, in order, and then those of the undo of a creation."""
        yield self
        yield from self.then
        if self.absent is not None:
            yield from self.absent.calls()

    def templates(self) -> Iterator[Params]:
        """The params of these calls, and their lists."""
        for call in self.calls():
            yield call.params
            if call.each is not None:
                yield call.each


@dataclass(slots=True)
class CompiledFallback:
    """The replacement for a step's call.

    ``tool``: another call. ``cached``: the read's last good result, at most ``max_age_s`` seconds old. ``queue``: the
    step itself, tried again every ``every_s`` seconds. ``cached`` and ``queue`` have the step's own tool and params.
    """

    way: Literal["tool", "cached", "queue"]
    tool: str
    spec: ToolSpec | None
    params: Params
    rollback: CompiledRollback | None
    retry: RetryPolicy
    timeout_s: float
    max_age_s: float = 0.0
    every_s: float = 0.0
    before: CompiledRead | None = None
    check: CompiledRead | None = None


@dataclass(slots=True)
class CompiledEach:
    """What a step does with its list: ``item`` is the step that each item gets, for those that ``when`` wants.

    ``parallel``: how many of them may run at a time. ``collect``: the rest goes on if one fails.
    """

    item: CompiledStep
    when: Conditions | None
    parallel: int
    collect: bool


@dataclass(slots=True)
class CompiledStep:
    """One node of the graph.

    ``key`` is the step's id as text, unique in the plan. ``deps`` are all steps that must have succeeded before it;
    ``data_deps`` the ones that the step itself names, by a binding or in ``depends_on`` (the others follow from list
    order). ``dependents`` is the reverse of ``deps``; a compensation ``compensates`` a step. All are indexes into
    ``CompiledPlan.steps``. ``builtin`` is the word of a built-in step (``builtin_steps``), which calls no tool.
    ``when``: it runs only if these hold. ``failed_when``: with such an output it failed. ``continues``: the saga goes
    on if it fails; ``tolerates``: it goes on if the step fails with this error code. ``late``: what another saga calls
    for an event that comes too late. ``each``: it has a list, which ``params`` hold, and ``items`` is the index of the
    first step that an item of the list got; ``item``: it is such a step. ``child``: the plan of a child saga, which has
    no calls here; its ``rollback`` has no tool.
    """

    index: int
    step_id: int | str
    key: str
    name: str
    kind: Kind
    tool: str
    spec: ToolSpec | None
    params: Params
    rollback: CompiledRollback | None
    retry: RetryPolicy
    timeout_s: float
    deps: tuple[int, ...]
    data_deps: frozenset[int]
    dependents: tuple[int, ...] = ()
    resource: Params | None = None
    fallbacks: tuple[CompiledFallback, ...] = ()
    compensates: int | None = None
    builtin: str = ""
    when: Conditions | None = None
    failed_when: Conditions | None = None
    continues: bool = False
    tolerates: str = ""
    late: CompiledRollback | None = None
    each: CompiledEach | None = None
    items: int = -1
    item: Item | None = None
    before: CompiledRead | None = None
    check: CompiledRead | None = None
    child: CompiledChild | None = None

    def servings(self) -> Iterator[Serving]:
        """The forward calls that may serve it, or each item of its list: its own, then its fallbacks."""
        if self.each is not None:
            yield from self.each.item.servings()
        elif not self.builtin:
            yield self
        yield from self.fallbacks

    def calls(self) -> Iterator[CompiledCall]:
        """Every call that may be made for it: each forward call, followed by its read of before-images and its undo."""
        for serving in self.servings():
            yield serving
            if serving.before is not None:
                yield serving.before
            if serving.check is not None:
                yield serving.check
            if serving.rollback is not None:
                yield from serving.rollback.calls()
        if self.builtin and self.rollback is not None and self.child is None:
            yield from self.rollback.calls()
        if self.late is not None:
            yield self.late

    @property
    def may_lack_output(self) -> bool:
        """Whether steps that depend on it may run although it has no output."""
        return self.when is not None or self.continues or bool(self.tolerates)

    def goes_on(self, code: str) -> bool:
        """Whether the saga goes on if the step fails with this error code."""
        return self.continues or (bool(code) and code == self.tolerates)

    @property
    def semantic(self) -> bool:
        """Whether it has no undo because its tool's declaration leaves its compensation to a model."""
        return self.kind == "compensatable" and self.rollback is None


Serving = CompiledStep | CompiledFallback


def may_be_looked_at(serving: Serving) -> bool:
    """Whether something may tell about the undo of a call (``undo_looks`` says what)."""
    undo = serving.rollback
    probed = undo is not None and undo.spec is not None and undo.spec.probe is not None
    return probed or serving.before is not None or serving.check is not None


CompiledCall = Serving | CompiledRollback | CompiledRead


@dataclass(slots=True)
class CompiledChild:
    """The plan of a child: as JSON, and what its parent knows of it.

    ``steps`` are those of ``finally``, too. ``given`` is the input that the parent gives it, ``input`` the plan's own,
    and ``input_schema`` says what both together must be. ``template``: the ``NAME@VERSION`` that the plan comes from.
    ``children``: how many sagas it starts in turn, on all levels. ``sensitive`` is as in ``CompiledPlan``.
    """

    plan: bytes
    digest: str
    steps: list[CompiledStep]
    input: Mapping[str, Any]
    given: Params
    input_schema: dict[str, Any] | None = None
    template: str = ""
    children: int = 0
    sensitive: dict[str, list[str]] = field(default_factory=dict)

    def kind(self) -> Kind:
        """What the child as a whole is to its parent's order of steps and to its undo."""
        kinds = {step.kind for step in self.steps} - {"finally"}
        if "pivot" in kinds:
            return "pivot"
        if "irreversible" in kinds:
            return "irreversible"
        return "read" if kinds <= {"read"} else "compensatable"

    def output_schema(self) -> dict[str, Any]:
        """The schema of the step's output: the outputs of the child's steps, by step id."""
        outputs = {step.key: _output_of(step) for step in self.steps if step.kind != "finally"}
        properties = {**OUTPUT["properties"], "outputs": {"type": "object", "properties": outputs}}
        return {**OUTPUT, "properties": properties}


def _output_of(step: CompiledStep) -> dict[str, Any]:
    """The schema of a step's output inside another one; one that refers to its own parts says nothing there."""
    schema = step.spec.output_schema if step.spec is not None and not step.fallbacks else None
    return {} if schema is None or b"$ref" in msgspec.json.encode(schema) else schema


class StepsByTool:
    """The steps that call a tool, and those whose undo does; it is asked for the steps of one plan, which may grow.

    ``seen``: so many steps of the plan are known. ``meet``: some of them calls a tool that is an undo of some of them;
    where it is false, as in nearly every plan, no call can be the undo of another one.
    """

    __slots__ = ("_calls", "_undos", "called_by_all", "meet", "seen", "terms")

    def __init__(self) -> None:
        self.seen = 0
        #: The search terms of the tools, once they were needed, and of how many steps (``core.search_terms``).
        self.terms: tuple[int, Sequence[str]] | None = None
        self.meet = False
        #: The tools of all calls of a plan with so many steps, once they were needed.
        self.called_by_all: tuple[int, frozenset[str]] | None = None
        self._calls: dict[str, list[int]] = {}
        self._undos: dict[str, list[int]] = {}

    def undone_by(self, steps: Sequence[CompiledStep], tool: str) -> Sequence[int]:
        """The steps whose undo calls the tool."""
        self.look(steps)
        return self._undos.get(tool, ())

    def called(self, steps: Sequence[CompiledStep], tool: str) -> Sequence[int]:
        """The steps that call the tool, themselves or with a fallback."""
        self.look(steps)
        return self._calls.get(tool, ())

    def look(self, steps: Sequence[CompiledStep]) -> None:
        """Take in the steps that came since it last looked."""
        if self.seen == len(steps):
            return
        self.learn(map(tools_of, steps[self.seen :]))

    def learn(self, tools: Iterable[tuple[Sequence[str], Sequence[str]]]) -> None:
        """Take in the next steps: the tools that each calls, and those that undo it."""
        for calls, undos in tools:
            for tool in calls:
                _note(self._calls, tool, self.seen)
            for tool in undos:
                _note(self._undos, tool, self.seen)
            self.seen += 1
        self.meet = not self._calls.keys().isdisjoint(self._undos)


def tools_of(step: CompiledStep) -> tuple[Sequence[str], Sequence[str]]:
    """The tools that a step calls, itself or with a fallback, and those that undo it."""
    servings = list(step.servings())
    undos = (undo for each in servings if each.rollback is not None for undo in each.rollback.calls())
    return [each.tool for each in servings if each.tool], [undo.tool for undo in undos if undo.tool]


def _note(found: dict[str, list[int]], tool: str, index: int) -> None:
    listed = found.setdefault(tool, [])
    if index not in listed[-1:]:
        listed.append(index)


@dataclass(slots=True)
class CompiledPlan:
    """A checked plan. Immutable by convention: many sagas share one."""

    goal: str
    input: Mapping[str, Any]
    steps: list[CompiledStep]
    by_key: dict[str, int]
    #: The steps in the order of the list: one that took another's place stands there (``placement``).
    order: Sequence[int] = ()
    #: The steps of ``finally``, with the indexes that they have behind all others (``with_final``).
    final: list[CompiledStep] = field(default_factory=list)
    pivot: int | None = None
    deadline_s: float | None = None
    max_tool_calls: int | None = None
    #: How much the calls may cost together, by unit.
    max_cost: Mapping[str, float] = field(default_factory=dict)
    on_failure: OnFailure = "compensate"
    #: Calls in flight at a time; only the operator's limits set it.
    max_parallel: int = MAX_PARALLEL
    #: Owners in a row that may end during one call; only the operator's limits set it.
    max_crashes: int = MAX_CRASHES
    #: How long a step waits that a guard refuses; only the operator's limits set it.
    guard_wait_s: float = GUARD_WAIT_S
    #: By these its sagas are found.
    name: str = ""
    tags: tuple[str, ...] = ()
    #: Undo tools that come from a tool's registration, by step key (``KEY#N`` for the N-th fallback). They are
    #: journalled, so that a resumed saga undoes the same way.
    undos: dict[str, str] = field(default_factory=dict)
    #: Keys of the steps that only read: journalled for the same reason.
    reads: frozenset[str] = frozenset()
    #: Digests of the tools the plan may call, by name.
    tool_digests: dict[str, str] = field(default_factory=dict)
    #: The sensitive params of these tools, by name of the tool: journalled, so that every view of the saga hides them.
    sensitive: dict[str, list[str]] = field(default_factory=dict)
    #: Whether some call has a read of before-images.
    images: bool = False
    #: Whether something in it is computed: that may take long (``execution.computing``).
    computes: bool = False
    #: Whether something tells about some undo, whether it did what it says (``undo_looks``).
    looks: bool = False
    #: The secrets that its calls and their undos need, in the order of the steps. (A call of a session needs none.)
    secrets: tuple[str, ...] = ()
    #: Its steps by the tools that they and their undos call.
    tools: StepsByTool = field(default_factory=StepsByTool, init=False, compare=False)

    def calls(self) -> Iterator[CompiledCall]:
        """Every call that the plan may make, forward and backward."""
        for step in self.all_steps():
            yield from step.calls()

    def called(self) -> frozenset[str]:
        """The tools of these calls, found once for all sagas of a plan, and again if it grows."""
        known = self.tools.called_by_all
        if known is None or known[0] != len(self.steps):
            known = self.tools.called_by_all = len(self.steps), frozenset(call.tool for call in self.calls())
        return known[1]

    def all_steps(self) -> Iterator[CompiledStep]:
        """Its steps, then those of ``finally``."""
        yield from self.steps
        yield from self.final

    def with_final(self) -> CompiledPlan:
        """The plan with the steps of ``finally`` among its steps: they run now. This one is unchanged."""
        final = self._final_behind()
        steps = [*self.steps, *final]
        by_key = {**self.by_key, **{step.key: step.index for step in final}}
        return replace(self, steps=steps, by_key=by_key, order=range(len(steps)), final=[])

    def with_steps(self, steps: list[CompiledStep], by_key: dict[str, int]) -> CompiledPlan:
        """The plan with more steps; those of ``finally`` stand behind them."""
        made = replace(self, steps=steps, by_key=by_key)
        made.final = made._final_behind()  # noqa: SLF001 - it is one of ours
        return made

    def _final_behind(self) -> list[CompiledStep]:
        """The steps of ``finally`` with the indexes that follow those of all others."""
        final = self.final
        if by := len(self.steps) - final[0].index if final else 0:  # lists have got their items
            final = [
                replace(
                    step,
                    index=step.index + by,
                    deps=tuple(other + by for other in step.deps),
                    data_deps=frozenset(other + by for other in step.data_deps),
                    dependents=tuple(other + by for other in step.dependents),
                )
                for step in final
            ]
        return final
