"""The table of docs/scale.md follows from a model; its arithmetic is checked here, and the runs in their short forms."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> object:
    """The script as a module."""
    sys.path.insert(0, str(ROOT / "dev" / "benchmarks"))
    try:
        import scale
    finally:
        sys.path.remove(str(ROOT / "dev" / "benchmarks"))
    return scale


def test_the_costs_are_those_that_made_the_measurements(scale) -> None:
    """Two measurements of a step that costs a fixed part and a part for each call give both parts back."""
    few = scale.Measured(100e-6 + 0.2 * 80e-6, 40e-6 + 0.2 * 90e-6, 0.2)
    many = scale.Measured(100e-6 + 0.9 * 80e-6, 40e-6 + 0.9 * 90e-6, 0.9)
    client, server = scale.costs(few, many)
    assert [*client, *server] == pytest.approx([100e-6, 80e-6, 40e-6, 90e-6])
    assert client.at(0.5) == pytest.approx(140e-6)


def test_noise_makes_no_negative_cost(scale) -> None:
    """Where more calls happened to cost less, or as many were made, a call costs nothing and a step what it did."""
    few = scale.Measured(100e-6, 50e-6, 0.5)
    for many in (scale.Measured(90e-6, 40e-6, 0.9), scale.Measured(300e-6, 90e-6, 0.5)):
        assert [tuple(cost) for cost in scale.costs(few, many)] == [(100e-6, 0.0), (50e-6, 0.0)]


@pytest.mark.parametrize("machines", [1, 2, 10, 1000])
def test_no_core_is_counted_twice_and_no_store_has_too_many_shards(scale, machines: int) -> None:
    """Shards and workers use all cores, a store has at most 16 shards, and the slower side decides the speed."""
    row = scale.size(machines, 8, 150e-6, 75e-6)
    assert row.shards + row.workers == machines * 8
    assert row.stores == math.ceil(row.shards / 16)
    assert row.steps_per_s == pytest.approx(min(row.shards / 75e-6, row.workers / 150e-6))
    assert row.shards == pytest.approx(machines * 8 / 3, abs=1)


def test_the_page_has_what_the_model_says(scale) -> None:
    """The table of the page follows from the row that it names as measured, to two digits."""
    page = (ROOT / "docs" / "scale.md").read_text()
    (cells,) = [line.split("|") for line in page.splitlines() if line.startswith("| three shards, 256")]
    process_s, servers_s = float(cells[3]) / 1e6, float(cells[4]) / 1e6
    for machines in scale.MACHINES:
        row = scale.size(machines, 8, process_s, servers_s)
        steps = float(f"{row.steps_per_s:.2g}")
        shown = f"| {machines:,} | {row.stores:,} | {row.shards:,} | {row.workers:,} | {steps:,.0f} |"
        assert any(_same(line, shown) for line in page.splitlines()), shown


def _same(line: str, shown: str) -> bool:
    """Whether a row of the page has these cells; the page's CPU is rounded, so shards and workers may differ by one %."""
    found, wanted = ([cell.strip().replace(",", "") for cell in row.split("|")[1:-1]] for row in (line, shown))
    if len(found) != len(wanted) or not all(cell.isdigit() for cell in found):
        return False
    return found[0] == wanted[0] and all(
        abs(int(a) - int(b)) <= max(int(b) // 100, 0) for a, b in zip(found, wanted, strict=True)
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the CPU of the servers is read from /proc")
def test_the_short_form_measures_one_and_three_shards(tmp_path: Path) -> None:
    """It forms both clusters, measures CPU and calls on each, and ends with a table; the figures are for people."""
    out = tmp_path / "scale.json"
    command = [sys.executable, str(ROOT / "dev" / "benchmarks" / "scale.py"), "--short", "--json", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ})
    assert ran.returncode == 0, ran.stderr
    found = json.loads(out.read_text())
    assert set(found["measured"]) == {"few", "many", "three"}
    assert all(value > 0 for each in found["measured"].values() for value in each.values())
    assert [row["machines"] for row in found["rows"]] == [1, 10, 100, 1000]


@pytest.mark.skipif(sys.platform != "linux", reason="memory and CPU are read from /proc")
def test_the_short_form_fills_a_store_with_sagas_that_wait(tmp_path: Path) -> None:
    """All of them are live and none is driven; those that get their event complete; the figures are for people."""
    out = tmp_path / "waiting.json"
    sizes = [
        "--sagas",
        "400",  # of a few, the memory is lost among what connections use
        "--fillers",
        "2",
        "--idle",
        "0.1",
        "--events",
        "2",
        "--folder",
        str(tmp_path),
        "--json",
        str(out),
    ]
    command = [sys.executable, str(ROOT / "dev" / "benchmarks" / "waiting.py"), *sizes]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ})
    assert ran.returncode == 0, ran.stderr
    found = json.loads(out.read_text())
    assert (found["live"], found["driven"], found["event_to_call"]["completed"]) == (400, 0, 2)
    assert found["server_bytes_a_saga"] > 0
    assert all(found["page_ms"].values())
