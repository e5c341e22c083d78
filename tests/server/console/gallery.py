"""A server whose sagas are in every state that the console can show, and the addresses of all its pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from saga_engine import Coordinator, tool
from saga_engine.api.stops import stop
from saga_engine.hooks.links import Links
from saga_engine.planner.planning import Planning
from saga_engine.planner.settings import PlannerSettings
from saga_engine.ports import PlannerRequest
from saga_engine.server.demo import POLICY, Agency, fill, tools_of, trip
from saga_engine.server.settings import ServerSettings
from saga_engine.server.views import identity_of_saga
from saga_engine.testing.scripted import ScriptedPlanner
from tests.hooks.questions import a_question
from tests.server.harness import Server, serving
from tests.support.servers import GIVE_UP_S

LINKS = Links("http://127.0.0.1:1", "a-key-of-links-with-more-than-32-signs")
OPEN = ServerSettings(port=0, auth="none", requests_per_s=1e6, burst=1_000_000, links=LINKS)
#: A saga of each state.
STATES = {
    "PENDING": "not-begun",
    "RUNNING": "group-tour",
    "COMPENSATING": "being-undone",
    "ESCALATED": "trip-undo-refused",
    "COMPLETED": "trip-lisbon",
    "COMPENSATED": "trip-hotel-full",
    "WAIVED": "accepted",
}
PATHS = (
    *(f"/ui/sagas/{saga_id}" for saga_id in STATES.values()),
    "/ui/sagas",
    "/ui/sagas?status=COMPLETED&tag=demo&since=1h",
    "/ui/sagas?name=none",
    "/ui/sagas/agent",
    "/ui/sagas/doubtful?step=courier",
    "/ui/sagas/trip-hotel-full?step=hotel",
    "/ui/sagas/trip-lisbon?view=records",
    "/ui/sagas/catalogue-changed-meanwhile?step=price",
    "/ui/sagas/group-tour?view=graph&step=menu",
    "/ui/sagas/group-tour?view=records&said=answered",
    "/ui/sagas/group-tour?view=plan",
    "/ui/sagas/group-tour/cancel",
    "/ui/sagas/accepted/cancel",
    "/ui/sagas/trip-lisbon/undo",
    "/ui/sagas/trip-hotel-full/undo",
    "/ui/questions",
    "/ui/workers",
    "/ui/templates",
    "/ui/templates/trip",
    "/ui/plan",
    "/ui/goal",
    "/ui/stop?tool=pay",
    "/ui/sign-in?wrong=1",
    "/ui/sagas/nobody",
)


def _slow(going: asyncio.Event) -> list[Any]:
    @tool(undo="unhold")
    async def hold(item: str) -> dict[str, str]:
        """Hold an item. item: its name."""
        return {"held": item}

    @tool(timeout_s=3600)  # a slow machine makes no other saga of it
    async def unhold(held: str) -> None:
        """Give an item back, which takes a while."""
        await going.wait()

    @tool(undo="call_back")
    async def courier(to: str) -> dict[str, str]:
        """Send a courier. to: the address."""
        raise TimeoutError("the courier's desk did not answer")

    @tool
    async def call_back(to: str) -> None:
        """Call the courier back."""

    return [hold, unhold, courier, call_back]


async def _all_states(engine: Coordinator) -> None:
    """Submit the sagas, and wait until each is in its state."""
    ids = await fill(engine)
    for saga_id in ("reminder", "group-tour"):
        engine.supervisor.resume(saga_id)
    await _until(engine, "group-tour", "questions")
    asking = ("catalogue-changed-meanwhile", "trip-large-payment", "trip-undo-refused")
    for saga_id in asking:  # one after another: their questions stand in this order
        await engine.resume(saga_id)
    resting = set(ids) - {"reminder", "group-tour", *asking}
    await asyncio.gather(*(engine.resume(saga_id) for saga_id in resting))
    await engine.run(trip("Stubborn Lodge", purpose="declined"), saga_id="accepted")
    await engine.resolve("accepted", "hotel", "accept", by="Ada", note="the room is not worth the call")
    courier = {"step_id": "courier", "tool": "courier", "params": {"to": "Rua 1"}}
    await engine.run({"steps": [courier]}, saga_id="doubtful")
    async with engine.session("agent", goal="Book a room for Ada") as session:
        await session.call("book_hotel", hotel="Pension 7", nights=1)
    tent = {"step_id": "hold", "tool": "hold", "params": {"item": "tent"}}
    refused = trip("Hilton Harbour")["steps"][1] | {"depends_on": ["hold"]}
    await engine.submit({"goal": "A tent and a room", "steps": [tent, refused]}, saga_id="being-undone")
    await engine.submit({"goal": "Later", "steps": [tent]}, saga_id="not-begun", detach=True)
    await stop(engine.store, tool="pay", by="Ada", note="the bank is being changed")
    async with asyncio.timeout(GIVE_UP_S):
        for state, saga_id in STATES.items():
            await _until(engine, saga_id, "status", state)


def _written(request: PlannerRequest) -> dict[str, Any]:
    """What the model answers to any goal: at first with a tool that there is not."""
    hotel = {"step_id": "hotel", "tool": "book_hotel", "params": {"hotel": "Pension 7", "nights": 2}}
    if request.repair is None:
        return {"steps": [{**hotel, "tool": "reserve_hotel"}]}
    ask = {"question": "Pay {$output.step_hotel.price} for the hotel?", "to": "Ada", "options": ["yes", "no"]}
    no = [{"value": "$output.step_agree.answer", "op": "==", "to": "no"}]
    pay = {"amount": "$output.step_hotel.price", "purpose": "Pension 7"}
    steps = [
        hotel,
        {"step_id": "agree", "ask": ask, "failed_when": no},
        {"step_id": "payment", "tool": "pay", "params": pay},
        {
            "step_id": "mail",
            "tool": "send_mail",
            "kind": "pivot",
            "params": {"to": "ada@example.com", "text": "paid: {$output.step_payment.payment_id}"},
        },
    ]
    return {"steps": steps, "assumptions": ["Two nights are wanted."]}


async def _until(engine: Coordinator, saga_id: str, name: str, wanted: Any = None) -> None:
    """Wait until a saga shows a value, or any value, under a name."""
    while True:
        found = (await engine.show(saga_id)).to_dict()[name]
        if found == wanted or (wanted is None and found):
            return
        await asyncio.sleep(0.002)


@asynccontextmanager
async def gallery() -> AsyncIterator[tuple[Server, Coordinator]]:
    """The demo at rest, and sagas that have not begun, are being undone, are in doubt, were accepted or are held."""
    going = asyncio.Event()
    tools = [*tools_of(Agency()), *_slow(going)]
    model = Planning(ScriptedPlanner(*[_written] * 40, model="demo:model"), PlannerSettings())
    opening = Coordinator.open(
        "memory://", tools, policy=POLICY, on_escalation=(), durability="relaxed", planner=model, semantic="never"
    )
    async with opening as engine:
        try:
            await _all_states(engine)
            async with serving(engine, OPEN) as server:
                yield server, engine
        finally:
            going.set()


async def link_paths(engine: Coordinator) -> dict[str, str]:
    """The pages of one-tap links: of each answer, one that has expired, and one that nobody made."""
    saga_id = "trip-large-payment"
    (asked,) = (await engine.show(saga_id)).to_dict()["questions"]
    given = {
        "saga_id": saga_id,
        "identity": await identity_of_saga(engine, saga_id),
        "question_id": asked["question_id"],
        "options": ("approve", "deny"),
    }
    made = {}
    for name, expires_ms in (("link", None), ("expired link", 1)):
        question = a_question(kind="approval", expires_ms=expires_ms, **given)
        for option, url in LINKS.of(question, "ops").items():
            made[f"{name} to {option}"] = url.removeprefix(LINKS.url)
    return made | {"a link that nobody made": made["link to approve"] + "x"}
