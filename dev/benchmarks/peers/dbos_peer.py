"""DBOS: asynchronous workflows, each step recorded in the system database after it has run."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from pathlib import Path

from dbos import DBOS, DBOSConfig, SetWorkflowID
from turn import BOOK, Declined, Kind, act, asked, refuse, take, versions_of

_POOL = 20
_POLL_S = 0.005

_stopped: set[str] = set()

_turn = asked()
if _turn.argument == "sqlite":
    _url, _servers, _versions = f"sqlite:///{Path(_turn.place) / 'dbos.sqlite'}", [], {}
else:
    _url = _turn.server["url"].format("dbos").replace("postgresql", "postgresql+psycopg", 1)
    _servers, _versions = [_turn.server["pid"]], {"postgres": _turn.server["version"]}
DBOS(
    config=DBOSConfig(
        name="bench",
        system_database_url=_url,
        log_level="CRITICAL",
        sys_db_pool_size=_POOL,
        application_version="1",
        run_admin_server=False,
    )
)


@DBOS.step()
async def do(name: str) -> dict[str, str]:
    return await act(name)


@DBOS.step()
async def fail(name: str) -> dict[str, str]:
    return await refuse(name)


@DBOS.workflow()
async def book(kind: str) -> str:
    done = []
    try:
        for name in BOOK:
            await (fail if kind == "bad" and name == BOOK[-1] else do)(name)
            done.append(name)
    except Declined:
        for name in reversed(done):
            await do(f"cancel-{name}")
        return "bad"
    return "good"


@DBOS.step()
async def stop(workflow: str) -> dict[str, str]:
    """Fails when it is called for the first time."""
    if workflow not in _stopped:
        _stopped.add(workflow)
        raise Declined("stopped")
    return await act("step")


@DBOS.workflow()
async def stopping(length: int, name: str) -> str:
    for index in range(length - 1):
        await do(f"step-{index}")
    await stop(name)
    return "good"


@DBOS.workflow()
async def many(length: int) -> str:
    for index in range(length):
        await do(f"step-{index}")
    return "good"


async def main() -> None:
    DBOS.launch()

    async def saga(kind: Kind) -> None:
        assert await book(kind) == kind

    async def long(length: int) -> None:
        assert await many(length) == "good"

    async def resume(length: int) -> float:
        name = uuid.uuid4().hex
        with SetWorkflowID(name), suppress(Declined):
            await stopping(length, name)
        begun = time.perf_counter()
        handle = await DBOS.fork_workflow_async(name, length)
        assert await handle.get_result(polling_interval_sec=_POLL_S) == "good"
        return (time.perf_counter() - begun) * 1000

    await take(_turn, saga, long, _servers, versions_of("dbos") | _versions, resume)
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main())
