"""The Messages API for the scripted model: requests as those of ``/v1/chat/completions``, and its answers as events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Body = dict[str, Any]


def as_chat(request: Body) -> Body:
    """A request of the Messages API as one of chat completions."""
    messages = [message for each in request["messages"] for message in _messages(each)]
    return {"messages": messages, "tools": [{"function": each} for each in request.get("tools") or ()]}


def _messages(message: Body) -> Iterator[Body]:
    blocks = message["content"] if isinstance(message["content"], list) else []
    for block in blocks:
        if block["type"] == "tool_result":
            yield {"role": "tool", "content": block.get("content"), "tool_call_id": block["tool_use_id"]}
    yield {"role": message["role"], "content": message["content"]}


def answer(message: Body, *, stream: bool) -> tuple[str, bytes]:
    """The type and the body of an HTTP response."""
    calls = message.get("tool_calls") or []
    if calls:
        function = calls[0]["function"]
        block = {"type": "tool_use", "id": calls[0]["id"], "name": function["name"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": function["arguments"]}
        whole = {**block, "input": json.loads(function["arguments"])}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": message["content"]}
        whole = {"type": "text", "text": message["content"]}
    end = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    made = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "usage": usage}
    if not stream:
        return "application/json", json.dumps({**made, "content": [whole], **end}).encode()
    begun = {**made, "content": [], "stop_reason": None, "stop_sequence": None}
    events: list[Body] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    lines = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events]
    return "text/event-stream", "".join(lines).encode()
