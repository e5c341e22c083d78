"""Events from outside."""

from __future__ import annotations

from typing import Final

from saga_engine.ports import ListedEvent
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Incoming, Operation


async def send(incoming: Incoming) -> Answer:
    """Send an event."""
    body = incoming.body
    event_id = body.get("event_id") or incoming.request.headers.get("idempotency-key")
    receipt = await incoming.engine.send_event(
        body["name"], body["key"], body.get("payload"), event_id=event_id, detach=True
    )
    return Answer(receipt._asdict(), 202, {"Location": "/v1/events"})


async def list_events(incoming: Incoming) -> Answer:
    """The events that arrived."""
    query = incoming.query
    found = await incoming.engine.events(query.get("name"), query.get("key"), limit=query.get("limit", 100))
    return Answer({"events": [_body(each) for each in found]})


def _body(event: ListedEvent) -> dict[str, object]:
    import msgspec

    return {
        "name": event.channel.name,
        "key": event.channel.key,
        "event_id": event.id,
        "at_ms": event.at_ms,
        "disposition": event.disposition,
        "saga_id": event.waiter.saga_id if event.waiter else "",
        "step": event.waiter.step if event.waiter else "",
        "payload": msgspec.json.decode(event.payload) if event.payload else None,
    }


OPERATIONS: Final = [
    Operation(
        name="sendEvent",
        method="POST",
        path="/v1/events",
        summary="Send an event to the saga that waits for it",
        about="Durable when this answers. An event that is sent again with its id, or Idempotency-Key, counts once.",
        handle=send,
        headers={"Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"}},
        answers={202: "What became of it."},
    ),
    Operation(
        name="listEvents",
        method="GET",
        path="/v1/events",
        summary="List the events that arrived",
        handle=list_events,
        answers={200: "The last ones first."},
    ),
]
