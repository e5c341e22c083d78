"""A sensitive value comes back in other words: in a name, an error, an output, through a child. No door shows it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.gateway.report import status_of
from saga_engine.server.app import create_app
from saga_engine.server.settings import ServerSettings
from tests.server.console.page_reader import Browser
from tests.server.harness import serving

CARD = "4111-1111-1111-1111"
#: What was told of the saga: to observers, and to the hook that operators hear.
TOLD: list[Any] = []


@tool(undo="refund", sensitive=["card"])
def pay(card: str) -> dict[str, Any]:
    return {"echo": f"charged {card}", "parts": [{"part": "a"}, {"part": "b"}]}


@tool
def refund(part: str) -> None:
    """Refund."""


@tool(undo="refund", retry=RetryPolicy(max_attempts=1))
def breaks(why: str) -> None:
    raise ToolError(f"refused: {why}", error_code="refused", suggestion=f"not {why}", retryable=False)


TOOLS = [pay, refund, breaks]
PAY: dict[str, Any] = {"step_id": "pay", "name": f"charge {CARD}", "tool": "pay", "params": {"card": CARD}}
FAIL: dict[str, Any] = {
    "step_id": "b",
    "tool": "breaks",
    "params": {"why": "$output.step_pay.echo"},
    "name": f"say {CARD}",
}
SEVERAL = {"each": "$output.step_pay.parts", "tool": "refund", "params": {"part": "$item.part"}}
ASK = {"step_id": "ask", "depends_on": ["pay"], "ask": {"question": f"Is {CARD} right?", "options": ["yes", "no"]}}
PLANS: dict[str, dict[str, Any]] = {
    "name": {"steps": [PAY]},
    "error": {"steps": [PAY, FAIL]},
    "question": {"steps": [PAY, ASK]},
    "undo of several calls": {"steps": [{**PAY, "rollback": SEVERAL}, FAIL]},
    "words of the plan": {
        "name": CARD,
        "goal": f"charge {CARD}",
        "assumptions": [f"{CARD} is right"],
        "tags": [CARD],
        "steps": [PAY, {"step_id": "ask", "ask": {"question": "Which?", "options": [CARD, "no"]}}],
    },
    "child": {"steps": [PAY, {"step_id": "c", "saga": {"plan": {"steps": [PAY]}}}]},
    "finally": {
        "steps": [PAY, ASK],
        "finally": [{**PAY, "step_id": "f1"}, {**PAY, "step_id": "f2", "params": {"card": "$output.step_f1.echo"}}],
    },
}
Door = Callable[[Coordinator], Awaitable[Any]]


async def _http(engine: Coordinator, *paths: str) -> Any:
    async with serving(engine) as server:
        api = await server.api()
        return [await api.get(path) for path in paths]


async def _console(engine: Coordinator, *paths: str) -> Any:
    browser = Browser(create_app(engine, ServerSettings(auth="none")))
    return [await browser.page(path) for path in paths]


async def _gateway(engine: Coordinator) -> Any:
    return status_of("s", (await engine.show("s")).body)


async def _told(_: Coordinator) -> Any:
    return msgspec.json.encode(TOLD).decode()


async def _typed(engine: Coordinator) -> Any:
    return repr((await engine.show("s", full=True)).view)


async def _shown(engine: Coordinator) -> Any:
    return [(await engine.show("s", full=full)).body for full in (False, True)]


async def _history(engine: Coordinator) -> Any:
    return [await engine.history("s", full=full) for full in (False, True)]


async def _list(engine: Coordinator) -> Any:
    return [head.view().plain() for head in await engine.list()]


async def _followed(engine: Coordinator) -> Any:
    """What stands in the journal now: one that waits for an operator would be followed for ever."""
    left, found = len(await engine.history("s")), []
    async for entry in engine.follow("s"):
        found.append(entry)
        if len(found) == left:
            break
    return found


async def _searched(engine: Coordinator) -> Any:
    return [head.view().plain() for head in (await engine.search()).sagas], await engine.overview()


DOORS: dict[str, Door] = {
    "follow": _followed,
    "search": _searched,
    "view": _typed,
    "show": _shown,
    "history": _history,
    "list": _list,
    "trace": lambda engine: engine.trace("s", full=True),
    "gateway": _gateway,
    "API": lambda engine: _http(
        engine, "/v1/sagas/s", "/v1/sagas/s/history", "/v1/sagas", "/v1/questions", "/v1/overview"
    ),
    "console": lambda engine: _console(engine, "/ui/sagas/s", "/ui/sagas", "/ui/questions"),
    "observers and hooks": _told,
}


@pytest.mark.parametrize("way", PLANS)
async def test_no_door_shows_what_comes_back(way: str) -> None:
    """Law: what leaves the engine is masked at every door, whatever the value came back in."""
    TOLD.clear()
    hooks: dict[str, Any] = {
        "observers": [lambda _, record: TOLD.append(record)],
        "on_escalation": lambda question: TOLD.append(question.to_dict()),
    }
    async with Coordinator.open("memory://", TOOLS, settings=None, **hooks) as engine:
        await engine.run(PLANS[way], saga_id="s")
        found = {name: await door(engine) for name, door in DOORS.items()}
        for saga in await engine.list():
            found[saga.saga_id] = [await engine.history(saga.saga_id), (await engine.show(saga.saga_id)).body]
    shown = {name: each if isinstance(each, str) else json.dumps(each, default=str) for name, each in found.items()}
    assert [name for name, text in shown.items() if CARD in text] == []
    assert "[redacted]" in shown["show"]
