"""Which test proves which promise: the annex of ``docs/guarantees.md``, from ``proofs.toml``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from dev.website.reference.markdown import head, table

_ROOT: Final = Path(__file__).parents[3]
_ROW: Final = re.compile(r"^\| ([WT]?\d+) \|", re.MULTILINE)
_ABOUT: Final = """The tests that prove each promise of [guarantees](../guarantees.md), by its number. `W` are those of
workers, `T` those in Temporal. `tests/promises` breaks each promise and sees that one of its tests fails."""


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
    return "\n\n".join([head("Proofs", _ABOUT).strip(), table(("#", "proved by"), rows)]) + "\n"


def _named(test: str) -> str:
    name, _, more = test.partition(" (")
    return f"`{name}`" + (f" ({more}" if more else "")
