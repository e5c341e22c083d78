"""What an operator should know about the ``[http.NAME]`` tables of a process, beside what is said of every tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from saga_engine.sources.http.call import HttpCall
from saga_engine.tools.decorator import AnyTool
from saga_engine.tools.lint import Finding


def findings(tools: Iterable[AnyTool]) -> Iterator[Finding]:
    """Writes of which it is not said how an answer with a status of success reports an error."""
    for tool in tools:
        call = tool.function
        if not isinstance(call, HttpCall):
            continue
        it = call.endpoint
        if it.write and it.failure is None and it.answer == "json":
            yield Finding(
                tool.name,
                "hint",
                "failed-undeclared",
                'an answer of status 200 that says "ok": false or has errors in it counts as done',
                'add failed = { path = "$.ok", is = [false] } with the field that reports an error, or failed = false',
            )
