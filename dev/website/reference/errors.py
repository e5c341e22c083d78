"""The errors of the engine, as their classes have them."""

from __future__ import annotations

from dev.website.reference.cli import errors_of_engine, example
from dev.website.reference.markdown import cell, code, head, marked, table
from saga_engine import errors
from saga_engine.cli import exit_codes
from saga_engine.server.problems import status_of

_ABOUT = """Every error that the engine raises on purpose: its stable code, its class in `saga_engine.errors`, its
verdict, the exit code of a command that ends with it, and the HTTP status of a response of `saga serve` that carries
it. [Errors](../errors.md) says what to do about each, and explains the error codes of calls, the reasons of a
compensation and the questions to operators."""


def page() -> str:
    """The page."""
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
            )
        )
    columns = ("code", "class", "verdict", "exit code", "HTTP", "meaning")
    return head("Error codes", _ABOUT) + "\n" + table(columns, rows)
