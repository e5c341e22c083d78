"""What a forked child does in the cases about guards, approvals, alerts and plans that grow.

Its tools stand beside those of ``world``: most honour keys, so that a doubt about them settles itself; those that a case
is about come as ``keyed`` and as ``bare``. Whatever somebody is told or asked goes into files beside the ledger, one line
of JSON each, written at a point where the process may die.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, RetryPolicy, SagaError, SagaResult, ToolContext, ToolError, tool
from saga_engine.core import asking_later
from saga_engine.core.interpret import Advice
from saga_engine.core.messages import decode_message
from saga_engine.core.records import Written
from saga_engine.errors import ModelUnreachable, SagaNotFound
from saga_engine.ports import CompensationRequest, Question, ReplanRequest, StepsCheck
from saga_engine.stores import open_store
from saga_engine.testing.faults import CALL, Faults, FaultyStore
from saga_engine.testing.ledger import OutsideLedger
from saga_engine.tools.registry import ToolRegistry
from tests.kill.growing_mutants import MUTANTS
from tests.kill.world import FAST, TOOLS, World, did

Told = dict[str, Any]

ONCE = RetryPolicy(max_attempts=1)
#: A step of the tool ``later`` is done at this attempt; before it cannot be reached.
REACHED_AT = 3
#: How long a result is remembered in these cases: longer than any of them takes.
KEPT_S = 600


def make(*, keyed: bool) -> ToolRegistry:
    """The tools of one variant; ``keyed`` says what those do that a case is about."""
    about: dict[str, Any] = {"keyed": keyed, "retry": FAST}

    async def effect(ctx: ToolContext, name: str, params: dict[str, Any], output: dict[str, Any]) -> dict:
        World.ledger.sent(ctx, name, params)
        await asyncio.sleep(0)
        return did(ctx, name, output, once=keyed)

    @tool(name="buy", undo="cancel", dedupe_ttl_s=KEPT_S, retry=FAST)
    async def buy(what: str, ctx: ToolContext) -> dict:
        """No key and no probe: all that is known of it is what the engine remembers."""
        World.ledger.sent(ctx, "buy", {"what": what})
        return did(ctx, "buy", {"ref": what}, once=False)

    @tool(name="wire", undo="cancel", **about)
    async def wire(amount: int, ctx: ToolContext) -> dict:
        return await effect(ctx, "wire", {"amount": amount}, {"ref": f"w{amount}"})

    @tool(name="down", undo="cancel", **about)
    async def down(item: str, ctx: ToolContext) -> dict:
        """It never does anything, and says so."""
        World.ledger.sent(ctx, "down", {"item": item})
        with World.faults.at(CALL):
            raise ToolError("closed for good", error_code="closed", retryable=False)

    @tool(name="later", effect="read", retry=ONCE)
    async def later(item: str, ctx: ToolContext) -> dict:
        """It cannot be reached at first."""
        World.ledger.sent(ctx, "later", {"item": item})
        with World.faults.at(CALL):
            if ctx.attempt < REACHED_AT:
                raise ToolError("no line", error_code="down", retryable=True)
            return {"ref": item}

    @tool(name="pay", undo="unpay", **about)
    async def pay(item: str, ctx: ToolContext) -> dict:
        return await effect(ctx, "pay", {"item": item}, {"ref": item})

    @tool(name="unpay", **about)
    async def unpay(ref: str, ctx: ToolContext) -> dict:
        return await effect(ctx, "unpay", {"ref": ref}, {"unpaid": ref})

    @tool(name="tweet", keyed=True, retry=FAST, semantic="approve")
    async def tweet(text: str, ctx: ToolContext) -> dict:
        World.ledger.sent(ctx, "tweet", {"text": text})
        return did(ctx, "tweet", {"id": text}, once=True)

    @tool(name="apologise", compensates=True, **about)
    async def apologise(to: str, ctx: ToolContext) -> dict:
        return await effect(ctx, "apologise", {"to": to}, {})

    @tool(name="refund", compensates=True, semantic="auto", **about)
    async def refund(ref: str, ctx: ToolContext) -> dict:
        return await effect(ctx, "refund", {"ref": ref}, {})

    @tool(name="retract", compensates=True, semantic="auto", **about)
    async def retract(ref: str, ctx: ToolContext) -> dict:
        return await effect(ctx, "retract", {"ref": ref}, {})

    new = [buy, wire, down, later, pay, unpay, tweet, apologise, refund, retract, make_hold(keyed=keyed)]
    return ToolRegistry([*TOOLS["keyed"], *new])


def make_hold(*, keyed: bool) -> Any:
    """A tool that needs a room for itself; who goes in and out writes it down."""

    @tool(name="hold", undo="cancel", keyed=keyed, retry=FAST, resource="room:{room}", timeout_s=600)
    def hold(room: str, ctx: ToolContext) -> dict:
        World.ledger.sent(ctx, "hold", {"room": room})
        note("room", {"saga": ctx.saga_id, "what": "enter"})
        gate = World.folder / f"gate-{ctx.saga_id}"
        if gate.exists():
            (World.folder / f"begun-{ctx.saga_id}").write_text("begun")
            gate.read_text()
        output = did(ctx, "hold", {"ref": room}, once=keyed)
        note("room", {"saga": ctx.saga_id, "what": "accept"})
        return output

    return hold


#: By variant.
REGISTRIES = {"keyed": make(keyed=True), "bare": make(keyed=False)}
#: The tools whose doubts only a person can settle, by variant.
BARE = {
    "keyed": {"buy", "lose"},
    "bare": {"buy", "lose", "wire", "down", "pay", "unpay", "apologise", "refund", "retract", "hold"},
}


def note(name: str, line: Mapping[str, Any]) -> None:
    """Add one line to a file of this case; a line is whole or absent, whoever is killed."""
    handle = os.open(World.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, json.dumps(line).encode() + b"\n")
    finally:
        os.close(handle)


def noted(folder: Path, name: str) -> list[dict[str, Any]]:
    """The lines of such a file; none if nobody has written any."""
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Scripted:
    """An advisor that answers what the case says, by purpose and step, whoever asks and however often."""

    def __init__(self, answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self._answers = answers

    async def advise(self, request: CompensationRequest | ReplanRequest, check: StepsCheck) -> Advice:
        compensating = isinstance(request, CompensationRequest)
        about = f"compensate {request.stuck.step_id}" if compensating else f"replan {request.failed.step_id}"
        with World.faults.at("advise"):
            note("asked", {"about": about})
        if about not in self._answers:
            raise ModelUnreachable("no answer", hint="this is a test")
        steps = self._answers[about]
        assert not check(steps), check(steps)
        return Advice(steps, Written("scripted:model", "scripted@1", "abc", 1, 10, 5))


def tell(question: Question) -> None:
    """A hook that reaches a person: the line is what the person gets."""
    with World.faults.at("alert"):
        note("told", {"question": question.question_id, "kind": question.kind})


def main(case: dict[str, Any]) -> Told:
    """Play the part and say what came of it."""
    World.ledger = OutsideLedger(case["ledger"])
    World.folder = Path(case["ledger"]).parent
    World.faults = Faults(case.get("fault", ""))
    asking_later.DELAYS_MS = (1,)  # type: ignore[misc] - asked again once: each request is a point to be killed at
    if "mutant" in case:
        MUTANTS[case["mutant"]].install()
    return asyncio.run(_play(case))


async def _play(case: dict[str, Any]) -> Told:
    World.store = open_store(case["url"])
    store = FaultyStore(World.store, World.faults)
    told: Told = {}
    try:
        async with Coordinator.open(
            store,
            REGISTRIES[case["variant"]],
            lease_s=case.get("lease_s", 15.0),
            policy=case.get("policy"),
            advisor=Scripted(case["advice"]) if "advice" in case else None,
            on_escalation=tell if case.get("tell") else (),
        ) as coordinator:
            if case.get("line_up"):
                _line_up(Path(case["line_up"]))
            told = await PARTS[case["part"]](coordinator, case)
    except SagaError as error:
        told = {"error": error.to_dict()}
    finally:
        await store.close()
    return {**told, "counts": dict(World.faults.counts)}


def _line_up(folder: Path) -> None:
    with (folder / "ready").open("w") as ready:
        ready.write("r")
    with (folder / "go").open("rb", buffering=0) as go:
        go.read(1)


def _body(result: Any) -> Any:
    return result.to_dict() if isinstance(result, SagaResult) else {"error": result.to_dict()}


async def _submit(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    outcome = await coordinator.run(case["plan"], saga_id=case["saga_id"])
    return {"final": _body(outcome), "history": await coordinator.history(case["saga_id"])}


async def _resume_all(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    """Resume whatever there is; then answer what is asked, until the saga has ended."""
    saga_id = case["saga_id"]
    told: Told = {"before": None}
    try:
        told["before"] = await coordinator.history(saga_id)
    except SagaNotFound:
        told["others"] = sorted(await coordinator.resume_all())
        return told
    told["messages"] = await _messages(coordinator, saga_id)
    told["remembered"] = await _remembered(saga_id)
    told["asked_before"] = noted(World.folder, "asked")
    results = await coordinator.resume_all()
    told["others"] = sorted(set(results) - {saga_id})
    final = await coordinator.show(saga_id)
    told["resumed"] = _body(results.get(saga_id, final))
    while final.status == "ESCALATED":
        step_id, decision, output = _answer(case, final)
        mark = final.body["questions"][0].get("outlooks", {}).get(decision, {}).get("mark", "")
        final = await coordinator.resolve(saga_id, step_id, decision, output=output, by="ada", expect=mark)
    told["final"] = _body(final)
    told["history"] = await coordinator.history(saga_id)
    return told


async def _messages(coordinator: Coordinator, saga_id: str) -> list[list[str]]:
    messages = [decode_message(data) for data in await coordinator.store.messages(saga_id)]
    return [[message.kind, message.step, message.question] for message in messages]


async def _remembered(saga_id: str) -> list[str]:
    """The steps whose call is deduplicated, asked of the store itself."""
    guards = World.store.guard_store()
    keys = {line.key: line.step_id for line in World.ledger.lines(saga_id, what="sent") if line.tool == "buy"}
    return [step_id for key, step_id in keys.items() if await guards.recollect("buy", key) is not None]


def _answer(case: dict[str, Any], outcome: SagaResult) -> tuple[Any, str, Any]:
    """What a person says to the first question: the case's word, or how it stands in the world."""
    question = outcome.body["questions"][0]
    step_id, kind = question["step_id"], question["kind"]
    said = case.get("answers", {}).get(kind)
    if kind not in ("in-doubt", "undo-in-doubt"):
        return step_id, said or {"approval": "approve", "compensation": "approve"}.get(kind, "accept"), None
    found = World.ledger.find(question["idempotency_key"])
    if found is None:
        return step_id, said or "not-happened", None
    return step_id, "happened", found.output if question["direction"] == "forward" else None


async def _decide(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    step_id, decision, *output = case["answer"]
    outcome = await coordinator.resolve(
        case["saga_id"], step_id, decision, output=next(iter(output), None), by=case["by"]
    )
    return {"final": _body(outcome)}


async def _amend(coordinator: Coordinator, case: dict[str, Any]) -> Told:
    return {"final": _body(await coordinator.amend(case["saga_id"], case["steps"], by="ada"))}


PARTS = {"submit": _submit, "resume-all": _resume_all, "decide": _decide, "amend": _amend}
