"""Counters from durable records."""

from desk import STORE, book, go, unbook, undone
from prometheus_client import generate_latest

from saga_engine import Coordinator
from saga_engine.telemetry import Metrics


async def main() -> str:
    metrics = Metrics()
    async with Coordinator.open(STORE, [book, unbook], meters=[metrics]) as coordinator:
        await undone(coordinator, "s")
    text = generate_latest(metrics.registry).decode()
    counted = [line for line in text.splitlines() if line.startswith("saga_") and "COMPENSATED" in line.upper()]
    assert any(float(line.split()[-1]) == 1 for line in counted), text
    return "the end of a saga is counted"


go(main)
