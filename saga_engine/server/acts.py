"""What a caller does to sagas, for the API and the console alike: posted, and carried out by workers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saga_engine.api.once import amend_once, cancel_once, resolve_once
from saga_engine.errors import SagaNotFound
from saga_engine.execution.result import SagaResult
from saga_engine.runtime.fork import Fork
from saga_engine.runtime.undo import Undo
from saga_engine.server.identity import Identity
from saga_engine.server.keys import checked_key, hashed

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.server.desk import Desk


def keyed_id(identity: Identity, key: str | None) -> str | None:
    """The saga's id that an ``Idempotency-Key`` stands for: of the same caller, always the same one.

    So a request that is repeated after a lost answer finds the saga by its id, whatever server it comes to.
    """
    if key is None:
        return None
    return f"key-{hashed(identity.tenant, identity.token_id or identity.who, checked_key(key))}"


async def submit(
    desk: Desk,
    identity: Identity,
    body: Mapping[str, Any],
    key: str | None = None,
) -> tuple[SagaResult, bool]:
    """Journal a plan or a template for the workers; and whether the saga is new.

    Raises what ``Coordinator.submit`` raises, and ``QuotaExceeded``.
    """
    engine = desk.engine_of(identity)
    plan, template, given = body.get("plan"), body.get("template"), body.get("input")
    plan_id = plan.get("task_id") if isinstance(plan, Mapping) else None
    saga_id = body.get("saga_id") or (plan_id if isinstance(plan_id, str) else None) or keyed_id(identity, key)
    known = None if saga_id is None else await _known(engine, saga_id)
    if known is not None and template is not None and "@" not in template:
        template = await _as_started(engine, saga_id or "", template)
    handle = await engine.submit(
        plan, template=template, saga_id=saga_id, input=given, tags=body.get("tags", ()), detach=True
    )
    return await engine.show(handle.saga_id), known is None


async def _known(engine: Coordinator, saga_id: str) -> str | None:
    try:
        return (await engine.store.head(saga_id)).digest
    except SagaNotFound:
        return None


async def _as_started(engine: Coordinator, saga_id: str, template: str) -> str:
    """The version of the template that the saga was started from: a newer one since then makes it no other saga."""
    first = (await engine.history(saga_id))[0]
    said = str(first.get("template", ""))
    return said if said.partition("@")[0] == template else template


async def cancel(desk: Desk, identity: Identity, saga_id: str, note: str = "", *, key: str = "") -> SagaResult:
    """Post a cancel; under a ``key`` once."""
    if key:
        return await cancel_once(desk.engine_of(identity), saga_id, key, by=identity.who, note=note)
    return await desk.engine_of(identity).cancel(saga_id, by=identity.who, note=note, wait=False)


async def resolve(  # noqa: PLR0917
    desk: Desk,
    identity: Identity,
    saga_id: str,
    step: str,
    decision: str,
    output: Any = None,
    note: str = "",
    *,
    key: str = "",
    question: str = "",
    expect: str = "",
) -> SagaResult:
    """Post an answer; under a ``key`` once, and then only to the ``question`` with this id, if it is given.

    ``expect``: the mark of the effects that the answer is to have; it is refused if others follow by now.
    Of two at once, the second is refused, and says who was first.
    """
    engine = desk.engine_of(identity)
    if key:
        by = identity.who
        return await resolve_once(
            engine,
            saga_id,
            key,
            step=step,
            decision=decision,
            output=output,
            by=by,
            note=note,
            question=question,
            expect=expect,
        )
    who = identity.who
    return await engine.resolve(saga_id, step, decision, output=output, by=who, note=note, expect=expect, wait=False)


async def amend(
    desk: Desk, identity: Identity, saga_id: str, steps: Sequence[Mapping[str, Any]], note: str = "", *, key: str = ""
) -> SagaResult:
    """Post steps; under a ``key`` once."""
    if key:
        return await amend_once(desk.engine_of(identity), saga_id, key, steps, by=identity.who, note=note)
    return await desk.engine_of(identity).amend(saga_id, steps, by=identity.who, note=note, wait=False)


async def undo(desk: Desk, identity: Identity, saga_id: str, *, accept: bool = False, note: str = "") -> SagaResult:
    """Journal the undo of a completed saga for the workers. Needs the tools that it calls, as declarations."""
    engine = desk.engine_of(identity)
    found = await engine.undo(saga_id, accept=accept, by=identity.who, note=note, detach=True)
    assert isinstance(found, SagaResult)
    return found


async def undo_preview(desk: Desk, identity: Identity, saga_id: str) -> Undo:
    """What an undo would do; nothing changes."""
    found = await desk.engine_of(identity).undo(saga_id, dry_run=True)
    assert isinstance(found, Undo)
    return found


async def fork(desk: Desk, identity: Identity, saga_id: str, body: Mapping[str, Any], key: str | None) -> SagaResult:
    """Journal a fork for the workers. A saga that rests is driven here until it has transferred its effects."""
    engine = desk.engine_of(identity)
    new_id = body.get("new_id") or keyed_id(identity, key)
    plan, run_from = body.get("plan"), body.get("run_from")
    found = await engine.fork(saga_id, plan=plan, run_from=run_from, new_id=new_id, detach=True)
    assert isinstance(found, SagaResult)
    return found


async def fork_preview(desk: Desk, identity: Identity, saga_id: str, body: Mapping[str, Any]) -> Fork:
    """What a fork would reuse; nothing changes."""
    engine = desk.engine_of(identity)
    plan, run_from = body.get("plan"), body.get("run_from")
    found = await engine.fork(saga_id, plan=plan, run_from=run_from, new_id=body.get("new_id"), dry_run=True)
    assert isinstance(found, Fork)
    return found


async def resume(desk: Desk, identity: Identity, saga_id: str) -> SagaResult:
    """Queue a saga for a worker now. Raises ``LeaseHeld`` if a process runs it."""
    engine = desk.engine_of(identity)
    await engine.enqueue(saga_id)
    return await engine.show(saga_id)


async def erase(desk: Desk, identity: Identity, saga_id: str, why: str, *, family: bool) -> Mapping[str, Any]:
    """Destroy the key of a saga that has ended; see ``Coordinator.erase``."""
    return await desk.engine_of(identity).erase(saga_id, by=identity.who, why=why, family=family)


async def settled(desk: Desk, identity: Identity, found: SagaResult, wait_s: float) -> SagaResult:
    """The saga once it has ended or needs an operator, or as it is after ``wait_s`` seconds."""
    if found.ended or wait_s <= 0:
        return found
    engine = desk.engine_of(identity)
    waiting = asyncio.ensure_future(engine.wait(found.saga_id))
    draining = asyncio.ensure_future(desk.draining.wait())
    try:
        await asyncio.wait([waiting, draining], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            return await engine.show(found.saga_id)
        waiting.result()
        return await engine.show(found.saga_id)
    finally:
        waiting.cancel()
        draining.cancel()
