"""Writes the figures of a run into ``docs/performance.md``, between its markers, and the plot beside it.

    python dev/benchmarks/report.py [--json FILE] [--check]

``--check`` writes nothing and fails if the page is not what it would write.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from drawing import Bar, Panel, draw, number

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "benchmark.svg"
LATEST = ROOT / "dev" / "benchmarks" / "results" / "latest.json"
BEGIN = "<!-- benchmark: written by dev/benchmarks/report.py -->"
END = "<!-- end of benchmark -->"

_PANELS = {
    "steps_per_s": "Durable steps per second, at the best concurrency (more is better)",
    "sequential_ms": "Milliseconds per saga of three steps, one saga at a time (less is better)",
    "cpu_s_per_1000_steps": "CPU seconds per 1,000 steps, client and server (less is better)",
}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is words, the others are figures."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def present(result: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The entrants that were measured, the fastest first, those that keep nothing last."""
    found = [(name, entrant) for name, entrant in result["entrants"].items() if "median" in entrant]
    return sorted(found, key=lambda item: (not item[1]["durable"], -item[1]["median"]["steps_per_s"]))


# --- the parts of the page -----------------------------------------------------------------------------------------


def introduction(result: dict[str, Any]) -> str:
    machine, disk = result["machine"], result["disk_appends_per_s"]
    return (
        f"Measured {result['when'][:10]} on {machine['cores']} cores ({machine['cpu']}, {machine['memory_gib']} GiB), "
        f"Linux {machine['kernel']}, Python {machine['python']}, event loop {result['loop']}, {result['rounds']} "
        f"{'round' if result['rounds'] == 1 else 'rounds'}. The disk completed {number(min(disk))} to "
        f"{number(max(disk))} appends of 300 bytes with fsync a second, one at a time "
        f"(median {number(statistics.median(disk))})."
    )


def comparison(result: dict[str, Any]) -> str:
    rows = []
    for name, entrant in present(result):
        row = entrant["median"]
        ratio = result["ratios"].get(name, {})
        title = entrant["title"] if entrant["durable"] else f"{entrant['title']} (not durable)"
        rows.append(
            [
                f"**{title}**" if name == "engine" else title,
                number(row["steps_per_s"]),
                str(round(row["at_once"])),
                number(row["compensating_sagas_per_s"]),
                number(row["sequential_ms"]),
                f"{number(row['client_cpu_s_per_1000_steps'])} + {number(row['server_cpu_s_per_1000_steps'])}",
                "" if not ratio else f"{number(ratio['steps_per_s'])} ×",
                "" if not ratio else f"{number(ratio['compensating_sagas_per_s'])} ×",
                "" if not ratio else f"{number(1 / ratio['sequential_ms'])} ×",
            ]
        )
    heads = [
        "system",
        "steps/s",
        "concurrent sagas",
        "compensating sagas/s",
        "ms per saga",
        "CPU s per 1,000 steps (client + server)",
        "steps/s of the engine ÷ system",
        "compensating sagas/s, engine ÷ system",
        "ms per saga, system ÷ engine",
    ]
    missing = [
        f"{'Left out after some rounds' if entrant['rounds'] else 'Not measured'}: {entrant['title']} "
        f"({entrant['missing']})."
        for entrant in result["entrants"].values()
        if "missing" in entrant
    ]
    return "\n\n".join([table(heads, rows), *missing])


def settings(result: dict[str, Any]) -> str:
    rows = [
        [
            entrant["title"],
            ", ".join(f"{package} {version}" for package, version in entrant["versions"].items()),
            entrant["durability"],
        ]
        for _, entrant in present(result)
    ]
    lines = [["system", "versions", "durability and settings"], ["---"] * 3, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def growth(result: dict[str, Any]) -> str:
    """Milliseconds a step in longer and longer sagas."""
    found = [(entrant["title"], entrant) for _, entrant in present(result)]
    lengths = sorted(
        {int(length) for _, entrant in found for length in entrant.get("ms_per_step_by_length", {})},
    )
    rows, notes = [], []
    for title, entrant in found:
        if "growth_missing" in entrant:
            notes.append(f"{title} could not run all lengths: {entrant['growth_missing']}.")
        by_length = entrant.get("ms_per_step_by_length", {})
        cells = [by_length.get(str(length)) for length in lengths]
        known = [cell for cell in cells if cell is not None]
        times = number(known[-1] / known[0]) if len(known) > 1 else ""
        rows.append([title, *("" if cell is None else number(cell) for cell in cells), times])
    if any("" in cells[1:-1] for cells in rows):
        notes.insert(0, "An empty cell means that the measurement would have taken too long.")
    heads = ["ms per step in one saga of", *(f"{length:,} steps" for length in lengths), "longest to shortest"]
    return "\n\n".join([table(heads, rows), *notes])


def targets(result: dict[str, Any]) -> str:
    """Each target, the measured value, and whether the target is met."""
    ours, ratios, lives = result["entrants"]["engine"], result["ratios"], result["lives"]
    rows: list[list[str]] = []

    def row(
        what: str, aim: str, value: float | None, unit: str, *, most: float | None = None, least: float = 0
    ) -> None:
        if value is None:
            return
        met = value <= most if most is not None else value >= least
        rows.append([what, aim, f"{number(value)}{unit}", "yes" if met else "no"])

    floor = ratios.get("floor", {})
    row("durable steps/s", "≥ 50 % of the floor", 100 * floor["steps_per_s"], " %", least=50)
    for name, aim in (("agent-saga", 4), ("restate", 20)):
        if name in ratios:
            title = result["entrants"][name]["title"]
            row("durable steps/s", f"≥ {aim} × {title}", ratios[name]["steps_per_s"], " ×", least=aim)
    row("compensating sagas/s", "≥ 45 % of the floor", 100 * floor["compensating_sagas_per_s"], " %", least=45)
    row("latency of sequential sagas", "≤ 1.25 × the floor", floor["sequential_ms"], " ×", most=1.25)
    row("CPU per step, client and server", "≤ 3 × the floor", floor["cpu_s_per_1000_steps"], " ×", most=3)
    lengths = ours.get("ms_per_step_by_length", {})
    if lengths.get("10000"):
        grown = lengths["10000"] / lengths["10"]
        row("cost of a step at 10,000 steps in one saga", "≤ 1.2 × that at 10", grown, " ×", most=1.2)
    resumed = lives.get("resume", {}).get("10000")
    if resumed:
        # A saga of the floor is one append for each of its three steps, and one for its end.
        append = result["entrants"]["floor"]["median"]["sequential_ms"] / 4
        row("resume of a saga of 10,000 steps", "≤ 500 × one durable append", resumed / append, " ×", most=500)
    memory = lives.get("memory", {})
    if "driven" in memory:
        client = memory["driven"]["resident_bytes"] / 1024
        row("memory of a waiting saga, in the client", "≤ 8 KiB", client, " KiB", most=8)
        parked = memory["parked"]["traced_bytes"] / 1024
        row("… in a worker", "0 (≤ 0.1 KiB)", parked, " KiB", most=0.1)
        store = memory["parked"]["store_beyond_journal_bytes"] / 1024
        row("… and in the store beyond its journal", "≤ 3 KiB", store, " KiB", most=3)
    flight = lives.get("take_over", {})
    for way, title in (
        ("dead_owner", "the owner is provably dead"),
        ("by_lease", "only the end of its lease shows it"),
    ):
        if way in flight:
            limit = flight["lease_s"] + 5
            what = f"take-over of {flight['sagas']:,} sagas in flight after SIGKILL: {title}"
            row(what, f"all resumed within lease + 5 s = {limit:.0f} s", flight[way]["last_s"], " s", most=limit)
    workers = lives.get("workers", {})
    if "busy" in workers:
        row("4 workers compared with 1, store not saturated", "≥ 1.8 ×", workers["busy"]["ratio"], " ×", least=1.8)
    lines = [["metric", "target", "measured", "met"], ["---"] * 4, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def lives(result: dict[str, Any]) -> str:
    """The measurements of the engine's resumes, waits and workers."""
    found, parts = result["lives"], []
    resume = found.get("resume", {})
    if resume and "missing" not in resume:
        timed = [(result["entrants"]["engine"]["title"], resume, "from `resume` to the end, in another coordinator")]
        timed += [
            (entrant["title"], entrant["resume_ms_by_length"], entrant["resume"])
            for _, entrant in present(result)
            if "resume_ms_by_length" in entrant
        ]
        rows = [
            [title, *(number(ms[length]) if length in ms else "" for length in resume), what]
            for title, ms, what in timed
        ]
        heads = [
            "ms to resume, one step left of",
            *(f"{int(length):,} steps" for length in resume),
            "measured interval",
        ]
        parts.append(table(heads, rows))
    memory = found.get("memory", {})
    if "driven" in memory:
        driven, parked = memory["driven"], memory["parked"]
        parts.append(
            f"A saga that waits for its next attempt costs {number(driven['resident_bytes'] / 1024)} KiB of the "
            f"resident memory of the process that runs it ({number(driven['traced_bytes'] / 1024)} KiB of Python "
            f"objects); a worker releases it and keeps {number(max(parked['traced_bytes'], 0) / 1024)} KiB. The store "
            f"uses {number(parked['store_bytes'] / 1024)} KiB including its timer, of which "
            f"{number(parked['journal_bytes'] / 1024)} KiB are its journal's records ({memory['sagas']:,} sagas)."
        )
    flight = found.get("take_over", {})
    if "dead_owner" in flight:
        ways = [f"{number(flight['dead_owner']['last_s'])} s if the owner is provably dead"]
        if "by_lease" in flight:
            ways.append(
                f"{number(flight['by_lease']['last_s'])} s if only the end of its lease of {flight['lease_s']:.0f} s "
                "shows it, as after the loss of a machine"
            )
        parts.append(
            f"{flight['sagas']:,} sagas were in flight when their worker got SIGKILL. Another worker had resumed the "
            f"last of them after {' and '.join(ways)}. Each had a call in doubt and repeated it under its key."
        )
    workers = found.get("workers", {})
    if "busy" in workers:
        busy, idle = workers["busy"], workers.get("idle")
        text = (
            f"With tools that use {number(workers['call_ms'])} ms of CPU per call, one worker process completed "
            f"{number(busy['one_sagas_per_s'])} sagas per second and four completed "
            f"{number(busy['four_sagas_per_s'])}: {number(busy['ratio'])} ×."
        )
        if idle:
            text += (
                f" With tools that do nothing, they completed {number(idle['one_sagas_per_s'])} and "
                f"{number(idle['four_sagas_per_s'])}, {number(idle['ratio'])} ×: workers and server share the cores."
            )
        parts.append(text)
    parts += [f"Not measured: {task} ({one['missing']})." for task, one in found.items() if "missing" in one]
    return "\n\n".join(parts)


def page(result: dict[str, Any]) -> str:
    """The text between the markers."""
    return "\n\n".join(
        [
            BEGIN,
            introduction(result),
            f"![steps per second, latency and CPU of the engine, the floor and the peers]({PLOT.name})",
            comparison(result),
            "### Targets",
            targets(result),
            "### Longer sagas",
            growth(result),
            "### Stops, waits, workers",
            lives(result),
            "### Versions and settings",
            settings(result),
            END,
        ]
    )


def plot(result: dict[str, Any]) -> str:
    panels = []
    for what, title in _PANELS.items():
        bars = [
            Bar(
                entrant["title"] if entrant["durable"] else f"{entrant['title']} *",
                entrant["median"][what],
                name if name in ("floor", "engine") else "peer" if entrant["durable"] else "fleeting",
            )
            for name, entrant in present(result)
        ]
        panels.append(Panel(title, bars))
    note = "" if all(entrant["durable"] for _, entrant in present(result)) else " * not durable."
    return draw(panels, f"Logarithmic scales. All at their strongest durability, in turns on one machine.{note}")


def written(text: str, result: dict[str, Any]) -> str:
    """The page with the new figures in it."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{PAGE} lacks the line {BEGIN!r} or {END!r}")
    return before + page(result) + after


def main() -> None:
    """Parse, then write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=LATEST)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    result = json.loads(args.json.read_text())
    text = PAGE.read_text(encoding="utf-8")
    new = {PAGE: written(text, result), PLOT: plot(result)}
    if args.check:
        stale = [path.name for path, body in new.items() if not path.exists() or path.read_text("utf-8") != body]
        sys.exit(f"out of date: {', '.join(stale)}; run dev/benchmarks/report.py" if stale else 0)
    for path, body in new.items():
        path.write_text(body, encoding="utf-8")
        print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
