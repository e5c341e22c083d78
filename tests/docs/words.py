"""How many English words a reader of the documentation has before them: ``python -m tests.docs.words``.

Counted are the pages that people write: those of ``docs/``, and the pages at the root. A word is a piece of text
between spaces that has a letter or a digit. Code blocks, targets of links and comments are not read as words. What a
program writes is not counted: ``docs/reference``, ``semantics.md``, and the table of a benchmark. Neither are the
decisions and the changelog, which tell history.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT, prose

#: What the pages may become: whoever adds to them takes away elsewhere.
LIMIT: Final = 70_000
#: At most so many on a guide that stands beside a page of the reference.
GUIDE: Final = 2_000
GUIDES: Final = ("cli", "errors", "plan-format", "python-api")
_WRITTEN: Final = {"CHANGELOG.md", "semantics.md"}
_GENERATED: Final = r"<!-- benchmark.*?<!-- end of benchmark -->|<!--.*?-->"


def pages() -> list[Path]:
    """The English pages that are counted."""
    found = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    return sorted(page for page in found if not page.name.endswith(".zh.md") and page.name not in _WRITTEN)


def words(page: Path) -> int:
    """How many words a page has."""
    text = re.sub(_GENERATED, "", prose(page), flags=re.DOTALL)
    text = re.sub(r"\]\([^)\s]*\)", "]", text)
    return sum(re.search(r"\w", word) is not None for word in text.split())


if __name__ == "__main__":
    counted = {page: words(page) for page in pages()}
    for page, count in sorted(counted.items(), key=lambda row: -row[1]):
        sys.stdout.write(f"{count:6,}  {page.relative_to(ROOT)}\n")
    sys.stdout.write(f"{sum(counted.values()):6,}  of at most {LIMIT:,}\n")
