"""This engine, its gateway: an agent that knows MCP alone, with ``saga mcp`` between it and the world's server.

The agent calls step after step. Started again it asks ``saga_status`` what it has done, and goes on; after an error it
calls ``saga_rollback``, and tells what that names. The operator answers with ``saga resolve``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from world import World, steps_of

SERVER = Path(__file__).with_name("world_server.py")
MANIFEST = """
[mcp.world]
command = {command}
env = {{ PYTHONPATH = {path}, SCORE_AGENT = "$secret.SCORE_AGENT" }}
timeout_s = 1.0

[mcp.world.tools.act]
undo = "take_back"
probe = "was_made"
key = {{ param = "key", ttl_s = 86400 }}
is_error = {{ not-done = ["refused"] }}
retry = {{ max_attempts = 3, base_s = 0.5, max_s = 1.0 }}

[mcp.world.tools.take_back]
tolerates_absence = true
idempotent = true
is_error = "not-done"
ask = false

[mcp.world.tools.happened]
effect = "read"

[mcp.world.helpers.was_made]
tool = "happened"
effect = "read"
params = {{ task = "{{task}}", step = "{{step}}", key = "{{idempotency_key}}" }}
absent_error = "no such call"
"""


class Desk:
    """What stands on the operator's machine: the configuration, the accepted tools, the store."""

    def __init__(self, run: Any) -> None:
        self.run = run
        folder: Path = run.folder / "desk"
        self.env = {
            **os.environ,
            "SAGA_CONFIG": str(folder / "saga.toml"),
            "SAGA_STORE": f"embedded://{run.folder / 'sagas'}",
            "SCORE_AGENT": str(os.getpid()),
        }
        if not folder.exists():
            folder.mkdir()
            command = [sys.executable, str(SERVER), str(run.folder)]
            path = json.dumps(os.environ["PYTHONPATH"])
            text = MANIFEST.format(command=json.dumps(command), path=path)
            (folder / "saga.toml").write_text(text)
            self.saga("tools", "accept")

    def saga(self, *words: str) -> None:
        """A command of the operator. Its exit code says what became of the saga, which the gateway tells as well."""
        command = [sys.executable, "-m", "saga_engine", *words]
        subprocess.run(command, env=self.env, cwd=self.run.folder / "desk", check=False, capture_output=True)

    def gateway(self) -> StdioServerParameters:
        """How the agent starts the gateway."""
        words = ["-m", "saga_engine", "mcp", "--id", self.run.name, "--hold", "0"]
        cwd = str(self.run.folder / "desk")
        return StdioServerParameters(command=sys.executable, args=words, env=self.env, cwd=cwd)

    async def answered(self, question: dict[str, Any], stands: bool) -> None:
        """What the operator says, who looks at the world."""
        options = question["options"]
        if "happened" in options:
            said = "happened" if stands else next(each for each in options if each.startswith("not"))
        else:
            said = "accept" if stands else "undone"
        await asyncio.to_thread(self.saga, "resolve", question["saga_id"], question["call"], said)


async def play(run: Any) -> None:
    """All tasks through one gateway: a saga for each."""
    desk = Desk(run)
    async with Client(desk.gateway(), cache=None) as agent:
        for task in run.tasks:
            await played(run, desk, agent, task)


async def played(run: Any, desk: Desk, agent: Client, task: dict[str, Any]) -> None:
    """One task, from where an earlier process of the agent left it."""
    world, asked = run.world, 0
    known = (await agent.call_tool("saga_status", {})).structured_content or {}
    done = {each["params"]["step"] for each in known["calls"] if each["status"] == "SUCCEEDED"}
    for step, name in steps_of(task):
        if step in done:
            continue
        while True:
            answer = await agent.call_tool("act", {"task": task["id"], "step": step, "name": name})
            if not answer.is_error or not _text(answer).startswith("pending:"):
                break
            asked += await _operated(desk, world, await _told(agent, "saga_status"), task)
        if answer.is_error:
            named, more = await _undone(desk, world, agent, task)
            run.told(task, goal=False, named=named, asked=asked + more)
            return
    ended = await agent.call_tool("saga_done", {})
    run.told(task, goal=not ended.is_error, asked=asked)


async def _undone(desk: Desk, world: World, agent: Client, task: dict[str, Any]) -> tuple[set[int], int]:
    """Undo the task, with an operator where one is asked. Returns what is named, and how many questions there were."""
    named: set[int] = set()
    asked = 0
    while True:
        told = await _told(agent, "saga_rollback")
        named |= {each["params"]["step"] for each in _named(told, "left", "unknown")}
        more = await _operated(desk, world, told, task)
        asked += more
        if not more:
            return named, asked


async def _operated(desk: Desk, world: World, told: dict[str, Any], task: dict[str, Any]) -> int:
    """Answer each question of a report."""
    calls = {each["call"]: each["params"]["step"] for each in _named(told, "calls", "left", "unknown")}
    for question in told["questions"]:
        step = calls[question["call"]]
        stands = step in world.effects(task["id"])
        await desk.answered(question, f"{task['id']}/{step}" if stands else "")
    return len(told["questions"])


async def _told(agent: Client, tool: str) -> dict[str, Any]:
    """The structured answer of one of the gateway's own tools."""
    return (await agent.call_tool(tool, {})).structured_content or {}


def _named(told: dict[str, Any], *kinds: str) -> list[dict[str, Any]]:
    """The calls that a report names, of this saga and of earlier ones; in a status, ``unknown`` is their number."""
    lists = [saga.get(kind) for saga in (told, *told["earlier"]) for kind in kinds]
    return [each for found in lists if isinstance(found, list) for each in found]


def _text(answer: Any) -> str:
    return "\n".join(block.text for block in answer.content if block.type == "text")
