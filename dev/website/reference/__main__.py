"""Writes the reference pages, and what their catalogues are to translate. Run by ``make docs-reference``."""

from __future__ import annotations

from dev.website.reference import FOLDER, chinese, english, pages


def main() -> None:
    """Write the English pages first: from these the catalogues are renewed, and from both come the Chinese pages."""
    FOLDER.mkdir(exist_ok=True)
    now = english()
    for stem in chinese.stems():
        po = chinese.file(stem)
        po.write_text(chinese.renewed(po.read_text(encoding="utf-8"), now[f"{stem}.md"]), encoding="utf-8")
        if missing := chinese.untranslated(po.read_text(encoding="utf-8")):
            print(f"{po.relative_to(FOLDER.parents[1])}: {len(missing)} to translate")
        (FOLDER / f"{stem}.zh.md").touch()  # so that the others link to it
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
