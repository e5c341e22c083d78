"""The options of a session."""

from __future__ import annotations

from typing import Final, Literal

from saga_engine.errors import SettingInvalid

#: ``append``: an agent that does not repeat what it did; all its calls come after the recorded ones.
Diverging = Literal["strict", "continue", "rollback", "append"]
DIVERGING: Final = ("strict", "continue", "rollback", "append")
#: What becomes of a session whose agent fails.
OnFailure = Literal["undo", "keep", "ask"]
ON_FAILURE: Final = ("undo", "keep", "ask")

_MAX_IDLE_S: Final = 10 * 366 * 24 * 3600.0


def check_options(diverging: str, on_failure: str, idle_s: float | None) -> None:
    """Raises ``SettingInvalid`` for an option without a meaning."""
    if diverging not in DIVERGING:
        raise SettingInvalid(f"on_divergence={diverging!r} has no meaning", hint=", ".join(DIVERGING))
    if on_failure not in ON_FAILURE:
        raise SettingInvalid(f"on_failure={on_failure!r} has no meaning", hint=", ".join(ON_FAILURE))
    if idle_s is not None and (on_failure == "undo" or not 0.001 <= idle_s < _MAX_IDLE_S):
        raise SettingInvalid(
            f"idle_s={idle_s!r} has no meaning here",
            hint="seconds, with on_failure='keep' or 'ask': for how long a session of a failed agent stays open",
        )
