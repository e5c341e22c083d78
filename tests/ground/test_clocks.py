"""The engine reads the time at one place (``saga_engine.ports.machine_clock``); what still reads it itself is listed."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import saga_engine

ROOT = Path(saga_engine.__file__).parent
#: What reads or passes time without an event loop and without ``machine_clock``.
OF_TIME = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep", "clock_gettime"}
OF_DATETIME = {"now", "utcnow", "today"}

PROCESS = "waits in a thread for a process to start or to end, which no virtual time makes faster"
SHOWN = "only shown: to a person at a terminal, who lives in real time"
MEASURED = "only measured and reported: how long something took"
TEMPORAL = "a worker of Temporal: its server's time decides, and is real"
#: The file, how often it does, and why. A number may only fall; a new file needs a reason as good as these.
LEFT = {
    "ports/machine_clock.py": (5, "the port itself"),
    "stores/embedded.py": (14, PROCESS),
    "stores/snapshot.py": (5, PROCESS),
    "telemetry/outbox.py": (4, "a thread of its own sends spans, outside all event loops"),
    "temporal/pulse.py": (3, TEMPORAL),
    "api/coordinator_plans.py": (1, "the calendar that a person's plan is written in"),
    "cli/loop_watch.py": (1, "the CPU time of a thread, which stands still when virtual time goes on"),
    "cli/backfill.py": (2, "dates of a person's command"),
    "cli/plan.py": (1, "the calendar that a person's plan is written in"),
    "cli/listing.py": (1, SHOWN),
    "cli/progress.py": (4, SHOWN),
    "cli/render_calls.py": (1, SHOWN),
    "cli/schedule.py": (1, SHOWN),
    "cli/top.py": (1, SHOWN),
}


def uses(tree: ast.Module) -> int:
    """How often a module calls or passes on a clock of ``time`` or ``datetime``."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
        if alias.name in OF_TIME
    }
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += (node.value.id == "time" and node.attr in OF_TIME) or (
                node.value.id in {"datetime", "date"} and node.attr in OF_DATETIME
            )
        elif isinstance(node, ast.Name) and node.id in imported and isinstance(node.ctx, ast.Load):
            found += 1
    return found


def test_the_engine_reads_the_time_at_one_place() -> None:
    """Every other direct use of a clock is in the list, with its reason; testing's own tools live in real time."""
    found: Counter[str] = Counter()
    for file in sorted(ROOT.rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        if not name.startswith("testing/"):
            found[name] += uses(ast.parse(file.read_text()))
    assert +found == Counter({name: count for name, (count, _) in LEFT.items()})


def test_each_form_of_a_use_is_found() -> None:
    """A call, a function that is passed on, an alias; not another object's method of that name."""
    source = "import time\nfrom time import monotonic as m\nfrom datetime import datetime\n"
    assert uses(ast.parse(source)) == 0
    assert uses(ast.parse(source + "time.time(); m(); f(m, time.sleep); datetime.now()")) == 5
    assert uses(ast.parse(source + "machine_clock.time(); loop.time(); other.monotonic()")) == 0
