"""Starts Claude Code with the configuration of docs/gateway.md: ``python claude_code.py CLIENT TASK``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

SERVERS = {"saga": {"command": "saga", "args": ["mcp", "--id", "desk"]}}

if __name__ == "__main__":
    Path(".mcp.json").write_text(json.dumps({"mcpServers": SERVERS}))
    client = sys.argv[1]
    options = ["--mcp-config", ".mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__saga"]
    os.execv(client, [client, "-p", sys.argv[2], *options])
