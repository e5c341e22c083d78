"""The published kill matrix has every plan, tool and store of the tests, and its sum is right."""

from __future__ import annotations

import itertools
import re

from tests.kill.published import BLOCK, PAGE, PLANS, STORES, VARIANTS, table
from tests.kill.world import ALL


def test_the_table_has_every_case_and_its_sum() -> None:
    """A plan that is added without a new run of ``python -m tests.kill.published`` is missing here."""
    shown = BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert shown is not None
    cases = list(itertools.product(PLANS, VARIANTS))
    rows = [re.findall(r"[^|]+", row) for row in shown[0].splitlines() if re.search(r"\| \d+ \|$", row)]
    points = {
        (*case, store): int(cell)
        for case, row in zip(cases, rows, strict=True)
        for store, cell in zip(STORES, row[2:], strict=True)
    }
    day = re.search(r"\d{4}-\d\d-\d\d", shown[0])
    assert day is not None
    assert table(points, day[0]) == shown[0]
    assert set(PLANS) == set(ALL)
    assert min(points.values()) >= 14
