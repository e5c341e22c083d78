"""What there must be one of: who listens to the network, who reads `saga.toml`, who checks values by a schema."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "saga_engine"
#: The calls that only one place makes; where another makes them for another reason, that is named.
ONLY = {
    "listens to the network": (
        r".*start_server|.*create_server|start_http_server|make_server|.*HTTPServer|uvicorn\.\w+|.*\.bind",
        {"listener/server.py"},
    ),
    "reads the files of settings": (
        r"tomllib\.loads?",
        # Drafts and manifests of tools, which are no settings of a process.
        {"settings.py", "sources/openapi/draft.py", "sources/mcp/shipped.py", "sources/mcp/draft.py"},
    ),
    "looks for the operator's file": (r"_operators_path", {"settings.py"}),
    "checks a value by a schema": (r"jsonschema_rs\..*", {"plan/value_schema.py"}),
}


@cache
def calls() -> dict[str, set[str]]:
    """What each module of the package calls."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        if "testing" not in path.relative_to(PACKAGE).parts:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            named = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
            found[path.relative_to(PACKAGE).as_posix()] = named
    return found


@pytest.mark.parametrize("what", ONLY)
def test_one_place_does_it(what: str) -> None:
    """A second place would have bounds, an order of files or a patience of its own."""
    pattern, allowed = ONLY[what]
    assert {name for name, named in calls().items() if any(re.fullmatch(pattern, each) for each in named)} == allowed
