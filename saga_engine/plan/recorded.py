"""The plan of a journal, whose steps are compiled when they are first used.

It was checked when its saga began. What a process that takes the saga over needs of every step is its place in the
order. It needs the tool, params and undo of those that are still to be called. So a step whose bindings can be told
from its text gets its place, and the rest of it later; any other step is compiled at once. Steps of one *form* (the
same tool, kind and way to be undone) call the same tools, which the first of them tells.

A plan with parts that reach beyond single steps (lists, children, ``finally``, a pivot) is compiled as a whole
(``compiler``), and so is one whose order has a fault: the compiler tells all faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from saga_engine.plan import graph
from saga_engine.plan.child_plans import compile_child
from saga_engine.plan.compiled import CompiledCall, CompiledPlan, CompiledStep, may_be_looked_at, tools_of
from saga_engine.plan.compiler import registered_undos
from saga_engine.plan.draft import ABSENT, Draft, single_steps
from saga_engine.plan.model import Step, load_json, load_step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from saga_engine.plan.compiled import Kind
    from saga_engine.plan.operator_limits import Limits
    from saga_engine.plan.tool_spec import ToolCatalog

#: A plan of fewer steps is compiled at once, and kept for other sagas (``execution.plan_cache``).
LEAST_STEPS: Final = 200
#: What a step gets when it is compiled.
_LATER: Final = ("spec", "params", "rollback", "retry", "timeout_s", "before", "check")
#: A binding that is a whole value of compact JSON.
_BINDING: Final = re.compile(
    rb'"\$(?:output\.step_([A-Za-z0-9_-]{1,64})|input\.[A-Za-z_][A-Za-z0-9_]*)(?:\.[A-Za-z_][A-Za-z0-9_]*|\[\d{1,6}\])*'
    rb'"(?=[,}\]])|"\$(?:key|saga\.id)"(?=[,}\]])'
)
_NONE: Final = msgspec.Raw(b"")


class _Undo(msgspec.Struct, forbid_unknown_fields=True):
    tool: str
    params: msgspec.Raw = _NONE
    retry: msgspec.Raw = _NONE
    timeout_s: msgspec.Raw = _NONE


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    """A step whose parts can be told from its text."""

    step_id: int | str
    tool: str
    name: str | None = None
    params: msgspec.Raw = _NONE
    depends_on: list[int | str] | None = None
    rollback: _Undo | None = None
    kind: Literal["compensatable", "irreversible", "read"] | None = None
    retry: msgspec.Raw = _NONE
    timeout_s: msgspec.Raw = _NONE


_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STEPS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_STEP: Final = msgspec.json.Decoder(_Written)


class LaterStep(CompiledStep):
    """A step that knows its place in the order; it is compiled when something else is asked of it."""

    __slots__ = ("_compile",)

    _compile: Callable[[int], CompiledStep]

    def __getattr__(self, name: str) -> Any:
        """Python asks this for what is not set."""
        if name not in _LATER:
            raise AttributeError(name)
        made = self._compile(self.index)
        for each in _LATER:
            setattr(self, each, getattr(made, each))
        return getattr(self, name)


@dataclass(slots=True)
class RecordedPlan(CompiledPlan):
    """A plan with steps that are compiled later.

    ``forms``: the steps that tell which calls there are, for the first ``told`` steps.
    """

    forms: Sequence[CompiledStep] = ()
    told: int = 0

    def calls(self) -> Iterator[CompiledCall]:
        """The calls that the plan may make; of steps of one form those of the first one."""
        if len(self.steps) != self.told or self.final:
            yield from CompiledPlan.calls(self)
            return
        for step in self.forms:
            yield from step.calls()


def recorded_plan(
    body: bytes,
    catalog: ToolCatalog | None,
    *,
    given: Mapping[str, Any] | None,
    undos: Mapping[str, str],
    reads: Collection[str],
    limits: Limits | None = None,
    least: int = LEAST_STEPS,
) -> CompiledPlan | None:
    """The plan that a journal holds as JSON, within the limits of its day; None: it has to be compiled as a whole.

    Raises ``PlanInvalid`` if this engine cannot read it.
    """
    try:
        fields = _FIELDS.decode(body)
        texts = _STEPS.decode(fields.get("steps", b"[]"))
    except msgspec.MsgspecError:
        return None
    if len(texts) < least or b"\\u" in body or any(name in fields for name in ("finally", "finally_")):
        return None
    rest = {name: msgspec.json.decode(value) for name, value in fields.items() if name != "steps"}
    head = load_json({**rest, "steps": [{"step_id": 0, "tool": "any"}]}, recorded=True)
    values = {**head.input, **given} if given else head.input
    made = Draft(head, values, catalog, len(texts), frozenset(), by_key={}, child=compile_child)
    return _Recorded(made, texts, undos, reads).plan(limits)


class _Form(NamedTuple):
    """What all steps of one form have in common. ``undos``: the undos that are registered, by what follows the key."""

    tools: tuple[Sequence[str], Sequence[str]]
    undos: Sequence[tuple[str, str]]


def _form_of(step: CompiledStep) -> _Form:
    undos = [(slot.removeprefix(step.key), tool) for slot, tool in registered_undos([step])]
    return _Form(tools_of(step), undos)


def _undos(keys: Iterable[str], forms: Iterable[_Form]) -> Iterator[tuple[str, str]]:
    """The undos that are registered, by slot."""
    for key, form in zip(keys, forms, strict=True):
        for slot, tool in form.undos:
            yield key + slot, tool


class _Recorded:
    """The steps of one plan on their way to be compiled."""

    def __init__(
        self, made: Draft, texts: Sequence[msgspec.Raw], undos: Mapping[str, str], reads: Collection[str]
    ) -> None:
        self._made = made
        self._texts = texts
        self._undos = undos
        self._reads = reads
        self._draft = single_steps(made, undos, reads)

    def plan(self, limits: Limits | None) -> CompiledPlan | None:
        """The plan, if its steps have an order and nothing reaches beyond one of them."""
        made = self._made
        written = [_read(text) for text in self._texts]
        for index, each in enumerate(written):
            key = str(each.step_id if each is not None else self._load(index).step_id)
            if made.by_key.setdefault(key, index) != index:
                return None
        forms: dict[Any, _Form] = {}
        of_each: list[_Form] = []
        at_once: list[CompiledStep] = []
        for (key, index), each in zip(made.by_key.items(), written, strict=True):
            form = None if each is None else self._key(key, each)
            known = forms.get(form) if form is not None else None
            if each is None or known is None:
                step = self._compile(index)
                at_once.append(step)
                known = _form_of(step)
                if form is not None:
                    forms[form] = known
            else:
                step = self._place(index, key, each)
            if step.kind in {"pivot", "retriable"} or step.child is not None or index in made.each:
                return None
            waits = self._bound(index) if each is None else self._named(each)
            if waits is None or not self._settle(step, waits, self._depends_on(index, each)):
                return None
            made.steps.append(step)
            of_each.append(known)
        if not self._has_order():
            return None
        return self._assembled(at_once, of_each, limits)

    def _assembled(
        self, at_once: Sequence[CompiledStep], of_each: Sequence[_Form], limits: Limits | None
    ) -> CompiledPlan:
        made, head = self._made, self._made.plan
        calls = [call for step in at_once for call in step.calls()]
        specs = {call.tool: call.spec for call in calls if call.spec is not None}
        plan: CompiledPlan = RecordedPlan(
            goal=head.goal,
            input=made.input,
            steps=made.steps,
            by_key=made.by_key,
            order=list(range(len(made.steps))),
            deadline_s=head.deadline_s,
            max_tool_calls=head.max_tool_calls,
            max_cost=head.max_cost or {},
            on_failure=head.on_failure,
            name=head.name or "",
            tags=head.tags,
            undos={
                key + slot: tool for key, form in zip(made.by_key, of_each, strict=True) for slot, tool in form.undos
            },
            reads=frozenset(step.key for step in made.steps if step.kind == "read"),
            tool_digests={name: spec.digest for name, spec in specs.items()},
            sensitive={name: list(spec.sensitive) for name, spec in specs.items() if spec.sensitive},
            looks=any(may_be_looked_at(serving) for step in at_once for serving in step.servings()),
            images=any(serving.before is not None for step in at_once for serving in step.servings()),
            computes=made.computes,
            secrets=tuple(dict.fromkeys(name for call in calls for name in sorted(call.params.secrets))),
            forms=at_once,
            told=len(made.steps),
        )
        plan = plan if limits is None else limits.applied(plan)
        plan.tools.learn(form.tools for form in of_each)
        return plan

    # --- one step ----------------------------------------------------------------------------------------------------

    def _load(self, index: int) -> Step:
        return load_step(msgspec.json.decode(self._texts[index]), ("steps", index))

    def _compile(self, index: int) -> CompiledStep:
        step = self._draft(index, self._load(index), ("steps", index))
        if self._made.problems:
            self._made.problems.refuse()
        return step

    def _key(self, key: str, written: _Written) -> Any:
        """What decides which calls a step has: of the params only whether an undo has some of its own."""
        undo = written.rollback
        said = None if undo is None else (undo.tool, undo.params is _NONE)
        registered = self._undos.get(key), self._undos.get(f"{key}{ABSENT}")
        return written.tool, self._kind(key, written), said, registered

    def _kind(self, key: str, written: _Written) -> Kind:
        return written.kind or ("read" if key in self._reads else "compensatable")

    def _place(self, index: int, key: str, written: _Written) -> LaterStep:
        step = LaterStep.__new__(LaterStep)
        step._compile = self._compile  # noqa: SLF001 - it is one of ours
        step.index, step.step_id, step.key, step.tool = index, written.step_id, key, written.tool
        step.name, step.kind = written.name or written.tool, self._kind(key, written)
        step.dependents = step.fallbacks = ()
        step.resource = step.compensates = step.when = step.failed_when = step.late = None
        step.each = step.item = step.child = None
        step.builtin = step.tolerates = ""
        step.continues, step.items = False, -1
        return step

    # --- the order ---------------------------------------------------------------------------------------------------

    def _named(self, written: _Written) -> Iterable[int] | None:
        """The steps whose outputs the params bind; None: one of them is not there."""
        params = bytes(written.params)
        if b"$" not in params:
            return ()
        by_key, found = self._made.by_key, []
        for step in _BINDING.findall(params):
            if step:
                name = str(step, "ascii")
                at = by_key.get(name, by_key.get(f"step_{name}"))
                if at is None:
                    return None
                found.append(at)
        return found

    def _bound(self, index: int) -> Iterable[int]:
        """The same of a step that is compiled."""
        found = [each.template.places for each in self._made.bound.get(index, ()) if not each.undo]
        return [self._made.by_key[place.step] for places in found for place in places if place.source == "output"]

    def _depends_on(self, index: int, written: _Written | None) -> Iterable[int | str] | None:
        return written.depends_on if written is not None else self._load(index).depends_on

    def _settle(self, step: CompiledStep, bound: Iterable[int], named: Iterable[int | str] | None) -> bool:
        """Determine what a step waits for, as ``checks`` does; whether there is nothing against it."""
        index, waits = step.index, set(bound)
        if index in waits or (named is None and any(before > index for before in waits)):
            return False
        for wanted in named or ():
            before = self._made.by_key.get(str(wanted))
            if before is None:
                return False
            waits.add(before)
        step.data_deps = frozenset(waits)
        if named is None and index:
            waits.add(index - 1)
        step.deps = tuple(sorted(waits))
        return True

    def _has_order(self) -> bool:
        steps = self._made.steps
        deps = [step.deps for step in steps]
        if any(some and some[-1] >= index for index, some in enumerate(deps)) and len(graph.sort(deps)) < len(deps):
            return False
        for step, dependents in zip(steps, graph.dependents(deps), strict=True):
            step.dependents = tuple(dependents)
        return True


def _read(text: msgspec.Raw) -> _Written | None:
    """A step whose place can be told from its text; None: it has to be compiled for that."""
    try:
        step = _STEP.decode(text)
    except msgspec.MsgspecError:
        return None
    for values in (bytes(step.params), b"" if step.rollback is None else bytes(step.rollback.params)):
        if b"$" in values and len(_BINDING.findall(values)) != values.count(b"$"):
            return None
    return step
