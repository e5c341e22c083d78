"""``python -m tests.kill.published``: the kill matrix with every plan, tool and store, as a table in the docs.

Each cell is what ``test_matrix.py``, ``test_matrix_elsewhere.py`` and ``test_lists.py`` do in their long forms; here the
points are counted. Ten minutes on two cores. It changes ``docs/guarantees.md`` only if no law was broken.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from saga_engine._version import __version__
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.conftest import Place, kept_alive
from tests.kill.matrix import Matrix, all_ways, killed_once
from tests.kill.processes import Processes
from tests.kill.world import ALL
from tests.servers import EmbeddedFolder
from tests.topologies import Cluster, SentinelTrio

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
BLOCK = re.compile(r"(?<=<!-- kill matrix -->\n).*?(?=<!-- end -->)", re.DOTALL)
VARIANTS = ("keyed", "probed", "bare")
STORES = ("embedded", "Sentinels", "cluster")
#: What the plans of ``world.py`` are.
PLANS = {
    "succeeds": "three steps that happen",
    "fails": "three steps, the last one fails",
    "graph": "branches, one of which fails",
    "list": "a list, then a failure",
    "lanes": "a list, two items at a time",
}
Cells = dict[tuple[str, str, str], int]


@contextmanager
def server(store: str, folder: Path) -> Iterator[str]:
    """The URL of one kind of store."""
    if store == "embedded":
        with EmbeddedFolder(folder / "saga") as place, kept_alive(place):
            yield place.url
    else:
        with (Cluster if store == "cluster" else SentinelTrio)() as topology:
            yield topology.url


def measured(stores: tuple[str, ...]) -> tuple[Cells, list[str]]:
    """How many times each case was killed, and every broken law."""
    points: Cells = {}
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="saga-kill-") as text, Processes() as processes:
        numbers = itertools.count()

        def place(url: str) -> Place:
            number = next(numbers)
            home = Path(text) / str(number)
            home.mkdir()
            return Place(f"{url}?namespace=k{number}", f"saga-{number}", OutsideLedger(home / "world.db"))

        for store in stores:
            with server(store, Path(text) / store) as url:
                for plan, variant in itertools.product(PLANS, VARIANTS):
                    matrix = Matrix(processes, place, url, plan, variant)
                    found = all_ways(lambda way, matrix=matrix: killed_once(matrix, way))
                    points[plan, variant, store] = len(found)
                    broken += [f"{store} {plan} {variant} {at}: {each}" for at, what in found.items() for each in what]
                    print(store, plan, variant, len(found), flush=True)  # noqa: T201 - the output of the program
    return points, broken


def table(points: Cells, day: str) -> str:
    """The table, as it stands on the page."""
    rows = ["| plan | tools | " + " | ".join(STORES) + " |", "|---|---|" + "---:|" * len(STORES)]
    for plan, variant in itertools.product(PLANS, VARIANTS):
        cells = " | ".join(str(points[plan, variant, store]) for store in STORES)
        rows.append(f"| {PLANS[plan]} | {variant} | {cells} |")
    total = sum(points.values())
    return "\n".join(
        [
            f"saga_engine {__version__}, {day}: {total:,} kills, and no law was broken in any of them.",
            "",
            *rows,
            "",
        ]
    )


def main() -> int:
    """Measure, then write. 1 if a law was broken."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    assert set(PLANS) == set(ALL)
    points, broken = measured(STORES)
    print("\n".join(broken))  # noqa: T201
    if broken:
        return 1
    text = PAGE.read_text(encoding="utf-8")
    written = BLOCK.sub(lambda _: table(points, datetime.now(UTC).date().isoformat()), text)
    PAGE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
