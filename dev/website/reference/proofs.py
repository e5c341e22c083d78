"""What proves the promises: the annex of ``docs/guarantees.md``, from ``proofs.toml`` and ``evidence.md``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from dev.website.reference.markdown import head, table

_ROOT: Final = Path(__file__).parents[3]
_ROW: Final = re.compile(r"^\| ([WT]?\d+) \|", re.MULTILINE)
_ABOUT: Final = """The tests that prove each promise of [guarantees](../guarantees.md), by its number. `W` are those of
workers, `T` those in Temporal. `tests/promises` breaks each promise and sees that one of its tests fails. Below the
table stands what ran on which store, and what it measured."""


def proofs() -> dict[str, list[str]]:
    """The tests of each promise, by its number."""
    return tomllib.loads(Path(__file__).with_name("proofs.toml").read_text(encoding="utf-8"))


def page() -> str:
    """The page. Raises ``KeyError`` for a promise without a test, and for a test without its promise."""
    promises = _ROW.findall((_ROOT / "docs/guarantees.md").read_text(encoding="utf-8"))
    named = proofs()
    if unknown := named.keys() ^ set(promises):
        raise KeyError(f"proofs.toml and docs/guarantees.md differ: {', '.join(sorted(unknown))}")
    rows = [(number, ", ".join(map(_named, named[number]))) for number in promises]
    tests = table(("#", "proved by"), rows).strip()
    return "\n\n".join([head("Proofs", _ABOUT).strip(), "## The tests of each promise", tests, _evidence()]) + "\n"


def _evidence() -> str:
    """What ran where, and what it measured; ``make docs-kills`` writes the counts between the marks."""
    text = Path(__file__).with_name("evidence.md").read_text(encoding="utf-8")
    return re.sub(r"\n*<!-- [a-z]+ -->\n*", "\n\n", text).strip()


def _named(test: str) -> str:
    name, _, more = test.partition(" (")
    return f"`{name}`" + (f" ({more}" if more else "")
