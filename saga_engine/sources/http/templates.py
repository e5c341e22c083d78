"""The templates of a request: texts and JSON with ``{param}`` and ``$secret.NAME`` in them.

Params come from language models. A param fills exactly its own placeholder: in a URL it is one segment between two
slashes or one value of the query, percent-encoded, and never more (RFC 3986 section 2); in a header it is visible
ASCII; in JSON it is a value. A value that does not fit is refused before anything is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

from saga_engine.errors import SecretMissing
from saga_engine.language.errors import said

#: The engine fills it in every template; it is never a param.
KEY: str = "idempotency_key"

_TOKEN = re.compile(
    r"\{\{|\}\}"
    r"|\{(?P<param>[A-Za-z_][\w-]*)\}"
    r"|\$\$(?=secret\.)"
    r"|\$secret\.(?P<secret>[A-Za-z_]\w*)"
    r"|(?P<wrong>[{}])",
    re.ASCII,
)
_COOKIE = re.compile(r"[!#-+\--:<-\[\]-~]*", re.ASCII)
_SEPARATOR = re.compile(r"[/\\]")


class Unfit(Exception):
    """A value does not fit the request; the message names the param, never a secret's value."""


class Param(NamedTuple):
    """The placeholder of a param."""

    name: str


class Secret(NamedTuple):
    """The placeholder of a variable of the environment."""

    name: str


class Text(NamedTuple):
    """A text with placeholders."""

    parts: tuple[str | Param | Secret, ...]

    @property
    def whole(self) -> str | None:
        """The param that makes up the whole text, if there is one."""
        only = self.parts[0] if len(self.parts) == 1 else None
        return only.name if isinstance(only, Param) else None

    @property
    def params(self) -> frozenset[str]:
        """The params in it."""
        return frozenset(part.name for part in self.parts if isinstance(part, Param))

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets in it."""
        return frozenset(part.name for part in self.parts if isinstance(part, Secret))


def parse_text(source: str) -> Text:
    """Parse ``{param}``, ``$secret.NAME``, ``{{``, ``}}`` and ``$$secret.``. Raises ``ValueError``."""
    parts: list[str | Param | Secret] = []
    at = 0
    for found in _TOKEN.finditer(source):
        if found.start() > at:
            parts.append(source[at : found.start()])
        at = found.end()
        if found["wrong"]:
            raise ValueError(f"the {found['wrong']!r} at {found.start()} stands alone: write {found['wrong'] * 2}")
        if found["param"]:
            parts.append(Param(found["param"]))
        elif found["secret"]:
            parts.append(Secret(found["secret"]))
        else:
            parts.append(found[0][0])
    if at < len(source):
        parts.append(source[at:])
    return Text(tuple(parts))


class Values:
    """The values of one request, and the secrets that it was given."""

    __slots__ = ("_environ", "_params", "seen")

    def __init__(self, params: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._params = params
        self._environ = environ
        #: The secrets that were read, by name.
        self.seen: dict[str, str] = {}

    def has(self, name: str) -> bool:
        """Whether the param has a value; outside of a JSON body a null counts as none."""
        return self._params.get(name) is not None

    def given(self, name: str) -> bool:
        """Whether the param was given, even as null."""
        return name in self._params

    def param(self, name: str) -> Any:
        """The param unchanged."""
        return self._params[name]

    def text(self, text: Text, escape: Callable[[str], str] | None = None) -> str:
        """The text with its placeholders filled; each value passes through ``escape``.

        Raises ``Unfit`` and ``SecretMissing``.
        """
        pieces: list[str] = []
        for part in text.parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            value = self._secret(part.name) if isinstance(part, Secret) else as_text(self._params, part.name)
            pieces.append(value if escape is None else escape(value))
        return "".join(pieces)

    def _secret(self, name: str) -> str:
        value = self._environ.get(name)
        if value is None:
            raise SecretMissing(said("any.secret", name=name), hint=said("any.secret-again", name=name), secret=name)
        self.seen[name] = value
        return value


def as_text(params: Mapping[str, Any], name: str) -> str:
    """A param inside a text: text unchanged, everything else as compact JSON. Raises ``Unfit``."""
    value = params.get(name)
    if value is None:
        raise Unfit(f"the param {name!r} has no value")
    try:
        text = value if isinstance(value, str) else _compact(value)
        text.encode()
    except ValueError:  # NaN, or a lone surrogate
        raise Unfit(f"the param {name!r} holds what no text can hold") from None
    return text


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


# --- URLs ----------------------------------------------------------------------------------------------------------


def encoded(text: str) -> str:
    """Everything but RFC 3986's unreserved characters as percent escapes."""
    return quote(text, safe="-._~")


def path_piece(piece: Text, values: Values) -> str:
    """One segment of a path, encoded. Raises ``Unfit`` for a value that a server could take for several segments."""
    plain = values.text(piece)
    if piece.params or piece.secrets:
        names = ", ".join(sorted(piece.params | piece.secrets))
        if not plain:
            raise Unfit(f"{names} makes an empty piece of the path")
        if any(ord(char) < 32 or ord(char) == 127 for char in plain):
            raise Unfit(f"{names} puts a control character into the path")
        # Some servers decode %2F before they split: no segment may become a '..' even then.
        if any(step in {".", ".."} for step in _SEPARATOR.split(plain)):
            raise Unfit(f"{names} makes a '.' or '..' in the path")
    return values.text(piece, encoded)


#: How a value of a query or a form that is not plain is written.
Style = Literal["repeat", "comma", "space", "pipe", "brackets", "json"]
_BETWEEN: Final[Mapping[Style, str]] = {"comma": ",", "space": " ", "pipe": "|"}


def pairs_of(field: str, text: Text, values: Values, style: Style = "repeat") -> Iterator[tuple[str, str]]:
    """The pairs of a query or a form that one template makes; none for a param without a value. Raises ``Unfit``.

    A list repeats the field, or is one value with a character between its items. ``brackets`` names each value
    inside an object or a list by its place, as in ``filter[state]`` and ``items[0][price]``; ``json`` writes the whole.
    """
    name = text.whole
    if name is None:
        yield field, values.text(text)
        return
    if not values.has(name):
        return
    value = values.param(name)
    if style == "brackets" and isinstance(value, dict | list):
        for place, item in _inside(field, value):
            yield place, as_text({name: item}, name)
    elif style == "json" and isinstance(value, dict | list):
        yield field, as_text({name: value}, name)
    elif style in _BETWEEN and isinstance(value, list):
        if value:
            yield field, _joined(name, value, _BETWEEN[style])
    else:
        for item in value if isinstance(value, list) else [value]:
            yield field, _plain(name, item)


def _plain(name: str, item: Any) -> str:
    if isinstance(item, dict | list) or item is None:
        raise Unfit(f"the param {name!r} must be a plain value, or a list of these")
    return as_text({name: item}, name)


def _joined(name: str, items: list[Any], between: str) -> str:
    """A list as one value; an item that holds what stands between two would become two."""
    texts = [_plain(name, item) for item in items]
    if any(between in text for text in texts):
        raise Unfit(f"an item of the param {name!r} holds {between!r}, which stands between two items")
    return between.join(texts)


def _inside(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Each plain value inside an object or a list, with its place in brackets; a null has none."""
    if isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _inside(f"{place}[{step}]", item)
    elif value is not None:
        yield place, value


# --- headers -------------------------------------------------------------------------------------------------------


def header_value(header: str, text: Text, values: Values) -> str | None:
    """A header's value; ``None``: its only param has no value, so the header is omitted. Raises ``Unfit``.

    Only visible ASCII with inner spaces, so no value can end the header and begin another (RFC 9110 section 5.5); in a
    ``Cookie`` only what a cookie's value may hold, so none can begin another cookie (RFC 6265 section 4.1.1).
    """
    if text.whole is not None and not values.has(text.whole):
        return None
    value = values.text(text)
    if header.lower() == "cookie":
        for name in sorted(text.params):
            if not _COOKIE.fullmatch(values.text(Text((Param(name),)))):
                raise Unfit(f"the param {name!r} holds a character that no cookie's value has")
    if any(not " " <= char <= "~" for char in value):
        raise Unfit(f"the header {header} would hold a character that is not visible ASCII")
    if value != value.strip(" "):
        raise Unfit(f"the header {header} would begin or end with a blank")
    return value


# --- JSON ----------------------------------------------------------------------------------------------------------

ABSENT: Any = object()


def parse_json(node: Any) -> Any:
    """A JSON template, with ``Text`` for each text. Raises ``ValueError`` for invalid JSON."""
    if isinstance(node, str):
        return parse_text(node)
    if isinstance(node, dict):
        return {key: parse_json(value) for key, value in node.items()}
    if isinstance(node, list):
        return [parse_json(value) for value in node]
    if node is None or isinstance(node, bool | int | float):
        return node
    raise ValueError(f"a {type(node).__name__} is no JSON: write it as a text")


def texts_of(node: Any) -> Iterator[Text]:
    """All texts of a JSON template."""
    if isinstance(node, Text):
        yield node
    elif isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            yield from texts_of(value)


def fill_json(node: Any, values: Values) -> Any:
    """The template with its placeholders filled; a lone ``{x}`` keeps its type, and is removed if it is not given.

    Raises ``Unfit`` and ``SecretMissing``.
    """
    if isinstance(node, Text):
        name = node.whole
        if name is None:
            return values.text(node)
        return values.param(name) if values.given(name) else ABSENT
    if isinstance(node, dict):
        filled = {key: fill_json(value, values) for key, value in node.items()}
        return {key: value for key, value in filled.items() if value is not ABSENT}
    if isinstance(node, list):
        return [value for value in (fill_json(item, values) for item in node) if value is not ABSENT]
    return node
