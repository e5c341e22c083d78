"""`saga … --runtime` that is told to stop while it waits for a saga."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import TOOLS, Cli
from tests.support.servers import until
from tests.temporal.server import TemporalServer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_who_waits_is_told_how_to_go_on(tmp_path: Path, book: Callable[..., dict[str, Any]], number: int) -> None:
    """Ctrl-C and SIGTERM end the waiting alike: with 130 and the very command that follows the saga, which goes on."""
    cli, log = Cli(tmp_path), tmp_path / "submit.log"
    with TemporalServer() as server:
        cli.env |= {"SAGA_PATIENCE_S": "0.5"}
        absent = cli("show", "trip", "--runtime", server.url, "--json")
        assert (absent.code, absent.json["error"]["code"]) == (5, "saga-not-found")
        assert "write the whole id" in absent.json["error"]["hint"]
        plan = cli.plan("trip.json", book("hotel"))
        with log.open("w") as said:
            waiting = cli.start(
                "submit", plan, "--id", "trip-1", "--tools", str(TOOLS), "--runtime", server.url, stderr=said
            )
        until(lambda: "no worker answers" in log.read_text(), "the command to say what it waits for")
        waiting.send_signal(number)
        assert waiting.wait(30) == 130, log.read_text()
        assert "the saga continues" in log.read_text()
        _, _, follow_up = log.read_text().partition("follow it with: saga ")
        shown = cli(*shlex.split(follow_up), "--json")
        assert shown.json["error"]["code"] == "runtime-unavailable", "it is understood, and asks a worker in vain"
