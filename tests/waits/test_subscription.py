"""The example of subscriptions does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "subscription" / "renewals.py"


def test_the_example_agrees_with_its_world(tmp_path: Path) -> None:
    """Filled-in ticks, a tick that is not repeated, two prices, a refused card and a live tick; nothing is left behind."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env=env | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all agreed" in done.stdout
    assert list(tmp_path.iterdir()) == []
