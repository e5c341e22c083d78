"""The parts of the plan format beyond a plain call: those that a model may always use, and those that need leave.

``SAFE`` parts change only what is computed, left out, or undone with the rest, so every model has them. The others
wait, ask somebody, or leave an effect: an operator allows them (``[planner] may_use``, ``saga plan --may-use``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from saga_engine.errors import Problem
from saga_engine.plan import words
from saga_engine.plan.notices import is_notice
from saga_engine.plan.values import cut, json_path

if TYPE_CHECKING:
    from saga_engine.plan.model import Fallback, Plan, Step
    from saga_engine.plan.tool_spec import ToolCatalog
    from saga_engine.ports import PlannerRequest

#: The rule that names what a model used without leave.
NOT_ALLOWED: Final = "feature-not-allowed"
#: What a model may need besides parts of the format: calls of tools that read, while it plans.
READS: Final = "reads"
_READS_SHORT: Final = "lookups with tools while you plan"


class Feature(NamedTuple):
    """A part of the plan format: the fields that belong to it, and what a prompt says about it.

    ``fields`` are those of a step, or of the plan if ``of_plan``. ``short`` names it in a few words, for a model that
    may not use it. ``limit`` is what a model hears of it without leave, for a part of which some uses are safe.
    ``example`` is the JSON of an answer that uses it; the prompt shows it behind ``about`` where leave was given.
    """

    fields: tuple[str, ...]
    short: str
    about: str
    example: str
    limit: str = ""
    of_plan: bool = False


def _feature(name: str) -> Feature:
    """A word that is brought. Whatever its package says or leaves out, a model needs leave to use it."""
    prompt = words.word(name).prompt or words.Prompt(f"steps with '{name}'", words.word(name).about, "{}")
    return Feature((name,), prompt.short, prompt.about, prompt.example)


_OPERATIONS: Final = (
    "`add`, `multiply` [a, b, …]; `subtract`, `divide`, `percent` [a, b] (a % of b); `round` x; `sum`, `min`, `max` "
    "LIST with `of` (what counts of an `$item`); `map` LIST with `of`; `count`, `filter` LIST with `where` (conditions "
    "on `$item`); `sort` LIST with `by` and `order` (up, down); `pick` LIST (its first item) with `where`, `of`, "
    "`default` and `several` (first, error); `if` [CONDITION, …] with `then` and `else`; `join` LIST with `of` and "
    '`with`; `date_add` [DATE, "P1M"] (ISO 8601; "-P3D" goes back); `days_between` [DATE, DATE]; `weekday` DATE (1 is '
    "Monday); `divide` and `round` have `places` and `mode` (half-up, half-even, up, down, ceiling, floor)"
)

FEATURES: Final[dict[str, Feature]] = {
    "compute": Feature(
        ("compute",),
        "exact computations",
        "`compute`, in place of `tool`: one operation; its result is the output, bound as `$output.step_ID`. Its "
        "operands are numbers, texts, bindings, lists or operations; an object that is data stands in "
        f'`{{"value": …}}`. In `params` and conditions it stands as `{{"$compute": OPERATION}}`, also with `$item`. '
        f"Operations: {_OPERATIONS}.",
        '{"steps": [{"step_id": "offers", "tool": "couriers.search", "params": {"day": "$input.day"}}, '
        '{"step_id": "best", "compute": {"pick": {"sort": "$output.step_offers.items", "by": "$item.price"}, '
        '"where": [{"value": "$item.price", "op": "<=", "to": 30}]}}, {"step_id": "price", "compute": {"round": '
        '{"percent": [115, "$output.step_best.price"]}, "places": 2}}, {"step_id": "order", "tool": '
        '"orders.create", "params": {"courier": "$output.step_best.id", "price": "$output.step_price"}}]}',
    ),
    "when": Feature(
        ("when",),
        "conditions of a step",
        "`when`: [CONDITION, …]; unless all hold, the step is skipped and the rest goes on. A condition is "
        '`{"value": "$output.step_1.total", "op": ">", "to": 100}`: its value binds, and `op` is ==, !=, <, <=, >, >=, '
        "in, not-in, matches (a glob), or without `to` exists, absent; `any`, `all` and `not` combine conditions. What "
        'binds the output of such a step has a default: `{"$first": ["$output.step_2.ref", null]}`.',
        '{"steps": [{"step_id": 1, "tool": "orders.price", "params": {"order": "$input.order"}}, {"step_id": 2, '
        '"tool": "vouchers.create", "params": {"customer": "$input.customer"}, "when": [{"value": '
        '"$output.step_1.total", "op": ">", "to": 100}]}, {"step_id": 3, "tool": "orders.create", "params": '
        '{"order": "$input.order", "voucher": {"$first": ["$output.step_2.code", null]}}}]}',
    ),
    "failed_when": Feature(
        ("failed_when",),
        "outputs that mean failure",
        "`failed_when`: [CONDITION, …] on the step's own output, for a step that reads or can be undone: if all hold, "
        "it has failed, and is undone with the rest.",
        '{"steps": [{"step_id": 1, "tool": "orders.create", "params": {"order": "$input.order"}, "failed_when": '
        '[{"value": "$output.step_1.state", "op": "==", "to": "REFUSED"}]}]}',
    ),
    "each": Feature(
        ("each",),
        "a call for each item of a list, also where it cannot be undone",
        '`each`: LIST (`"$output.step_1.items"`, or `{"of": LIST, "when": [CONDITION on $item, …], "parallel": 3}`): '
        "the tool is called once for each item; `$item.field` and `$index` (from 0) bind in `params` and `rollback`. "
        "The output is the list of outputs.",
        '{"steps": [{"step_id": "order", "tool": "orders.price", "params": {"order": "$input.order"}}, '
        '{"step_id": "lines", "tool": "stock.reserve", "params": {"sku": "$item.sku"}, "each": {"of": '
        '"$output.step_order.lines", "when": [{"value": "$item.count", "op": ">", "to": 0}]}}]}',
        limit="Its tool reads, or can be undone.",
    ),
    "finally": Feature(
        ("finally",),
        "steps at the end with any tool",
        "`finally`, a list of steps beside `steps`: they run at the end, whatever it is, and are never undone. "
        "`$end.status` is COMPLETED or COMPENSATED; what binds an output of `steps` has a default (`$first`). They "
        "have neither `kind` nor `rollback`.",
        '{"steps": [{"step_id": 1, "tool": "orders.create", "params": {"order": "$input.order"}}], "finally": '
        '[{"step_id": 2, "tool": "mail.send", "params": {"to": "$input.customer", "text": "{$end.status}"}}]}',
        limit="Their tools read, or only tell somebody.",
        of_plan=True,
    ),
    "irreversible": Feature(
        (),
        "writes that cannot be undone, anywhere or under a condition",
        'A write that cannot be undone may have `"kind": "irreversible"` in place of `pivot` or `retriable`. There '
        "may be several, anywhere. If a later step fails, the others are undone and the effect of such a step remains. "
        "Use it only where the goal accepts that, and put it as late as the goal allows.",
        '{"steps": [{"step_id": 1, "tool": "letters.print", "params": {"to": "$input.customer"}, "kind": '
        '"irreversible"}, {"step_id": 2, "tool": "stock.reserve", "params": {"sku": "A-7"}}]}',
    ),
    "on_error": Feature(
        ("on_error",),
        "going on after a failure",
        '`"on_error": "continue"`: if the step fails, the rest goes on all the same. Use it only where the goal says '
        'so; what binds its output has a default, as with `when`. In `each`, `"on_error": "collect"` goes on with the '
        'other items, and the output is `{"outputs": […], "failed": […]}`.',
        '{"steps": [{"step_id": 1, "tool": "vouchers.create", "params": {"customer": "$input.customer"}, '
        '"on_error": "continue"}, {"step_id": 2, "tool": "orders.create", "params": {"order": "$input.order", '
        '"voucher": {"$first": ["$output.step_1.code", null]}}}]}',
    ),
    "ask": Feature(
        ("ask",),
        "a person answers while the plan runs",
        '`"ask": {"question": TEXT, "options": [TEXT, …]}`, in place of `tool`: a person answers while the plan runs, '
        "and `$output.step_ID.answer` is the chosen option; a later step binds it, or has it in a condition. `schema` "
        'in place of `options` is the JSON Schema of a free answer. `"to": WHO` names who is asked, if the goal does. '
        '`"expires_s": SECONDS` limits the wait; then the step fails, or with `"on_timeout": {"value": …}` has that '
        "answer, which must not mean yes. To undo all at a no, give the ask `failed_when` on its own answer: a pivot "
        "has no `when`. Use it only for what a person must decide after earlier steps have happened; what can be asked "
        "before the plan runs belongs into `questions`.",
        '{"steps": [{"step_id": "offer", "tool": "orders.price", "params": {"order": "$input.order"}}, '
        '{"step_id": "sure", "ask": {"question": "Order it for {$output.step_offer.price}?", "options": ["with '
        'insurance", "without"]}}, {"step_id": "order", "tool": "orders.create", "params": {"order": '
        '"$input.order", "how": "$output.step_sure.answer"}}]}',
    ),
    "wait": Feature(
        ("wait",),
        "waiting for an event from outside",
        '`"wait": {"event": NAME, "key": KEY, "timeout_s": SECONDS}`, in place of `tool`: it waits for '
        "an event from outside, such as a payment; the event's payload is its output. It always has an end: without "
        'an event in time it fails; `"on_timeout": {"value": …}` gives an output instead. In place of `event` and '
        '`key`, `"first": '
        '[{"event": NAME, "key": KEY}, …]` waits for the first of several, and its output is `{"event", "key", '
        '"payload"}`; `"all"` waits for all of them, and its output is the list of these. Use it only for events that '
        "the goal names.",
        '{"steps": [{"step_id": "paid", "wait": {"first": [{"event": "paid.card", "key": "$input.order"}, '
        '{"event": "paid.bank", "key": "$input.order"}], "timeout_s": 86400}}, {"step_id": "order", "tool": '
        '"orders.create", "params": {"order": "$input.order", "paid_by": "$output.step_paid.event"}}]}',
    ),
    **{name: _feature(name) for name in words.names()},
}
#: What every model may use, as far as its ``limit`` says.
SAFE: Final = ("compute", "when", "failed_when", "each", "finally")
#: What a model may need: parts of the format that somebody allows, and lookups.
NEEDS: Final = (*(name for name, each in FEATURES.items() if name not in SAFE or each.limit), READS)


def usable(may_use: Iterable[str]) -> tuple[str, ...]:
    """All parts that a model may use with this leave, in the order of the table."""
    given = {*SAFE, *may_use}
    return tuple(name for name in FEATURES if name in given)


def told(may_use: Sequence[str], *, without: Sequence[str] = ()) -> str:
    """What a prompt says about the parts that a model may use, one a line."""
    lines = []
    for name in usable(may_use):
        feature = FEATURES[name]
        if name in without:
            continue
        if name in may_use and name not in SAFE:
            lines.append(f"- {feature.about} Example: `{feature.example}`")
        else:
            lines.append(f"- {part_about(name, may_use)}")
    return "\n".join(lines)


def part_about(name: str, may_use: Sequence[str]) -> str:
    """What a part is and may be used for with this leave."""
    feature = FEATURES[name]
    return f"{feature.about} {feature.limit}" if feature.limit and name not in may_use else feature.about


def others(request: PlannerRequest) -> Mapping[str, str]:
    """What a model could need and was not allowed, each in a few words."""
    may_use = getattr(request, "may_use", ())
    found = {name: FEATURES[name].short for name in NEEDS if name in FEATURES and name not in may_use}
    return found if getattr(request, "reads", ()) else {**found, READS: _READS_SHORT}


def told_others(request: PlannerRequest) -> str:
    """The same as one line of a prompt."""
    return ", ".join(f"`{name}` ({short})" for name, short in others(request).items()) or "none"


def command(names: Iterable[str], reads: Sequence[str] = ()) -> str:
    """The options of ``saga plan`` that allow this."""
    wanted = list(names)
    options = [f"--may-use {name}" for name in wanted if name in FEATURES]
    if READS in wanted:
        options += [f"--read {name}" for name in reads] or ["--read TOOL"]
    return " ".join(options)


def feature_fields() -> frozenset[str]:
    """The fields of a step that belong to a feature."""
    return frozenset(name for feature in FEATURES.values() if not feature.of_plan for name in feature.fields)


def plan_fields(may_use: Sequence[str]) -> tuple[str, ...]:
    """The fields of a plan that belong to the features that a model may use."""
    return tuple(field for name in usable(may_use) if FEATURES[name].of_plan for field in FEATURES[name].fields)


# --- the rule --------------------------------------------------------------------------------------------------------

_SAID: Final = re.compile(r"\((\w+)\), which was not allowed for this plan")


def not_allowed(
    plan: Plan, may_use: Sequence[str], catalog: ToolCatalog | None, *, safe: Sequence[str] = SAFE
) -> Iterator[Problem]:
    """The places where the plan of a model uses a part of the format without leave.

    ``catalog`` has the tools that the plan may call; ``safe`` are the parts that need no leave, within their limits.
    """
    for index, step in enumerate(plan.steps):
        if step.saga is not None:
            message = f"step {step.key} runs a child saga, which a model's plan does not"
            where = json_path(("steps", index, "saga"))
            yield Problem(NOT_ALLOWED, where, message, "write the steps of that plan themselves")
        for name, path in _used(step):
            if name in may_use or (name in safe and (name != "each" or _undoable(step, catalog))):
                continue
            limited = name == "each" and name in safe
            limit = f" with {cut(step.tool, 80)}, which cannot be undone" if limited else ""
            yield _refused(name, f"step {step.key} uses '{path}'{limit}", json_path(("steps", index, path)))
        late = None if step.wait is None else step.wait.on_late
        if late is not None and "irreversible" not in may_use and not _tells(late.tool, catalog):
            what = f"step {step.key} calls {cut(late.tool, 80)} for an event that comes too late, which is never undone"
            yield _refused("irreversible", what, json_path(("steps", index, "wait", "on_late", "tool")))
    for index, step in enumerate(plan.finally_):
        for place, call in () if "finally" in may_use else _made(step):
            if not _tells(call.tool, catalog):
                tool = cut(call.tool, 80)
                what = f"step {step.key} of 'finally' calls {tool}, which neither reads nor tells somebody"
                yield _refused("finally", what, json_path(("finally", index, *place, "tool")))


def _refused(name: str, what: str, path: str) -> Problem:
    hint = f'write the plan without it; if the goal cannot be served so, it needs leave: {{"needs": ["{name}"]}}'
    return Problem(NOT_ALLOWED, path, f"{what} ({name}), which was not allowed for this plan", hint)


def refused_parts(problems: Iterable[Mapping[str, str] | Problem]) -> list[str]:
    """The parts that these problems say were not allowed, each once."""
    texts = [each.message if isinstance(each, Problem) else each.get("message", "") for each in problems]
    return list(dict.fromkeys(found[1] for text in texts for found in [_SAID.search(text)] if found))


def _made(step: Step) -> Iterator[tuple[tuple[str | int, ...], Step | Fallback]]:
    """The forward calls that a step may make, its own and those of its fallbacks, each with its path in the step."""
    yield (), step
    for number, fallback in enumerate(step.fallback or ()):
        if fallback.tool is not None:  # else it is the step's own call again, or its earlier result
            yield ("fallback", number), fallback


def _undoable(step: Step, catalog: ToolCatalog | None) -> bool:
    """Whether each call of a step can be undone, or changes nothing; of an unknown tool another rule tells."""
    for _, call in _made(step):
        spec = None if catalog is None or call.tool is None else catalog.spec(call.tool)
        if spec is None or spec.effect == "read":
            continue
        if (spec.undo is None and call.rollback is None) or step.kind not in {None, "compensatable"}:
            return False
    return True


def _tells(tool: str | None, catalog: ToolCatalog | None) -> bool:
    spec = None if catalog is None or tool is None else catalog.spec(tool)
    return spec is None or spec.effect == "read" or is_notice(spec)


def _used(step: Step) -> Iterator[tuple[str, str]]:
    """The features of a step, each with the field that shows it."""
    if step.kind == "irreversible":
        yield "irreversible", "kind"
    for name, feature in FEATURES.items():
        for field in feature.fields:
            if not feature.of_plan and getattr(step, field, None) is not None:
                yield name, field
                break
    if getattr(step.each, "on_error", None) == "collect":
        yield "on_error", "each"
