"""The anomalies of docs/isolation.md, each a program: it happens without the form that prevents it, and not with it.

python examples/isolation/anomalies.py
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from saga_engine import CallFailed, Coordinator, NeedsPerson, RetryPolicy, ToolError, tool

ONCE = RetryPolicy(max_attempts=1)


def opened(*tools: Any) -> Any:
    return Coordinator.open("memory://", tools, on_escalation=(), settings=None)


async def together(*agents: Awaitable[Any]) -> list[Any]:
    """Run them side by side. An agent whose call is refused ends, and its saga is undone."""
    ended = await asyncio.gather(*agents, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException) and not isinstance(each, CallFailed | NeedsPerson):
            raise each
    return [each for each in ended if not isinstance(each, BaseException)]


async def lost_update(prevented: bool) -> bool:
    """Two agents read the stock, and both write it minus one: two were sold, and one was there."""
    stock = {"tea": 1}
    both_read = asyncio.Barrier(2)

    @tool(effect="read")
    async def get_stock(item: str) -> dict:
        return {"left": stock[item]}

    @tool(before=get_stock, undo="set_stock", resource="stock:{item}", expect="$before" if prevented else None)
    async def set_stock(item: str, left: int) -> dict:
        stock[item] = left
        return {}

    async def sell(coordinator: Coordinator, agent: str) -> str:
        async with coordinator.session(agent) as session:
            left = (await session.call(get_stock, item="tea"))["left"]
            await both_read.wait()
            await session.call(set_stock, item="tea", left=left - 1)
            return agent

    async with opened(get_stock, set_stock) as coordinator:
        sold = await together(sell(coordinator, "kim"), sell(coordinator, "lee"))
    return len(sold) == 2


async def lost_update_by_an_undo(prevented: bool) -> bool:
    """An agent sets a price, somebody else sets another one, and the undo of the first writes the old one over it."""
    prices = {"tea": 10}

    @tool(effect="read")
    async def get_price(item: str) -> dict:
        return {"price": prices[item]}

    @tool(before=get_price if prevented else None, undo="put_back")
    async def set_price(item: str, price: int) -> dict:
        old, prices[item] = prices[item], price
        return {"old": old}

    @tool
    async def put_back(item: str, old: int) -> None:
        prices[item] = old

    async def change(coordinator: Coordinator) -> None:
        async with coordinator.session("kim") as session:
            await session.call(set_price, item="tea", price=12)
            prices["tea"] = 20  # somebody else, with a browser
            raise ToolError("the customer does not want it any more")

    async with opened(get_price, set_price, put_back) as coordinator:
        with contextlib.suppress(ToolError, NeedsPerson):  # undone; or an operator is asked about the drift
            await change(coordinator)
    return prices["tea"] != 20


async def same_value_again(prevented: bool) -> bool:
    """An agent sets a price, another one tries a second one and decides for the first, and the undo overwrites that."""
    prices = {"tea": 10}

    @tool(effect="read")
    async def get_price(item: str) -> dict:
        return {"price": prices[item]}

    @tool(before=get_price, undo="set_price", resource="price:{item}" if prevented else None)
    async def set_price(item: str, price: int) -> None:
        prices[item] = price

    async def change(coordinator: Coordinator) -> None:
        async with coordinator.session("kim") as session:
            await session.call(set_price, item="tea", price=12)
            async with coordinator.session("lee") as other:
                await other.call(set_price, item="tea", price=20)
                await other.call(set_price, item="tea", price=12)
            raise ToolError("the customer does not want it any more")

    async with opened(get_price, set_price) as coordinator:
        with contextlib.suppress(ToolError, NeedsPerson):  # undone; or an operator is asked, and told of lee
            await change(coordinator)
    return prices["tea"] != 12


async def dirty_write(prevented: bool) -> bool:
    """Two calls write two fields that belong together, the one between the two writes of the other."""
    account: dict[str, str] = {}
    half, whole = asyncio.Event(), asyncio.Event()

    @tool(undo="forget", resource="account" if prevented else None)
    async def move(name: str, street: str) -> None:
        account["name"] = name
        half.set()
        if name == "kim":  # a slow connection
            await asyncio.wait([asyncio.ensure_future(whole.wait())], timeout=0.3)
        account["street"] = street
        whole.set()

    @tool(resource="account" if prevented else None)
    async def forget() -> None:
        account.clear()

    async def write(coordinator: Coordinator, name: str, street: str) -> None:
        if name == "lee":
            await half.wait()
        async with coordinator.session(name) as session:
            await session.call(move, name=name, street=street)

    async with opened(move, forget) as coordinator:
        await together(write(coordinator, "kim", "Elm Street"), write(coordinator, "lee", "Oak Street"))
    return account == {"name": "lee", "street": "Elm Street"}


async def dirty_read(prevented: bool) -> bool:
    """An agent publishes a page, another one acts on it, and then the page is undone."""
    pages: dict[str, str] = {}
    drafts: dict[str, str] = {}

    @tool(undo="withdraw")
    async def publish_at_once(text: str) -> None:
        pages["home"] = text

    @tool
    async def withdraw() -> None:
        pages.clear()

    @tool(undo="discard")
    async def draft(text: str) -> None:
        drafts["home"] = text

    @tool
    async def discard() -> None:
        drafts.clear()

    @tool
    async def publish() -> None:
        pages["home"] = drafts["home"]

    @tool(effect="read")
    async def read_page() -> dict:
        return {"text": pages.get("home", "")}

    @tool(undo="discard", retry=ONCE)
    async def review() -> None:
        async with coordinator.session("reader") as reader:
            seen.append((await reader.call(read_page))["text"])
        raise ToolError("the review says no", retryable=False)

    seen: list[str] = []
    careless = [{"step_id": 1, "tool": "publish_at_once", "params": {"text": "50 % off"}}]
    careful = [{"step_id": 1, "tool": "draft", "params": {"text": "50 % off"}}]
    last = [
        {"step_id": 2, "tool": "review", "depends_on": [1]},
        {"step_id": 3, "tool": "publish", "depends_on": [2], "kind": "pivot"},
    ]
    tools = (publish_at_once, withdraw, draft, discard, publish, read_page, review)
    async with opened(*tools) as coordinator:
        await coordinator.run({"steps": [*(careful if prevented else careless), *last]})
    return seen == ["50 % off"] and not pages


async def non_repeatable_read(prevented: bool) -> bool:
    """An agent reads a price twice, and sees two prices."""
    prices = {"tea": 10}
    held: dict[str, Any] = {"resource": "price:{item}", "hold": "saga"} if prevented else {}

    @tool(effect="read", **held)
    async def get_price(item: str) -> dict:
        return {"price": prices[item]}

    @tool(undo="put_back", **held)
    async def set_price(item: str, price: int) -> dict:
        old, prices[item] = prices[item], price
        return {"old": old, "item": item}

    @tool(**held)
    async def put_back(item: str, old: int) -> None:
        prices[item] = old

    async def change(coordinator: Coordinator) -> None:
        async with coordinator.session("lee") as session:
            await session.call(set_price, item="tea", price=20)

    async with opened(get_price, set_price, put_back) as coordinator:
        async with coordinator.session("kim") as session:
            first = await session.call(get_price, item="tea")
            rival = asyncio.ensure_future(change(coordinator))
            await asyncio.wait([rival], timeout=0.3)
            second = await session.call(get_price, item="tea")
        await rival
    return first != second


async def write_skew(prevented: bool) -> bool:
    """One of two doctors must be on call. Both see two, each leaves, and nobody is left."""
    on_call = {"kim": True, "lee": True}
    both_read = asyncio.Barrier(2)
    held: dict[str, Any] = {"resource": "rota", "hold": "saga"} if prevented else {}

    @tool(effect="read", **held)
    async def who_is_on_call() -> list:
        return [name for name, there in on_call.items() if there]

    @tool(undo="come_back", **held)
    async def leave(name: str) -> dict:
        on_call[name] = False
        return {"name": name}

    @tool(**held)
    async def come_back(name: str) -> None:
        on_call[name] = True

    async def go_home(coordinator: Coordinator, name: str) -> None:
        async with coordinator.session(name) as session:
            there = await session.call(who_is_on_call)
            await both_read.wait()
            if len(there) > 1:
                await session.call(leave, name=name)

    async with opened(who_is_on_call, leave, come_back) as coordinator:
        await together(go_home(coordinator, "kim"), go_home(coordinator, "lee"))
    return not any(on_call.values())


#: By the name of the anomaly: its program, and what prevents it.
ANOMALIES: dict[str, tuple[Callable[[bool], Awaitable[bool]], str]] = {
    "lost update": (lost_update, 'expect="$before"'),
    "lost update by an undo": (lost_update_by_an_undo, "before"),
    "same value again": (same_value_again, "before and resource"),
    "dirty write": (dirty_write, "resource"),
    "dirty read": (dirty_read, "a draft, published behind the pivot"),
    "non-repeatable read": (non_repeatable_read, 'hold="saga"'),
    "write skew": (write_skew, 'hold="saga" of one resource'),
}


async def main() -> None:
    for name, (program, form) in ANOMALIES.items():
        without, with_it = await program(False), await program(True)
        print(f"{name}: {'happens' if without else 'does not happen'}; with {form}: {'happens' if with_it else 'not'}")


if __name__ == "__main__":
    asyncio.run(main())
