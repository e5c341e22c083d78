"""The prompts: files with a front matter, filled by a template language that can only insert texts.

Everything that comes from a person, a tool or a model is *data*: it is written as JSON in which the characters of a
fence (``<``, ``>`` and the backtick) and all invisible characters are escaped, so no data can end its fence, open
another one, or pass for a turn of the conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from saga_engine.errors import PlannerUnavailable

_PLACE = re.compile(r"\{\{([a-z_]+)\}\}")
_HEADING = re.compile(r"^# (?:System|Question)$", re.MULTILINE)
_FILE = re.compile(
    r"---\nname: (\S+)\nversion: (\S+)\ninputs: ([^\n]+)\noutputs: ([^\n]+)\n---\n+# System\n(.*)\n# Question\n(.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt file: its name and version, its placeholders, and its two halves."""

    name: str
    version: str
    inputs: tuple[str, ...]
    outputs: str
    system: str
    question: str

    @property
    def label(self) -> str:
        """Name and version, in the journalled form."""
        return f"{self.name}@{self.version}"

    def render(self, values: Mapping[str, str]) -> tuple[str, str]:
        """System text and question with every placeholder filled; values are never searched for placeholders."""
        missing = sorted(set(self.inputs) - set(values))
        if missing:
            raise KeyError(f"the prompt {self.name} needs {missing[0]}")

        def fill(match: re.Match[str]) -> str:
            return values[match.group(1)]

        return _PLACE.sub(fill, self.system), _PLACE.sub(fill, self.question)


def folder() -> Path:
    """The prompts' folder: in the installed package, or beside it in a checkout. Raises ``PlannerUnavailable``."""
    package = Path(__file__).parents[1]
    for place in (package / "planner_prompts", package.parent / "planner_prompts"):
        if (place / "propose.md").is_file():
            return place
    raise PlannerUnavailable(
        "the prompts of the planner are not installed", hint="install saga-engine again: its folder is incomplete"
    )


@lru_cache
def load_prompt(name: str) -> Prompt:
    """The prompt of this name. Raises ``PlannerUnavailable`` if its file is missing or damaged."""
    path = folder() / f"{name}.md"
    try:
        return parse_prompt(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlannerUnavailable(f"the prompt {name} is damaged: {error}", hint="install saga-engine again") from error


def parse_prompt(text: str) -> Prompt:
    """A prompt from its file's text. Raises ``ValueError``."""
    found = _FILE.fullmatch(text)
    if found is None or len(_HEADING.findall(text)) != 2:
        raise ValueError("it needs name, version, inputs and outputs, then '# System' and '# Question', each once")
    name, version, listed, outputs, system, question = (part.strip() for part in found.groups())
    inputs = tuple(each.strip() for each in listed.split(","))
    places = set(_PLACE.findall(system + question))
    if places != set(inputs):
        raise ValueError(f"its inputs and its places differ: {sorted(places ^ set(inputs))}")
    return Prompt(name, version, inputs, outputs, system, question)


def data(name: str, value: Any) -> str:
    """A value as fenced data."""
    return f'<data name="{name}">\n{safe_json(value)}\n</data>'


def data_lines(name: str, values: Iterable[Any]) -> str:
    """Several values as fenced data, one a line."""
    body = "\n".join(safe_json(value) for value in values) or "(none)"
    return f'<data name="{name}">\n{body}\n</data>'


def safe_json(value: Any) -> str:
    """JSON on one line, without fences and invisible characters."""
    return "".join(
        _escaped(char) if char in "<>`" or not char.isprintable() else char
        for char in json.dumps(value, ensure_ascii=False, allow_nan=False)
    )


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(char)[1:-1]
