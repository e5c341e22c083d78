"""An endpoint as a tool: the first call is refused, the earlier one is undone."""

import json
import subprocess
from pathlib import Path

from desk import BIN, STORE, answering, go, in_turn

TABLES = """
[http.hold]
method = "POST"
url = "{url}/holds/{{item}}"
params = {{ item = "string" }}
key = {{ header = "Idempotency-Key", ttl_s = 86400 }}
undo = "release"
allow_private = true

[http.release]
method = "DELETE"
url = "{url}/holds/{{id}}"
params = {{ id = "string" }}
tolerates_absence = true
absent = [404]
allow_private = true
"""
PLAN = {
    "steps": [
        {"step_id": 1, "tool": "hold", "params": {"item": "a"}},
        {"step_id": 2, "tool": "hold", "params": {"item": "b"}, "depends_on": [1]},
    ]
}


async def main() -> str:
    with answering(in_turn((200, b'{"id": "h-1"}'), (422, b"{}"), (200, b"{}"))) as (url, asked):
        Path("saga.toml").write_text(TABLES.format(url=url))
        Path("plan.json").write_text(json.dumps(PLAN))
        command = [BIN / "saga", "submit", "plan.json", "--store", STORE, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["status"] == "COMPENSATED", done.stdout + done.stderr
    assert [each[:2] for each in asked] == [("POST", "/holds/a"), ("POST", "/holds/b"), ("DELETE", "/holds/h-1")], asked
    return "an endpoint is called, another call is refused, the first one is undone"


go(main)
