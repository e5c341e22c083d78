"""One run of an agent in a process of its own: ``python -m …agent_child PROGRAM FOLDER SCENE [KILL]``.

``PROGRAM`` is a file with ``async def converse(session, turns) -> list[str]``: it runs an agent of its framework, whose
model asks for the calls of each turn and then ends, and returns what the model was told of each call. The run's outcome
is printed as one line of JSON.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from saga_engine.api import Coordinator
from saga_engine.errors import SagaError, SagaNotFound
from saga_engine.testing.agent_world import POLICY, TRIP, World

Turns = list[list[tuple[str, dict[str, Any]]]]
_HOLD: Final = ("hold", {"item": "room"})
#: What the model asks for, by scene; a scene with an answer resolves the question that the run before has left.
SCENES: Final[dict[str, Turns]] = {
    "trip": TRIP,
    "gives-up": TRIP,
    "lost": [[("hold", {"item": "lost"})], [_HOLD]],
    "pays": [[_HOLD], [("pay", {"amount": 7})]],
    "slips": [[("hold", {"itm": "room"})], [("hold", {"item": "nothing"})], [_HOLD]],
    "notes": [[("note", {"text": "hello"})]],
}


class _GivesUp(Exception):
    """The program around the agent is not content."""


async def run(program: ModuleType, folder: Path, scene: str, kill: str) -> dict[str, Any]:
    """The outcome: what the model was ``told``, the ``error`` that left the session, its ``status``, the ``ledger``."""
    world = World(folder, kill)
    name, _, answer = scene.partition("=")
    saga_id, told, error = name.replace("+", "-"), [], ""
    turns = SCENES[name.partition("+")[0]]
    store = f"embedded://{folder / 'store'}"
    async with Coordinator.open(store, world.tools(), policy=POLICY, lease_s=1, settings=None) as coordinator:
        if answer:
            await coordinator.resolve(saga_id, 2, answer)
        try:
            async with coordinator.session(saga_id) as session:
                told = await program.converse(session, turns)
                if name == "gives-up":
                    raise _GivesUp
        except Exception as failure:  # noqa: BLE001 - what a framework makes of it is told
            error = _named(failure)
        try:
            status = (await coordinator.show(saga_id)).status
        except SagaNotFound:
            status = ""  # the agent never came to a call
    return {"told": told, "error": error, "status": status, "ledger": world.ledger()}


def _named(failure: BaseException) -> str:
    """The engine's error, also where a framework has wrapped it; else the error's name."""
    if isinstance(failure, SagaError):
        return failure.code
    return _named(failure.__cause__) if failure.__cause__ is not None else type(failure).__name__


def main() -> None:
    """Run one scene."""
    path, folder, scene, kill = (*sys.argv[1:], "")[:4]
    spec = importlib.util.spec_from_file_location("converse_program", path)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    sys.modules["converse_program"] = program  # classes look for their names there
    spec.loader.exec_module(program)
    print(json.dumps(asyncio.run(run(program, Path(folder), scene, kill))))  # noqa: T201 - the outcome


if __name__ == "__main__":
    main()
