"""A child process that drives sagas over servers which fail, seen from outside: what it was told, and what is left."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from saga_engine.stores import open_store
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.failover_child import KINDS
from tests.kill.processes import ROOT
from tests.kill.world import ENDS, PLANS
from tests.support.servers import GIVE_UP_S, until
from tests.support.topologies import Group


class Drive:
    """A child that drives sagas, and what it has been told is durable."""

    def __init__(self, group: Group, folder: Path, *, durability: str, **case: Any) -> None:
        self.namespace = uuid.uuid4().hex
        self.url = f"{group.url}?namespace={self.namespace}"
        self.ledger = OutsideLedger(folder / "world.db")
        self.log = folder / "log"
        self.stop = folder / "stop"
        self.case = {
            "url": self.url,
            "durability": durability,
            "ledger": str(self.ledger.path),
            "log": str(self.log),
            "stop": str(self.stop),
            "at_once": 8,
            "patience_s": GIVE_UP_S,
            "lease_s": 60.0,
            "name": "s",
        } | case
        self.log.touch()
        self._process: subprocess.Popen[str] | None = None

    def start(self, **case: Any) -> None:
        command = [sys.executable, "-m", "tests.kill.failover_child", json.dumps(self.case | case)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def acknowledged(self) -> dict[str, list[bytes]]:
        """Every record that the engine was told is durable, by saga and in order."""
        found: dict[str, list[bytes]] = {}
        for line in self.log.read_text().splitlines():
            saga_id, record = line.split()
            found.setdefault(saga_id, []).append(bytes.fromhex(record))
        return found

    def goes_on(self, records: int = 150) -> None:
        """Wait for so many more records to be acknowledged."""
        wanted = self.log.read_bytes().count(b"\n") + records
        until(lambda: self.log.read_bytes().count(b"\n") >= wanted or self.has_ended(), f"{records} more records")

    def has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def end(self) -> dict[str, Any]:
        """Have it finish what it does; returns what it tells."""
        assert self._process is not None
        self.stop.touch()
        out, _ = self._process.communicate(timeout=GIVE_UP_S * 3)
        assert self._process.returncode == 0
        told: dict[str, Any] = json.loads(out)
        return told

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def lost(self) -> dict[str, int]:
        """How many acknowledged records of each saga are not in the store (any more)."""
        return asyncio.run(self._lost())

    async def _lost(self) -> dict[str, int]:
        store = open_store(self.url, durability="relaxed", patience_s=GIVE_UP_S)
        await store.open()
        found: dict[str, int] = {}
        there = {head.saga_id for head in await store.list(limit=100_000)}
        for saga_id, records in self.acknowledged().items():
            kept = list(await store.read(saga_id)) if saga_id in there else []
            missing = len(records) - sum(map(bytes.__eq__, kept, records))
            if missing:
                found[saga_id] = missing
        await store.close()
        return found

    def disagreements(self, finals: dict[str, Any]) -> dict[str, list[str]]:
        """Where a report and the outside world tell different stories, or a saga ended wrongly."""
        found = {}
        for saga_id, body in finals.items():
            kind = KINDS[int(saga_id.rpartition("-")[2]) % 3]
            wrong = self.ledger.compare(body, PLANS[kind])
            if body["status"] != ENDS[kind]:
                wrong.append(f"it ended {body['status']}")
            if wrong:
                found[saga_id] = wrong
        return found
