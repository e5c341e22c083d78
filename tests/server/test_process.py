"""`saga serve` as a process of its own, on a real store, killed and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from saga_engine import Coordinator
from saga_engine.cli import run
from saga_engine.runtime import worker as working_loop
from saga_engine.server.tokens import Tokens
from tests.server.harness import ASK, BOOK, TOOLS, WAIT, Api, events
from tests.server.serve_process import Process

ROOT = Path(__file__).parents[2]
#: The command, in a process that dies once, when the saga of the first submission is durable and nobody knows it yet.
DIES = """
import os, signal, sys
from pathlib import Path
from saga_engine.cli import main
from saga_engine.server import acts
inner = acts.submit
async def submit(*args, **options):
    found = await inner(*args, **options)
    if not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return found
acts.submit = submit
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "saga.toml").write_text("[saga]\nlease_s = 120\n")
    return tmp_path


#: The command, in a process that dies once, when a job has acted on three of its sagas and reported none.
JOB_DIES = """
import os, signal
from pathlib import Path
from saga_engine.cli import main
from saga_engine.server import jobs
jobs._CLAIM_MS, jobs._LOOK_S, jobs._AT_ONCE = 500, 0.1, 2
inner, acted = jobs.Jobs._act, []
async def act(*args):
    found = await inner(*args)
    acted.append(found)
    if len(acted) == 3 and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return found
jobs.Jobs._act = act
main()
"""
#: The demo, which says when it begins to fill its store, and goes on when it has been told to stop.
FILLS = """
import asyncio
from saga_engine.cli import main
from saga_engine.server import demo
async def fill(coordinator):
    print("filling", flush=True)
    await asyncio.Event().wait()
demo.fill = fill
main()
"""


@pytest.fixture
def processes(folder: Path) -> Iterator[list[Process]]:
    made: list[Process] = []
    yield made
    for each in made:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)
        assert each.process.stdout is not None
        each.process.stdout.close()


@asynccontextmanager
async def asking(process: Process, token: str) -> AsyncIterator[Api]:
    async with httpx2.AsyncClient(base_url=process.url, timeout=120, trust_env=False) as client:
        yield Api(client, (await client.get("/v1/openapi.json")).json(), token)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Coordinator, str]]:
    """The store that the server uses, in this process, and a token."""
    async with Coordinator.open(f"embedded://{folder}/.saga", TOOLS, lease_s=120) as coordinator:
        yield coordinator, (await Tokens(coordinator.store.documents()).create("Ada", ["admin"]))[1]


async def test_a_server_that_is_killed_before_it_answers(folder: Path, processes: list[Process]) -> None:
    """SIGKILL between append and answer: the same request to the next server finds the same saga, and there is one."""
    async with opened(folder) as (coordinator, token):
        (folder / "dies.py").write_text(DIES)
        processes.append(Process(folder, "dies.py"))
        key = {"idempotency-key": "order-17"}
        async with asking(processes[0], token) as api:
            with pytest.raises(httpx2.TransportError):
                await api("POST", "/v1/sagas", {"plan": BOOK}, headers=key)
        processes[0].process.wait(120)
        (there,) = (await coordinator.search()).sagas
        processes.append(Process(folder, "dies.py"))
        async with asking(processes[1], token) as api:
            again = await api.post("/v1/sagas", {"plan": BOOK}, headers=key)
            assert (again["saga_id"], again["status"]) == (there.saga_id, "PENDING")
            working = asyncio.create_task(coordinator.work())
            done = await api.get(f"/v1/sagas/{there.saga_id}", wait=60)
            working.cancel()
            await asyncio.wait([working])
        assert (done["status"], len((await coordinator.search()).sagas)) == ("COMPLETED", 1)


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL], ids=["SIGTERM", "SIGKILL"]
)
async def test_a_stream_goes_on_at_the_next_server(
    folder: Path, processes: list[Process], number: signal.Signals
) -> None:
    """A client that reconnects with Last-Event-ID after the server's end has each record of the journal exactly once."""
    async with opened(folder) as (coordinator, token):
        working = asyncio.create_task(coordinator.work())
        processes.append(Process(folder))
        seen: list[int | None] = []
        async with asking(processes[0], token) as api:
            await api.post("/v1/sagas", {"plan": WAIT, "saga_id": "s"})
            try:
                async for _, seq, body in events(api, "/v1/sagas/s/stream"):
                    seen.append(seq)
                    if body["k"] == "StepWaiting":
                        processes[0].process.send_signal(number)
            except httpx2.TransportError:
                assert number == signal.SIGKILL
        assert processes[0].process.wait(120) == (0 if number == signal.SIGTERM else -number)
        await coordinator.send_event("paid", 17, {"sum": 5})
        processes.append(Process(folder))
        async with asking(processes[1], token) as api:
            seen += [seq async for _, seq, _ in events(api, "/v1/sagas/s/stream", seen[-1])]
        working.cancel()
        await asyncio.wait([working])
        assert seen == [*range(len(await coordinator.history("s"))), None]


async def test_a_server_without_tools_takes_the_answer_that_a_worker_carries_out(
    folder: Path, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server of another process, which has no tools, posts an answer; a worker that polls once an hour hears of it."""
    monkeypatch.setattr(working_loop, "_ASK_AGAIN_S", (3600.0, 3600.0))
    monkeypatch.setattr(working_loop, "_LISTENING_S", 3600.0)
    async with opened(folder) as (coordinator, token):
        working = asyncio.create_task(coordinator.work())
        await coordinator.submit(
            {"steps": [*ASK["steps"], {"step_id": 2, "tool": "book", "params": {"item": "x"}}]}, saga_id="s"
        )
        process = Process(folder, tools=False)
        processes.append(process)
        async with asking(process, token) as api:
            assert (await api.get("/v1/sagas/s", wait=60))["status"] == "ESCALATED"
            await api.post("/v1/sagas/s/resolve", {"step_id": 1, "decision": "yes", "note": "go on"})
            done = await api.get("/v1/sagas/s", wait=60)
            assert (done["status"], done["steps"][0]["output"]["by"]) == ("COMPLETED", "Ada")
            refused = await api.post("/v1/sagas", {"plan": BOOK}, status=422)
            assert refused["problems"][0]["code"] == "tool-unknown"
        working.cancel()
        await asyncio.wait([working])


@pytest.mark.parametrize("args", [["--auth", "none"], []])
def test_a_server_without_tokens_stays_on_the_loopback(
    args: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused before it listens: with --auth none, and where no token exists, so that nobody could use it."""
    monkeypatch.chdir(folder)
    assert run(["serve", "--port", "0", "--host", "0.0.0.0", *args]) == 1
    out, err = capsys.readouterr()
    assert (out, "saga token create" in err, "[setting-invalid]" in err) == ("", True, True)


async def test_a_server_that_drains_is_not_ready(folder: Path, processes: list[Process]) -> None:
    """SIGTERM with a request in flight: probes are told 503, the request is still answered, and then the server ends."""
    async with opened(folder) as (_, token), httpx2.AsyncClient(timeout=120, trust_env=False) as client:
        processes.append(server := Process(folder))
        assert (await client.get(f"{server.url}/readyz")).status_code == 200
        address = httpx2.URL(server.url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            body = json.dumps({"plan": BOOK}).encode()
            head = f"POST /v1/sagas HTTP/1.1\r\nHost: {address.host}\r\nAuthorization: Bearer {token}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
            writer.write(head.encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")  # it awaits the body
            server.process.send_signal(signal.SIGTERM)
            while await _readiness(server) == 200:
                pass
            assert [await _readiness(server) for _ in range(2)] == [503, 503]
            assert server.process.poll() is None
            writer.write(body)
            assert (await reader.read()).startswith(b"HTTP/1.1 202")
        finally:
            writer.close()
        assert await asyncio.to_thread(server.process.wait, 120) == 0


async def _readiness(server: Process) -> int:
    """What a new probe is told; 0 if its connection is refused."""
    try:
        async with httpx2.AsyncClient(timeout=120, trust_env=False) as client:
            return (await client.get(f"{server.url}/readyz")).status_code
    except httpx2.TransportError:
        return 0


def test_a_demo_that_is_stopped_while_it_is_filled(folder: Path) -> None:
    """SIGTERM before it listens: it ends as an interrupted command does, and its folder and its store are gone."""
    (folder / "fills.py").write_text(FILLS)
    kept = folder / "tmp"
    kept.mkdir()
    command = [sys.executable, "fills.py", "serve", "--demo", "--port", "0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(kept)}
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "filling\n"
        assert any(each.name.startswith("saga-demo-") for each in kept.iterdir())
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130
    finally:
        process.kill()
        process.communicate()
    assert [each for each in kept.iterdir() if each.name.startswith("saga-demo-")] == []


async def test_a_job_whose_server_is_killed_in_the_middle(folder: Path, processes: list[Process]) -> None:
    """Another server carries it on: each saga is cancelled once, and reported as done, those of the first server, too."""
    async with opened(folder) as (coordinator, token):
        (folder / "dies.py").write_text(JOB_DIES)
        names = [f"s{number}" for number in range(6)]
        for name in names:
            await coordinator.run(ASK, saga_id=name)
        processes.append(Process(folder, "dies.py"))
        async with asking(processes[0], token) as api:
            made = await api("POST", "/v1/jobs", {"action": "cancel", "sagas": [*names, "nowhere"]})
        processes[0].process.wait(120)
        assert (folder / "died").exists()
        working = asyncio.create_task(coordinator.work())
        for name in names[:2]:
            await coordinator.wait(name)  # they have ended before the next server asks about them
        processes.append(Process(folder, "dies.py"))
        async with asking(processes[1], token) as api:
            while (found := await api.get(made.headers["location"]))["status"] != "ended":
                pass
            assert found["counts"] == {"done": 6, "saga-not-found": 1}
            for name in names:
                assert (await api.get(f"/v1/sagas/{name}", wait=60))["status"] == "COMPENSATED"
        working.cancel()
        await asyncio.wait([working])
        for name in names:
            kinds = [each["k"] for each in await coordinator.history(name)]
            assert (kinds.count("CancelRequested"), kinds.count("MessageRefused")) == (1, 0)
