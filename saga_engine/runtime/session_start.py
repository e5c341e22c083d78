"""How a session starts, or continues after its agent has crashed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from saga_engine.core.fold import started_of
from saga_engine.core.records import SagaCompleted
from saga_engine.core.submission import Submission
from saga_engine.errors import SagaExists, SagaNotFound
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.operator_limits import Limits
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import digest
from saga_engine.ports import Store
from saga_engine.runtime.journal import folded_state, read_records
from saga_engine.runtime.messages import deliver
from saga_engine.runtime.session import Session
from saga_engine.runtime.supervisor import Supervisor

#: All sessions start alike: an agent's calls are not known in advance.
_DIGEST: Final = digest(["saga-session/1"])


async def session_handle(
    store: Store,
    supervisor: Supervisor,
    tools: ToolCatalog,
    session: Session,
    body: Mapping[str, Any],
    *,
    limits: Limits,
) -> Handle:
    """The saga of a session: a new one with ``body`` as its plan, or the one that its agent had started or completed.

    Raises ``SagaExists`` (the id belongs to a saga with a plan) and ``LeaseHeld``.
    """
    name = session.saga_id
    session.deliver = partial(deliver, store, supervisor, name)
    try:
        records = await read_records(store, name)
    except SagaNotFound:
        if supervisor.find(name) is not None:  # another agent has just started it, and it is not journalled yet
            return supervisor.resume(name, session.link)
        plan = load_plan(body, session=True)
        submission = Submission(
            saga_id=name,
            plan=plan.json_bytes,
            compiled=limits.applied(compile_plan(plan, tools)),
            limits=limits,
            digest=_DIGEST,
            seed=secrets.token_hex(8),
            session=True,
        )
        return supervisor.begin(submission, link=session.link)
    if not started_of(records).session:
        raise SagaExists(f"saga {name} has a plan, it is no session", hint="choose another id", saga_id=name)
    session.recall(records)
    if isinstance(records[-1], SagaCompleted):
        # A job that is delivered again: the journal answers its calls, and nothing is driven.
        state = await folded_state(records, tools)
        session.repeat(state)
        return Handle.ended(SagaResult(state))
    return supervisor.resume(name, session.link)
