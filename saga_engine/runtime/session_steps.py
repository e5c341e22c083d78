"""What an agent does in a session that calls no tool: built-in steps, as in a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saga_engine.core import records as r
from saga_engine.plan.session_steps import builtin_body
from saga_engine.plan.values import plain


class SessionSteps:
    """The part of ``Session`` that adds built-in steps."""

    if TYPE_CHECKING:

        async def _placed(self, record: r.CallAdded) -> str: ...

        async def _result(self, key: str, record: r.CallAdded) -> Any: ...

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] | None = None,
        schema: Mapping[str, Any] | None = None,
        expires_s: float | None = None,
        on_timeout: Mapping[str, Any] | None = None,
    ) -> Any:
        """Ask a person, as an ``ask`` step of a plan does; returns the answer, who gave it and the note.

        Raises ``NeedsPerson`` until there is an answer: run the agent again with the same id then. Else as ``call``.
        """
        body = {"question": question, "schema": schema, "expires_s": expires_s, "on_timeout": on_timeout}
        record = builtin_record("ask", {**body, "options": None if options is None else list(options)})
        return await self._result(await self._placed(record), record)


def builtin_record(word: str, body: Mapping[str, Any]) -> r.CallAdded:
    """The record of a built-in step, without its position. Raises ``PlanInvalid``, ``ValueNotJson``."""
    given = {name: plain(value) for name, value in body.items() if value is not None}
    return r.CallAdded(at=0, step="0", tool="", params={word: builtin_body(word, given)}, builtin=word, read=True)
