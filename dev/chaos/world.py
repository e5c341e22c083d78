"""The external system: one process that is never killed, which receives requests over a socket and keeps the ledger.

It is a process of its own, because an external system does not die with its caller: it completes a request that has
arrived even if its sender was killed meanwhile, and the effect happens after another worker has taken over the saga.
Its effects are in ``OutsideLedger``s, one for each share of the sagas, which the verdict compares with the journals.

The fate of a request is written in the request itself (``luck``, a word for each attempt, the last one for all
further):

=========  ==========================================================================================
``ok``     it happens and is answered
``busy``   not done, try again             ``refuse``  not done, and never will be
``gone``   the connection is refused       ``crash``   not done, with an error that says nothing
``cut``    the line breaks before it       ``lost``    … after it happened: the answer is lost
``late``   it happens after the caller's   ``hang``    it happens and is never answered
           patience                        ``break``   it happens, and its tool raises what says nothing
=========  ==========================================================================================

By two rules every question has an answer. A request about which the answer was 'it did not happen' never happens later
(``settle``): a 'no' that is not final would prove nothing, and neither an operator nor a probe could be trusted. And a
request whose undo has happened is refused.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec

from dev.chaos.stop_laws import requests_path
from dev.chaos.values import Values
from saga_engine import ToolContext, ToolError
from saga_engine.testing.ledger import OutsideLedger

SHARES: Final = 32
#: The delay of ``late`` before its effect; tools with that fate have a shorter time-out (``plans.IMPATIENT_S``).
LATE_S: Final = 0.6
#: How long an unanswered connection is held open; the caller has hung up by then.
_HELD_S: Final = 30.0
_LATENCY_S: Final = 0.02
#: The end of the id of a saga that undoes a completed one.
UNDO: Final = "-undo"
#: In the id of a saga that handles a late event of another one, after that one's id.
LATE: Final = "-late-"
_LINE_BYTES: Final = 1 << 20

#: Promises that the external system can be made to break, to see that the verdict detects it: it treats every call with
#: a key as a new one, or reports an undo that did not happen.
SABOTAGE: Final = ("keys", "undos")

Reply = dict[str, Any] | None


def share_of(saga_id: str) -> int:
    """The number of the ledger with the lines of a saga and of all that belong to it."""
    return crc32(root_of(saga_id).encode()) % SHARES


def root_of(saga_id: str) -> str:
    """The saga that was submitted, of an undo, a child, or one that handles a late event."""
    return saga_id.partition(".")[0].partition(LATE)[0].removesuffix(UNDO)


def ledger_path(folder: Path, share: int) -> Path:
    """The file of a share."""
    return folder / f"ledger-{share:02d}.db"


class World:
    """The server: single-threaded, so everything between two awaits is atomic."""

    def __init__(self, folder: Path, sabotage: str | None) -> None:
        self._sabotage = sabotage
        self._ledgers = [OutsideLedger(ledger_path(folder, share)) for share in range(SHARES)]
        #: By key: requests of a lesser epoch, up to an attempt, or sent before a moment are refused.
        self._closed: dict[str, tuple[int, int, float]] = {}
        self._undone: set[tuple[str, str]] = set()
        self._values = Values(folder)
        self._requests = [requests_path(folder, share).open("a", encoding="utf-8") for share in range(SHARES)]
        self._pending = 0
        self._turned_away = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection is one request; it is completed whether or not the caller still listens."""
        with suppress(OSError):  # the caller was killed or has hung up; the ledger has the effect
            line = await reader.readline()
            if line.endswith(b"\n"):
                reply = await self._handle(msgspec.json.decode(line))
                if reply is not None:
                    writer.write(msgspec.json.encode(reply) + b"\n")
                    await writer.drain()
        writer.close()

    async def _handle(self, asked: Mapping[str, Any]) -> Reply:
        if asked["op"] == "call":
            self._pending += 1
            try:
                reply = await self._call(asked)
            finally:
                self._pending -= 1
            if asked["luck"] == "hang":
                await asyncio.sleep(_HELD_S)
            return None if asked["luck"] in ("lost", "hang") else reply
        if asked["op"] == "settle":
            return self._settle(asked)
        if asked["op"] == "by-hand":
            share = share_of(asked["saga_id"])
            self._ledgers[share].by_hand(asked["saga_id"], asked["step_id"])
            self._undone.add((asked["saga_id"], asked["step_id"]))
            if "register" in asked:
                self._values.write_by_hand(share, asked["register"], asked["value"])
            return {}
        if asked["op"] == "rival":
            self._values.rival(share_of(asked["saga_id"]), asked["register"])
            return {}
        if asked["op"] == "value":
            ctx = ToolContext(*asked["ctx"])
            return self._values.look(share_of(ctx.saga_id), ctx, asked["register"], asked["sent_s"])
        return {"pending": self._pending, "turned_away": self._turned_away}

    async def _call(self, asked: Mapping[str, Any]) -> Reply:
        ctx = ToolContext(*asked["ctx"])
        ledger = self._ledgers[share_of(ctx.saga_id)]
        key, word = ctx.idempotency_key, asked["luck"]
        self._note(ctx, asked)
        if asked["once"] is not None:
            ledger.sent(ctx, asked["tool"])
        await asyncio.sleep((crc32(key.encode()) + ctx.attempt) % 97 / 97 * _LATENCY_S)
        if word in ("busy", "refuse", "crash"):
            return {"error": word}
        if word == "cut":
            return None
        if word == "late":
            await asyncio.sleep(LATE_S)
        reply = self._apply(ledger, ctx, asked)
        return {"error": "break"} if word == "break" and "output" in reply else reply

    def _note(self, ctx: ToolContext, asked: Mapping[str, Any]) -> None:
        """Note when the request was sent, for the law of stops."""
        log = self._requests[share_of(ctx.saga_id)]
        place = (ctx.saga_id, ctx.step_id, ctx.direction, ctx.attempt, ctx.epoch)
        log.write(json.dumps([*place, asked["tool"], asked["sent_s"]]) + "\n")
        log.flush()

    def _apply(self, ledger: OutsideLedger, ctx: ToolContext, asked: Mapping[str, Any]) -> Reply:
        if asked["once"] is None:  # a read
            return {"output": asked["output"]}
        epoch, attempt, moment = self._closed.get(ctx.idempotency_key, (0, 0, 0.0))
        place = (ctx.saga_id, ctx.step_id)
        undone = ctx.direction == "forward" and place in self._undone
        closed = ctx.epoch < epoch or ctx.attempt <= attempt or asked["sent_s"] < moment or undone
        register = asked.get("register")
        closed = closed or (register is not None and self._values.closes(register, ctx, asked["sent_s"]))
        again = bool(asked["once"] and ledger.find(ctx.idempotency_key))
        if closed and not again:
            self._turned_away += 1
            return {"error": "refuse"}
        if self._sabotage == "undos" and ctx.direction == "compensate":
            return {"output": asked["output"]}
        once = asked["once"] and self._sabotage != "keys"
        try:
            output = ledger.apply(ctx, asked["tool"], asked["output"], once=once)
        except ToolError:
            self._turned_away += 1
            return {"error": "refuse"}
        if ctx.direction == "compensate":
            self._undone.add(place)
        if register is not None and not (again and once):
            self._values.write(share_of(ctx.saga_id), ctx, register, asked["value"], asked["sent_s"])
        return {"output": output}

    def _settle(self, asked: Mapping[str, Any]) -> Reply:
        key = asked["key"]
        found = self._ledgers[share_of(asked["saga_id"])].find(key)
        if found is not None:
            return {"output": found.output}
        epoch, attempt, _ = self._closed.get(key, (0, 0, 0.0))
        self._closed[key] = (max(epoch, asked["epoch"]), max(attempt, asked["attempt"]), asked["sent_s"])
        return {}


async def serve(folder: Path, path: Path, sabotage: str | None) -> None:
    """Serve until cancelled."""
    world = World(folder, sabotage)
    server = await asyncio.start_unix_server(world.accept, str(path), limit=_LINE_BYTES, backlog=4096)
    async with server:
        await server.serve_forever()


# --- the client ----------------------------------------------------------------------------------------------------


class Outside:
    """A client of the external system. A broken connection raises ``ConnectionError``: the outcome is unknown."""

    path: str = ""

    @classmethod
    async def ask(cls, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its answer."""
        reader, writer = await asyncio.open_unix_connection(cls.path, limit=_LINE_BYTES)
        try:
            writer.write(_line(asked))
            line = await reader.readline()
        finally:
            writer.transport.abort()
        return _decoded(line)

    @classmethod
    def ask_now(cls, asked: Mapping[str, Any], patience_s: float | None = None) -> dict[str, Any]:
        """The same from a thread."""
        with socket.socket(socket.AF_UNIX) as line, suppress(BrokenPipeError):
            line.settimeout(patience_s)
            line.connect(cls.path)
            line.sendall(_line(asked))
            with line.makefile("rb") as answer:
                return _decoded(answer.readline())
        return _decoded(b"")


def _line(asked: Mapping[str, Any]) -> bytes:
    # One clock for all processes of a machine, which the injector does not change.
    return msgspec.json.encode({**asked, "sent_s": time.monotonic()}) + b"\n"


def _decoded(line: bytes) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the line broke before an answer came")
    reply: dict[str, Any] = msgspec.json.decode(line)
    return reply
