"""The servers that peers need, each at its strongest durability, on unix sockets, for as long as a ``with`` lasts."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from installing import Missing, postgres_programs

_START_S = 30.0
_POSTGRES = {"listen_addresses": "", "max_connections": "300", "fsync": "on", "synchronous_commit": "on"}


@contextmanager
def postgres(data: Path) -> Iterator[dict[str, Any]]:
    """A new Postgres cluster; nothing is loosened. Yields its ``url`` (with ``{}`` for the database), pid, version."""
    programs = postgres_programs()
    # It refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True, mode=0o700)
    sockets = Path(tempfile.mkdtemp(prefix="saga-bench-"))
    log = data.with_suffix(".log")
    log.unlink(missing_ok=True)
    if user:
        owner = pwd.getpwnam(user)
        for folder in (data, sockets):
            os.chown(folder, owner.pw_uid, owner.pw_gid)
    with log.open("wb") as output:
        made = subprocess.run(
            [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
            user=user,
            cwd="/",
        )
        if made.returncode != 0:
            raise Missing(f"initdb failed: {_last_line(log)}")
        options = ("listen_addresses=", "max_connections=300", "fsync=on", "synchronous_commit=on")
        command = [
            programs / "postgres",
            "-D",
            data,
            "-k",
            sockets,
            *(part for item in options for part in ("-c", item)),
        ]
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, user=user, cwd="/", start_new_session=True
        )
    try:
        _wait_for(sockets / ".s.PGSQL.5432", server, log)
        shown = subprocess.run([programs / "postgres", "-V"], capture_output=True, text=True, check=True)
        yield {
            "url": f"postgresql://postgres@/{{}}?host={sockets}",
            "pid": server.pid,
            "version": shown.stdout.split()[2],
        }
    finally:
        _stop(server)
        shutil.rmtree(sockets, ignore_errors=True)
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def valkey(data: Path) -> Iterator[dict[str, Any]]:
    """An empty Valkey server with the settings of the embedded store. Yields its ``url``, pid and version."""
    from saga_engine.stores.embedded import find_binary

    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    sockets = Path(tempfile.mkdtemp(prefix="saga-bench-"))
    options = {
        "port": "0",
        "unixsocket": str(sockets / "s"),
        "dir": str(data),
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "save": "",
        "maxmemory": "0",
        "hash-max-listpack-value": "1024",
        "auto-aof-rewrite-min-size": "256mb",
    }
    binary = find_binary()
    command = [str(binary), *(part for name, value in options.items() for part in (f"--{name}", value))]
    log = data / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=as_embedded()
        )
    try:
        _wait_for(sockets / "s", server, log)
        shown = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
        yield {"url": f"unix://{sockets / 's'}", "pid": server.pid, "version": _word_after(shown.stdout, "v=")}
    finally:
        _stop(server)
        shutil.rmtree(sockets, ignore_errors=True)
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def cluster(data: Path, shards: int) -> Iterator[dict[str, Any]]:
    """A cluster of so many Valkey primaries without replicas. Yields its ``url``, and pids and ports of the nodes."""
    from redis import Redis

    from saga_engine.stores.embedded import find_binary

    binary, nodes, ports = find_binary(), [], free_ports(shards)
    bounds = [16384 * at // shards for at in range(shards + 1)]
    try:
        for port in ports:
            place = data / str(port)
            place.mkdir(parents=True)
            options = {
                "port": str(port),
                "bind": "127.0.0.1",
                "unixsocket": str(place / "s"),
                "dir": str(place),
                "cluster-enabled": "yes",
                "appendonly": "yes",
                "appendfsync": "always",
                "no-appendfsync-on-rewrite": "no",
                "save": "",
                "hash-max-listpack-value": "1024",
                "auto-aof-rewrite-min-size": "256mb",
            }
            command = [str(binary), *(part for name, value in options.items() for part in (f"--{name}", value))]
            log = place / "server.log"
            with log.open("wb") as output:
                node = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=as_embedded()
                )
            nodes.append(node)
            _wait_for(place / "s", nodes[-1], log)
        clients = [Redis(port=port) for port in ports]
        for at, client in enumerate(clients):
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[at], bounds[at + 1] - 1)
            if at:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0])
        until = time.monotonic() + _START_S
        while not all(client.cluster("INFO")["cluster_state"] == "ok" for client in clients):
            if time.monotonic() > until:
                raise Missing(f"the cluster does not form within {_START_S:.0f} s")
            time.sleep(0.05)
        for client in clients:
            client.close()
        url = f"redis+cluster://{','.join(f'127.0.0.1:{port}' for port in ports)}"
        yield {"url": url, "pids": [node.pid for node in nodes], "ports": ports}
    finally:
        for node in nodes:
            _stop(node)
        shutil.rmtree(data, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ports that are free together with those of the nodes' bus, 10,000 higher."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10_001, 22_700)
        with socket.socket() as one, socket.socket() as bus:
            try:
                one.bind(("127.0.0.1", port))
                bus.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def as_embedded() -> dict[str, str]:
    """The environment of a server: with the allocator that the engine gives its own."""
    from saga_engine.stores.server_binary import allocator, preloaded

    return {**os.environ, **preloaded(allocator())}


def _wait_for(path: Path, server: subprocess.Popen[bytes], log: Path) -> None:
    """Until somebody listens there. Raises ``Missing``."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise Missing(f"the server does not start: {_last_line(log)}")
        with socket.socket(socket.AF_UNIX) as client:
            if path.exists() and client.connect_ex(str(path)) == 0:
                return
        time.sleep(0.05)
    raise Missing(f"the server does not start within {_START_S:.0f} s: {_last_line(log)}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    """SIGINT is a fast stop for Postgres and a stop for Valkey."""
    server.send_signal(2)
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else "its log is empty"


def _word_after(text: str, mark: str) -> str:
    return text.partition(mark)[2].split()[0]
