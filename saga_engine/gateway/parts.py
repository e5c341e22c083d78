"""Results that are too long for one answer: the beginning is the answer, and ``saga_read`` returns the rest in parts.

The whole result is in the journal with its call, by reference if it is large, so it can be read by every later gateway
of the saga. Here it is not kept but for the text that is being read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from saga_engine.sources.mcp.results import answer_of

#: The characters of one part.
PART_CHARS: Final = 20_000
#: An answer over this many bytes is cut, unless the operator says otherwise.
MOST_BYTES: Final = 1_000_000
#: What an answer has beside its texts, at most, so that most answers need not be measured.
_BESIDE_BYTES: Final = 4_000


def whole_text(output: Any) -> str:
    """A result as one text: its texts, if it has nothing else; else its structured content or its content, as JSON."""
    made = answer_of(output)
    if "structuredContent" in made:
        return json.dumps(made["structuredContent"], ensure_ascii=False)
    content = made["content"]
    if all(isinstance(block.get("text"), str) for block in content):
        return str(content[0]["text"]) if len(content) == 1 else "\n".join(block["text"] for block in content)
    return json.dumps(content, ensure_ascii=False)


def part_of(text: str, first: int) -> dict[str, Any]:
    """A part of a text, and where the next one begins."""
    last = first + PART_CHARS
    rest = {"next_offset": last} if last < len(text) else {}
    return {"text": text[first:last], "total_chars": len(text), **rest}


def fits(made: Mapping[str, Any], most: int) -> bool:
    """Whether an answer has at most so many bytes; 0: any has."""
    content = made["content"]
    if not most or (len(content) == 1 and _is_short(content[0], most) and "structuredContent" not in made):
        return True
    return len(msgspec.json.encode(made)) <= most


def _is_short(block: Mapping[str, Any], most: int) -> bool:
    text = block.get("text")
    return isinstance(text, str) and len(block) == 2 and 6 * len(text) + _BESIDE_BYTES <= most


def cut_answer(output: Any, about: Mapping[str, Any], *, is_structured: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The beginning of a result as an answer, and what ``_meta`` says of it.

    An answer without the structured content that its tool declares must be an error; its text says that it was done.
    """
    part = part_of(whole_text(output), 0)
    beginning = part.pop("text")
    call, total, rest = about["call"], part["total_chars"], part.get("next_offset")
    done = "result_too_long: the call was done, and nothing is wrong. " if is_structured else ""
    read = f'saga_read {{"call": "{call}", "offset": {rest or 0}}}'
    note = f"{done}The result has {total:,} characters, of which this is the beginning. Read on with {read}."
    content = [{"type": "text", "text": note}, {"type": "text", "text": beginning}]
    return {"content": content, "isError": is_structured}, {"cut": part}
