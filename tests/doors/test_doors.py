"""The matrix of doors: each promise is asked at every way into the engine.

A promise is one function, a door one entry of ``ways.WAYS``; each pair is a case. A pair that cannot be has its reason
in ``WITHOUT``, and one that another test asks has its name in ``ELSEWHERE``: so have the doors and the promises that
this file has no function for. A new door or promise fails until each of its pairs is one of these. All that is configured stands in the folder's ``saga.toml``, so every case also proves that its door
reads that file.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.api.stops import go, stop
from saga_engine.execution.governed import found_in, governed
from saga_engine.plan.operator_limits import NO_LIMITS
from tests.doors import shop
from tests.doors.ways import FORKED, QUESTION, WAYS, tried
from tests.support.children import until

CARD = "4000-1234-5678"
PARAMS = {"amount": 5, "card": CARD}
#: The value of the secret that no tool may have.
HUSH = "4000-hush"

_BEFORE_THE_SAGA = "the command line runs in a process of its own: its saga cannot be looked at on a store in memory"
_OWN_STORE = "the command line works on a store of its own here; its way to a saga is that of a plan"
_NO_LISTENER = "nobody connects to it from the network"
_NO_SCHEMA = "an agent's call brings values and no schema"
#: Promises that other files ask.
NETWORK, SCHEMAS = "a slow or greedy client is cut off", "a schema that takes exponential time is refused"
#: A door that needs a server, which the desk does not start.
TEMPORAL = "Temporal"
#: Pairs that cannot be, each with the reason.
WITHOUT = {
    ("held by a stop", "CLI"): _BEFORE_THE_SAGA,
    ("undone by the registered undo", "CLI"): _BEFORE_THE_SAGA,
    ("an undo that only says so is found out", "CLI"): _BEFORE_THE_SAGA,
    ("held by an open breaker", "CLI"): _BEFORE_THE_SAGA,
    ("no more sagas are live than the quota says", "CLI"): _OWN_STORE,
    ("no more sagas are live than the quota says", TEMPORAL): "a quota stands in the namespace of a store's sagas",
    ("the calls of a day cost no more than the tenant's budget", "CLI"): _OWN_STORE,
    ("the calls of a day cost no more than the tenant's budget", TEMPORAL): (
        "a tenant is a namespace of a store's sagas"
    ),
    ("what another saga holds is not written", "CLI"): _OWN_STORE,
    ("what another saga holds is not written", TEMPORAL): "a tool whose resource a saga holds is refused by name",
    (
        "what nobody has read is not overwritten",
        TEMPORAL,
    ): "a tool with a read before its call is refused there by name",
    ("what another saga wrote and put back is not overwritten", "CLI"): _OWN_STORE,
    (
        "what another saga wrote and put back is not overwritten",
        TEMPORAL,
    ): "a tool with a read before its call is refused there by name",
    ("what rules hold stands in the lease", TEMPORAL): "a worker of Temporal has no lease: its calls have heartbeats",
    **{(NETWORK, way): _NO_LISTENER for way in (*WAYS, TEMPORAL) if way not in ("HTTP", "gateway", "--engine")},
    (SCHEMAS, "gateway"): _NO_SCHEMA,
    (SCHEMAS, "fallback"): "a fallback brings a tool and params, and no schema",
}
_GATE = "tests/plan/test_schema_gate.py::"
_LISTENER = "tests/listener/test_doors.py::test_a_head_that_drips_is_cut_off"
_GUARDED = "tests/temporal/test_guarded.py::"
_THERE = "tests/temporal/test_doors.py::"
#: Pairs that another test asks.
ELSEWHERE = {
    ("nothing sensitive is shown", "CLI"): "tests/cli/test_sensitive.py::test_no_command_shows_a_sensitive_value",
    ("a denied call is not made", TEMPORAL): f"{_THERE}test_the_policy_of_the_folder_holds",
    ("a call waits for an operator's approval", TEMPORAL): f"{_GUARDED}test_an_approval_lets_the_exact_call_pass",
    ("a secret that is not allowed reaches no tool", TEMPORAL): (
        f"{_THERE}test_a_secret_that_is_not_allowed_reaches_no_tool"
    ),
    ("a call has a key of its own", TEMPORAL): "tests/temporal/test_sagas.py::test_the_same_journal_as_in_process",
    ("a lost answer is a doubt and no failure", TEMPORAL): "tests/temporal/test_sagas.py::test_a_person_answers",
    ("what a tool raises without a statement is a doubt and no failure", TEMPORAL): (
        "tests/engines/test_raised.py::test_no_door_takes_an_exception_for_a_refusal"
    ),
    ("a saga's calls cost no more than its budget", TEMPORAL): f"{_THERE}test_a_saga_costs_no_more_than_its_budget",
    ("held by a stop", TEMPORAL): "tests/sagas/test_stops.py::test_where_no_append_tells_the_view_is_read",
    ("held by an open breaker", TEMPORAL): f"{_GUARDED}test_a_step_waits_for_a_breaker",
    ("an undo that only says so is found out", TEMPORAL): f"{_THERE}test_an_undo_that_only_says_so_is_found_out",
    ("undone by the registered undo", TEMPORAL): f"{_THERE}test_an_undo_is_the_registered_one",
    ("nothing sensitive is shown", TEMPORAL): f"{_THERE}test_an_undo_is_the_registered_one",
    ("a value that the schema refuses reaches no tool", TEMPORAL): (
        f"{_THERE}test_a_value_that_the_schema_refuses_reaches_no_tool"
    ),
    ("what rules hold stands in the lease", "CLI"): (
        "tests/sagas/test_differing.py::test_doctor_and_top_name_the_process_that_differs"
    ),
    **{(NETWORK, way): _LISTENER for way in ("HTTP", "gateway", "--engine")},
    **{
        (SCHEMAS, way): f"{_GATE}test_a_plan_with_such_a_schema_is_refused_at_every_door"
        for way in ("plan", "CLI", "HTTP", "--engine", "child")
    },
    (SCHEMAS, "session"): f"{_GATE}test_a_sessions_schemas_are_refused",
    (SCHEMAS, "schedule"): f"{_GATE}test_a_templates_own_schema_is_refused",
    (SCHEMAS, "amend"): f"{_GATE}test_what_is_added_and_what_is_forked_is_refused",
    (SCHEMAS, "fork"): f"{_GATE}test_what_is_added_and_what_is_forked_is_refused",
    (SCHEMAS, TEMPORAL): f"{_THERE}test_a_schema_that_takes_exponential_time_is_refused",
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


@promise("an undo that only says so is found out")
async def found_out(way: str, folder: Path) -> None:
    """The undo's own probe tells: an operator is asked, and nothing counts as undone."""
    (folder / shop.LIES).touch()
    async with opened() as engine:
        await tried(way, engine, PARAMS)
        undone = [head.saga_id for head in await engine.list() if head.status == "COMPLETED"]
        undone = [saga_id for saga_id in undone if not (await engine.show(saga_id)).body.get("parent")]
        undoing = [asyncio.create_task(engine.undo(saga_id)) for saga_id in undone]
        await until(lambda: _is_asked(engine))
        for task in undoing:  # that of a parent waits for the operator whom its child asks
            task.cancel()
        await asyncio.gather(*undoing, return_exceptions=True)
        bodies = [(await engine.show(head.saga_id)).body for head in await engine.list()]
    asked = [question["kind"] for body in bodies for question in body["questions"]]
    assert asked.count("undo-unverified") == 1
    assert not any(body["report"]["clean"] for body in bodies if body["report"]["compensated"])


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


@promise("no more sagas are live than the quota says")
async def counted(way: str, folder: Path) -> None:
    """What would begin one more is refused, and the caller learns why."""
    waits = {"steps": [{"step_id": 1, "ask": {"question": "Shall we?", "options": ["yes"]}}]}
    async with opened() as engine:
        await engine.supervisor.quota.set(live_sagas=1, steps_per_s=0)
        await engine.submit(waits, saga_id="live")
        told = await tried(way, engine, PARAMS)
        assert [head.saga_id for head in await engine.list()] == ["live"]
    assert paid() == []
    assert "quota-exceeded" in told


@promise("what nobody has read is not overwritten")
async def unread(way: str, folder: Path) -> None:
    """A write that expects what its saga last read is not made if that has read nothing, and the caller learns it."""
    (folder / "saga.toml").write_text('[tools.pay]\nbefore = "balance"\nexpect = "$before"\n')
    async with opened() as engine:
        told = await tried(way, engine, PARAMS)
    assert paid() == []
    assert "expect_unread" in told or "expect-unread" in told


@promise("what another saga holds is not written")
async def held_by_another(way: str, folder: Path) -> None:
    """Until that has ended, the call is not made, and the caller learns who is in the way."""
    (folder / "saga.toml").write_text('[limits]\nguard_wait_s = 0.5\n\n[tools.pay]\nresource = "till"\nhold = "saga"\n')
    async with opened() as engine:
        async with engine.session("first") as session:
            await session.call("pay", **PARAMS)
            told = await asyncio.wait_for(tried(way, engine, PARAMS), 60)
            assert len(paid()) == 1
        assert "resource_held" in told or "first" in told
        assert (await engine.show("first")).status == "COMPLETED"


@promise("what another saga wrote and put back is not overwritten")
async def put_back(way: str, folder: Path) -> None:
    """The value is as the call left it, and still an operator is asked: the question names the saga that wrote."""
    (folder / "saga.toml").write_text('[tools.pay]\nbefore = "balance"\nresource = "till"\n')
    async with opened() as engine:
        await tried(way, engine, PARAMS)
        undone = [head.saga_id for head in await engine.list() if head.status == "COMPLETED"]
        undone = [saga_id for saga_id in undone if not (await engine.show(saga_id)).body.get("parent")]
        async with engine.session("rival") as session:
            await session.call("pay", **PARAMS)
        shop.LEDGER.write_text(shop.LEDGER.read_text().splitlines(keepends=True)[0])
        undoing = [asyncio.create_task(engine.undo(saga_id)) for saga_id in undone]
        await until(lambda: _is_asked(engine))
        for task in undoing:  # that of a parent waits for the operator whom its child asks
            task.cancel()
        await asyncio.gather(*undoing, return_exceptions=True)
        bodies = [(await engine.show(head.saga_id)).body for head in await engine.list()]
    (question,) = [question for body in bodies for question in body["questions"] if question["kind"] == "drift"]
    assert "as the step left it, but another saga has written it since; saga rival (" in question["error"]["message"]
    assert len(shop.ledger()) == 1


_COSTS = "[agents.costs]\npay = { usd = 1.0 }\n"


@promise("a saga's calls cost no more than its budget")
async def budgeted(way: str, folder: Path) -> None:
    """A call beyond it is not made, and the caller learns what is spent and what to do."""
    (folder / "saga.toml").write_text(f"[limits]\nmax_cost = {{ usd = 0.5 }}\n\n{_COSTS}")
    async with opened() as engine:
        told = await tried(way, engine, PARAMS)
    assert paid() == []
    assert "0 of 0.5 usd of this saga are spent" in told


@promise("the calls of a day cost no more than the tenant's budget")
async def budgeted_by_day(way: str, folder: Path) -> None:
    """What a server declared for the namespace holds whatever makes the call."""
    (folder / "saga.toml").write_text(_COSTS)
    async with opened() as engine:
        owner = (await engine.supervisor.lease()).owner
        await engine.supervisor.quota.declare(owner, 0, 0.0, {"usd": 0.5})
        told = await tried(way, engine, PARAMS)
    assert paid() == []
    assert "0 of 0.5 usd of today are spent" in told


@promise("what rules hold stands in the lease")
async def recorded(way: str, folder: Path) -> None:
    """Whoever looks at the processes of the namespace sees which file each one has read, and digests of it."""
    (folder / "saga.toml").write_text("[limits]\nmax_calls = 9\n")
    async with opened() as engine:
        await tried(way, engine, PARAMS)
        load = await engine.overview()
    (found,) = found_in(load.notes, load.owners).values()
    assert found.files == (str(folder / "saga.toml"),)
    assert found.limits != governed(None, NO_LIMITS, [], []).limits


CASES = [(words, way) for words in PROMISES for way in WAYS if (words, way) not in WITHOUT | ELSEWHERE]


@pytest.mark.parametrize(("words", "way"), CASES, ids=[f"{way}: {words}" for words, way in CASES])
async def test_each_door_keeps_each_promise(words: str, way: str, folder: Path) -> None:
    """The same promise, whatever way the call came."""
    await PROMISES[words](way, folder)


def test_each_pair_is_a_test_or_has_a_reason() -> None:
    """No promise is without a door, and nothing is left out for a door, a promise or a test that is gone."""
    pairs = {(words, way) for words in (*PROMISES, NETWORK, SCHEMAS) for way in (*WAYS, TEMPORAL)}
    assert [pair for pair in WITHOUT if pair in ELSEWHERE or not WITHOUT[pair]] == []
    assert pairs == {*CASES, *WITHOUT, *ELSEWHERE}
    root = Path(__file__).parents[2]
    found = {name: _tests_of(root / name) for name in {each.partition("::")[0] for each in ELSEWHERE.values()}}
    assert [each for each in ELSEWHERE.values() if each.partition("::")[2] not in found[each.partition("::")[0]]] == []


def _tests_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
