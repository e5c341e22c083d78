"""Reads a scenario: what its lines mean. See ``docs/semantics.md`` for the notation.

A scenario is a text with blocks. A block begins at the left margin, and its body is indented. Output lines, which begin
with one of ``| = ? ~ + * < !``, are dropped when a scenario is read and written anew when it is played.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from saga_engine.plan.words import BUILTINS, known

#: What an output line begins with.
MARKS: Final = "|=?~+*<!"
_DECODER: Final = json.JSONDecoder()


@dataclass
class Block:
    """A line at the margin, its indented body, and where both stand."""

    line: str
    body: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Words:
    """``NAME … key=value … / key=value``: plain words, pairs before the slash, pairs after it."""

    plain: list[str]
    pairs: dict[str, Any]
    fields: dict[str, Any]


def explanation(text: str) -> str:
    """The sentence at the top of a scenario, on one line."""
    head, _, _ = text.partition("\n\n")
    return " ".join(line.strip() for line in head.splitlines())


def title(text: str) -> tuple[str, str]:
    """The explanation's two parts: the name before the colon and the sentence after it."""
    name, _, sentence = explanation(text).partition(": ")
    assert sentence, f"a scenario begins with 'NAME: SENTENCE', not with {name!r}"
    return name, sentence


def lines_without_output(text: str) -> Iterator[str]:
    """The lines that a person wrote."""
    for line in text.splitlines():
        if line[:1] not in MARKS or not line:
            yield line


def words(text: str) -> Words:
    """The words of one line. A value is JSON if it reads as JSON, else a text up to the next space."""
    plain: list[str] = []
    parts: list[dict[str, Any]] = [{}, {}]
    part = 0
    at = 0
    while match := re.compile(r"\s*(?:(/)(?=\s)|([\w.$-]+)=|(\S+))").match(text, at):
        at = match.end()
        if match[1]:
            part = 1
        elif match[3]:
            plain.append(match[3])
        else:
            parts[part][match[2]], at = value(text, at)
    return Words(plain, *parts)


def value(text: str, at: int) -> tuple[Any, int]:
    """The value that begins at ``at``, and where it ends."""
    try:
        found, end = _DECODER.raw_decode(text, at)
    except ValueError:
        found, end = None, at
    if end > at and (end == len(text) or text[end].isspace()):
        return found, end
    bare = re.compile(r"\S*").match(text, at)
    assert bare is not None
    return bare[0], bare.end()


def step_id(text: str) -> int | str:
    """A step's id: a number where it is one."""
    return int(text) if text.isdecimal() else text


def step(line: str) -> dict[str, Any]:
    """``ID TOOL param=value … / field=value …``; in place of the tool, the word of a built-in step."""
    read = words(line)
    name, tool = read.plain
    if tool in BUILTINS or known(tool):
        return {"step_id": step_id(name), tool: read.pairs, **read.fields}
    return {"step_id": step_id(name), "tool": tool, "params": read.pairs, **read.fields}


def steps(body: list[str]) -> list[dict[str, Any]]:
    """The steps of a body, a line for each."""
    return [step(line) for line in body]


def plan(body: list[str]) -> dict[str, Any]:
    """The steps of a plan; a line that begins with ``finally`` has one of its ``finally``."""
    last = [line.strip().removeprefix("finally ") for line in body if line.strip().startswith("finally ")]
    listed = {"steps": steps([line for line in body if not line.strip().startswith("finally ")])}
    return {**listed, "finally": steps(last)} if last else listed
