"""A process that has imported everything and forks a child for each case, before any thread or event loop exists.

Starting Python and importing the engine takes longer than a whole case; a fork takes some milliseconds. Requests and
answers are lines of JSON on stdin and stdout: ``{"id", "case"}`` in; ``{"id", "pid"}`` and, when the child has ended,
``{"id", "status", "told"}`` out. It ends, and kills its children, when stdin does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import sys
import tempfile
import traceback
from typing import IO, Any, NamedTuple

from tests.kill import (
    builtin_child,
    child,
    erase_child,
    fork_child,
    growing_child,
    image_child,
    late_child,
    purge_child,
    session_child,
    several_child,
    told_child,
    worker_child,
)

#: Who plays a case: the engine's core cases, those about guards and growing plans, built-in steps, sessions, forks, or workers.
_PLAYERS = {
    "core": child.main,
    "growing": growing_child.main,
    "built-in": builtin_child.main,
    "sessions": session_child.main,
    "fork": fork_child.main,
    "workers": worker_child.main,
    "images": image_child.main,
    "late": late_child.main,
    "several": several_child.main,
    "purge": purge_child.main,
    "erase": erase_child.main,
    "told": told_child.main,
}


#: Those whose imports take long, and that few tests need.
_HEAVY = {"gateway": "tests.kill.gateway_child"}


class _Child(NamedTuple):
    id: int
    pid: int
    paper: IO[str]


class Zygote:
    """The loop. It has no threads: a fork copies only one."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # whatever a child prints must not look like an answer
        self._selector = selectors.DefaultSelector()
        self._selector.register(0, selectors.EVENT_READ)
        self._children: dict[int, _Child] = {}
        self._rest = b""

    def serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd != 0:
                    self._ended(key.fd)
                elif not self._requests():
                    return

    def kill_all(self) -> None:
        for one in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)

    def _requests(self) -> bool:
        data = os.read(0, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            self._fork(request["id"], request["case"])
        return bool(data)

    def _fork(self, number: int, case: dict[str, Any]) -> None:
        if case.get("player") in _HEAVY and case["player"] not in _PLAYERS:
            _PLAYERS[case["player"]] = importlib.import_module(_HEAVY[case["player"]]).main
        paper = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- read when the child has ended
        pid = os.fork()
        if pid == 0:
            _be_child(case, paper)
        self._say({"id": number, "pid": pid})
        handle = os.pidfd_open(pid)
        self._children[handle] = _Child(number, pid, paper)
        self._selector.register(handle, selectors.EVENT_READ)

    def _ended(self, handle: int) -> None:
        one = self._children.pop(handle)
        self._selector.unregister(handle)
        os.close(handle)
        _, status = os.waitpid(one.pid, 0)
        with one.paper as paper:
            paper.seek(0)
            text = paper.read()
        told = json.loads(text) if text else None
        self._say({"id": one.id, "status": os.waitstatus_to_exitcode(status), "told": told})

    def _say(self, answer: dict[str, Any]) -> None:
        self._out.write(json.dumps(answer) + "\n")
        self._out.flush()


def _be_child(case: dict[str, Any], paper: IO[str]) -> None:
    """Never returns: nothing of the zygote's may run in a child."""
    code = 70
    gc.disable()  # it ends before there is garbage worth looking for
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        paper.write(json.dumps(_PLAYERS[case.get("player", "core")](case)))
        paper.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # the objects so far are shared with the children, and stay so
    zygote = Zygote()
    try:
        zygote.serve()
    finally:
        zygote.kill_all()
