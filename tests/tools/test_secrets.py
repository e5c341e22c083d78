"""Which secrets plans may pass to which tools, and how params with secrets are checked."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from saga_engine import Coordinator, RetryPolicy, tool
from saga_engine.errors import PlanInvalid, SettingInvalid
from saga_engine.tools.registry import ToolRegistry
from saga_engine.tools.secrets import allowed_of

ONCE = RetryPolicy(max_attempts=1)
SEEN: list[str] = []


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    monkeypatch.setenv("PAY_TOKEN", "tok_7")
    monkeypatch.setenv("DATABASE_URL", "postgres://ada:s3cr3t@db")


@tool(undo="refund", retry=ONCE)
async def pay(token: Annotated[str, Field(pattern="^tok_[0-9]+$", max_length=6)], note: str = "") -> dict:
    SEEN.append(f"pay {token} {note}")
    return {"ref": "r"}


@tool
async def refund(ref: str, token: str = "") -> dict:
    SEEN.append(f"refund {ref} {token}")
    return {}


@tool(effect="read", retry=ONCE)
async def fetch(url: str) -> dict:
    SEEN.append(f"fetch {url}")
    return {}


TOOLS = [pay, refund, fetch]
ALLOW = {"pay": ["PAY_TOKEN"]}


def step(tool: str, **fields: Any) -> dict[str, Any]:
    return {"steps": [{"step_id": 1, "tool": tool, **fields}]}


PAY = {"token": "$secret.PAY_TOKEN"}
REFUSED = [
    (step("fetch", params={"url": "http://x/{$secret.PAY_TOKEN}"}), "$.steps[0].params.url"),
    (step("pay", params={"token": "$secret.DATABASE_URL"}), "$.steps[0].params.token"),
    (step("pay", params=PAY, resource="{$secret.DATABASE_URL}"), "$.steps[0].resource"),
    (
        step("pay", params=PAY, rollback={"tool": "refund", "params": {"ref": "$secret.PAY_TOKEN"}}),
        "$.steps[0].rollback.params.ref",
    ),
    (
        step("pay", params=PAY, fallback={"tool": "fetch", "params": {"url": "$secret.PAY_TOKEN"}}),
        "$.steps[0].fallback[0].params.url",
    ),
    (step("fetch", params={"url": "x"}, fallback={"tool": "fetch", "params": {"url": "{$secret.HOME}"}}),
     "$.steps[0].fallback[0].params.url"),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "path"), REFUSED)
async def test_a_plan_gets_a_secret_only_for_a_tool_that_may_have_it(plan: dict[str, Any], path: str) -> None:
    """Everywhere in a plan: params, resource, rollback and fallback. Nothing is called."""
    async with Coordinator.open("memory://", TOOLS, secrets=ALLOW) as engine:
        with pytest.raises(PlanInvalid) as refused:
            await engine.run(plan)
        assert ("secret-not-allowed", path) in [(each.code, each.path) for each in refused.value.problems]
    assert SEEN == []


async def test_what_is_allowed_is_passed_also_to_the_registered_undo() -> None:
    """The tool gets the value, and so does the undo that its registration names."""
    cancel = {"step_id": 2, "tool": "fetch", "params": {"url": "{$output.step_1.none}"}}
    plan = {"steps": [*step("pay", params=PAY)["steps"], cancel]}
    async with Coordinator.open("memory://", TOOLS, secrets=ALLOW) as engine:
        assert (await engine.run(plan)).status == "COMPENSATED"
    assert SEEN == ["pay tok_7 ", "refund r tok_7"]


async def test_in_python_as_on_the_command_line_no_secret_is_allowed_by_silence() -> None:
    """A program that says nothing gives plans no variable of its environment; it allows them by name, or all."""
    asked = step("fetch", params={"url": "$secret.DATABASE_URL"})
    for given in ({}, {"secrets": None}, {"secrets": {}}, {"secrets": {"fetch": ["OTHER"]}}):
        async with Coordinator.open("memory://", TOOLS, **given) as engine:
            with pytest.raises(PlanInvalid):
                await engine.run(asked)
    for allowed in ({"fetch": ["DATABASE_URL"]}, {"*": ["*"]}):
        async with Coordinator.open("memory://", TOOLS, secrets=allowed) as engine:
            assert (await engine.run(asked)).completed


@pytest.mark.parametrize(("value", "calls"), [("tok_7", 1), ("tok_seven", 0), ("tok_77777", 0)])
async def test_a_schema_checks_the_secret_and_not_its_marker(monkeypatch: Any, value: str, calls: int) -> None:
    """`pattern` and `maxLength` hold for the value; what does not fit is not called, and is not told."""
    monkeypatch.setenv("PAY_TOKEN", value)
    bound = {"token": "$secret.PAY_TOKEN", "note": "{$output.step_0.x}"}
    first = {"step_id": 0, "tool": "look"}
    plan = {"steps": [first, *step("pay", params=bound)["steps"]]}

    @tool(effect="read")
    async def look() -> dict:
        return {"x": 1}

    async with Coordinator.open("memory://", [*TOOLS, look], secrets={"pay": ["PAY_TOKEN"]}) as engine:
        outcome = await engine.run(plan)
        assert len(SEEN) == calls
        assert outcome.status == ("COMPLETED" if calls else "COMPENSATED")
        if not calls:
            error = outcome.body["steps"][1]["error"]
            assert error["error_code"] == "params_invalid"
            assert value not in str(await engine.history(outcome.saga_id))


@pytest.mark.parametrize(
    "table",
    [{"alow": {}}, {"allow": []}, {"allow": {"pay": "X"}}, {"allow": {"pay": [1]}}, {"allow": {"a b": ["X"]}},
     {"allow": {"pay": ["A-B"]}}],
)  # fmt: skip
def test_a_table_that_makes_no_sense_is_refused(table: dict[str, Any]) -> None:
    """A typing error must not leave a plan with more, or with less, than was meant."""
    with pytest.raises(SettingInvalid):
        allowed_of(table, "saga.toml")


def test_globs_add_up() -> None:
    """A tool has what each glob that fits it gives; tools that are registered later are restricted as well."""
    registry = ToolRegistry(pay, refund)
    registry.allow_secrets(allowed_of({"allow": {"pay": ["A"], "p*": ["B"], "refund": ["*"]}}, "saga.toml"))
    registry.add(fetch)
    found = {name: spec.secrets for name in registry.names() if (spec := registry.spec(name))}
    assert found == {"pay": ("A", "B"), "refund": ("*",), "fetch": ()}
