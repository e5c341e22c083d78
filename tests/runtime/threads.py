"""A program that runs in a thread instead of a process."""

import asyncio
import gc
import threading


def in_a_process_of_its_own(main) -> BaseException | None:
    """Run ``main`` as a program would, in a thread instead of a process; returns what ended it."""
    found: list[BaseException | None] = []

    def body() -> None:
        try:
            asyncio.run(main())
            found.append(None)
        except BaseException as error:
            found.append(error.with_traceback(None))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    # What it left says so now, and not in the middle of another test: a traceback that is logged there parses code.
    gc.collect()
    return found[0]
