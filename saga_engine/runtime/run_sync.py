"""The one bridge from synchronous code."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
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
    # Not a block: whoever is interrupted here does not wait for the work.
    pool = ThreadPoolExecutor(1, thread_name_prefix="saga-run-sync")
    try:
        return pool.submit(asyncio.run, work).result()
    finally:
        pool.shutdown(wait=False)
