"""A gate at which a tool of another process waits."""

from __future__ import annotations

import os
from pathlib import Path

from tests.kill.conftest import Place


class Gate:
    """Where the tool `wait` of a place meets its test."""

    def __init__(self, place: Place) -> None:
        self.folder: Path = place.ledger.path.parent
        os.mkfifo(self.folder / "begun")
        os.mkfifo(self.folder / "gate")

    def wait_for_the_call(self) -> None:
        assert (self.folder / "begun").read_text() == "begun"

    def open(self) -> None:
        (self.folder / "gate").write_text("open")

    def open_for_good(self) -> None:
        """Nobody who comes later waits."""
        (self.folder / "open").touch()
