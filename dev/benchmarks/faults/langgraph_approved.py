"""LangGraph: an operator approves a transfer; the process is killed after the bank made it; the graph is resumed.

The question and the effect stand in two nodes, as LangGraph's documentation advises, and ``durability="sync"`` writes
a checkpoint before the next node begins.
"""

from __future__ import annotations

import sys
from typing import TypedDict

import world
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt


class Transfer(TypedDict, total=False):
    approved: bool
    receipt: str


def ask(state: Transfer) -> Transfer:  # noqa: ARG001
    """The question."""
    return {"approved": interrupt("transfer 500 to Bob?") == "approve"}


def pay(state: Transfer) -> Transfer:
    """The effect."""
    return {"receipt": world.act("transfer of 500 to Bob")} if state["approved"] else {}


def main(phase: str) -> None:
    """One process: start, approve (which dies), or resume."""
    graph = StateGraph(Transfer)
    graph.add_node("ask", ask)
    graph.add_node("pay", pay)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "pay")
    graph.add_edge("pay", END)
    thread = {"configurable": {"thread_id": "transfer-1"}}
    with SqliteSaver.from_conn_string("graph.sqlite") as saver:
        compiled = graph.compile(checkpointer=saver)
        given = {"start": {"approved": False}, "approve": Command(resume="approve"), "resume": None}[phase]
        state = compiled.invoke(given, thread, durability="sync")
        asked = state.get("__interrupt__")
        print("  the graph asks:", asked[0].value if asked else "nothing;", "" if asked else "it has ended")


if __name__ == "__main__":
    main(sys.argv[1])
