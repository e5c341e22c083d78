"""Writes the reference pages. Run by ``make docs-reference``."""

from __future__ import annotations

from website.reference import FOLDER, pages

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
