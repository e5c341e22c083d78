"""A plan with every kind of step, through the commands that read plans and sagas."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator
from tests.cli.conftest import Cli, Ran
from tests.support import every_kind
from tests.support.every_kind import PLAN, RAW, STAY, STEPS

WITH = ("--tools", str(Path(every_kind.__file__)))
KEYS = [str(step["step_id"]) for step in [*STEPS, *PLAN["finally"]]]


def told(ran: Ran, code: int = 0, keys: Iterable[str] = KEYS) -> str:
    """What it printed, which names each step and shows nothing as Python has it."""
    text = ran.out + ran.err
    assert ran.code == code, text
    assert "Traceback" not in text
    assert not [raw for raw in RAW if raw in text]
    assert [key for key in keys if not re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text)] == []
    return text


@pytest.fixture
def inline(cli: Cli) -> str:
    """The plan without its template: what reads no store."""
    plan = {**PLAN, "steps": [step for step in STEPS if step["step_id"] != "stay"]}
    (cli.folder / "inline.json").write_text(json.dumps(plan))
    return "inline.json"


def test_what_is_told_of_the_plan(cli: Cli, inline: str) -> None:
    """It is valid, each step is simulated and drawn, and the schema of the command is that which it fits."""
    keys = [key for key in KEYS if key != "stay"]
    told(cli("check", inline, *WITH), keys=())
    calls = [key for key in keys if key not in ("lines", "both")]
    told(cli("simulate", inline, *WITH, "--json"), keys=[*calls, "lines[1]", "both[0]"])
    for form in ("mermaid", "dot"):
        assert "reply.call" in told(cli.look("graph", inline, "--format", form), keys=keys)
    schema = cli.look("schema")
    assert schema.code == 0
    assert set(schema.json["$defs"]["Step"]["properties"]) >= {"wait", "each", "compute", "saga"}


def answered(cli: Cli, act: Callable[[Coordinator], Any]) -> None:
    """Do something in the folder's store without a command."""

    async def within() -> None:
        async with Coordinator.open(f"embedded://{cli.folder}/.saga", every_kind.TOOLS, on_escalation=()) as engine:
            await act(engine)

    asyncio.run(within())


def test_what_is_told_of_its_saga(cli: Cli) -> None:
    """It is submitted, answered, shown, told record by record, exported and replayed, and a fork of it is previewed."""
    (cli.folder / "all.json").write_text(json.dumps(PLAN))

    async def events(engine: Coordinator) -> None:
        await engine.templates.put("stay", STAY)
        for name, key in (("paid", "o-7"), ("reply.call", "o-7"), ("confirmed", "o-7"), ("confirmed", "ada")):
            await engine.send_event(name, key, {"amount": 5})

    answered(cli, events)
    assert "approve" in told(cli("submit", "all.json", *WITH), 4, keys=())
    assert "why" in told(cli("resolve", "all", "approve", "yes", *WITH), 4, keys=())
    told(cli("resolve", "all", "why", "answer", "--output", '"because"', *WITH), keys=())
    told(cli.look("show", "all"))
    told(cli.look("show", "all", "--json"))
    told(cli.look("history", "all"))
    assert "reply.call" in told(cli.look("graph", "all"))
    told(cli("trace", "export", "all", "-o", "all.jsonl", *WITH), keys=())
    # Its lines have the fields of records by their names, so a time is "due_ms=…" there.
    replayed = cli("trace", "replay", "all.jsonl")
    assert replayed.out.splitlines()[-1] == "same: every decision is the same; COMPLETED"
    told(replayed._replace(out=replayed.out.replace("_ms=", " ")))
    previewed = cli("fork", "all", "--from", "charge", "--id", "again", "--dry-run", *WITH)
    skipped = {"gift"}  # its condition did not hold: nothing of it is reused, runs or is left
    listed = told(previewed, keys=[key for key in KEYS if key not in skipped])
    assert {"mail", "paid", "reply", "guests", "trip"} <= set(listed.split())
