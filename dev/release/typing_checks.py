"""The public API's types as a user's checker sees them: in the installed wheel, without the engine's own settings."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from dev.release.report import Failed, run

#: Uses every public name, right and wrong; a wrong use that is not refused is an error, too.
CONSUMER = "tests/typing/public_uses.py"


def mypy(inside: Path, source: Path, desk: Path) -> str:
    """``mypy --strict`` finds what the file says that it finds, and nothing else."""
    shutil.copy(source / CONSUMER, desk)
    options = ("--strict", "--python-executable", inside, "--cache-dir", desk / "cache", "--config-file", "")
    done = run(sys.executable, "-m", "mypy", *options, Path(CONSUMER).name, cwd=desk, expect=None)
    if done.returncode:
        raise Failed(done.stdout + done.stderr)
    return f"mypy {version('mypy')} --strict: {done.stdout.strip()}"


def pyright(inside: Path, source: Path, desk: Path) -> str:
    """Pyright in its strict form does the same."""
    shutil.copy(source / CONSUMER, desk)
    settings = {
        "include": [Path(CONSUMER).name],
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (desk / "pyrightconfig.json").write_text(json.dumps(settings))
    command = (sys.executable, "-m", "pyright", "--pythonpath", inside, "--outputjson")
    said = run(*command, cwd=desk, expect=None).stdout
    try:
        found = json.loads(said)
    except ValueError as broken:
        raise Failed(f"pyright did not answer: {said[:2000]}") from broken
    wrong = [f"{each['range']['start']['line'] + 1}: {each['message']}" for each in found["generalDiagnostics"]]
    if wrong or found["summary"]["filesAnalyzed"] != 1:
        raise Failed(f"{len(wrong)} findings in {found['summary']['filesAnalyzed']} file: {'; '.join(wrong[:10])}")
    return f"pyright {found['version']}, strict: no findings"


def version(package: str) -> str:
    """The installed version of a package."""
    from importlib.metadata import version as of

    return of(package)
