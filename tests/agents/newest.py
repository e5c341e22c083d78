"""``make agents-check``: each wrapped framework in its newest version, and the suite of the wrappers against it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.agents.clients import NEWEST, WRAPPED, environment, environments, versions
from tests.agents.desk import ROOT


def suite_of(framework: str) -> str:
    """The name of its class in ``test_wrappers``, which pytest finds in any case."""
    return f"Test{framework.replace('_', '')}"


def main(names: list[str]) -> int:
    """How many frameworks failed; ``names``: only these."""
    if unknown := set(names) - {each.name for each in WRAPPED}:
        print(f"no wrapper is called {', '.join(sorted(unknown))}", file=sys.stderr)  # noqa: T201
        return 2
    failed = []
    for framework in WRAPPED:
        if names and framework.name not in names:
            continue
        python = environment(framework, environments())
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade"]
        subprocess.run([*install, *framework.packages], check=True)
        told = ", ".join(f"{name} {version}" for name, version in versions(framework, python).items())
        print(f"-- {framework.name}: {told}", flush=True)  # noqa: T201
        suite = "tests/agents/test_wrappers.py"
        env = {**os.environ, NEWEST: "1"}
        command = [sys.executable, "-m", "pytest", "-n", "0", "--long", suite, "-k", suite_of(framework.name)]
        if subprocess.run(command, cwd=ROOT, env=env, check=False).returncode:
            failed.append(framework.name)
    if failed:
        print(f"FAILED: {', '.join(failed)}", file=sys.stderr)  # noqa: T201
    return len(failed)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
