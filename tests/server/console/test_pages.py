"""The console's pages and forms, asked for without a browser: what they show, what they decide, and for whom."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape

import pytest

from saga_engine import Coordinator, ToolError, tool
from saga_engine.api.stops import stops
from saga_engine.server.app import create_app
from saga_engine.server.demo import POLICY, Agency, fill, tools_of
from saga_engine.server.identity import ANYBODY
from saga_engine.server.settings import ServerSettings
from tests.server.console.page_reader import Browser

NASTY = "</title><script>alert(1)</script><img src=x onerror=alert(1)>'\"&\u202e"


@tool(undo="unpaint")
async def paint(what: str) -> dict[str, str]:
    return {"painted": what}


@tool
async def unpaint(what: str) -> dict[str, str]:
    return {"unpainted": what}


@tool(effect="read")
async def spoil(what: str) -> dict[str, str]:
    raise ToolError(what, error_code="spoiled<b>", retryable=False, suggestion=what)


@asynccontextmanager
async def served(*tools, auth: str = "none", **options) -> AsyncIterator[tuple[Coordinator, object]]:
    async with Coordinator.open("memory://", tools or [paint, unpaint, spoil], **options) as coordinator:
        yield coordinator, create_app(coordinator, ServerSettings(auth=auth))


async def asking(coordinator: Coordinator, saga_id: str = "asks") -> None:
    """A saga that waits for an approval of its second step."""
    plan = {
        "steps": [
            {"step_id": "a", "tool": "paint", "params": {"what": "wall"}},
            {"step_id": "b", "tool": "paint", "params": {"what": "gold"}},
        ]
    }
    await coordinator.run(plan, saga_id=saga_id)


GOLD = {
    "default": "allow",
    "rules": [
        {"name": "gold", "tools": ["paint"], "when": [{"param": "what", "op": "==", "value": "gold"}], "verdict": "ask"}
    ],
}


async def test_every_page_of_the_demo_is_drawn_in_both_languages():
    """The sagas of the demo come to rest as they are meant to, and each page answers, in English and Chinese."""
    async with served(*tools_of(Agency()), policy=POLICY) as (coordinator, app):
        ids = await fill(coordinator)
        working = asyncio.create_task(coordinator.work())
        rests = {
            "trip-large-payment": "ESCALATED",
            "trip-undo-refused": "ESCALATED",
            "catalogue-changed-meanwhile": "ESCALATED",
        }
        rests |= {"trip-hotel-full": "COMPENSATED", "group-tour": "RUNNING", "reminder": "RUNNING"}
        async with asyncio.timeout(120):
            for saga_id in ids:
                if rests.get(saga_id) != "RUNNING":
                    found = await coordinator.wait(saga_id)
                    assert found.status == rests.get(saga_id, "COMPLETED")
            async for record in coordinator.follow("group-tour"):
                if record["k"] == "StepEscalated":
                    break
        working.cancel()
        paths = [
            "/ui/sagas",
            "/ui/questions",
            "/ui/workers",
            "/ui/templates",
            "/ui/templates/trip",
            "/ui/plan",
            "/ui/goal",
            "/ui/stop",
        ]
        paths += [
            "/ui/sign-in",
            "/ui/sagas/group-tour/cancel",
            "/ui/sagas/trip-lisbon/undo",
            "/ui/sagas?status=COMPLETED&tag=demo&since=1h",
        ]
        paths += [
            f"/ui/sagas/{each}?step={step}"
            for each, step in (("trip-hotel-full", "hotel"), ("catalogue-changed-meanwhile", "price"))
        ]
        paths += [f"/ui/sagas/group-tour?view={view}" for view in ("timeline", "graph", "records", "plan")]
        for language, word in (("en", "Questions"), ("zh", "待答提问")):
            browser = Browser(app)
            browser.client.cookies.set("saga_language", language)
            for path in paths:
                page = await browser.page(path)
                assert word in page
                assert f'<html lang="{language}' in page
        assert "would" not in page  # the last one was Chinese


@tool
async def stuck(what: str) -> dict[str, str]:
    raise ToolError(what, error_code="stuck", retryable=False)


async def test_the_page_of_a_half_done_undo_names_its_calls():
    """The step's page and its question say which calls of the undo were made, which one asks, and which are left."""
    async with served(paint, unpaint, spoil, stuck) as (coordinator, app):
        undo = {"tool": "unpaint", "params": {"what": "door"}}
        rest = [{"tool": "stuck", "params": {"what": "lock"}}, {"tool": "unpaint", "params": {"what": "frame"}}]
        plan = {
            "steps": [
                {"step_id": "wall", "tool": "paint", "params": {"what": "wall"}, "rollback": {**undo, "then": rest}},
                {"step_id": "full", "tool": "spoil", "params": {"what": "sold out"}},
            ],
        }
        await coordinator.run(plan, saga_id="half")
        page = await Browser(app).page("/ui/sagas/half?step=wall")
        text = " ".join(re.sub(r"<[^>]+>", " ", unescape(page[page.index('id="inspector"') :])).split())
        found = [
            text.index(each) for each in ("Call 1 of 3 Undone", "Call 2 of 3 Needs an answer", "Call 3 of 3 Pending")
        ]
        assert found == sorted(found)
        assert '"what":"frame"' in text
        assert "Call 2 of 3" in page[: page.index('id="report"')]


async def test_the_page_of_a_full_hotel_says_what_was_undone_and_that_nothing_is_left():
    """A person reads off the page why the saga turned around, what was undone, and that the report is clean."""
    async with served() as (coordinator, app):
        plan = {
            "goal": "a room",
            "steps": [
                {"step_id": "wall", "tool": "paint", "params": {"what": "wall"}},
                {"step_id": "full", "tool": "spoil", "params": {"what": "sold out"}},
            ],
        }
        await coordinator.run(plan, saga_id="full")
        page = await Browser(app).page("/ui/sagas/full")
        report = page[page.index('id="report"') : page.index('id="tabs"')]
        assert "clean" in report
        assert "wall paint" in report
        assert "sold out" in page
        assert 'class="span undo call ok"' in page


async def test_what_a_model_wrote_is_text_on_every_page():
    """Goal, names, params, errors, outputs, notes and tags are shown, and none of them becomes markup."""
    async with served(policy=GOLD) as (coordinator, app):
        steps = [
            {"step_id": "x", "name": NASTY, "tool": "paint", "params": {"what": NASTY}},
            {"step_id": "y", "tool": "spoil", "params": {"what": NASTY}},
        ]
        await coordinator.run({"goal": NASTY, "steps": steps}, saga_id="nasty", tags=["<b>tag</b>"])
        await asking(coordinator)
        await coordinator.cancel("asks", note=NASTY, by=NASTY)
        browser = Browser(app)
        paths = [
            "/ui/sagas",
            "/ui/sagas/nasty?step=x",
            "/ui/sagas/nasty?step=y",
            "/ui/sagas/nasty?view=graph",
            "/ui/sagas/nasty?view=records",
        ]
        paths += ["/ui/sagas/nasty?view=plan", "/ui/sagas/asks?view=records", f"/ui/sagas?name=x&tag={NASTY[:60]}"]
        for path in paths:
            page = await browser.page(path)
            assert page.count("<script") == 1  # the console's own
            assert "<img" not in page
            assert "<b>tag" not in page
            assert "\u202e" not in page


async def test_a_get_decides_nothing_and_a_form_needs_the_key_of_its_browser():
    """Addresses of forms only show or refuse; a form without its key, or with another browser's, changes nothing."""
    async with served(policy=GOLD) as (coordinator, app):
        await asking(coordinator)
        one, other = Browser(app), Browser(app)
        page, foreign = await one.page("/ui/questions"), await other.page("/ui/questions")
        before = await coordinator.history("asks")
        for path in (
            "/ui/sagas/asks/resolve?decision=approve&step=b",
            "/ui/sagas/asks/cancel",
            "/ui/sagas/asks/undo",
            "/ui/stop",
            "/ui/go",
        ):
            await one.client.get(path)
        key = re.search(r'name="form_key" value="([^"]+)"', foreign)
        assert key is not None
        for wrong in ({"form_key": ""}, {"form_key": key[1]}):
            refused = await one.send(page, "/ui/sagas/asks/resolve", decision="approve", **wrong)
            assert refused.status_code == 403
        stopped = await one.client.post("/ui/stop", data={"scope": "all"})
        assert stopped.status_code == 403
        assert await coordinator.history("asks") == before
        assert await stops(coordinator.store) == []
        assert (await coordinator.ownership("asks")).unread == 0


async def test_two_people_decide_at_once_and_the_second_sees_who_was_first():
    """The second answer to a question is not recorded; its author reads who answered, and what."""
    async with served(policy=GOLD, auth="token") as (coordinator, app):
        await asking(coordinator)
        tokens = app.state.desk.tokens
        ada, bob = [Browser(app, (await tokens.create(who, ["read", "resolve"]))[1]) for who in ("Ada", "Bob")]
        pages = [await each.page("/ui/questions") for each in (ada, bob)]
        first = await ada.send(pages[0], "/ui/sagas/asks/resolve", decision="deny", note="too dear")
        second = await bob.send(pages[1], "/ui/sagas/asks/resolve", decision="approve")
        assert first.status_code == 303
        assert second.status_code == 409
        assert "Ada answered first: Deny" in second.text
        same = await bob.send(pages[1], "/ui/sagas/asks/resolve", decision="deny")
        assert "Ada answered first: Deny" in same.text
        found = await coordinator.resume("asks")
        assert found.status == "COMPENSATED"
        (answer,) = [each for each in await coordinator.history("asks") if each["k"] == "QuestionResolved"]
        assert (answer["by"], answer["decision"], answer["note"]) == ("Ada", "deny", "too dear")
        later = await bob.send(pages[1], "/ui/sagas/asks/resolve", decision="approve")
        assert "Ada answered first: Deny" in later.text


async def test_who_may_only_read_sees_no_button_and_decides_nothing():
    """A token for reading shows the questions without their answers, and its forms are refused."""
    async with served(policy=GOLD, auth="token") as (coordinator, app):
        await asking(coordinator)
        reader = Browser(app, (await app.state.desk.tokens.create("Eve", ["read"]))[1])
        page = await reader.page("/ui/questions")
        assert "May this call be made?" in page
        assert 'name="decision"' not in page
        key = re.search(r'name="form_key" value="([^"]+)"', page)
        assert key is not None
        for action in ("/ui/sagas/asks/resolve", "/ui/sagas/asks/cancel", "/ui/stop", "/ui/go"):
            refused = await reader.client.post(action, data={"form_key": key[1], "decision": "approve", "step": "b"})
            assert refused.status_code == 403
        await reader.page("/ui/sagas/asks/cancel", 403)
        nobody = Browser(app)
        asked = await nobody.client.get("/ui/sagas/asks")
        assert (asked.status_code, asked.headers["location"]) == (303, "/ui/sign-in?next=%2Fui%2Fsagas%2Fasks")


async def test_the_preview_of_a_cancel_says_what_would_be_undone_and_the_form_cancels():
    """The page shows the saga as it stands: what happened would be undone, what waits would not begin."""
    async with served(policy=GOLD) as (coordinator, app):
        await asking(coordinator)
        browser = Browser(app)
        page = await browser.page("/ui/sagas/asks/cancel")
        assert re.search(r'id="list-undoes".*?<b>a</b> paint .*?unpaint', page, re.DOTALL)
        assert re.search(r'id="list-never".*?<b>b</b>', page, re.DOTALL)
        sent = await browser.send(page, "/ui/sagas/asks/cancel", note="no more")
        assert sent.headers["location"] == "/ui/sagas/asks?said=cancelled"
        assert (await coordinator.resume("asks")).status == "COMPENSATED"
        again = await browser.client.post(
            "/ui/sagas/asks/cancel", data=dict(re.findall(r'name="(form_key)" value="([^"]+)"', page))
        )
        assert "cancelled" in str(again.headers.get("location", again.text))


async def test_a_pasted_plan_is_checked_and_its_failures_are_simulated():
    """Problems are listed with their paths; without any the matrix shows each failure, and nothing is stored."""
    async with served() as (coordinator, app):
        browser = Browser(app)
        page = await browser.page("/ui/plan")
        wrong = await browser.send(page, "/ui/plan", plan='{"steps": [{"step_id": 1, "tool": "nope"}]}', do="check")
        assert "$.steps[0]" in wrong.text
        assert "nope" in wrong.text
        assert (await browser.send(page, "/ui/plan", plan="{", do="check")).status_code == 422
        plan = '{"steps": [{"step_id": "a", "tool": "paint", "params": {"what": "x"}}, {"step_id": "b", "tool": "spoil", "params": {"what": "y"}}]}'
        right = await browser.send(page, "/ui/plan", plan=plan, do="check")
        assert right.status_code == 200
        assert 'id="row-a"' in right.text
        assert "cell clean" in right.text
        assert not (await coordinator.search()).sagas
        begun = await browser.send(page, "/ui/plan", plan=plan, do="submit")
        assert begun.headers["location"].startswith("/ui/sagas/")
        assert len((await coordinator.search()).sagas) == 1


async def test_stop_and_go_from_the_page():
    """The stop holds with its author's note until it is lifted on the same page."""
    async with served() as (coordinator, app):
        browser = Browser(app)
        page = await browser.page("/ui/stop?tool=paint")
        await browser.send(page, "/ui/stop", scope="tool:paint", note="the paint is wet")
        held = await stops(coordinator.store)
        assert [(each.scope, each.note) for each in held] == [("tool:paint", "the paint is wet")]
        shown = await browser.page("/ui/stop")
        assert "the paint is wet" in shown
        await browser.send(shown, "/ui/go")
        assert await stops(coordinator.store) == []


async def test_a_long_saga_has_a_short_page():
    """Of thousands of steps and records a page shows a window, with links to the others."""
    async with served() as (coordinator, app):
        steps = [{"step_id": n, "tool": "paint", "params": {"what": str(n)}, "depends_on": []} for n in range(1500)]
        await coordinator.run({"steps": steps}, saga_id="long")
        browser = Browser(app)
        for path in (
            "/ui/sagas/long",
            "/ui/sagas/long?view=records",
            "/ui/sagas/long?view=graph",
            "/ui/sagas/long?first=1440&step=1450",
        ):
            page = await browser.page(path)
            assert page.count("<") < 6000
            assert len(page) < 150_000
        assert 'id="step-1450"' in page
        assert "1441–1500 of 1500" in page


@pytest.mark.parametrize(
    "path", ["/ui/sagas/none", "/ui/sagas/%3Cb%3E", "/ui/templates/none", "/ui/sagas?cursor=x", "/ui/sagas?status=x"]
)
async def test_an_error_is_a_page_with_its_code(path):
    """What cannot be shown is said on a page with the engine's code, and nothing of the address becomes markup."""
    async with served() as (_, app):
        found = await Browser(app).client.get(path)
        assert found.status_code in (404, 422)
        assert "This did not work" in found.text
        assert "<b>" not in found.text


async def test_preferences_stay_in_the_browser():
    """Language and colours are chosen by forms, which lead back to their page and nowhere else."""
    async with served() as (_, app):
        browser = Browser(app)
        page = await browser.page("/ui/sagas")
        sent = await browser.send(page, "/ui/preferences", language="zh", next="//evil.example/")
        assert sent.headers["location"] == "/ui/sagas"
        await browser.send(page, "/ui/preferences", theme="dark")
        page = await browser.page("/ui/sagas")
        assert '<html lang="zh-Hans" data-theme="dark">' in page


async def test_chosen_sagas_are_shown_before_anything_happens_and_then_acted_on():
    """The boxes of the list choose; the page says what follows for each, and its button makes a job for just these."""
    async with served(policy=GOLD) as (coordinator, app):
        await asking(coordinator, "one")
        await asking(coordinator, "two")
        await asking(coordinator, "three")
        browser = Browser(app)
        listed = await browser.page("/ui/sagas")
        assert listed.count(" data-pick>") == 3
        chosen = {"pick-one": "1", "pick-two": "1"}
        shown = (await browser.send(listed, "/ui/batch", **chosen, verb="cancel")).text
        assert "Cancel 2 sagas" in shown
        assert shown.count("1 to undo") == 2
        assert {head.messages for head in await coordinator.list()} == {0}
        done = await browser.send(shown, "/ui/batch", note="wrong file")
        assert done.headers["location"] == "/ui/sagas?said=batch"
        jobs = await app.state.jobs.list(ANYBODY)
        assert [(job.action, job.sagas, job.note) for job in jobs] == [("cancel", ["one", "two"], "wrong file")]
        nothing = await browser.send(listed, "/ui/batch", verb="cancel")
        assert nothing.headers["location"] == "/ui/sagas?said=none-chosen"


async def test_questions_of_chosen_sagas_are_answered_alike():
    """The answers that their questions take are offered with their number; then each says what follows."""
    async with served(policy=GOLD) as (coordinator, app):
        await asking(coordinator, "one")
        await asking(coordinator, "two")
        browser = Browser(app)
        listed = await browser.page("/ui/sagas")
        chosen = {"pick-one": "1", "pick-two": "1"}
        offered = (await browser.send(listed, "/ui/batch", **chosen, verb="resolve")).text
        assert 'value="deny"' in offered
        assert "questions: 2" in offered
        follows = (await browser.send(offered, "/ui/batch", decision="deny")).text
        assert "Answer for 2 sagas" in follows
        assert follows.count("undoes") == 2


async def test_an_answer_stands_in_the_words_of_its_button_and_a_process_in_those_of_people():
    """Who looks back reads what the button said, in the language of the page, and no name that only machines read."""
    async with served(policy=GOLD, on_escalation=()) as (coordinator, app):
        await asking(coordinator)
        await coordinator.resolve("asks", "b", "deny", by="Ada", note="no gold")
        for language, said in (("en", "Deny"), ("zh", "拒绝")):
            browser = Browser(app)
            browser.client.headers["accept-language"] = language
            page = await browser.page("/ui/sagas/asks")
            answered = page[page.index('id="answered"') :].partition("</section>")[0]
            assert f"<b>{said}</b>" in answered
            assert "Ada" in answered
            assert "no gold" in answered
        records = unescape(await browser.page("/ui/sagas/asks?view=records"))
        told = re.findall(r"<span>owner ([^<]*)</span>", records)
        assert told
        assert all(re.fullmatch(r"pid \d+ on \S+", each) for each in told)
