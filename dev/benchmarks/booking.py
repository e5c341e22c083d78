"""The booking workload: three steps succeed; or the third fails and two are undone. One process, many sagas.

Prints, for the engine and for the floor (``floor.py``) on the same embedded Valkey server with ``appendfsync
always``: the latency of one saga after another, sagas and steps a second at the best concurrency, CPU seconds for
1,000 steps (this process and the server), the cost of a step in longer and longer sagas, and the ratios. Only the
ratios of one run mean something: the disk and the machine have fast and slow spells, so the two take turns and each
figure is the median of several rounds.

    python dev/benchmarks/booking.py [--rounds N] [--sagas N] [--uvloop] [--short] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from floor import Floor
from redis.asyncio import Redis

from saga_engine import Coordinator, Plan, ToolError, tool
from saga_engine.plan.model import load_plan

BOOK = ("flight", "hotel", "payment")
PARAMS = {"city": "Lisbon", "nights": 3, "guest": {"name": "Ada Lovelace", "email": "ada@example.com"}}
Saga = Callable[[], Awaitable[None]]


def make_tools() -> list[Any]:
    """No-op tools, as the peers are measured with; ``payment`` has a twin that refuses."""

    def book(name: str) -> object:
        async def call(city: str, nights: int, guest: dict, idempotency_key: str) -> dict:  # noqa: ARG001
            return {"order_id": f"{name}-1"}

        return tool(name=name, undo=f"cancel_{name}")(call)

    def cancel(name: str) -> object:
        async def call(order_id: str, idempotency_key: str) -> dict:  # noqa: ARG001
            return {"order_id": order_id}

        return tool(name=f"cancel_{name}")(call)

    async def refuse(city: str, nights: int, guest: dict) -> dict:  # noqa: ARG001
        raise ToolError("declined", error_code="declined")

    return [
        *(book(name) for name in BOOK),
        *(cancel(name) for name in BOOK),
        tool(name="refuse", undo="cancel_payment")(refuse),
    ]


def tools_with(*others: Any) -> list[Any]:
    """The tools, with ``others`` in place of those of the same names."""
    replaced = {other.name for other in others}
    return [*(one for one in make_tools() if one.name not in replaced), *others]


def make_plan(names: tuple[str, ...]) -> Plan:
    """A sequential plan whose undos bind to the steps' outputs."""
    return load_plan(
        {
            "steps": [
                {
                    "step_id": index,
                    "tool": name,
                    "params": PARAMS,
                    "rollback": {
                        "tool": f"cancel_{'payment' if name == 'refuse' else name}",
                        "params": {"order_id": f"$output.step_{index}.order_id"},
                    },
                }
                for index, name in enumerate(names, 1)
            ]
        }
    )


def server_of(folder: str) -> dict[str, Any]:
    """Socket and process of the embedded server of a folder."""
    return json.loads((Path(folder) / "server.json").read_text())


def cpu_s(pid: int) -> float:
    """CPU seconds of this process and of the server."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def closed_loop(saga: Saga, at_once: int, count: int) -> float:
    """Seconds for ``count`` sagas, ``at_once`` at a time."""
    left = count
    started = time.perf_counter()

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await saga()

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return time.perf_counter() - started


async def sequential_ms(saga: Saga, count: int) -> float:
    """The median latency of one saga after another, in milliseconds."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await saga()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


async def measure(args: argparse.Namespace, folder: str) -> dict[str, object]:
    """All figures of one run."""
    url = f"embedded://{folder}"
    async with Coordinator.open(url, make_tools(), lease_s=60) as coordinator:
        server = server_of(folder)
        client = Redis(unix_socket_path=server["socket"], max_connections=4)
        floor = Floor(client)
        await floor.open()
        good, bad = make_plan(BOOK), make_plan(("flight", "hotel", "refuse"))

        async def engine_good() -> None:
            assert (await coordinator.run(good)).status == "COMPLETED"

        async def engine_bad() -> None:
            assert (await coordinator.run(bad)).status == "COMPENSATED"

        runs: dict[str, dict[str, Saga]] = {
            "floor": {"good": lambda: floor.saga(BOOK), "bad": lambda: floor.saga(BOOK, 2)},
            "engine": {"good": engine_good, "bad": engine_bad},
        }
        figures: dict[str, dict[str, list[float]]] = {name: {} for name in runs}

        def note(name: str, what: str, value: float) -> None:
            figures[name].setdefault(what, []).append(value)

        for _ in range(args.rounds):
            for name, sagas in runs.items():
                await closed_loop(sagas["good"], 8, 64)  # warm up
                note(name, "sequential_ms", await sequential_ms(sagas["good"], args.sequential))
                best = 0.0
                for at_once in args.levels:
                    spent = cpu_s(server["pid"])
                    rate = args.sagas / await closed_loop(sagas["good"], at_once, args.sagas)
                    if rate > best:
                        best, best_level = rate, at_once
                        cpu = (cpu_s(server["pid"]) - spent) / args.sagas / len(BOOK) * 1000
                note(name, "steps_per_s", best * len(BOOK))
                note(name, "cpu_s_per_1000_steps", cpu)
                note(
                    name,
                    "compensating_sagas_per_s",
                    args.sagas / await closed_loop(sagas["bad"], best_level, args.sagas),
                )
        growth = await measure_growth(coordinator, args)
        await client.aclose()
    table = {
        name: {what: statistics.median(values) for what, values in found.items()} for name, found in figures.items()
    }
    ratios = {what: table["engine"][what] / table["floor"][what] for what in table["floor"]}
    return {"figures": table, "ratio_engine_to_floor": ratios, "ms_per_step_by_length": growth, "loop": args.loop}


async def measure_growth(coordinator: Coordinator, args: argparse.Namespace) -> dict[int, float]:
    """Milliseconds for each step of one saga with so many steps."""
    found = {}
    for length in args.lengths:
        plan = make_plan(("flight",) * length)
        started = time.perf_counter()
        assert (await coordinator.run(plan)).status == "COMPLETED"
        found[length] = (time.perf_counter() - started) / length * 1000
    return found


def show(result: dict[str, object]) -> None:
    """The figures as a table."""
    table, ratios = result["figures"], result["ratio_engine_to_floor"]
    print(f"{'':28}{'floor':>12}{'engine':>12}{'engine/floor':>14}")
    for what in ratios:
        print(f"{what:28}{table['floor'][what]:12.3f}{table['engine'][what]:12.3f}{ratios[what]:14.2f}")
    for length, ms in result["ms_per_step_by_length"].items():
        print(f"one saga of {length:6d} steps: {ms:.3f} ms a step")


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sagas", type=int, default=3000)
    parser.add_argument("--sequential", type=int, default=200)
    parser.add_argument("--uvloop", action="store_true", help="run both on uvloop")
    parser.add_argument("--short", action="store_true", help="a smoke test, as in CI")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.levels, args.lengths = (8, 128, 512), (10, 100, 1000, 10000)
    if args.short:
        args.rounds, args.sagas, args.sequential, args.levels, args.lengths = 1, 64, 5, (16,), (10, 100)
    args.loop = "uvloop" if args.uvloop else "asyncio"
    with tempfile.TemporaryDirectory(prefix="saga-bench-") as folder:
        if args.uvloop:
            import uvloop

            result = uvloop.run(measure(args, folder))
        else:
            result = asyncio.run(measure(args, folder))
    show(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
