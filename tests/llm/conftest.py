"""Tests against a real model: ``make test-llm`` alone collects them, and it says where the model is.

They take minutes and need a server that is compiled first, so they are no part of ``make test``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.llm.local_model import FOLDER_VARIABLE, LocalModel, local_model
from tests.llm.watching import HEARD

collect_ignore_glob = [] if os.environ.get(FOLDER_VARIABLE) else ["test_*.py"]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalModel]:
    """One server for all tests: loading the model is the slow part."""
    with local_model(tmp_path_factory.mktemp("llm")) as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the model said, in figures: nothing is asserted about them."""
    if HEARD:
        terminalreporter.section("what came of it")
        for line in HEARD:
            terminalreporter.write_line(line)
