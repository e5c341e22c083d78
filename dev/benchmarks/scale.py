"""What one machine, ten and a thousand do: computed from measured CPU, and checked against a run with three shards.

The booking workload runs on a cluster of one shard at two concurrencies and on one of three shards. Two concurrencies
give two group commits' sizes, and so the CPU of a step and that of a script call, for the process and for the server.
From these the model predicts three shards, where a commit is cut into up to three calls. The prediction is compared
with what was measured there. The table of ``docs/scale.md`` follows from the model. CPU is what is compared, because
the time of three shards on the two cores of one machine says nothing about three machines.

    python dev/benchmarks/scale.py [--sagas N] [--rounds N] [--cores N] [--short] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from booking import BOOK, closed_loop, make_plan, make_tools
from redis.asyncio import Redis
from servers import cluster

from saga_engine import Coordinator
from saga_engine.stores.redis import PARTITIONS

_SHARDS = 3
_LEVELS = (16, 256)
#: Machines of which the table tells.
MACHINES = (1, 10, 100, 1000)


class Measured(NamedTuple):
    """Of one run: CPU seconds for a step, of the process and of all servers, and script calls for a step."""

    client_s: float
    server_s: float
    calls: float


class Cost(NamedTuple):
    """CPU seconds of one side: for a step, and for each script call beside it."""

    step_s: float
    call_s: float

    def at(self, calls: float) -> float:
        """CPU seconds for a step with so many calls."""
        return self.step_s + self.call_s * calls


def costs(few: Measured, many: Measured) -> tuple[Cost, Cost]:
    """What a step and a call cost the process and the server: ``few`` and ``many`` calls for a step were measured.

    A difference that is not above 0 is noise: then calls cost nothing.
    """
    found = []
    for low, high in ((few.client_s, many.client_s), (few.server_s, many.server_s)):
        more = many.calls - few.calls
        call_s = max((high - low) / more, 0.0) if more > 0 else 0.0
        found.append(Cost(max(low - call_s * few.calls, 0.0), call_s))
    return found[0], found[1]


class Size(NamedTuple):
    """One row of the table."""

    machines: int
    stores: int
    shards: int
    workers: int
    steps_per_s: float


def size(machines: int, cores: int, client_s: float, server_s: float, most_shards: int = PARTITIONS) -> Size:
    """How many shards and workers, each on a core of its own, use the cores best, and the steps that they do a second.

    A store has at most as many shards as partitions; more machines need more stores.
    """
    total = machines * cores
    share = server_s / (server_s + client_s)
    shards = max(1, round(total * share))
    stores = -(-shards // most_shards)
    workers = max(1, total - shards)
    return Size(machines, stores, shards, workers, min(shards / server_s, workers / client_s))


async def measure(url: str, pids: Sequence[int], ports: Sequence[int], at_once: int, sagas: int) -> Measured:
    """One run of so many sagas, after a tenth of them to warm up."""
    async with Coordinator.open(url, make_tools(), lease_s=60) as coordinator:
        plan = make_plan(BOOK)

        async def saga() -> None:
            assert (await coordinator.run(plan)).completed

        await closed_loop(saga, at_once, max(sagas // 10, at_once))
        clients = [Redis(port=port) for port in ports]
        for client in clients:
            await client.config_resetstat()
        client_s, server_s = time.process_time(), sum(map(cpu_of, pids))
        await closed_loop(saga, at_once, sagas)
        client_s, server_s = time.process_time() - client_s, sum(map(cpu_of, pids)) - server_s
        calls = [(await client.info("commandstats"))["cmdstat_evalsha"]["calls"] for client in clients]
        for client in clients:
            await client.aclose()
    steps = sagas * len(BOOK)
    return Measured(client_s / steps, server_s / steps, sum(calls) / steps)


def cpu_of(pid: int) -> float:
    """CPU seconds of a process by the scheduler's account, which is finer than its ticks."""
    found = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in found) / 1e9


async def run(rounds: int, sagas: int) -> dict[str, Measured]:
    """The medians of all rounds; the forms take turns."""
    forms = {"few": (1, _LEVELS[1]), "many": (1, _LEVELS[0]), "three": (_SHARDS, _LEVELS[1])}
    found: dict[str, list[Measured]] = {name: [] for name in forms}
    with tempfile.TemporaryDirectory(prefix="saga-scale-") as folder:
        for turn in range(rounds):
            for name, (shards, at_once) in forms.items():
                with cluster(Path(folder) / f"{turn}-{name}", shards) as nodes:
                    found[name].append(await measure(nodes["url"], nodes["pids"], nodes["ports"], at_once, sagas))
    return {name: Measured(*map(statistics.median, zip(*each, strict=True))) for name, each in found.items()}


def conclude(found: Mapping[str, Measured], cores: int) -> dict[str, Any]:
    """The model, its check, and the table."""
    client, server = costs(found["few"], found["many"])
    three = found["three"]
    check = {
        "client": (client.at(three.calls), three.client_s),
        "server": (server.at(three.calls), three.server_s),
    }
    # At scale a commit has as many calls as here with three shards: a process that serves more of them has more sagas.
    rows = [size(machines, cores, three.client_s, three.server_s) for machines in MACHINES]
    return {"client": client, "server": server, "check": check, "rows": rows}


def show(found: Mapping[str, Measured], result: Mapping[str, Any], cores: int) -> None:
    """All figures as text."""
    for name, each in found.items():
        print(
            f"{name:6} process {each.client_s * 1e6:6.1f} µs, server {each.server_s * 1e6:6.1f} µs a step, "
            f"{each.calls:.3f} calls"
        )
    for side in ("client", "server"):
        cost, (predicted, measured) = result[side], result["check"][side]
        print(
            f"{side}: a step {cost.step_s * 1e6:.1f} µs, a call {cost.call_s * 1e6:.1f} µs; "
            f"three shards: predicted {predicted * 1e6:.1f}, measured {measured * 1e6:.1f} ({predicted / measured:.2f})"
        )
    print(f"machines of {cores} cores, stores, shards, workers, steps/s")
    for row in result["rows"]:
        print(f"| {row.machines:,} | {row.stores:,} | {row.shards:,} | {row.workers:,} | {row.steps_per_s:,.0f} |")


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sagas", type=int, default=2000)
    parser.add_argument("--cores", type=int, default=8, help="of each machine in the table")
    parser.add_argument("--short", action="store_true", help="a smoke test, as in CI")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.short:
        args.rounds, args.sagas = 1, 64
    found = asyncio.run(run(args.rounds, args.sagas))
    result = conclude(found, args.cores)
    show(found, result, args.cores)
    if args.json:
        rows = [row._asdict() for row in result["rows"]]
        args.json.write_text(json.dumps({"measured": {k: v._asdict() for k, v in found.items()}, "rows": rows}))


if __name__ == "__main__":
    main()
