"""What connections may use: how many there may be, how long they may take, and how much of theirs is held."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one listener.

    ``connections``: of all addresses, and ``connections_each``: of one. ``arrive_s``: how long a request may take to
    arrive, its head and its body. ``idle_s``: how long a connection stays open between two requests. ``write_s``: how
    long a client may take to read what is written, or 64 KiB of it. ``head_bytes``: the largest head.
    ``ahead_bytes``: how much of the requests is held that a client sends before the answer to an earlier one.
    """

    connections: int = 2_000
    connections_each: int = 1_000
    arrive_s: float = 25.0
    idle_s: float = 5.0
    write_s: float = 30.0
    head_bytes: int = 16 * 1024
    ahead_bytes: int = 64 * 1024
