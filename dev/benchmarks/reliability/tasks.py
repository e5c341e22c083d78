"""The tasks: recorded gold actions of tau2-bench, BFCL (multi-turn) and AgentDojo, without those that only read.

``python tasks.py --out FILE [--each N]`` writes them; it runs in the score's own environment, which has the data sets.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import random
from pathlib import Path
from typing import Any

#: Calls whose name begins so, or is one of these, change nothing.
READS = (
    *("get_", "find_", "list_", "search_", "check_", "read_", "view_", "calculate", "estimate_", "display", "verify_"),
    *("query_", "lookup_", "compute_", "transfer_to_human", "run_speed_test", "can_send", "think"),
)
NAMES = frozenset(
    {"ls", "cat", "cd", "pwd", "grep", "tail", "sort", "diff", "find", "wc", "du", "logarithm", "mean", "add", "divide"}
    | {"multiply", "subtract", "power", "percentage", "standard_deviation", "max_value", "min_value", "sum_values"}
    | {"round_number", "square_root", "absolute_value", "liter_to_gallon", "gallon_to_liter", "imperial_si_conversion"}
    | {"si_unit_conversion", "message_get_login_status", "posting_get_login_status", "ticket_get_login_status"}
)


def writes(name: str) -> bool:
    """Whether a call changes the world, by its name."""
    return not (name in NAMES or name.startswith(READS))


def tau2(data: Path) -> list[dict[str, Any]]:
    """Airline, retail, telecom."""
    found = []
    for domain, file in (("airline", "tasks"), ("retail", "tasks"), ("telecom", "tasks_small")):
        for task in json.loads((data / domain / f"{file}.json").read_text()):
            calls = (task.get("evaluation_criteria") or {}).get("actions") or []
            made = [{"tool": each["name"], "params": each["arguments"]} for each in calls if writes(each["name"])]
            found.append({"id": f"tau2-{domain}-{len(found)}", "set": "tau2-bench", "calls": made})
    return found


def bfcl(data: Path) -> list[dict[str, Any]]:
    """The base set of the multi-turn tasks."""
    found = []
    for line in (data / "possible_answer" / "BFCL_v4_multi_turn_base.json").read_text().splitlines():
        task = json.loads(line)
        texts = [text for turn in task["ground_truth"] for text in turn]
        calls = [call for text in texts if (call := _parsed(text)) and writes(call["tool"])]
        found.append({"id": f"bfcl-{task['id']}", "set": "BFCL multi-turn", "calls": calls})
    return found


def _parsed(text: str) -> dict[str, Any] | None:
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    given = {word.arg or "": ast.unparse(word.value) for word in call.keywords}
    given |= {f"_{at}": ast.unparse(value) for at, value in enumerate(call.args)}
    return {"tool": call.func.id, "params": given}


def agentdojo() -> list[dict[str, Any]]:
    """The users' tasks of its four suites, and as tasks of their own what its injections would do."""
    from agentdojo.task_suite.load_suites import get_suites

    found = []
    for name, suite in get_suites("v1.2.2").items():
        environment = suite.load_and_inject_default_environment({})
        for kind, tasks in (("", suite.user_tasks), ("injected-", suite.injection_tasks)):
            for number, task in tasks.items():
                try:
                    calls = task.ground_truth(environment.model_copy(deep=True))
                except Exception:  # noqa: BLE001 - a few cannot be made without the agent's answers
                    continue
                made = [{"tool": each.function, "params": dict(each.args)} for each in calls if writes(each.function)]
                found.append(
                    {"id": f"dojo-{name}-{kind}{number}", "set": f"AgentDojo {kind}".strip(" -"), "calls": made}
                )
    return found


def main() -> None:
    """All tasks with at least one write, or about ``--each`` of each data set, drawn with the seed 7."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=int, default=0)
    given = parser.parse_args()
    place = {name: Path(str(importlib.util.find_spec(name).origin)).parent for name in ("tau2", "bfcl_eval")}
    every = [*tau2(place["tau2"] / "data" / "tau2" / "domains"), *bfcl(place["bfcl_eval"] / "data"), *agentdojo()]
    every = [task for task in every if task["calls"]]
    if given.each:
        dice, chosen = random.Random(7), []
        for name in sorted({task["set"] for task in every}):
            those = [task for task in every if task["set"] == name]
            chosen += those if "injected" in name else dice.sample(those, min(given.each, len(those)))
        every = chosen
    given.out.write_text(json.dumps(every, indent=1, default=str) + "\n")
    for name in sorted({task["set"] for task in every}):
        those = [task for task in every if task["set"] == name]
        print(f"{name}: {len(those)} tasks, {sum(len(task['calls']) for task in those)} calls that write")


if __name__ == "__main__":
    main()
