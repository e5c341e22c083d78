"""What sealing costs: sagas in a sealed store and in a plain one, in turns in one process on one server.

    python dev/benchmarks/sealing.py [SAGAS] [ROUNDS]

Prints for each shape of sagas steps a second and the CPU time of this process for a step, and the ratio of sealed to
plain: the median over pairs of rounds. Only ratios of one run mean something.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from statistics import median
from typing import NamedTuple

from saga_engine import Coordinator, tool

KEYS = {"k1": bytes(range(32))}
GUEST = {"name": "Ada Lovelace", "email": "ada@example.com"}


@tool(undo="back")
async def forth(guest: dict, text: str, idempotency_key: str) -> dict:  # noqa: ARG001
    return {"order_id": "flight-1", "text": text}


@tool
async def back(order_id: str) -> dict:  # noqa: ARG001
    return {}


class Shape(NamedTuple):
    """How many steps a saga has, and how many bytes of text each gets and returns."""

    steps: int
    chars: int

    @property
    def plan(self) -> dict:
        params = {"guest": GUEST, "text": "x" * self.chars}
        return {"steps": [{"step_id": at, "tool": "forth", "params": params} for at in range(self.steps)]}


class Spent(NamedTuple):
    """Of one round: steps a second, and microseconds of this process's CPU for each step."""

    steps_s: float
    cpu_us: float


SHAPES = (Shape(3, 0), Shape(30, 0), Shape(10, 2000))


async def spent(coordinator: Coordinator, shape: Shape, sagas: int) -> Spent:
    plan, steps = shape.plan, sagas * shape.steps
    cpu, clock = time.process_time(), time.perf_counter()
    await asyncio.gather(*(coordinator.run(plan) for _ in range(sagas)))
    cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
    return Spent(steps / clock, cpu / steps * 1e6)


async def main(sagas: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"embedded://{folder}"
        plain = Coordinator.open(f"{url}?namespace=plain", [forth, back])
        sealing = Coordinator.open(f"{url}?namespace=sealed", [forth, back], privacy=KEYS)
        async with plain as off, sealing as on:
            for shape in SHAPES:
                pairs = [(await spent(off, shape, sagas), await spent(on, shape, sagas)) for _ in range(rounds)][1:]
                tell(shape, pairs)


def tell(shape: Shape, pairs: list[tuple[Spent, Spent]]) -> None:
    off, on = ([median(column) for column in zip(*side, strict=True)] for side in zip(*pairs, strict=True))
    rate = median(one.steps_s / other.steps_s for other, one in pairs)
    cpu = median(one.cpu_us / other.cpu_us for other, one in pairs)
    print(
        f"{shape.steps} steps, {shape.chars} characters: {off[0]:,.0f} steps/s plain, "
        f"{on[0]:,.0f} sealed, ratio {rate:.2f}; {off[1]:.0f} µs of CPU a step plain, "
        f"{on[1]:.0f} sealed, ratio {cpu:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    asyncio.run(main(*[*given, *(256, 9)[len(given) :]]))
