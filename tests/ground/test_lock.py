"""The files of locked versions hold what pyproject.toml names, with hashes, for every Python that is supported."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
OWN = canonicalize_name(PROJECT["name"])


def needed(listed: list[str]) -> list[Requirement]:
    """What a list of requirements asks for, with the extras of the project itself spelt out."""
    found: list[Requirement] = []
    for text in listed:
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) == OWN:
            found += [each for extra in requirement.extras for each in needed(EXTRAS[extra])]
        else:
            found.append(requirement)
    return found


def locked(name: str) -> dict[str, list[tuple[str, int]]]:
    """The versions in a file by name, each with the number of its hashes."""
    text = (ROOT / "dev" / "requirements" / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, list[tuple[str, int]]] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        pinned = re.match(r"([A-Za-z0-9._-]+)==([^ ;]+)", line)
        assert pinned is not None, line
        hashes = len(re.findall(r"--hash=sha256:[0-9a-f]{64}(?= |$)", line))
        found.setdefault(canonicalize_name(pinned[1]), []).append((pinned[2], hashes))
    return found


FILES = {
    "demo": [*PROJECT["dependencies"], *EXTRAS["embedded"], *EXTRAS["server"]],
    "image": [
        *PROJECT["dependencies"],
        *(each for extra in ("server", "metrics", "http", "mcp", "fast") for each in EXTRAS[extra]),
    ],
    "dev": [*PROJECT["dependencies"], *EXTRAS["dev"]],
    "release": PYPROJECT["dependency-groups"]["release"],
}


@pytest.mark.parametrize("name", FILES)
def test_everything_that_is_named_is_locked(name: str) -> None:
    """In a version that pyproject.toml allows; `make lock` makes the files anew."""
    found = locked(name)
    for requirement in needed(FILES[name]):
        versions = [version for version, _ in found.get(canonicalize_name(requirement.name), [])]
        assert versions, f"{requirement} is not in dev/requirements/{name}.txt: run `make lock`"
        assert all(requirement.specifier.contains(version, prereleases=True) for version in versions), requirement


@pytest.mark.parametrize("name", FILES)
def test_every_version_has_its_hashes_and_no_index_is_named(name: str) -> None:
    """Pip refuses a file that is not what it was; where files come from is the affair of each machine."""
    assert all(hashes > 0 for versions in locked(name).values() for _, hashes in versions)
    text = (ROOT / "dev" / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "index" not in text
    assert OWN not in locked(name)


@pytest.mark.parametrize("other", ["demo", "image"])
def test_the_files_agree(other: str) -> None:
    """What is tested is what is installed."""
    tested = locked("dev")
    assert {name: tested.get(name) for name in locked(other)} == locked(other)


def test_the_makefile_installs_what_is_locked() -> None:
    """With hashes, and the project itself without its dependencies."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--require-hashes -r $(1)" in makefile
    for stamp, name in (("STAMP", "dev"), ("DEMO_STAMP", "demo")):
        assert (
            f"$({stamp}): pyproject.toml dev/requirements/{name}.txt\n\t$(call install,dev/requirements/{name}.txt,"
            in makefile
        )
