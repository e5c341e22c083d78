"""The workers of a place, each in a process of its own, and what must be true of their sagas."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kill.processes import Ended, Processes, Running
from tests.kill.world import ENDS, PLANS
from tests.support.servers import until

if TYPE_CHECKING:
    from tests.kill.conftest import Place


class Team:
    """The workers of a place; each is called by a name."""

    def __init__(self, processes: Processes, place: Place) -> None:
        self.place = place
        self.folder: Path = place.ledger.path.parent
        self._processes = processes
        self._workers: dict[str, Running] = {}

    def start(self, name: str, **case: Any) -> Running:
        how = {"variant": "keyed", "name": name, **self.place.told, **case}
        self._workers[name] = self._processes.start("work", player="workers", **how)
        return self._workers[name]

    def begin(self, name: str, **case: Any) -> Running:
        """Start it, and wait until it takes sagas."""
        worker = self.start(name, **case)
        until((self.folder / f"ready-{name}").exists, f"worker {name} to work")
        return worker

    def stop(self, name: str) -> None:
        """SIGTERM; returns when it has been heard."""
        os.kill(self._workers[name].pid, signal.SIGTERM)
        until((self.folder / f"stopping-{name}").exists, f"worker {name} to hear of it")

    def end(self, name: str) -> dict[str, Any]:
        """Stop it and hear what it tells."""
        self.stop(name)
        return self._workers[name].told()

    def killed(self, name: str) -> Ended:
        ended = self._workers[name].wait()
        assert ended.killed, f"worker {name} was not killed: {ended.told}"
        return ended

    def kill_all(self) -> None:
        for worker in self._workers.values():
            if not worker.has_ended():
                worker.kill()
                worker.wait()


def breaches(place: Place, plan: str, final: dict[str, Any], kills: int) -> list[str]:
    """What is wrong with a saga whose workers were killed so often."""
    lines = place.ledger.lines(final["saga_id"])
    found = place.ledger.compare(final, PLANS[plan])
    if final["status"] != ENDS[plan]:
        found.append(f"it ended {final['status']}")
    applied = Counter((line.step_id, line.direction) for line in lines if line.what == "applied")
    sent = Counter((line.step_id, line.direction) for line in lines if line.what == "sent")
    found += [f"{at} happened {count} times" for at, count in applied.items() if count > 1]
    found += [f"{at} was sent {count} times" for at, count in sent.items() if count > 1 + kills]
    return found
