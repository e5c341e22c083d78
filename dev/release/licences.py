"""The licences of everything that the engine and its extras install, and the bill of materials."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from dev.release.report import Failed, run

_LIST: Final = Path(__file__).with_name("licences.toml")
_OWN: Final = "saga-engine"


class Package(NamedTuple):
    """A package that is installed, and its licence as an expression."""

    name: str
    version: str
    licence: str


def rules() -> dict[str, dict[str, str]]:
    """``licences.toml``."""
    return tomllib.loads(_LIST.read_text(encoding="utf-8"))


def expression(row: Mapping[str, str], known: Mapping[str, Mapping[str, str]]) -> str:
    """What a package says of its licence, in SPDX's words where they are known.

    A person's reading of the package counts first, then its licence expression, the free text, the classifier.
    """
    if row["Name"] in known["read"]:
        return known["read"][row["Name"]]
    for field in ("License-Expression", "License-Metadata", "License-Classifier"):
        if (said := row[field].strip()) != "UNKNOWN" and "\n" not in said:
            return known["spellings"].get(said, said)
    return "UNKNOWN"


def allowed(text: str, names: Mapping[str, str]) -> bool:
    """Whether an expression of identifiers, AND, OR and brackets can be kept with the allowed ones."""
    words = re.findall(r"[()]|[^\s()]+", text)

    def either() -> bool:
        found = both()
        while words and words[0] == "OR":
            words.pop(0)
            found = both() or found
        return found

    def both() -> bool:
        found = one()
        while words and words[0] == "AND":
            words.pop(0)
            found = one() and found
        return found

    def one() -> bool:
        if not words:
            return False
        if (word := words.pop(0)) != "(":
            return word in names
        found = either()
        return bool(words) and words.pop(0) == ")" and found

    return either() and not words


def installed(inside: Path) -> list[Package]:
    """Every package of an environment but the engine."""
    options = ("--python", str(inside), "--format", "json", "--with-system", "--from", "all")
    rows = json.loads(run(Path(sys.executable).with_name("pip-licenses"), *options).stdout)
    known = rules()
    return [Package(row["Name"], row["Version"], expression(row, known)) for row in rows if row["Name"] != _OWN]


def licences(found: list[Package]) -> str:
    """Every licence is allowed, and every package that a person read is there."""
    known = rules()
    if wrong := [
        f"{each.name} {each.version}: {each.licence[:60]}"
        for each in found
        if not allowed(each.licence, known["allowed"])
    ]:
        raise Failed(f"not in dev/release/licences.toml: {'; '.join(wrong)}")
    if stale := set(known["read"]) - {each.name for each in found}:
        raise Failed(f"dev/release/licences.toml reads what is not installed: {', '.join(sorted(stale))}")
    kinds = sorted({each.licence for each in found})
    return f"{len(found)} packages with all extras, {len(kinds)} kinds, all allowed"


def table(found: list[Package]) -> list[str]:
    """A line for each package."""
    return [f"{each.name} {each.version}: {each.licence}" for each in found]


def bill(inside: Path, source: Path, version: str, epoch: str, out: Path, words: list[str]) -> str:
    """The bill of materials in CycloneDX's JSON, beside the wheel."""
    made = out / f"saga_engine-{version}.cdx.json"
    options = ("--pyproject", source / "pyproject.toml", "--mc-type", "library", "--output-reproducible", "-o", made)
    tool = Path(sys.executable).with_name("cyclonedx-py")
    run(tool, "environment", *options, inside, env={"SOURCE_DATE_EPOCH": epoch})
    body: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
    # The version is dynamic in pyproject.toml, and the tool leaves it out.
    body["metadata"]["component"] |= {"version": version, "purl": f"pkg:pypi/{_OWN}@{version}"}
    text = json.dumps(body, indent=1, sort_keys=True)
    if found := [word for word in words if word in text] + re.findall(r'file://[^"]*', text):
        raise Failed(f"the bill names this machine: {', '.join(found[:5])}")
    made.write_text(text + "\n", encoding="utf-8")
    names = {each["name"] for each in body["components"]}
    if missing := {each.name for each in installed(inside)} - names:
        raise Failed(f"the bill lacks {', '.join(sorted(missing))}")
    return f"{made.name}, CycloneDX {body['specVersion']}, {len(names)} components"
