"""Owners: names that distinguish one process of one machine from all others, and proofs that one is dead."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import NamedTuple

from saga_engine.ports import Head


class Owner(NamedTuple):
    """A process, as its lease names it.

    ``host``, ``boot``, ``pidns`` and ``start`` identify the process: a pid is unique only within one boot and one pid
    namespace, and is reused after its process has ended. ``nonce`` distinguishes the leases of one process.
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
        host=_host(),
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


def words_of(text: str) -> str:
    """An owner as people read it: ``pid 4711 on vm``; a name of another form unchanged."""
    found = parse(text)
    return text if found is None else f"pid {found.pid} on {found.host}"


def provably_dead(text: str) -> bool:
    """Whether the named process certainly runs no more. In doubt the answer is no: then its lease counts.

    Only the kernel's answer counts: no process has that pid (``ESRCH``), or it is a zombie without a thread. A process
    that cannot be seen is not dead: ``/proc`` may hide the processes of others (``hidepid``, systemd's
    ``ProtectProc``). A start time that differs is no proof either, because each time namespace has its own; a reused
    pid is left to the lease. The process must be of this host, this boot and this pid namespace. Machines that were
    cloned while they ran share all three: a worker that relies on this answer also checks whether the lease is still
    renewed.
    """
    owner = parse(text)
    if owner is None or not owner.boot or not owner.pidns or owner.pid < 1:
        return False
    if (owner.host, owner.boot, owner.pidns) != (_host(), _boot_id(), _pid_namespace()):
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it runs, and belongs to another user
    return _is_zombie(owner.pid, owner.start)


def is_owned(head: Head) -> bool:
    """Whether a live process owns the saga, as far as its lease tells, and this machine."""
    return head.owner_ttl_ms > 0 and not provably_dead(head.owner)


def _host() -> str:
    return socket.gethostname().replace("/", "-") or "host"


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
    """When the process started, in clock ticks since boot; None if that cannot be seen."""
    return _stat(pid)[1]


def _is_zombie(pid: int, start: str) -> bool:
    """Whether this very process has ended with all its threads, and only waits for its parent."""
    try:
        threads = sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False
    return threads <= 1 and _stat(pid) == ("Z", start)


def _stat(pid: int) -> tuple[str, str | None]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", None
    # The second field is the command in parentheses and may contain anything: count from its end.
    fields = text.rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else ("", None)
