"""Counts the cases of the kill tests, by store, into the table of ``website/reference/evidence.md``: ``make docs-kills``.

pytest collects the tests and runs none. A row of the table names files of ``tests/kill``, and has a cell for each store:
how many cases it has in the short form, and with ``--long``.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from dev.website import reference

ROOT: Final = Path(__file__).parents[2]
KILL: Final = ROOT / "tests" / "kill"
PAGES: Final = [Path(reference.__file__).with_name("evidence.md")]
#: The stores in the order of the columns, and what names each in the source of a test.
STORES: Final = {
    "embedded": r"\bembedded\b|\bserver_url\b",
    "debian": r"\bserver_url\b|\bdebian_redis\b|\bDebianRedis\b",
    "cluster": r"\bCluster\b",
    "sentinel": r"\bSentinelTrio\b",
    "memory": r"memory://",
}
#: How the ids, the parameters and the fixtures of cases call them.
_NAMES: Final = {
    **{name: name for name in ("embedded", "debian", "cluster", "sentinel")},
    "Cluster": "cluster",
    "SentinelTrio": "sentinel",
    "DebianRedis": "debian",
    "trio": "sentinel",
    "debian_redis": "debian",
}
#: Tests in which a broken engine is found out: no kills of the engine as it is.
BREAKING: Final = "_catches|_is_noticed"
#: The tests of the single kills that demand a number of points for each step.
_SINGLE: Final = "test_killed_anywhere_and_resumed"
_NONE: Final = "—"

#: By file (or ``at_least``) and store: in the short form, and with ``--long``.
Counts = dict[str, dict[str, tuple[int, int]]]


class _Counting:
    """A plugin that counts what pytest collects."""

    def __init__(self) -> None:
        self.short: Counter[tuple[str, str]] = Counter()
        self.long: Counter[tuple[str, str]] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if re.search(BREAKING, item.name):
                continue
            self._count(item, item.path.name, 1)
            if item.name.startswith(_SINGLE):
                self._count(item, "at_least", _points(item))

    def _count(self, item: pytest.Item, row: str, by: int) -> None:
        key = row, _store(item)
        self.long[key] += by
        if item.get_closest_marker("slow") is None:
            self.short[key] += by

    def counts(self) -> Counts:
        rows = {row for row, _ in self.long}
        return {row: {store: (self.short[row, store], self.long[row, store]) for store in STORES} for row in rows}


def _params(item: pytest.Item) -> dict[str, object]:
    call = getattr(item, "callspec", None)
    return dict(call.params) if call else {}


def _store(item: pytest.Item) -> str:
    """The store that a case runs on: its parameter, else its fixture, else the only one in its file without either."""
    params = _params(item)
    named = [getattr(params.get(name), "__name__", params.get(name)) for name in ("server_url", "kind")]
    named += [mark.name for mark in item.iter_markers()] + sorted(getattr(item, "fixturenames", ()))
    found = [_NAMES[str(name)] for name in named if str(name) in _NAMES]
    return found[0] if found else "memory" if "memory" in stores_in([item.path.name]) else "embedded"


def _points(item: pytest.Item) -> int:
    """The least number of kills that this case demands: see its ``at_least``."""
    from tests.kill.world import PLANS

    return 4 * len(PLANS[str(_params(item)["plan"])]["steps"]) + 2


def stores_in(files: list[str]) -> list[str]:
    """The stores that these files of ``tests/kill`` name, in the order of the columns."""
    text = "".join((KILL / name).read_text(encoding="utf-8") for name in files)
    return [store for store, pattern in STORES.items() if re.search(pattern, text)]


def counted() -> Counts:
    """What pytest collects now. Nothing is run."""
    counting = _Counting()
    code = pytest.main(["--collect-only", "-qq", "-n0", "-p", "no:cacheprovider", str(KILL)], plugins=[counting])
    assert code == 0, f"the kill tests cannot be collected: {code!r}"
    return counting.counts()


def rows(text: str) -> dict[tuple[str, ...], list[str]]:
    """The rows of the table of a page: the files that each names (or ``at_least``), and its cells."""
    found = {}
    for line in _table(text).splitlines():
        cells = _cells(line)
        if names := _named(cells[0]):
            found[names] = cells
    return found


def written(text: str, counts: Counts) -> str:
    """The page with its counts as they are now. A row whose files cannot be collected on this machine stays."""

    def row(match: re.Match[str]) -> str:
        cells = _cells(match[0])
        names = _named(cells[0])
        if not any(name in counts for name in names):
            return match[0]
        here = [_cell([counts[name][store] for name in names if name in counts]) for store in STORES]
        return f"| {' | '.join([*cells[: -len(STORES)], *here])} |"

    table = _table(text)
    return text.replace(table, re.sub(r"^\|.*\|$", row, table, flags=re.MULTILINE))


def _table(text: str) -> str:
    found = re.search(r"<!-- kills -->\n.*?<!-- end -->", text, re.DOTALL)
    assert found, "the page must have the markers of the table of kills"
    return found[0]


def _named(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`(test_\w+\.py|at_least)`", cell))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]


def _cell(counts: list[tuple[int, int]]) -> str:
    short, long = map(sum, zip(*counts, strict=True))
    return f"{short} · {long}" if long else _NONE


def main() -> None:
    """Write the counts, or say with ``--check`` which pages have others."""
    counts = counted()
    found = [(page, page.read_text(encoding="utf-8")) for page in PAGES]
    changed = [(page, new) for page, old in found if (new := written(old, counts)) != old]
    if "--check" in sys.argv:
        sys.exit("".join(f"{page.name} has other counts: make docs-kills\n" for page, _ in changed) or 0)
    for page, new in changed:
        page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
