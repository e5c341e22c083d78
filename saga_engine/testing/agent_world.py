"""The world of the agents' conformance suite: tools that write a ledger, and that may kill their process.

A line of the ledger is an effect. ``hold`` honours its key, and ``find`` tells whether it happened; so a call that a
dead process left in doubt is settled without anybody.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Final

from saga_engine.errors import ToolError
from saga_engine.tools.context import ToolContext
from saga_engine.tools.decorator import tool

#: The turns of the model: each is the calls that it asks for at once.
TRIP: Final = [[("look", {"at": "sky"})], [("hold", {"item": "flight"})], [("hold", {"item": "room"})]]
POLICY: Final = {"rules": [{"name": "payments", "tools": ["pay"], "verdict": "ask"}]}


class World:
    """A ledger in a file. ``kill``: ``ITEM:before`` or ``ITEM:after``, at which the process gets SIGKILL once."""

    def __init__(self, folder: Path, kill: str = "") -> None:
        self._file = folder / "ledger"
        self._killed = folder / "killed"
        self._kill = kill

    def ledger(self) -> list[str]:
        """The effects, in order."""
        return [line.partition("\t")[0] for line in self._lines()]

    def _lines(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    def _add(self, effect: str, key: str) -> None:
        with self._file.open("a") as file:
            file.write(f"{effect}\t{key}\n")

    def _die(self, point: str) -> None:
        if self._kill == point and not self._killed.exists():
            self._killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def tools(self) -> list[Any]:
        """The tools of the suite."""

        @tool
        def release(item: str, idempotency_key: str) -> None:
            """Release what was held."""
            if not any(line.endswith(f"\t{idempotency_key}") for line in self._lines()):
                self._add(f"release {item}", idempotency_key)

        @tool(effect="read")
        def find(item: str, ctx: ToolContext) -> dict[str, str] | None:
            """Whether it is held."""
            return {"item": item} if f"hold {item}\t{ctx.idempotency_key}" in self._lines() else None

        @tool(undo=release, probe=find)
        def hold(item: str, idempotency_key: str) -> dict[str, str]:
            """Hold an item."""
            if item == "nothing":
                raise ToolError("there is no such item", error_code="no_item", suggestion="hold a room")
            self._die(f"{item}:before")
            if f"hold {item}\t{idempotency_key}" not in self._lines():
                self._add(f"hold {item}", idempotency_key)
            self._die(f"{item}:after")
            if item == "lost":
                raise ConnectionResetError("the answer was lost")
            return {"item": item}

        @tool(effect="read")
        def look(at: str) -> str:
            """Look at something."""
            return f"{at}: blue"

        @tool(undo=release, undo_params={"item": "paid"})
        def pay(amount: int, idempotency_key: str) -> dict[str, int]:
            """Pay an amount."""
            self._add(f"pay {amount}", idempotency_key)
            return {"amount": amount}

        @tool(undo=release, undo_params={"item": "note"}, dedupe_ttl_s=3600)
        def note(text: str, idempotency_key: str) -> dict[str, str]:
            """Write a note, once for all."""
            self._add(f"note {text}", idempotency_key)
            return {"text": text}

        return [hold, release, find, look, pay, note]
