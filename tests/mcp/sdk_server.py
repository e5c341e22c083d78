"""A server made with the official SDK: ``sdk_server.py FILE`` on stdio, ``sdk_server.py FILE http`` on a free port."""

import json
import socket
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, Image, MCPServer

BOOK = Path(sys.argv[1])
server = MCPServer("bookings", version="1")


def entries() -> dict[str, dict[str, object]]:
    return json.loads(BOOK.read_text()) if BOOK.exists() else {}


@server.tool()
def book(guest: str, ctx: Context) -> dict[str, object]:
    """Book a room for a guest."""
    meta = ctx.request_context.meta or {}
    key = meta.get("test.example/key") or str(len(entries()))
    made = {**entries(), key: {"guest": guest, "traceparent": meta.get("traceparent")}}
    BOOK.write_text(json.dumps(made))
    return {"booking": key}


@server.tool()
def cancel(booking: str) -> dict[str, object]:
    """Cancel a booking."""
    BOOK.write_text(json.dumps({key: value for key, value in entries().items() if key != booking}))
    return {"cancelled": booking}


@server.tool()
def picture() -> list[object]:
    """A text and a picture."""
    return ["a room", Image(data=b"\x89PNG", format="png")]


@server.tool()
def fail() -> str:
    """Raise an error."""
    raise RuntimeError("out of rooms")


if __name__ == "__main__":
    if "http" in sys.argv:
        import asyncio

        import uvicorn

        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)  # noqa: T201
        app = server.streamable_http_app()
        asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve(sockets=[listening]))
    else:
        server.run()
