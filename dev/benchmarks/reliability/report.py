"""Writes the measured part of ``docs/score.md`` from ``results/score.json``."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "score.md"
BEGIN, END = "<!-- benchmark score -->", "<!-- end of benchmark -->"
NAMES = {
    "plain": "a plain loop",
    "retries": "a loop: retries, keys, undo",
    "langgraph": "LangGraph: checkpoints, retries",
    "dbos": "DBOS: retries, keys, saga in code",
    "temporal": "Temporal: retries, keys, saga in code",
    "agent_saga": "agent-saga: log in a file",
    "sagaz": "sagaz: retries",
    "engine_plan": "saga-engine: a plan",
    "engine_session": "saga-engine: a session",
    "engine_gateway": "saga-engine: the gateway",
}


def written(body: dict[str, Any]) -> str:
    """The tables, and what they were measured with."""
    lines = []
    for rate in sorted({row["rate"] for row in body["rows"]}):
        lines += ["", f"At {round(rate * 100)} % of the steps something goes wrong:", ""]
        lines.append("| system | goal | as before | stand, named | stand, not named | doubled | asked | calls |")
        lines.append("|---|---|---|---|---|---|---|---|")
        for name, text in NAMES.items():
            for row in body["rows"]:
                if (row["system"], row["rate"]) == (name, rate):
                    cells = ("goal", "as_before", "named", "unnamed", "doubled", "asked", "calls")
                    lines.append(f"| {text} | {' | '.join(str(row[each]) for each in cells)} |")
    sets = "; ".join(f"{name} {found['tasks']} ({found['calls']} calls)" for name, found in body["tasks"].items())
    if (dojo := body.get("injected")) is not None:
        told = (
            f"AgentDojo's injections: {dojo['injections']} change the world, with {dojo['effects']} effects. An "
            f"operator was asked before {dojo['asked']} of them, {dojo['undone']} were undone once found out, "
            f"{dojo['named']} stood and were named, and {dojo['unnamed']} stood and were not."
        )
        lines += ["", told]
    versions = ", ".join(f"`{name}` {version}" for name, version in sorted(body["versions"].items()))
    lines += ["", f"Tasks: {sets}. Seed {body['seed']}. Versions: {versions}."]
    return "\n".join(line if line.startswith("|") else textwrap.fill(line, 120) for line in lines)


def main() -> None:
    """Replaces what stands between the marks."""
    body = json.loads((HERE / "results" / "score.json").read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{written(body)}\n\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
