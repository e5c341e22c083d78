"""Removes secrets from records, including echoes in every spelling in which they return.

A server that echoes a secret may have put it into JSON, a URL, HTML or base64, or wrapped it onto other lines; a
message may have been cut in the middle of it. The secret's marker replaces every match.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

from saga_engine.core.effects import Done, Drifted, Outcome

#: Shorter values are only searched as they are: their encodings are too common.
_ENCODED_CHARS: Final = 6
#: The minimum length of a line of a multi-line secret that is searched alone.
_LINE_CHARS: Final = 12
#: How much of a secret must be left before a mark of omission, and at the end of a text, to count as a part of it.
_EDGE_CHARS: Final = 4
_END_CHARS: Final = 8
_OMISSION: Final = re.compile(r"…|\.\.\.")


class Scrubber:
    """Removes the ``values`` of secrets, by name, from texts and JSON; ``marker`` turns a name into its replacement."""

    __slots__ = ("_exact", "_known", "_longest")

    def __init__(self, values: Mapping[str, str], marker: Callable[[str], str] | None = None) -> None:
        marker = marker or secret_marker
        self._exact = {value: marker(name) for name, value in values.items() if value}
        found: dict[str, str] = {}
        for name, value in values.items():
            for spelling in _spellings(value):
                found.setdefault(spelling, marker(name))
        # The longest first: one secret may be a part of another.
        self._known = sorted(found.items(), key=lambda each: -len(each[0]))
        self._longest = len(self._known[0][0]) if self._known else 0

    def __bool__(self) -> bool:
        return bool(self._known)

    def text(self, text: str) -> str:
        """The text with a marker for each secret, and for the rest of one where the text was cut."""
        text = self._without_edges(text)
        for spelling, mark in self._known:
            if spelling in text:
                text = text.replace(spelling, mark)
        return text

    def value(self, value: Any) -> Any:
        """The same for JSON; a number that is a secret becomes its marker."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._exact.get(str(value), value)
        return value

    def outcome(self, outcome: Outcome) -> Outcome:
        """The same for the output of a tool, or for its error."""
        if not self._known:
            return outcome
        if isinstance(outcome, Done):
            after = None if outcome.after is None else self.value(outcome.after)
            return outcome._replace(output=self.value(outcome.output), after=after)
        if isinstance(outcome, Drifted):
            outcome = outcome._replace(found=self.value(outcome.found))
        texts = {name: text for name, text in msgspec.structs.asdict(outcome.error).items() if isinstance(text, str)}
        clean = {name: self.text(text) for name, text in texts.items()}
        return outcome._replace(error=msgspec.structs.replace(outcome.error, **clean))

    def _without_edges(self, text: str) -> str:
        marks = list(_OMISSION.finditer(text))
        if not marks:
            # Without a mark of omission it may be no part of a secret: much of it must be present.
            return self._without_rest(text, 0)
        ends = [0, *(mark.end() for mark in marks)]
        starts = [*(mark.start() for mark in marks), len(text)]
        pieces = [text[end:start] for end, start in zip(ends, starts, strict=True)]
        for at, piece in enumerate(pieces):
            left = self._without_end(piece) if at else piece
            pieces[at] = self._without_rest(left, _EDGE_CHARS if at < len(marks) else 0)
        return "".join(piece + mark for piece, mark in zip(pieces, [*(mark[0] for mark in marks), ""], strict=True))

    def _without_end(self, text: str) -> str:
        """The text without the end of a secret at its beginning."""
        last, found = 0, ""
        for spelling, mark in self._known:
            if len(spelling) <= _EDGE_CHARS:
                continue
            end, at = spelling[-_EDGE_CHARS:], -1
            while (at := text.find(end, at + 1, self._longest)) >= 0:
                if at + _EDGE_CHARS > last and spelling.endswith(text[: at + _EDGE_CHARS]):
                    last, found = at + _EDGE_CHARS, mark
        return found + text[last:]

    def _without_rest(self, text: str, least: int) -> str:
        """The text without the beginning of a secret at its end; ``least`` characters of it, 0: half of it."""
        first = max(len(text) - self._longest, 0)
        cut, found = len(text), ""
        for spelling, mark in self._known:
            needed = least or max(_END_CHARS, len(spelling) // 2)
            at = text.find(spelling[:needed], first) if needed < len(spelling) else -1
            while 0 <= at < cut:
                if spelling.startswith(text[at:]):
                    cut, found = at, mark
                at = text.find(spelling[:needed], at + 1)
        return text[:cut] + found


def secret_marker(name: str) -> str:
    """The marker of a secret in records."""
    return f"$secret.{name}"


def scrubber(values: Mapping[str, str]) -> Scrubber:
    """The scrubber for these values; made once for the same ones."""
    return _scrubber(tuple(sorted(values.items())))


@lru_cache(maxsize=64)
def _scrubber(values: tuple[tuple[str, str], ...]) -> Scrubber:
    return Scrubber(dict(values))


def _spellings(value: str) -> Iterator[str]:
    """A secret as it is, and in other spellings."""
    if not value:
        return
    yield value
    if value.strip():
        yield value.strip()
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        # A key file, for example: on one line, with escaped ends of lines, or a part of it.
        yield from (joined for sign in ("", " ", "\n", "\r\n") if len(joined := sign.join(lines).strip()) > 1)
        for line in lines:
            if len(line) >= _LINE_CHARS and not line.startswith("-----"):
                yield from (line, quote(line), quote(line, safe=""), line.replace("/", "\\/"))
    if len(value) < _ENCODED_CHARS:
        return
    for plain in dict.fromkeys((value, value.strip(), value.replace("\r\n", "\n"))):
        escaped = json.dumps(plain)[1:-1]
        yield from (escaped, json.dumps(plain, ensure_ascii=False)[1:-1], json.dumps(escaped)[1:-1])
        yield from (escaped.replace("/", "\\/"), repr(plain)[1:-1], plain.encode("unicode_escape").decode())
        yield from (quote(plain), quote(plain, safe=""), quote_plus(plain), html.escape(plain))
        yield html.escape(plain, quote=False)
        raw = plain.encode("utf-8", "surrogatepass")
        yield from (raw.hex(), raw.hex().upper())
        for text in _in_base64(raw):
            yield text
            yield text.replace("+", "-").replace("/", "_")


def _in_base64(raw: bytes) -> Iterator[str]:
    """The part of it that is the same in the base64 of every text that contains it, at each of three offsets."""
    for before, skip in ((0, 0), (1, 2), (2, 3)):
        whole = base64.b64encode(b"\0" * before + raw).decode()
        found = whole[skip : (before + len(raw)) * 8 // 6]
        if len(found) >= _ENCODED_CHARS:
            yield found
