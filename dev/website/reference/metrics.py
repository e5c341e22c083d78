"""Metrics and loggers, as the engine declares them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from dev.website.reference.markdown import cell, code, head, table, wrapped
from saga_engine.loggers import LOGGERS
from saga_engine.ports import Load
from saga_engine.telemetry import Metrics
from saga_engine.telemetry.gauges import gauges_of

_ABOUT = """What a process counts, what a scrape of the server reads from the store, and what each logger of the engine
tells. [Monitoring](../monitoring.md) and [debugging](../debugging.md#the-log) are the guides."""
_COUNTED = """Counters and times of one process, from the records that it made durable: the numbers of a fleet add up,
and a crash counts nothing twice. Times are in seconds."""


def page() -> str:
    """The page."""
    looked = gauges_of(Load(0, {}, 0, 0, None, {}, {}), {})
    loggers = [(code(name), cell(tells)) for name, tells in LOGGERS.items()]
    parts = [
        head("Metrics and loggers", _ABOUT),
        "## Counters",
        wrapped(_COUNTED),
        _table(Metrics().registry),
        "## Gauges",
        "Of the store, read at each scrape of the server.",
        _table(looked),
        "## Loggers",
        table(("logger", "content"), loggers),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _table(registry: CollectorRegistry) -> str:
    rows = [
        (code(_name(each)), ", ".join(map(code, labels)), cell(each.documentation))
        for each, labels in _declared(registry)
    ]
    return table(("metric", "labels", "meaning"), rows)


def _declared(registry: CollectorRegistry) -> Iterable[tuple[Metric, Sequence[str]]]:
    """Each metric with the names of its labels, which it has before it has a value."""
    for collector in registry._collector_to_names:  # noqa: SLF001
        for metric in collector.collect():
            yield metric, getattr(collector, "_labelnames", getattr(metric, "_labelnames", ()))


def _name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name
