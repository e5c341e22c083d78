"""The page about the format and the schema say what the program does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from saga_engine.plan.compiler import check_plan
from saga_engine.plan.model import Fallback, Plan, Step, load_plan
from saga_engine.plan.model_parts import Retry, Rollback, UndoCalls
from saga_engine.plan.problems import CODES
from saga_engine.plan.schema import plan_schema
from saga_engine.plan.step_bodies import Ask, OtherAnswer
from tests.plan.catalog import TRAVEL

ROOT = Path(__file__).parents[2]
PAGE = "\n".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("plan-format", "plan-steps"))
REFERENCE = "\n".join(
    (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8") for name in ("errors", "plan-schema")
)
_ROW = r"^\| `([a-z-]+)`(?:, `[a-z-]+`)* \|"
PLANS = re.findall(r"^```json plan\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_table_of_codes_is_the_programs() -> None:
    """Each code has one row, and each row is a code; warnings have a table of their own."""
    problems, warnings = REFERENCE.split("## Problems of a plan")[1].split("## Warnings of a plan")
    assert sorted(re.findall(_ROW, problems, re.MULTILINE)) == sorted(CODES)
    assert not CODES & set(re.findall(_ROW, warnings.split("\n## ")[0], re.MULTILINE))


def test_every_field_is_explained() -> None:
    """The reference names every field of every object of the format."""
    models = (Plan, Step, Rollback, UndoCalls, Retry, Fallback, Ask, OtherAnswer)
    fields = {field.alias or name for model in models for name, field in model.model_fields.items()}
    assert {name for name in fields if f"`{name}`" not in REFERENCE} == set()


@pytest.mark.parametrize("text", PLANS)
def test_the_plans_of_the_page_load_and_check(text: str) -> None:
    """Every example can be copied: it loads, fits the schema, and has no problem with the tools it names."""
    plan = load_plan(text)
    assert check_plan(plan, TRAVEL) == []
    jsonschema_rs.validate(plan_schema(), json.loads(text))


def test_the_page_has_examples() -> None:
    """The test above has something to test."""
    assert len(PLANS) >= 4


def test_the_travel_plan_fits_the_schema_byte_for_byte() -> None:
    """The plan of the article validates as it is."""
    source = ROOT / "examples" / "booking" / "travel_request_001.json"
    jsonschema_rs.validate(plan_schema(), json.loads(source.read_text()))
    load_plan(source)


def test_each_caller_has_a_schema_of_its_own() -> None:
    """It is derived once in a process, and what a caller does to its copy changes no other one."""
    plan_schema()["properties"].clear()
    assert plan_schema()["properties"]


def test_the_schema_is_a_schema_and_its_example_fits() -> None:
    """The schema is valid by its own draft, and its example is a plan that loads."""
    schema = plan_schema()
    jsonschema_rs.meta.validate(schema)
    assert schema["$schema"].endswith("2020-12/schema")
    for example in schema["examples"]:
        jsonschema_rs.validate(schema, example)
        assert load_plan(example).task_id


@pytest.mark.parametrize(
    "plan",
    [
        {"steps": []},
        {"steps": [{"step_id": 1, "tool": "t", "resource": 1}]},
        {"steps": [{"step_id": 1, "tool": "t", "fallback": []}]},
        {"steps": [{"step_id": 1, "tool": "t", "fallback": "x"}]},
        {"steps": [{"step_id": 1, "tool": "t"}], "on_failure": "explode"},
        {"steps": [{"step_id": "a b", "tool": "t"}]},
        {"steps": [{"step_id": 1, "tool": "t", "parms": {}}]},
    ],
)
def test_the_schema_refuses_what_loading_refuses(plan: Any) -> None:
    """Fields that are not supported yet are not in the schema, and the patterns are."""
    assert not jsonschema_rs.is_valid(plan_schema(), plan)


def test_every_field_of_the_schema_has_a_description() -> None:
    """A person or a model that reads only the schema learns what each field means."""
    schema = plan_schema()
    objects = [schema, *schema["$defs"].values()]
    assert [
        name for node in objects for name, field in node["properties"].items() if not field.get("description")
    ] == []
