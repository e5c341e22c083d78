"""What is done to a saga: cancel, resolve, amend, undo, fork, resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from saga_engine.execution.result import SagaResult, shown
from saga_engine.server import acts
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Handle, Incoming, Operation

_SHOWN: Final = {202: "The saga, as it is now."}


async def _accepted(incoming: Incoming, found: SagaResult) -> Answer:
    found = await acts.settled(incoming.desk, incoming.identity, found, incoming.wait_s)
    return Answer(await shown(found), 202, {"Location": f"/v1/sagas/{found.saga_id}"}, found.saga_id)


async def cancel(incoming: Incoming) -> Answer:
    """Cancel a saga."""
    note, key = incoming.body.get("note", ""), incoming.key.id
    found = await acts.cancel(incoming.desk, incoming.identity, incoming.saga_id, note, key=key)
    return await _accepted(incoming, found)


async def resolve(incoming: Incoming) -> Answer:
    """Answer a question."""
    body = incoming.body
    found = await acts.resolve(
        incoming.desk,
        incoming.identity,
        incoming.saga_id,
        str(body["step_id"]),
        body["decision"],
        body.get("output"),
        body.get("note", ""),
        key=incoming.key.id,
        expect=body.get("expect", ""),
    )
    return await _accepted(incoming, found)


async def amend(incoming: Incoming) -> Answer:
    """Add steps."""
    body = incoming.body
    found = await acts.amend(
        incoming.desk, incoming.identity, incoming.saga_id, body["steps"], body.get("note", ""), key=incoming.key.id
    )
    return await _accepted(incoming, found)


async def undo(incoming: Incoming) -> Answer:
    """Undo a completed saga, or preview that."""
    body = incoming.body
    if body.get("dry_run"):
        incoming.identity.require("read")
        preview = await acts.undo_preview(incoming.desk, incoming.identity, incoming.saga_id)
        return Answer(preview.to_dict())
    found = await acts.undo(
        incoming.desk,
        incoming.identity,
        incoming.saga_id,
        accept=body.get("accept", False),
        note=body.get("note", ""),
    )
    return await _accepted(incoming, found)


async def fork(incoming: Incoming) -> Answer:
    """Fork a saga, or preview that."""
    if incoming.body.get("dry_run"):
        incoming.identity.require("read")
        preview = await acts.fork_preview(incoming.desk, incoming.identity, incoming.saga_id, incoming.body)
        return Answer(preview.to_dict())
    key = incoming.request.headers.get("idempotency-key")
    found = await acts.fork(incoming.desk, incoming.identity, incoming.saga_id, incoming.body, key)
    return await _accepted(incoming, found)


async def resume(incoming: Incoming) -> Answer:
    """Queue a saga for a worker now."""
    return await _accepted(incoming, await acts.resume(incoming.desk, incoming.identity, incoming.saga_id))


async def erase(incoming: Incoming) -> Answer:
    """Destroy the key of a sealed saga."""
    body = incoming.body
    family = body.get("family", False)
    said = dict(await acts.erase(incoming.desk, incoming.identity, incoming.saga_id, body["why"], family=family))
    beyond = {name: said.pop(name) for name in ("sagas", "unreached")}
    return Answer({"saga_id": incoming.saga_id, "erased": said, **beyond})


def _act(verb: str, summary: str, about: str, handle: Handle, answers: Mapping[int, str] = _SHOWN) -> Operation:
    """An operation on one saga."""
    return Operation(
        name=f"{verb}Saga",
        method="POST",
        path=f"/v1/sagas/{{saga_id}}/{verb}",
        summary=summary,
        about=about,
        handle=handle,
        answers=answers,
    )


OPERATIONS: Final = [
    _act(
        "cancel",
        "Cancel a saga and compensate it",
        "Durable when this answers; the saga's owner, or a worker, acts on it. Again, it changes nothing.",
        cancel,
    ),
    _act(
        "resolve",
        "Answer an open question",
        "The caller is recorded as `by`. Of two different answers the first holds; the second is refused with 409, "
        "which says who gave the first. The same answer again changes nothing. `expect` is the `mark` of the answer in "
        "the question's `outlooks`: if other effects follow by now, the answer is refused with 409, and the hint has "
        "the new mark. To repeat a call in doubt whose tool honours no key needs it.",
        resolve,
    ),
    _act(
        "amend",
        "Add steps to a running saga",
        "They are checked against the saga as it stands.",
        amend,
    ),
    _act(
        "undo",
        "Undo a saga that has completed",
        "By a saga of its own, which the answer shows; `dry_run` previews it. `accept`: steps without an undo stay.",
        undo,
        {202: "The undo, a saga of its own.", 200: "The preview."},
    ),
    _act(
        "fork",
        "Run a changed plan; reuse what has not changed",
        "The answer shows the new saga; `dry_run` only previews it.",
        fork,
        {202: "The new saga.", 200: "The preview."},
    ),
    _act(
        "resume",
        "Queue a saga for a worker now",
        "Workers continue sagas by themselves; this is for one whose cause has just been mended.",
        resume,
    ),
    _act(
        "erase",
        "Destroy the key of a sealed saga that has ended",
        "Nobody can read its payloads any more: requests for it answer 410 with who erased it, why and when, as the "
        "first erasure said. Again, it changes nothing. One that has not ended, or is not sealed, is refused with 409, "
        "and so is one of which other sagas hold copies (parent, children, undos, forks), without family.",
        erase,
        {200: "The tombstone, the sagas that are erased, and what could not be reached."},
    ),
]
