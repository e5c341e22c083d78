"""The table ``[retention]`` of ``saga.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saga_engine.execution.retention import Retention
    from saga_engine.settings import Settings


def retention_in(settings: Settings) -> Retention | None:
    """The rules for ended sagas; None: there is no table, and they expire by themselves. Raises ``SettingInvalid``."""
    if not settings.holding("retention"):
        return None
    base, name = settings.origin("retention")
    return rules_of(settings, settings.retention, base, f"[retention] in {name}")


def rules_of(settings: Settings, table: Mapping[str, Any], base: Path, source: str) -> Retention:
    """Rules, with what ``[trace]`` says of the files that are written. Raises ``SettingInvalid``."""
    from saga_engine.cli.trace_key import trace_settings
    from saga_engine.execution.retention import retention_of

    trace = trace_settings(settings)
    return retention_of(table, settings.keep_finished_s, base=base, source=source, redact=trace.redact, key=trace.key)
