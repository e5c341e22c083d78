"""The Chinese twins of the reference pages: the English text, its messages replaced by those of a catalogue.

A message is a heading, a paragraph or a cell of a table that has words outside code and link targets. A catalogue is
gettext's PO file in ``zh``, one for each page. What it does not translate, or only marks as ``fuzzy``, stays English.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Final

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from dev.website import stage
from dev.website.reference.markdown import WIDTH, unwrapped, whole_lines

FOLDER: Final = Path(__file__).parent / "zh"
_NOTE: Final = "<!-- made from the code and `{po}` by `make docs-reference`; a test compares them -->"
_HEADER: Final = r"""msgid ""
msgstr ""
"Language: zh_CN\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"
"""
_BLOCK: Final = re.compile(r"^```[\s\S]*?^```$|.+(?:\n.+)*", re.MULTILINE)
_CELL: Final = re.compile(r"(?<= )(?=\S)(?:\\\||[^|\n])+(?= \|)")
_SILENT: Final = re.compile(r"`[^`]*`|\]\([^)\s]*\)")
#: Where a Chinese line may end: at a space, or after a mark that has its own. Not within code.
_PIECE: Final = re.compile(r"(?:`[^`]*`|[^`\s，。；：、！？])*(?:[，。；：、！？]+[”）]*|\s|$)")


def file(stem: str) -> Path:
    """The catalogue of a page."""
    return FOLDER / f"{stem}.po"


def stems() -> list[str]:
    """The pages that have a catalogue."""
    return sorted(each.stem for each in FOLDER.glob("*.po"))


def twin(stem: str, english: str, page: Path) -> str:
    """The Chinese page. Its links lead to the Chinese twins of what the English ``page`` links to."""
    found = read(file(stem).read_text(encoding="utf-8"))
    note = _NOTE.format(po=file(stem).relative_to(stage.ROOT).as_posix())
    text = _rewritten(english, lambda message: _said(found, message), note)
    return stage.prose(text, lambda part: stage.LINK.sub(lambda link: _link(link["target"], page, english, text), part))


def messages(english: str) -> list[str]:
    """What is to be translated of a page, each once, in order."""
    found: dict[str, None] = {}

    def note(message: str) -> str:
        found[message] = None
        return message

    _rewritten(english, note, "")
    return list(found)


def read(po: str) -> Catalog:
    """A catalogue from its text."""
    return read_po(io.BytesIO(po.encode()), locale="zh_CN", charset="utf-8")


def untranslated(po: str) -> list[str]:
    """The messages of a catalogue that need a translation, or another one."""
    return [str(each.id) for each in read(po) if each.id and (each.fuzzy or not each.string)]


def renewed(po: str, english: str) -> str:
    """The catalogue with the messages that the page has now. One that resembles an old one is marked as ``fuzzy``."""
    now = Catalog()
    for message in messages(english):
        now.add(message)
    found = read(po)
    found.update(now)
    for each in found:
        each.flags &= {"fuzzy"}
    body = io.BytesIO()
    write_po(body, found, width=0, omit_header=True, ignore_obsolete=True)
    return f"{_HEADER}\n{body.getvalue().decode().strip()}\n"


def _said(found: Catalog, message: str) -> str:
    entry = found.get(message)
    return str(entry.string) if entry and entry.string and not entry.fuzzy else message


def _rewritten(english: str, say: Callable[[str], str], note: str) -> str:
    """The page with each message as ``say`` has it."""

    def said(message: str) -> str:
        return say(message) if re.search("[A-Za-z]", _SILENT.sub("", message)) else message

    def block(match: re.Match[str]) -> str:
        text = match[0]
        if text.startswith("```"):
            return text
        if text.startswith("<!--"):
            return note
        if text.startswith("#"):
            marks, title = text.split(" ", 1)
            return f"{marks} {said(title)}"
        if text.startswith("|"):
            return _CELL.sub(lambda cell: said(cell[0]), text)
        return _wrapped(said(unwrapped(text)))

    return _BLOCK.sub(block, english)


def _wrapped(text: str) -> str:
    """A paragraph in lines that are as wide as those of the English page, with Chinese characters of two columns."""
    lines = [""]
    for piece in _PIECE.findall(text):
        if lines[-1] and _columns(lines[-1] + piece.rstrip()) > WIDTH:
            lines.append("")
        lines[-1] += piece
    return whole_lines(line.strip() for line in lines)


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def _link(target: str, page: Path, english: str, chinese: str) -> str:
    """A link of the English page as the Chinese one has it: to the twin, and there to the same heading."""
    path, _, anchor = target.partition("#")
    if not path:
        return f"](#{stage.same_heading(anchor, english, chinese)})"
    there = (page.parent / path).resolve()
    own = there.with_suffix(".zh.md")
    if there.suffix != ".md" or not own.is_file():
        return f"]({target})"
    anchor = anchor and stage.same_heading(anchor, *(each.read_text(encoding="utf-8") for each in (there, own)))
    return f"]({path.removesuffix('.md')}.zh.md{'#' if anchor else ''}{anchor})"
