"""Engines that are broken on purpose, to show that the kill matrix of built-in steps can fail. Applied after the fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saga_engine.core import settling
from saga_engine.stores.events import RedisEvents


def repeat_whatever_is_in_doubt() -> None:
    """A call whose process died is made again, whether its tool honours keys or not."""
    settling._repeatable = lambda *_args: True


def keep_from_the_store_that_a_wait_is_over() -> None:
    """Whoever sent the event never learns that it was taken."""

    async def over(*_args: Any, **_options: Any) -> None:
        return None

    RedisEvents.over = over  # type: ignore[method-assign, assignment]


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__.replace("_", " "): mutant
    for mutant in (repeat_whatever_is_in_doubt, keep_from_the_store_that_a_wait_is_over)
}
