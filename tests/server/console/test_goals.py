"""The page of a goal: a model writes, a person looks and submits. Without a browser, on a real store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import PlanInvalid
from saga_engine.plan.limits import MAX_GOAL_CHARS
from saga_engine.planner import review_rows
from saga_engine.planner.planning import Planning
from saga_engine.planner.settings import PlannerSettings
from saga_engine.server.app import create_app
from saga_engine.server.console.goals import PARTS
from saga_engine.server.console.words import CATALOGUES
from saga_engine.server.goals import Goals
from saga_engine.server.identity import ANYBODY
from saga_engine.server.settings import ServerSettings
from saga_engine.server.tokens import Tokens
from saga_engine.testing.scripted import ScriptedPlanner
from tests.server.console.page_reader import Browser

GOAL = "Book a room for Ann, and mail her"
BOOK = {"step_id": "room", "tool": "book", "params": {"guest": "Ann"}}
MAIL = {"step_id": "m", "tool": "mail", "params": {"to": "Ann", "text": "<b>booked</b>"}, "kind": "pivot"}
WRONG = {"steps": [{**BOOK, "tool": "bok"}]}
RIGHT = {"steps": [BOOK, MAIL]}
ASK = {"step_id": "sure", "ask": {"question": "Sure?", "options": ["yes", "no"], "to": "finance"}}
ASK |= {"failed_when": [{"value": "$output.step_sure.answer", "op": "==", "to": "no"}]}


@tool(undo="cancel")
async def book(guest: str) -> dict[str, str]:
    """Book a room."""
    return {"ref": guest}


@tool(tolerates_absence=True)
async def cancel(ref: str) -> None:
    """Cancel it."""


@tool
async def mail(to: str, text: str) -> None:
    """Send a mail."""


@asynccontextmanager
async def served(*answers: Any, auth: str = "none", model: bool = True) -> AsyncIterator[tuple[Coordinator, Any]]:
    planner = Planning(ScriptedPlanner(*answers), PlannerSettings()) if model else None
    options: dict[str, Any] = {"planner": planner, "on_escalation": (), "settings": None}
    async with Coordinator.open("memory://", [book, cancel, mail], **options) as coordinator:
        app = create_app(coordinator, ServerSettings(auth=auth))
        try:
            yield coordinator, app
        finally:
            await app.state.desk.goals.close()


async def given(browser: Browser, page: str | None = None, **fields: str) -> tuple[str, str]:
    """Give a goal; the address and the page when the model is done."""
    page = page or await browser.page("/ui/goal")
    sent = await browser.send(page, "/ui/goal", **{"goal": GOAL, **fields})
    assert sent.status_code == 303, sent.text
    path = sent.headers["location"]
    async with asyncio.timeout(60):
        while 'id="working"' in (shown := await browser.page(path)):  # noqa: ASYNC110 - as a browser does
            await asyncio.sleep(0)
    return path, shown


async def test_a_goal_becomes_a_plan_by_rounds_and_is_submitted_after_a_look() -> None:
    """Each round with its problems; the review as a table; the button wants the tick; twice it is one saga."""
    async with served(WRONG, RIGHT) as (coordinator, app):
        browser = Browser(app)
        path, page = await given(browser)
        rounds = re.findall(r"<li>(Round \d: [^<]*)", page)
        assert rounds == ["Round 1: told the model its problems (1)", "Round 2: a plan that passes all checks"]
        assert "bok" in page
        (table,) = re.findall(r'<section class="card" id="review">.*?</section>', page, re.DOTALL)
        cells = [
            [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<td.*?</td>", row)]
            for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
        ]
        assert ["room", "call", 'book {"guest": "Ann"}'] in cells
        assert ["m", "mail", "mail sends a mail to Ann, which cannot be unsent"] in cells
        assert "<b>booked" not in page
        assert not (await coordinator.search()).sagas
        refused = await browser.send(page, path)
        assert (refused.status_code, len((await coordinator.search()).sagas)) == (422, 0)
        first = await browser.send(page, path, looked="1")
        again = await browser.send(page, path, looked="1")
        assert first.headers["location"] == again.headers["location"]
        (head,) = (await coordinator.search()).sagas
        shown = (await coordinator.history(head.saga_id))[0]["plan"]
        assert [each["step_id"] for each in shown["steps"]] == ["room", "m"]
        assert 'id="submitted"' in await browser.page(path)


async def test_what_the_model_needs_is_ticked_and_allowed_by_asking_again() -> None:
    """The needed part is said and ticked; the next asking has the leave, and the review says who is asked."""
    async with served({"needs": ["ask"]}, {"steps": [BOOK, ASK, MAIL]}) as (_, app):
        browser = Browser(app)
        _, page = await given(browser)
        assert 'id="needs"' in page
        assert re.search(r'name="may-ask" value="1" checked', page)
        assert not re.search(r'name="may-wait" value="1" checked', page)
        _, page = await given(browser, page, **{"may-ask": "1"})
        assert "finance: Sure?" in unescape(page)


async def test_the_models_questions_are_answered_on_the_page() -> None:
    """A question has a field, and its answer goes to the model with the goal."""
    questions = {"questions": [{"name": "when", "question": "Which day?", "options": ["Monday", "Friday"]}]}
    async with served(questions, RIGHT) as (coordinator, app):
        browser = Browser(app)
        _, page = await given(browser)
        assert 'id="asks"' in page
        assert "Which day?" in page
        _, page = await given(browser, page, **{"answer-when": "Friday"})
        assert 'id="review"' in page
        planning = coordinator._planning
        assert planning is not None
        asked = planning.planner.asked[-1]  # type: ignore[union-attr]
        assert dict(asked.answers) == {"when": "Friday"}


@pytest.mark.parametrize(("goal", "status"), [("x" * (MAX_GOAL_CHARS + 1), 422), (" ", 422), ("x", 303)])
async def test_a_goal_that_is_too_long_is_refused_and_not_cut(goal: str, status: int) -> None:
    """The page keeps the whole text; the model hears nothing of it."""
    async with served(RIGHT) as (_, app):
        browser = Browser(app)
        sent = await browser.send(await browser.page("/ui/goal"), "/ui/goal", goal=goal)
        assert sent.status_code == status
        assert status == 303 or f">{goal.strip()}</textarea>" in sent.text


async def test_a_revision_whose_goal_is_too_long_is_refused_and_not_cut() -> None:
    """The goal of the plan and the change count together."""
    async with served(RIGHT) as (coordinator, _):
        with pytest.raises(PlanInvalid, match="with its change"):
            await coordinator.plan("y" * 20, revise={"goal": "x" * (MAX_GOAL_CHARS - 5), **RIGHT})


async def test_without_a_model_the_page_says_so() -> None:
    """There is no form, and a form that is sent all the same is answered."""
    async with served(model=False) as (_, app):
        page = await Browser(app).page("/ui/goal")
        assert 'id="no-model"' in page
        assert 'id="goal"' not in page


async def test_a_model_that_fails_is_said_with_its_rounds() -> None:
    """The error, its hint and every round stay on the page."""
    async with served(WRONG, WRONG, WRONG) as (_, app):
        _, page = await given(Browser(app))
        assert 'id="failed"' in page
        assert len(re.findall(r"<li>Round", page)) == 3
        assert 'id="review"' not in page


async def test_scopes_other_people_and_other_sites() -> None:
    """Who may only read gives no goal; nobody sees or submits another one's plan; a form of another site is refused."""
    async with served(RIGHT, auth="token") as (coordinator, app):
        tokens = Tokens(coordinator.store.documents())
        texts = {
            name: (await tokens.create(name, scopes))[1]
            for name, scopes in (("ann", ("read", "submit")), ("bob", ("read", "submit")), ("eve", ("read",)))
        }
        ann, bob, eve = (Browser(app, texts[name]) for name in ("ann", "bob", "eve"))
        assert 'name="goal"' not in await eve.page("/ui/goal")
        path, page = await given(ann)
        assert 'id="review"' in page
        await bob.page(path, 404)
        await eve.page(path, 403)
        key = dict(re.findall(r'name="(form_key)" value="([^"]+)"', await bob.page("/ui/goal")))
        assert (await bob.client.post(path, data={**key, "looked": "1"})).status_code == 404
        foreign = await ann.client.post("/ui/goal", data={"goal": GOAL})
        assert foreign.status_code == 403
        assert (await ann.client.post(path, data={"looked": "1", "form_key": "x"})).status_code == 403
        assert not (await coordinator.search()).sagas


async def test_one_caller_has_two_goals_at_work() -> None:
    """A third is refused until one is done; with the server all end."""
    from saga_engine.errors import RequestInvalid

    class Slow:
        planner_may_use: tuple[str, ...] = ()

        async def plan(self, *_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

    goals, more = Goals(), {"given": None, "may_use": (), "answers": {}}
    begun = [goals.begin(Slow(), ANYBODY, GOAL, **more) for _ in range(2)]  # type: ignore[arg-type]
    with pytest.raises(RequestInvalid, match="works on 2 goals"):
        goals.begin(Slow(), ANYBODY, GOAL, **more)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await goals.close()
    assert [each.running for each in begun] == [False, False]


async def test_a_server_keeps_a_hundred_goals() -> None:
    """Those that ended first are forgotten first, and none before there are more."""
    from saga_engine.errors import RequestInvalid

    class Quick:
        async def plan(self, *_: Any, **__: Any) -> Any:
            raise RequestInvalid("no", hint="", where="goal")

    goals, begun = Goals(), []
    for _ in range(103):
        begun.append(goals.begin(Quick(), ANYBODY, GOAL, given=None, may_use=(), answers={}))  # type: ignore[arg-type]
        while begun[-1].running:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    kept = [each for each in begun if each.id in goals._askings]
    assert kept == begun[3:]


def test_every_row_of_a_review_has_its_word() -> None:
    """In both languages, as every part that a person may allow."""
    source = open(review_rows.__file__, encoding="utf-8").read()  # noqa: SIM115, PTH123
    kinds = set(re.findall(r'Row\([^\n]*?, "([a-z ]+)", ', source)) | {"mail", "message", "notice", "post", "letter"}
    assert len(kinds) > 20
    known: Mapping[str, str] = CATALOGUES["en"]
    assert [each for each in kinds if f"review.{each}" not in known] == []
    assert [each for each in PARTS if f"part.{each}" not in known] == []
