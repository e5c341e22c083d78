"""Policy, secrets, limits and options of tools in the files of settings hold for every way into the engine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.adapters.sync import sync_session
from saga_engine.api import governing
from saga_engine.errors import CallFailed, PlanInvalid, SagaError, SettingInvalid
from saga_engine.settings import load

ASKS = """
[[policy.rules]]
name = "large payments"
tools = ["pay"]
when = [{ param = "amount", op = ">", value = 1000 }]
verdict = "ask"
"""
DENIES = ASKS.replace("ask", "deny").replace("large", "enormous")
PLAN: dict[str, Any] = {"steps": [{"step_id": 1, "tool": "pay", "params": {"amount": 5000}}]}


class Bank:
    """What reached the tools."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.said: list[str] = []

        @tool(undo="refund")
        def pay(amount: int, idempotency_key: str) -> dict[str, str]:
            """Pay."""
            self.paid.append(amount)
            return {"payment": "P"}

        @tool
        def refund(payment: str, idempotency_key: str) -> None:
            """Refund."""

        @tool(effect="read")
        def say(text: str) -> str:
            """Say."""
            self.said.append(text)
            return "said"

        self.tools = [pay, refund, say]


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of an agent, and beside it the place of its operator."""
    for name in ("agent", "operator"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "agent")
    return tmp_path / "agent"


def write(folder: Path, text: str) -> Path:
    (folder / "saga.toml").write_text(text)
    return folder / "saga.toml"


@pytest.fixture
def operators(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's folder, whose file denies large payments."""
    found = folder.parent / "operator"
    monkeypatch.setenv("SAGA_CONFIG", str(write(found, DENIES)))
    return found


async def run(bank: Bank, plan: dict[str, Any] = PLAN, **options: Any) -> str:
    async with Coordinator.open("memory://", bank.tools, **options) as coordinator:
        return (await coordinator.run(plan)).status


def timeout_of(coordinator: Coordinator, name: str) -> float | None:
    spec = coordinator.tools.spec(name)
    assert spec is not None
    return spec.timeout_s


async def test_the_policy_of_the_folder_holds_for_a_program(bank: Bank, folder: Path) -> None:
    """A program that says nothing of settings asks where ``saga submit`` asks."""
    write(folder, ASKS)
    assert await run(bank) == "ESCALATED"
    assert bank.paid == []


async def test_a_program_can_only_add_to_the_policy(bank: Bank, folder: Path) -> None:
    """A call must pass the file's policy and the program's; the table of the file itself is no second policy."""
    write(folder, ASKS)
    assert await run(bank, policy={"default": "allow"}) == "ESCALATED"
    assert await run(bank, policy=load({}).policy) == "ESCALATED"
    denies = {"rules": [{"name": "none", "tools": ["pay"], "verdict": "deny"}]}
    small = {"steps": [{"step_id": 1, "tool": "pay", "params": {"amount": 5}}]}
    assert await run(bank, small, policy=denies) == "COMPENSATED"
    assert bank.paid == []


async def test_secrets_limits_and_options_of_the_folder_hold(
    bank: Bank, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the files do not allow is refused before a saga starts, whatever the program allows."""
    monkeypatch.setenv("TOKEN", "hush")
    write(
        folder,
        "[secrets]\nallow = {}\n[limits]\nmax_steps = 1\n[tools.refund]\ntimeout_s = 7\n[tools.other]\ntimeout_s = 5",
    )
    told: dict[str, Any] = {"steps": [{"step_id": 1, "tool": "say", "params": {"text": "$secret.TOKEN"}}]}
    with pytest.raises(PlanInvalid, match="TOKEN"):
        await run(bank, told, secrets={"say": ["TOKEN"]})
    two = {"steps": [{"step_id": n, "tool": "say", "params": {"text": str(n)}} for n in (1, 2)]}
    with pytest.raises(PlanInvalid, match="step"):
        await run(bank, two, limits={"max_steps": 9})
    async with Coordinator.open("memory://", bank.tools, tool_options={"pay": {"timeout_s": 3}}) as coordinator:
        assert [timeout_of(coordinator, name) for name in ("refund", "pay")] == [7, 3]

        @tool
        def other() -> None:
            """Registered after opening."""

        coordinator.register(other)
        assert timeout_of(coordinator, "other") == 5
    assert bank.said == []


async def test_none_is_an_explicit_word(bank: Bank, folder: Path) -> None:
    """A program that wants no file of a folder says so; other settings take that file's place."""
    write(folder, ASKS)
    assert await run(bank, settings=None) == "COMPLETED"
    (folder / "elsewhere").mkdir()
    write(folder / "elsewhere", DENIES)
    other = load({}, cwd=folder / "elsewhere", environ={})
    assert await run(bank, settings=other) == "COMPENSATED"
    assert bank.paid == [5000]


@pytest.mark.parametrize("choice", ["found", "none", "given"])
async def test_nothing_wins_over_the_operators_file(bank: Bank, operators: Path, choice: str) -> None:
    """Whatever a program says of settings, the operator's policy holds."""
    choices: dict[str, Any] = {"found": "found", "none": None, "given": load({}, environ={})}
    assert await run(bank, settings=choices[choice], policy={"default": "allow"}) == "COMPENSATED"
    assert bank.paid == []


async def test_the_operators_options_come_last(bank: Bank, folder: Path, operators: Path) -> None:
    """An option of a tool in the operator's file is neither the folder's nor the program's to change."""
    write(folder, "[tools.pay]\ntimeout_s = 2")
    write(operators, "[tools.pay]\ntimeout_s = 9")
    async with Coordinator.open("memory://", bank.tools, tool_options={"pay": {"timeout_s": 3}}) as coordinator:
        assert timeout_of(coordinator, "pay") == 9


def test_a_blocking_agent_is_no_way_around(bank: Bank, operators: Path) -> None:
    """``sync_session`` opens the engine by the same door."""
    with pytest.raises(SagaError), sync_session("s", store="memory://", tools=bank.tools) as session:
        session.call("pay", amount=5000)
    assert bank.paid == []


async def test_a_session_is_no_way_around(bank: Bank, operators: Path) -> None:
    """An agent's own call meets the policy of the files, too."""
    async with Coordinator.open("memory://", bank.tools, settings=None) as coordinator:
        with pytest.raises(CallFailed):
            async with coordinator.session("s") as session:
                await session.call("pay", amount=5000)
    assert bank.paid == []


async def test_the_file_that_holds_is_named_once(
    bank: Bank, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that a program did not name is named in its log, with its path."""
    monkeypatch.setattr(governing, "_named", set())
    path = write(folder, ASKS)
    with caplog.at_level(logging.INFO, "saga_engine"):
        for _ in range(2):
            await run(bank)
    assert [record.message for record in caplog.records if str(path) in record.message] == [
        f"[policy] of {path}: in force here"
    ]


async def test_a_wrong_file_opens_nothing(bank: Bank, folder: Path, operators: Path) -> None:
    """A typing error in a file never disables a guard."""
    write(operators, "[saga]\nqueue_limit = 'many'")
    with pytest.raises(SettingInvalid, match="queue_limit"):
        await run(bank, settings=None)
    write(operators, "[polcy]")
    with pytest.raises(SettingInvalid, match="polcy"):
        await run(bank, settings=None)
