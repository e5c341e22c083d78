"""The tool adapter of all frameworks: a tool call becomes a call of the session, its outcome a text for a model.

A tool that the coordinator has is called by the engine. A tool that only the framework has is brought: the engine calls
it through the framework's own handler of the present call, so that what a framework injects still works. Such a tool
can be called only while its agent makes the call; nothing is called in its place elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, NamedTuple

from saga_engine.adapters.own_loop import Answer, answer, object_of
from saga_engine.adapters.results import RESULT_BYTES
from saga_engine.adapters.tool_adapter import declared
from saga_engine.agents.brought import is_awaited
from saga_engine.errors import SagaError, ToolError, ToolInvalid
from saga_engine.plan.model_tools import described
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec, only_helpers
from saga_engine.plan.values import digest, plain
from saga_engine.runtime.session import Session
from saga_engine.runtime.session_calls import name_of
from saga_engine.tools.context import ToolContext
from saga_engine.tools.registry import ToolRegistry

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
        self._brought: set[str] = set()

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

        Raises what ``own_loop.answer`` raises, and ``ToolInvalid`` if the tool is declared otherwise elsewhere.
        """
        self._bring(name, *about)
        try:
            place = _place(self.session.catalog, self.session.saga_id, name, object_of(name, params))
        except SagaError:  # the params are none, which the answer says
            return await self.answer(name, params)
        waiting = _Waiting(run)
        here = _UNDER_WAY.setdefault(place, [])
        here.append(waiting)
        try:
            return await self.answer(name, params)
        finally:
            here.remove(waiting)
            if not here:
                _UNDER_WAY.pop(place, None)

    async def answer(self, name: str, arguments: Any) -> Answer:
        """Make a call of a tool that the session knows. A repeat that was not made again says ``deduplicated``."""
        final = name in self._irreversible
        return await answer(self.session, name, arguments, irreversible=final, result_bytes=self._limit)

    def _bring(self, name: str, description: str, schema: Mapping[str, Any]) -> None:
        """Register a tool that only the framework has. Raises ``ToolInvalid``."""
        if name in self._brought:
            return
        catalog, spec = self.session.catalog, self.session.catalog.spec(name)
        if spec is not None and not routed(catalog, name):
            self._refuse_otherwise(name, spec)
        else:
            call = _Routed(catalog, name)
            self.session.bring(declared(call, name, description, dict(schema), self._undo, self._reads, self._options))
        self._brought.add(name)

    def _refuse_otherwise(self, name: str, spec: ToolSpec) -> None:
        """Refuse what this router says of a tool of the coordinator, where it would have no effect."""
        undo = name_of(self._undo[name]) if name in self._undo else spec.undo
        if (name in self._reads and spec.effect != "read") or undo != spec.undo or self._options.get(name):
            raise ToolInvalid(
                f"the coordinator has the tool {name!r}, and this agent says another thing of it",
                hint="declare it where it is registered (@tool, saga.toml), or leave it out of reads, undo and options",
                tool=name,
            )


class _Waiting:
    """A framework's call that is under way: its handler, and the step whose call it is once that is made."""

    def __init__(self, run: Handler) -> None:
        self.run = run
        self.step = ""


#: The framework's calls that are under way in this process: by registry, session, tool and params, in their order.
_UNDER_WAY: Final[dict[tuple[int, str, str], list[_Waiting]]] = {}


def _place(catalog: ToolCatalog, saga_id: str, name: str, params: Mapping[str, Any]) -> tuple[int, str, str]:
    return id(catalog), saga_id, digest([name, plain(dict(params))])


def routed(catalog: ToolCatalog, name: str) -> bool:
    """Whether a tool only brings its calls back to the frameworks of their own agents, or is awaited."""
    found = catalog.get(name) if isinstance(catalog, ToolRegistry) else None
    return is_awaited(found) or isinstance(getattr(found, "function", None), _Routed)


class _Routed:
    """Brings each call of a tool to the handler of the agent that makes it; equal for all agents of a coordinator."""

    def __init__(self, catalog: ToolCatalog, name: str) -> None:
        self._catalog = catalog
        self.__name__ = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Routed) and (other._catalog, other.__name__) == (self._catalog, self.__name__)

    def __hash__(self) -> int:
        return hash((id(self._catalog), self.__name__))

    async def __call__(self, its_call: ToolContext, **params: Any) -> Any:
        here = _UNDER_WAY.get(_place(self._catalog, its_call.saga_id, self.__name__, params), ())
        mine = next((each for each in here if each.step == its_call.step_id), None)
        found = mine or next((each for each in here if not each.step), None)
        if found is None:
            raise ToolError("its agent is not here", error_code="agent_gone", suggestion="run the agent again")
        found.step = its_call.step_id
        return await found.run(params)
