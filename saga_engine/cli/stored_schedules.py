"""Reads the schedules of a store for the commands that need no coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from saga_engine.api.schedules import Schedules
    from saga_engine.settings import Settings

_T = TypeVar("_T")


def read_schedules(settings: Settings, reading: Callable[[Schedules], Awaitable[_T]], nothing: _T) -> _T:
    """What is read from the schedules; ``nothing`` if there is no store yet."""
    import asyncio

    from saga_engine.api.schedules import Schedules
    from saga_engine.cli.read_only import no_store, reading_from
    from saga_engine.tools.registry import ToolRegistry

    async def read() -> _T:
        async with reading_from(settings) as store:
            return await reading(Schedules(store, ToolRegistry(()), begin_none))

    return nothing if no_store(settings) is not None else asyncio.run(read())


async def begin_none(name: str, body: Any, saga_id: str) -> None:
    """What a command without a coordinator submits with."""
    raise AssertionError(f"{name}: only a coordinator begins {saga_id} of {body.template}")


def no_schedule(name: str) -> Exception:
    """The error for a name that no schedule has."""
    from saga_engine.cli.output import shown
    from saga_engine.errors import ScheduleNotFound
    from saga_engine.language.errors import said

    return ScheduleNotFound(said("schedule_not_found", name=shown(name)), hint=said("schedule_not_found.hint"))
