"""The one bridge from synchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_sync(work: Coroutine[Any, Any, _T]) -> _T:
    """Run ``work`` to its end from synchronous code and return its result.

    If an event loop already runs in this thread (a notebook, an async agent), the work runs in the loop of a new
    thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    box: list[_T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            box.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=body, name="saga-run-sync")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return box[0]
