"""What all tests share: the long forms run by hand only, and no test leaves a server behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

# How long an example takes says nothing of the engine: a slow machine fails no test.
settings.register_profile("saga", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A mutant is caught or not: its example need not be made small.
settings.register_profile(
    "mutants", settings.get_profile("saga"), phases=[Phase.explicit, Phase.generate], database=None
)
settings.load_profile("saga")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long forms too")
    parser.addoption("--accept-transcripts", action="store_true", help="write what the command line prints now")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="a long form: --long"))


@pytest.fixture(autouse=True)
def no_server_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that kills its processes leaves their embedded server running, as it should: end it with the test's folder."""
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is None or not folder.exists():
        return
    for record in folder.rglob("server.json"):
        pid = json.loads(record.read_text())["pid"]
        if pid is None:  # killed before it had started one
            continue
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder):
                os.kill(pid, signal.SIGKILL)
