"""Tools that only the agent of a session has: who brings them, for how long, and what waits for them.

The journal names a tool by its name, and so does everybody who settles or undoes its call. One name is therefore one
function at a time; a session's declaration of a tool never changes what another session has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from saga_engine.core import transitions as t
from saga_engine.core.records import AnyRecord, CallAdded
from saga_engine.errors import ToolInvalid
from saga_engine.loggers import logger_of
from saga_engine.runtime.session import Session
from saga_engine.tools.context import ToolContext
from saga_engine.tools.decorator import AnyTool, Tool
from saga_engine.tools.invoke import is_async
from saga_engine.tools.registry import ToolRegistry, collect
from saga_engine.tools.signature import KEY_PARAMETER

_log = logger_of("saga_engine")


class Registering(Protocol):
    """What registers tools of a coordinator that is open."""

    tools: ToolRegistry
    #: By name, the life that brought a tool; the coordinator's own tools are not among them.
    brought: dict[str, Any]

    def register(self, tools: tuple[Any, ...]) -> None:
        """Add tools, with the operator's options."""
        ...

    def drop(self, names: Sequence[str]) -> None:
        """Forget tools."""
        ...


class Life:
    """One life of the agent of a session, from the opening of its block to the end of it, and what it brings."""

    def __init__(self, registering: Registering, saga_id: str) -> None:
        self._all = registering
        self._saga_id = saga_id
        #: Nothing of its saga will be settled or undone by itself: another session may take its names.
        self.over = False

    def adopt(self, tool: Any) -> bool:
        """Register a tool that the agent brings, unless the coordinator has it; whether it was unknown.

        The next life of the same agent brings another function of that name, which takes the place of the first.
        Raises ``ToolInvalid`` for a name that is another function's, or a tool that is declared otherwise, and as
        ``Coordinator.register``.
        """
        (new,) = collect(tool)
        known, owner = self._all.tools.get(new.name), self._all.brought.get(new.name)
        if known is not None and not is_awaited(known):
            if owner is None:
                _refuse_otherwise(known, new, "the coordinator has")
                return False
            if owner is self and known.function == new.function:
                if not (new.declared and not known.declared):
                    _refuse_otherwise(known, new, "this session has")
                    return False
            elif owner is self:
                raise _two(new.name, "this session has brought")
            elif not (owner.over or owner.of(self._saga_id)):
                if known.function != new.function:
                    raise _two(new.name, "another session's agent has")
                _refuse_otherwise(known, new, "another session's agent has", both=True)
                return False
        if owner is not None:
            links = {collect(each)[0].name for each in (new.undo, new.probe) if callable(each)}
            self._all.drop([name for name in {new.name, *links} if self._all.brought.get(name) is owner])
        names = set(self._all.tools.names())
        self._all.register((new,))
        self._all.brought |= dict.fromkeys(set(self._all.tools.names()) - names, self)
        if arrival := _arrival(known):
            arrival.set()
        _log.warning(
            "session %s: the tool %r is known in this process only; elsewhere its calls are neither settled nor undone "
            "before the agent brings it again (`session(…, tools=[…])`)",
            self._saga_id,
            new.name,
        )
        return True

    def of(self, saga_id: str) -> bool:
        """Whether it is a life of this session's agent."""
        return self._saga_id == saga_id

    def expect(self, records: Sequence[AnyRecord]) -> None:
        """Hold the places of the tools that an open session has called and nobody has brought yet.

        Not of those that undo or are undone: they must be there from the start.
        """
        tools, reads = self._all.tools, dict[str, bool]()
        for record in records:
            if not isinstance(record, CallAdded):
                continue
            undos = [name for name in (record.undo, *(call["tool"] for call in record.undo_then)) if name]
            if undos and not all(name in tools for name in (record.tool, *undos) if name):
                return
            if record.tool and record.tool not in tools:
                reads[record.tool] = record.read
        for name, read in reads.items():
            self._all.register((_awaited(tools, name, read=read),))
            self._all.brought[name] = self

    def missing(self) -> list[str]:
        """The tools whose places are still held."""
        tools = self._all.tools
        return sorted(name for name, life in self._all.brought.items() if life is self and is_awaited(tools.get(name)))

    def end(self, *, over: bool) -> None:
        """Its block is left; ``over``: and its saga is at an end, or never was."""
        gone, self.over = self.missing(), over
        self._all.drop(gone)
        for name in gone:
            del self._all.brought[name]


class AgentSession(Session):
    """A ``Session`` that can be opened before its agent has brought the tools that the journal names."""

    life: Life

    def recall(self, records: Sequence[AnyRecord]) -> None:
        """Receive the journal before the session starts."""
        super().recall(records)
        self.life.expect(records)

    @property
    def at_an_end(self) -> bool:
        """Whether its saga has ended for good."""
        ended = self._handle is not None and self._handle.done()
        return ended and self._state is not None and self._state.status in t.SAGA_FINAL


def is_awaited(tool: AnyTool | None) -> bool:
    """Whether a tool only holds the place of one that its agent has not brought yet."""
    return _arrival(tool) is not None


def _arrival(tool: AnyTool | None) -> asyncio.Event | None:
    found: asyncio.Event | None = getattr(getattr(tool, "function", None), "awaited", None)
    return found


def _awaited(tools: ToolRegistry, name: str, *, read: bool) -> AnyTool:
    """Holds the place of a tool: a call waits until the agent brings it, as long as its time-out allows."""
    arrived = asyncio.Event()

    async def call(its_call: ToolContext, **params: Any) -> Any:
        await arrived.wait()
        found = tools.get(name)
        assert found is not None
        given: dict[str, Any] = dict.fromkeys(found.signature.context, its_call)
        if found.signature.wants_key:
            given[KEY_PARAMETER] = its_call.idempotency_key
        for param, adapter in found.signature.coercions.items():
            if param in params:
                given[param] = adapter.validate_python(params[param])
        if is_async(found.function):
            return await found.function(**params | given)
        return await asyncio.to_thread(found.function, **params | given)

    call.awaited = arrived  # type: ignore[attr-defined]
    schema = {"type": "object"}
    return Tool(call, declared=False, name=name, effect="read" if read else "write", input_schema=schema)


def _refuse_otherwise(known: AnyTool, new: AnyTool, who: str, *, both: bool = False) -> None:
    """Raises ``ToolInvalid`` if a session says another thing of a tool than what holds for all."""
    if not (new.declared or (both and known.declared)):
        return
    if new.effect == known.effect and (known.declared or known.effect == "read" or new.function != known.function):
        return
    raise ToolInvalid(
        f"{who} the tool {new.name!r} otherwise: {_said(known)}, and here {_said(new)}",
        hint="declare it once, where it is registered (@tool, saga.toml), or give this one another name",
        tool=new.name,
    )


def _said(tool: AnyTool) -> str:
    return f"effect {tool.effect!r}" if tool.declared or tool.effect == "read" else "nobody has said what it does"


def _two(name: str, who: str) -> ToolInvalid:
    return ToolInvalid(
        f"two different tools are called {name!r}: {who} the first",
        hint="give one of them another name: @tool(name=…)",
        tool=name,
    )
