"""What a model may use in a plan only where the caller allows it: ``[planner] may_use``, ``saga plan --may-use``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from saga_engine.errors import Problem
from saga_engine.plan.values import json_path

if TYPE_CHECKING:
    from saga_engine.plan.model import Step

#: The rule that names what a model used without leave.
NOT_ALLOWED: Final = "feature-not-allowed"


class Feature(NamedTuple):
    """A part of the plan format: the fields of a step that belong to it, and what a prompt says about it.

    ``example`` is the JSON of steps that use it; the prompt shows it behind ``about``.
    """

    fields: tuple[str, ...]
    about: str
    example: str

    @property
    def told(self) -> str:
        """What the prompt says about it."""
        return f"{self.about} Example: `{self.example}`"


FEATURES: Final[dict[str, Feature]] = {
    "irreversible": Feature(
        (),
        'A write that cannot be undone may have `"kind": "irreversible"` in place of `pivot` or `retriable`. There '
        "may be several, anywhere. If a later step fails, the others are undone and the effect of such a step remains. "
        "Use it only where the goal accepts that, and put it as late as the goal allows.",
        '{"steps": [{"step_id": 1, "tool": "letters.print", "params": {"to": "$input.customer"}, "kind": '
        '"irreversible"}, {"step_id": 2, "tool": "stock.reserve", "params": {"sku": "A-7"}}]}',
    ),
    "compute": Feature(
        ("compute",),
        "A step may have `compute` in place of `tool` and `params`: an exact computation whose result is its output, "
        "bound as `$output.step_<id>`. Its value is one operation, whose operands are numbers, bindings or operations: "
        '`{"add": […]}`, `{"subtract": [a, b]}`, `{"multiply": […]}`, `{"divide": [a, b], "places": 2}`, '
        '`{"percent": [15, "$output.step_1.total"]}`, `{"round": x, "places": 2}`, '
        '`{"sum": "$output.step_1.lines", "of": {"multiply": ["$item.price", "$item.count"]}}`, `{"date_add": '
        '["2026-03-01", "P1M"]}`, `{"pick": LIST, "where": [CONDITION, …], "default": …}` (the first item for which '
        'the conditions hold; one is `{"value": "$item.price", "op": "<=", "to": 30}`). Use it for a value that no '
        "tool returns, never to copy one.",
        '{"steps": [{"step_id": "offers", "tool": "couriers.search", "params": {"day": "$input.day"}}, '
        '{"step_id": "best", "compute": {"pick": {"sort": "$output.step_offers.items", "by": "$item.price"}, '
        '"where": [{"value": "$item.price", "op": "<=", "to": 30}]}}, {"step_id": "price", "compute": {"round": '
        '{"percent": [115, "$output.step_best.price"]}, "places": 2}}, {"step_id": "order", "tool": '
        '"orders.create", "params": {"courier": "$output.step_best.id", "price": "$output.step_price"}}]}',
    ),
    "ask": Feature(
        ("ask",),
        'A step may have `"ask": {"question": TEXT, "options": [TEXT, …]}` in place of `tool`: a person answers while '
        "the plan runs, and `$output.step_ID.answer` is the chosen option. `schema` in place of `options` is the JSON "
        "Schema of a free answer. Use it only for what a person must decide after earlier steps have happened; what "
        "can be asked before the plan runs belongs into `questions`.",
        '{"steps": [{"step_id": "offer", "tool": "orders.price", "params": {"order": "$input.order"}}, '
        '{"step_id": "sure", "ask": {"question": "Order it for {$output.step_offer.price}?", "options": ["with '
        'insurance", "without"]}}, {"step_id": "order", "tool": "orders.create", "params": {"order": '
        '"$input.order", "how": "$output.step_sure.answer"}}]}',
    ),
    "wait": Feature(
        ("wait",),
        'A step may have `"wait": {"event": NAME, "key": KEY, "timeout_s": SECONDS}` in place of `tool`: it waits for '
        "an event from outside, such as a payment, and the event's payload is its output. Without an event in time "
        'it fails; `"on_timeout": {"value": …}` gives an output instead. In place of `event` and `key`, `"first": '
        '[{"event": NAME, "key": KEY}, …]` waits for the first of several, and its output is `{"event", "key", '
        '"payload"}`; `"all"` waits for all of them, and its output is the list of these. Use it only for events that '
        "the goal names.",
        '{"steps": [{"step_id": "paid", "wait": {"first": [{"event": "paid.card", "key": "$input.order"}, '
        '{"event": "paid.bank", "key": "$input.order"}], "timeout_s": 86400}}, {"step_id": "order", "tool": '
        '"orders.create", "params": {"order": "$input.order", "paid_by": "$output.step_paid.event"}}]}',
    ),
    "sleep": Feature(
        ("sleep",),
        'A step may have `"sleep": "PT90M"` (a duration of ISO 8601, or seconds), or `"sleep": {"until": "'
        '2026-12-01T09:00:00+01:00"}` in place of `tool`: time passes. Use it only where the goal asks for a delay.',
        '{"steps": [{"step_id": 1, "tool": "orders.create", "params": {"order": "$input.order"}}, {"step_id": 2, '
        '"sleep": "PT90M"}, {"step_id": 3, "tool": "stock.reserve", "params": {"order": "$output.step_1.id"}}]}',
    ),
    "when": Feature(
        ("when",),
        "A step may have `when`, a list of conditions: unless all hold, it is skipped, and what follows goes on. A "
        'condition is `{"value": "$output.step_1.total", "op": ">", "to": 100}`; `op` is `==`, `!=`, `<`, `<=`, `>`, '
        "`>=`, `in`, `not-in`, `matches`, or without `to` `exists` and `absent`. A later binding to its output needs a "
        'default: `{"$first": ["$output.step_2.ref", null]}`.',
        '{"steps": [{"step_id": 1, "tool": "orders.price", "params": {"order": "$input.order"}}, {"step_id": 2, '
        '"tool": "vouchers.create", "params": {"customer": "$input.customer"}, "when": [{"value": '
        '"$output.step_1.total", "op": ">", "to": 100}]}, {"step_id": 3, "tool": "orders.create", "params": '
        '{"order": "$input.order", "voucher": {"$first": ["$output.step_2.code", null]}}}]}',
    ),
    "each": Feature(
        ("each",),
        'A step that calls a tool may have `"each": "$output.step_1.items"`: it is called once for each item of that '
        "list, one after the other; `$item` (`$item.field`) and `$index` bind in its `params` and `rollback`. Its "
        'output is the list of outputs: `$output.step_2[0].ref`. `{"of": LIST, "parallel": 3}` runs so many at a time; '
        '`"when"` in it leaves out the items for which conditions on `$item` do not hold. Use it only for a list that '
        "an earlier step returns, or that is in the input.",
        '{"steps": [{"step_id": "order", "tool": "orders.price", "params": {"order": "$input.order"}}, '
        '{"step_id": "lines", "tool": "stock.reserve", "params": {"sku": "$item.sku"}, "each": {"of": '
        '"$output.step_order.lines", "when": [{"value": "$item.count", "op": ">", "to": 0}]}}]}',
    ),
    "on_error": Feature(
        ("on_error",),
        'A step may have `"on_error": "continue"`: if it fails, the rest goes on all the same. Use it only where the '
        "goal says so; a later binding to its output needs a default, as `when` does: "
        '`{"$first": ["$output.step_2.ref", null]}`.',
        '{"steps": [{"step_id": 1, "tool": "vouchers.create", "params": {"customer": "$input.customer"}, '
        '"on_error": "continue"}, {"step_id": 2, "tool": "orders.create", "params": {"order": "$input.order", '
        '"voucher": {"$first": ["$output.step_1.code", null]}}}]}',
    ),
    "failed_when": Feature(
        ("failed_when",),
        "A step may have `failed_when`, a list of conditions on its own output that mean failure: then it is undone "
        'with the rest. `[{"value": "$output.step_1.state", "op": "==", "to": "REFUSED"}]`.',
        '{"steps": [{"step_id": 1, "tool": "orders.create", "params": {"order": "$input.order"}, "failed_when": '
        '[{"value": "$output.step_1.state", "op": "==", "to": "REFUSED"}]}]}',
    ),
}


def feature_fields() -> frozenset[str]:
    """The fields of a step that belong to a feature."""
    return frozenset(name for feature in FEATURES.values() for name in feature.fields)


def not_allowed(steps: Sequence[Step], may_use: Sequence[str]) -> Iterator[Problem]:
    """The places where the steps of a model use a feature without leave."""
    for index, step in enumerate(steps):
        if step.saga is not None:
            message = f"step {step.key} runs a child saga, which a model's plan does not"
            where = json_path(("steps", index, "saga"))
            yield Problem(NOT_ALLOWED, where, message, "write the steps of that plan themselves")
        for name, path in _used(step):
            if name not in may_use:
                message = f"step {step.key} uses '{path}' ({name}), which was not allowed for this plan"
                yield Problem(NOT_ALLOWED, json_path(("steps", index, path)), message, "write the plan without it")


def _used(step: Step) -> Iterator[tuple[str, str]]:
    """The features of a step, each with the field that shows it."""
    if step.kind == "irreversible":
        yield "irreversible", "kind"
    for name, feature in FEATURES.items():
        for field in feature.fields:
            if getattr(step, field, None) is not None:
                yield name, field
                break
