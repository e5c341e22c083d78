"""The errors of the engine, as their classes have them, and the error codes of calls, from ``errors.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from dev.website.reference.cli import errors_of_engine, example
from dev.website.reference.markdown import cell, code, head, marked, table, wrapped
from saga_engine import errors
from saga_engine.cli import exit_codes
from saga_engine.server.problems import status_of

_ABOUT = """Every error that the engine raises on purpose: its stable code, its class in `saga_engine.errors`, its
verdict, the exit code of a command that ends with it, and the HTTP status of a response of `saga serve` that carries
it; then the error codes of calls, why sagas turn around, the questions to operators, and the problems of plans.
[Errors](../errors.md) explains the verdicts."""


_SECTIONS = {
    "Why a saga turned around": "turned",
    "Questions to operators": "questions",
    "Problems of a plan": "problems",
    "Warnings of a plan": "warnings",
    "Problems of a model's plan": "model",
}


def page() -> str:
    """The page."""
    said = texts()
    rows = []
    for kind in sorted(errors_of_engine(), key=lambda kind: kind.code):
        error = example(kind)
        first = (kind.__doc__ or "").split("\n\n")[0]
        parents = [base.__name__ for base in kind.__bases__ if base not in (errors.SagaError, Exception)]
        name = code(kind.__name__) + "".join(f", also a `{parent}`" for parent in parents)
        rows.append(
            (
                code(kind.code),
                name,
                code(kind.verdict),
                str(exit_codes.of_error(error)),
                str(status_of(error)),
                cell(marked(first)),
                cell(said["todo"].pop(kind.code)),
            )
        )
    if said["todo"]:
        raise KeyError(f"errors.toml names what is no error: {', '.join(said['todo'])}")
    columns = ("code", "class", "verdict", "exit code", "HTTP", "meaning", "what to do")
    parts = [head("Error codes", _ABOUT).strip(), "## Errors of the engine", table(columns, rows).strip()]
    parts.append("## Error codes of a call")
    for group in said["calls"]:
        parts += [wrapped(group["intro"]), table(("code", "meaning", "outcome"), group["rows"]).strip()]
    for title, name in _SECTIONS.items():
        part = said[name]
        parts += [f"## {title}", wrapped(part["intro"]), table(("code", "meaning"), part["rows"]).strip()]
    return "\n\n".join(parts) + "\n"


def texts() -> dict[str, Any]:
    """What to do about each error (``todo``), the codes of ``calls``, and the sections that have one table."""
    return tomllib.loads(Path(__file__).with_name("errors.toml").read_text(encoding="utf-8"))
