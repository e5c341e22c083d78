"""What becomes of AgentDojo's injected effects: asked about first, undone when they are found out, or named.

An agent that fell for an injection makes its calls in a session. An operator's policy asks about each tool for which
its suite has no inverse (those that ``INVERSES`` does not name). After the agent somebody finds out, and the session is
undone. ``python injected.py --tasks FILE --out FILE``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, NeedsPerson, tool

#: The tools of the suites that take back what another one does; a value that was changed is set again.
INVERSES = {
    "create_calendar_event": "cancel_calendar_event",
    "delete_file": "create_file",
    "invite_user_to_slack": "remove_user_from_slack",
    "remove_user_from_slack": "invite_user_to_slack",
    "update_scheduled_transaction": "update_scheduled_transaction",
}


def tools_of(names: set[str], effects: list[tuple[str, str]]) -> list[Any]:
    """A tool for each name, whose effects stand in a list; with its inverse where the suite has one."""

    def made(name: str) -> Any:
        inverse = INVERSES.get(name)

        @tool(name=f"undo.{name}", tolerates_absence=True)
        def undo(key: str) -> None:
            effects[:] = [each for each in effects if each[1] != key]

        options: dict[str, Any] = {"undo": undo, "undo_params": {"key": "$key"}} if inverse else {}

        @tool(name=name, **options)
        def act(about: str, idempotency_key: str) -> dict[str, str]:  # noqa: ARG001 - what the call is about
            effects.append((name, idempotency_key))
            return {"key": idempotency_key}

        return act

    return [made(name) for name in sorted(names)]


async def played(tasks: list[dict[str, Any]]) -> dict[str, int]:
    """Each injection in a session of its own."""
    found = dict.fromkeys(("injections", "effects", "asked", "undone", "named", "unnamed"), 0)
    names = {call["tool"] for task in tasks for call in task["calls"]}
    effects: list[tuple[str, str]] = []
    final = sorted(names - set(INVERSES))
    policy = {"rules": [{"name": "final", "tools": final, "verdict": "ask", "direction": "forward"}]}
    options: dict[str, Any] = {"policy": policy, "on_escalation": (), "settings": None, "durability": "relaxed"}
    async with Coordinator.open("memory://", tools_of(names, effects), **options) as engine:
        for task in tasks:
            found["injections"] += 1
            for number, call in enumerate(task["calls"]):
                found["effects"] += 1
                saga_id = f"{task['id']}-{number}"
                try:
                    async with engine.session(saga_id) as session:
                        about = json.dumps(call["params"], default=str)[:2000]
                        await session.call(call["tool"], about=about, irreversible=call["tool"] in final)
                        made = len(effects)
                        await session.rollback()
                        found["undone"] += made - len(effects)
                except NeedsPerson:
                    found["asked"] += 1
                left = (await engine.show(saga_id)).body["report"]["left_in_place"] if effects else []
                found["named"] += len(left)
                found["unnamed"] += len(effects) - len(left)
                effects.clear()
    return found


def main() -> None:
    """Plays the injected tasks, and adds what came out to the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "score.json")
    given = parser.parse_args()
    tasks = [task for task in json.loads(given.tasks.read_text()) if "injected" in task["id"]]
    found = asyncio.run(played(tasks))
    body = json.loads(given.out.read_text()) if given.out.exists() else {}
    given.out.write_text(json.dumps(body | {"injected": found}, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
