"""Resources across real processes: never two at once, all served, and a dead holder holds nothing."""

import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers import EmbeddedFolder, until


class Worker:
    """One process, spoken to by lines."""

    def __init__(self, url, log, lease_s):
        command = [sys.executable, "-m", "tests.guards.worker", url, str(log), str(lease_s)]
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
    """Law: SIGKILL leaves the ticket to its lease, and then the next one is served."""
    log = tmp_path / "log"
    with EmbeddedFolder(tmp_path / "saga") as folder:
        holder, waiter = start(folder, log, 2, 3.0)
        holder.ask({"hold": "a"})
        until(lambda: log.exists() and log.read_text().startswith("+ a"), "the holder to be inside")
        waiter.ask(["a", "b"])
        until(lambda: "- b" in log.read_text(), "the other key to be served")
        assert sum(line.startswith("+ a") for line in log.read_text().splitlines()) == 1
        holder.kill()
        assert waiter.answer() == "served"
        assert sum(line.startswith("+ a") for line in log.read_text().splitlines()) == 2
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
