"""What an agent does in a session that calls no tool: built-in steps, as in a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saga_engine.core import records as r
from saga_engine.plan.session_steps import builtin_body
from saga_engine.plan.values import plain
from saga_engine.runtime.session_calls import with_undo

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolCatalog


class SessionSteps:
    """The part of ``Session`` that adds built-in steps."""

    if TYPE_CHECKING:
        catalog: ToolCatalog

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

    async def sleep(self, duration: float | str | None = None, *, until: str | None = None) -> None:
        """Let time pass, as a ``sleep`` step of a plan does: seconds, ``"P1D"``, or until a moment with an offset.

        The end of the sleep is journalled when it begins: an agent that runs again sleeps for the rest of it only.
        Raises ``PlanInvalid``; else as ``call``.
        """
        given = [each for each in (duration, until) if each is not None]
        if len(given) != 1:
            raise TypeError("give either a duration or until")
        record = builtin_record("sleep", {"until": until} if duration is None else duration)
        await self._result(await self._placed(record), record)

    async def wait_for(
        self,
        event: str,
        *,
        key: str | int | None = None,
        schema: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        on_timeout: Mapping[str, Any] | None = None,
        undo: tuple[str, Mapping[str, Any]] | None = None,
    ) -> Any:
        """Wait for an event from outside, as a ``wait`` step of a plan does; returns its payload.

        ``undo``: the tool that undoes what the event stands for, and its params, in which ``"$output.sum"`` is a field
        of the payload. Raises ``CallFailed`` (``wait_timed_out``) after ``timeout_s``; else as ``call``.
        """
        body = {"event": event, "key": key, "schema": schema, "timeout_s": timeout_s, "on_timeout": on_timeout}
        record = builtin_record("wait", body)
        if undo is not None:
            record = with_undo(record, undo, self.catalog)
        return await self._result(await self._placed(record), record)


def builtin_record(word: str, body: Any) -> r.CallAdded:
    """The record of a built-in step, without its position. Raises ``PlanInvalid``, ``ValueNotJson``."""
    given = plain(body)
    if isinstance(given, dict):
        given = {name: value for name, value in given.items() if value is not None}
    return r.CallAdded(at=0, step="0", tool="", params={word: builtin_body(word, given)}, builtin=word, read=True)
