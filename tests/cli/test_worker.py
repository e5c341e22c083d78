"""``saga worker``, ``saga top`` and ``saga submit --detach`` as processes."""

from __future__ import annotations

import itertools
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from zlib import crc32

import pytest

from tests.cli.conftest import TOOLS, Cli
from tests.support.servers import until

WITH = ("--tools", str(TOOLS))
_LIMIT_S = 120


class Workers:
    """Starts workers in the folder of a `Cli`, and ends those that a test leaves."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self._started: list = []
        #: What the last one said until it took sagas.
        self.said: list[str] = []

    def start(self, *args: str):
        process = self._cli.start("worker", *WITH, *args)
        self._started.append(process)
        self.said = []
        for line in process.stderr:
            self.said.append(line)
            if "worker: up to" in line:
                return process
        raise AssertionError("the worker did not begin")

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=_LIMIT_S)


@pytest.fixture
def workers(cli: Cli) -> Iterator[Workers]:
    workers = Workers(cli)
    yield workers
    workers.end()


def status(cli: Cli, saga_id: str) -> str:
    return cli.look("show", saga_id, "--json").json["status"]


def until_ended(cli: Cli, saga_id: str) -> None:
    until(lambda: status(cli, saga_id) in ("COMPLETED", "COMPENSATED"), f"the end of {saga_id}")


def test_submitted_here_driven_there(cli, book, workers):
    """A detached submission calls nothing and exits 0; a worker drives it; SIGTERM ends the worker with 0 and a count."""
    cli.plan("trip.json", book("a"), book("b"), task_id="trip")
    done = cli("submit", "trip.json", "--detach", *WITH, "--json")
    assert (done.code, done.json["status"], cli.world) == (0, "PENDING", [])
    assert "saga worker" in done.err
    worker = workers.start("--json")
    until_ended(cli, "trip")
    os.kill(worker.pid, signal.SIGTERM)
    out, err = worker.communicate(timeout=_LIMIT_S)
    assert (worker.returncode, "Traceback" in err) == (0, False)
    assert '"COMPLETED":1' in out.replace(" ", "")
    assert cli.world == ["book:a", "book:b"]


def test_sigterm_hands_over_and_leaves_nothing_behind(cli, book, workers):
    """The call in flight is awaited and journalled; the saga waits for another worker, which does the rest, once."""
    os.mkfifo(cli.folder / "begun")
    os.mkfifo(cli.folder / "gate")
    cli.plan("trip.json", book("a"), {"tool": "block", "params": {"item": "b"}}, book("c"), task_id="trip")
    cli("submit", "trip.json", "--detach", *WITH)
    first = workers.start()
    assert (cli.folder / "begun").read_text() == "begun"
    os.kill(first.pid, signal.SIGTERM)
    assert any("stopping" in line for line in first.stderr)
    (cli.folder / "gate").write_text("open")
    _, err = first.communicate(timeout=_LIMIT_S)
    assert (first.returncode, "Traceback" in err, "lease could not be closed" in err) == (0, False, False)
    shown = cli.look("show", "trip", "--json").json
    assert [step["status"] for step in shown["steps"]] == ["SUCCEEDED", "SUCCEEDED", "PENDING"]
    top = cli("top", "--once", "--every", "0.2", "--json").json
    assert (top["queue"]["queued"], top["owners"]) == (1, {"alive": 0, "gone": 0, "names": []})

    workers.start("--concurrency", "2")
    until_ended(cli, "trip")
    assert cli.world == ["book:a", "begun:b", "ended:b", "book:c"]


def probed(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=_LIMIT_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_probes_know_of_draining(cli, workers):
    """A worker is ready while it takes sagas, and no more while it drains; it is alive until the last call has ended."""
    os.mkfifo(cli.folder / "begun")
    os.mkfifo(cli.folder / "gate")
    cli.plan("trip.json", {"tool": "block", "params": {"item": "b"}}, task_id="trip")
    cli("submit", "trip.json", "--detach", *WITH)
    worker = workers.start("--metrics", "127.0.0.1:0")
    (url,) = (line.split()[-1].removesuffix("/metrics") for line in workers.said if "metrics at" in line)
    assert (cli.folder / "begun").read_text() == "begun"
    assert (probed(f"{url}/readyz"), probed(f"{url}/healthz"), probed(f"{url}/metrics")) == (200, 200, 200)
    assert probed(f"{url}/else") == 404
    os.kill(worker.pid, signal.SIGTERM)
    assert any("stopping" in line for line in worker.stderr)
    until(lambda: probed(f"{url}/readyz") == 503, "it to be no more ready")
    assert probed(f"{url}/healthz") == 200
    (cli.folder / "gate").write_text("open")
    worker.communicate(timeout=_LIMIT_S)
    assert worker.returncode == 0


def test_a_second_signal_ends_it_at_once(cli, workers):
    """As a crash would: exit code 130, and whoever comes next settles the call in flight."""
    os.mkfifo(cli.folder / "begun")
    os.mkfifo(cli.folder / "gate")
    cli.plan("trip.json", {"tool": "block", "params": {"item": "b"}}, task_id="trip")
    cli("submit", "trip.json", "--detach", *WITH)
    worker = workers.start()
    assert (cli.folder / "begun").read_text() == "begun"
    os.kill(worker.pid, signal.SIGTERM)
    assert any("stopping" in line for line in worker.stderr)
    os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait(timeout=_LIMIT_S) == 130
    workers.start()
    until(lambda: status(cli, "trip") == "ESCALATED", "the question about the call")


def test_top_shows_queue_workers_and_owners(cli, book, workers):
    """What there is to do, who does it and how fast: as JSON with every number, and as a table for people."""
    os.mkfifo(cli.folder / "begun")
    os.mkfifo(cli.folder / "gate")
    cli.plan("slow.json", {"tool": "block", "params": {"item": "b"}}, task_id="slow")
    cli.plan("next.json", book("a"), task_id="next")
    cli("submit", "slow.json", "--detach", *WITH)
    worker = workers.start("--concurrency", "1", "--partitions", "0-15")
    assert (cli.folder / "begun").read_text() == "begun"
    cli("submit", "next.json", "--detach", *WITH)

    def reported() -> bool:
        seen.append(cli("top", "--once", "--every", "0.2", "--json").json)
        return seen[-1]["totals"]["driving"] == 1 and seen[-1]["queue"]["queued"] == 1

    seen: list = []
    until(reported, "the worker's report")
    top = seen[-1]
    (one,) = top["workers"]
    assert (one["pid"], one["driving"], one["concurrency"], one["under_way"]) == (worker.pid, 1, 1, 1)
    assert one["partitions"] == list(range(16))
    assert top["totals"]["under_way"] == 1
    assert top["queue"]["oldest_wait_ms"] >= 0
    assert (top["sagas"]["RUNNING"], top["sagas"]["PENDING"]) == (1, 1)
    assert top["owners"]["alive"] == 1
    table = cli("top", "--once", "--every", "0.2")
    assert table.code == 0
    assert "1 wait for a worker" in table.out
    assert table.out.count(f"pid {worker.pid} on ") == 2
    (cli.folder / "gate").write_text("open")
    until_ended(cli, "next")


def same_partition(one: str, other: str) -> bool:
    """Whether two sagas wait in the same part of the queue."""
    return crc32(one.encode()) % 16 == crc32(other.encode()) % 16


def test_a_full_queue_is_an_error_that_may_be_retried(cli, book):
    """The limit is a setting; what is refused is not journalled, and driving it here needs no queue."""
    cli.env["SAGA_QUEUE_LIMIT"] = "1"  # one in each partition
    first, refused = next(pair for pair in itertools.combinations(map(str, range(100)), 2) if same_partition(*pair))
    cli.plan("first.json", book("a"), task_id=first)
    cli.plan("trip.json", book("a"), task_id=refused)
    assert cli("submit", "first.json", "--detach", *WITH).code == 0
    done = cli("submit", "trip.json", "--detach", *WITH, "--json")
    assert (done.code, done.json["error"]["code"], done.json["error"]["verdict"]) == (1, "queue-full", "retry")
    assert cli.look("show", refused).code == 5
    done = cli("submit", "trip.json", *WITH, "--json")
    assert (done.code, done.json["status"], cli.world) == (0, "COMPLETED", ["book:a"])


@pytest.mark.parametrize("partitions", ["x", "1-", "-3", "5-2", "99", ""])
def test_partitions_that_are_none_are_refused(cli, partitions):
    """Before anything is taken: wrong words are wrong usage, numbers that are not there a wrong setting."""
    done = cli("worker", *WITH, "--partitions", partitions)
    assert done.code in (1, 2)
    assert "partition" in done.err.lower()
