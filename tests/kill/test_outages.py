"""The store dies: killed and started again in mid-saga, or away for longer than the engine's patience (pitfall 8)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import TOOLS as CLI_TOOLS
from tests.cli.conftest import Cli
from tests.kill.conftest import Place
from tests.kill.laws import breaches
from tests.kill.matrix import WAYS, faults_of
from tests.kill.processes import Processes, Running
from tests.kill.world import ENDS, PLANS
from tests.support.servers import DebianRedis, EmbeddedFolder, until

NewPlace = Callable[[str], Place]


def outages() -> Iterator[Iterator[str]]:
    """For each way, the server's death at the first, the second, … point."""
    for way in WAYS:
        yield (f"{fault}:kill-server" for fault in faults_of(way))


def wrong_after_restart(place: Place, told: dict[str, Any], plan: str) -> list[str]:
    """What an outage that nobody should have noticed has changed."""
    found = place.ledger.compare(told["final"], PLANS[plan])
    if told["final"]["status"] != ENDS[plan]:
        found.append(f"it ended {told['final']['status']}")
    if [record["k"] for record in told["history"]] != told["durable"]:
        found.append(f"acknowledged was {told['durable']}, kept is {[record['k'] for record in told['history']]}")
    if any(step["attempts"] > 1 for step in told["final"]["steps"]):
        found.append("a call was repeated for no reason")
    return found


@pytest.mark.parametrize("plan", ["fails", pytest.param("graph", marks=pytest.mark.slow)])
def test_an_embedded_server_that_is_killed_is_started_again(
    processes: Processes, new_place: NewPlace, tmp_path: Path, plan: str
) -> None:
    """Whoever needs it starts it; the saga goes on as if nothing had been, and nothing acknowledged is lost."""
    found: dict[str, list[str]] = {}
    with EmbeddedFolder(tmp_path / "saga") as folder:
        for faults in outages():
            for fault in faults:
                place = new_place(folder.url)
                told = processes.run(
                    "submit",
                    plan=PLANS[plan],
                    variant="bare",
                    fault=fault,
                    with_history=True,
                    server_folder=str(folder.path),
                    **place.told,
                ).told
                found[fault] = [str(told["error"])] if "error" in told else wrong_after_restart(place, told, plan)
                if not told["fired"]:
                    break
    assert len(found) > 20
    assert not {fault: what for fault, what in found.items() if what}


def restarted(server: DebianRedis, running: Running) -> bool:
    """Start the server again when it has died; False if the process ended without that."""
    process = server._process
    assert process is not None
    until(lambda: process.poll() is not None or running.has_ended(), "the server or the process to end")
    died = process.poll() is not None
    if died:
        server.kill()
        server.start()
    return died


@pytest.mark.debian_redis
@pytest.mark.parametrize("plan", ["fails", pytest.param("graph", marks=pytest.mark.slow)])
def test_a_server_that_comes_back_within_patience(processes: Processes, new_place: NewPlace, plan: str) -> None:
    """A server that dies and is started again by its keeper is waited for; nothing is lost and nothing repeated."""
    found: dict[str, list[str]] = {}
    with DebianRedis() as server:
        for faults in outages():
            for fault in faults:
                place = new_place(server.url)
                running = processes.start(
                    "submit",
                    plan=PLANS[plan],
                    variant="bare",
                    fault=fault,
                    with_history=True,
                    server_pid=server.pid,
                    patience_s=30,
                    **place.told,
                )
                died = restarted(server, running)
                told = running.told()
                found[fault] = [str(told["error"])] if "error" in told else wrong_after_restart(place, told, plan)
                if not died:
                    break
    assert len(found) > 20
    assert not {fault: what for fault, what in found.items() if what}


@pytest.mark.debian_redis
@pytest.mark.parametrize("variant", ["keyed", "bare"])
def test_a_server_that_stays_away(processes: Processes, new_place: NewPlace, variant: str) -> None:
    """When patience ends the engine stops before the next effect and says so; a resume finishes, with nothing lost."""
    found: dict[str, list[str]] = {}
    with DebianRedis() as server:
        for faults in outages():
            for fault in faults:
                place = new_place(server.url)
                how = {"variant": variant, **place.told}
                told = processes.run(
                    "submit",
                    plan=PLANS["fails"],
                    fault=fault,
                    server_pid=server.pid,
                    patience_then_s=0.05,
                    **how,
                ).told
                if not told["fired"]:
                    break
                server.kill()
                server.start()
                found[fault] = stopped_rightly(fault, told)
                resumed = processes.run("resume-all", **how).told
                found[fault] += breaches(
                    plan="fails", variant=variant, told=resumed, ledger=place.ledger, saga_id=place.saga_id
                )
    assert len(found) > 20
    assert not {fault: what for fault, what in found.items() if what}


def stopped_rightly(fault: str, told: dict[str, Any]) -> list[str]:
    """After the server had died, only a call whose intent it had acknowledged was still made."""
    if "error" not in told:
        # Its last record was durable before the server died: there was nothing left to stop.
        return [] if told["final"]["status"] == ENDS["fails"] and told["sent_after"] == 0 else ["it went on unrecorded"]
    found = []
    error = told["error"]
    if error["code"] != "store-unavailable" or error["verdict"] != "resume" or not error["hint"]:
        found.append(f"it stopped with {error}")
    ordered = 1 if fault.startswith("append") and ":after:" in fault else 0
    if told["sent_after"] > ordered:
        found.append(f"{told['sent_after']} requests were sent while nothing could be journalled")
    return found


@pytest.mark.debian_redis
def test_the_command_line_says_that_the_store_is_away(tmp_path: Path) -> None:
    """Exit code 1, an error with its code and a hint; nothing is lost, and after an answer the rest is done."""
    cli = Cli(tmp_path)
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "gate")
    steps = [("book", "a"), ("block", "b"), ("book", "c")]
    cli.plan("trip.json", *({"tool": name, "params": {"item": item}} for name, item in steps), task_id="trip")
    with DebianRedis() as server:
        where = ("--tools", str(CLI_TOOLS), "--store", server.url)
        cli.env |= {"SAGA_PATIENCE_S": "1"}
        process = cli.start("submit", "trip.json", *where, "--json")
        assert (tmp_path / "begun").read_text() == "begun"
        server.kill()
        (tmp_path / "gate").write_text("open")
        out, _ = process.communicate(timeout=60)

        assert process.returncode == 1
        assert '"store-unavailable"' in out
        assert '"hint"' in out
        assert cli.world == ["book:a", "begun:b", "ended:b"]

        server.start()
        cli.env |= {"SAGA_PATIENCE_S": "10"}
        asked = cli("resume", "trip", *where, "--json")
        assert (asked.code, asked.json["questions"][0]["step_id"]) == (4, 2)
        done = cli("resolve", "trip", "2", "happened", "--output", '{"ref": "b"}', *where, "--json")
        assert (done.code, done.json["status"]) == (0, "COMPLETED")
        assert cli.world == ["book:a", "begun:b", "ended:b", "book:c"]
