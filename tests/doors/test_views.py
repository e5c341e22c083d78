"""The matrix of views: each fact about a saga is asked at every place that shows it, and is the same there.

A fact is one function, a view one entry of ``VIEWS``; a pair that cannot be has its reason in ``WITHOUT``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from saga_engine import CallFailed, Coordinator, ToolError, tool
from saga_engine.cli import run
from saga_engine.gateway.report import status_of
from saga_engine.server.app import create_app
from saga_engine.server.settings import ServerSettings
from tests.server.console.page_reader import Browser
from tests.support.servers import EmbeddedFolder

ASKS: dict[str, Any] = {"rules": [{"name": "large", "tools": ["pay"], "verdict": "ask"}]}
CARD = "4000-1234-5678"
NOTE, GONE, BUSY = "one night is enough", "the page is gone", "the line was busy"


class World:
    """The tools, of which one fails at first."""

    def __init__(self) -> None:
        tried: list[str] = []

        @tool(effect="read")
        def look() -> str:
            """Look."""
            return "seen"

        @tool(undo="cancel")
        def book(what: str, idempotency_key: str) -> dict[str, str]:
            """Book."""
            if what == "full":
                raise ToolError("full", retryable=False)
            if what == "busy" and not tried:
                tried.append(what)
                raise ToolError(BUSY, error_code="busy", retryable=True)
            return {"ref": what}

        @tool
        def cancel(ref: str, idempotency_key: str) -> None:
            """Cancel."""

        @tool(undo="cancel", sensitive=["what"])
        def pay(what: str, idempotency_key: str) -> dict[str, str]:
            """Pay."""
            return {"ref": what}

        self.tools = [look, book, cancel, pay]


View = Callable[[Coordinator, str, "Commands"], Awaitable[str]]


class Commands:
    """``saga`` on the store of the test, in this process."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = url
        self._capsys = capsys

    async def __call__(self, *args: str) -> str:
        self._capsys.readouterr()
        await asyncio.to_thread(run, [*args, "--store", self._url])
        return self._capsys.readouterr().out


async def _console(engine: Coordinator, saga_id: str, _: Commands) -> str:
    page = await Browser(create_app(engine, ServerSettings(auth="none"))).page(f"/ui/sagas/{saga_id}")
    return unescape(re.sub(r"<[^>]+>", " ", page))


async def _console_list(engine: Coordinator, saga_id: str, _: Commands) -> str:
    page = await Browser(create_app(engine, ServerSettings(auth="none"))).page("/ui/sagas")
    (row,) = re.findall(rf'<tr[^>]*id="saga-{saga_id}".*?</tr>', page, re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", row))


async def _api(engine: Coordinator, saga_id: str, _: Commands) -> str:
    from tests.server.harness import serving

    async with serving(engine, ServerSettings(port=0)) as server:
        return json.dumps(await (await server.api()).get(f"/v1/sagas/{saga_id}"))


async def _gateway(engine: Coordinator, saga_id: str, _: Commands) -> str:
    return json.dumps(status_of(saga_id, (await engine.show(saga_id)).body))


async def _trace(engine: Coordinator, saga_id: str, _: Commands) -> str:
    return str(await engine.trace(saga_id, full=True))


VIEWS: dict[str, View] = {
    "list": lambda _, __, commands: commands("list"),
    "show": lambda _, saga_id, commands: commands("show", saga_id),
    "show --json": lambda _, saga_id, commands: commands("show", saga_id, "--json"),
    "console": _console,
    "console's list": _console_list,
    "API": _api,
    "gateway": _gateway,
    "trace": _trace,
}


async def counted(engine: Coordinator) -> dict[str, str]:
    """A read, a call that failed and one that stands: of two steps that can leave an effect one has left it."""
    async with engine.session("s") as session:
        await session.call("look")
        with pytest.raises(CallFailed):
            await session.call("book", what="full")
        await session.call("book", what="b")
    of_json = r'"in_effect": 1\b.*'
    return {
        "list": r"COMPLETED.*\b1/2\b",
        "show": r"1 of 2 steps in effect",
        "show --json": of_json,
        "API": of_json,
        "console": r"1 of 2 steps in effect",
        "console's list": r"\b1/2\b",
        "gateway": r'"standing": 1\b',
    }


async def no_stale_error(engine: Coordinator) -> dict[str, str]:
    """A step that was tried twice and happened has no error; what its first attempt said is in the journal."""
    retry = {"max_attempts": 3, "base_s": 0.001}
    plan = {"steps": [{"step_id": 1, "tool": "book", "params": {"what": "busy"}, "retry": retry}]}
    assert (await engine.run(plan, saga_id="s")).status == "COMPLETED"
    assert BUSY in json.dumps(await engine.history("s"))
    none = rf"(?s)\A(?!.*{BUSY}).+\Z"
    return {name: rf"(?s){BUSY}" if name == "trace" else none for name in VIEWS}


async def the_agents_exception(engine: Coordinator) -> dict[str, str]:
    """A session that its agent's exception ended says which one, with its text."""
    with pytest.raises(ValueError, match=GONE):
        async with engine.session("s") as session:
            await session.call("book", what="b")
            raise ValueError(GONE)
    return {name: rf"ValueError: {GONE}" for name in VIEWS}


async def who_answered(engine: Coordinator) -> dict[str, str]:
    """Who answered a question, what, and with which note."""
    plan = {"steps": [{"step_id": 1, "tool": "pay", "params": {"what": "two nights"}}]}
    await engine.run(plan, saga_id="s")
    await engine.resolve("s", 1, "deny", by="ada", note=NOTE)
    said = rf"(?s)[Dd]eny.*ada.*{NOTE}"  # (the console has the words of its buttons)
    return {name: said for name in VIEWS}


async def masked(engine: Coordinator) -> dict[str, str]:
    """A note that repeats a sensitive value has a mark in its place, as every other text."""
    plan = {"steps": [{"step_id": 1, "tool": "pay", "params": {"what": CARD}}]}
    await engine.run(plan, saga_id="s")
    await engine.resolve("s", 1, "deny", by="ada", note=f"not for {CARD}")
    return {name: rf"(?s)\A(?!.*{CARD}).+\Z" for name in VIEWS}


async def whom_it_asks(engine: Coordinator) -> dict[str, str]:
    """A question of a plan names its addressee."""
    ask = {"question": "Shall we?", "options": ["yes", "no"], "to": "{$input.who}"}
    await engine.run({"steps": [{"step_id": 1, "ask": ask}], "input": {"who": "Finance"}}, saga_id="s")
    return {name: r"(?s)ask.*Finance" for name in VIEWS}


FACTS = {
    each.__name__: each for each in (counted, no_stale_error, the_agents_exception, who_answered, masked, whom_it_asks)
}
_ONE_LINE = "a list has one line for a saga, and says what it waits for"
#: Pairs that cannot be, each with the reason.
WITHOUT = {
    ("counted", "trace"): "a trace has the records, from which every count is made",
    ("who_answered", "list"): _ONE_LINE,
    ("who_answered", "console's list"): _ONE_LINE,
    ("whom_it_asks", "console's list"): _ONE_LINE,
}


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One embedded server for all tests of the module."""
    with EmbeddedFolder(tmp_path_factory.mktemp("embedded") / "saga") as folder:
        yield folder


@pytest.mark.parametrize("fact", FACTS)
async def test_each_view_shows_each_fact_alike(
    fact: str, shared_folder: EmbeddedFolder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each fact is shown at each place, or the place has its reason."""
    url = f"{shared_folder.url}?namespace={fact}"
    async with Coordinator.open(url, World().tools, policy=ASKS, settings=None, on_escalation=()) as engine:
        expected = await FACTS[fact](engine)
        assert {name for name in VIEWS if (fact, name) not in WITHOUT} == {
            name for name in expected if (fact, name) not in WITHOUT
        }
        found = {name: await VIEWS[name](engine, "s", Commands(url, capsys)) for name in expected}
        wrong = {
            name: shown
            for name, shown in found.items()
            if (fact, name) not in WITHOUT and not re.search(expected[name], shown)
        }
        assert wrong == {}, {name: expected[name] for name in wrong}
