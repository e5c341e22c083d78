"""A process that is killed while it writes what its saga expects: whoever resumes overwrites nobody's value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.forker import run_python
from tests.support.servers import EmbeddedFolder

CHILD = Path(__file__).with_name("expected_child.py")


def run(url: str, world: Path, moment: str, saga: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run_python(
        str(CHILD), url, str(world), moment, saga, cwd=world.parent, env={"PYTHONPATH": str(CHILD.parents[2])}
    )
    assert out or code < 0, err
    return code, json.loads(out) if out else {}


@pytest.mark.parametrize(
    ("moment", "rival", "left"),
    [
        ("before", None, {"status": "COMPLETED", "n": 12, "puts": 2}),  # as it was read: made again
        ("after", None, {"status": "COMPLETED", "n": 12, "puts": 1}),  # as the call leaves it: settled
        ("before", 11, {"status": "ESCALATED", "n": 11, "puts": 1}),  # somebody else's: asked
        ("after", 11, {"status": "ESCALATED", "n": 11, "puts": 1}),
    ],
)
def test_nobody_is_overwritten_after_a_kill(
    moment: str, rival: int | None, left: dict[str, Any], tmp_path: Path, embedded: EmbeddedFolder
) -> None:
    """Killed before or after the effect; in between somebody else writes, or nobody does."""
    world = tmp_path / "world.json"
    world.write_text(json.dumps({"n": 10, "puts": 0, "keys": [], "ended": False}))
    code, _ = run(embedded.url, world, moment, f"{moment}-{rival}")
    assert code == -9
    if rival is not None:
        world.write_text(json.dumps(json.loads(world.read_text()) | {"n": rival}))
    code, told = run(embedded.url, world, moment, f"{moment}-{rival}")
    now = json.loads(world.read_text())
    assert {"status": told["status"], "n": now["n"], "puts": now["puts"]} == left
    assert told["asked"] == (["changed_meanwhile"] if rival else [])
