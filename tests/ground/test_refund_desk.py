"""The example of the refund desk does what its page says."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.tools.loader import load_tools

FOLDER = Path(__file__).parents[2] / "examples" / "refund_desk"
PLAN = json.loads((FOLDER / "refund.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("order", "answer", "status", "refunds", "decision"),
    [
        ("A-17", "", "COMPLETED", {"A-17/1": "paid", "A-17/3": "paid"}, "not needed"),
        ("B-20", "yes", "COMPLETED", {f"B-20/{line}": "paid" for line in (1, 2, 3)}, "yes"),
        ("B-20", "no", "COMPLETED", {}, "no"),
        ("C-05", "", "COMPENSATED", {"C-05/1": "void", "C-05/2": "void"}, "not needed"),
    ],
)
async def test_the_refund_desk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    order: str,
    answer: str,
    status: str,
    refunds: dict[str, str],
    decision: str,
) -> None:
    """What came back is refunded line by line, above 100 only if a person says so, and a notice tells the end."""
    monkeypatch.setenv("REFUND_SHOP", str(tmp_path / "shop.db"))
    tools: list[Any] = load_tools("tools.py", FOLDER)
    async with Coordinator.open("memory://", tools=tools) as coordinator:
        outcome = await coordinator.run(PLAN, input={"order": order}, saga_id="case")
        if answer:
            assert [question["kind"] for question in outcome.body["questions"]] == ["ask"]
            outcome = await coordinator.resolve("case", "approve", answer)
    assert (outcome.status, outcome.report["clean"]) == (status, True)
    desk = importlib.import_module("shop").Shop(tmp_path / "shop.db")  # its folder is on the path: the tools are there
    assert desk.refunds() == refunds
    paid = list(refunds.values()).count("paid")
    assert desk.notices() == [{"order": order, "status": status, "decision": decision, "refunds": paid}]
