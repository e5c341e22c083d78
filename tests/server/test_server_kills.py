"""`saga serve` is killed again and again while clients repeat keyed requests until they are answered."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from saga_engine import Coordinator
from saga_engine.server.tokens import Tokens
from tests.server.harness import ASK, TOOLS
from tests.server.serve_process import Process

CLIENTS: Final = 16
ROUNDS: Final = 2
PLAN: Final = {"steps": [*ASK["steps"], {"step_id": 2, "tool": "book", "params": {"item": "x"}}]}
EVENT: Final = {"name": "paid", "key": "17", "payload": {"sum": 5}}


class World:
    """The server that lives now. It is killed after random numbers of answers, while other requests are under way."""

    def __init__(self, folder: Path, token: str, seed: int, kills: int) -> None:
        self.folder, self.token, self.dice = folder, token, random.Random(seed)
        self.kills, self.answers, self.repeats = kills, 0, 0
        self.until = self.dice.randint(1, 6)
        self.process = Process(folder)
        self.all = [self.process]

    async def ask(self, client: httpx2.AsyncClient, path: str, body: Mapping[str, Any], key: str) -> Any:
        """The answer to a keyed request, however often it has to be sent."""
        headers = {"authorization": f"Bearer {self.token}", "idempotency-key": key}
        while True:
            process = self.process
            try:
                found = await client.post(f"{process.url}{path}", json=body, headers=headers)
            except httpx2.TransportError:
                self.repeats += 1
                self._again(process)
                continue
            if found.status_code >= 500 or found.json().get("code") == "decision-refused":
                await asyncio.sleep(0)  # the question is not there yet
                continue
            self.answers += 1
            if self.answers >= self.until and self.kills:
                self.kills -= 1
                self.until = self.answers + self.dice.randint(1, 6)
                process.process.send_signal(signal.SIGKILL)
            return found

    def _again(self, gone: Process) -> None:
        """Start the next one, at once: what is cut off here leaves no process behind."""
        if self.process is gone:
            gone.process.wait(120)
            self.process = Process(self.folder)
            self.all.append(self.process)


async def client(world: World, number: int) -> list[str]:
    """Submits, answers, and sends an event, each under a key of its own, and once more at the end; the sagas' ids."""
    made = []
    async with httpx2.AsyncClient(timeout=120, trust_env=False) as http:
        for turn in range(ROUNDS):
            name = f"{number}-{turn}"
            first = await world.ask(http, "/v1/sagas", {"plan": PLAN}, f"submit-{name}")
            saga = first.json()["saga_id"]
            answer = {"step_id": 1, "decision": "yes", "note": name}
            path = f"/v1/sagas/{saga}/resolve"
            assert (await world.ask(http, path, answer, f"resolve-{name}")).status_code == 202
            sent = await world.ask(http, "/v1/events", EVENT | {"event_id": f"e-{name}"}, f"event-{name}")
            assert sent.status_code == 202, sent.text
            again = [
                await world.ask(http, "/v1/sagas", {"plan": PLAN}, f"submit-{name}"),
                await world.ask(http, path, answer, f"resolve-{name}"),
            ]
            assert [each.json()["saga_id"] for each in again] == [saga, saga]
            other = await world.ask(http, "/v1/sagas", {"plan": ASK}, f"submit-{name}")
            assert (other.status_code, other.json()["code"]) == (409, "key-reused")
            made.append(saga)
    return made


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
async def test_what_is_asked_with_a_key_happens_once(tmp_path: Path, seed: int) -> None:
    """Each key is one saga, one answer of an operator and one event, however often its server was killed meanwhile."""
    (tmp_path / "saga.toml").write_text("[saga]\nlease_s = 120\n[server]\nrequests_per_s = 1000000\nburst = 1000000\n")
    async with Coordinator.open(f"embedded://{tmp_path}/.saga", TOOLS, lease_s=120, on_escalation=()) as engine:
        token = (await Tokens(engine.store.documents()).create("Ada", ["admin"]))[1]
        working = asyncio.create_task(engine.work())
        world = World(tmp_path, token, seed, kills=8)
        try:
            async with asyncio.TaskGroup() as group:
                clients = [group.create_task(client(world, number)) for number in range(CLIENTS)]
        finally:
            for process in world.all:
                if process.process.poll() is None:
                    await asyncio.to_thread(process.end, signal.SIGKILL)
                assert process.process.stdout is not None
                process.process.stdout.close()
        ids = [saga for each in clients for saga in each.result()]
        for saga in ids:
            assert (await engine.wait(saga)).status == "COMPLETED"
            kinds = Counter(record["k"] for record in await engine.history(saga))
            assert (kinds["SagaStarted"], kinds["QuestionResolved"], kinds["StepIntended"]) == (1, 1, 1), kinds
        assert {head.saga_id for head in (await engine.search(limit=200)).sagas} == {*ids}
        assert len({*ids}) == CLIENTS * ROUNDS
        assert len(await engine.events(limit=100)) == CLIENTS * ROUNDS
        assert world.kills == 0
        assert world.repeats
        working.cancel()
        await asyncio.wait([working])
