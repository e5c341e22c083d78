"""Two known faults, each with peers and with the engine, in the same small world: what each run prints.

    python dev/benchmarks/faults/run.py             # all five; the peers are installed under .bench (BENCH_HOME)
    python dev/benchmarks/faults/run.py --engine    # the engine's two
    python dev/benchmarks/faults/run.py --page      # all five, into docs/comparison.md and its Chinese twin

Every line with ``$`` is one process. ``DIE`` names the effect right after which it is killed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))

from entrants import Entrant  # noqa: E402
from installing import python_of  # noqa: E402

PAGES = (ROOT / "docs" / "comparison.md", ROOT / "docs" / "comparison.zh.md")
_SENT = "transfer of 500 to Bob"


@dataclass(frozen=True, slots=True)
class Story:
    """One program, the words of its processes, and in which of them it dies."""

    name: str
    script: str
    phases: tuple[str, ...]
    dies_in: str = ""
    packages: tuple[str, ...] = ()


STORIES = (
    Story(
        "approved-langgraph",
        "langgraph_approved.py",
        ("start", "approve", "resume"),
        "approve",
        ("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2"),
    ),
    Story("approved-engine", "engine_approved.py", ("start", "approve", "resume", "happened"), "approve"),
    Story("resumed-dbos", "dbos_resumes.py", ("start", "resume"), packages=("dbos==3.4.0",)),
    Story("undone-sagaz", "sagaz_trip.py", ("start",), packages=("sagaz==1.5.0",)),
    Story("resumed-engine", "engine_resumes.py", ("start",)),
)


def told(story: Story, home: Path) -> str:
    """Runs a story in an empty folder and returns what it printed, and what is in effect at its end."""
    environment = f"faults-{story.name}" if story.packages else ""
    entrant = Entrant(story.name, story.name, "", story.script, environment=environment, packages=story.packages)
    python = python_of(home, entrant, lambda text: print(text, file=sys.stderr))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SAGA_", "PYTHON"))}
    env |= {"PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT)]), "PYTHONDONTWRITEBYTECODE": "1"}
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for phase in story.phases:
            dies = {"DIE": _SENT} if phase == story.dies_in else {}
            command = [str(python), str(HERE / story.script), phase]
            ran = subprocess.run(command, cwd=folder, env=env | dies, capture_output=True, text=True, check=False)
            before = "".join(f"{name}='{value}' " for name, value in dies.items())
            lines.append(f"$ {before}python {story.script} {phase}")
            lines.append(ran.stdout.strip() if ran.returncode == 0 else "killed" if dies else ran.stderr.strip())
        ask = [sys.executable, "-c", "import world; print(', '.join(world.standing()) or 'nothing')"]
        standing = subprocess.run(ask, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout.strip()
    return "\n".join([*lines, f"in effect: {standing}"]) + "\n"


def written(text: str, stories: dict[str, str]) -> str:
    """A page with what the stories printed, between their marks."""
    for name, said in stories.items():
        pattern = rf"(<!-- fault: {name} -->\n)```text\n.*?```\n"
        text, count = re.subn(pattern, lambda mark, said=said: f"{mark[1]}```text\n{said}```\n", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page must have the mark of {name} once")
    return text


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--engine", action="store_true", help="the engine's stories only; nothing is installed")
    parser.add_argument("--page", action="store_true", help="write what is printed into the pages")
    given = parser.parse_args()
    home = Path(os.environ.get("BENCH_HOME") or ROOT / ".bench")
    found = {}
    for story in STORIES:
        if story.packages and given.engine:
            continue
        found[story.name] = told(story, home)
        print(f"# {story.name}\n{found[story.name]}")
    if given.page:
        for page in PAGES:
            page.write_text(written(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
