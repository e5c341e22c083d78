"""LangGraph: a node for each call with a retry policy, a checkpointer in SQLite, ``durability="sync"``.

A thread that was killed goes on from its checkpoint. It has no undo: after a failure the checkpoint says which nodes
are done.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy
from world import Refused, steps_of


class State(TypedDict, total=False):
    done: Annotated[list, operator.add]


def _node(run: Any, task: str, step: int, tool: str) -> Any:
    def call(_: State) -> dict[str, Any]:
        run.world.call(task, step, tool)["ref"]
        return {"done": [step]}

    return call


def play(run: Any) -> None:
    """A graph for each task."""
    policy = RetryPolicy(
        max_attempts=3, initial_interval=0.01, max_interval=0.01, retry_on=lambda error: not isinstance(error, Refused)
    )
    with SqliteSaver.from_conn_string(str(run.folder / "graph.sqlite")) as saver:
        for task in run.tasks:
            graph, last = StateGraph(State), START
            for step, tool in steps_of(task):
                graph.add_node(str(step), _node(run, task["id"], step, tool), retry_policy=policy)
                graph.add_edge(last, str(step))
                last = str(step)
            graph.add_edge(last, END)
            made = graph.compile(checkpointer=saver)
            config = {"configurable": {"thread_id": f"{run.name}-{task['id']}"}, "recursion_limit": 200}
            begun = bool(made.get_state(config).next)
            try:
                made.invoke(None if begun else {"done": []}, config, durability="sync")
            except Exception:  # noqa: BLE001 - the graph has failed
                run.told(task, goal=False, named=set(made.get_state(config).values.get("done", ())))
            else:
                run.told(task, goal=True)
