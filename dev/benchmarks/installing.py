"""Puts the peers on this machine: one Python environment each, Node packages, Postgres. Standard library only.

Everything lands in the benchmark's own folder, except Postgres, which is Debian's package. What is there is left as
it is; what cannot be had is said with its reason (``Missing``) and does not stop the others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from entrants import Entrant

_LIMIT_S = 600
_DEBIAN = Path("/usr/lib/postgresql")


class Missing(Exception):
    """Why an entrant cannot take part here."""


def python_of(home: Path, entrant: Entrant, say: Callable[[str], None] = print) -> Path:
    """The interpreter that runs an entrant, with what it needs installed. Raises ``Missing``."""
    if not entrant.environment:
        return Path(sys.executable)
    folder = home / "venv" / entrant.environment
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    wanted = "\n".join([sys.version, *entrant.packages])  # all run on the interpreter that runs the engine
    if not (stamp.exists() and stamp.read_text() == wanted):
        say(f"{entrant.name}: installing {', '.join(entrant.packages)}")
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *entrant.packages])
        stamp.write_text(wanted)
    for package in entrant.node_packages:
        _node(home, package, say)
    return python


def _node(home: Path, package: str, say: Callable[[str], None]) -> None:
    folder = home / "node"
    name, _, version = package.rpartition("@")
    stamp = folder / "node_modules" / name / f".installed-{version}"
    if stamp.exists():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise Missing(f"{name} comes from npm, which is not installed here")
    folder.mkdir(parents=True, exist_ok=True)
    say(f"installing {package} from npm")
    _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), package])
    stamp.write_text("")


def postgres_programs() -> Path:
    """The folder of Postgres' programs; Debian's package is installed if there are none. Raises ``Missing``."""
    found = _postgres()
    if found is not None:
        return found
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise Missing("Postgres is not installed, and only root on Debian can have it installed here")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update", "-qq"], quiet)
    _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "postgresql"], quiet)
    found = _postgres()
    if found is None:
        raise Missing(f"Postgres was installed, but {_DEBIAN} has no initdb")
    return found


def _postgres() -> Path | None:
    found = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run an installer to its end. Raises ``Missing`` with the last thing that it said."""
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{Path(command[0]).name} did not end within {_LIMIT_S} s") from error
    if ran.returncode != 0:
        said = (ran.stderr or ran.stdout).strip().splitlines() or ["it said nothing"]
        raise Missing(f"{Path(command[0]).name} failed: {said[-1][:200]}")
