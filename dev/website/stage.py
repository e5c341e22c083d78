"""Lays the pages of the repository out as Sphinx reads them: one folder a language, in which every link stays within.

A page keeps the text that readers of the repository see. What differs on the site is where it links to: a file that
is no page of ``docs/`` (an example, a scenario, the changelog) becomes a page under ``source/``, so that the site is
whole without a network. What is no prose exists once: the Chinese site leads to the English one's page. The navigation
is the index page itself: its headings are the captions, its links the entries.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from dev.website.diagrams import drawn

ROOT = Path(__file__).parents[2]
LANGUAGES = ("en", "zh")

#: Code, which no link stands in: a fenced block, or a span within a paragraph.
_CODE = re.compile(
    r"^(?P<fence>`{3,})[^\n]*\n.*?^(?P=fence)[ \t]*$"
    r"|(?<!`)(?P<ticks>`+)(?!`)(?:(?!\n[ \t]*\n).)*?(?<!`)(?P=ticks)(?!`)",
    re.DOTALL | re.MULTILINE,
)
_FENCED = re.compile(r"^(?P<fence>`{3,})[^\n]*\n.*?^(?P=fence)[ \t]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_ENTRY = re.compile(r"\[(?P<title>[^\]]+)\]\((?P<target>[^)\s#]+\.md)\)")

_ONLY_ENGLISH = "*本页目前只有英文版。*\n\n"
_PICTURES = (".png", ".svg")
_LEXERS = {"md": "markdown", "py": "python", "toml": "toml", "json": "json", "yml": "yaml", "yaml": "yaml", "ts": "ts"}


def _english(name: str) -> str:
    return f"{name.removesuffix('.md').removesuffix('.zh')}.md"


def slugs(text: str) -> list[str]:
    """The anchors of a page's headings, in order, as GitHub makes them."""
    found: list[str] = []
    for title in re.findall(r"^#{1,6} +(.+?) *$", _FENCED.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        same = sum(re.fullmatch(rf"{re.escape(slug)}(?:-\d+)?", each) is not None for each in found)
        found.append(f"{slug}-{same}" if same else slug)
    return found


def same_heading(anchor: str, english: str, own: str) -> str:
    """The anchor of the heading of a translation that stands where that of the English page does."""
    before, after = slugs(english), slugs(own)
    return after[before.index(anchor)] if anchor in before and len(before) == len(after) else anchor


class DeadLink(Exception):
    """A page links to a file that is not there."""


def prose(text: str, change: Callable[[str], str]) -> str:
    """``text`` with its prose changed: fenced blocks and code spans stay as they are."""
    parts, at = [], 0
    for code in _CODE.finditer(text):
        parts += [change(text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, change(text[at:])])


@dataclass
class Stage:
    """One language's folder of pages. ``extra`` are pages that were made from the code: their places and texts."""

    folder: Path
    language: str
    root: Path = ROOT
    extra: dict[str, str] = field(default_factory=dict)
    done: set[Path] = field(default_factory=set)
    waiting: list[Path] = field(default_factory=list)

    def lay_out(self) -> None:
        """Write every page of ``docs/``, and every file of the repository that one of them leads to."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name, text in self.extra.items():
            self._write(PurePosixPath(name), text)
        self.waiting = sorted(page for page in (self.root / "docs").rglob("*.md") if not page.name.endswith(".zh.md"))
        while self.waiting:
            file = self.waiting.pop()
            if file not in self.done:
                self.done.add(file)
                self._put(file)

    def place(self, file: Path) -> PurePosixPath:
        """Where a file of the repository stands on the site; a translation stands where its English page does."""
        path = PurePosixPath(file.relative_to(self.root).as_posix())
        if path.suffix == ".md":
            path = path.with_name(_english(path.name))
        inside = path.parts[0] == "docs"
        path = PurePosixPath(*path.parts[1:]) if inside else PurePosixPath("source", path)
        if file.is_dir():
            return path / "index.md"
        if path.suffix != ".md":
            return path if path.suffix in _PICTURES else path.with_name(path.name + ".md")
        return path.with_name("index.md") if path.name == "README.md" else path

    def shown(self, file: Path) -> Path:
        """The page in this stage's language if there is one, else the English page."""
        english = file.with_name(_english(file.name))
        own = english.with_name(f"{english.stem}.{self.language}.md")
        return own if own.is_file() else english

    def _put(self, file: Path) -> None:
        where = self.place(file)
        if where.suffix != ".md":
            (self.folder / where).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, self.folder / where)
        elif file.is_dir():
            rows = [f"- [{each.name}]({each.name})" for each in sorted(file.iterdir()) if each.is_file()]
            self._write(where, self._orphan(self._linked(f"# {file.name}\n\n" + "\n".join(rows) + "\n", file, where)))
        elif file.suffix == ".md":
            self._write(where, self._page(file, where))
        else:
            body = file.read_text(encoding="utf-8")
            ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", body)), default=0))
            title = file.relative_to(self.root).as_posix()
            lexer = _LEXERS.get(file.suffix[1:], "text")
            self._write(where, self._orphan(f"# `{title}`\n\n{ticks}{lexer}\n{body.rstrip()}\n{ticks}\n"))

    def _page(self, file: Path, where: PurePosixPath) -> str:
        shown = self.shown(file)
        text = shown.read_text(encoding="utf-8")
        if self.language != "en" and shown == file and where.parts[0] != "source":
            title, rest = text.split("\n", 1)
            text = f"{title}\n\n{_ONLY_ENGLISH}{rest.lstrip()}"
        nav = "".join(toctrees(text, self.extra)) if where == PurePosixPath("index.md") else ""
        text = drawn(self._linked(text, shown.parent, where))
        if nav:
            return text + nav
        if where.name == "index.md" and where.parent.parts and where.parts[0] != "source":
            return text + "".join(toctrees(file.read_text(encoding="utf-8"), {}))
        return self._orphan(text) if where.parts[0] == "source" else text

    def _linked(self, text: str, folder: Path, where: PurePosixPath) -> str:
        """The text with its links as the site has them; what they lead to is put on the site, too."""

        def link(match: re.Match[str]) -> str:
            target, _, anchor = match["target"].partition("#")
            if re.match(r"[a-z]+:", match["target"]) or not target:
                return match[0]
            if target in self.extra and where.name == "index.md":
                return match[0]
            file = (folder / target).resolve()
            if not file.exists():
                raise DeadLink(f"{folder.relative_to(self.root)}: {target}")
            if file.is_dir() and (file / "README.md").is_file():
                file /= "README.md"
            if file.name.endswith(".zh.md"):
                file = file.with_name(_english(file.name))
            elif anchor:
                anchor = self._own_anchor(file, anchor)
            path = os.path.relpath(self.place(file), where.parent)
            if self.language != "en" and file.suffix not in (".md", *_PICTURES):
                up = "../" * len(where.parts)
                return f"](english:{up}{self.place(file).with_suffix('.html')})"
            self.waiting.append(file)
            return f"]({path}{'#' if anchor else ''}{anchor})"

        return prose(text, lambda part: LINK.sub(link, part))

    def _own_anchor(self, file: Path, anchor: str) -> str:
        """The anchor of an English page's heading on the page that is shown in its place, which has the same ones."""
        shown = self.shown(file)
        if shown == file:
            return anchor
        return same_heading(anchor, *(page.read_text(encoding="utf-8") for page in (file, shown)))

    def _orphan(self, text: str) -> str:
        return f"---\norphan: true\n---\n\n{text}"

    def _write(self, where: PurePosixPath, text: str) -> None:
        path = self.folder / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def toctrees(index: str, extra: dict[str, str]) -> Iterator[str]:
    """The navigation that an index page stands for: a tree for each of its sections, with its links as entries."""
    _, *sections = re.split(r"^## +(.+?) *$", "\n" + index, flags=re.MULTILINE)
    if not sections:
        sections = ["", index]
    for caption, body in zip(sections[::2], sections[1::2], strict=True):
        entries = []
        for entry in _ENTRY.finditer(body):
            target = entry["target"]
            if target.startswith("../"):
                continue
            target = target if target in extra else target.replace(".zh.md", ".md").replace("README.md", "index.md")
            entries.append(f"{entry['title']} <{target.removesuffix('.md')}>")
        if entries:
            rows = "\n".join(entries)
            head = f":caption: {caption}\n" if caption else ""
            yield f"\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n{head}\n{rows}\n```\n"
