"""What the page of a cancel shows is what the cancel then does."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from saga_engine import Coordinator, tool
from saga_engine.server.app import create_app
from saga_engine.server.settings import ServerSettings
from tests import tiers
from tests.server.console.page_reader import Browser
from tests.support.servers import GIVE_UP_S

TOOLS = ("book", "look", "mail")


@st.composite
def plans(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Steps that change, read or cannot be undone, and one that asks; each after any of those before it."""
    many = draw(st.integers(1, 7))
    gate = draw(st.integers(0, many))
    steps: list[dict[str, Any]] = []
    for n in range(many + 1):
        key = "gate" if n == gate else f"s{n}"
        before = [step["step_id"] for step in steps]
        deps = draw(st.lists(st.sampled_from(before), unique=True, max_size=3)) if before else []
        if n == gate:
            body: dict[str, Any] = {"ask": {"question": "On?", "options": ["yes", "no"]}}
        else:
            name = draw(st.sampled_from(TOOLS))
            body = {"tool": name, "params": {"what": key}} | ({"kind": "irreversible"} if name == "mail" else {})
        steps.append({"step_id": key, "depends_on": deps, **body})
    return steps


def after(steps: list[dict[str, Any]], key: str) -> set[str]:
    """A step and all that come after it."""
    found = {key}
    for step in steps:
        if found & set(step["depends_on"]):
            found.add(step["step_id"])
    return found


def listed(page: str, name: str) -> list[str]:
    """The steps of one list of the page, in its order."""
    found = re.search(rf'id="list-{name}".*?</section>', page, re.DOTALL)
    return [] if found is None else re.findall(r"<li><b>([^<]*)</b>", found[0])


async def compare(steps: list[dict[str, Any]]) -> None:
    done: list[str] = []

    @tool(undo="unbook")
    async def book(what: str) -> dict[str, str]:
        return {"what": what}

    @tool
    async def unbook(what: str) -> None:
        done.append(what)

    @tool(effect="read")
    async def look(what: str) -> str:
        return what

    @tool
    async def mail(what: str) -> None:
        """Nothing takes it back."""

    never = after(steps, "gate")
    async with Coordinator.open(
        "memory://", [book, unbook, look, mail], on_escalation=(), durability="relaxed"
    ) as engine:
        await engine.submit({"steps": steps}, saga_id="s")
        browser = Browser(create_app(engine, ServerSettings(auth="none")))
        async with asyncio.timeout(GIVE_UP_S):
            page = ""
            while set(listed(page, "never")) != never or listed(page, "settles"):
                page = await browser.page("/ui/sagas/s/cancel")
        sent = await browser.send(page, "/ui/sagas/s/cancel", note="")
        assert sent.status_code == 303
        found = await engine.resume("s")
        undoes, remains = listed(page, "undoes"), listed(page, "remains")
        assert sorted(done) == sorted(undoes)
        assert sorted(map(str, found.report["compensated"])) == sorted(undoes)
        assert sorted(map(str, found.report["left_in_place"])) == sorted(remains)
        for step in steps:
            for order in (undoes, done):
                later = [order.index(each) for each in after(steps, step["step_id"]) if each in order]
                assert step["step_id"] not in order or order.index(step["step_id"]) == max(later)
        called = {str(each["step"]) for each in await engine.history("s") if each["k"] == "StepIntended"}
        assert called.isdisjoint(never)


@settings(max_examples=tiers.examples(40))
@given(plans())
def test_the_preview_of_a_cancel_is_what_the_cancel_does(steps):
    """Of any plan that rests at a question: the undos, what remains and what never begins are as the page said."""
    asyncio.run(compare(steps))
