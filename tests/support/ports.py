"""Ports of the loopback for servers of others, which take a number and cannot be handed a socket.

Such a port is free when it is chosen, and has to be free still when its server starts. So each worker of a test run has
numbers of its own, all below what systems give to outgoing connections, and hands out the same number again as late as
it can.
"""

from __future__ import annotations

import functools
import os
import random
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

#: The first number, and how many there are for each of so many workers. A cluster's bus is 10,000 higher.
FIRST: Final = 10_001
WORKERS: Final = 16
EACH: Final = 790
BUS: Final = 10_000


def free_ports(count: int, *, bus: bool = False) -> list[int]:
    """Ports that were free a moment ago, all different; ``bus``: together with those of the bus of a cluster's node."""
    found: list[int] = []
    numbers = _numbers()
    with ExitStack() as stack:
        for _ in range(10 * EACH):
            port = next(numbers)
            try:
                for each in (port, port + BUS) if bus else (port,):
                    stack.enter_context(_listening(each))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports among those of this worker")


@functools.cache
def _numbers() -> Iterator[int]:
    """The numbers of this process without end. Runs side by side begin at different ones."""
    worker = re.search(r"\d+", os.environ.get("PYTEST_XDIST_WORKER", ""))
    first = FIRST + EACH * (int(worker[0]) if worker else WORKERS - 1) % (EACH * WORKERS)
    at = random.randrange(EACH)

    def endless() -> Iterator[int]:
        step = at
        while True:
            yield first + step % EACH
            step += 1

    return endless()


def _listening(port: int) -> socket.socket:
    probe = socket.socket()
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        probe.close()
        raise
    return probe
