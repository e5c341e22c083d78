"""The options of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol

from saga_engine.errors import SettingInvalid

if TYPE_CHECKING:
    from saga_engine.core.records import CallAdded
    from saga_engine.core.state import State

#: ``append``: an agent that does not repeat what it did; all its calls come after the recorded ones.
Diverging = Literal["strict", "continue", "rollback", "append"]
DIVERGING: Final = ("strict", "continue", "rollback", "append")
#: What becomes of a session whose agent fails.
OnFailure = Literal["undo", "keep", "ask"]
ON_FAILURE: Final = ("undo", "keep", "ask")

_MAX_IDLE_S: Final = 10 * 366 * 24 * 3600.0


class Watching(Protocol):
    """What stands before the calls of a session."""

    def call(self, record: CallAdded, *, irreversible: bool, state: State | None, made: Sequence[str]) -> None:
        """A call is about to be made, after those with the keys ``made``; ``irreversible``: the program said so.

        Raises what refuses it.
        """

    def failing(self, state: State) -> OnFailure:
        """What an error of the agent does, if nobody has said it."""
        ...


def check_options(diverging: str, on_failure: str | None, idle_s: float | None) -> None:
    """Raises ``SettingInvalid`` for an option without a meaning."""
    if diverging not in DIVERGING:
        raise SettingInvalid(f"on_divergence={diverging!r} has no meaning", hint=", ".join(DIVERGING))
    if on_failure is not None and on_failure not in ON_FAILURE:
        raise SettingInvalid(f"on_failure={on_failure!r} has no meaning", hint=", ".join(ON_FAILURE))
    if idle_s is not None and (on_failure in (None, "undo") or not 0.001 <= idle_s < _MAX_IDLE_S):
        raise SettingInvalid(
            f"idle_s={idle_s!r} has no meaning here",
            hint="seconds, with on_failure='keep' or 'ask': for how long a session of a failed agent stays open",
        )
