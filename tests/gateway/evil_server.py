"""A hostile MCP server without any library, on stdio, in both eras of the protocol: ``evil_server.py FILE``.

FILE is JSON and is read again for each request. ``tools``: what it lists; ``answers``: the result of each tool, or a
word for one that JSON cannot hold; ``mute``: methods that it never answers; ``legacy``: the older era. The names of the
tools that were called are written to FILE.calls.
"""

import json
import sys
import time
from pathlib import Path

FILE = Path(sys.argv[1])
DEEP = 20_000


def write(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def spelt(word):
    """The text of a result."""
    if word == "deep":
        return '{"resultType":"complete","content":[],"structuredContent":{"a":' + "[" * DEEP + "]" * DEEP + "}}"
    if word == "nested":  # as deep as a message may be
        return '{"resultType":"complete","content":[],"structuredContent":{"a":' + "[" * 150 + "]" * 150 + "}}"
    if word == "huge":
        return '{"resultType":"complete","content":[{"type":"text","text":"' + "x" * 100_000_000 + '"}]}'
    if word == "lone":  # half of a character
        return '{"resultType":"complete","content":[{"type":"text","text":"\\ud800"}]}'
    return json.dumps(word)


def main():
    for line in sys.stdin:
        request, ways = json.loads(line), json.loads(FILE.read_text())
        method, params = request["method"], request.get("params") or {}
        if "id" not in request:
            continue
        if method in ways.get("mute", ()):
            time.sleep(3600)
        found = None
        if method == "server/discover" and not ways.get("legacy"):
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
            found |= {"ttlMs": 0, "cacheScope": "private"}
        elif method == "initialize":
            info = {"name": "evil", "version": "1"}
            found = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            found = {"tools": ways["tools"], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            if ways.get("endless"):
                found["nextCursor"] = "more"
        elif method == "tools/call":
            with FILE.with_suffix(".calls").open("a", encoding="utf-8") as calls:
                calls.write(json.dumps(params["name"]) + "\n")
            found = ways["answers"].get(params["name"], {"resultType": "complete", "content": []})
        said = f'"result":{spelt(found)}' if found else '"error":{"code":-32601,"message":"no such method"}'
        write(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},{said}}}')


if __name__ == "__main__":
    main()
