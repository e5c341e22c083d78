"""One-tap links on a real server: a GET never decides, a POST decides once, and what was altered decides nothing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import httpx2

from saga_engine import Coordinator, tool
from saga_engine.hooks.card_hook import CardHook
from saga_engine.hooks.links import Links
from saga_engine.ports import Question
from saga_engine.server.settings import ServerSettings
from saga_engine.server.views import first_answer
from saga_engine.testing.faulty_http import MisbehavingServer, done
from tests.server.harness import Server, serving

KEY = "a-key-of-links-with-more-than-32-signs"
ASK = {"default": "allow", "rules": [{"name": "large", "tools": ["pay"], "verdict": "ask"}]}
PAY = {
    "goal": "</title><script>alert(1)</script>",
    "steps": [{"step_id": "pay", "tool": "pay", "params": {"amount": 4200}}],
}
WORDS = {"steps": [{"step_id": 1, "ask": {"question": "Shall we?", "options": ["yes", "no"]}}]}
PAGE = {"accept": "text/html"}


class Desk:
    """A server with a worker whose questions go, as cards, to a real receiver; and what was paid."""

    def __init__(self, server: Server, coordinator: Coordinator, links: Links, chat: MisbehavingServer) -> None:
        self.server, self.coordinator, self.links, self.chat = server, coordinator, links, chat
        self.paid: list[int] = []
        self.asked: list[Question] = []
        self.posted = asyncio.Event()

    async def question(self, saga_id: str) -> tuple[str, str]:
        """Submit a saga that asks, and the paths of the links on its card: approve and deny."""
        await self.coordinator.submit(PAY, saga_id=saga_id, detach=True)
        async with asyncio.timeout(60):
            while True:
                for each in self.chat.received:
                    buttons = each.json["card"]["elements"][1]["actions"]
                    paths = ["/" + button["url"].split("/", 3)[3] for button in buttons]
                    if paths[2] == f"/ui/sagas/{saga_id}":
                        return paths[0], paths[1]
                self.posted.clear()
                await self.posted.wait()

    async def open(self, path: str, status: int = 200) -> str:
        """The page of a link."""
        found = await self.server.client.get(path, headers=PAGE)
        assert found.status_code == status, found.text
        return found.text

    async def tap(self, path: str, page: str, **more: Any) -> httpx2.Response:
        """Send the form of a page."""
        key = re.search(r'name="page" value="([^"]+)"', page)
        data = {"page": key[1] if key else "", "note": "seen"}
        return await self.server.client.post(path, data=data, **more)

    async def decided(self, saga_id: str) -> list[tuple[str, str, str]]:
        """Every answer in the journal: by whom, what, and the note."""
        history = await self.coordinator.history(saga_id)
        return [(each["by"], each["decision"], each["note"]) for each in history if each["k"] == "QuestionResolved"]


@asynccontextmanager
async def desk(*, keys: str | list[str] = KEY) -> AsyncIterator[Desk]:
    """The server asks for tokens; the links need none."""
    async with MisbehavingServer() as chat:
        chat.script("/hook", done({"code": 0}))
        links = Links("http://127.0.0.1:1", keys)
        made: Desk

        @tool(effect="write", undo="repay")
        async def pay(amount: int) -> dict[str, int]:
            made.paid.append(amount)
            return {"amount": amount}

        @tool(tolerates_absence=True)
        async def repay(amount: int) -> None:
            """Give it back."""

        send = CardHook(f"{chat.url}/hook", "feishu", links, to="ops")

        async def told(question: Question) -> None:
            await send(question)
            made.asked.append(question)
            made.posted.set()

        async with Coordinator.open(
            "memory://", [pay, repay], policy=ASK, on_escalation=told, durability="relaxed"
        ) as coordinator:
            working = asyncio.create_task(coordinator.work())
            settings = ServerSettings(port=0, links=links, requests_per_s=1e6, burst=1_000_000)
            try:
                async with serving(coordinator, settings) as server:
                    made = Desk(server, coordinator, links, chat)
                    yield made
            finally:
                working.cancel()
                await asyncio.wait([working])


async def test_a_get_never_decides_and_one_post_does() -> None:
    """Scanners that fetch and HEAD a link, twenty times, change nothing; the form of its page lets the saga go on."""
    async with desk() as at:
        approve, deny = await at.question("trip")
        for path in (approve, deny):
            for _ in range(10):
                page = await at.open(path)
                head = await at.server.client.head(path)
                assert (head.status_code, head.content) == (200, b"")
        assert "4200" in page
        assert "<script>alert" not in page
        assert await at.decided("trip") == []
        assert (await at.coordinator.show("trip")).status == "ESCALATED"
        assert await at.coordinator.store.messages("trip") == []

        page = await at.open(approve)
        answer = await at.tap(approve, page)
        assert (answer.status_code, answer.headers["location"]) == (303, approve)
        assert "The answer is recorded: Approve" in await at.open(approve)
        assert (await at.coordinator.wait("trip")).status == "COMPLETED"
        assert at.paid == [4200]
        link = at.links.read(approve.rpartition("/")[2])
        assert await at.decided("trip") == [(link.by, "approve", "seen")]
        assert link.by.startswith("link:ops#")


async def test_a_second_tap_reads_who_was_first() -> None:
    """The same form sent again, the other link, and a third one by a colleague: one answer, and its giver's name."""
    async with desk() as at:
        approve, deny = await at.question("trip")
        pages = [await at.open(path) for path in (deny, approve)]
        assert (await at.tap(deny, pages[0])).status_code == 303
        assert (await at.tap(deny, pages[0])).status_code == 200  # its own answer holds
        late = await at.tap(approve, pages[1])
        assert late.status_code == 409
        link = at.links.read(deny.rpartition("/")[2])
        assert f"{link.by} has answered: Deny" in late.text
        colleague = at.links.of(at.asked[0], "ada")["approve"].rpartition("/")[2]
        assert f"{link.by} has answered" in await at.open(f"/links/{colleague}", 409)
        assert (await at.coordinator.wait("trip")).status != "COMPLETED"
        assert at.paid == []
        assert len(await at.decided("trip")) == 1


async def test_an_answer_that_a_worker_takes_meanwhile_is_found() -> None:
    """Between two looks into the store the answer moves from the messages to the journal; it is in one of the looks."""
    async with Coordinator.open("memory://", [], durability="relaxed") as coordinator:
        await coordinator.run(WORDS, saga_id="words")
        (question,) = (await coordinator.show("words")).body["questions"]
        await coordinator.resolve("words", "1", "yes", by="Ada", wait=False)
        store = coordinator.store
        assert len(await store.messages("words")) == 1
        looks: list[str] = []

        class Meanwhile:
            """The store; a worker takes the answer after the first look."""

            async def look(self, name: str, *args: Any) -> Any:
                found = await getattr(store, name)(*args)
                if not looks:
                    await coordinator.resume("words")
                looks.append(name)
                return found

            async def read(self, *args: Any) -> Any:
                return await self.look("read", *args)

            async def messages(self, *args: Any) -> Any:
                return await self.look("messages", *args)

        engine = cast(Coordinator, SimpleNamespace(store=Meanwhile()))
        found = await first_answer(engine, "words", question["question_id"])
        assert found == ("Ada", "yes")
        assert len(looks) == 2
        assert await store.messages("words") == []


async def test_two_who_tap_at_once_give_one_answer() -> None:
    """Of ten posts of both links at the same time one holds, and all read which."""
    async with desk() as at:
        approve, deny = await at.question("trip")
        pages = {path: await at.open(path) for path in (approve, deny)}
        found = await asyncio.gather(*(at.tap(path, pages[path]) for path in [approve, deny] * 5))
        assert {each.status_code for each in found} <= {200, 303, 409}
        await at.coordinator.wait("trip")
        ((by, decision, _),) = await at.decided("trip")
        assert by == at.links.read((approve if decision == "approve" else deny).rpartition("/")[2]).by
        assert at.paid == ([4200] if decision == "approve" else [])


async def test_an_altered_link_is_none() -> None:
    """The text of one link with the signature of another, cut, lengthened, or signed by another key: no page, no act."""
    async with desk() as at:
        approve, deny = await at.question("trip")
        page = await at.open(approve)
        deny_text, approve_signature = deny.partition(".")[0], approve.partition(".")[2]
        forged = Links("http://127.0.0.1:1", "another-key-of-links-with-32-characters")
        others = [
            f"{deny_text}.{approve_signature}",
            approve[:-1],
            f"{approve}A",
            approve.partition(".")[0],
            "/links/" + forged.of(at.asked[0], "ops")["approve"].rpartition("/")[2],
            "/links/x",
        ]
        for path in others:
            shown = await at.open(path, 401)
            assert "not a link of this server" in shown
            assert (await at.tap(path, page)).status_code == 401
        assert await at.decided("trip") == []
        assert at.paid == []


async def test_a_page_acts_for_its_own_link_only() -> None:
    """A form without a page's key, or with that of the other answer or another saga, decides nothing."""
    async with desk() as at:
        approve, deny = await at.question("trip")
        other, _ = await at.question("other")
        for page in ("", await at.open(deny), await at.open(other)):
            answer = await at.tap(approve, page)
            assert answer.status_code == 403
            assert "This page had expired" in answer.text
        site = {"origin": "https://evil.example"}
        assert (await at.tap(approve, await at.open(approve), headers=site)).status_code == 403
        sent = await at.server.client.post(approve, content="{}", headers={"content-type": "application/json"})
        assert sent.status_code == 415
        assert await at.decided("trip") == []
        assert await at.decided("other") == []


async def test_an_expired_link_decides_nothing() -> None:
    """Its page says so, and the form of a page that was opened before is refused as well."""
    async with desk() as at:
        live, _ = await at.question("trip")
        at.links.life_s = 0.0
        ended = "/links/" + at.links.of(at.asked[0], "ops")["approve"].rpartition("/")[2]
        assert "has expired" in await at.open(ended, 410)
        page = await at.open(live)
        assert (await at.tap(ended, page)).status_code == 410
        assert await at.decided("trip") == []
        assert (await at.tap(live, page)).status_code == 303


async def test_a_key_is_replaced_while_links_are_under_way() -> None:
    """A server that knows both keys takes the links of the old one; one that forgot it takes none of them."""
    old = "the-old-key-of-links-with-32-characters"
    async with desk(keys=[KEY, old]) as at:
        await at.question("trip")
        path = "/links/" + Links("http://127.0.0.1:1", old).of(at.asked[0], "ops")["approve"].rpartition("/")[2]
        assert (await at.tap(path, await at.open(path))).status_code == 303
        assert (await at.coordinator.wait("trip")).status == "COMPLETED"
    async with desk() as at:
        await at.question("trip")
        path = "/links/" + Links("http://127.0.0.1:1", old).of(at.asked[0], "ops")["approve"].rpartition("/")[2]
        await at.open(path, 401)


async def test_a_link_opens_nothing_else() -> None:
    """Its page leads nowhere, sets no cookie, is kept by no cache, and its token is none of the API."""
    async with desk() as at:
        approve, _ = await at.question("trip")
        found = await at.server.client.get(approve)
        assert "/ui/" not in found.text
        assert "set-cookie" not in found.headers
        assert found.headers["cache-control"] == "no-store"
        assert "noindex" in found.headers["x-robots-tag"]
        headers = {"authorization": f"Bearer {approve.rpartition('/')[2]}"}
        assert (await at.server.client.get("/v1/sagas", headers=headers)).status_code == 401


async def test_without_keys_there_are_no_links() -> None:
    """A server without [escalation.links] has no such pages."""
    async with Coordinator.open("memory://", [], durability="relaxed") as coordinator, serving(coordinator) as server:
        found = await server.client.get("/links/x.y")
        assert found.status_code == 404
        assert json.loads(found.text)["code"] == "request-invalid"


async def test_a_link_of_a_saga_that_is_gone_does_nothing_to_another_with_its_id() -> None:
    """The saga's identity is signed and compared first: here the same id in another store, with the same key."""
    async with desk() as first, desk() as second:
        approve, _ = await first.question("trip")
        await second.question("trip")
        assert "another saga" not in await first.open(approve)
        refused = await second.server.client.get(approve)
        assert refused.status_code == 401, refused.text
        assert 'id="decide"' not in refused.text
        assert await second.decided("trip") == []
