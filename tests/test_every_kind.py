"""One plan with every kind and option of a step, through everything that reads plans and sagas.

A new field of the format fails here until the plan uses it; then each reader has to know it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, get_args

import jsonschema_rs
import pytest

from saga_engine import Coordinator, ToolError, tool
from saga_engine.analysis.simulator import FaultKind
from saga_engine.cli.history import Rows
from saga_engine.cli.output import table
from saga_engine.cli.render import whole_lines
from saga_engine.core.effects import COMPENSATE
from saga_engine.plan import model, model_parts, step_bodies
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.diagram import mermaid
from saga_engine.plan.model import BUILTINS, load_plan
from saga_engine.plan.schema import plan_schema
from saga_engine.planner.features import FEATURES
from saga_engine.server.app import create_app
from saga_engine.server.settings import ServerSettings
from saga_engine.settings import Settings
from tests.server.console.page_reader import Browser

PRICES: dict[str, str] = {}
CARDS: list[str] = []


@tool(effect="read", last_good_s=60)
def read_order(order: str) -> dict:
    lines = [{"sku": "A1", "price": "12.50", "due": "2026-03-01"}, {"sku": "B2", "price": "99.90", "due": "2026-03-02"}]
    return {"id": order, "lines": lines, "vip": True}


@tool(effect="read")
def read_price(sku: str) -> dict:
    if sku not in PRICES:
        raise ToolError(f"no price for {sku}", error_code="not_found", retryable=False)
    return {"price": PRICES[sku]}


@tool(
    before=read_price, absent={"error_code": "not_found"}, sole_writer=True, undo="set_price", undo_absent="drop_price"
)
def set_price(sku: str, price: str, idempotency_key: str) -> dict:
    PRICES[sku] = price
    return {"ok": True}


@tool(tolerates_absence=True)
def drop_price(sku: str, idempotency_key: str) -> dict:
    PRICES.pop(sku, None)
    return {"ok": True}


@tool(undo="free")
def reserve(sku: str, idempotency_key: str) -> dict:
    return {"ref": f"r-{sku}", "parts": [{"part": f"{sku}-1"}, {"part": f"{sku}-2"}]}


@tool(tolerates_absence=True)
def free(ref: str, idempotency_key: str) -> dict:
    return {"freed": ref}


@tool(tolerates_absence=True)
def free_part(part: str, idempotency_key: str) -> dict:
    return {"freed": part}


@tool
def send(text: str, idempotency_key: str) -> dict:
    return {"sent": text}


@tool
def charge(amount: str, idempotency_key: str) -> dict:
    if CARDS:
        raise ToolError("the card was refused", error_code="refused", retryable=False)
    return {"charged": amount}


TOOLS = [read_order, read_price, set_price, drop_price, reserve, free, free_part, send, charge]
RETRY = {"max_attempts": 2, "base_s": 0.001, "max_s": 0.001, "jitter": False}
VIP = {"value": "$output.step_order.vip", "op": "==", "to": True}
STEPS: list[dict[str, Any]] = [
    {"step_id": "order", "name": "look", "tool": "read_order", "params": {"order": "$input.order"}, "kind": "read"},
    {
        "step_id": "first",
        "compute": {"pick": "$output.step_order.lines", "where": [{"value": "$item.sku", "op": "==", "to": "B2"}]},
    },
    {
        "step_id": "amount",
        "compute": {"round": {"percent": [115, {"sum": "$output.step_order.lines", "of": "$item.price"}]}, "places": 2},
    },
    {"step_id": "due", "compute": {"date_add": ["$output.step_first.due", "P3D"]}},
    {
        "step_id": "price",
        "tool": "set_price",
        "params": {"sku": "$output.step_first.sku", "price": "$output.step_amount"},
        "resource": "price:{$output.step_first.sku}",
        "rollback": {
            "tool": "set_price",
            "params": {"sku": "$output.step_first.sku", "price": "$before.price"},
            "retry": RETRY,
            "timeout_s": 5,
            "when_absent": {"tool": "drop_price", "params": {"sku": "$output.step_first.sku"}},
        },
    },
    {
        "step_id": "one",
        "tool": "reserve",
        "kind": "compensatable",
        "params": {"sku": "K9"},
        "retry": RETRY,
        "timeout_s": 5,
        "rollback": {
            "tool": "free_part",
            "params": {"part": "$item.part"},
            "each": "$output.step_one.parts",
            "then": [
                {"tool": "free_part", "params": {"part": "$item.part"}, "each": "$output.step_one.parts"},
                {"tool": "free", "params": {"ref": "$output.step_one.ref"}, "retry": RETRY, "timeout_s": 5},
            ],
        },
    },
    {"step_id": "lines", "tool": "reserve", "params": {"sku": "$item.sku"}, "each": "$output.step_order.lines"},
    {
        "step_id": "both",
        "tool": "reserve",
        "params": {"sku": "$item.sku"},
        "each": {
            "of": "$output.step_order.lines",
            "parallel": 2,
            "on_error": "collect",
            "when": [{"value": "$item.sku", "op": "!=", "to": "C3"}],
        },
    },
    {"step_id": "gift", "tool": "reserve", "params": {"sku": "GIFT"}, "when": [{"not": VIP}]},
    {"step_id": "extra", "tool": "read_price", "params": {"sku": "none"}, "on_error": "continue"},
    {
        "step_id": "checked",
        "tool": "reserve",
        "params": {"sku": "X1"},
        "depends_on": ["both", "extra"],
        "failed_when": [{"value": "$output.step_checked.ref", "op": "==", "to": "none"}],
        "fallback": [
            {
                "tool": "set_price",
                "params": {"sku": "X2", "price": "1"},
                "rollback": {"tool": "drop_price", "params": {"sku": "X2"}},
                "retry": RETRY,
                "timeout_s": 5,
            },
            {"queue_s": 60},
        ],
    },
    {"step_id": "stock", "tool": "read_order", "params": {"order": "s"}, "fallback": [{"cached_s": 60}]},
    {"step_id": "nap", "sleep": 0.001},
    {"step_id": "until", "sleep": {"until": "2026-01-01T00:00:00Z"}},
    {"step_id": "mail", "tool": "send", "kind": "irreversible", "params": {"text": "due {$output.step_due}"}},
    {
        "step_id": "paid",
        "wait": {
            "event": "paid",
            "key": "$input.order",
            "schema": {"type": "object"},
            "timeout_s": 86400,
            "on_timeout": {"value": {}},
            "on_late": {"tool": "free", "params": {"ref": "$input.order"}},
        },
        "rollback": {"tool": "free", "params": {"ref": "$input.order"}},
    },
    {
        "step_id": "reply",
        "wait": {
            "first": [
                {"event": "reply.mail", "key": "$input.order", "schema": {"type": "object"}},
                {"event": "reply.call", "key": "$input.order"},
            ],
            "timeout_s": 86400,
            "on_late": {"tool": "send", "params": {"text": "$output.step_reply.event"}},
        },
        "rollback": {"tool": "free", "params": {"ref": "$output.step_reply.key"}},
    },
    {
        "step_id": "guests",
        "wait": {
            "all": [{"event": "confirmed", "key": "ada"}, {"event": "confirmed", "key": "$input.order"}],
            "timeout_s": 86400,
            "on_timeout": {"value": []},
            "on_late": {"tool": "free", "params": {"ref": "$output.step_guests.key"}},
        },
        "rollback": {"tool": "free", "params": {"ref": "$input.order"}},
    },
    {
        "step_id": "approve",
        "ask": {
            "question": "Charge {$output.step_amount}?",
            "options": ["yes", "no"],
            "expires_s": 86400,
            "on_timeout": {"value": "no"},
        },
    },
    {"step_id": "why", "ask": {"question": "Why?", "schema": {"type": "string"}}},
    {
        "step_id": "trip",
        "saga": {
            "input": {"city": "$input.city"},
            "input_schema": {"type": "object"},
            "plan": {"steps": [{"step_id": "room", "tool": "reserve", "params": {"sku": "$input.city"}}]},
        },
    },
    {"step_id": "stay", "saga": {"template": "stay", "input": {"city": "$input.city"}}},
    {"step_id": "charge", "tool": "charge", "kind": "pivot", "params": {"amount": "$output.step_amount"}},
    {"step_id": "after", "tool": "send", "kind": "retriable", "params": {"text": "done"}},
]
PLAN: dict[str, Any] = {
    "task_id": "all",
    "name": "everything",
    "tags": ["customer:42"],
    "goal": "Use every kind of step once.",
    "input": {"order": "o-7", "city": "Lyon"},
    "assumptions": ["none"],
    "deadline_s": 864_000,
    "max_tool_calls": 1000,
    "on_failure": "compensate",
    "steps": STEPS,
    "finally": [{"step_id": "notice", "tool": "send", "params": {"text": "$end.status"}}],
}
STAY = {"input": {"city": "x"}, "steps": [{"step_id": "bed", "tool": "reserve", "params": {"sku": "$input.city"}}]}
#: What stands in a text only if a value was printed as Python has it.
RAW = ("None", "Stored(", "Wait(", "<saga_engine", "_ms=", "frozenset", "UndoCall")


@asynccontextmanager
async def everything() -> AsyncIterator[Coordinator]:
    PRICES.clear()
    CARDS.clear()
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await coordinator.templates.put("stay", STAY)
        yield coordinator


async def send_events(coordinator: Coordinator) -> None:
    """Everything that the plan waits for; one of a wait for ``first`` is enough."""
    for name, key in (("paid", "o-7"), ("reply.call", "o-7"), ("confirmed", "o-7"), ("confirmed", "ada")):
        await coordinator.send_event(name, key, {"amount": 5})


def used(value: Any) -> Iterator[tuple[str, Any]]:
    """Every name in a plan, with its value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            yield from used(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from used(inner)


def test_the_plan_uses_every_field_of_the_format() -> None:
    """A field, kind or word that the format gets has to be added here, and so goes through every reader."""
    forms = [
        each for room in (model, model_parts, step_bodies) for each in vars(room).values() if isinstance(each, type)
    ]
    fields = {
        field.alias or name
        for form in forms
        if issubclass(form, step_bodies.Model)
        for name, field in form.model_fields.items()
    }
    found = list(used(PLAN))
    assert fields - {name for name, _ in found} == set()
    assert set(BUILTINS) <= {name for name, _ in found}
    kinds = {kind for given in get_args(model.Step.model_fields["kind"].annotation) for kind in get_args(given)}
    assert kinds - {value for name, value in found if name == "kind"} == set()
    jsonschema_rs.validator_for(plan_schema()).validate(PLAN)
    # A model needs leave for every word but that of a child, which it never gets.
    assert set(BUILTINS) - {name for feature in FEATURES.values() for name in feature.fields} == {"saga"}


async def test_what_is_told_before_a_plan_runs() -> None:
    """It is valid; each kind of fault is simulated somewhere; the drawing and the console's page have every step."""
    async with everything() as coordinator:
        assert coordinator.check(PLAN) == []
        rehearsal = await coordinator.simulate(PLAN)
        assert {each.fault for each in rehearsal.scenarios} == set(get_args(FaultKind))
        assert rehearsal.goes_well.status == "COMPLETED"
        keys = {step["step_id"] for step in [*STEPS, *PLAN["finally"]]} | {
            f"{of}[{at}]" for of in ("lines", "both") for at in (0, 1)
        }
        assert {str(each.step_id) for each in rehearsal.scenarios} == keys
        halves = {
            each.half_undone for each in rehearsal.scenarios if each.step_id == "one" and each.direction == COMPENSATE
        }
        assert {half.done for each in halves for half in each} == {1, 2, 3, 4}
        inline = {**PLAN, "steps": [step for step in STEPS if step["step_id"] != "stay"]}
        text = mermaid(compile_plan(load_plan(inline), coordinator.tools))
        assert all(f'"{key}' in text for key in keys - {"stay"} if "[" not in key)
        assert "only if its conditions hold" in text
        assert "or: set_price" in text
        assert "wait for the first of<br/>reply.mail, key #36;input.order<br/>reply.call" in text
        assert "wait for all of<br/>confirmed, key ada" in text
        assert not [raw for raw in RAW if raw in text]
        browser = Browser(create_app(coordinator, ServerSettings(auth="none")))
        page = await browser.send(await browser.page("/ui/plan"), "/ui/plan", plan=json.dumps(inline), do="check")
        assert all(f'id="row-{key}"' in page.text for key in keys - {"stay"})


async def test_a_saga_of_all_kinds_is_told_whole() -> None:
    """Text, history, trace, preview of a cancel, undo and fork of one saga know every step, in words."""
    async with everything() as coordinator:
        await coordinator.submit(PLAN)
        await send_events(coordinator)
        for step, answer in (("approve", "yes"), ("why", "answer")):
            result = await coordinator.resume("all")
            assert (result.status, result.body["questions"][0]["step_id"]) == ("ESCALATED", step)
            if step == "why":
                text = "\n".join(whole_lines(result.body, Settings()))
                assert "report so far:" in text
                assert "11 of 16 steps in effect" in text
                assert "step approve: an operator answered" in text
                page = await Browser(create_app(coordinator, ServerSettings(auth="none"))).page("/ui/sagas/all/cancel")
                undone = page[page.index('id="list-undoes"') : page.index('id="list-remains"')]
                order = ["guests", "reply", "paid", "checked", "both[1]", "lines[1]", "lines[0]", "one", "price"]
                places = [undone.index(f"<b>{key}</b>") for key in order]
                assert places == sorted(places)
                assert "<b>mail</b>" in page[page.index('id="list-remains"') :]
            output = "because" if answer == "answer" else None
            await coordinator.resolve("all", step, answer, output=output)
        result = await coordinator.resume("all")
        assert (result.status, result.body["report"]["clean"]) == ("COMPLETED", True)
        text = "\n".join(whole_lines(result.body, Settings()))
        rows = table(["SEQ", "TIME", "RECORD", "STEP", "DETAILS"], Rows().of(await coordinator.history("all")))
        assert not [raw for raw in RAW if raw in text + rows]
        previewed = await coordinator.fork("all", run_from="charge", new_id="again", dry_run=True)
        reused = {record.step for record in previewed.plan.taken}
        assert {"mail", "paid", "reply", "guests", "trip", "stay", "lines", "both"} <= reused
        assert set(previewed.plan.left) == {"charge", "after", "notice"}


async def test_what_fails_at_the_end_undoes_all_kinds() -> None:
    """Everything that has an undo is undone, every call of it; what is irreversible is named."""
    async with everything() as coordinator:
        CARDS.append("refused")
        await coordinator.submit(PLAN)
        await send_events(coordinator)
        await coordinator.resume("all")
        await coordinator.resolve("all", "approve", "yes")
        await coordinator.resume("all")
        await coordinator.resolve("all", "why", "answer", output="because")
        result = await coordinator.resume("all")
        report = result.body["report"]
        assert (result.status, report["left_in_place"]) == ("WAIVED", ["mail"])
        calls = ["price", "one", "lines[0]", "lines[1]", "both[0]", "both[1]", "checked"]
        undone = [*calls, "paid", "reply", "guests", "trip", "stay"]
        assert sorted(report["compensated"]) == sorted(undone)
        step = next(each for each in result.body["steps"] if each["step_id"] == "one")
        assert [call["status"] for call in step["compensation"]["calls"]] == ["COMPENSATED"] * 5
        assert PRICES == {}
        assert not [raw for raw in RAW if raw in "\n".join(whole_lines(result.body, Settings()))]


if __name__ == "__main__":
    pytest.main([__file__])
