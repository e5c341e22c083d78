"""The example of orders that wait for a webhook does what its page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "webhook" / "orders.py"


def test_the_shops_book_agrees(tmp_path: Path) -> None:
    """A payment in time, one that is repeated, one that is forged, and two that are paid back, each of them once."""
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
