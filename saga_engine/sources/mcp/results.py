"""Reads the answer of a tool: structured content, texts, images and links as one JSON output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from saga_engine.errors import ValueNotJson
from saga_engine.plan.strict_json import require_unique
from saga_engine.plan.values import canonical, plain, printable
from saga_engine.sources.mcp.helpers import Unshaped
from saga_engine.sources.mcp.manifest import ABSENT, ToolManifest

#: The field of an output with the images, sounds, links and resources of an answer.
CONTENT: Final = "_content"
#: The field of an output with what else is needed to make the answer from it.
ANSWER: Final = "_answer"
MAX_ERROR_CHARS: Final = 1000


class Unreadable(Exception):
    """The answer cannot be used; the message says why."""


def text_of(answer: Mapping[str, Any]) -> str:
    """All texts of an answer."""
    return "\n".join(block["text"] for block in _blocks(answer) if isinstance(block.get("text"), str))


def error_text(answer: Mapping[str, Any]) -> str:
    """What an answer with ``isError`` says."""
    return printable(text_of(answer).strip(), MAX_ERROR_CHARS) or "the server reports an error without a text"


def output_of(answer: Mapping[str, Any], it: ToolManifest) -> Any:
    """The output of an answer without ``isError``; None if it means that there is nothing.

    The structured content, if there is any, else ``{"text": …}``; with ``answer = "json"`` the value that the text
    spells. Blocks that are no text are added under ``_content``. Raises ``Unreadable``.
    """
    if it.answer == "none":
        return {}
    rest = [block for block in _blocks(answer) if not isinstance(block.get("text"), str)]
    structured = answer.get("structuredContent", ABSENT)
    if structured is not ABSENT and it.answer == "auto":
        output = structured
    elif it.answer == "json":
        output = _parsed(text_of(answer))
    else:
        output = {"text": text_of(answer)}
    try:
        output = plain(output)
        if it.helper is not None:
            output = it.helper.shaped(output, text_of(answer))
        if it.absent_output is not ABSENT and canonical(output) == canonical(it.absent_output):
            return None
        if rest:
            output = (
                {**output, CONTENT: plain(rest)}
                if isinstance(output, dict)
                else {"value": output, CONTENT: plain(rest)}
            )
    except ValueNotJson as error:
        raise Unreadable(error.message) from error
    except Unshaped as error:
        raise Unreadable(str(error)) from error
    return output


def whole_output(answer: Mapping[str, Any], it: ToolManifest) -> Any:
    """The same output, and under ``_answer`` what ``answer_of`` needs beside it. An output that is no object is alone.

    Raises ``Unreadable``.
    """
    output = output_of(answer, replace(it, absent_output=ABSENT))
    blocks, structured = _blocks(answer), answer.get("structuredContent", ABSENT)
    if not isinstance(output, dict) or (structured is ABSENT and blocks == _as_blocks(output)):
        return output
    places = iter(range(len(blocks)))  # of the blocks that are in the output
    kept: dict[str, Any] = {
        "content": [block if isinstance(block.get("text"), str) else next(places) for block in blocks]
    }
    if structured is not ABSENT:
        same = {name: value for name, value in output.items() if name != CONTENT} == structured
        kept |= {"structured": True} if same else {"structuredContent": structured}
    if it.answer == "none":
        kept["content"] = blocks
    try:
        return {**output, ANSWER: plain(kept)}
    except ValueNotJson as error:
        raise Unreadable(error.message) from error


def answer_of(output: Any) -> dict[str, Any]:
    """The answer of which ``whole_output`` made this output: its ``content`` and its ``structuredContent``.

    An output of another origin, such as a probe's, is told as it is, also if it has a field of this name.
    """
    kept = output.get(ANSWER) if isinstance(output, dict) else None
    content = _content_of(kept, output.get(CONTENT, [])) if isinstance(kept, dict) else None
    if content is None or not isinstance(kept, dict):
        return {"content": _as_blocks(output) or [{"type": "text", "text": json.dumps(output, ensure_ascii=False)}]}
    made: dict[str, Any] = {"content": content}
    if kept.get("structured"):
        made["structuredContent"] = {name: each for name, each in output.items() if name not in (ANSWER, CONTENT)}
    elif "structuredContent" in kept:
        made["structuredContent"] = kept["structuredContent"]
    return made


def _content_of(kept: Mapping[str, Any], rest: Any) -> list[Any] | None:
    """The blocks of an answer; None if ``kept`` is not what ``whole_output`` writes: a server can spell anything."""
    places = kept.get("content")
    if not isinstance(places, list) or not isinstance(rest, list):
        return None
    made: list[Any] = []
    for each in places:
        if isinstance(each, dict):
            made.append(each)
        elif isinstance(each, int) and 0 <= each < len(rest):
            made.append(rest[each])
        else:
            return None
    return made


def _as_blocks(output: Any) -> list[Any]:
    """The content of an answer with one text, if the output is that of such an answer."""
    alone = isinstance(output, dict) and output.keys() == {"text"} and isinstance(output["text"], str)
    return [{"type": "text", "text": output["text"]}] if alone else []


def _blocks(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = answer.get("content")
    return [block for block in found if isinstance(block, dict)] if isinstance(found, list) else []


def _parsed(text: str) -> Any:
    try:
        found = json.loads(text)
        require_unique(text)
        return found
    except (ValueError, RecursionError, ValueNotJson) as error:
        raise Unreadable(f"its text is no JSON: {printable(str(error), 200)}") from error
