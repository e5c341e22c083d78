"""LangGraph: a graph with a checkpointer and ``durability='sync'``; a failure leads to the nodes that undo."""

from __future__ import annotations

import asyncio
import operator
import time
import uuid
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from turn import BOOK, Declined, Kind, Turn, act, asked, refuse, take, versions_of

_CONNECTIONS = 16


class Booking(TypedDict, total=False):
    kind: str
    orders: Annotated[list, operator.add]
    failed: bool


class Counting(TypedDict, total=False):
    done: int
    length: int
    stop_at: int
    orders: Annotated[list, operator.add]


def _node(name: str) -> Any:
    async def run(state: Booking) -> dict[str, Any]:
        try:
            result = await (refuse if state["kind"] == "bad" and name == BOOK[-1] else act)(name)
        except Declined:
            return {"failed": True}
        return {"orders": [result["order_id"]]}

    return run


def _booking(saver: Any) -> Any:
    graph = StateGraph(Booking)
    for name in (*BOOK, "cancel_hotel", "cancel_flight"):
        graph.add_node(name, _node(name))
    for one, other in zip((START, *BOOK), BOOK, strict=False):
        graph.add_edge(one, other)
    graph.add_conditional_edges(
        BOOK[-1], lambda state: "cancel_hotel" if state.get("failed") else END, ["cancel_hotel", END]
    )
    graph.add_edge("cancel_hotel", "cancel_flight")
    graph.add_edge("cancel_flight", END)
    return graph.compile(checkpointer=saver)


def _counting(saver: Any) -> Any:
    stopped = set()

    async def step(state: Counting, config: RunnableConfig) -> dict[str, Any]:
        thread = config["configurable"]["thread_id"]
        if state["done"] == state.get("stop_at") and thread not in stopped:
            stopped.add(thread)
            raise Declined("stopped")
        return {"done": state["done"] + 1, "orders": [(await act("step"))["order_id"]]}

    graph = StateGraph(Counting)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: "step" if state["done"] < state["length"] else END, ["step", END])
    return graph.compile(checkpointer=saver)


async def _saver(turn: Turn, stack: AsyncExitStack) -> tuple[Any, list[int], dict[str, str]]:
    """The checkpointer, the server's processes and the versions of what it stands on."""
    if turn.argument == "sqlite":
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        opened = AsyncSqliteSaver.from_conn_string(str(Path(turn.place) / "graph.sqlite"))
        saver = await stack.enter_async_context(opened)
        await saver.setup()
        found = {}
        for pragma in ("synchronous", "journal_mode"):
            async with saver.conn.execute(f"pragma {pragma}") as cursor:
                found[pragma] = (await cursor.fetchone())[0]
        assert found == {"synchronous": 2, "journal_mode": "wal"}, found
        return saver, [], versions_of("langgraph-checkpoint-sqlite")
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool = AsyncConnectionPool(
        turn.server["url"].format("postgres"), min_size=_CONNECTIONS, max_size=_CONNECTIONS, kwargs=options, open=False
    )
    saver = AsyncPostgresSaver(await stack.enter_async_context(pool))
    await saver.setup()
    return (
        saver,
        [turn.server["pid"]],
        versions_of("langgraph-checkpoint-postgres") | {"postgres": turn.server["version"]},
    )


async def main() -> None:
    turn = asked()
    async with AsyncExitStack() as stack:
        saver, servers, versions = await _saver(turn, stack)
        booking, counting = _booking(saver), _counting(saver)

        async def saga(kind: Kind) -> None:
            config = {"configurable": {"thread_id": uuid.uuid4().hex}}
            end = await booking.ainvoke({"kind": kind, "orders": []}, config, durability="sync")
            assert len(end["orders"]) == (3 if kind == "good" else 4), end

        async def long(length: int) -> None:
            config = {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": length + 5}
            await counting.ainvoke({"done": 0, "length": length, "orders": []}, config, durability="sync")

        async def resume(length: int) -> float:
            config = {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": length + 5}
            begin = {"done": 0, "length": length, "stop_at": length - 1, "orders": []}
            with suppress(Declined):
                await counting.ainvoke(begin, config, durability="sync")
            begun = time.perf_counter()
            end = await counting.ainvoke(None, config, durability="sync")
            taken_ms = (time.perf_counter() - begun) * 1000
            assert end["done"] == len(end["orders"]) == length
            return taken_ms

        await take(turn, saga, long, servers, versions_of("langgraph") | versions, resume)


if __name__ == "__main__":
    asyncio.run(main())
