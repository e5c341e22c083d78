"""agent-saga: each call in a scope, with a compensation; its log in a file.

After a kill the next process resolves what its recovery daemon finds: it compensates, or names what it escalates.
"""

from __future__ import annotations

import logging
from typing import Any

from agent_saga import ActionSemantics, Compensation, FileWAL, RecoveryDaemon, compensator, saga_scope
from agent_saga.context import SagaAborted
from world import steps_of

RUN: Any = None


@compensator("take_back")
def take_back(task: str, step: int, **_: Any) -> None:
    RUN.world.undo(task, step)


def _steps(found: Any) -> set[int]:
    return {int(str(getattr(each, "tool", each)).rpartition("/")[2]) for each in found}


async def play(run: Any) -> None:
    """A scope for each task."""
    global RUN  # noqa: PLW0603 - a handler is a function of a module
    RUN = run
    logging.disable(logging.CRITICAL)
    path = run.folder / "wal.jsonl"
    if path.exists():
        outcomes = await RecoveryDaemon(path, journal_path=run.folder / "journal.jsonl").recover_all()
        if run.tasks and run.world.calls(run.tasks[0]["id"]):
            task = run.tasks.pop(0)  # it was under way
            left = {each for outcome in outcomes for each in _steps(outcome.escalated)}
            run.told(task, goal=False, named=left)
    wal = FileWAL(path)
    await wal.start()
    for task in run.tasks:
        name = task["id"]
        try:
            async with saga_scope(wal=wal, name=name, halt_on_compensation_failure=False) as scope:
                for step, tool in steps_of(task):
                    kwargs = {"task": name, "step": step}

                    def forward(task: str, step: int, tool: str = tool) -> str:
                        return run.world.call(task, step, tool)["ref"]

                    def compensate(_: Any, kwargs: dict[str, Any] = kwargs) -> Compensation:
                        return Compensation(fn=take_back, handler="take_back", kwargs=dict(kwargs))

                    await scope.execute(
                        tool=f"{tool}/{step}",
                        semantics=ActionSemantics.COMPENSABLE,
                        forward=forward,
                        forward_kwargs=kwargs,
                        compensate=compensate,
                    )
        except SagaAborted as aborted:
            report = aborted.report
            run.told(task, goal=False, named=_steps([*report.failed, *report.orphaned, *report.unresolved]))
        else:
            run.told(task, goal=True)
    await wal.close()
