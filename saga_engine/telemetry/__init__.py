"""What an engine tells its operators' monitoring: metrics, from durable records. By default nothing is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saga_engine.telemetry.metrics import Metrics as Metrics

__all__ = ["Metrics"]


def __getattr__(name: str) -> object:
    """``prometheus_client`` is imported when ``Metrics`` is first used."""
    if name == "Metrics":
        from saga_engine.telemetry.metrics import Metrics

        return Metrics
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
