"""The SQL of docs/barriers.md makes the table that the barrier uses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from saga_engine.barriers import SqlBarrier

PAGE = Path(__file__).parents[2] / "docs" / "barriers.md"


def _plain(sql: str) -> str:
    return re.sub(r"\s+", "", sql.replace(";", ""))


@pytest.mark.parametrize(
    ("dialect", "place"),
    [(sqlite.dialect(), 0), (postgresql.dialect(), 0), (mysql.dialect(), 1)],
    ids=["sqlite", "postgresql", "mysql"],
)
def test_the_texts_to_paste_make_the_same_table(dialect: Dialect, place: int) -> None:
    """Each text on the page is what SQLAlchemy would create for that database."""
    table = SqlBarrier(create_engine("sqlite://")).table
    made = [CreateTable(table), *(CreateIndex(index) for index in table.indexes)]
    texts = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert _plain(texts[place]) == _plain("".join(str(each.compile(dialect=dialect)) for each in made))
