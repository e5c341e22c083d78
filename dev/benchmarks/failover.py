"""What a fail-over costs at each level of durability: acknowledged records that are gone; and what each level costs.

For each run a cluster of three primaries with a replica each is formed on this machine, a process drives sagas over it,
and one primary is killed (SIGKILL): with its replica *attached*; or with it *behind*, half a second after the line to
it was lost, as when a network fails before a machine does. The replica takes over, the sagas that are left are resumed,
and every record that the engine was told is durable is looked for.

    python dev/benchmarks/failover.py [--runs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from saga_engine import Coordinator, tool
from tests.kill.driving import Drive
from tests.support.servers import until
from tests.support.topologies import Cluster, Replicated

LEVELS = ("fsync", "replicated:1")
BEHIND_S = 0.5


def fail_over(level: str, *, behind: bool) -> dict[str, int]:
    """One fail-over under running sagas; what was acknowledged, and what of it is gone."""
    with Cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        drive = Drive(cluster, Path(folder), durability=level, goes_on=True)
        try:
            drive.start()
            drive.goes_on(500)
            dead = cluster.primaries()[0]
            heir = cluster.replica_of(dead)
            if behind:
                heir.fall_behind(dead)
                time.sleep(BEHIND_S)
            dead.kill()
            heir.thaw()
            until(lambda: heir in cluster.primaries(), "the fail-over")
            dead.start()
            drive.goes_on(500)
            stopped = drive.end()["errors"]
            lost = drive.lost()
            drive.start(resume=True)
            finals = drive.end()["finals"]
            known = drive.acknowledged()
            twice = [
                text
                for saga_id, body in finals.items()
                for text in drive.ledger.compare(body)
                if "again while it stood" in text or "was undone" in text
            ]
        finally:
            drive.kill()
        return {
            "acknowledged": sum(map(len, known.values())),
            "lost": sum(lost.values()),
            "sagas": len(known),
            "sagas_set_back": len(lost.keys() & finals.keys()),
            "sagas_gone": len(lost.keys() - finals.keys()),
            "sagas_stopped": len(stopped),
            "effects_twice": len(twice),
        }


@tool(effect="read")
async def look(n: int) -> dict:
    """Do nothing."""
    return {"n": n}


PLAN = {"steps": [{"step_id": n, "tool": "look", "params": {"n": n}} for n in (1, 2, 3)]}


async def cost(url: str, level: str) -> dict[str, float]:
    """Milliseconds for one saga of three steps after another, and steps a second with 256 sagas at once."""
    async with Coordinator.open(url, [look], durability=level) as coordinator:
        await asyncio.gather(*(coordinator.run(PLAN) for _ in range(50)))
        alone: list[float] = []
        for _ in range(100):
            began = time.perf_counter()
            await coordinator.run(PLAN)
            alone.append((time.perf_counter() - began) * 1000)
        many = 2048
        left = iter(range(many))

        async def worker() -> None:
            for _ in left:
                await coordinator.run(PLAN)

        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(256)))
        return {"saga_ms": statistics.median(alone), "steps_per_s": 3 * many / (time.perf_counter() - began)}


def costs(rounds: int) -> dict[str, dict[str, float]]:
    """What each level costs on a primary with one replica, and on a cluster of three with a replica each.

    All take turns, and each figure is the median of the rounds: machines have fast and slow spells.
    """
    found: dict[str, list[dict[str, float]]] = {}
    with Replicated(1) as pair, Cluster() as cluster:
        for _ in range(rounds):
            for name, group in (("one primary", pair), ("cluster of three", cluster)):
                for level in LEVELS:
                    found.setdefault(f"{name}, `{level}`", []).append(asyncio.run(cost(group.url, level)))
    return {
        name: {key: statistics.median(round_[key] for round_ in made) for key in made[0]}
        for name, made in found.items()
    }


def main() -> None:
    """Measure, print tables in Markdown, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="the number of fail-overs for each row (default: 5)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    figures: dict[str, Any] = {"failover": {}, "cost": costs(options.runs)}
    print("| | level | records acknowledged | lost | sagas | set back | gone | effects twice |")
    print("|---|---|---|---|---|---|---|---|")
    for behind in (False, True):
        for level in LEVELS:
            runs = [fail_over(level, behind=behind) for _ in range(options.runs)]
            name = "replica behind" if behind else "replica attached"
            figures["failover"][f"{name}, {level}"] = runs
            total = {key: sum(run[key] for run in runs) for key in runs[0]}
            cells = ("acknowledged", "lost", "sagas", "sagas_set_back", "sagas_gone", "effects_twice")
            print(f"| {name} | `{level}` | " + " | ".join(f"{total[key]:,}" for key in cells) + " |", flush=True)
    print("\n| | saga of 3 steps, alone | steps/s, 256 at once |\n|---|---|---|")
    for name, row in figures["cost"].items():
        print(f"| {name} | {row['saga_ms']:.2f} ms | {row['steps_per_s']:,.0f} |")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
