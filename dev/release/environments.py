"""Empty environments with nothing but the wheel, on every Python that this machine has."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from dev.release.report import Failed, run

USES: Final = Path(__file__).with_name("uses")
#: Extras for work on the engine itself. ``make check`` installs them.
DEVELOPMENT: Final = ("test", "dev", "docs")
#: Extras that do not install beside all others, in the newest versions: each stands in an environment of its own.
ALONE: Final = ("crewai", "strands")
_OLDEST: Final = (3, 11)
_GIVE_UP_S: Final = 30.0


class Python(NamedTuple):
    """An interpreter, and its version as it says it."""

    path: str
    version: str


def pythons() -> list[Python]:
    """The newest interpreter of each minor version from 3.11 on: from the PATH, or one of pyenv's; no betas."""
    home = Path("~/.pyenv/versions").expanduser()
    names = [found for minor in range(_OLDEST[1], 30) if (found := shutil.which(f"python3.{minor}"))]
    asked = "import ensurepip, sys, venv; print(*sys.version_info[:3], sys.version_info.releaselevel)"
    best: dict[int, tuple[int, str]] = {}
    for name in [sys.executable, *names, *(str(path) for path in home.glob("3.*/bin/python3"))]:
        said = subprocess.run([name, "-c", asked], capture_output=True, text=True, check=False).stdout.split()
        if len(said) == 4 and said[3] == "final" and (int(said[0]), int(said[1])) >= _OLDEST:
            best[int(said[1])] = max(best.get(int(said[1]), (-1, "")), (int(said[2]), name))
    return [Python(name, f"3.{minor}.{micro}") for minor, (micro, name) in sorted(best.items())]


def missing(found: list[Python], source: Path) -> list[str]:
    """The versions that the classifiers name and this machine lacks."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    named = [each.removeprefix(prefix) for each in project["classifiers"] if each.startswith(prefix)]
    here = {each.version.split(".")[1] for each in found}
    return [f"3.{minor}" for minor in named if minor not in here]


def extras(source: Path) -> list[str]:
    """The extras for users."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [name for name in project["optional-dependencies"] if name not in DEVELOPMENT]


def environment(python: str, folder: Path, wheel: Path, extra: str = "") -> Path:
    """The interpreter of a new environment that has the wheel, with one extra or several, separated by commas."""
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--no-project", "--python", python, folder)
    inside = folder / "bin" / "python"
    requirement = f"saga-engine[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    run(uv, "pip", "install", "--quiet", "--python", inside, requirement, cwd=folder)
    run(uv, "pip", "check", "--quiet", "--python", inside)
    return inside


@contextmanager
def redis_server() -> Iterator[str]:
    """A durable redis-server of its own on a socket; its URL."""
    program = shutil.which("redis-server")
    if program is None:
        raise Failed("redis-server is not installed: apt-get install redis-server")
    folder = Path(tempfile.mkdtemp(prefix="saga-release-"))
    options = ["--port", "0", "--unixsocket", "s", "--appendonly", "yes", "--appendfsync", "always", "--dir"]
    server = subprocess.Popen(
        [program, *options, str(folder)], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + _GIVE_UP_S
        while not (folder / "s").exists():
            if server.poll() is not None or time.monotonic() > end:
                raise Failed("redis-server did not start")
            time.sleep(0.01)
        yield f"unix://{folder / 's'}"
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def use(inside: Path, name: str) -> str:
    """Run one of the programs in ``uses`` in an environment, far from the source tree; what its last line says."""
    with tempfile.TemporaryDirectory(prefix="saga-release-") as text, redis_server() as url:
        desk = Path(text)
        for module in ("desk.py", f"use_{name.replace('-', '_')}.py"):
            if not (USES / module).is_file():
                raise Failed(f"no use of {name}: write dev/release/uses/{module}")
            shutil.copy(USES / module, desk)
        beside = Path(sys.executable).parent
        env = {"RELEASE_STORE": url, "RELEASE_BIN": str(inside.parent), "RELEASE_TOOLS": str(beside), "HOME": text}
        done = run(inside, "-s", desk / f"use_{name.replace('-', '_')}.py", cwd=desk, env=env, timeout_s=180)
    return done.stdout.strip().splitlines()[-1]


def installed(python: Python, wheel: Path, extra: str) -> str:
    """A new environment with one extra, or with none, and a real use of it."""
    with tempfile.TemporaryDirectory(prefix="saga-release-") as text:
        return use(environment(python.path, Path(text) / "env", wheel, extra), extra or "base")
