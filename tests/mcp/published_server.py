"""A server that has the tools of a published list, and none of what they do: it holds each call against its schema.

``python published_server.py FILE CALLS ANSWERS``: the list, a file that gets a line for each call, and a file with what
each tool answers: a value, or a list of values, one for each call. It stands for servers that do not run here (``github``), or that need an account.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs

WHOLE, LISTED = {"resultType": "complete"}, {"ttlMs": 0, "cacheScope": "private"}


class Answers:
    """What each tool says, call by call; the last value stays. A changed file begins anew."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = ""
        self._made: dict[str, int] = {}

    def of(self, tool: str) -> Any:
        text = self._file.read_text()
        if text != self._read:
            self._read, self._made = text, {}
        said = json.loads(text).get(tool, "done")
        if not isinstance(said, list):
            return said
        number = self._made[tool] = self._made.get(tool, -1) + 1
        return said[min(number, len(said) - 1)]


def answer(tool: dict[str, Any], given: dict[str, Any], calls: Path, answers: Answers) -> dict[str, Any]:
    """What the tool says, or what is wrong with the params."""
    faults = [error.message for error in jsonschema_rs.validator_for(tool["inputSchema"]).iter_errors(given)]
    faults += [f"unknown param {param!r}" for param in given if param not in tool["inputSchema"].get("properties", {})]
    if faults:
        return {"content": [{"type": "text", "text": f"invalid params: {'; '.join(faults)}"}], "isError": True}
    with calls.open("a") as file:
        file.write(json.dumps([tool["name"], given]) + "\n")
    said = answers.of(tool["name"])
    if isinstance(said, dict) and "error" in said:
        return {"content": [{"type": "text", "text": said["error"]}], "isError": True}
    return {"content": [{"type": "text", "text": said if isinstance(said, str) else json.dumps(said)}]}


def main() -> None:
    """Serves until stdin ends."""
    listed, calls, file = map(Path, sys.argv[1:4])
    answers = Answers(file)
    tools = {tool["name"]: tool for tool in json.loads(listed.read_text())["tools"]}
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if request["method"] == "tools/call":
            params = request["params"]
            found = answer(tools[params["name"]], params["arguments"], calls, answers)
        elif request["method"] == "tools/list":
            found = {"tools": [*tools.values()], **LISTED}
        else:
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **LISTED}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {**WHOLE, **found}}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
