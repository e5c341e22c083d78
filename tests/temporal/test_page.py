"""What docs/temporal.md shows can be done as it stands there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.temporal.server import TemporalServer


def test_the_example_runs(temporal: TemporalServer, tmp_path: Path) -> None:
    """The page's program runs in an empty folder, with nothing but a server."""
    (block,) = blocks("python temporal")
    (tmp_path / "example.py").write_text(block.body, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(ROOT), "SAGA_RUNTIME": temporal.url}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "COMPLETED {'order_id': 'F-1'}\n"
