"""The documentation is as long as somebody reads: its words are counted, by the rule of ``CONTRIBUTING.md``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import words
from tests.docs.pages import ROOT


def test_the_pages_have_at_most_so_many_words() -> None:
    """Whoever adds a page says elsewhere less: ``python -m tests.docs.words`` lists the pages by their length."""
    counted = {str(page.relative_to(ROOT)): words.words(page) for page in words.pages()}
    assert sum(counted.values()) <= words.LIMIT


@pytest.mark.parametrize("name", words.GUIDES)
def test_a_guide_stands_beside_the_reference(name: str) -> None:
    """What a page of ``docs/reference`` says is not said again: the guide is short, and leads there."""
    page = ROOT / "docs" / f"{name}.md"
    assert words.words(page) <= words.GUIDE
    assert "](reference/" in page.read_text(encoding="utf-8")


def test_what_is_counted(tmp_path: Path) -> None:
    """Code, targets of links, comments and the table of a benchmark are not; tables and headings are."""
    page = tmp_path / "page.md"
    page.write_text(
        "# Two words\n\nThree [linked words](a-page.md#with-words) — here.\n\n```py\nnot counted at all\n```\n\n"
        "| a cell | `b` |\n|---|---|\n\n<!-- benchmark: x -->\n| 1 | 2 |\n<!-- end of benchmark -->\n<!-- a note -->\n",
        encoding="utf-8",
    )
    assert words.words(page) == 2 + 4 + 3


def test_the_page_for_contributors_says_the_rule() -> None:
    """The number of the test is the number of the page."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.search(rf"at most\s+{words.LIMIT:,} English words", text)
    assert "python -m tests.docs.words" in text
