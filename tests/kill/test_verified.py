"""A process that is killed around the look after an undo: nothing is undone twice, and no lie is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.forker import run_python
from tests.support.servers import EmbeddedFolder

CHILD = Path(__file__).with_name("verified_child.py")


def run(url: str, world: Path, moment: str, saga: str) -> tuple[int, dict[str, Any]]:
    code, out, err = run_python(
        str(CHILD), url, str(world), moment, saga, cwd=world.parent, env={"PYTHONPATH": str(CHILD.parents[2])}
    )
    assert out or code < 0, err
    return code, json.loads(out) if out else {}


@pytest.mark.parametrize("lies", [False, True])
@pytest.mark.parametrize("moment", ["undo", "look", "seen", "told"])
def test_an_undo_is_looked_at_after_a_kill(moment: str, lies: bool, tmp_path: Path, embedded: EmbeddedFolder) -> None:
    """The undo is made once, its look is made again unless its record is durable, and there is one record of it."""
    world = tmp_path / "world.json"
    begin = {"n": 10, "undos": 0, "looks": 0, "looked": False, "lies": lies, "keys": [], "ended": False}
    world.write_text(json.dumps(begin))
    saga = f"{moment}-{lies}"
    code, _ = run(embedded.url, world, moment, saga)
    assert code == -9
    code, told = run(embedded.url, world, moment, saga)
    assert code == 0
    now = json.loads(world.read_text())
    assert now["undos"] == 1
    if lies:
        assert now["n"] == 12
        assert (told["status"], told["asked"]) == ("ESCALATED", ["undo-unverified"])
        assert told["records"] == 0
    else:
        assert now["n"] == 10
        assert (told["status"], told["asked"], told["verified"], told["report"]) == ("COMPENSATED", [], True, [1])
        assert told["records"] == (0 if moment == "undo" else 1)  # (the read that settles the doubt has told)
