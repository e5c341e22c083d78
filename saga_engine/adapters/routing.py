"""The tool adapter of all frameworks: a tool call becomes a call of the session, its outcome a text for a model.

A tool that the coordinator has is called by the engine. A tool that only the framework has is brought: the engine calls
it through the framework's own handler of the present call, so that what a framework injects still works. Such a tool
can be called only while its agent makes the call; nothing is called in its place elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from saga_engine.adapters.own_loop import Answer, answer
from saga_engine.adapters.results import RESULT_BYTES
from saga_engine.adapters.tool_adapter import declared
from saga_engine.errors import ToolError
from saga_engine.plan.model_tools import described
from saga_engine.plan.tool_spec import only_helpers
from saga_engine.plan.values import digest, plain
from saga_engine.runtime.session import Session

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


class Offered(NamedTuple):
    """A tool of the coordinator as a framework offers it to its model; ``call`` takes the model's arguments."""

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[Any], Coroutine[Any, Any, Answer]]


class Router:
    """Routes the tool calls of one agent into its session.

    ``undo``: by name, the coordinator's tool that undoes a call of a framework's tool. ``reads``: those that change
    nothing. ``options``: by name, other options of ``tool``. ``irreversible``: tools that write, have no undo, and may
    be called nevertheless. ``result_bytes``: a longer result reaches the model in its cut form.
    """

    def __init__(
        self,
        session: Session,
        *,
        undo: Mapping[str, Any] | None = None,
        reads: Iterable[str] = (),
        irreversible: Iterable[str] = (),
        options: Mapping[str, Mapping[str, Any]] | None = None,
        result_bytes: int | None = RESULT_BYTES,
    ) -> None:
        self.session = session
        self._undo = undo or {}
        self._reads = frozenset(reads)
        self._irreversible = frozenset(irreversible)
        self._options = options or {}
        self._limit = result_bytes
        #: The framework's handlers of the calls under way, by tool and params.
        self._handlers: dict[str, list[Handler]] = {}

    def offered(self, names: Iterable[str] | None = None) -> list[Offered]:
        """The coordinator's tools for a model: all but those that only undo or probe others, or the named ones."""
        catalog = self.session.catalog
        hidden = only_helpers(catalog) if names is None else frozenset[str]()
        found = [spec for name in names or catalog.names() if name not in hidden and (spec := catalog.spec(name))]
        return [Offered(spec.name, described(spec), spec.input_schema, self._caller(spec.name)) for spec in found]

    def _caller(self, name: str) -> Callable[[Any], Coroutine[Any, Any, Answer]]:
        async def call(arguments: Any) -> Answer:
            return await self.answer(name, arguments)

        return call

    async def route(self, name: str, about: tuple[str, Mapping[str, Any]], params: Any, run: Handler) -> Answer:
        """Make a call of a framework's tool. ``about``: its description and schema; ``run`` calls it with its params.

        Raises what ``own_loop.answer`` raises.
        """
        if self.session.catalog.spec(name) is None:
            self._bring(name, *about)
        mark = _mark(name, params)
        self._handlers.setdefault(mark, []).append(run)
        try:
            return await self.answer(name, params)
        finally:
            self._handlers[mark].remove(run)
            if not self._handlers[mark]:
                del self._handlers[mark]

    async def answer(self, name: str, arguments: Any) -> Answer:
        """Make a call of a tool that the session knows. A repeat that was not made again says ``deduplicated``."""
        final = name in self._irreversible
        return await answer(self.session, name, arguments, irreversible=final, result_bytes=self._limit)

    def _bring(self, name: str, description: str, schema: Mapping[str, Any]) -> None:
        async def call(**params: Any) -> Any:
            found = self._handlers.get(_mark(name, params))
            if not found:
                raise ToolError("its agent is not here", error_code="agent_gone", suggestion="run the agent again")
            return await found[-1](params)

        made = declared(call, name, description, dict(schema), self._undo, self._reads, self._options)
        self.session.bring(made)


def _mark(name: str, params: Any) -> str:
    given = msgspec.json.decode(params) if isinstance(params, str | bytes) else params
    return digest([name, plain(dict(given))])
