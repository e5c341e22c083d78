"""DBOS: a trip whose hotel books and does not answer; the workflow is restarted from the step that failed.

That is what its documentation offers for a workflow that has failed: a fork from a step, under a new workflow id. Then
the card is declined.
"""

from __future__ import annotations

import sys

import world
from dbos import DBOS, DBOSConfig, SetWorkflowID


@DBOS.step()
def flight() -> str:
    return world.act("flight CA1234")


@DBOS.step()
def hotel() -> str:
    world.lost("room in the Ibis")
    return "room in the Ibis"


@DBOS.step()
def pay() -> str:
    raise ValueError("the card is declined")


@DBOS.workflow()
def trip() -> None:
    flight()
    hotel()
    pay()


def main(phase: str) -> None:
    """One process: start, or resume."""
    config = DBOSConfig(
        name="trip",
        system_database_url="sqlite:///dbos.sqlite",
        log_level="CRITICAL",
        application_version="1",
        run_admin_server=False,
    )
    DBOS(config=config)
    DBOS.launch()
    try:
        if phase == "start":
            with SetWorkflowID("trip-1"):
                handle = DBOS.start_workflow(trip)
        else:
            failed = next(step for step in DBOS.list_workflow_steps("trip-1") if step["error"])
            handle = DBOS.fork_workflow("trip-1", failed["function_id"])
        try:
            handle.get_result()
        except (TimeoutError, ValueError) as error:
            print(f"  the workflow is {handle.get_status().status}: {error}")
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1])
