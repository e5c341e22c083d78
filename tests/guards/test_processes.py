"""Resources across real processes: never two at once, all served, and a dead holder holds nothing."""

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saga_engine.stores import open_store
from tests.support.servers import EmbeddedFolder, until


class Worker:
    """One process, spoken to by lines."""

    def __init__(self, url, log, lease_s, *host):
        command = [sys.executable, "-m", "tests.guards.worker", url, str(log), str(lease_s), *host]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ready(self):
        assert self.process.stdout.readline() == "ready\n"
        return self

    def ask(self, what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return self.process.stdout.readline().strip()

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


def start(folder, log, number, lease_s):
    workers = [Worker(folder.url, log, lease_s) for _ in range(number)]
    return [worker.ready() for worker in workers]


def tickets(folder, key):
    """Those in the queue for a key, in order."""
    name = hashlib.sha256(f"key:{key}".encode()).hexdigest()[:32]
    return [str(ticket, "utf-8") for ticket in folder.raw().zrange(f"saga:{{r:{name}}}:queue", 0, -1)]


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """Four processes on one embedded store, and the log that they share."""
    base = tmp_path_factory.mktemp("four")
    with EmbeddedFolder(base / "saga") as folder:
        workers = start(folder, base / "log", 4, 15.0)
        yield workers, base / "log"
        for worker in workers:
            worker.end()


def check(lines):
    """Every line that enters is followed, among those of its key, by the same one that leaves."""
    inside = {}
    for line in lines:
        sign, key, who = line.split()
        if sign == "+":
            assert key not in inside, f"{who} came into {key} while {inside[key]} was inside"
            inside[key] = who
        else:
            assert inside.pop(key) == who
    assert not inside


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shares=st.lists(st.lists(st.sampled_from("ab"), max_size=8), min_size=4, max_size=4))
def test_never_two_at_once_and_all_are_served(four, shares):
    """Law: for any mix of keys in four processes, one call at a time for each key, and every call is made once."""
    workers, log = four
    before = len(log.read_text().splitlines()) if log.exists() else 0
    for worker, keys in zip(workers, shares, strict=True):
        worker.ask(keys)
    assert [worker.answer() for worker in workers] == ["served"] * 4
    lines = log.read_text().splitlines()[before:] if log.exists() else []
    check(lines)
    wanted = Counter(key for keys in shares for key in keys)
    assert Counter(line.split()[1] for line in lines if line.startswith("+")) == wanted
    assert len({line.split()[2] for line in lines}) == wanted.total()


def test_a_holder_that_is_killed_frees_its_resource_after_its_lease(tmp_path):
    """Law: where nothing proves the death (another machine), SIGKILL leaves the ticket to its lease."""
    log = tmp_path / "log"
    with EmbeddedFolder(tmp_path / "saga") as folder:
        holder, waiter = Worker(folder.url, log, 3.0, "another").ready(), Worker(folder.url, log, 3.0).ready()
        holder.ask({"hold": ["a"]})
        until(lambda: log.exists() and log.read_text().startswith("+ a"), "the holder to be inside")
        waiter.ask(["a", "b"])
        until(lambda: "- b" in log.read_text(), "the other key to be served")
        assert sum(line.startswith("+ a") for line in log.read_text().splitlines()) == 1
        holder.kill()
        assert waiter.answer() == "served"
        assert sum(line.startswith("+ a") for line in log.read_text().splitlines()) == 2
        waiter.end()


def test_a_holder_that_is_provably_dead_keeps_nobody_waiting(tmp_path):
    """Law: a killed process loses all its places at once; a stopped one, which lives, keeps what it holds.

    The leases last an hour, so that none ends here.
    """
    log = tmp_path / "log"
    with EmbeddedFolder(tmp_path / "saga") as folder:
        first, second, stopped, waiter = start(folder, log, 4, 3600.0)
        stopped.ask({"hold": ["b"]})
        first.ask({"hold": ["a"], "wait": ["a", "a"]})  # two of its calls wait behind its own
        second.ask({"hold": ["c"]})
        until(lambda: log.exists() and log.read_text().count("+") == 3, "the calls to be inside")
        until(lambda: len(tickets(folder, "a")) == 3, "two to wait")
        stopped.process.send_signal(signal.SIGSTOP)
        waiter.ask(["a", "b", "c"])
        until(lambda: all(len(tickets(folder, key)) > 1 for key in "abc"), "the waiter to wait for all")
        first.kill()
        until(lambda: "- a" in log.read_text(), "the resource of the first to be free")
        second.kill()
        until(lambda: "- c" in log.read_text(), "the resource of the second to be free")
        assert log.read_text().count("+ b") == 1  # its ticket has been silent for longer than the others
        stopped.kill()
        assert waiter.answer() == "served"
        waiter.end()


class KeptAlive:
    """A process on another clone of this machine, which keeps its tickets alive."""

    def __init__(self, folder, key):
        self._folder, self._key, self._over = folder, key, threading.Event()
        self._names = tickets(folder, key)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._keep()))

    async def _keep(self):
        store = open_store(self._folder.url, durability="relaxed")
        await store.open()
        while not self._over.wait(0.1):
            assert await store.guard_store().keep(f"key:{self._key}", self._names, 3_600_000) == self._names[0]
        await store.close()

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


def test_a_process_that_lives_on_a_clone_of_this_machine_keeps_its_resource(tmp_path):
    """Law: the resource of a process that is dead here is not freed while its ticket is kept alive from elsewhere."""
    log = tmp_path / "log"
    with EmbeddedFolder(tmp_path / "saga") as folder:
        cloned, killed, waiter = start(folder, log, 3, 3600.0)
        cloned.ask({"hold": ["a"]})
        killed.ask({"hold": ["b"]})
        until(lambda: log.exists() and log.read_text().count("+") == 2, "both calls to be inside")
        with KeptAlive(folder, "a"):
            cloned.kill()
            waiter.ask(["a", "b"])
            until(lambda: len(tickets(folder, "b")) == 2, "the waiter to wait")
            killed.kill()
            until(lambda: "- b" in log.read_text(), "the resource of the one that is dead everywhere to be free")
            assert log.read_text().count("+ a") == 1
        assert waiter.answer() == "served"
        assert log.read_text().count("+ a") == 2
        waiter.end()


BLOCKER = """
import asyncio, os, sys, time
from saga_engine import Coordinator, tool

@tool(resource="desk", timeout_s=30)
async def sit(who: str) -> dict:
    log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, f"+ {who}\\n".encode())
    if who == "blocker":
        while "? waiter" not in open(sys.argv[2]).read():
            time.sleep(0.01)
        ends = time.monotonic() + 2 * float(sys.argv[3])  # two leases, and the loop hears nothing
        time.sleep(ends - time.monotonic())
    os.write(log, f"- {who}\\n".encode())
    return {}

async def main():
    plan = {"steps": [{"step_id": 1, "tool": "sit", "kind": "pivot", "params": {"who": sys.argv[4]}}]}
    async with Coordinator.open(sys.argv[1], [sit], lease_s=float(sys.argv[3])) as coordinator:
        if sys.argv[4] == "waiter":
            with open(sys.argv[2], "a") as log:
                log.write("? waiter\\n")
        print((await coordinator.run(plan)).status, flush=True)

asyncio.run(main())
"""


def test_a_holder_that_blocks_its_loop_past_its_lease_keeps_its_resource(tmp_path):
    """Law: two processes, one resource; the holder blocks its event loop for two leases, and nobody else enters."""
    log = tmp_path / "log"
    with EmbeddedFolder(tmp_path / "saga") as folder:
        command = [sys.executable, "-c", BLOCKER, folder.url, str(log), "3.0"]
        holder = subprocess.Popen([*command, "blocker"], stdout=subprocess.PIPE, text=True)
        until(lambda: log.exists() and log.read_text().startswith("+ blocker"), "the holder to be inside")
        waiter = subprocess.Popen([*command, "waiter"], stdout=subprocess.PIPE, text=True)
        assert [process.communicate(timeout=60)[0].strip() for process in (holder, waiter)] == ["COMPLETED"] * 2
    assert log.read_text().split() == ["+", "blocker", "?", "waiter", "-", "blocker", "+", "waiter", "-", "waiter"]
