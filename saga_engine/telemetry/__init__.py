"""What an engine tells its operators' monitoring: metrics and spans, from durable records. By default nothing is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saga_engine.telemetry.metrics import Metrics as Metrics
    from saga_engine.telemetry.tracing import Spans as Spans
    from saga_engine.tools.trace_context import TraceFields as TraceFields

__all__ = ["Metrics", "Spans", "TraceFields"]


def __getattr__(name: str) -> object:
    """``prometheus_client`` is imported when ``Metrics`` is first used, OpenTelemetry with the first ``Spans``."""
    if name == "Metrics":
        from saga_engine.telemetry.metrics import Metrics

        return Metrics
    if name == "Spans":
        from saga_engine.telemetry.tracing import Spans

        return Spans
    if name == "TraceFields":
        from saga_engine.tools.trace_context import TraceFields

        return TraceFields
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
