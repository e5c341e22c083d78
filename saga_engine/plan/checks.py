"""Finds all problems of a plan that can be known before anything runs, and sets the order of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.plan import graph, jsonpath, schema_types
from saga_engine.plan.bindings import COMPUTE, Template, starts_binding
from saga_engine.plan.builtin_steps import check_builtin
from saga_engine.plan.compiled import CompiledStep
from saga_engine.plan.draft import CheckedParams
from saga_engine.plan.each import WORD, check_each, types_in
from saga_engine.plan.effort import spend
from saga_engine.plan.final_steps import order_final
from saga_engine.plan.kinds import check_kind, check_pivot
from saga_engine.plan.limits import MAX_CHILDREN, MAX_ITEMS
from saga_engine.plan.placement import around_the_pivot, arrange
from saga_engine.plan.problems import Problems, known_names
from saga_engine.plan.step_options import check_expected, check_options, misplaced_operations
from saga_engine.plan.values import cut, printable
from saga_engine.plan.wait import check_late
from saga_engine.plan.which_undo import lacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from saga_engine.plan.bindings import Place
    from saga_engine.plan.compiled import CompiledFallback, CompiledRollback, Params, Serving
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.model import Fallback
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolSpec


def examine(made: Draft) -> None:
    """Find the problems of a draft, and determine the order of its steps."""
    arrange(made)
    for step in made.steps:
        spend()
        checked = step.index >= made.check_from
        path: Path = ("steps", step.index)
        if checked and step.builtin:
            _check_builtin(made, step, path)
        elif checked:
            _check_call(made, step, path, (*path, "params"))
            if step.index in made.each:
                _check_list(made, step, path)
        written = made.plan.steps[step.index].fallback or ()
        for number, fallback in enumerate(step.fallbacks):
            place = (*path, "fallback", number)
            _check_fallback(made, step, fallback, written[number], place, last=number == len(written) - 1)
        if step.index in made.bound:
            _check_misplaced(made, step)
            _check_inputs(made, step)
            if checked:
                _check_secrets(made, step)
    acyclic = _check_order(made)
    for step in made.steps:
        spend()
        check_kind(made, step)
        if step.index >= made.check_from:
            check_options(made, step)
            if step.index in made.each:
                check_each(made, step)
    check_pivot(made, acyclic=acyclic)
    check_expected(made, 0, made.plan.steps)
    _check_children(made)
    if made.final is not None:
        _examine_final(made.final, len(made.steps))


def check_input(made: Draft, checked: Iterable[CheckedParams], *, bound: bool = True) -> None:
    """Find the problems that values alone can make, in a draft without lists, children and ``finally``.

    ``checked``: the params that bind the input, or have other values than when they were compiled. ``bound``: some
    bind the input.
    """
    for index in made.bound if bound else ():
        _check_inputs(made, made.steps[index])
    for each in checked:
        _check_params(made, *each)


def binds_input(params: Params) -> bool:
    """Whether something in params is a value of the input."""
    return isinstance(params, Template) and any(place.source == "input" for place in params.places)


def _examine_final(final: Draft, first: int) -> None:
    """Find the problems of the steps of ``finally``; they were accepted with the plan, and are not checked again."""
    for number, written in enumerate(final.plan.finally_):
        step, path = final.steps[first + number], ("finally", number)
        if final.check_from == 0 and not step.builtin:
            _check_call(final, step, path, (*path, "params"))
        for at, fallback in enumerate(step.fallbacks):
            each = (written.fallback or ())[at]
            _check_fallback(final, step, fallback, each, (*path, "fallback", at), last=at == len(step.fallbacks) - 1)
        for name in ("when", "on_error", "failed_when"):
            if getattr(written, name) is not None:
                message = f"'{name}' on a step of 'finally', which runs whatever happened and never changes the end"
                final.problems.add("kind-contradiction", (*path, name), message, f"remove '{name}'")
        if step.index in final.bound:
            _check_inputs(final, step)
            if final.check_from == 0:
                _check_secrets(final, step)
    check_expected(final, first, final.plan.finally_, "finally")
    order_final(final, first)


# --- tools and params ----------------------------------------------------------------------------------------------


def _check_builtin(made: Draft, step: CompiledStep, path: Path) -> None:
    """Check the body of a built-in step, and that what it binds may exist."""
    assert isinstance(step.params, Template)
    check_builtin(made.problems, step.builtin, step.params, path)
    for place in step.params.places:
        if place.source == "output":
            _output_types(made, place, (*path, *place.path))
    if step.rollback is not None:
        _check_rollback(made, step, path)
    if step.late is not None:
        late = (*path, "wait", "on_late")
        _check_undo_call(made, step, step.late, path, late)
        check_late(made.problems, step.late.params, late)


def check_bodies(problems: Problems, steps: Sequence[CompiledStep], base: Path = ()) -> None:
    """Check the bodies of built-in steps, those of children included, of a plan that is checked without tools."""
    for number, step in enumerate(steps):
        path = (*base, "steps", number)
        if step.kind == "finally":
            continue
        if step.builtin:
            assert isinstance(step.params, Template)
            check_builtin(problems, step.builtin, step.params, path)
        if step.child is not None:
            check_bodies(problems, step.child.steps, (*path, "saga", "plan"))


def _check_list(made: Draft, step: CompiledStep, path: Path) -> None:
    """Check that the list of a step with ``each`` may be one."""
    ((word, value),) = made.each[step.index].of.raw.items()
    path = (*path, WORD) if word == WORD else (*path, WORD, word)
    place = next((each for each in made.each[step.index].of.places if len(each.path) == 1), None)
    if place is None and isinstance(value, str) and starts_binding(value):
        return  # a binding that is malformed is a problem of its own
    brings: frozenset[str] | None = frozenset({schema_types.type_of(value)})
    if place is not None and isinstance(value, dict):  # the first that there is
        brings = None
    elif place is not None and not place.embedded:
        brings = _output_types(made, place, path) if place.source == "output" else frozenset({"string"})
        if _known(made, place) and place.tail is not None:
            value = jsonpath.find(made.input, place.tail)
            brings = frozenset({schema_types.type_of(value)})
        elif place.source == "input" and not place.embedded:
            brings = None  # that it is missing is a problem of its own
    if brings is not None and "array" not in brings:
        message = f"'each' needs a list, and {cut(value, 120)} is {_one_of(brings)}"
        made.problems.add("each-invalid", path, message, "bind a list: $output.step_1.items")
    elif isinstance(value, list) and len(value) > MAX_ITEMS:
        message = f"the list has {len(value)} items, but only {MAX_ITEMS} are allowed"
        made.problems.add("each-invalid", path, message, "shorten it, or call a tool that takes the whole list")


def _check_call(made: Draft, call: Serving, path: Path, params_path: Path) -> None:
    """Check the tool, the params and the undo of the call that stands at ``path``."""
    if call.spec is None:
        _unknown_tool(made, (*path, "tool"), call.tool, f"there is no tool {cut(call.tool, 80)}")
    else:
        _check_params(made, call.spec, call.params, params_path)
    if call.rollback is not None:
        _check_rollback(made, call, path)


def _check_rollback(made: Draft, call: Serving, path: Path) -> None:
    rollback = call.rollback
    assert rollback is not None
    place = (*path, "rollback")
    _check_undo_calls(made, call, rollback, path, place)
    if rollback.absent is not None:
        place = (*place, "when_absent")
        _check_undo_calls(made, call, rollback.absent, path, place)
        if isinstance(rollback.absent.params, Template) and call.before is None and call.spec is not None:
            message = f"nothing reads the value before the call of {cut(call.tool, 80)}, so it is never 'absent'"
            hint = "declare the tool with before='the tool that reads it'"
            made.problems.add("before-missing", place, message, hint)


def _check_undo_calls(made: Draft, call: Serving, undo: CompiledRollback, path: Path, place: Path) -> None:
    """Check the calls of an undo that is written at ``place``, if it is written."""
    _check_undo_call(made, call, undo, path, place)
    for number, each in enumerate(undo.then):
        _check_undo_call(made, call, each, path, (*place, "then", number))


def _check_undo_call(made: Draft, call: Serving, undo: CompiledRollback, path: Path, place: Path) -> None:
    written = isinstance(undo.params, Template) and not undo.declared
    tool = (*place, "tool") if written else (*path, "tool")
    if undo.spec is None:
        message = f"there is no tool {cut(undo.tool, 80)}"
        if not written:
            message = f"{cut(call.tool, 80)} registers the undo {cut(undo.tool, 80)}, which does not exist"
        _unknown_tool(made, tool, undo.tool, message)
    elif undo.spec.effect == "read":
        undone = cut(call.tool, 80) if call.tool else "the event"
        message = f"{cut(undo.tool, 80)}, the undo of {undone}, only reads, so it undoes nothing"
        made.problems.add("rollback-reads", tool, message, "name a tool that reverses the effect")
    elif isinstance(undo.params, Template):
        params = (*place, "params") if written else tool
        _check_before_bindings(made, call, undo.params, params)
        for one in lacking(undo.params, call.params):
            message = f"{cut(one.text, 120)}: the call of {cut(call.tool, 80)} has no such param"
            made.problems.add("undo-unfillable", (*params, *one.path), message, "give it, or write a rollback")
        _check_params(made, undo.spec, undo.params, params)
    elif call.spec is not None and call.before is None:
        _check_undo(made, path, call.spec, call.params, undo.spec)
    if undo.each is not None:
        _check_undo_list(made, call, undo.each, place if written else tool)


def _check_undo_list(made: Draft, call: Serving, each: Params, place: Path) -> None:
    """The list of an undo is bound, and is not inside of another list."""
    where = (*place, WORD)
    _check_before_bindings(made, call, each, place)
    bound = each.places if isinstance(each, Template) else ()
    if not any(not one.embedded for one in bound):
        message = f"'each' of a rollback is a binding to a list, not {cut(each.raw[WORD], 80)}"
        made.problems.add("each-invalid", where, message, "bind a list: $output.step_1.items, or $before.items")
    elif any(one.source == "item" for one in bound) or (isinstance(call, CompiledStep) and call.index in made.each):
        message = "'each' in the rollback of a step with 'each': a list in a list"
        made.problems.add("each-invalid", where, message, "call a tool that takes the whole list")
    for one in bound:
        if one.source == "output" and not one.embedded:
            brings = _output_types(made, one, where)
            if brings is not None and "array" not in brings:
                message = f"'each' needs a list, and {cut(one.text, 120)} is {_one_of(brings)}"
                made.problems.add("each-invalid", where, message, "bind a list: $output.step_1.items")


def _check_before_bindings(made: Draft, call: Serving, template: Params, path: Path) -> None:
    """An undo binds the value before the call only if something reads it."""
    if call.before is not None or call.spec is None or not isinstance(template, Template):
        return
    for place in template.places:
        if place.source == "before":
            message = f"{cut(place.text, 120)}: nothing reads the value before the call of {cut(call.tool, 80)}"
            hint = "declare the tool with before='the tool that reads it'"
            made.problems.add("before-missing", (*path, *place.path), message, hint)


def _check_fallback(
    made: Draft, step: CompiledStep, fallback: CompiledFallback, written: Fallback, path: Path, *, last: bool
) -> None:
    problems = made.problems
    ways = [name for name in ("tool", "cached_s", "queue_s") if getattr(written, name) is not None]
    extra = [name for name in ("params", "rollback", "retry", "timeout_s") if getattr(written, name) is not None]
    if len(ways) != 1:
        message = "a fallback has exactly one of 'tool', 'cached_s' and 'queue_s'"
        problems.add("fallback-invalid", path, message, "write several fallbacks as a list, in their order")
    elif extra and ways[0] != "tool":
        message = f"'{extra[0]}' is allowed only in a fallback with 'tool'"
        problems.add("fallback-invalid", (*path, extra[0]), message, "remove it")
    elif ways[0] == "queue_s" and not last:
        message = "a fallback after 'queue_s' is never used"
        problems.add("fallback-invalid", path, message, "make 'queue_s' the last fallback")
    elif (
        ways[0] == "queue_s" and made.plan.deadline_s is None and step.kind in {"compensatable", "irreversible", "read"}
    ):
        message = "a deferred step can wait forever, because the plan has no deadline"
        problems.add("fallback-invalid", path, message, "add a deadline_s to the plan")
    elif ways[0] == "cached_s" and step.index >= made.check_from and step.spec is not None:
        if step.kind != "read":
            message = f"step {step.key} writes, and a cached result does not replace a write"
            problems.add("fallback-invalid", path, message, "use 'cached_s' only for steps that read")
        elif step.spec.last_good_s is None:
            message = f"the engine does not keep the results of {cut(step.tool, 80)}"
            problems.add("fallback-invalid", path, message, "declare the tool with last_good_s=SECONDS")
    elif ways[0] == "tool":
        _check_other_tool(made, step, fallback, written, path)


def _check_other_tool(
    made: Draft, step: CompiledStep, fallback: CompiledFallback, written: Fallback, path: Path
) -> None:
    if written.rollback is not None and step.kind != "compensatable":
        message = f"a {step.kind} step is never undone, but the fallback of step {step.key} has a rollback"
        made.problems.add("kind-contradiction", (*path, "rollback"), message, "remove the rollback")
    if step.index < made.check_from:
        return
    _check_call(made, fallback, path, (*path, "tool" if written.params is None else "params"))
    if fallback.spec is None or fallback.spec.effect == "read":
        return
    if fallback.rollback is None and step.kind == "compensatable":
        tool = cut(fallback.tool, 80)
        message = f"the fallback of step {step.key} calls {tool}, which writes and has no undo"
        made.problems.add("rollback-missing", path, message, "add a rollback, or register an undo for its tool")
    if step.kind == "read":
        message = f"step {step.key} reads, but its fallback {cut(fallback.tool, 80)} writes"
        made.problems.add("fallback-invalid", path, message, "use a tool that reads")


def _unknown_tool(made: Draft, path: Path, name: str, message: str) -> None:
    if made.problems.full() or made.catalog is None:
        made.problems.skip(1)
        return
    known = list(made.catalog.names())
    # A catalog may know why it does not offer a tool: an operator can switch one off.
    why_not = getattr(made.catalog, "why_not", None)
    hint = "" if why_not is None else why_not(name)
    hint = hint or made.problems.did_you_mean(name, known) or known_names(known, "tools")
    made.problems.add("tool-unknown", path, message, hint)


def _check_undo(made: Draft, path: Path, spec: ToolSpec, params: Params, undo: ToolSpec) -> None:
    """A registered undo must be able to get its required parameters, and at least one parameter."""
    hint = "add a rollback with params to the step"
    why = schema_types.unfillable(undo.input_schema, params.raw, spec.output_schema, known=True)
    if why:
        message = printable(f"the registered undo {undo.name} would get no params: {why}", 400)
        made.problems.add("undo-unfillable", (*path, "tool"), message, hint)
    if why or spec.output_schema is None:
        return
    required = undo.input_schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in params.raw and schema_types.locate(spec.output_schema, (name,)) is schema_types.ABSENT:
            message = f"the registered undo {undo.name} requires '{name}', which is neither a param nor in the output"
            made.problems.add("undo-unfillable", (*path, "tool"), message, hint)


def _check_params(made: Draft, spec: ToolSpec, params: Params, base: Path) -> None:
    """Check params against the tool's schema. A bound value is checked by its type alone, if that is known."""
    assert isinstance(params, Template)
    made.checked.append(CheckedParams(spec, params, base))
    unknown = {place.path: place for place in params.places if not _known(made, place)}
    misplaced = list(misplaced_operations(spec, params.raw))
    for path, name in misplaced:
        message = f"'{name}' is an operation, and would be sent to {printable(spec.name, 80)} as an object"
        hint = f'a computation in params stands in {{"{COMPUTE}": {{"{name}": …}}}}'
        made.problems.add("compute-misplaced", (*base, *path), message, hint)
    unsure = {*unknown, *(path for path, _ in misplaced)}
    found = spec.check_params(params.sample(made.input))
    if found:
        above = {path[:length] for path in unsure for length in range(len(path))}
        for path, message in found:
            if any(path[:length] in unsure for length in range(len(path) + 1)):
                continue
            # The fault may be in a value that is not known yet; the call itself is checked again.
            if path in above and schema_types.checks_whole(spec.input_schema, path):
                continue
            if made.problems.full():
                made.problems.skip(1)
                continue
            names = list(schema_types.properties(spec.input_schema))
            hint = known_names(names, f"params of {printable(spec.name, 80)}") if names else ""
            made.problems.add("params-invalid", (*base, *path), printable(message, 300), hint)
    computed = [place for place in params.places if place.computed]
    for place in [*computed, *(each for each in unknown.values() if not each.computed)]:
        _check_type(made, spec, place, base)


def _known(made: Draft, place: Place) -> bool:
    """Whether the plan's input alone determines the value of a whole param."""
    if place.source != "input" or place.embedded or place.computed or place.tail is None:
        return False
    try:
        jsonpath.find(made.input, place.tail)
    except jsonpath.Mismatch:
        return False
    return True


def _check_type(made: Draft, spec: ToolSpec, place: Place, base: Path) -> None:
    path = (*base, *place.path)
    brings = _output_types(made, place, path) if place.source == "output" else None
    if place.embedded or place.source in {"saga", "key", "secret"}:
        brings = frozenset({"string"})
    if brings is None or place.computed:
        return
    node = schema_types.locate(spec.input_schema, place.path)
    wants = None if isinstance(node, schema_types.Absent) else schema_types.types(spec.input_schema, node)
    if wants is not None and brings.isdisjoint(wants):
        message = f"{cut(place.text, 120)} is {_one_of(brings)}, but {spec.name} expects {_one_of(wants)}"
        made.problems.add(
            "binding-type", path, printable(message, 400), "bind another value, or convert it with a tool"
        )


def _output_types(made: Draft, place: Place, path: Path) -> frozenset[str] | None:
    """The types that a binding to an output may have; adds a problem if the output cannot have such a value."""
    step = made.steps[made.by_key[place.step]]
    if step.index in made.each and path[:2] != ("steps", step.index):
        return _list_types(made, step, place, path)
    others = [each.spec for each in step.fallbacks if each.way == "tool"]
    brings = _types_of(made, step.spec, place, path)
    for other in others:  # whichever tool was finally called must return the value
        also = _types_of(made, other, place, path)
        brings = None if brings is None or also is None else brings | also
    return brings


def _list_types(made: Draft, step: CompiledStep, place: Place, path: Path) -> frozenset[str] | None:
    """The same for a step with ``each``, whose items may have been served by different tools."""
    alone = step.spec is not None and not any(each.way == "tool" for each in step.fallbacks)
    schema = step.spec.output_schema if alone and step.spec is not None else None
    found = types_in(schema, place, collect=made.each[step.index].collect)
    if not isinstance(found, str):
        return found
    message = f"{cut(place.text, 120)}: step {place.step} has no such value: {found}"
    made.problems.add("binding-path-absent", path, message, f"write $output.step_{place.step}[0], or bind the whole")
    return None


def _types_of(made: Draft, source: ToolSpec | None, place: Place, path: Path) -> frozenset[str] | None:
    if source is None or source.output_schema is None or (place.tail is not None and place.tail.selectors):
        return None
    node = schema_types.locate(source.output_schema, place.tail.path if place.tail is not None else ())
    if isinstance(node, schema_types.Absent):
        names = list(schema_types.properties(source.output_schema))
        hint = known_names(names, f"fields in the output of {printable(source.name, 80)}")
        message = f"{cut(place.text, 120)}: the output of step {place.step} has no such value"
        made.problems.add("binding-path-absent", path, message, hint)
        return None
    return schema_types.types(source.output_schema, node)


def _one_of(types: frozenset[str]) -> str:
    return " or ".join(
        f"{'an' if name[:1] in 'aio' else 'a'} {name}" if name != "null" else name for name in sorted(types)
    )


# --- bindings and order --------------------------------------------------------------------------------------------


def _check_inputs(made: Draft, step: CompiledStep) -> None:
    for template, _, base, _ in made.bound[step.index]:
        for place in template.places:
            if place.source != "input" or place.tail is None:
                continue
            try:
                jsonpath.find(made.input, place.tail)
            except jsonpath.Mismatch as mismatch:
                message = f"{cut(place.text, 120)} has no value in the input: {printable(str(mismatch), 300)}"
                hint = "pass it with --input (input= in Python), or set it in the plan's 'input'"
                made.problems.add("binding-input-missing", (*base, *place.path), message, hint)


def _check_misplaced(made: Draft, step: CompiledStep) -> None:
    """The value before a call is known only to its undo."""
    for template, _, base, undo in made.bound[step.index]:
        for place in template.places:
            if place.source == "before" and not undo:
                message = f"{cut(place.text, 120)} binds only in the params of a rollback"
                hint = "call the tool that reads the value in a step of its own, and bind its output"
                made.problems.add("before-misplaced", (*base, *place.path), message, hint)


def _check_secrets(made: Draft, step: CompiledStep) -> None:
    """A plan may pass a secret only to a tool that is allowed to have it."""
    for template, of, path, _ in made.bound[step.index]:
        if not template.secrets:
            continue
        # A fallback without params of its own gets those of the step.
        takers = [of, *(each.spec for each in step.fallbacks if each.way == "tool" and each.params is template)]
        for spec in takers:
            if spec is None or spec.secrets is None or "*" in spec.secrets:
                continue
            for place in template.places:
                if place.source == "secret" and place.step not in spec.secrets:
                    message = f"the tool {cut(spec.name, 80)} may not get $secret.{place.step}"
                    hint = f'an operator can allow it: [secrets] allow = {{ {spec.name} = ["{place.step}"] }}'
                    made.problems.add("secret-not-allowed", (*path, *place.path), message, hint)


def _check_order(made: Draft) -> bool:
    """Determine what each step waits for; then check that this is possible and that each undo has what it needs.

    Returns whether there is an order.
    """
    for step in made.steps:
        spend()
        _settle(made, step)
    around_the_pivot(made)
    deps = [step.deps for step in made.steps]
    ordered = graph.sort(deps)
    if len(ordered) < len(deps):
        for cycle in graph.cycles(deps, ordered):
            keys = [made.steps[index].key for index in [*cycle[:10], cycle[0]]]
            dots = " … → " if len(cycle) > 10 else " → "
            message = f"these steps depend on each other: {' → '.join(keys[:-1])}{dots}{keys[-1]}"
            path = ("steps", cycle[0], "depends_on")
            made.problems.add("graph-cycle", path, message, "remove one 'depends_on' or binding")
        return False
    _check_undo_outputs(made, deps, ordered)
    return True


def _settle(made: Draft, step: CompiledStep) -> None:
    """Determine what a step waits for: the steps that it names, and by default the one before it in the list."""
    named = made.plan.steps[step.index].depends_on
    checked = step.index >= made.check_from
    waits: set[int] = set()
    for position, wanted in enumerate(named or ()):
        before = made.by_key.get(str(wanted))
        path: Path = ("steps", step.index, "depends_on", position)
        if before is None:
            known = list(made.by_key) if not made.problems.full() else []
            hint = made.problems.did_you_mean(str(wanted), known) or known_names(known, "steps")
            made.problems.add("depends-on-unknown", path, f"there is no step {wanted}", hint)
        elif checked and str(wanted) in made.dropped:
            message = f"step {wanted} will not run"
            made.problems.add("depends-on-unknown", path, message, "depend on another step")
        else:
            waits.add(before)
    for template, _, base, undo in made.bound.get(step.index, ()):
        for place in () if undo else template.places:
            if place.source != "output":
                continue
            before = made.by_key[place.step]
            if checked and place.step in made.dropped:
                message = f"{cut(place.text, 120)}: step {place.step} will not run"
                made.problems.add(
                    "binding-not-before", (*base, *place.path), message, "bind the output of another step"
                )
            elif before == step.index or (named is None and made.position[before] > made.position[step.index]):
                own = before == step.index
                what = "its own output" if own else f"the output of step {place.step}, which comes later"
                hint = "bind the output of an earlier step, or name the steps to wait for in 'depends_on'"
                message = f"{cut(place.text, 120)}: step {step.key} cannot bind {what}"
                made.problems.add("binding-not-before", (*base, *place.path), message, hint)
            else:
                waits.add(before)
    if step.compensates is not None:
        # The steps that it binds to have happened: it waits only for others that compensate for the same step.
        group = {other.index for other in made.steps if other.compensates == step.compensates}
        waits &= group
        before_it = {step.index - 1} & group
    else:
        before_it = _previous(made, step)
    step.data_deps = frozenset(waits)
    step.deps = tuple(sorted(waits if named is not None else waits | before_it))


def _previous(made: Draft, step: CompiledStep) -> set[int]:
    """The step before it in the list, without those that will not run and those that compensate for others."""
    if step.key in made.dropped:
        return {step.index - 1} if step.index else set()  # it keeps the order in which it was accepted
    position = made.position[step.index] - 1
    while position >= 0:
        before = made.steps[made.order[position]]
        if before.key not in made.dropped and before.compensates is None:
            return {before.index}
        position -= 1
    return set()


def _check_undo_outputs(made: Draft, deps: list[tuple[int, ...]], ordered: list[int]) -> None:
    before: list[int] | None = None
    undos = [(made.steps[index], each) for index, some in sorted(made.bound.items()) for each in some if each.undo]
    for step, (template, _, path, _) in undos:
        if step.key in made.dropped:
            continue
        for place in template.places:
            needed = made.by_key[place.step] if place.source == "output" else step.index
            if needed == step.index:
                continue
            if before is None:
                before = graph.ancestors(deps, ordered)
            if not before[step.index] >> needed & 1:
                message = f"{cut(place.text, 120)}: step {place.step} may not have run when step {step.key} is undone"
                hint = f"bind the output of step {step.key}, or make step {step.key} depend on step {place.step}"
                made.problems.add("rollback-needs-output", (*path, *place.path), message, hint)


def _check_children(made: Draft) -> None:
    """A saga starts a bounded number of others."""
    children = sum(1 + step.child.children for step in made.steps if step.child is not None)
    if children > MAX_CHILDREN and not made.level:
        message = f"the plan has {children} child sagas, but only {MAX_CHILDREN} are allowed"
        made.problems.add("saga-children", ("steps",), message, "make several sagas of it")
