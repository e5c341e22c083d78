"""The operator's limits that the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saga_engine.plan.operator_limits import Limits
    from saga_engine.settings import Settings


def limits_of(settings: Settings) -> Limits:
    """The limits of the files: the stricter of the operator's and the project's. Raises ``SettingInvalid``."""
    from saga_engine.api.governing import governing

    return governing(settings).limits()
