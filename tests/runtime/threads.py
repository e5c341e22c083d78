"""A program that runs in a thread instead of a process."""

import asyncio
import threading


def in_a_process_of_its_own(main) -> BaseException | None:
    """Run ``main`` as a program would, in a thread instead of a process; returns what ended it."""
    found: list[BaseException | None] = []

    def body() -> None:
        try:
            asyncio.run(main())
            found.append(None)
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return found[0]
