"""The package's name: one everywhere in the project, and on the index free or this project's own."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from dev.release.report import Failed, run

#: A project that every index and mirror has: if it is not found, none answered.
_KNOWN = "pip"


def published(name: str) -> list[str] | None:
    """The versions of a project that the index of this machine offers, pre-releases too; None: it has no such one."""
    done = run(sys.executable, "-m", "pip", "index", "versions", "--pre", name, expect=None)
    found = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    return None if found is None else [each.strip() for each in found[1].split(",")]


def dated(source: Path) -> set[str]:
    """The versions that CHANGELOG.md gives a date."""
    text = (source / "CHANGELOG.md").read_text(encoding="utf-8")
    return set(re.findall(r"^## \[(.+?)\] - \d{4}-\d\d-\d\d$", text, re.MULTILINE))


def ours(name: str, version: str, there: Sequence[str] | None, known: set[str]) -> str:
    """What the index says of the name. Raises ``Failed`` if it is somebody else's, or has this version."""
    if there is None:
        return f"the index has no project {name}"
    if strange := sorted(set(there) - known):
        raise Failed(f"the index has {name} {', '.join(strange)}, which CHANGELOG.md does not know: whose is it?")
    if version in there:
        raise Failed(f"{name} {version} is published already")
    return f"{name} on the index is this project's: {', '.join(there)}"


def name(source: Path, version: str) -> str:
    """The distribution's name is what the pages tell readers to install, and nobody else has it."""
    own = str(tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"])
    pages = [source / "README.md", source / "README.zh.md", *sorted((source / "docs").rglob("*.md"))]
    told = {
        each
        for page in pages
        for each in re.findall(r"pip install ['\"]?(saga[\w.-]*)", page.read_text(encoding="utf-8"))
    }
    if told != {own}:
        raise Failed(f"the pages install {', '.join(sorted(told))}, and the package is {own}")
    if published(_KNOWN) is None:
        raise Failed(f"no index answers here: it has not even {_KNOWN}")
    return ours(own, version, published(own), dated(source))
