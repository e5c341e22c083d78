"""The values of the external system: registers that sagas change and read, and a rival who changes them as well.

Each register belongs to one step of one saga, and every read and write of it is entered in a log. The rival writes
unique values. Registers of a *sole writer* have no rival, and a read of one is an answer: a request that had not
happened by then never will (``closes``).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

from saga_engine import ToolContext

#: The end of the name of a register that nobody else writes.
SOLE: Final = "!"
#: The rival's writes come so long after a call or a look, in seconds.
_DELAYS_S: Final = (0.0, 0.01, 0.03, 0.1, 0.4)
#: Every so many looks fail.
_BUSY: Final = 25

Who = Literal["do", "undo", "rival", "hand", ""]


class Entry(NamedTuple):
    """A read (``who`` is empty, ``old`` is what it showed) or a write of a register.

    ``at_ms`` is the time of the machine, ``at_s`` the monotonic one; ``sent_s`` is when the request was sent.
    """

    register: str
    who: Who
    saga_id: str
    step_id: str
    epoch: int
    key: str
    at_ms: int
    at_s: float
    sent_s: float
    old: str | None
    new: str | None


def values_path(folder: Path, share: int) -> Path:
    """The log of a share."""
    return folder / f"values-{share:02d}.jsonl"


def read_log(path: Path) -> Sequence[Entry]:
    """All entries, in the order in which they happened."""
    return [Entry(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def first(register: str) -> str | None:
    """The value of a register before any write; some do not exist yet."""
    return None if crc32(register.encode()) % 3 == 0 else f"first {register}"


class Values:
    """All registers. Everything happens at once: the external system is single-threaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._values: dict[str, str | None] = {}
        self._closed: dict[str, tuple[int, float]] = {}
        self._count = 0

    def look(self, share: int, ctx: ToolContext, register: str, sent_s: float) -> dict[str, Any]:
        """What a read of a register is answered."""
        self._count += 1
        if self._count % _BUSY == 0:
            return {"error": "busy"}
        value = self._values.get(register, first(register))
        self._enter(share, register, "", ctx, sent_s, value, value)
        if register.endswith(SOLE):
            epoch, moment = self._closed.get(register, (0, 0.0))
            self._closed[register] = (max(epoch, ctx.epoch), max(moment, sent_s))
        self._compete(share, register, "look", 7)
        return {"error": "absent"} if value is None else {"output": {"ref": value}}

    def closes(self, register: str, ctx: ToolContext, sent_s: float) -> bool:
        """Whether a request came too late: somebody has learned from the register that it did not happen."""
        epoch, moment = self._closed.get(register, (0, 0.0))
        return ctx.epoch < epoch or sent_s < moment

    def write(self, share: int, ctx: ToolContext, register: str, value: str | None, sent_s: float) -> None:
        """A call or an undo changes a register."""
        who: Who = "do" if ctx.direction == "forward" else "undo"
        self._set(share, register, who, ctx, sent_s, value)
        if who == "do":
            self._compete(share, register, "do", 2)

    def write_by_hand(self, share: int, register: str, value: str | None) -> None:
        """An operator changes a register."""
        self._set(share, register, "hand", None, 0.0, value)

    def rival(self, share: int, register: str) -> None:
        """Somebody else changes a register."""
        self._count += 1
        self._set(share, register, "rival", None, 0.0, f"rival {self._count}")

    def _compete(self, share: int, register: str, word: str, one_of: int) -> None:
        """For one of so many registers a rival writes soon."""
        chance = crc32(f"{word} {register}".encode())
        if not register.endswith(SOLE) and chance % one_of == 0:
            delay_s = _DELAYS_S[chance // one_of % len(_DELAYS_S)]
            asyncio.get_running_loop().call_later(delay_s, self.rival, share, register)

    def _set(
        self, share: int, register: str, who: Who, ctx: ToolContext | None, sent_s: float, value: str | None
    ) -> None:
        old = self._values.get(register, first(register))
        self._values[register] = value
        self._enter(share, register, who, ctx, sent_s, old, value)

    def _enter(
        self,
        share: int,
        register: str,
        who: Who,
        ctx: ToolContext | None,
        sent_s: float,
        old: str | None,
        new: str | None,
    ) -> None:
        about = ("", "", 0, "") if ctx is None else (ctx.saga_id, ctx.step_id, ctx.epoch, ctx.idempotency_key)
        now = time.time_ns() // 1_000_000, time.monotonic()
        with values_path(self._folder, share).open("a") as log:
            log.write(json.dumps(Entry(register, who, *about, *now, sent_s, old, new)) + "\n")
