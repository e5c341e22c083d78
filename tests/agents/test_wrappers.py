"""The wrappers of agent frameworks: one conformance suite, with the real framework and a scripted model.

A framework that is installed beside the tests is run in CI, every other one in an environment of its own (``slow``).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from saga_engine.testing.agent_conformance import AgentConformance
from tests.agents import newest
from tests.agents.clients import NEWEST, WRAPPED, Framework, environment, environments

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "wrapped_agents"


def _is_here(module: str) -> bool:
    """Whether the framework stands beside the tests, and no newer one is to be tried."""
    return not os.environ.get(NEWEST) and importlib.util.find_spec(module) is not None


class Wrapped(AgentConformance):
    name: ClassVar[str]
    module: ClassVar[str]

    @pytest.fixture(autouse=True)
    def interpreter(self) -> None:
        own = next(PROGRAMS.glob(f"with_{self.name}.py"), ROOT / "tests" / "agents" / f"wrapped_{self.name}.py")
        type(self).program = own
        framework = next(each for each in WRAPPED if each.name == self.name)
        here = _is_here(self.module)
        self.python = sys.executable if here else environment(framework, environments())

    def test_the_program_of_the_page_runs(self, tmp_path: Path) -> None:
        """Alone and unchanged: the flight is booked, the full hotel is told, and the flight is cancelled."""
        if self.program.parent != PROGRAMS:
            pytest.skip("its page needs a key; the suite runs it before a scripted endpoint")
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [self.python, str(self.program)]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines.index("booked the flight") < lines.index("cancelled the flight")
        assert any("every hotel is full" in line for line in lines)


def _elsewhere(suite: type[Wrapped]) -> type[Wrapped]:
    return suite if _is_here(suite.module) else pytest.mark.slow(pytest.mark.timeout(3600)(suite))


@_elsewhere
class TestLangChain(Wrapped):
    name, module = "langchain", "langchain"


@_elsewhere
class TestOpenAIAgents(Wrapped):
    name, module = "openai_agents", "agents"


@_elsewhere
class TestClaudeSDK(Wrapped):
    name, module = "claude_sdk", "claude_agent_sdk"


@_elsewhere
class TestPydanticAI(Wrapped):
    name, module = "pydantic_ai", "pydantic_ai"


@_elsewhere
class TestGoogleADK(Wrapped):
    name, module = "google_adk", "google.adk" if importlib.util.find_spec("google") else "google_adk"


@_elsewhere
class TestCrewAI(Wrapped):
    name, module = "crewai", "crewai"


@_elsewhere
class TestStrands(Wrapped):
    name, module = "strands", "strands"


@pytest.mark.parametrize("framework", WRAPPED, ids=lambda each: each.name)
def test_each_framework_has_its_suite(framework: Framework) -> None:
    """``make agents-check`` finds it by the name of the framework."""
    found = {name.lower(): each for name, each in globals().items() if name.startswith("Test")}
    assert found[newest.suite_of(framework.name).lower()].name == framework.name
