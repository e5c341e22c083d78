"""A process whose event loop computes without end is ended, and its sagas go on elsewhere."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

TOOLS = '''
import re
from pathlib import Path
from saga_engine import tool

@tool(effect="read")
async def spin(how: str) -> dict[str, str]:
    """Compute for ever, in the event loop, once."""
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        if how == "holding the lock":
            re.match("(a|aa)+$", "a" * 200 + "b")
        while True:
            pass
    return {"how": how}
'''

PROGRAM = """
import asyncio, time
from saga_engine import Coordinator, tool

@tool(effect="read")
async def spin() -> dict[str, str]:
    until = time.process_time() + 1
    while time.process_time() < until:
        pass
    return {}

async def main():
    async with Coordinator.open("memory://", [spin], durability="relaxed") as coordinator:
        result = await coordinator.run({"steps": [{"step_id": 1, "tool": "spin", "params": {}}]})
        print(result.status)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["in Python", "holding the lock"])
@pytest.mark.parametrize("who", ["worker", "serve"])
def test_a_loop_that_computes_without_end_ends_its_process(tmp_path: Path, how: str, who: str) -> None:
    """Also if the code holds the interpreter's lock. The stack is logged, and another worker completes the saga."""
    cli = Cli(tmp_path)
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "saga.toml").write_text("[saga]\nloop_cpu_s = 0.4\nlease_s = 1\n")
    plan = {"task_id": "spun", "steps": [{"step_id": 1, "tool": "spin", "params": {"how": how}}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert cli("submit", "plan.json", "--detach", "--tools", "tools.py").code == 0
    args = ["--worker", "--port", "0", "--auth", "none"] if who == "serve" else []
    process = cli.start(who, "--tools", "tools.py", *args)
    try:
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == (1 if how == "in Python" else -signal.SIGPROF), err
    assert "spin" in err
    assert "tools.py" in err
    assert cli("resume", "spun", "--tools", "tools.py").code == 0
    assert cli.look("show", "spun", "--json").json["status"] == "COMPLETED"


def test_a_program_that_embeds_the_engine_is_never_ended(tmp_path: Path) -> None:
    """Only the commands that serve many watch their loop: a setting changes nothing in a program of others."""
    (tmp_path / "saga.toml").write_text("[saga]\nloop_cpu_s = 0.01\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    cli = Cli(tmp_path)
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=cli.env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "COMPLETED\n"), done.stderr
