"""`saga … --runtime`: the real command line, a worker process, the real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from saga_engine.errors import SettingInvalid
from saga_engine.temporal.client import Address
from tests.cli.conftest import TOOLS, Cli, book
from tests.support.servers import until
from tests.temporal.conftest import Place

__all__ = ["book"]


class EngineCli(Cli):
    """``saga`` with Temporal, and its worker."""

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder)
        self.place = place
        self.env |= {"SAGA_RUNTIME": place.url, "SAGA_TASK_QUEUE": place.queue, "SAGA_TOOLS": str(TOOLS)}

    def worker(self) -> subprocess.Popen[str]:
        process = self.start("worker", stdout=subprocess.DEVNULL, stderr=(self.folder / "worker.log").open("w"))
        until(lambda: "serves" in (self.folder / "worker.log").read_text(), "the worker to serve")
        return process


@pytest.fixture
def there(tmp_path: Path, place: Place) -> Iterator[EngineCli]:
    cli = EngineCli(tmp_path, place)
    process = cli.worker()
    try:
        yield cli
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    assert code == 0, (tmp_path / "worker.log").read_text()


def test_a_saga_from_beginning_to_trace(there: EngineCli, book: Callable[..., dict[str, Any]]) -> None:
    """Submit, show, history and trace print what they print of any other saga, with the same exit codes."""
    plan = there.plan("trip.json", book("hotel"), book("car"))
    name = there.place.saga_id("trip")
    done = there("submit", plan, "--id", name, "--json")
    assert done.code == 0, done.err
    assert done.json["status"] == "COMPLETED"
    shown = there("show", name, "--json")
    assert (shown.code, shown.json) == (0, done.json)
    kinds = [record["k"] for record in there("history", name, "--json").json["records"]]
    assert kinds[0] == "SagaStarted"
    assert kinds[-1] == "SagaCompleted"
    exported = there("trace", "export", name, "-o", "trip.jsonl")
    assert exported.code == 0, exported.err
    offline = {"SAGA_RUNTIME": ""}
    assert there("trace", "verify", "trip.jsonl", env=offline).code == 0
    replayed = there("trace", "replay", "trip.jsonl", "--json", env=offline)
    assert replayed.code == 0, replayed.out
    assert there("show", "nobody").code == 5


def test_a_question_and_its_answer(there: EngineCli) -> None:
    """A saga that needs a person ends the command with 4; `saga resolve` answers, a wrong answer is refused with 6."""
    (there.folder / "lost.py").write_text(
        "from saga_engine import tool\n\n\n@tool(undo='unpay')\ndef pay(amount: int) -> dict:\n    raise ConnectionError('gone')\n\n\n"
        "@tool\ndef unpay(amount: int) -> dict:\n    return {}\n"
    )
    there.env["SAGA_TOOLS"] = "lost.py"
    there.env["SAGA_TASK_QUEUE"] = there.place.queue + "-lost"
    worker = there.worker()
    try:
        rollback = {"tool": "unpay", "params": {"amount": 1}}
        plan = there.plan("pay.json", {"tool": "pay", "params": {"amount": 1}, "rollback": rollback})
        name = there.place.saga_id("pay")
        asked = there("submit", plan, "--id", name)
        assert asked.code == 4, asked.err
        assert there("resolve", name, "1", "approve").code == 6
        answered = there("resolve", name, "1", "happened", "--json", "--by", "ada")
        assert answered.code == 0, answered.err
        assert answered.json["status"] == "COMPLETED"
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0


def test_amend_reaches_temporal_and_what_it_cannot_do_is_said(
    there: EngineCli, book: Callable[..., dict[str, Any]]
) -> None:
    """`saga amend` asks the saga in Temporal, which has ended; `trace export --all` says that it cannot be done there."""
    name = there.place.saga_id("grown")
    done = there("submit", there.plan("trip.json", book("hotel")), "--id", name)
    assert done.code == 0, done.err
    (there.folder / "steps.json").write_text('[{"step_id": 9, "tool": "book", "params": {"what": "car"}}]')
    late = there("amend", name, "steps.json", "--json")
    assert (late.code, late.json["error"]["code"]) == (6, "amend-refused")
    everything = there("trace", "export", "--all", "-o", "all.jsonl", "--json")
    assert (everything.code, everything.json["error"]["code"]) == (1, "runtime-unsupported")


def test_detached(tmp_path: Path, place: Place, book: Callable[..., dict[str, Any]]) -> None:
    """`--detach` returns with no worker there; a worker that comes later drives the saga."""
    cli = EngineCli(tmp_path, place)
    plan = cli.plan("trip.json", book("hotel"))
    name = place.saga_id("later")
    left = cli("submit", plan, "--id", name, "--detach", "--json")
    assert (left.code, left.json["status"]) == (0, "PENDING"), left.err
    worker = cli.worker()
    try:
        again = cli("submit", plan, "--id", name, "--json")
        assert again.json["status"] == "COMPLETED", again.err
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    assert cli("show", name).code == 0  # it has ended: no worker is needed


def test_who_waits_may_leave(tmp_path: Path, place: Place, book: Callable[..., dict[str, Any]]) -> None:
    """Waiting for a worker is told; Ctrl-C ends the waiting with 130 and the way to go on, and the saga stays."""
    cli = EngineCli(tmp_path, place)
    cli.env |= {"SAGA_PATIENCE_S": "0.5"}
    log = tmp_path / "submit.log"
    waiting = cli.start(
        "submit", cli.plan("trip.json", book("hotel")), "--id", place.saga_id("w"), stderr=log.open("w")
    )
    until(lambda: "no worker answers" in log.read_text(), "the command to say what it waits for")
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(30) == 130
    assert f"saga show {place.saga_id('w')}" in log.read_text()
    away = cli("show", place.saga_id("w"), "--json")
    assert (away.code, away.json["error"]["code"]) == (1, "runtime-unavailable")


def test_what_is_wrong_is_said(tmp_path: Path, book: Callable[..., dict[str, Any]]) -> None:
    """An address that is none, a server that is not there, and a missing extra are errors with a hint, not tracebacks."""
    cli = Cli(tmp_path)
    plan = cli.plan("trip.json", book("hotel"))
    nowhere = "temporal://127.0.0.1:1/default"
    env = {"SAGA_TOOLS": str(TOOLS), "SAGA_PATIENCE_S": "0.5"}
    away = cli("submit", plan, "--runtime", nowhere, "--json", env=env)
    assert (away.code, away.json["error"]["code"]) == (1, "runtime-unavailable")
    wrong = cli("show", "x", "--runtime", "http://x", "--json")
    assert (wrong.code, wrong.json["error"]["code"]) == (1, "setting-invalid")
    (tmp_path / "temporalio.py").write_text("raise ImportError('not installed')\n")
    without = cli(
        "show", "x", "--runtime", nowhere, "--json", env={"PYTHONPATH": f"{tmp_path}:{cli.env['PYTHONPATH']}"}
    )
    assert without.code == 1
    assert "saga-engine[temporal]" in without.json["error"]["hint"]


@pytest.mark.parametrize(
    ("url", "host", "namespace"),
    [
        ("temporal://h:1/n", "h:1", "n"),
        ("temporal://h", "h:7233", "default"),
        ("temporal://h/", "h:7233", "default"),
        ("temporal://[::1]:5/x", "[::1]:5", "x"),
    ],
)
def test_addresses(url: str, host: str, namespace: str) -> None:
    """Port and namespace have Temporal's own defaults."""
    assert Address.parse(url) == (host, namespace)


@pytest.mark.parametrize(
    "url",
    ["", "h:1", "temporal://", "temporal://h:x/n", "temporal://h/a/b", "temporal://u:p@h/n", "temporal://h/n?x=1"],
)
def test_addresses_that_are_none(url: str) -> None:
    """Whatever is no address is refused; a password in it most of all."""
    with pytest.raises(SettingInvalid):
        Address.parse(url)


def test_no_command_imports_temporal() -> None:
    """The SDK is heavy: nothing but a runtime's address loads it."""
    code = "import sys, saga_engine.cli, saga_engine.cli.temporal; assert 'temporalio' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
