"""A model that plays a script, behind ``/v1/chat/completions`` and ``/v1/messages``, whole or streamed.

The script is a list of turns: ``(TOOL, ARGUMENTS)`` calls a tool, a text ends the conversation. Which turn it is, the
model learns from the conversation: it counts the results of tools in it. So an agent that starts anew begins anew.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agents import messages

Turn = tuple[str, dict[str, Any]] | str

_LOOKED = "looked_"
#: How often a model waits for servers that are still starting.
_PATIENCE = 20


class Model:
    """``held`` is set when the turn ``hold_at`` is asked for; the agent then gets no answer until ``go`` is set."""

    def __init__(self, script: Sequence[Turn], *, hold_at: int | None = None) -> None:
        self.script = list(script)
        self.hold_at = hold_at
        self.held = threading.Event()
        self.go = threading.Event()
        self.seen: list[dict[str, Any]] = []

    def results(self) -> list[str]:
        """The results of tools that the agent showed the model, in order."""
        return [json.dumps(each["content"]) for each in results_in(self.seen[-1])] if self.seen else []

    def message(self, request: dict[str, Any]) -> dict[str, Any]:
        """The assistant's next message."""
        if not request.get("tools"):  # some clients also have titles written
            return {"role": "assistant", "content": "Rooms"}
        self.seen.append(request)
        turn = len(results_in(request))
        if turn == self.hold_at:
            self.held.set()
            self.go.wait()
        said = self.script[turn] if turn < len(self.script) else "There is nothing left to do."
        if isinstance(said, str):
            return {"role": "assistant", "content": said}
        wanted, arguments = said
        names = [each["function"]["name"] for each in request.get("tools") or ()]
        # Some frameworks put the name of the server before it.
        name = next((each for each in names if each == wanted or each.endswith(("_" + wanted, "-" + wanted))), None)
        number = f"call_{turn}"
        if name is None:
            # Some clients show a model the tools of servers only when it has waited or searched for them.
            seen = {each.get("tool_call_id") for each in request["messages"]}
            ways = enumerate(each for each in looks(wanted) if each[0] in names)
            looking = {f"{_LOOKED}{wanted}_{index}": way for index, way in ways}
            number = next((each for each in looking if each not in seen), "")
            if not number:
                return {"role": "assistant", "content": f"There is no tool {wanted} among {names}."}
            name, arguments = looking[number]
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": number, "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}


def looks(wanted: str) -> list[tuple[str, dict[str, Any]]]:
    """The clients' own tools that bring a server's tool, and their arguments."""
    query = {"query": f"select:mcp__saga__{wanted}"}
    return [*[("WaitForMcpServers", {})] * _PATIENCE, ("ToolSearch", query), ("tool_search", query)]


def results_in(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages with the results of tools, without those of the search for them."""
    told = [each for each in request["messages"] if each["role"] == "tool"]
    return [each for each in told if not each.get("tool_call_id", "").startswith(_LOOKED)]


@contextmanager
def serving(model: Model) -> Iterator[str]:
    """The model's base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name is the base class's
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.partition("?")[0]
            stream = bool(request.get("stream"))
            if path.endswith("/chat/completions"):
                kind, body = answer(model.message(request), stream=stream)
            elif path.endswith("/v1/messages"):
                kind, body = messages.answer(model.message(messages.as_chat(request)), stream=stream)
            else:
                self.send_error(404)
                return
            try:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except ConnectionError:
                return  # the agent was killed

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        model.go.set()
        server.shutdown()
        server.server_close()
        thread.join()


def answer(message: dict[str, Any], *, stream: bool) -> tuple[str, bytes]:
    """The type and the body of an HTTP response."""
    calls = message.get("tool_calls")
    finish = "tool_calls" if calls else "stop"
    made = {"id": "chatcmpl-1", "created": 1, "model": "scripted"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        whole = {**made, "object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", json.dumps(whole).encode()
    delta = {**message, **({"tool_calls": [{"index": 0, **calls[0]}]} if calls else {})}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {"choices": [], "usage": usage},
    ]
    lines = [json.dumps({**made, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return "text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
