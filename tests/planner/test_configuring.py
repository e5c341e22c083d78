"""Flags over environment over saga.toml over defaults; a typing error is an error, and keys are in no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, settings
from saga_engine.api.plans import advising
from saga_engine.api.temporal import serve
from saga_engine.errors import PlannerUnavailable, SettingInvalid
from saga_engine.planner.planning import Planning
from saga_engine.planner.settings import PlannerSettings, planner_settings


def test_the_order_of_sources() -> None:
    """Each source overrules the next; what nobody says is the default."""
    table = {"model": "a:toml", "rounds": 7, "max_tokens": 5000, "secrets": ["A"]}
    found = planner_settings(
        table,
        {"model": "a:flag"},
        environ={"SAGA_MODEL": "a:env", "SAGA_MODEL_ROUNDS": "5", "SAGA_MODEL_API_KEY": " k\n"},
    )
    assert (found.model, found.rounds, found.max_tokens, found.total_s) == ("a:flag", 5, 5000, 300.0)
    assert (found.api_key, found.secrets) == ("k", ("A",))
    assert planner_settings({}, environ={}) == PlannerSettings()


def test_every_variable_is_read() -> None:
    """SAGA_MODEL and its companions."""
    environ = {
        "SAGA_MODEL": "a:b",
        "SAGA_MODEL_BASE_URL": "http://x",
        "SAGA_MODEL_OUTPUT": "text",
        "SAGA_MODEL_TOTAL_S": "5.5",
        "SAGA_MODEL_MAX_REQUESTS": "2",
        "SAGA_MODEL_MAX_TOKENS": "300",
        "SAGA_MODEL_MAX_COST_USD": "0.5",
        "SAGA_MODEL_MAX_OUTPUT_TOKENS": "99",
        "SAGA_MODEL_ROUNDS": "1",
    }
    found = planner_settings({}, environ=environ)
    assert (found.model, found.base_url, found.output, found.total_s, found.max_output_tokens) == (
        "a:b",
        "http://x",
        "text",
        5.5,
        99,
    )
    allowed = found.allowance()
    assert (allowed.requests, allowed.tokens, allowed.cost_usd, allowed.seconds) == (2, 300, 0.5, 5.5)


@pytest.mark.parametrize(
    ("table", "environ", "word"),
    [
        ({"modle": "a:b"}, {}, "modle"),
        ({"api_key": "sk-1"}, {}, "environment"),
        ({"rounds": 0}, {}, "rounds"),
        ({"rounds": 2.5}, {}, "rounds"),
        ({"rounds": True}, {}, "rounds"),
        ({"total_s": float("nan")}, {}, "total_s"),
        ({"total_s": float("inf")}, {}, "total_s"),
        ({"max_cost_usd": -1}, {}, "max_cost_usd"),
        ({"output": "json"}, {}, "output"),
        ({"output": ["tool"]}, {}, "output"),
        ({"semantic": "ask"}, {}, "semantic"),
        ({"model": 3}, {}, "model"),
        ({"base_url": "localhost:8000/v1"}, {}, "base_url"),
        ({"base_url": "http://"}, {}, "base_url"),
        ({"base_url": "http://[::1/v1"}, {}, "base_url"),
        ({"base_url": "http://host:99999/v1"}, {}, "base_url"),
        ({}, {"SAGA_MODEL_BASE_URL": "ftp://host/v1"}, "base_url"),
        ({"secrets": "A"}, {}, "secrets"),
        ({"prepared_plans": {"a": 1}}, {}, "prepared_plans"),
        ({"prepared_plans": "a.json"}, {}, "prepared_plans"),
        ({}, {"SAGA_MODEL_ROUNDS": "many"}, "SAGA_MODEL_ROUNDS"),
        ({}, {"SAGA_MODEL_MAX_TOKENS": "1e5"}, "SAGA_MODEL_MAX_TOKENS"),
        ({}, {"SAGA_MODEL_OUTPUT": "xml"}, "output"),
    ],
)
def test_what_has_no_meaning_is_refused(table: dict[str, Any], environ: dict[str, str], word: str) -> None:
    """Never a silent default."""
    with pytest.raises(SettingInvalid) as error:
        planner_settings(table, environ=environ)
    assert word in str(error.value)


def test_the_table_of_the_file(tmp_path: Path) -> None:
    """``[planner]`` in saga.toml, with paths that count from its folder."""
    (tmp_path / "saga.toml").write_text(
        '[planner]\nmodel = "ollama:qwen3"\n[planner.prepared_plans]\ntrip = "plans/trip.json"'
    )
    found = settings.load({}, cwd=tmp_path, environ={})
    made = planner_settings(found.planner, base=found.file_base, environ={})
    assert made.model == "ollama:qwen3"
    assert made.prepared_plans == {"trip": tmp_path / "plans" / "trip.json"}


def test_which_prepared_plan(tmp_path: Path) -> None:
    """The intent that is named; else an intent or a plan's own goal that is exactly this goal; else none."""
    (tmp_path / "trip.json").write_text('{"goal": "Go to Rome.", "steps": [{"step_id": 1, "tool": "t"}]}')
    (tmp_path / "bad.json").write_text("{")
    made = PlannerSettings(prepared_plans={"bad": tmp_path / "bad.json", "trip": tmp_path / "trip.json"})

    def intent(goal: str, named: str | None = None) -> str | None:
        chosen = Planning(None, made).prepared(goal, named)
        return None if chosen is None else chosen[0]

    assert [intent("anything", "bad"), intent(" trip "), intent("Go to Rome."), intent("Go to Rome")] == [
        "bad",
        "trip",
        "trip",
        None,
    ]
    with pytest.raises(SettingInvalid, match="nosuch"):
        intent("x", "nosuch")


class _Nameless:
    """Could be asked, and nobody could tell which model it is."""

    async def ask(self, request: Any) -> Any:
        """Nothing."""


class _Silent:
    model = "m"


@pytest.mark.parametrize("door", ["Coordinator.open", "Temporal's worker", "Planning"])
@pytest.mark.parametrize(
    ("given", "lacks"),
    [({"planner": _Nameless()}, "model"), ({"planner": _Silent()}, "ask"), ({"advisor": _Silent()}, "advise")],
    ids=["planner without a name", "planner without a question", "no advisor"],
)
async def test_what_cannot_be_asked_is_refused_at_once(door: str, given: dict[str, Any], lacks: str) -> None:
    """An object that is no planner opens nothing: no saga finds out when it needs another way."""
    with pytest.raises(PlannerUnavailable, match=lacks):
        if door == "Coordinator.open":
            async with Coordinator.open("memory://", [], **given):
                pass
        elif door == "Planning":
            Planning(**given) if "planner" in given else advising(None, given["advisor"], None)
        else:
            await serve("temporal://127.0.0.1:1", [], **given)
