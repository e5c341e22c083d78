"""Builds HTML and SVG as text in which nothing of a model can be markup.

Every text is escaped where it is put in; only what ``tag`` made is not escaped again. An address leads to this server:
any other is dropped. There is no way to write a script, an inline style or an event handler, so the strict content
policy of the pages never has to make an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final

_VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})
_REFUSED: Final = frozenset({"script", "style", "iframe", "object", "embed", "base"})
_ADDRESSES: Final = frozenset({"href", "src", "action", "formaction"})


class Html(str):
    """A text that is markup already."""

    __slots__ = ()


#: What stands in an element: texts, markup, numbers, nothing, or several of them.
Part = str | int | float | None | Iterable["Part"]
EMPTY: Final = Html()
Attributes = Mapping[str, str | int | float | bool | None]


def text(value: Part) -> Html:
    """The parts as markup, one behind the other."""
    if value is None:
        return EMPTY
    if isinstance(value, Html):
        return value
    if isinstance(value, str):
        return Html(escape(_visible(value), quote=True))
    if isinstance(value, int | float):
        return Html(value)
    return Html("".join(text(part) for part in value))


def tag(name: str, attributes: Attributes | None = None, *parts: Part) -> Html:
    """An element. An attribute that is None or False is left out, one that is True has no value."""
    if name in _REFUSED:
        raise ValueError(f"no page of the console has an element {name}")
    written = "".join(_attribute(key, value) for key, value in (attributes or {}).items())
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{text(parts)}</{name}>")


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    if key == "style" or key.startswith("on"):
        raise ValueError(f"no element of the console has an attribute {key}")
    if value is True:
        return f" {key}"
    if key in _ADDRESSES and not _of_this_server(str(value)):
        return ""
    return f' {key}="{escape(_visible(str(value)), quote=True)}"'


def _of_this_server(address: str) -> bool:
    """Whether an address cannot lead anywhere else, whatever a browser makes of it."""
    if address.startswith(("#", "?")):
        return True
    return address.startswith("/") and address[1:2] not in {"/", "\\"} and address.isprintable()


def local_path(address: str, otherwise: str = "/") -> str:
    """An address that came with a request, if it leads to this server."""
    return address if address.startswith("/") and _of_this_server(address) and len(address) < 2000 else otherwise


def _visible(value: str) -> str:
    """The text without characters that HTML cannot hold, or that turn the direction of what follows."""
    if value.isprintable():
        return value
    return "".join(c if c in "\n\t" or c.isprintable() or _harmless(c) else "\N{REPLACEMENT CHARACTER}" for c in value)


def _harmless(character: str) -> bool:
    """Spaces of other scripts and joiners within words are text; control, surrogate and direction marks are not."""
    return (
        character.isspace() and character not in "\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029"
    ) or character in "\u200c\u200d"
