"""The benchmark is code like any other: its short form runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_booking_benchmark_runs(tmp_path: Path) -> None:
    """It measures the engine beside the floor and writes figures for both; what they are is for people to read."""
    out = tmp_path / "figures.json"
    command = [sys.executable, str(ROOT / "benchmarks/booking.py"), "--short", "--json", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(out.read_text())
    assert set(found["figures"]["engine"]) == set(found["figures"]["floor"])
    assert all(ratio > 0 for ratio in found["ratio_engine_to_floor"].values())
    assert "engine/floor" in ran.stdout
