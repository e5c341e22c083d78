"""Sealed payloads: what a tool was given is found nowhere in the server's data."""

from desk import STORE, book, go, unbook
from redis import Redis

from saga_engine import Coordinator

MARK = "a-name-that-nobody-else-uses"
PLAN = {"goal": MARK, "steps": [{"step_id": 1, "tool": "book", "params": {"item": MARK}}]}


async def main() -> str:
    async with Coordinator.open(STORE, [book, unbook], privacy={"k1": bytes(range(32))}) as coordinator:
        outcome = await coordinator.run(PLAN, saga_id="s")
        assert outcome.output(1) == {"ref": MARK}
    with Redis.from_url(STORE) as server:
        dumps = [server.dump(key) for key in server.scan_iter()]
    assert dumps
    assert not any(MARK.encode() in dump for dump in dumps)
    return f"a saga completes, and none of {len(dumps)} keys of the store shows its payload"


go(main)
