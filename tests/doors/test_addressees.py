"""Whom a plan asks (``to`` of an ``ask``): the same at every way to ask, at every channel, and in every list."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from saga_engine import Coordinator, Question
from saga_engine.cli import run
from saga_engine.errors import NeedsPerson, PlanInvalid
from saga_engine.gateway.early import Early
from saga_engine.gateway.engine import EngineFace, engine_server
from saga_engine.hooks.cards import FORMS, message
from saga_engine.hooks.config import hooks_from
from saga_engine.hooks.links import Links
from saga_engine.hooks.messages import body, title
from saga_engine.hooks.webhook import payload
from saga_engine.plan.limits import MAX_TO_CHARS
from saga_engine.planner.settings import PlannerSettings
from saga_engine.server.app import create_app
from saga_engine.server.settings import ServerSettings
from tests.doors.ways import _asked as gateway_of
from tests.hooks.questions import a_question
from tests.server.console.page_reader import Browser
from tests.server.harness import serving
from tests.support.children import until

WHOM = "Finance, Graz"
ASK: dict[str, Any] = {"question": "Shall we?", "options": ["yes", "no"], "to": WHOM}
PLAN = {"steps": [{"step_id": 1, "ask": ASK}]}
LINKS = Links("https://saga.example.com", "k" * 40)


# --- ways to ask -----------------------------------------------------------------------------------------------------


async def _plan(engine: Coordinator) -> None:
    bound = {**ASK, "to": "{$input.team}, Graz"}
    await engine.run({"steps": [{"step_id": 1, "ask": bound}], "input": {"team": "Finance"}}, saga_id="s")


async def _session(engine: Coordinator) -> None:
    with pytest.raises(NeedsPerson):
        async with engine.session("s") as session:
            await session.ask(ASK["question"], options=ASK["options"], to=WHOM)


async def _sync_session(engine: Coordinator) -> None:
    from saga_engine.adapters.sync import SyncSession

    with pytest.raises(NeedsPerson):
        async with engine.session("s") as session:
            within = SyncSession(session, asyncio.get_running_loop())
            await asyncio.to_thread(lambda: within.ask(ASK["question"], options=ASK["options"], to=WHOM))


async def _child(engine: Coordinator) -> None:
    await engine.submit({"steps": [{"step_id": 1, "saga": {"plan": PLAN}}]}, saga_id="parent")


async def _template(engine: Coordinator) -> None:
    await engine.templates.put("t", PLAN)
    await engine.schedules.put("nightly", template="t", cron="0 3 * * *")
    await engine.wait(await engine.schedules.trigger("nightly"))


async def _amended(engine: Coordinator) -> None:
    await engine.submit({"steps": [{"step_id": 2, "sleep": 3600}]}, saga_id="s")
    await engine.amend("s", [{"step_id": 1, "ask": ASK, "depends_on": []}], wait=False)


async def _http(engine: Coordinator) -> None:
    async with serving(engine) as server:
        await (await server.api()).post("/v1/sagas", {"plan": PLAN})


async def _gateway(engine: Coordinator) -> None:
    async def ask(client: Client) -> str:
        told = await client.call_tool("saga_submit", {"plan": PLAN})
        shown = await client.call_tool("saga_show", {"saga_id": told.structured_content["saga_id"], "wait_s": 60})
        return shown.model_dump_json()

    face = EngineFace(engine, "kim", PlannerSettings(may_use=("ask",)))
    assert f'"asked_of":"{WHOM}"' in await gateway_of(Early(engine_server, face.opened).serve, ask)


DOORS: dict[str, Callable[[Coordinator], Awaitable[None]]] = {
    "plan": _plan,
    "session": _session,
    "sync session": _sync_session,
    "child": _child,
    "schedule": _template,
    "amendment": _amended,
    "HTTP": _http,
    "gateway": _gateway,
}


@pytest.mark.parametrize("door", DOORS)
async def test_every_way_to_ask_tells_whom(door: str) -> None:
    """A hook, and what operators are shown, name the addressee, whichever way the question came in."""
    told: list[Question] = []

    async def heard() -> bool:
        return bool(told)

    async with Coordinator.open("memory://", (), on_escalation=told.append, settings=None) as engine:
        working = asyncio.create_task(engine.work())
        try:
            await DOORS[door](engine)
            await until(heard)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        (question,) = (await engine.show(told[0].saga_id)).body["questions"]
    assert {told[0].to, question["to"]} == {WHOM}


# --- channels --------------------------------------------------------------------------------------------------------


def test_every_channel_names_the_addressee() -> None:
    """The log's line, the mail's text, the webhook's body and the cards of all chats, in both languages."""
    question = a_question(kind="ask", text="Shall we?", options=("yes", "no"), to="Finance @all\x1b[31m")
    assert "Finance" in title(question)
    for text in (title(question), body(question)):
        assert "\x1b" not in text
        assert "@all" not in text
    assert re.search(r"(?m)^Asked of: Finance", body(question))
    assert json.loads(payload(question))["data"]["to"] == question.to
    for form in FORMS:
        for language in ("en", "zh"):
            shown = json.dumps(message(question, LINKS, "ops", form, language), ensure_ascii=False)
            assert "Finance" in shown
            assert "@all" not in shown
    assert question.outline().to == ""


async def test_a_channel_of_some_addressees_takes_theirs_and_what_nobody_else_takes(tmp_path: Path) -> None:
    """``only_to``: capitals make no difference. A question whose addressee has no channel goes to all, never to none."""
    heard: list[str] = []

    def escalation(*tables: str) -> Any:
        import tomllib

        text = "".join(f'[[hooks]]\nkind = "log"\n{table}\n' for table in tables)
        found = hooks_from(tomllib.loads(text), source="saga.toml", environ={})
        for number, hook in enumerate(found.hooks):

            async def say(_: Question, name: str = str(number)) -> None:
                heard.append(name)

            hook.hook = say  # type: ignore[attr-defined]
        return found

    async def told(found: Any, **question: Any) -> list[str]:
        heard.clear()
        for hook in found.hooks:
            await hook(a_question(**{"kind": "ask", "text": "?", **question}))
        return list(heard)

    both = escalation('only_to = "Finance"', 'only_to = ["HR", "Law"]')
    assert await told(both, to="finance") == ["0"]
    assert await told(both, to="LAW") == ["1"]
    assert await told(both, to="nobody") == ["0", "1"]
    assert await told(both, to="") == ["0", "1"]
    assert await told(both, kind="in-doubt") == ["0", "1"]
    beside = escalation('only_to = "Finance"', 'kinds = ["ask", "in-doubt"]')
    assert await told(beside, to="Finance") == ["0", "1"]
    assert await told(beside, to="Law") == ["1"]
    approvals = escalation('only_to = "Finance"', 'kinds = "approval"')
    assert await told(approvals, to="Law") == ["0"]
    assert await told(approvals, kind="approval") == ["1"]


# --- lists -----------------------------------------------------------------------------------------------------------


async def test_each_list_of_questions_finds_those_of_an_addressee(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``saga inbox --to``, ``GET /v1/questions?to=`` and the console's page have one rule; ``saga list`` names whom."""
    url = f"embedded://{tmp_path}/.saga"

    async def lines(*args: str) -> str:
        capsys.readouterr()
        await asyncio.to_thread(run, [*args, "--store", url])
        return capsys.readouterr().out

    async with Coordinator.open(url, (), on_escalation=(), settings=None) as engine:
        for saga_id, to in (("a", {"to": "Finance"}), ("b", {"to": "HR"}), ("c", {})):
            ask = {"question": "Shall we?", "options": ["yes", "no"], **to}
            await engine.run({"steps": [{"step_id": 1, "ask": ask}]}, saga_id=saga_id)
        found = json.loads(await lines("inbox", "--to", "finance", "--json"))["questions"]
        assert [(each["saga_id"], each["to"]) for each in found] == [("a", "Finance")]
        assert "asked of Finance" in await lines("inbox")
        assert "step 1: ask HR?" in await lines("list")
        async with serving(engine) as server:
            api = await server.api()
            assert [each["saga_id"] for each in (await api.get("/v1/questions", to="FINANCE"))["questions"]] == ["a"]
            assert len((await api.get("/v1/questions"))["questions"]) == 3
        browser = Browser(create_app(engine, ServerSettings(auth="none")))
        page = await browser.page("/ui/questions?to=hr")
        assert re.findall(r'<article[^>]*id="question-(\w)-', page) == ["b"]
        assert "/ui/questions?to=Finance" in await browser.page("/ui/questions")


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["", " x", "x\n", "\x1b[31m", "x" * (MAX_TO_CHARS + 1), 7, ["x"]])
async def test_an_addressee_is_a_short_printable_text(to: Any) -> None:
    """In a plan it is a problem before anything runs; where it binds, the step fails and is never asked in part."""
    async with Coordinator.open("memory://", (), on_escalation=(), settings=None) as engine:
        with pytest.raises(PlanInvalid) as refused:
            await engine.submit({"steps": [{"step_id": 1, "ask": {**ASK, "to": to}}]})
        assert [each.path for each in refused.value.problems] == ["$.steps[0].ask.to"]
        bound = {"steps": [{"step_id": 1, "ask": {**ASK, "to": "$input.who"}}], "input": {"who": to}}
        ended = await engine.run(bound, saga_id="s")
        assert ended.status == "COMPENSATED"
        assert "ask_invalid" in json.dumps(await engine.history("s"))
