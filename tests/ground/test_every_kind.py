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

from saga_engine import Coordinator
from saga_engine.analysis.simulator import FaultKind
from saga_engine.cli.history import Rows
from saga_engine.cli.output import table
from saga_engine.cli.render import whole_lines
from saga_engine.core.effects import COMPENSATE
from saga_engine.plan import model, model_parts, step_bodies, words
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.diagram import mermaid
from saga_engine.plan.model import load_plan
from saga_engine.plan.schema import plan_schema
from saga_engine.planner.features import FEATURES
from saga_engine.server.app import create_app
from saga_engine.server.settings import ServerSettings
from saga_engine.settings import Settings
from tests.server.console.page_reader import Browser
from tests.support.every_kind import CARDS, PLAN, PRICES, RAW, STAY, STEPS, TOOLS


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
    written = {*words.BUILTINS, *words.names()}
    assert written <= {name for name, _ in found}
    kinds = {kind for given in get_args(model.Step.model_fields["kind"].annotation) for kind in get_args(given)}
    assert kinds - {value for name, value in found if name == "kind"} == set()
    jsonschema_rs.validator_for(plan_schema()).validate(PLAN)
    # A model needs leave for every word but that of a child, which it never gets.
    assert written - {name for feature in FEATURES.values() for name in feature.fields} == {"saga"}


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
