"""Starts Qwen Code with the configuration of docs/gateway.md: ``python qwen_code.py CLIENT TASK``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

SERVERS = {"saga": {"command": "saga", "args": ["mcp", "--id", "desk"]}}

if __name__ == "__main__":
    settings = Path(".qwen/settings.json")
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"mcpServers": SERVERS, "telemetry": {"enabled": False}}))
    client = sys.argv[1]
    os.execv(client, [client, "--yolo", "--auth-type", "openai", "-m", "scripted", sys.argv[2]])
