"""Real MCP servers of others (`make mcp-servers`), each with a world in a folder, and that world's hash."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from saga_engine.sources.mcp import McpServer

HERE = Path(__file__).parents[2] / ".mcp-servers"
GIT_ENV = {
    **os.environ,
    **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "n"), ("EMAIL", "n@example.com"))},
    **dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-01T00:00:00Z"),  # commits have the same names
    **dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), os.devnull),
}  # fmt: skip

if not (HERE / ".installed").exists():
    WHY = "the MCP servers of others are not installed: make mcp-servers"
    if os.environ.get("CI"):
        raise RuntimeError(WHY)
    pytest.skip(WHY, allow_module_level=True)


class RealWorld:
    """A folder that a server changes. ``kind``: the shipped manifest for it."""

    kind = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.kind
        if not self.folder.exists():
            self.folder.mkdir()
            self.prepare()

    def prepare(self) -> None:
        """Fill it."""

    def table(self) -> dict[str, Any]:
        """Its table in ``saga.toml``."""
        patience = {"start_timeout_s": 600, "timeout_s": 600}  # no outcome of a test is that of a slow machine
        return {"command": self.command(), "manifest": f"builtin:{self.kind}", **patience}

    def command(self) -> list[str]:
        raise NotImplementedError

    def facts(self) -> Any:
        """Everything that must be as before."""
        raise NotImplementedError

    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()

    def server(self, **fields: Any) -> McpServer:
        return McpServer(self.kind, **{**self.table(), **fields})


class Files(RealWorld):
    kind = "filesystem"

    def prepare(self) -> None:
        (self.folder / "a.txt").write_text("one\r\ntwo\nthree", newline="")
        (self.folder / "bytes").write_bytes(b"\xff\xfe\x00")
        (self.folder / "sub").mkdir()
        (self.folder / "sub" / "b.txt").write_text("b\n")
        (self.folder / "a.txt").chmod(0o640)

    def command(self) -> list[str]:
        return [str(HERE / "node_modules/.bin/mcp-server-filesystem"), str(self.folder)]

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def facts(self) -> Any:
        """The tree: names, contents, modes."""
        return {
            str(each.relative_to(self.folder)): [
                each.stat().st_mode,
                None if each.is_dir() else each.read_bytes().hex(),
            ]
            for each in self.folder.rglob("*")
        }


class Memory(RealWorld):
    kind = "memory"

    def prepare(self) -> None:
        lines = [
            {"type": "entity", "name": "Ann", "entityType": "guest", "observations": ["tall", "old"]},
            {"type": "entity", "name": "Inn", "entityType": "house", "observations": []},
            {"type": "relation", "from": "Ann", "to": "Inn", "relationType": "sleeps in"},
        ]
        self.file.write_text("\n".join(map(json.dumps, lines)))

    @property
    def file(self) -> Path:
        return self.folder / "graph.jsonl"

    def command(self) -> list[str]:
        return [str(HERE / "node_modules/.bin/mcp-server-memory")]

    def table(self) -> dict[str, Any]:
        return {**super().table(), "env": {"MEMORY_FILE_PATH": str(self.file)}}

    def facts(self) -> Any:
        """The graph, whose nodes, relations and observations have no order."""
        found = [json.loads(line) for line in self.file.read_text().splitlines()]
        plain = [{**each, "observations": sorted(each.get("observations", ()))} for each in found]
        return sorted(plain, key=lambda each: json.dumps(each, sort_keys=True))


class Git(RealWorld):
    kind = "git"

    def prepare(self) -> None:
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "n")
        self.git("config", "user.email", "n@example.com")
        (self.folder / "f").write_text("1\n")
        self.git("add", ".")
        self.git("commit", "-qm", "one")
        self.git("branch", "other")
        (self.folder / "f").write_text("2\n")
        (self.folder / "new").write_text("new\n")

    def git(self, *words: str) -> str:
        made = subprocess.run(
            ["git", "-C", str(self.folder), *words], env=GIT_ENV, capture_output=True, text=True, check=True
        )
        return made.stdout

    def command(self) -> list[str]:
        return [str(HERE / "python/bin/mcp-server-git"), "--repository", str(self.folder)]

    def facts(self) -> Any:
        """All refs, what HEAD names, the index, and the work tree."""
        tree = {each.name: each.read_text() for each in self.folder.iterdir() if each.is_file()}
        head = (self.folder / ".git" / "HEAD").read_text()
        return [self.git("for-each-ref"), head, self.git("ls-files", "--stage"), tree]


KINDS: dict[str, type[RealWorld]] = {each.kind: each for each in (Files, Memory, Git)}
