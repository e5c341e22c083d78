"""What Windows lacks is needed by nothing that is imported there."""

import subprocess
import sys

#: Takes away what Windows does not have, imports the package room by room, and runs a saga.
PROGRAM = """
import os, signal, sys, time
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "uvloop"):
    sys.modules[name] = None
for module, names in (
    (time, ["clock_gettime", "clock_gettime_ns", "CLOCK_MONOTONIC", "CLOCK_BOOTTIME", "CLOCK_REALTIME"]),
    (os, ["geteuid", "getuid", "getsid", "setsid", "fork", "register_at_fork"]),
    (signal, ["SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1"]),
):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
import importlib, pkgutil, asyncio
import saga_engine
LEFT_OUT = ("saga_engine.__main__", "saga_engine.stores.embedded", "saga_engine.stores.snapshot", "saga_engine.temporal", "saga_engine.api.temporal",
            "saga_engine.testing", "saga_engine.adapters",
            "saga_engine.sources.mcp.", "saga_engine.gateway.", "saga_engine.server.")  # its SDK asks for the platform, which is not Windows here, before it imports fcntl
for found in pkgutil.walk_packages(saga_engine.__path__, "saga_engine.", onerror=lambda name: None):
    if not found.name.startswith(LEFT_OUT):
        importlib.import_module(found.name)
from saga_engine import Coordinator, tool
from saga_engine.errors import StoreUrlInvalid
from saga_engine.stores import open_store

@tool(effect="read")
async def look() -> dict:
    return {"seen": True}

async def main():
    async with Coordinator.open("memory://", [look]) as coordinator:
        print((await coordinator.run({"steps": [{"step_id": 1, "tool": "look"}]})).status)
    open_store("redis://localhost:6379")
    try:
        open_store("embedded://.saga")
    except StoreUrlInvalid as error:
        print(error.hint)

asyncio.run(main())
"""


def test_the_package_needs_nothing_that_windows_lacks() -> None:
    """Every room can be imported and a saga runs; the embedded store says that it needs a server instead."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "COMPLETED"
    assert "redis://" in ran.stdout
