"""``each``: a step that is called once for each item of a list.

The step itself calls nothing: it has the list (``params``) and the step of which each item gets a copy
(``CompiledStep.each``). The copies are added when the list is known (``EachExpanded``). At most ``parallel`` of them
run at a time: the item N + ``parallel`` waits for the item N, so undos run in the same lanes, in reverse. The step
waits for the last item of each lane, and whatever depends on it for the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import BindingUnresolved
from saga_engine.plan import schema_types
from saga_engine.plan.bindings import Template
from saga_engine.plan.compiled import (
    CompiledEach,
    CompiledFallback,
    CompiledPlan,
    CompiledRead,
    CompiledRollback,
    CompiledStep,
    Condition,
    Conditions,
    Item,
    Params,
    Scope,
)
from saga_engine.plan.undo_params import UndoParams

if TYPE_CHECKING:
    from saga_engine.plan.bindings import Place
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.problems import Path

#: The word of a step that has a list; a compiled one counts as a built-in step.
WORD: Final = "each"
#: The fields of the output of a step that collects failures.
COLLECTED: Final = ("outputs", "failed")


def item_key(parent: str, number: int) -> str:
    """The key of the step of one item. No step of a plan can have such an id."""
    return f"{parent}[{number}]"


def over_list(step: CompiledStep, of: Params, when: Conditions | None, *, parallel: int, collect: bool) -> CompiledStep:
    """The step that has the list, made from a step that was compiled and checked as a call."""
    each = CompiledEach(item=step, when=when, parallel=parallel, collect=collect)
    return replace(
        step, kind="read", tool="", spec=None, params=of, rollback=None, resource=None, fallbacks=(), failed_when=None,
        before=None, check=None, builtin=WORD, each=each,
    )  # fmt: skip


def add_items(
    steps: list[CompiledStep], by_key: dict[str, int], parent: int, items: Sequence[Any], first: int
) -> Sequence[CompiledStep]:
    """Put the steps of the items into ``steps``, from the index ``first`` on, which is where the list may end.

    Only steps that wait for others differently are replaced; ``steps`` and ``by_key`` are changed in place.
    """
    of = steps[parent]
    each = of.each
    assert each is not None, "only such a step has items"
    count, lanes = len(items), each.parallel
    made = [
        _item(of, each, number, value, first, deps=of.deps if number < lanes else (first + number - lanes,),
              dependents=(first + number + lanes,) if number + lanes < count else (parent,))
        for number, value in enumerate(items)
    ]  # fmt: skip
    steps[first : first + count] = made
    by_key.update((step.key, step.index) for step in made)
    heads = tuple(range(first, first + min(lanes, count)))
    for before in of.deps:
        steps[before] = replace(steps[before], dependents=(*steps[before].dependents, *heads))
    tails = tuple(range(first + max(count - lanes, 0), first + count))
    steps[parent] = replace(of, deps=(*of.deps, *tails), items=first)
    return made


def _item(
    of: CompiledStep,
    each: CompiledEach,
    number: int,
    value: Any,
    first: int,
    *,
    deps: tuple[int, ...],
    dependents: tuple[int, ...],
) -> CompiledStep:
    like = each.item
    key = item_key(like.key, number)
    item = Item(of.index, number, like.key, key, value)

    def rollback(undo: CompiledRollback | None) -> CompiledRollback | None:
        if undo is None:
            return None
        params = ItemParams(undo.params, item)
        usual = params if undo.usual is undo.params else None if undo.usual is None else ItemParams(undo.usual, item)
        each = None if undo.each is None else ItemParams(undo.each, item)
        then = tuple(call for call in map(rollback, undo.then) if call is not None)
        return replace(undo, params=params, usual=usual, absent=rollback(undo.absent), then=then, each=each)

    def read(before: CompiledRead | None) -> CompiledRead | None:
        return None if before is None else replace(before, params=ItemParams(before.params, item))

    def fallback(other: CompiledFallback) -> CompiledFallback:
        params = ItemParams(other.params, item)
        undo, before, check = rollback(other.rollback), read(other.before), read(other.check)
        return replace(other, params=params, rollback=undo, before=before, check=check)

    failed_when = like.failed_when
    if failed_when is not None:
        outputs = frozenset(key if needed == like.key else needed for needed in failed_when.outputs)
        failed_when = failed_when._replace(condition=_ItemCondition(failed_when.condition, item), outputs=outputs)
    return replace(
        like,
        index=first + number,
        step_id=key,
        key=key,
        params=ItemParams(like.params, item),
        rollback=rollback(like.rollback),
        before=read(like.before),
        check=read(like.check),
        deps=deps,
        data_deps=like.data_deps,
        dependents=dependents,
        resource=None if like.resource is None else ItemParams(like.resource, item),
        fallbacks=tuple(map(fallback, like.fallbacks)),
        when=None,
        failed_when=failed_when,
        continues=each.collect,
        item=item,
    )


def woven(fresh: CompiledPlan, keys: Sequence[str], lists: Mapping[str, Sequence[Any]]) -> CompiledPlan:
    """A plan that was compiled anew, with the items that it had: every step keeps the index that it has in ``keys``.

    ``lists``: the items, by the key of their step. Steps that are new stand at the end.
    """
    known = set(keys)
    whole = [*keys, *(step.key for step in fresh.steps if step.key not in known)]
    by_key = {key: index for index, key in enumerate(whole)}
    at = [by_key[step.key] for step in fresh.steps]
    steps: list[CompiledStep] = [*fresh.steps, *fresh.steps[:1] * (len(whole) - len(fresh.steps))]
    for step in fresh.steps:
        index = by_key[step.key]
        moved = replace(
            step,
            index=index,
            deps=tuple(sorted(at[other] for other in step.deps)),
            data_deps=frozenset(at[other] for other in step.data_deps),
            dependents=tuple(sorted(at[other] for other in step.dependents)),
            compensates=None if step.compensates is None else at[step.compensates],
        )
        steps[index] = moved
    for key, items in lists.items():
        first = by_key[item_key(key, 0)] if items else len(steps)
        add_items(steps, by_key, by_key[key], items, first)
    pivot = None if fresh.pivot is None else at[fresh.pivot]
    return replace(fresh, steps=steps, by_key=by_key, order=[at[index] for index in fresh.order], pivot=pivot)


class ItemScope:
    """A scope in which one item of the list is visited; the step's own key means the step of that item."""

    __slots__ = ("_item", "_scope")

    def __init__(self, scope: Scope, item: Item) -> None:
        self._scope = scope
        self._item = item

    @property
    def saga_id(self) -> str:
        """The saga's id."""
        return self._scope.saga_id

    @property
    def input(self) -> Mapping[str, Any]:
        """The plan's input."""
        return self._scope.input

    @property
    def end(self) -> Mapping[str, Any]:
        """How the saga ended."""
        return self._scope.end

    @property
    def item(self) -> Any:
        """The item."""
        return self._item.value

    @property
    def index(self) -> int:
        """Its position in the list, from 0."""
        return self._item.number

    def output(self, step_key: str) -> Any:
        """The output of a step; raises ``BindingUnresolved``."""
        return self._scope.output(self._own(step_key))

    def before(self, step_key: str) -> Any:
        """The value as it was before a step's call; raises ``BindingUnresolved``."""
        return self._scope.before(self._own(step_key))

    def params(self, step_key: str) -> Any:
        """The resolved forward params of a step."""
        return self._scope.params(self._own(step_key))

    def key(self, step_key: str) -> str:
        """The forward idempotency key of a step."""
        return self._scope.key(self._own(step_key))

    def secret(self, name: str) -> str:
        """The secret's value, or its marker."""
        return self._scope.secret(name)

    def _own(self, key: str) -> str:
        return self._item.key if key == self._item.parent_key else key


class ItemParams:
    """Params of the step of one item (:class:`saga_engine.plan.compiled.Params`)."""

    __slots__ = ("_item", "_template", "bound", "outputs", "outputs_or_default", "raw", "secret_params", "secrets")

    def __init__(self, template: Params, item: Item) -> None:
        self._template = template
        self._item = item
        self.bound, self.raw = template.bound, template.raw
        self.secrets, self.secret_params = template.secrets, template.secret_params
        self.outputs = _of_item(template.outputs, item)
        self.outputs_or_default = _of_item(template.outputs_or_default, item)

    @property
    def registered(self) -> bool:
        """Whether they are those of a registered undo."""
        return isinstance(self._template, UndoParams)

    @property
    def places(self) -> tuple[Place, ...]:
        """The places of their bindings; the step's own output is that of the step of the item."""
        own = self._item.parent_key
        places = self._template.places if isinstance(self._template, Template) else ()
        return tuple(place._replace(step=self._item.key) if place.step == own else place for place in places)

    def resolve(self, scope: Scope) -> dict[str, Any]:
        """The params of a call. Raises ``BindingUnresolved``."""
        return self._template.resolve(ItemScope(scope, self._item))

    def partly(self, names: Iterable[str], scope: Scope) -> Mapping[str, Any]:
        """Those of the params called ``names`` whose bindings have a value."""
        if isinstance(self._template, Template):
            return self._template.partly(names, ItemScope(scope, self._item))
        try:
            return self.resolve(scope)
        except BindingUnresolved:
            return {}


def _of_item(keys: frozenset[str], item: Item) -> frozenset[str]:
    return keys if item.parent_key not in keys else (keys - {item.parent_key}) | {item.key}


class _ItemCondition(Condition):
    __slots__ = ("_condition", "_item")

    def __init__(self, condition: Condition, item: Item) -> None:
        self._condition = condition
        self._item = item

    def evaluate(self, scope: Scope) -> bool | str:
        return self._condition.evaluate(ItemScope(scope, self._item))


# --- checks ----------------------------------------------------------------------------------------------------------


def check_each(made: Draft, step: CompiledStep) -> None:
    """Add the problems of a step with ``each`` that its list does not concern."""
    given = made.each[step.index]
    path: Path = ("steps", step.index, WORD)
    plan, written = made.plan, made.plan.steps[step.index]
    wrong = ""
    if step.kind in {"pivot", "compensation"}:
        wrong = f"'each' on a {step.kind}: it is one call, which happens or does not"
    elif plan.on_failure == "replan":
        wrong = '\'each\' in a plan with "on_failure": "replan": a planner cannot replace a part of a list'
    elif written.on_error is not None:
        wrong = 'a step with \'each\' has its \'on_error\' inside of it: "on_error": "stop" or "collect"'
    elif given.collect and step.failed_when is not None and step.kind != "read" and step.index not in made.guessed:
        wrong = f"step {step.key} cannot go on after 'failed_when': the effect of that item has to be undone"
    if wrong:
        made.problems.add("each-invalid", path, wrong, "see 'Lists' in docs/plan-steps.md")


def types_in(schema: dict[str, Any] | None, place: Place, *, collect: bool) -> frozenset[str] | str | None:
    """The types that a binding to the output of a step with ``each`` may have; a text: why it has no such value.

    ``schema``: that of the output of one item. None: unknown.
    """
    if place.tail is not None and place.tail.selectors:
        return None
    path = tuple(place.tail.path) if place.tail is not None else ()
    if collect:
        if not path:
            return frozenset({"object"})
        if path[0] not in COLLECTED:
            return f"a step that collects failures has the fields {' and '.join(COLLECTED)}"
        return frozenset({"array"}) if len(path) == 1 else None
    if not path:
        return frozenset({"array"})
    if isinstance(path[0], str):
        return "the output of a step with 'each' is a list, with the output of each item"
    if schema is None:
        return None
    node = schema_types.locate(schema, path[1:])
    if isinstance(node, schema_types.Absent):
        return "the output of an item has no such value"
    return schema_types.types(schema, node)
