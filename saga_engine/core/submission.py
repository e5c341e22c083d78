"""A saga that was submitted and has not started: everything in its first record but the time."""

from __future__ import annotations

from typing import Any

import msgspec

from saga_engine._version import __version__
from saga_engine.core.records import Parent, SagaStarted
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.operator_limits import NO_LIMITS, Limits


class Submission(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The facts of a new saga. ``plan`` is its plan as JSON; ``digest`` and ``seed`` are those of ``SagaStarted``.

    Its runtime makes the first record as soon as it knows the time on the clock that counts for the deadline: the
    store's, or that of the workflow.
    """

    saga_id: str
    plan: bytes
    compiled: CompiledPlan
    digest: str
    seed: str
    input: dict[str, Any] | None = None
    session: bool = False
    fork_of: str = ""
    limits: Limits = NO_LIMITS
    tags: tuple[str, ...] = ()
    #: Of an undo: the first record of the completed saga, whose plan and tools are those of that day.
    undoes: SagaStarted | None = None
    template: str = ""
    #: What waits for the end of this one.
    parent: Parent | None = None
    #: That of ``SagaStarted``.
    traceparent: str = ""

    def started(self, at_ms: int) -> SagaStarted:
        """The record that starts the saga at ``at_ms`` (Unix ms). Nothing else makes one."""
        compiled = self.compiled
        if self.undoes is not None:
            return msgspec.structs.replace(
                self.undoes,
                at=at_ms,
                saga_id=self.saga_id,
                digest=self.digest,
                seed=self.seed,
                engine=__version__,
                fork_of="",
                undo_of=self.undoes.saga_id,
                parent=self.parent,
                traceparent=self.traceparent,
            )
        return SagaStarted(
            at=at_ms,
            saga_id=self.saga_id,
            plan=msgspec.Raw(self.plan),
            digest=self.digest,
            seed=self.seed,
            input=self.input,
            undos=compiled.undos,
            reads=sorted(compiled.reads),
            tools=compiled.tool_digests,
            sensitive=compiled.sensitive,
            engine=__version__,
            session=self.session,
            fork_of=self.fork_of,
            limits=None if self.limits == NO_LIMITS else self.limits,
            tags=list(self.tags),
            template=self.template,
            parent=self.parent,
            traceparent=self.traceparent,
        )
