"""The console: pages that the server draws, for people who look at sagas and answer their questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from saga_engine.server.desk import Desk


def console(desk: Desk) -> list[BaseRoute]:
    """The routes of the console: ``/``, ``/ui/…`` and ``/assets/…``."""
    from saga_engine.server.console.forms import Forms

    return Forms(desk).routes()
