"""The matrix of doors: each promise is asked at every way into the engine.

A promise is one function, a door one entry of ``ways.WAYS``; each pair is a case. A pair that cannot be has its reason
in ``WITHOUT``. All that is configured stands in the folder's ``saga.toml``, so every case also proves that its door
reads that file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.api.stops import go, stop
from tests.children import until
from tests.doors import shop
from tests.doors.ways import FORKED, QUESTION, WAYS, tried

CARD = "4000-1234-5678"
PARAMS = {"amount": 5, "card": CARD}
#: The value of the secret that no tool may have.
HUSH = "4000-hush"

_BEFORE_THE_SAGA = "the command line runs in a process of its own: its saga cannot be looked at on a store in memory"
_NO_BINDINGS = "an agent's call has values and no bindings"
#: Pairs that cannot be, each with the reason.
WITHOUT = {
    ("held by a stop", "CLI"): _BEFORE_THE_SAGA,
    ("undone by the registered undo", "CLI"): _BEFORE_THE_SAGA,
    ("held by an open breaker", "CLI"): _BEFORE_THE_SAGA,
    ("nothing sensitive is shown", "CLI"): "tests/cli/test_sensitive.py asks every command",
}

Promise = Callable[[str, Path], Any]
PROMISES: dict[str, Promise] = {}


def promise(words: str) -> Callable[[Promise], Promise]:
    """Enter a promise into the matrix."""

    def entered(function: Promise) -> Promise:
        PROMISES[words] = function
        return function

    return entered


def opened(**options: Any) -> Any:
    return Coordinator.open("memory://", shop.TOOLS, durability="relaxed", on_escalation=(), **options)


def paid() -> list[dict[str, Any]]:
    return [entry for entry in shop.ledger() if entry["tool"] == "pay"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of agent, operator and tools."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CARD", HUSH)
    return tmp_path


@promise("a denied call is not made")
async def denied(way: str, folder: Path) -> None:
    """The policy of the folder's file holds, and the caller learns why."""
    (folder / "saga.toml").write_text('[[policy.rules]]\nname = "nobody pays"\ntools = ["pay"]\nverdict = "deny"\n')
    async with opened() as engine:
        told = await tried(way, engine, PARAMS)
    assert paid() == []
    assert "nobody pays" in told


@promise("a call waits for an operator's approval")
async def asked(way: str, folder: Path) -> None:
    """Where the policy asks, nothing is paid before an operator has answered."""
    (folder / "saga.toml").write_text('[[policy.rules]]\nname = "ask first"\ntools = ["pay"]\nverdict = "ask"\n')
    async with opened() as engine:
        trying = asyncio.create_task(tried(way, engine, PARAMS))
        if way != "CLI":
            await until(lambda: _is_asked(engine))
        else:
            await trying
        assert paid() == []
        trying.cancel()
        await asyncio.gather(trying, return_exceptions=True)
    assert paid() == []


async def _is_asked(engine: Coordinator) -> bool:
    """Whether an operator is asked about the payment (and not only how a saga that is to be forked goes on)."""
    shown = [await engine.show(head.saga_id) for head in await engine.list() if head.saga_id != FORKED]
    return any(question.get("text") != QUESTION for each in shown for question in each.body.get("questions", ()))


@promise("a secret that is not allowed reaches no tool")
async def secret(way: str, folder: Path) -> None:
    """A plan that binds it is refused; the values of an agent bind nothing."""
    (folder / "saga.toml").write_text("[secrets]\nallow = {}\n")
    async with opened() as engine:
        told = await tried(way, engine, {"amount": 5, "card": "$secret.CARD"})
    assert HUSH not in json.dumps(shop.ledger())
    assert HUSH not in told


@promise("a call has a key of its own")
async def key(way: str, folder: Path) -> None:
    """It is made once, and under a key that no other call has."""
    async with opened() as engine:
        await tried(way, engine, PARAMS)
    async with opened() as engine:
        await tried(way, engine, PARAMS)
    keys = [entry["key"] for entry in paid()]
    assert len(keys) == 2
    assert all(keys)
    assert len(set(keys)) == 2


@promise("a lost answer is a doubt and no failure")
async def doubt(way: str, folder: Path) -> None:
    """All that is made again is made under the same key; nothing is called clean or undone while nobody knows."""
    (folder / "saga.toml").write_text("[tools.pay]\nretry = { base_s = 0.01 }\n")
    shop.LOSES_ANSWERS.touch()
    await _in_doubt(way)


@promise("what a tool raises without a statement is a doubt and no failure")
async def raised(way: str, folder: Path) -> None:
    """The same after the effect of a call: it is repeated once under its key, and then an operator is asked."""
    shop.RAISES.touch()
    await _in_doubt(way)
    assert len(paid()) == 2


async def _in_doubt(way: str) -> None:
    async with opened() as engine:
        trying = asyncio.create_task(tried(way, engine, PARAMS))
        if way != "CLI":
            await until(lambda: _is_asked(engine))
            for head in await engine.list():
                report = (await engine.show(head.saga_id)).report
                assert report["compensated"] == []
            assert any([not (await engine.show(head.saga_id)).report["clean"] for head in await engine.list()])
            trying.cancel()
        told = await asyncio.gather(trying, return_exceptions=True)
    assert len({entry["key"] for entry in paid()}) == 1
    assert [entry for entry in shop.ledger() if entry["tool"] == "refund"] == []
    assert "COMPENSATED" not in str(told)


@promise("held by a stop")
async def held(way: str, folder: Path) -> None:
    """A stop of the tool holds the call; after the go it is made once."""
    async with opened() as engine:
        await stop(engine.store, tool="pay")
        trying = asyncio.create_task(tried(way, engine, PARAMS))
        await until(lambda: _has_record(engine, "StepQueued"))
        assert paid() == []
        await go(engine.store, tool="pay")
        await trying
    assert len(paid()) == 1


async def _has_record(engine: Coordinator, kind: str) -> bool:
    heads = await engine.list()
    return any([kind in {record["k"] for record in await engine.history(head.saga_id)} for head in heads])


@promise("held by an open breaker")
async def broken(way: str, folder: Path) -> None:
    """The call waits, which the journal says and which uses up no attempt; an agent at the gateway hears it at once."""
    (folder / "saga.toml").write_text("[tools.pay]\nbreaker = { failures = 1, open_s = 600 }\n")
    async with opened() as engine:
        await engine.store.guard_store().breaker_outcome("pay", failed=True, failures=1, open_ms=600_000)
        trying = asyncio.create_task(tried(way, engine, PARAMS))
        if way == "gateway":
            assert "breaker_open" in await trying
        else:
            await until(lambda: _has_record(engine, "StepRetryScheduled"))
        journals = [await engine.history(head.saga_id) for head in await engine.list()]
        (waits,) = [record for journal in journals for record in journal if record["k"] in _WAITS_FOR[way == "gateway"]]
        assert waits["error"]["error_code"] == "breaker_open"
        assert waits.get("counted", False) is False
        trying.cancel()
        await asyncio.gather(trying, return_exceptions=True)
    assert paid() == []


#: What the journal says of a call that a breaker refuses: that it waits, or that it was not made.
_WAITS_FOR = {False: ("StepRetryScheduled",), True: ("StepFailed",)}


@promise("undone by the registered undo")
async def undone(way: str, folder: Path) -> None:
    """With what the call returned, once, under a key of the undo's own."""
    async with opened() as engine:
        await tried(way, engine, PARAMS)
        for head in await engine.list():
            if head.status == "COMPLETED" and not (await engine.show(head.saga_id)).body.get("parent"):
                await engine.undo(head.saga_id)
    refunds = [entry for entry in shop.ledger() if entry["tool"] == "refund"]
    assert [entry["payment"] for entry in refunds] == ["P5"]
    assert refunds[0]["key"] not in {"", paid()[0]["key"]}


@promise("nothing sensitive is shown")
async def masked(way: str, folder: Path) -> None:
    """The tool gets the value; caller, views and journals have a mark in its place."""
    async with opened() as engine:
        told = await tried(way, engine, PARAMS)
        views = [told]
        for head in await engine.list():
            views.append(head.summary.decode())
            views.append(json.dumps((await engine.show(head.saga_id, full=True)).to_dict()))
            views.append(json.dumps(await engine.history(head.saga_id, full=True)))
            views.append(str(await engine.trace(head.saga_id, full=True)))
    assert [entry["card"] for entry in paid()] == [CARD]
    assert [view for view in views if CARD in view] == []


@promise("a value that the schema refuses reaches no tool")
async def refused(way: str, folder: Path) -> None:
    """The caller learns which param it is."""
    async with opened() as engine:
        told = await tried(way, engine, {"amount": "five", "card": CARD})
    assert paid() == []
    assert "amount" in told


CASES = [(words, way) for words in PROMISES for way in WAYS if (words, way) not in WITHOUT]


@pytest.mark.parametrize(("words", "way"), CASES, ids=[f"{way}: {words}" for words, way in CASES])
async def test_each_door_keeps_each_promise(words: str, way: str, folder: Path) -> None:
    """The same promise, whatever way the call came."""
    await PROMISES[words](way, folder)


def test_what_is_left_out_has_a_reason() -> None:
    """No pair is left out for a door or a promise that is gone."""
    assert [pair for pair, why in WITHOUT.items() if pair[0] not in PROMISES or pair[1] not in WAYS or not why] == []
