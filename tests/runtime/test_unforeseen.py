"""What nobody foresaw stops neither the writer nor a saga."""

import asyncio

from saga_engine.execution.clock import StoreClock
from saga_engine.ports import Ack, AppendReply, Entry
from saga_engine.runtime.writer import JournalWriter


class Broken:
    """A store whose first two group commits end with an error that is none of the engine's."""

    def __init__(self) -> None:
        self.calls = 0
        self.gate = asyncio.Event()

    async def append(self, owner, entries):
        self.calls += 1
        if self.calls <= 2:
            await self.gate.wait()
            raise RuntimeError("unforeseen")
        return AppendReply(1, [Ack("ok") for _ in entries])


async def test_unforeseen_errors_do_not_stop_the_writer() -> None:
    """Both calls in flight fail while entries wait: these are sent all the same, and so are later ones."""
    store = Broken()
    writer = JournalWriter(store, StoreClock())  # type: ignore[arg-type]
    futures = []
    for number in range(3):
        futures.append(writer.append(Entry(f"s{number}", 0, 1, [b"x"])))
        for _ in range(5):
            await asyncio.sleep(0)
    store.gate.set()
    async with asyncio.timeout(10):
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert (await writer.append(Entry("s9", 0, 1, [b"x"]))).code == "ok"
    assert [type(one) for one in found] == [RuntimeError, RuntimeError, Ack]
