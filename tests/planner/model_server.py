"""A model server that says what a script says, over real HTTP: OpenAI's chat completions and Anthropic's messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One answer: a text, the arguments of a call of the answer's tool, an HTTP status, silence, or a broken line.

    ``raw`` is a body that no such server would send.
    """

    text: str | None = None
    arguments: str | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    breaks: bool = False
    tokens: tuple[int, int] = (100, 20)
    finish: str = "stop"
    raw: str | None = None


def say(text: str, **others: Any) -> Reply:
    return Reply(text=text, **others)


def call(arguments: Any, **others: Any) -> Reply:
    return Reply(arguments=arguments if isinstance(arguments, str) else json.dumps(arguments), **others)


def refuse(status: int, **headers: str) -> Reply:
    return Reply(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


HANG = Reply(hangs=True)
BREAK = Reply(breaks=True)


class ModelServer:
    """Answers request by request what the script says; whoever asks more often than that gets a 500."""

    def __init__(self, script: Sequence[Reply]) -> None:
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.asked = asyncio.Event()
        self.url = ""

    @property
    def texts(self) -> list[str]:
        """All that each request said to the model, in one text."""
        return ["\n".join(_texts(request)) for request in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client went away, as some tests want it
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
        path = head[0].split()[1]
        self.requests.append(body)
        self.headers.append(headers)
        self.paths.append(path)
        reply = self.script.pop(0) if self.script else Reply(status=500)
        self.asked.set()
        if reply.hangs:
            await reader.read()  # until the client hangs up
            return
        made = _error(reply) if reply.status != 200 else _body(reply, path, body)
        payload = json.dumps(made).encode() if reply.raw is None else reply.raw.encode()
        lines = [f"HTTP/1.1 {reply.status} X", "content-type: application/json", f"content-length: {len(payload)}"]
        lines += ["connection: close", *(f"{name}: {value}" for name, value in reply.headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        writer.write(payload[: len(payload) // 2] if reply.breaks else payload)
        await writer.drain()


@asynccontextmanager
async def model_server(*script: Reply) -> AsyncIterator[ModelServer]:
    server = ModelServer(script)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}"
    try:
        yield server
    finally:
        listener.close()


def _error(reply: Reply) -> dict[str, Any]:
    message = reply.text or f"scripted {reply.status}"
    return {"type": "error", "error": {"message": message, "type": "scripted_error", "code": None}}


def _body(reply: Reply, path: str, asked: dict[str, Any]) -> dict[str, Any]:
    tokens_in, tokens_out = reply.tokens
    if path.endswith("/messages"):
        content: list[dict[str, Any]] = []
        if reply.text is not None:
            content.append({"type": "text", "text": reply.text})
        if reply.arguments is not None:
            given = json.loads(reply.arguments)
            content.append({"type": "tool_use", "id": "toolu_1", "name": "answer", "input": given})
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": asked["model"],
            "content": content,
            "stop_reason": "tool_use" if reply.arguments is not None else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": tokens_in, "output_tokens": tokens_out},
        }
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.arguments is not None:
        function = {"name": "answer", "arguments": reply.arguments}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    return {
        "id": "chat_1",
        "object": "chat.completion",
        "created": 1,
        "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    }


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key in ("system", "messages", "content", "text") for text in _texts(value.get(key))]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return []
