"""One turn of one entrant: what is measured, in the entrant's own process and environment. Standard library only.

``run.py`` starts the process anew for each turn, so that turns of all entrants can alternate and a crash of one is its
own. The process is told what to do as JSON in its only argument, and writes what it found to a file.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

BOOK = ("flight", "hotel", "payment")
#: ``good``: three steps succeed. ``bad``: the third fails and two are undone.
Kind = Literal["good", "bad"]
Saga = Callable[[Kind], Awaitable[None]]
#: One saga of so many steps.
Long = Callable[[int], Awaitable[None]]
#: Milliseconds to go on with a saga of so many steps that was stopped before its last one, to its end.
Resume = Callable[[int], Awaitable[float]]

_TICKS = os.sysconf("SC_CLK_TCK")
_WARM_S = 0.7
_SWEEP_S = 1.0
_GROWTH_S = 0.4
_MOST_REPEATS = 40
_RESUMES = 3


class Declined(Exception):
    """The booking that fails."""


@dataclass(slots=True)
class Turn:
    """What ``run.py`` asks for. ``place`` is an empty folder on the disk that is measured."""

    task: str
    place: str
    out: str
    argument: str = ""
    server: dict[str, Any] = field(default_factory=dict)
    levels: list[int] = field(default_factory=list)
    #: The length of a measurement; a turn is made of a few.
    seconds: float = 2.0
    #: For ``growth``: steps of one saga, how long one may take before the longer ones are left out, and how often all.
    lengths: list[int] = field(default_factory=list)
    limit_s: float = 20.0
    passes: int = 1

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def asked() -> Turn:
    """What this process was started for."""
    return Turn(**json.loads(sys.argv[1]))


def answer(turn: Turn, found: Mapping[str, Any]) -> None:
    """Write what was found, at once and whole."""
    draft = Path(turn.out + ".new")
    draft.write_text(json.dumps(found))
    draft.rename(turn.out)  # whoever waits for it finds all of it


def answered(turn: Turn) -> dict[str, Any]:
    """What a turn that has ended well has found."""
    return json.loads(Path(turn.out).read_text())


async def take(
    turn: Turn,
    saga: Saga,
    long: Long,
    servers: Iterable[int],
    versions: Mapping[str, str],
    resume: Resume | None = None,
) -> None:
    """Measure and answer. ``servers`` are the processes, with their children, that count as the server."""
    found: dict[str, Any] = {"versions": dict(versions)}
    if turn.task == "growth":
        found["ms_per_step"] = await _growth(turn, long)
        found["resume_ms"] = {} if resume is None else await _resume(turn, resume, found["ms_per_step"])
    else:
        found |= await _round(turn, saga, tuple(servers))
    answer(turn, found)


def versions_of(*packages: str) -> dict[str, str]:
    """Installed packages with their versions."""
    return {package: version(package) for package in packages}


async def act(name: str) -> dict[str, str]:
    """The tool that all entrants call: it does nothing."""
    return {"order_id": f"{name}-1"}


async def refuse(name: str) -> dict[str, str]:
    """The tool that fails."""
    raise Declined(name)


async def closed_loop(saga: Saga, kind: Kind, at_once: int, seconds: float) -> tuple[int, float]:
    """Sagas finished, and the seconds that they took: ``at_once`` at a time, until ``seconds`` are over."""
    count, begun = 0, time.perf_counter()
    until = begun + seconds

    async def worker() -> None:
        nonlocal count
        while time.perf_counter() < until:
            await saga(kind)
            count += 1

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return count, time.perf_counter() - begun


async def _round(turn: Turn, saga: Saga, servers: tuple[int, ...]) -> dict[str, Any]:
    warm_s = min(_WARM_S, turn.seconds)
    await closed_loop(saga, "good", turn.levels[0], warm_s)
    await closed_loop(saga, "bad", turn.levels[0], warm_s / 2)
    # As the performance page advises programs that run many sagas: full collections do not visit what was loaded.
    gc.collect()
    gc.freeze()
    times: list[float] = []
    until = time.perf_counter() + turn.seconds
    while time.perf_counter() < until:
        begun = time.perf_counter()
        await saga("good")
        times.append((time.perf_counter() - begun) * 1000)
    level = turn.levels[0]
    if len(turn.levels) > 1:
        rates = {}
        for at_once in turn.levels:
            count, took_s = await closed_loop(saga, "good", at_once, min(_SWEEP_S, turn.seconds))
            rates[at_once] = count / took_s
        level = max(rates, key=rates.__getitem__)
    client_s, server_s = time.process_time(), _cpu_s(servers)
    good, good_s = await closed_loop(saga, "good", level, turn.seconds)
    client_s, server_s = time.process_time() - client_s, _cpu_s(servers) - server_s
    bad, bad_s = await closed_loop(saga, "bad", level, turn.seconds)
    steps = good * len(BOOK)
    return {
        "sequential_ms": statistics.median(times),
        "sequential_sagas": len(times),
        "at_once": level,
        "steps_per_s": steps / good_s,
        "compensating_sagas_per_s": bad / bad_s,
        "client_cpu_s_per_1000_steps": client_s / steps * 1000,
        "server_cpu_s_per_1000_steps": server_s / steps * 1000,
        "cpu_s_per_1000_steps": (client_s + server_s) / steps * 1000,
    }


async def _growth(turn: Turn, long: Long) -> dict[int, float | None]:
    """Milliseconds a step for each length; None where it would have taken too long."""
    await long(min(turn.lengths))
    times: dict[int, list[float]] = {length: [] for length in turn.lengths}
    too_long = False
    for _ in range(turn.passes):  # all lengths in turns: the disk changes its pace
        expected_s = 0.0
        for length, found in times.items():
            too_long = too_long or expected_s > turn.limit_s
            if too_long and not found:
                continue
            count, spent_s = 0, 0.0
            while count < _MOST_REPEATS and spent_s < _GROWTH_S:
                begun = time.perf_counter()
                await long(length)
                taken_s = time.perf_counter() - begun
                found.append(taken_s / length * 1000)
                count, spent_s = count + 1, spent_s + taken_s
            expected_s = taken_s * 10
    return {length: statistics.median(found) if found else None for length, found in times.items()}


async def _resume(turn: Turn, resume: Resume, ms_per_step: Mapping[int, float | None]) -> dict[int, float]:
    """Medians by length. Each saga has to be made first, so lengths that take long are left out."""
    found = {}
    for length in turn.lengths:
        each_ms = ms_per_step[length]
        if each_ms is not None and each_ms * length * _RESUMES < turn.limit_s * 1000:
            found[length] = statistics.median([await resume(length) for _ in range(_RESUMES)])
    return found


def _cpu_s(servers: tuple[int, ...]) -> float:
    """CPU seconds of these processes, of their children, and of those of their children that have ended."""
    if not servers:
        return 0.0
    spent: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        spent[int(entry.name)] = sum(map(int, fields[11:15]))
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    todo, total = list(servers), 0
    while todo:
        pid = todo.pop()
        total += spent.get(pid, 0)
        todo += children.get(pid, ())
    return total / _TICKS
