"""The benchmark is code like any other: its short form runs, and the page shows what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Each runs on an embedded server of its own, started and stopped by the benchmark.
COMPARED = ("steps_per_s", "compensating_sagas_per_s", "sequential_ms", "cpu_s_per_1000_steps")


def _run(script: str, *args: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "dev" / "benchmarks" / script), *args]
    environment = {**os.environ, "BENCH_HOME": str(home)}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=home, env=environment)


def test_the_booking_benchmark_runs(tmp_path: Path) -> None:
    """It measures the engine beside the floor and writes figures for both; what they are is for people to read."""
    out = tmp_path / "figures.json"
    ran = _run("booking.py", "--short", "--json", str(out), home=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(out.read_text())
    assert set(found["figures"]["engine"]) == set(found["figures"]["floor"])
    assert all(ratio > 0 for ratio in found["ratio_engine_to_floor"].values())
    assert "engine/floor" in ran.stdout


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the short form of the whole benchmark found, without peers."""
    home = tmp_path_factory.mktemp("bench")
    out = home / "figures.json"
    ran = _run("run.py", "--short", "--peers", "none", "--json", str(out), home=home)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(out.read_text())


@pytest.mark.slow
def test_the_benchmark_measures_every_workload(short_run: dict) -> None:
    """Throughput, latency, CPU and growth of floor and engine; then stops and waits: nothing is left out."""
    for name in ("floor", "engine"):
        entrant = short_run["entrants"][name]
        assert "missing" not in entrant, entrant
        assert all(entrant["median"][what] > 0 for what in COMPARED if what != "cpu_s_per_1000_steps")
        assert set(entrant["ms_per_step_by_length"]) == {"10", "100"}
    assert set(short_run["ratios"]["floor"]) == set(COMPARED)
    assert set(short_run["lives"]) >= {"resume", "take_over", "memory"}
    assert [task for task, found in short_run["lives"].items() if "missing" in found] == []


@pytest.mark.slow
def test_the_report_shows_what_was_measured(short_run: dict, tmp_path: Path) -> None:
    """The page's part and the plot can be made from any run, and name every entrant; a missing peer with its reason."""
    sys.path.insert(0, str(ROOT / "dev" / "benchmarks"))
    try:
        import report
    finally:
        sys.path.remove(str(ROOT / "dev" / "benchmarks"))
    gone = {"title": "Gone", "durable": True, "durability": "", "rounds": [], "missing": "no such package"}
    result = {**short_run, "entrants": {**short_run["entrants"], "gone": gone}}
    page = report.page(result)
    assert "Not measured: Gone (no such package)." in page
    assert "| **saga_engine** |" in page
    drawing = ET.fromstring(report.plot(result))
    words = [node.text for node in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("saga_engine") == words.count("the floor") == 3
    assert "nan" not in page
    assert "inf" not in " ".join(word or "" for word in words)


def test_the_page_is_what_was_measured_last(tmp_path: Path) -> None:
    """The committed page and plot are those of the committed figures: nobody edits a figure by hand."""
    ran = _run("report.py", "--check", home=tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_an_unknown_peer_is_refused(tmp_path: Path) -> None:
    """A name that is misspelt is no peer that silently stays away."""
    ran = _run("run.py", "--peers", "restates", home=tmp_path)
    assert ran.returncode != 0
    assert "restate" in ran.stderr
