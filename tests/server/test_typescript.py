"""A TypeScript client, generated from the OpenAPI document, against a real server process (`make ts-client`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from saga_engine.cli import run

ROOT = Path(__file__).parents[2]
NPM = ROOT / ".ts-client"
CLIENT = Path(__file__).parent / "typescript/client.ts"
TIME_LIMIT_S = 300

if not (NPM / ".installed").exists() or shutil.which("node") is None:
    WHY = "the generator of the TypeScript client is not installed: make ts-client"
    if os.environ.get("CI"):
        raise RuntimeError(WHY)
    pytest.skip(WHY, allow_module_level=True)

TOOLS = '''
from saga_engine import tool

@tool(undo="cancel")
async def book(item: str) -> dict[str, str]:
    return {"ref": f"ref-{item}"}

@tool(tolerates_absence=True)
async def cancel(item: str) -> None:
    """Nothing is left of a booking."""
'''


def ran(command: list[str], folder: Path) -> str:
    """What a command prints; its complaint if it fails."""
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture
def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[tuple[str, str]]:
    """The address of a `saga serve --worker`, and a token for it."""
    (tmp_path / "tools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    assert run(["token", "create", "ts", "--scope", "submit", "--scope", "read", "--scope", "resolve"]) == 0
    token = capsys.readouterr().out.strip().splitlines()[-1]
    command = [sys.executable, "-m", "saga_engine", "serve", "--port", "0", "--worker", "--tools", "tools.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), token
    finally:
        process.terminate()
        process.communicate()


def test_a_generated_client_compiles_strictly_and_runs(served: tuple[str, str], tmp_path: Path) -> None:
    """It submits, waits, answers, streams, pages, and reads errors as problems; no field that it needs is unknown."""
    url, token = served
    folder = tmp_path / "client"
    folder.mkdir()
    (folder / "node_modules").symlink_to(NPM / "node_modules")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    (folder / "client.ts").write_text(CLIENT.read_text())
    tools = NPM / "node_modules/.bin"
    ran([str(tools / "openapi-typescript"), f"{url}/v1/openapi.json", "-o", "schema.d.ts"], folder)
    components = (folder / "schema.d.ts").read_text().partition("export interface components")[2]
    assert ": Record<string, never>" not in components.partition("export type $defs")[0]  # what takes no field
    strict = ["--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--noUnusedLocals"]
    target = ["--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable"]
    ran([str(tools / "tsc"), *strict, *target, "client.ts"], folder)
    assert ran(["node", "client.js", url, token], folder) == "all of it\n"
