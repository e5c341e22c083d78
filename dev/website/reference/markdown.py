"""What the reference pages have in common: docstrings as Markdown, tables, and the line that says who writes them."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence

#: The columns of a page (``tests/docs/test_pages.py``).
WIDTH = 120
_LIST = re.compile(r"^ *(?:[-*]|\d+\.) ")


def head(title: str, about: str) -> str:
    """The beginning of a page."""
    note = "<!-- written from the code by `make docs-reference`; a test compares the two -->"
    return f"# {title}\n\n{note}\n\n{wrapped(about)}\n"


def wrapped(text: str) -> str:
    """A paragraph in lines of a page."""
    return whole_lines(textwrap.wrap(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False))


def whole_lines(lines: Iterable[str]) -> str:
    """The lines of one paragraph. What begins like a list on a new line would become one."""
    return "\n".join(re.sub(r"^([-+*]|\d+\.)(?= )", r"\\\1", line) for line in lines)


def unwrapped(paragraph: str) -> str:
    """The paragraph as one line, which is the same wherever it was wrapped."""
    return " ".join(re.sub(r"^\\([-+*]|\d+\.)(?= )", r"\1", line) for line in paragraph.split("\n"))


def marked(text: str) -> str:
    """Text of a docstring as Markdown: code has one tick, and what only looks like a mark is none."""
    parts = re.split(r"(``.+?``|`[^`]+`)", text, flags=re.DOTALL)
    for at, part in enumerate(parts):
        if at % 2:
            parts[at] = f"`{part.strip('`')}`"
        else:
            parts[at] = re.sub(r"([*<\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", part)
    return "".join(parts)


def prose(docstring: str | None) -> str:
    """A docstring as paragraphs. An indented part stays as it is; without a docstring the text is empty."""
    found = []
    for part in re.split(r"\n\s*\n", inspect.cleandoc(docstring or "")):
        lines = part.replace("\b", "").strip("\n").split("\n")
        at = next((at for at, line in enumerate(lines) if line.startswith("  ")), len(lines))
        at = 0 if at < len(lines) and _LIST.match(lines[0]) else at
        if lines[:at]:
            found.append(wrapped(marked(" ".join(lines[:at]))))
        if lines[at:]:
            found.append("```text\n" + textwrap.dedent("\n".join(lines[at:])) + "\n```")
    return "\n\n".join(each for each in found if each)


def cell(text: str) -> str:
    """Text within a row of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Code within a row of a table; nothing is nothing."""
    return f"`{cell(text)}`" if text else ""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, without those columns that are empty in every row."""
    listed = [tuple(row) for row in rows]
    kept = [at for at in range(len(columns)) if any(row[at] for row in listed)]
    lines = ["| " + " | ".join(columns[at] for at in kept) + " |", "|---" * len(kept) + "|"]
    lines += ["| " + " | ".join(row[at] for at in kept) + " |" for row in listed]
    return "\n".join(lines) + "\n"
