"""Undos of several calls: in order, each with its own key, attempts and doubt, and some for each item of a list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any

import pytest

from saga_engine import Coordinator, SagaResult, ToolContext, ToolError, ToolRegistry, Undo, tool
from saga_engine.cli.history import Rows
from saga_engine.cli.render import whole_lines
from saga_engine.errors import PlanInvalid, ToolInvalid
from saga_engine.gateway.report import status_of
from saga_engine.hooks.messages import asks, title
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.diagram import mermaid
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import RetryPolicy
from saga_engine.planner.repair import mend_form
from saga_engine.ports import Question
from saga_engine.settings import Settings

TWICE = RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001)
RETRY = {"max_attempts": 2, "base_s": 0.001, "max_s": 0.001}


class Store:
    """An outside system whose orders have several parts."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.keys: list[str] = []
        self.items = ["a", "b"]
        self.trouble: dict[str, list[str]] = {}
        self.there: dict[str, str] = {}

    def _call(self, name: str, ctx: ToolContext) -> dict[str, Any]:
        trouble = self.trouble.get(name) or [""]
        what = trouble.pop(0)
        if what == "never":
            raise ToolError("never", error_code="never", retryable=False)
        if what == "later":
            raise ToolError("later", error_code="later", retryable=True)
        self.calls.append(name)
        self.keys.append(ctx.idempotency_key)
        if what == "lost":
            raise ConnectionError("the line is dead")
        return {}

    def tools(self) -> list[Any]:
        store = self

        @tool
        async def order(ctx: ToolContext) -> dict:
            store._call("order", ctx)
            return {"id": "o1", "items": [{"name": name} for name in store.items]}

        @tool(retry=TWICE)
        async def free(name: str, ctx: ToolContext) -> dict:
            made = store._call(f"free {name}", ctx)
            if store.there.get(name) == "new":
                del store.there[name]
            return made

        @tool(retry=TWICE)
        async def cancel(id: str, ctx: ToolContext) -> dict:  # noqa: A002 - the outside system calls it so
            made = store._call(f"cancel {id}", ctx)
            store.there = {name: id for name in store.there}
            return made

        @tool(effect="read")
        async def look(name: str) -> dict:
            if name not in store.there:
                raise ToolError("there is none", error_code="not_found", retryable=False)
            return {"value": store.there[name]}

        @tool(before=look, absent={"error_code": "not_found"})
        async def put(name: str, ctx: ToolContext) -> dict:
            store.there[name] = "new"
            return store._call(f"put {name}", ctx)

        @tool
        async def fail() -> dict:
            raise ToolError("no", retryable=False)

        return [order, free, cancel, look, put, fail]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def coordinator(store: Store) -> AsyncIterator[Coordinator]:
    async with Coordinator.open("memory://", store.tools()) as coordinator:
        yield coordinator


def plan(**rollback: Any) -> dict[str, Any]:
    free = {"tool": "free", "params": {"name": "$item.name"}, "each": "$output.step_1.items", "retry": RETRY}
    cancel = {"tool": "cancel", "params": {"id": "$output.step_1.id"}, "retry": RETRY}
    undo = {**free, "then": [cancel], **rollback}
    return {
        "steps": [
            {"step_id": 1, "tool": "order", "rollback": undo},
            {"step_id": 2, "tool": "fail", "kind": "pivot"},
        ]
    }


async def test_every_call_happens_in_order_under_its_own_key(store: Store, coordinator: Coordinator) -> None:
    """One call for each item, then the call that follows; each has its own key and its place in the report."""
    store.trouble["free b"] = ["later"]
    result = await coordinator.run(plan())
    assert result.status == "COMPENSATED"
    assert store.calls == ["order", "free a", "free b", "cancel o1"]
    assert len(set(store.keys)) == 4
    undo = result.body["steps"][0]["compensation"]
    assert [(call["tool"], call["attempts"], call["status"]) for call in undo["calls"]] == [
        ("free", 1, "COMPENSATED"),
        ("free", 2, "COMPENSATED"),
        ("cancel", 1, "COMPENSATED"),
    ]
    assert [call["idempotency_key"] for call in undo["calls"]] == store.keys[1:]
    intended = [
        record for record in await coordinator.history(result.saga_id) if record.get("direction") == "compensate"
    ]
    assert [record["call"] for record in intended if record["k"] == "StepIntended"] == [
        {"number": 0, "of": 3, "item": 0},
        {"number": 1, "of": 3, "item": 1},
        {"number": 1, "of": 3, "item": 1},
        {"number": 2, "of": 3, "entry": 1},
    ]


@pytest.mark.parametrize(
    ("trouble", "status", "decision", "then"),
    [
        (["never"], "ESCALATED", "undone", "RESOLVED"),
        (["lost"], "IN_DOUBT", "happened", "COMPENSATED"),
        (["lost"], "IN_DOUBT", "accept", "RESOLVED"),
    ],
)
async def test_a_half_done_undo_says_which_calls_are_left(
    store: Store, coordinator: Coordinator, trouble: list[str], status: str, decision: str, then: str
) -> None:
    """View, text, history and notification name each call of the undo: done, in doubt, asked about or left."""
    store.trouble["free b"] = trouble
    result = await coordinator.run(plan())
    calls = result.body["steps"][0]["compensation"]["calls"]
    assert [(call["tool"], call["params"], call["status"]) for call in calls] == [
        ("free", {"name": "a"}, "COMPENSATED"),
        ("free", {"name": "b"}, status),
        ("cancel", {"id": "o1"}, "PENDING"),
    ]
    assert result.body["questions"][0]["undo_call"] == {"number": 1, "of": 3}
    text = "\n".join(whole_lines(result.body, Settings()))
    assert [line.split()[1] for line in text.splitlines() if line.startswith("  undo ")][:3] == ["1/3", "2/3", "3/3"]
    assert "1 of the 3 calls of its undo have happened" in text
    assert 'undo 3/3 of step 1: cancel {"id": "o1"}, not made yet' in text
    assert "question about call 2 of 3 of the undo of step 1 (free)" in text
    rows = [(kind, step) for _, _, kind, step, _ in Rows().of(await coordinator.history(result.saga_id))]
    assert ("StepEscalated", "1 undo 2/3") in rows
    agents = status_of(result.saga_id, result.body)["calls"][-1]["undo_calls"]
    assert [(call["tool"], call["status"]) for call in agents] == [(call["tool"], call["status"]) for call in calls]
    assert title(question_of(result)) == (
        f"saga {result.saga_id}, call 2 of 3 of the undo of step 1 (free): {asks(result.body['questions'][0]['kind'])}"
    )
    await coordinator.resolve(result.saga_id, 1, decision)
    result = await coordinator.resume(result.saga_id)
    found = [call["status"] for call in result.body["steps"][0]["compensation"]["calls"]]
    assert found == ["COMPENSATED", then, "COMPENSATED" if then == "COMPENSATED" else "RESOLVED"]


def question_of(result: SagaResult) -> Question:
    """The notification of the open question of a saga."""
    (asked,) = result.body["questions"]
    names = {each.name for each in fields(Question)} & asked.keys()
    return Question(saga_id=result.saga_id, step_name="", goal="", **{name: asked[name] for name in names})


async def test_no_call_of_an_undo_shows_what_is_sensitive(store: Store) -> None:
    """Params and outputs of every call of an undo are masked, like those of a single one."""
    secret = "4111-1111"

    @tool(sensitive=["code"])
    async def shut(code: str, name: str) -> dict:
        return {"echo": code, "name": name}

    async with Coordinator.open("memory://", [*store.tools(), shut]) as coordinator:
        undo = {"tool": "shut", "params": {"code": secret, "name": "x"}}
        body = plan()
        body["steps"][0]["rollback"] = {**undo, "then": [undo]}
        result = await coordinator.run(body)
        calls = result.body["steps"][0]["compensation"]["calls"]
        assert [call["params"]["code"] for call in calls] == ["[redacted]", "[redacted]"]
        assert secret not in str(result.body)


async def test_an_empty_list_leaves_nothing_to_undo(store: Store, coordinator: Coordinator) -> None:
    """If all lists of an undo are empty, nothing is called, and the step counts as undone."""
    store.items = []
    result = await coordinator.run(plan(then=[]))
    assert (result.status, store.calls) == ("COMPENSATED", ["order"])


@pytest.mark.parametrize(
    ("trouble", "decision", "calls"),
    [
        pytest.param(["never"], "retry", ["order", "free a", "free b", "cancel o1"], id="retry goes on"),
        pytest.param(["never"], "undone", ["order", "free a"], id="undone is the whole undo"),
        pytest.param(["lost"], "happened", ["order", "free a", "free b", "cancel o1"], id="happened is one call"),
        pytest.param(["lost"], "undone", ["order", "free a", "free b"], id="undone ends a doubt as well"),
    ],
)
async def test_an_operator_answers_about_one_call_or_the_whole_undo(
    store: Store, coordinator: Coordinator, trouble: list[str], decision: str, calls: list[str]
) -> None:
    """'retry' and 'happened' speak of the call that is asked about, and the rest follows; 'undone' speaks of the step."""
    store.trouble["free b"] = trouble
    result = await coordinator.run(plan())
    assert result.status == "ESCALATED"
    assert result.body["questions"][0]["tool"] == "free"
    await coordinator.resolve(result.saga_id, 1, decision)
    result = await coordinator.resume(result.saga_id)
    assert (result.status, store.calls) == ("COMPENSATED", calls)


@pytest.mark.parametrize(("there", "calls"), [(True, ["cancel old", "free x"]), (False, ["free x"])])
async def test_what_was_not_there_is_undone_in_another_way(
    store: Store, coordinator: Coordinator, there: bool, calls: list[str]
) -> None:
    """``when_absent`` is the undo if the value was not there before the call; else the rollback is."""
    store.there = {"x": "old"} if there else {}
    free = {"tool": "free", "params": {"name": "x"}}
    rollback = {"tool": "cancel", "params": {"id": "$before.value"}, "then": [free], "when_absent": free}
    body = plan()
    body["steps"][0] |= {"tool": "put", "params": {"name": "x"}, "rollback": rollback}
    result = await coordinator.run(body)
    assert (result.status, store.calls) == ("COMPENSATED", ["put x", *calls])


@pytest.mark.parametrize(
    ("rollback", "code", "path"),
    [
        ({"each": "items"}, "each-invalid", "rollback.each"),
        ({"then": [{"tool": "cancle"}]}, "tool-unknown", "rollback.then[0].tool"),
        ({"then": [{"tool": "look", "params": {"name": "x"}}]}, "rollback-reads", "rollback.then[0].tool"),
        ({"then": [{"tool": "cancel"}]}, "params-invalid", "rollback.then[0].params"),
        ({"then": {"tool": "cancel"}}, "field-invalid", "rollback.then"),
        (
            {"then": [{"tool": "free", "params": {"name": "$item"}}]},
            "binding-malformed",
            "rollback.then[0].params.name",
        ),
        ({"when_absent": {"tool": "free", "params": {"name": "x"}}}, "before-missing", "rollback.when_absent"),
    ],
)
def test_a_wrong_undo_is_refused_where_it_is_wrong(rollback: dict[str, Any], code: str, path: str) -> None:
    """Each problem has a code and the place in the plan."""
    with pytest.raises(PlanInvalid) as error:
        compile_plan(load_plan(plan(**rollback)), ToolRegistry(Store().tools()))
    assert (code, f"$.steps[0].{path}") in [(problem.code, problem.path) for problem in error.value.problems]


def test_a_list_in_a_list_is_refused_and_several_calls_are_not() -> None:
    """The undo of an item may have several calls, and no list of its own."""
    body = plan()
    body["steps"][0] |= {"each": {"of": ["x"]}, "rollback": body["steps"][0]["rollback"]}
    with pytest.raises(PlanInvalid, match="list in a list"):
        compile_plan(load_plan(body), ToolRegistry(Store().tools()))


async def test_the_undo_of_an_item_may_have_several_calls(store: Store, coordinator: Coordinator) -> None:
    """Each item of a list is undone by all its calls before the item that came before it."""
    body = plan()
    undo = {
        "tool": "free",
        "params": {"name": "$item"},
        "then": [{"tool": "cancel", "params": {"id": "{$output.step_1.id} {$item}"}}],
    }
    body["steps"][0] |= {"each": {"of": ["x", "y"]}, "rollback": undo}
    result = await coordinator.run(body)
    assert result.status == "COMPENSATED"
    assert store.calls[2:] == ["free y", "cancel o1 y", "free x", "cancel o1 x"]


async def test_simulate_and_graph_know_them(coordinator: Coordinator) -> None:
    """A simulation undoes a sample of each list, then what follows; a drawing names all calls."""
    registry = ToolRegistry(Store().tools())
    assert "undo: free for each item, then cancel" in mermaid(compile_plan(load_plan(plan()), registry))
    simulated = await coordinator.simulate(plan())
    assert simulated.clean, simulated.summary()
    assert {scenario.verdict for scenario in simulated.scenarios} == {"clean", "asks"}


# --- undos that tools declare, and sessions -----------------------------------------------------------------------------


def declared(store: Store) -> list[Any]:
    """The same tools, and an order whose own declaration says how it is undone."""
    tools = store.tools()
    free, cancel = tools[1], tools[2]

    @tool(
        undo=free,
        undo_params={"name": "$item.name"},
        undo_each="$output.items",
        undo_then=[{"tool": cancel, "params": {"id": "$output.id"}}],
    )
    async def place(ctx: ToolContext) -> dict:
        store._call("order", ctx)
        return {"id": "o1", "items": [{"name": name} for name in store.items]}

    return [*tools, place]


async def test_a_tool_declares_an_undo_of_several_calls(store: Store) -> None:
    """A plan without a rollback undoes as the tool says, also after another process has taken over."""
    body = plan()
    body["steps"][0] = {"step_id": 1, "tool": "place"}
    async with Coordinator.open("memory://", declared(store)) as coordinator:
        result = await coordinator.run(body)
        assert (result.status, store.calls) == ("COMPENSATED", ["order", "free a", "free b", "cancel o1"])
        started = (await coordinator.history(result.saga_id))[0]
    assert '"undo_each"' not in str(started)
    assert "$output.items" in started["undos"]["1"]


@pytest.mark.parametrize("own", [True, False])
async def test_the_undo_of_a_sessions_call_may_have_several_calls(store: Store, own: bool) -> None:
    """The undo that the tool declares, and the one that the agent gives."""
    given = Undo("free", {"name": "$item.name"}, each="$output.items", then=[("cancel", {"id": "$output.id"})])
    async with Coordinator.open("memory://", declared(store)) as coordinator:
        async with coordinator.session("s") as session:
            output = await session.call("place" if own else "order", {}, undo=None if own else given)
            assert output["id"] == "o1"
            await session.rollback()
        result = await coordinator.show("s")
    assert (result.status, store.calls) == ("COMPENSATED", ["order", "free a", "free b", "cancel o1"])


async def test_a_wrong_undo_of_a_sessions_call_is_refused(store: Store) -> None:
    """Nothing is called if a part of the undo cannot be."""
    async with Coordinator.open("memory://", declared(store)) as coordinator, coordinator.session("s") as session:
        for undo, match in (
            (Undo("free", {"name": "x"}, then=[("nope", {})]), "no tool .nope"),
            (Undo("free", {"name": "x"}, then=[("look", {"name": "x"})]), "only reads"),
            (Undo("free", {"name": "$item"}, each="items"), "binds a list"),
        ):
            with pytest.raises(PlanInvalid, match=match):
                await session.call("order", {}, undo=undo)
    assert store.calls == []


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"undo_each": "$output.items"}, "no undo"),
        ({"undo": "free", "undo_each": "items"}, "binds no list"),
        ({"undo": "free", "undo_then": [{"params": {}}]}, "no call with tool"),
        ({"undo": "free", "undo_then": "cancel"}, "a list of at most 8 calls"),
        ({"undo": "free", "undo_params": "x"}, "no mapping"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], match: str) -> None:
    """The author of a tool learns at once what is wrong with the undo."""
    with pytest.raises(ToolInvalid, match=match):

        @tool(**options)
        async def wrong() -> dict:
            return {}


def test_a_models_undo_loses_none_of_its_calls() -> None:
    """What the prompt does not offer is left out of a model's plan; a call of an undo is not: it would count as made."""
    notes: list[str] = []
    formed = mend_form(plan(), ToolRegistry(Store().tools()), notes)
    made = formed["steps"][0]["rollback"]
    assert {"tool", "params", "each", "then"} <= set(made)
    assert made["then"] == plan()["steps"][0]["rollback"]["then"]
