"""Sagas are found by the name of their plan, their tags, their tools and their open questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from saga_engine import Coordinator, ToolError, tool
from saga_engine.errors import PlanInvalid, SettingInvalid
from saga_engine.execution.search import query_of
from saga_engine.ports import AppendReply, Entry, Store
from saga_engine.runtime.lost_terms import rebuild_indexes
from saga_engine.stores import open_store
from tests.support.topologies import Cluster


@tool(undo="unbook")
async def book(what: str) -> dict[str, str]:
    if what == "doubtful":
        raise TimeoutError
    return {"ref": what}


@tool
async def unbook(ref: str) -> None:
    """Nothing to return."""


@tool(undo="unbook")
async def pay(what: str) -> dict[str, str]:
    if what == "refused":
        raise ToolError("declined")
    return {"ref": what}


TOOLS = [book, unbook, pay]


def plan(*calls: tuple[str, str], **fields: Any) -> dict[str, Any]:
    steps = [{"step_id": at, "tool": name, "params": {"what": what}} for at, (name, what) in enumerate(calls, 1)]
    return {**fields, "steps": steps}


async def found(coordinator: Coordinator, **query: Any) -> set[str]:
    """The ids on all pages of a search."""
    ids, cursor = set(), None
    while True:
        page = await coordinator.search(**query, cursor=cursor)
        ids |= {head.saga_id for head in page.sagas}
        if (cursor := page.cursor) is None:
            return ids


async def test_sagas_are_found_by_what_they_are() -> None:
    """By the name of the plan, by the tags of plan and submission, by a tool, by status, and by all of them together."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        trip = plan(("book", "a"), name="trip", tags=["eu"])
        await coordinator.run(trip, saga_id="s1", tags=["customer:42"])
        await coordinator.run(trip, saga_id="s2", tags=["customer:43", "<script>alert(1)</script>"])
        await coordinator.run(plan(("book", "a"), ("pay", "refused")), saga_id="s3", tags=["customer:42"])
        assert await found(coordinator) == {"s1", "s2", "s3"}
        assert await found(coordinator, name="trip") == {"s1", "s2"}
        assert await found(coordinator, tags=["eu", "customer:42"]) == {"s1"}
        assert await found(coordinator, tags=["customer:42"]) == {"s1", "s3"}
        assert await found(coordinator, tags=["<script>alert(1)</script>"]) == {"s2"}
        assert await found(coordinator, tool="pay") == {"s3"}
        assert await found(coordinator, tool="unbook") == set()
        assert await found(coordinator, status="COMPENSATED", tags=["customer:42"]) == {"s3"}
        assert await found(coordinator, name="trip", limit=1) == {"s1", "s2"}
        assert await found(coordinator, since_ms=10**12 * 4) == set()


async def test_a_term_is_no_pattern_and_no_other_term() -> None:
    """What a tag says is taken literally: neither the terms of the store itself nor those of names are reached by it."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await coordinator.run(plan(("book", "a"), name="trip"), saga_id="s1", tags=["*", "name:other", "ü"])
        for tag in ("*", "name:other", "ü"):
            assert await found(coordinator, tags=[tag]) == {"s1"}
        for query in ({"tags": ["?"]}, {"tags": ["trip"]}, {"tags": [""]}, {"name": "other"}, {"name": "tri"}):
            assert await found(coordinator, **query) == set()


@pytest.mark.parametrize(
    "tags",
    [
        "customer",
        [""],
        [" x"],
        ["x" * 65],
        ["a\nb"],
        ["a\0b"],
        ["a\u202eb"],
        ["\ud800"],
        [7],
        [f"t{n}" for n in range(17)],
    ],
)
async def test_tags_are_short_printable_texts(tags: Any) -> None:
    """Whatever else is given as tags of a saga or a plan is refused with a hint, before anything is stored."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        with pytest.raises(SettingInvalid, match="tag"):
            await coordinator.submit(plan(("book", "a")), tags=tags)
        with pytest.raises(PlanInvalid):
            await coordinator.submit(plan(("book", "a"), tags=tags))
        assert await coordinator.list() == []


@pytest.mark.parametrize(
    "query",
    [
        {"cursor": "yesterday"},
        {"cursor": "12-"},
        {"cursor": "99999999999999-s1"},
        {"cursor": "12-a\0b"},
        {"limit": 0},
        {"limit": 1001},
        {"status": "LOST"},
        {"tags": ["a\nb"]},
        {"name": "a\0"},
    ],
)
async def test_a_search_that_cannot_be_is_refused(query: dict[str, Any]) -> None:
    """A wrong cursor, limit, status or word is an error with a hint, never an empty page."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        with pytest.raises(SettingInvalid) as refused:
            await coordinator.search(**query)
        assert refused.value.hint


async def test_a_cursor_outlives_its_saga() -> None:
    """A cursor is a place, so a page follows it although the saga of that place has expired."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        for name in ("s1", "s2"):
            await coordinator.run(plan(("book", "a")), saga_id=name)
        place = (await coordinator.search(limit=1)).cursor
        assert place is not None
        gone = f"{place.partition('-')[0]}-zzz"
        assert [head.saga_id for head in (await coordinator.search(cursor=gone)).sagas][-1:] == ["s1"]


class Recording:
    """A store that keeps its entries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.entries: list[Entry] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        self.entries += entries
        return await self._store.append(owner, entries)


async def test_steps_do_not_write_to_the_index() -> None:
    """Only a saga's start, an open question, its answer, and a step with a new tool do."""
    store = Recording(open_store("memory://"))
    await store.open()
    async with Coordinator.open(store, TOOLS) as coordinator:  # type: ignore[arg-type]
        await coordinator.run(plan(("book", "a"), ("book", "b"), ("pay", "c")), saga_id="s1", tags=["x"])
        first, *others = store.entries
        assert first.terms == ["*", "tag:x", "tool:book", "tool:pay"]
        assert [(each.terms, each.asks) for each in others] == [((), None)] * 3
        store.entries.clear()
        async with coordinator.session("s2") as session:
            for what in ("a", "b"):
                await session.call("book", what=what)
            await session.call("pay", what="c")
        assert [each.terms for each in store.entries if each.terms] == [["*"], ["tool:book"], ["tool:pay"]]
        assert all(each.asks is None for each in store.entries)
        store.entries.clear()
        await coordinator.run(plan(("book", "doubtful")), saga_id="s3")
        assert await found(coordinator, asks=True) == {"s3"}
        await coordinator.resolve("s3", 1, "not-happened")
        assert await found(coordinator, asks=True) == set()
        assert [each.asks for each in store.entries if each.asks is not None] == [True, False]
        assert len(store.entries) > 3
    await store.close()


async def test_a_fork_keeps_the_tags_of_its_saga() -> None:
    """It does the same work, so it is found where its saga was."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await coordinator.run(plan(("book", "a"), ("pay", "refused")), saga_id="s1", tags=["x"])
        await coordinator.fork("s1", plan=plan(("book", "a"), ("pay", "c")), new_id="s2")
        assert await found(coordinator, tags=["x"]) == {"s1", "s2"}


async def test_a_session_is_found_by_its_tags() -> None:
    """While it is open and afterwards, also when its agent opens it again; wrong tags are refused before anything is stored."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        async with coordinator.session("s1", tags=["customer:42"]) as session:
            await session.call("book", what="a")
            assert await found(coordinator, tags=["customer:42"]) == {"s1"}
        async with coordinator.session("s1", tags=["other"]) as session:
            await session.call("book", what="a")
        assert await found(coordinator, tags=["customer:42"], tool="book") == {"s1"}
        assert await found(coordinator, tags=["other"]) == set()
        for tags in (["a\nb"], "customer:42"):
            with pytest.raises(SettingInvalid):
                async with coordinator.session("s2", tags=tags):
                    pass
        assert len(await coordinator.list()) == 1


async def lose_terms(store: Any, *saga_ids: str) -> None:
    """Remove what sagas are found by, as an eviction or another program would."""
    for saga_id in saga_ids:
        for key in (store._key("terms", saga_id), store._key("", saga_id).removesuffix(f":{saga_id}") + "search"):
            await store._plain("DEL", key)


async def terms_are_restored(url: str) -> None:
    """Sagas that run and that have ended, with terms that came later; none is on a page twice, none is missing."""
    async with Coordinator.open(url, TOOLS, on_escalation=()) as coordinator:
        store = coordinator.store
        trip = plan(("book", "a"), name="trip", tags=["eu"])
        for number in range(3):
            await coordinator.run(trip, saga_id=f"s{number}", tags=[f"customer:{number}"])
        await coordinator.run(plan(("book", "doubtful"), tags=["asks"]), saga_id="asked")
        async with coordinator.session("agent", tags=["agents"]) as session:
            await session.call("book", {"what": "a"})
            await lose_terms(store, "s0", "s1", "asked", "agent")
            assert await found(coordinator, tags=["agents"]) == set()
            await session.call("pay", {"what": "a"})  # the store learns of this tool, and of nothing before it
            assert await found(coordinator, tool="pay") == {"agent"}
            assert await rebuild_indexes(store) == (4, [])
            assert await rebuild_indexes(store) == (0, [])
            assert await found(coordinator, tags=["agents"]) == {"agent"}
        assert await found(coordinator, tool="pay") == {"agent"}
        assert await found(coordinator) == {"s0", "s1", "s2", "asked", "agent"}
        assert await found(coordinator, tool="book") == {"s0", "s1", "s2", "asked", "agent"}
        assert await found(coordinator, name="trip", tags=["eu", "customer:1"]) == {"s1"}
        assert await found(coordinator, asks=True) == await found(coordinator, tags=["asks"]) == {"asked"}
        pages = [head.saga_id for head in (await coordinator.search(name="trip")).sagas]
        assert pages == ["s2", "s1", "s0"]
        await coordinator.resolve("asked", 1, "not-happened")
        assert await found(coordinator, asks=True) == set()
        await store._plain("DEL", store._key("journal", "s2"))  # type: ignore[attr-defined]
        await lose_terms(store, "s2")
        assert (await rebuild_indexes(store))[1] == ["s2"]


async def test_lost_terms_are_restored_from_the_journals() -> None:
    """Every page is right again after a rebuild, while agents go on; what cannot be read is told."""
    await terms_are_restored("memory://")


@pytest.mark.debian_redis
async def test_lost_terms_are_restored_in_a_cluster() -> None:
    """As on one server: a rebuild reads them from the journals, wherever the partitions lie."""
    with Cluster(debian=True, replicas=False) as cluster:
        await terms_are_restored(cluster.url)


def test_a_search_for_more_tags_than_a_saga_can_have_is_refused() -> None:
    """Each term is work for the store; the same tag again is one."""
    assert len(query_of(tags=["a"] * 1_000).terms) == 1
    assert len(query_of(tags=map(str, range(32))).terms) == 32
    with pytest.raises(SettingInvalid, match="no saga has more than 32 tags"):
        query_of(tags=map(str, range(33)))
