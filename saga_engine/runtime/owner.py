"""Who owns a saga: a name that tells one process of one machine from all others, and whether it is provably dead."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import NamedTuple


class Owner(NamedTuple):
    """A process, as its lease names it.

    ``boot``, ``pidns`` and ``start`` pin down the process: a pid means something only within one boot and one pid
    namespace, and is used again after its process has ended. ``nonce`` tells the leases of one process apart.
    """

    host: str
    boot: str
    pidns: str
    pid: int
    start: str
    nonce: str

    def __str__(self) -> str:
        return "/".join((self.host, self.boot, self.pidns, str(self.pid), self.start, self.nonce))


def this_process() -> Owner:
    """A new owner name for this process; each call gives another nonce."""
    pid = os.getpid()
    return Owner(
        host=socket.gethostname().replace("/", "-") or "host",
        boot=_boot_id(),
        pidns=_pid_namespace(),
        pid=pid,
        start=_start_time(pid) or "0",
        nonce=secrets.token_hex(6),
    )


def parse(text: str) -> Owner | None:
    """The owner that ``str(owner)`` named; None if the text is something else."""
    parts = text.split("/")
    if len(parts) != 6 or not parts[3].isdigit():
        return None
    host, boot, pidns, pid, start, nonce = parts
    return Owner(host, boot, pidns, int(pid), start, nonce)


def provably_dead(text: str) -> bool:
    """Whether the named process certainly runs no more. When in doubt, the answer is no: then its lease decides.

    Provable only for a process of this boot and this pid namespace (and only where /proc tells start times).
    """
    owner = parse(text)
    if owner is None or not owner.boot or not owner.pidns or owner.start == "0":
        return False
    if owner.boot != _boot_id() or owner.pidns != _pid_namespace():
        return False
    return _start_time(owner.pid) != owner.start


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""


def _start_time(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; None if it does not run (a zombie does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is the command in parentheses and may hold anything: count from behind it.
    fields = text.rpartition(")")[2].split()
    if not fields or fields[0] in ("Z", "X"):
        return None
    return fields[19]
