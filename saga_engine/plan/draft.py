"""Compiles the steps of a plan, each with its tool, templates, kind and undo. ``checks`` then finds their problems.

An invalid plan has a draft, too, so that all its problems are reported at once. ``compiler`` is the only door.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from saga_engine.plan.before_images import ReadParams
from saga_engine.plan.binder import Binder
from saga_engine.plan.bindings import Template
from saga_engine.plan.builtin_steps import builtin_spec, tolerated
from saga_engine.plan.child import KIND as CHILD
from saga_engine.plan.child import OUTPUT, shown_body
from saga_engine.plan.compiled import CompiledFallback, CompiledRead, CompiledRollback, CompiledStep, Serving
from saga_engine.plan.compute import computation, inline
from saga_engine.plan.conditions import ConditionReader, Conditions
from saga_engine.plan.expect import read_expect
from saga_engine.plan.problems import Problems
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec, undo_retry
from saga_engine.plan.undo_looks import compile_check
from saga_engine.plan.values import plain
from saga_engine.plan.which_undo import (
    EACH,
    UndoOf,
    is_same,
    of_slot,
    own_params,
    registered_undo,
    to_slot,
    usual_params,
    written_undo,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from saga_engine.plan.compiled import CompiledChild, Kind, Params, Serving
    from saga_engine.plan.model import Each, Fallback, Plan, Step
    from saga_engine.plan.model_parts import Retry, Rollback, UndoCall, UndoCalls
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolCatalog

#: Used where neither the plan nor the tool gives a value: the defaults of a tool's declaration.
DEFAULT = ToolSpec(name="")
#: Follows the place of an undo among the journalled undos if it undoes a creation.
ABSENT = "#absent"


class Bound(NamedTuple):
    """A template with bindings: the tool that gets its params, its place in the plan, and whether it is of an undo."""

    template: Template
    spec: ToolSpec | None
    path: Path
    undo: bool


class CheckedParams(NamedTuple):
    """Params that bind the input, the tool that gets them, and their place in the plan."""

    spec: ToolSpec
    params: Params
    base: Path


class EachDraft(NamedTuple):
    """The ``each`` of a step: its list (a template with one param), and what to do with it."""

    of: Template
    when: Conditions | None
    parallel: int
    collect: bool


class Block(NamedTuple):
    """Added steps: the indexes from ``first`` up to ``end``.

    ``place``: the key of the step whose place they take; empty: they stand at the end of the list. ``dropped``: the
    keys of the steps that will not run any more because of them.
    """

    first: int
    end: int
    place: str
    dropped: tuple[str, ...]


@dataclass(slots=True)
class Draft:
    """A plan before its checks, which also set the order of its steps (``deps``, ``data_deps``).

    ``bound`` are the templates with bindings of each step that has some. ``dropped`` are the keys of steps that will
    not run any more. The tools of the steps from ``check_from`` on are checked: the others were accepted before.
    ``guessed`` are the steps whose kind is unknown, because their tool is. ``order`` is the order of the list, as
    indexes, and ``position`` the place of each in it; ``placed`` are the steps that stand in another's place
    (``placement``). ``blocks`` are the steps that were added.
    """

    plan: Plan
    input: dict[str, Any]
    catalog: ToolCatalog | None
    check_from: int
    dropped: frozenset[str]
    by_key: dict[str, int]
    blocks: Sequence[Block] = ()
    steps: list[CompiledStep] = field(default_factory=list)
    bound: dict[int, list[Bound]] = field(default_factory=dict)
    guessed: set[int] = field(default_factory=set)
    #: The steps with a list; they become that after the checks (``each.over_list``).
    each: dict[int, EachDraft] = field(default_factory=dict)
    order: Sequence[int] = ()
    position: Mapping[int, int] = field(default_factory=dict)
    placed: set[int] = field(default_factory=set)
    problems: Problems = field(default_factory=Problems)
    #: The params that were checked with what the input holds for them.
    checked: list[CheckedParams] = field(default_factory=list)
    #: The steps of ``finally`` as a draft of their own, behind all steps of this one (``final_steps``).
    final: Draft | None = None
    #: Compiles the plan of a child, which is inside this one; None: a draft that has none.
    child: CompileChild | None = None
    #: How many levels below the first plan.
    level: int = 0
    #: Whether a step computes something.
    computes: bool = False


#: From a draft, the body and the params of its ``saga`` step, the tools and the step's place to the plan of the child.
CompileChild = Callable[["Draft", "Mapping[str, Any]", Template, "ToolCatalog | None", "Path"], "CompiledChild | None"]


def draft(
    plan: Plan,
    catalog: ToolCatalog | None,
    given: Mapping[str, Any] | None,
    undos: Mapping[str, str] | None,
    reads: Collection[str] | None,
    *,
    check_from: int,
    child: CompileChild,
    dropped: frozenset[str] = frozenset(),
    compensates: Mapping[int, str] | None = None,
    blocks: Sequence[Block] = (),
    level: int = 0,
) -> Draft:
    """Assemble a draft; wrong bindings and keys become problems of the draft.

    ``compensates`` maps the index of a step to the key of the step it compensates for. ``blocks`` are the additions.
    """
    values = {**plan.input, **plain(dict(given))} if given else plan.input
    made = Draft(plan, values, catalog, check_from, dropped, by_key={}, blocks=blocks, child=child, level=level)
    for index, step in enumerate(plan.steps):
        if step.key in made.by_key:
            first = made.by_key[step.key]
            message = f'steps[{first}] has the same step id, {step.key} (1 and "1" are the same id)'
            made.problems.add("step-duplicate", ("steps", index, "step_id"), message, "give each step a unique id")
        else:
            made.by_key[step.key] = index
    drafter = _Drafter(made, undos, reads, compensates or {})
    made.steps = [drafter.step(index, step, ("steps", index)) for index, step in enumerate(plan.steps)]
    if plan.finally_:
        made.final = _final(made, undos)
    return made


def single_steps(
    made: Draft, undos: Mapping[str, str], reads: Collection[str]
) -> Callable[[int, Step, Path], CompiledStep]:
    """Compiles single steps of a recorded plan, each by its index, what is written for it, and its path."""
    return _Drafter(made, undos, reads, {}).step


def _final(made: Draft, undos: Mapping[str, str] | None) -> Draft:
    """The draft of the steps of ``finally``. They may bind the outputs of all steps, and the end."""
    plan, first = made.plan, len(made.steps)
    keys = dict(made.by_key)
    for number, step in enumerate(plan.finally_):
        if step.key in keys:
            later = 0 < made.check_from <= keys[step.key] < first
            path: Path = ("steps", keys[step.key], "step_id") if later else ("finally", number, "step_id")
            message = f'another step has the same step id, {step.key} (1 and "1" are the same id)'
            made.problems.add("step-duplicate", path, message, "give each step a unique id")
        keys.setdefault(step.key, first + number)
    check_from = 0 if made.check_from == 0 else first + len(plan.finally_)
    final = Draft(plan, made.input, made.catalog, check_from, frozenset(), by_key=keys, problems=made.problems)
    final.each = dict(made.each)  # what binds the output of a list gets a list
    drafter = _Drafter(final, undos, None, {}, end=True)
    steps = [drafter.step(first + at, step, ("finally", at)) for at, step in enumerate(plan.finally_)]
    final.steps = [*made.steps, *steps]
    return final


class _Drafter:
    """Compiles steps; holds what each part needs of the rest of the plan."""

    def __init__(
        self,
        made: Draft,
        undos: Mapping[str, str] | None,
        reads: Collection[str] | None,
        compensates: Mapping[int, str],
        *,
        end: bool = False,
    ) -> None:
        self._made = made
        self._end = end
        self._item = False  # whether what is compiled is resolved for each item of a list
        self._binder = Binder(made.by_key, made.problems, end=end, inline=inline)
        self._undos = undos
        self._reads = reads
        self._compensates = compensates

    def step(self, index: int, written: Step, path: Path) -> CompiledStep:
        """The step at ``path`` of the plan."""
        self._item = written.each is not None
        step = self._builtin(index, written, path) if written.builtin else self._call(index, written, path)
        step.continues = written.on_error == "continue"
        step.when = self._conditions(written.when, step, (*path, "when"))
        step.failed_when = self._conditions(written.failed_when, step, (*path, "failed_when"), item=self._item)
        if written.each is not None and not written.builtin:
            self._made.each[index] = self._each(written.each, step, path)
        self._made.computes |= self._binder.computes
        return step

    def _each(self, written: str | Each, step: CompiledStep, path: Path) -> EachDraft:
        """The list is known before any item, so ``$item`` does not bind in it."""
        self._item = False
        if isinstance(written, str):
            return EachDraft(
                self._template({"each": written}, step.index, step.key, None, path), None, 1, collect=False
            )
        path = (*path, "each")
        of = self._template({"of": plain(written.of)}, step.index, step.key, None, path)
        when = self._conditions(written.when, step, (*path, "when"), item=True)
        return EachDraft(of, when, written.parallel, written.on_error == "collect")

    def _conditions(self, raw: Any, step: CompiledStep, path: Path, *, item: bool = False) -> Conditions | None:
        if raw is None:
            return None
        reader = ConditionReader(self._binder, self._made.problems, step.key, item=item)
        condition = reader.read(raw, path)
        # After the call its own output exists, as it does for an undo; all others must exist before the call.
        for own in (True, False):
            some = [each for each in reader.bound if (each.source == "output" and each.step == step.key) is own]
            after = own and path[-1] == "failed_when"
            self._note(Template({}, None, tuple(some)), step.index, None, (), undo=after)
        outputs = frozenset(place.step for place in reader.bound if place.source == "output")
        return Conditions(condition, outputs, bool(reader.bound), raw)

    def _call(self, index: int, written: Step, path: Path) -> CompiledStep:
        spec = self._spec(written.tool)
        declared = spec or DEFAULT
        stuck = self._compensates.get(index)
        step = CompiledStep(
            index=index,
            step_id=written.step_id,
            key=written.key,
            name=written.title,
            kind=self._kind(index, written, spec),
            tool=written.tool,
            spec=spec,
            params=self._template(written.params, index, written.key, spec, (*path, "params")),
            rollback=None,
            retry=_retry(written.retry, declared.retry),
            timeout_s=declared.timeout_s if written.timeout_s is None else written.timeout_s,
            deps=(),
            data_deps=frozenset(),
            compensates=None if stuck is None else self._made.by_key[stuck],
        )
        step.before = self._before(step, step, written.expect)
        step.check = self._check(step, step, path)
        step.rollback = self._rollback(step, step, written.rollback, path, step.key)
        if written.resource is not None:
            step.resource = self._template({"resource": written.resource}, index, step.key, spec, path)
        step.fallbacks = tuple(
            self._fallback(step, each, (*path, "fallback", number), f"{step.key}#{number + 1}", written.expect)
            for number, each in enumerate(written.fallback or ())
        )
        return step

    def _builtin(self, index: int, written: Step, path: Path) -> CompiledStep:
        """A step without a tool: its body is its params, under its word."""
        word = written.builtin
        body = plain(written.body)
        if word == "compute":
            params: Template = computation(self._binder, self._made.problems, body, written.key, path)
            self._note(params, index, None, path)
        else:
            params = self._template({word: shown_body(body) if word == CHILD else body}, index, written.key, None, path)
        if word == CHILD:
            return self._child(index, written, body, params, path)
        undone = written.rollback is not None
        step = CompiledStep(
            index=index,
            step_id=written.step_id,
            key=written.key,
            name=written.title,
            kind="compensatable" if undone else "read",
            tool="",
            spec=builtin_spec(word, body, undone=undone, late=bool(written.wait and written.wait.on_late)),
            params=params,
            rollback=None,
            retry=DEFAULT.retry,
            timeout_s=DEFAULT.timeout_s,
            deps=(),
            data_deps=frozenset(),
            builtin=word,
            tolerates=tolerated(word, body),
        )
        step.rollback = self._rollback(step, step, written.rollback, path, step.key) if undone else None
        step.late = self._late(step, written, (*path, "wait", "on_late"))
        return step

    def _child(self, index: int, written: Step, body: dict[str, Any], params: Template, path: Path) -> CompiledStep:
        """A step that runs another saga: undone as a whole, and of the kind that its steps make it."""
        made, journalled = self._made, self._reads is not None and index < self._made.check_from
        catalog = None if journalled else made.catalog
        child = None if made.child is None else made.child(made, body, params, catalog, (*path, CHILD))
        kind: Kind = "read" if child is None else child.kind()
        if kind not in {"pivot", "irreversible"} and journalled:
            kind = "read" if written.key in (self._reads or ()) else "compensatable"
        if index in self._compensates or self._end:
            kind = self._kind(index, written, None)
        return child_step(index, written.step_id, written.key, written.title, params, body, kind, child)

    def _late(self, step: CompiledStep, written: Step, path: Path) -> CompiledRollback | None:
        """The call for an event that comes too late. It binds as the step's undo does."""
        call = written.wait.on_late if written.wait is not None else None
        if call is None:
            return None
        spec = self._spec(call.tool)
        params = self._template(call.params, step.index, step.key, spec, (*path, "params"), undo=True)
        declared = spec or DEFAULT
        return CompiledRollback(call.tool, spec, params, declared.retry, declared.timeout_s, needs_output=True)

    def _kind(self, index: int, written: Step, spec: ToolSpec | None) -> Kind:
        if self._end:
            return "finally"
        if index in self._compensates:
            return "compensation"
        if written.kind is not None:
            return written.kind
        if self._reads is not None and index < self._made.check_from:
            return "read" if written.key in self._reads else "compensatable"
        if spec is None and written.rollback is None:
            self._made.guessed.add(index)
        return "read" if spec is not None and spec.effect == "read" else "compensatable"

    def _fallback(
        self, step: CompiledStep, written: Fallback, path: Path, slot: str, expect: str | None
    ) -> CompiledFallback:
        if written.tool is None:
            return CompiledFallback(
                way="cached" if written.cached_s is not None else "queue",
                tool=step.tool,
                spec=step.spec,
                params=step.params,
                rollback=step.rollback,
                retry=step.retry,
                timeout_s=step.timeout_s,
                max_age_s=written.cached_s or 0.0,
                every_s=written.queue_s or 0.0,
                before=step.before,
                check=step.check,
            )
        spec = self._spec(written.tool)
        declared = spec or DEFAULT
        params = step.params
        if written.params is not None:
            params = self._template(written.params, step.index, step.key, spec, (*path, "params"))
        made = CompiledFallback(
            way="tool",
            tool=written.tool,
            spec=spec,
            params=params,
            rollback=None,
            retry=_retry(written.retry, declared.retry),
            timeout_s=declared.timeout_s if written.timeout_s is None else written.timeout_s,
        )
        made.before = self._before(step, made, expect)
        made.check = self._check(step, made, path)
        made.rollback = self._rollback(step, made, written.rollback, path, slot)
        return made

    def _before(self, step: CompiledStep, of: Serving, expect: str | None) -> CompiledRead | None:
        """The read that shows what the call ``of`` is about to change; None: nothing would use it."""
        declared = of.spec
        if declared is None or declared.before is None:
            return None
        if not (step.kind == "compensatable" or declared.sole_writer or expect or declared.expect):
            return None
        assert isinstance(of.params, Template)
        return compile_read(declared, of.params, self._spec(declared.before), expect)

    def _check(self, step: CompiledStep, of: Serving, path: Path) -> CompiledRead | None:
        """The read that looks after the undo of the call ``of``."""
        if of.spec is None or of.spec.undo_check is None or step.kind != "compensatable":
            return None
        read = self._spec(of.spec.undo_check.tool)
        return compile_check(of.spec, read, step.key, of.params, self._made.problems, path)

    def _rollback(
        self, step: CompiledStep, of: Serving, written: Rollback | None, path: Path, slot: str
    ) -> CompiledRollback | None:
        """The undo of the call ``of``; ``slot`` is its place among the journalled undos."""
        path = (*path, "rollback")
        declared = registered_undo(of.spec)
        kept = self._undos or {}
        if self._undos is not None and step.index < self._made.check_from:
            # The undos that were journalled with the step take precedence over today's registration.
            registered, gone = of_slot(kept.get(slot)), of_slot(kept.get(f"{slot}{ABSENT}"))
        else:
            registered = declared
            gone = None if of.spec is None or of.spec.undo_absent is None else UndoOf(of.spec.undo_absent)
        made = self._undo(step, of, written, path, (registered,), declared)
        absent = None if written is None else written.when_absent
        if made is not None and (gone is not None or absent is not None):
            made.absent = self._undo(step, of, absent, (*path, "when_absent"), (gone, registered), declared)
        return made

    def _undo(  # noqa: PLR0917
        self,
        step: CompiledStep,
        of: Serving,
        written: UndoCalls | None,
        path: Path,
        registered: Sequence[UndoOf | None],
        today: UndoOf | None,
    ) -> CompiledRollback | None:
        """An undo as it is written, or the first of those that are ``registered``.

        A written one may only name one of these. ``today``: what the tool registers by now.
        """
        if written is None:
            own = registered[0] if step.kind == "compensatable" else None
            return None if own is None else self._used(step, self._registered(step, of, own, path), path)
        said = written_undo(written)
        meant = next((each for each in registered if each is not None and each.tool == said.tool), None)
        if said.only_names and meant is not None:
            made = self._registered(step, of, meant, path)
            made.retry = _retry(written.retry, made.retry)
            made.timeout_s = made.timeout_s if written.timeout_s is None else written.timeout_s
        else:
            meant = meant or (today if today is not None and today.tool == said.tool else None)
            usual = None if meant is None else self._registered(step, of, meant, path)
            made = self._written_call(step, written, path, usual)
        if written.then is not None:
            made.then = tuple(
                self._written_call(step, call, (*path, "then", number), None)
                for number, call in enumerate(written.then)
            )
            made.needs_output = _needs_output(step, made)
        return self._used(step, made, path)

    def _used(self, step: CompiledStep, made: CompiledRollback, path: Path) -> CompiledRollback:
        """An undo whose registered params are noted: what is written is noted as it is read."""
        for call in (made, *made.then):
            for template in (call.params, call.each):
                if call.declared and isinstance(template, Template):
                    self._note(template, step.index, call.spec, path, undo=True)
        return made

    def _registered(self, step: CompiledStep, of: Serving, undo: UndoOf, path: Path) -> CompiledRollback:
        """An undo with all that its registration says of it."""
        slot = to_slot(undo)
        made, *then = (self._registered_call(step, of, call, path, slot) for call in undo.calls())
        made.then = tuple(then)
        made.needs_output = _needs_output(step, made)
        return made

    def _registered_call(
        self, step: CompiledStep, of: Serving, undo: UndoOf, path: Path, slot: str
    ) -> CompiledRollback:
        spec = self._spec(undo.tool)
        known = spec or DEFAULT
        params, each = own_params(undo, step.key, of.params, self._made.problems, path)
        usual: Params = usual_params(spec, step.key, of.params, of.before) if params is None else params
        declared = "" if slot == undo.tool else slot
        return CompiledRollback(
            undo.tool, spec, usual, undo_retry(known.retry), known.timeout_s, False, usual, each=each, declared=declared
        )

    def _written_call(
        self, step: CompiledStep, written: UndoCall, path: Path, registered: CompiledRollback | None
    ) -> CompiledRollback:
        """One call of an undo as the plan says it; ``registered``: what it would be if it only named its tool."""
        spec = self._spec(written.tool)
        declared = spec or DEFAULT
        params: Params = self._undo_template(
            written.params, step, spec, (*path, "params"), item=written.each is not None
        )
        each: Params | None = None
        if written.each is not None:
            each = self._undo_template({EACH: written.each}, step, None, path, item=False)
        usual = None if registered is None or registered.each is not None else registered.params
        # Most plans that give an undo its params write what its registration would fill in: these are the same params.
        if is_same(usual, params.raw, step.key):
            usual = params
        return CompiledRollback(
            written.tool,
            spec,
            params,
            _retry(written.retry, undo_retry(declared.retry)),
            declared.timeout_s if written.timeout_s is None else written.timeout_s,
            step.key in params.outputs or each is not None,
            usual,
            each=each,
        )

    def _undo_template(
        self, raw: dict[str, Any], step: CompiledStep, spec: ToolSpec | None, path: Path, *, item: bool
    ) -> Template:
        """``item``: it is resolved for each item of the undo's own list, and not only for those of the step's."""
        was, self._item = self._item, self._item or item
        made = self._template(raw, step.index, step.key, spec, path, undo=True)
        self._item = was
        return made

    def _template(
        self, raw: dict[str, Any], index: int, key: str, spec: ToolSpec | None, path: Path, *, undo: bool = False
    ) -> Template:
        template = self._binder.template(raw, key, path, item=self._item)
        self._note(template, index, spec, path, undo=undo)
        return template

    def _note(self, template: Template, index: int, spec: ToolSpec | None, path: Path, *, undo: bool = False) -> None:
        if template.places:
            self._made.bound.setdefault(index, []).append(Bound(template, spec, path, undo))

    def _spec(self, tool: str) -> ToolSpec | None:
        return self._made.catalog.spec(tool) if self._made.catalog is not None else None


def compile_read(
    declared: ToolSpec, forward: Template, spec: ToolSpec | None, expect: str | None = None
) -> CompiledRead:
    """The read of before-images that a tool declares, of which ``spec`` is; ``expect``: what the call itself says."""
    assert declared.before is not None
    known = spec or DEFAULT
    return CompiledRead(
        tool=declared.before,
        spec=spec,
        params=ReadParams(spec.input_schema if spec is not None else None, forward),
        retry=known.retry,
        timeout_s=known.timeout_s,
        after=declared.after,
        absent=declared.absent,
        sole_writer=declared.sole_writer,
        expect=read_expect(declared.expect or expect),
    )


def _needs_output(step: CompiledStep, undo: CompiledRollback) -> bool:
    """Whether any call of an undo is impossible without the step's own output."""
    return any(step.key in call.params.outputs or call.each is not None for call in (undo, *undo.then))


def _retry(written: Retry | None, default: RetryPolicy) -> RetryPolicy:
    return default if written is None else written.policy(default)


def child_step(  # noqa: PLR0917
    index: int,
    step_id: int | str,
    key: str,
    name: str,
    params: Template,
    body: Any,
    kind: Kind,
    child: CompiledChild | None = None,
) -> CompiledStep:
    """A step that runs another saga. What undoes it is no call, so its ``rollback`` has no tool."""
    spec = replace(
        builtin_spec(CHILD, body),
        output_schema=dict(OUTPUT) if child is None else child.output_schema(),
        effect="read" if kind == "read" else "write",
        semantic="never",
    )
    undo = CompiledRollback("", spec, Template({}, None, ()), DEFAULT.retry, DEFAULT.timeout_s, needs_output=False)
    return CompiledStep(
        index=index,
        step_id=step_id,
        key=key,
        name=name,
        kind=kind,
        tool="",
        spec=spec,
        params=params,
        rollback=None if kind == "read" else undo,
        retry=DEFAULT.retry,
        timeout_s=DEFAULT.timeout_s,
        deps=(),
        data_deps=frozenset(),
        builtin=CHILD,
        child=child,
    )
