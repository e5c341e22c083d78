"""A session that replays an exported trace: the agent's own code runs, and nothing is called.

Each call of the agent is answered as it was then. The first call that is another one, comes too much or is missing ends
the replay with ``SessionDiverged``, which has what was called then and what would be called now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from saga_engine.analysis.trace_file import Trace, read
from saga_engine.core import records as r
from saga_engine.core.codec import Stored, abridge
from saga_engine.core.redaction import REDACTED
from saga_engine.core.state import State
from saga_engine.errors import SessionDiverged, SessionEnded, SettingInvalid
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.plan.bindings import Template
from saga_engine.runtime.journal import state_of
from saga_engine.runtime.session import Session
from saga_engine.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class Parting:
    """Where an agent and a trace part: the number of the call, what it was ``then``, and what it is ``now``.

    Each is the tool, its params and its undo; None: there was no such call, or there is none now. Values that the trace
    does not show are taken to be the same.
    """

    call: int
    then: dict[str, Any] | None
    now: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object."""
        return asdict(self)


class ReplayedSession(Session):
    """A ``Session`` whose calls are answered by a trace. ``parting``: where its agent went another way, if it did."""

    def __init__(self, trace: Trace, registry: ToolRegistry) -> None:
        super().__init__(trace.saga_id, registry, diverging="strict")
        self.parting: Parting | None = None
        records = [abridge(entry.record) for entry in trace.entries]  # a cut value is told from one that is null
        state = state_of(records, registry)
        self.recall(records)
        self._handle = Handle.ended(SagaResult(state))
        self.adopt = self._adopted
        self.repeat(state)

    def _adopted(self, tool: Any) -> bool:
        assert isinstance(self.catalog, ToolRegistry)
        self.catalog.add(tool)
        return True

    async def _placed(self, record: r.CallAdded) -> str:
        if self._turned_away is not None:
            raise self._turned_away
        place, keys, state = len(self._made), self._recorded.keys, self._here()
        now = _said(record.tool or record.builtin, record.params, record.undo)
        if place >= len(keys):
            self._part(place + 1, None, now, f"call {place + 1}: the trace ends before it")
        step = state.plan.steps[state.plan.by_key[keys[place]]]
        filled = msgspec.structs.replace(record, params=_filled(record.params, step.params.raw))
        if step.rollback is not None and isinstance(step.rollback.params, Template) and record.undo_params is not None:
            filled = msgspec.structs.replace(filled, undo_params=_filled(record.undo_params, step.rollback.params.raw))
        try:
            return await super()._placed(filled)
        except SessionDiverged:
            self.parting = Parting(place + 1, _then(state, keys[place]), now)
            raise self._parted(self.divergence or "") from None

    async def _result(self, key: str, record: r.CallAdded | None) -> Any:  # noqa: ARG002 - compared when it was placed
        if key not in self._settled:
            raise SessionEnded(f"the trace of {self.saga_id} has no outcome of call {key}", saga_id=self.saga_id)
        output = await super()._result(key, None)
        if isinstance(output, Stored):
            hint = "export it again with: saga trace export --full"
            raise SettingInvalid(f"the trace of {self.saga_id} has the output of call {key} in its cut form", hint=hint)
        return output

    async def _diverge(self, why: str) -> None:
        self.divergence = why
        if self.parting is None and self._remains():
            key = self._recorded.keys[len(self._made)]
            self.parting = Parting(len(self._made) + 1, _then(self._here(), key), None)
        raise self._parted(why)

    def _part(self, call: int, then: dict[str, Any] | None, now: dict[str, Any] | None, why: str) -> None:
        self.divergence, self.parting = why, Parting(call, then, now)
        raise self._parted(why)

    def _parted(self, why: str) -> SessionDiverged:
        told = {} if self.parting is None else self.parting.to_dict()
        error = SessionDiverged(f"the agent and the trace of {self.saga_id} part: {why}", saga_id=self.saga_id, **told)
        self._turned_away = error
        return error


def _said(tool: str, params: Any, undo: str | None) -> dict[str, Any]:
    return {"tool": tool, "params": params, "undo": undo}


def _then(state: State, key: str) -> dict[str, Any]:
    step = state.plan.steps[state.plan.by_key[key]]
    undo = step.rollback.tool if step.rollback is not None else None
    return _said(step.tool or step.builtin, step.params.raw, undo)


def _filled(now: Any, then: Any) -> Any:
    """The values of now, with the marks of then where the trace does not show what was there."""
    if isinstance(then, str) and REDACTED in then:
        return then
    if isinstance(now, Mapping) and isinstance(then, Mapping):
        return {name: _filled(value, then.get(name)) for name, value in now.items()}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [_filled(one, other) for one, other in zip(now, then, strict=True)]
    return now


def trace_of(path: str | Path, saga_id: str | None = None) -> Trace:
    """The session of a trace file; ``saga_id``: which one, if it has several.

    Raises ``SettingInvalid`` and ``TraceBroken``.
    """
    try:
        with Path(path).open("rb") as file:
            found = [trace for trace in read(file) if trace.header.get("session")]
    except OSError as error:
        raise SettingInvalid(f"the trace {path} cannot be read: {error.strerror}") from error
    chosen = [trace for trace in found if saga_id in (None, trace.saga_id)]
    if len(chosen) != 1:
        known = ", ".join(trace.saga_id for trace in found[:10]) or "none"
        raise SettingInvalid(f"{path} has {len(chosen)} such sessions", hint=f"sessions: {known}; give the id of one")
    return chosen[0]


@asynccontextmanager
async def replayed(
    path: str | Path, tools: Iterable[Any] | ToolRegistry = (), *, saga_id: str | None = None
) -> AsyncIterator[ReplayedSession]:
    """Replay the session of a trace for the duration of a block.

    ``tools``: those of the agent; none of them is called, and no store is needed. Leaving the block checks that nothing
    is missing. Raises ``SessionDiverged``, with ``call``, ``then`` and ``now`` in its ``context``, and the errors of
    ``trace_of``.
    """
    session = ReplayedSession(trace_of(path, saga_id), ToolRegistry(tools))
    yield session
    await session.finish()
