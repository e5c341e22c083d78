"""A large plan costs no long garbage collection in a process that lasts: each would stop everything."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.forker import ROOT, run_python

_PROGRAM = """
import gc, json, sys
from saga_engine.cli.drive import freeze_loaded
from saga_engine.execution import plan_cache
from saga_engine.plan.model import Plan

class Garbage:
    gone = 0

    def __init__(self):
        self.me = self

    def __del__(self):
        Garbage.gone += 1


plan_cache._LOOK_EACH = 4
steps = [{"step_id": at, "tool": "book", "params": {"at": [at]}, "kind": "irreversible"} for at in range(400)]
if sys.argv[1] == "frozen":
    freeze_loaded()
else:
    gc.collect()
before, looked_at = gc.get_freeze_count(), len(gc.get_objects())
for at in range(int(sys.argv[2])):
    plan = more = None
    with plan_cache.no_collection():
        plan = Plan.model_validate({"steps": steps})
        Garbage()
        more = [[at] for at in range(plan_cache._MANY_NEW)]
gone = Garbage.gone
held = gc.get_freeze_count() - before, len(gc.get_objects()) - looked_at
del plan, more
gc.collect()
left = gc.get_freeze_count() - before, len(gc.get_objects()) - looked_at
print(json.dumps([held, left, gone]))
"""


def _measured(tmp_path: Path, *args: str) -> tuple[tuple[int, int], tuple[int, int], int]:
    """How many objects more are frozen and are looked at by a collection, with a large plan and after it.

    And how much of what had become garbage has been found before.
    """
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    status, out, err = run_python(str(program), *args, cwd=ROOT, env=dict(os.environ))
    assert status == 0, err
    held, left, found = json.loads(out)
    return held, left, found


def test_a_process_that_lasts_looks_at_no_large_plan(tmp_path: Path) -> None:
    """It is frozen with what the process has loaded, and freed with its last reference."""
    held, left, found = _measured(tmp_path, "frozen", "3")
    assert held[0] > 20_000
    assert held[1] < 1_000
    assert left[0] < 2_000
    assert found == 0


def test_any_other_program_has_nothing_frozen(tmp_path: Path) -> None:
    """Its own collections look at all that it has, later."""
    held, *_ = _measured(tmp_path, "free", "1")
    assert held[0] == 0
    assert held[1] > 20_000


def test_what_was_garbage_is_looked_for_now_and_then(tmp_path: Path) -> None:
    """After many large plans everything is looked at once."""
    held, left, found = _measured(tmp_path, "frozen", "4")
    assert held[0] > 20_000
    assert left[0] < 2_000
    assert found == 4
