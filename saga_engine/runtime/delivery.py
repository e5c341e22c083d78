"""Messages to a saga, and whether they were heard."""

from __future__ import annotations

from saga_engine.core.messages import Message, encode_message
from saga_engine.core.records import MessageRefused
from saga_engine.core.states import RUNNING
from saga_engine.errors import AmendRefused, CancelRefused, DecisionRefused, ForkRefused
from saga_engine.ports import Store
from saga_engine.runtime.fleet import Fleet
from saga_engine.runtime.journal import look, read_records
from saga_engine.runtime.outcome import Handle, Outcome
from saga_engine.runtime.owner import provably_dead

_REFUSALS = {"cancel": CancelRefused, "amend": AmendRefused, "hand_over": ForkRefused, "decide": DecisionRefused}


async def deliver(store: Store, fleet: Fleet, saga_id: str, message: Message) -> Outcome:
    """Post a message; if no other live process drives the saga, this one does, until it ends or rests.

    Raises ``SagaNotFound``, and the refusal that fits the message if it was not heard or not taken in.
    """
    handle = await post(store, fleet, saga_id, message)
    if handle is None:
        outcome = Outcome(await look(store, saga_id), full=False)
    else:
        outcome = await handle.wait()
        if outcome.status == RUNNING:  # a session whose agent has just gone: it was given up before it read this
            outcome = await fleet.resume(saga_id).wait()
    await _require_heard(store, message, outcome)
    return outcome


async def post(store: Store, fleet: Fleet, saga_id: str, message: Message) -> Handle | None:
    """Post a message and see to it that somebody reads it; None if that is another live process.

    Raises ``SagaNotFound``.
    """
    head = await store.post(saga_id, encode_message(message))
    present = fleet.find(saga_id)
    if present is not None:
        fleet.notify(saga_id)
        return Handle(saga_id, present.future)
    if head.owner_ttl_ms > 0 and not provably_dead(head.owner):
        return None
    return fleet.resume(saga_id)


async def _require_heard(store: Store, message: Message, outcome: Outcome) -> None:
    """Whoever answers second must hear of it: the message was refused, or the saga ended without reading it."""
    refusal = _REFUSALS[message.kind]
    for record in await read_records(store, outcome.saga_id, whole=False):
        if getattr(record, "message", "") == message.id:
            if isinstance(record, MessageRefused):
                raise refusal(record.reason, hint="somebody else was faster: see `saga history`")
            return
    if outcome.ended:
        raise refusal(f"saga {outcome.saga_id} ended ({outcome.status}) before this was read", hint="see `saga show`")
