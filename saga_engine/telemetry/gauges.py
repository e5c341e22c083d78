"""Gauges of a store, as all its processes left it: what waits, what runs, and which tools are unreachable.

They are read at the moment of the scrape, so one process of a fleet shows them (`saga serve`), and their cost does not
grow with the number of sagas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from saga_engine.core.states import SAGA_FINAL
from saga_engine.ports import Load

_BREAKER: Final = {"closed": 0, "half-open": 1, "open": 2}


def gauges_of(load: Load, tools: Mapping[str, Mapping[str, Any]]) -> CollectorRegistry:
    """A registry with the gauges of one look at a store; ``tools``: ``Coordinator.tool_stats()``."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Look([*_of_load(load), _of_breakers(tools)]))
    return registry


class _Look:
    def __init__(self, found: Sequence[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        """What ``prometheus_client`` asks of a collector."""
        return self._found


def _of_load(load: Load) -> list[Metric]:
    live = GaugeMetricFamily("saga_live", "Sagas that have not ended, by status", labels=["status"])
    for status, count in sorted(load.statuses.items()):
        if status not in SAGA_FINAL:
            live.add_metric([status], count)
    oldest_s = 0.0 if load.oldest_ms is None else max(load.now_ms - load.oldest_ms, 0) / 1000
    return [
        live,
        GaugeMetricFamily("saga_queue_length", "Sagas that need a worker now", value=load.queued),
        GaugeMetricFamily("saga_timers", "Sagas that need a worker later", value=load.timed),
        GaugeMetricFamily("saga_queue_oldest_seconds", "How long the first of the queue has waited", value=oldest_s),
        GaugeMetricFamily("saga_owners", "Processes with a valid lease", value=len(load.owners)),
        GaugeMetricFamily("saga_workers", "Workers that report", value=len(load.reports)),
    ]


def _of_breakers(tools: Mapping[str, Mapping[str, Any]]) -> Metric:
    found = GaugeMetricFamily("saga_breaker_state", "A tool's breaker: 0 closed, 1 half-open, 2 open", labels=["tool"])
    for name, row in sorted(tools.items()):
        if row.get("breaker"):
            found.add_metric([name], _BREAKER[row["breaker"]["state"]])
    return found
