"""What every wrapper of an agent framework keeps: a suite for pytest.

Subclass it, and name the program whose ``converse`` runs an agent of the framework (see ``agent_child``)::

    class TestMyFramework(AgentConformance):
        program = Path("my_agent.py")
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest


class AgentConformance:
    """Each run is a process of its own: kills are SIGKILL, and another life is another process."""

    program: ClassVar[Path]
    #: The interpreter whose environment has the framework.
    python: str = sys.executable
    #: Variables for the agent's process.
    environment: ClassVar[dict[str, str]] = {}

    def run(self, folder: Path, scene: str, kill: str = "") -> dict[str, Any]:
        """The outcome of one run; of a run that was killed, an empty one."""
        command = [self.python, "-m", "saga_engine.testing.agent_child", str(self.program), str(folder), scene, kill]
        root = str(Path(__file__).parents[2])
        env = {key: value for key, value in os.environ.items() if not key.startswith("SAGA_")}
        env |= {"PYTHONPATH": root, **self.environment}
        said, errors = folder / "said", folder / "errors"
        # Files and no pipes: what a killed agent has started keeps them open.
        with said.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(  # noqa: S603 - the suite's own program
                command, env=env, stdout=out, stderr=err, cwd=folder, start_new_session=True
            )
            try:
                code = process.wait(timeout=300)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if kill and code == -signal.SIGKILL:
            return {}
        assert code == 0, errors.read_text()[-4000:]
        found: dict[str, Any] = json.loads(said.read_text().splitlines()[-1])
        return found

    def test_each_call_is_a_call_of_the_session(self, tmp_path: Path) -> None:
        """The model gets the tools' results, and the session completes."""
        found = self.run(tmp_path, "trip")
        assert (found["error"], found["status"]) == ("", "COMPLETED")
        assert found["ledger"] == ["hold flight", "hold room"]
        assert "sky: blue" in found["told"][0]
        assert "room" in found["told"][2]

    @pytest.mark.parametrize("kill", ["flight:before", "flight:after", "room:before", "room:after"])
    def test_an_agent_that_is_killed_in_a_call_runs_again(self, tmp_path: Path, kill: str) -> None:
        """SIGKILL before and after the effect of each call: the next life goes on, and no effect is made twice."""
        assert self.run(tmp_path, "trip", kill) == {}
        found = self.run(tmp_path, "trip", kill)
        assert (found["error"], found["status"]) == ("", "COMPLETED")
        assert found["ledger"] == ["hold flight", "hold room"]
        assert "flight" in found["told"][1]

    def test_a_lost_answer_is_found_out(self, tmp_path: Path) -> None:
        """The effect happened and the answer was lost: the probe finds it, and the model hears of no failure."""
        found = self.run(tmp_path, "lost")
        assert (found["error"], found["status"]) == ("", "COMPLETED")
        assert found["ledger"] == ["hold lost", "hold room"]
        assert "error" not in found["told"][0]

    @pytest.mark.parametrize("answer", ["deny", "approve"])
    def test_an_approval_is_of_the_exact_call(self, tmp_path: Path, answer: str) -> None:
        """The agent ends, an operator answers, the agent runs again: refused it is told so, approved it pays once."""
        first = self.run(tmp_path, "pays")
        assert (first["error"], first["ledger"]) == ("needs-person", ["hold room"])
        found = self.run(tmp_path, f"pays={answer}")
        paid = ["pay 7"] if answer == "approve" else []
        assert (found["error"], found["status"], found["ledger"]) == ("", "COMPLETED", ["hold room", *paid])
        assert ("error" in found["told"][1]) == (answer == "deny")

    def test_a_failed_agent_is_undone_in_reverse(self, tmp_path: Path) -> None:
        """Whatever the model thought of it."""
        found = self.run(tmp_path, "gives-up")
        assert found["status"] == "COMPENSATED"
        assert found["ledger"] == ["hold flight", "hold room", "release room", "release flight"]

    def test_the_model_mends_its_slips(self, tmp_path: Path) -> None:
        """A parameter that is not there, and a tool that refuses: both are told with what to do, and it goes on."""
        found = self.run(tmp_path, "slips")
        assert (found["error"], found["status"], found["ledger"]) == ("", "COMPLETED", ["hold room"])
        assert "itm" in found["told"][0]
        assert "hold a room" in found["told"][1]

    def test_a_repeat_that_was_not_made_says_so(self, tmp_path: Path) -> None:
        """Another saga has just made the same call: the model reads that its own had no effect."""
        assert "deduplicated" not in self.run(tmp_path, "notes")["told"][0]
        found = self.run(tmp_path, "notes+again")
        assert '"deduplicated":true' in found["told"][0].replace(" ", "")
        assert found["ledger"] == ["note hello"]
