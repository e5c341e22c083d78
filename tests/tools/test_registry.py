"""The registry: names, undo and probe, and asking whether a call happened."""

import types
from typing import TypedDict

import pytest

from saga_engine.core.effects import Done, NotDone, Unknown
from saga_engine.errors import ToolError, ToolInvalid
from saga_engine.tools.context import ToolContext
from saga_engine.tools.decorator import tool
from saga_engine.tools.registry import ToolRegistry
from tests.tools.calls import a_call


def cancel(order_id: str): ...


def find(idempotency_key: str): ...


@tool(undo=cancel, probe=find)
def book(flight: str) -> str: ...


def test_sources_of_all_kinds_make_one_registry():
    """Tools, functions, modules, registries and lists of them; names come in order of registration."""
    module = types.ModuleType("travel")
    module.book, module.unrelated, module.alias = book, 7, book

    def plain(x): ...

    registry = ToolRegistry([module], ToolRegistry(plain), [(tool(plain, name="p2"),)])
    assert registry.names() == ["book", "cancel", "find", "plain", "p2"]
    assert len(registry) == 5
    assert "cancel" in registry
    assert registry.get("book") is book
    assert [made.name for made in registry] == registry.names()
    assert registry.spec("nobody") is None
    assert registry.spec("book") is registry.spec("book")


def test_functions_named_as_undo_and_probe_become_tools():
    """An undecorated undo writes, an undecorated probe reads, and both are registered with the tool."""
    registry = ToolRegistry(book)
    spec = registry.spec("book")
    assert (spec.undo, spec.probe) == ("cancel", "find")
    assert (registry.spec("cancel").effect, registry.spec("find").effect) == ("write", "read")


def test_a_function_may_be_listed_and_be_a_probe():
    """The same plain function in both places is one tool, whatever the order, and it reads."""
    for sources in ([book, find], [find, book]):
        assert ToolRegistry(sources).spec("find").effect == "read"


def test_a_declaration_wins_over_a_plain_function():
    """What somebody declared counts more than what the registry would assume."""
    declared = tool(cancel, tolerates_absence=True)
    for sources in ([book, declared], [declared, book]):
        assert ToolRegistry(sources).spec("cancel").tolerates_absence


def test_tools_may_undo_each_other():
    """A circle of names ends."""

    @tool(undo="up")
    def down(): ...

    @tool(undo=down)
    def up(): ...

    registry = ToolRegistry(up)
    assert (registry.spec("up").undo, registry.spec("down").undo) == ("down", "up")


def test_two_different_tools_of_one_name_are_refused():
    """A name means one thing; the same tool twice is no trouble."""
    ToolRegistry(book, book, [book])

    def other(): ...

    with pytest.raises(ToolInvalid, match="two different tools are called 'book'"):
        ToolRegistry(book, tool(other, name="book"))
    with pytest.raises(ToolInvalid, match="declared twice, with different options"):
        ToolRegistry(tool(other), tool(other, timeout_s=1))


def test_unknown_undo_and_probe_are_listed_with_near_names():
    """All unknown names at once, each with what may have been meant; the order of registration does not matter."""

    @tool(undo="cancle", probe="look_up")
    def reserve(): ...

    with pytest.raises(ToolInvalid) as caught:
        ToolRegistry(reserve, cancel)
    assert "did you mean cancel?" in caught.value.message
    assert "'look_up'" in caught.value.message
    ToolRegistry(tool(reserve.function, undo="cancel"), cancel)


def test_an_undo_that_only_reads_is_refused():
    """It could undo nothing."""
    look = tool(find, effect="read")
    with pytest.raises(ToolInvalid, match="only reads"):
        ToolRegistry(tool(cancel, undo=look))


def test_a_failed_registration_changes_nothing():
    """After an error the registry is as it was."""
    registry = ToolRegistry(book)
    names, spec = registry.names(), registry.spec("book")
    with pytest.raises(ToolInvalid):
        registry.add(tool(lambda: 1, name="extra"), tool(lambda: 1, name="bad", undo="nobody"))
    assert (registry.names(), registry.spec("book")) == (names, spec)


@pytest.mark.parametrize("source", ["book", 7, None, {"a": 1}, types.ModuleType("empty"), str])
def test_what_is_no_source_is_refused(source):
    """Texts, numbers, classes and empty modules hold no tools."""
    with pytest.raises(ToolInvalid) as caught:
        ToolRegistry(source)
    assert caught.value.hint


# --- probes ----------------------------------------------------------------------------------------------------------


def probed(answer, **options):
    """A registry with a write whose probe behaves as given."""

    @tool(probe=tool(answer, name="look", effect="read", **options))
    def act(order: str, amount: int = 0): ...

    return ToolRegistry(act)


async def ask(answer, params=None, **options):
    return await probed(answer, **options).probe(
        "act", params or {"order": "A", "amount": 1}, a_call(direction="forward")
    )


async def test_a_probe_gets_the_key_of_the_call_and_the_params_that_it_accepts():
    """Only the params that the probe names are passed; key and context are those of the call in question."""
    seen = []

    def look(order: str, idempotency_key: str, ctx: ToolContext):
        seen.append((order, idempotency_key, ctx.direction, ctx.attempt))
        return {"id": 1}

    assert await ask(look) == Done({"id": 1})
    assert seen == [("A", "key-1", "probe", 3)]


async def test_an_open_probe_gets_all_params():
    """``**kwargs`` accepts every name; a closed schema on top of it does not."""

    def look(**params):
        return params

    assert await ask(look) == Done({"order": "A", "amount": 1})
    closed = {"properties": {"order": {}}, "additionalProperties": False}
    assert await ask(look, input_schema=closed) == Done({"order": "A"})


async def test_none_from_a_probe_means_that_it_did_not_happen():
    """It covers every attempt under the key, and the call may be made again."""
    outcome = await ask(lambda: None)
    assert isinstance(outcome, NotDone)
    assert (outcome.definite, outcome.retryable, outcome.error.error_code) == (True, True, "did_not_happen")


def raising(error):
    def look():
        raise error

    return look


@pytest.mark.parametrize(
    "answer",
    [
        raising(ToolError("cannot tell")),
        raising(ValueError("x")),
        raising(ConnectionRefusedError()),
        lambda: {"success": False, "error_code": "E"},
        lambda: float("nan"),
        lambda needed: needed,
    ],
)
async def test_whatever_else_a_probe_does_leaves_it_unknown(answer):
    """A probe that fails has not said that the call did not happen."""
    assert isinstance(await ask(answer), Unknown)


async def test_a_probe_is_bounded_in_time():
    """A probe that hangs cannot tell."""
    import asyncio

    async def look():
        await asyncio.Event().wait()

    outcome = await probed(look).probe("act", {}, a_call(timeout_s=0.001))
    assert isinstance(outcome, Unknown)
    assert outcome.error.error_code == "timeout"


async def test_a_tool_without_a_probe_cannot_be_asked():
    """There is nobody to ask: unknown."""
    assert (await ToolRegistry(cancel).probe("cancel", {}, a_call())).error.error_code == "no_probe"


class Booked(TypedDict):
    ref: str


def loose(**params): ...


def other(reference: str = ""): ...


def nothing(): ...


def keyed(idempotency_key: str): ...


def same(what: str = ""): ...


def returned(ref: str = ""): ...


@pytest.mark.parametrize(("undo", "fits"), [(loose, False), (other, False), (nothing, True), (keyed, True), (same, True),
                                            (returned, True)])  # fmt: skip
def test_an_undo_into_which_nothing_can_be_filled_is_refused(undo, fits):
    """It would be called without its parameters, succeed, and count as an undo; one that takes nothing is meant so."""

    def take(what: str) -> Booked: ...

    if fits:
        assert ToolRegistry(tool(take, undo=undo))
        return
    with pytest.raises(ToolInvalid, match="called without its parameters") as refused:
        ToolRegistry(tool(take, undo=undo))
    assert refused.value.context["code"] == "undo-unfillable"


def test_a_hand_written_schema_without_params_is_no_excuse():
    """An undo whose schema names nothing gets nothing."""

    def take(what: str) -> dict: ...

    with pytest.raises(ToolInvalid, match="called without its parameters"):
        ToolRegistry(tool(take, undo=tool(loose, input_schema={"type": "object"})))
