"""The metrics of a process are what the journals say that it made durable, each record once."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.errors import SettingInvalid
from saga_engine.server.exposition import exposed
from saga_engine.telemetry import Metrics
from saga_engine.telemetry import metrics as limits
from saga_engine.telemetry.gauges import gauges_of

ATTEMPTS: Counter[str] = Counter()


@tool(undo="cancel")
async def book(item: str) -> dict[str, str]:
    return {"ref": item}


@tool(retry=RetryPolicy(max_attempts=3, base_s=0.001, max_s=0.001))
async def cancel(ref: str) -> None:
    ATTEMPTS[ref] += 1
    if ATTEMPTS[ref] == 1:
        raise ToolError("later", error_code="busy", retryable=True)


@tool(undo="cancel")
async def full(item: str) -> dict[str, str]:
    raise ToolError("no room", error_code="full", retryable=False)


TOOLS = [book, cancel, full]


def plan(*tools: str) -> dict[str, Any]:
    steps = [{"step_id": at, "tool": name, "params": {"item": f"{name}-{at}"}} for at, name in enumerate(tools, 1)]
    return {"steps": steps}


def samples(registry: CollectorRegistry) -> dict[tuple[str, tuple[str, ...]], float]:
    """The samples by name and the values of their labels, in the order of the labels' names."""
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_counters_are_the_journals() -> None:
    """Each call, outcome, question and end is counted as often as the journals have it."""
    ATTEMPTS.clear()
    metrics = Metrics()
    async with Coordinator.open("memory://", TOOLS, meters=[metrics]) as coordinator:
        ends = [await coordinator.run(plan(*tools)) for tools in (["book"], ["book", "book"], ["book", "full"])]
        async with coordinator.session(saga_id="s") as session:
            await session.call("book", item="x")
        histories = [await coordinator.history(end.saga_id) for end in ends] + [await coordinator.history("s")]
    kinds = Counter(record["k"] for history in histories for record in history)
    found = samples(metrics.registry)

    def total(name: str, **_: Any) -> float:
        return sum(value for (sample, _), value in found.items() if sample == name)

    assert total("saga_started_total") == kinds["SagaStarted"] == 4
    assert found["saga_started_total", ("session",)] == 1
    assert found["saga_ended_total", ("completed",)] == kinds["SagaCompleted"] == 3
    assert found["saga_ended_total", ("compensated",)] == kinds["SagaCompensated"] == 1
    assert total("saga_calls_total") == kinds["StepIntended"]
    assert found["saga_call_outcomes_total", ("forward", "succeeded", "book")] == 5
    assert found["saga_call_outcomes_total", ("forward", "failed", "full")] == kinds["StepFailed"] == 1
    assert found["saga_call_outcomes_total", ("undo", "retry", "cancel")] == kinds["StepRetryScheduled"] == 1
    assert found["saga_call_outcomes_total", ("undo", "succeeded", "cancel")] == 1
    assert total("saga_call_seconds_count") == total("saga_call_outcomes_total")
    assert found["saga_compensation_seconds_count", ()] == 1
    assert found["saga_seconds_count", ("completed",)] == 3


async def test_what_another_process_began_is_counted_when_it_ends_here() -> None:
    """A fleet's counters add up: what one process made durable no other counts, and its times are not invented."""
    first, second = Metrics(), Metrics()
    async with Coordinator.open("memory://meters", TOOLS, meters=[first]) as one:
        await one.submit(plan("book"), saga_id="s", detach=True)
        async with Coordinator.open(one.store, TOOLS, meters=[second]) as other:
            await other.resume("s")
    began, ended = samples(first.registry), samples(second.registry)
    assert began["saga_started_total", ("plan",)] == 1
    assert ("saga_started_total", ("plan",)) not in ended
    assert ended["saga_ended_total", ("completed",)] == 1
    assert ended["saga_resumed_total", ()] == 1
    assert ended["saga_queue_seconds_count", ()] == 1


async def test_labels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more tools than that the others share a time series, and no id or text of a plan is a label."""
    monkeypatch.setattr(limits, "MOST_TOOLS", 1)
    metrics = Metrics()
    async with Coordinator.open("memory://", TOOLS, meters=[metrics]) as coordinator:
        await coordinator.run(plan("book", "full"), saga_id="marker-id")
    found = samples(metrics.registry)
    assert found["saga_calls_total", ("forward", "book")] == 1
    assert found["saga_calls_total", ("forward", "other")] == 1
    assert b"marker" not in generate_latest(metrics.registry)


async def test_the_memory_of_open_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of too many open calls loses its time, and nothing else."""
    monkeypatch.setattr(limits, "MOST_OPEN", 1)
    metrics, together = Metrics(), asyncio.Barrier(2)

    @tool(effect="read")
    async def meet(item: str) -> None:
        await together.wait()

    async with Coordinator.open("memory://", [meet], meters=[metrics]) as coordinator:
        steps = [{"step_id": at, "tool": "meet", "params": {"item": "x"}, "depends_on": []} for at in (1, 2)]
        await coordinator.run({"steps": steps})
    found = samples(metrics.registry)
    assert found["saga_call_outcomes_total", ("forward", "succeeded", "meet")] == 2
    assert found["saga_call_seconds_count", ("forward", "meet")] == 1


async def test_a_meter_that_fails_harms_no_saga(caplog: pytest.LogCaptureFixture) -> None:
    """Its exception is logged."""

    class Wrong:
        def measure(self, state: Any, records: Any) -> None:
            raise RuntimeError("broken meter")

    with caplog.at_level(logging.ERROR, logger="saga_engine"):
        async with Coordinator.open("memory://", TOOLS, meters=[Wrong()]) as coordinator:
            end = await coordinator.run(plan("book"))
    assert end.completed
    assert "meter 'test_a_meter_that_fails_harms_no_saga.<locals>.Wrong' failed" in caplog.text


async def test_gauges_are_the_stores() -> None:
    """What waits in the store, whichever process submitted it, and the tools' breakers."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await coordinator.submit(plan("book"), saga_id="s", detach=True)
        stats = {"book": {"breaker": {"state": "open"}}, "cancel": {"breaker": None}}
        found = samples(gauges_of(await coordinator.overview(), stats))
    assert found["saga_live", ("PENDING",)] == 1
    assert found["saga_queue_length", ()] == 1
    assert found["saga_breaker_state", ("book",)] == 2
    assert ("saga_breaker_state", ("cancel",)) not in found


async def test_metrics_are_served_for_a_scraper() -> None:
    """At a free port, in the format that Prometheus reads; the server ends with the block."""
    import httpx2

    with exposed("127.0.0.1:0") as (metrics, url):
        async with Coordinator.open("memory://", TOOLS, meters=[metrics]) as coordinator:
            await coordinator.run(plan("book"))
        async with httpx2.AsyncClient() as client:
            scraped = await client.get(url)
    assert 'saga_ended_total{status="completed"} 1.0' in scraped.text
    async with httpx2.AsyncClient() as client:
        with pytest.raises(httpx2.TransportError):
            await client.get(url)


@pytest.mark.parametrize("address", ["", "9464", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "256.0.0.1:1"])
def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(SettingInvalid, match="metrics"), exposed(address):
        raise AssertionError("it is served")


async def test_the_page_has_every_metric() -> None:
    """docs/reference/metrics.md names all of them, and no other."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        gauges = gauges_of(await coordinator.overview(), {})
    families = [family for registry in (Metrics().registry, gauges) for family in registry.collect()]
    there = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text().split("\n## Loggers\n")[0]
    assert set(re.findall(r"^\| `(saga_\w+)` \|", page, re.MULTILINE)) == there
