"""Events that other systems send with a signature, and callback URLs of single waits."""

from __future__ import annotations

import base64
import os
import secrets
from typing import Any, Final

import msgspec

from saga_engine.errors import EventRefused, RequestInvalid, SagaNotFound, SettingInvalid, ValueNotJson
from saga_engine.execution.incoming import decoded
from saga_engine.loggers import logger_of
from saga_engine.plan.values import cut
from saga_engine.ports import Document, DocumentStore
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.server import views
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Incoming, Operation
from saga_engine.server.settings import Inbound
from saga_engine.server.signatures import Callbacks, at_path, verified_id

_log = logger_of("saga_engine.server")

_WEEK_S: Final = 7 * 24 * 3600
_TRIES: Final = 20


async def receive(incoming: Incoming) -> Answer:
    """Accept a signed event."""
    name = incoming.path("source")
    source = incoming.desk.settings.inbound.get(name)
    if source is None:
        raise RequestInvalid(
            f"there is no source {cut(name, 80)}", hint="[server.inbound.NAME] declares it", status=404, where="path"
        )
    body = await incoming.request.body()
    event_id = verified_id(source.scheme, _secrets(source), dict(incoming.request.headers), body, source.tolerance_s)
    payload = await _decoded(body)
    event = source.event or at_path(payload, source.event_field)
    key = at_path(payload, source.key_field)
    if not isinstance(event, str) or not isinstance(key, str | int) or isinstance(key, bool):
        wanted = source.key_field if isinstance(event, str) else source.event_field
        raise EventRefused(
            f"the event has no text at {wanted}", hint=f"event_field and key_field of [server.inbound.{name}]"
        )
    engine = incoming.desk.engine_of_tenant(source.tenant)
    receipt = await engine.send_event(event, key, payload, event_id=event_id, detach=True)
    return Answer({"event_id": receipt.event_id, "repeated": receipt.repeated}, 202)


def _secrets(source: Inbound) -> list[str]:
    try:
        return source.secrets(os.environ)
    except SettingInvalid as error:  # `saga serve` does not start so; the sender is told to try again, and no names
        _log.error("events of %s are not accepted: %s", source.name, error.message)
        raise RequestInvalid("this source cannot be verified now", status=503, where="path") from error


async def _decoded(body: bytes) -> Any:
    hint = "the sender must send JSON"
    try:
        return await decoded(body)
    except ValueNotJson as error:
        raise EventRefused(f"the body of the event is no JSON: {error.message}", hint=hint) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise EventRefused("the body of the event is no JSON", hint=hint) from None


async def make_callback(incoming: Incoming) -> Answer:
    """Make a callback URL for a wait."""
    body, saga_id = incoming.body, incoming.saga_id
    step = str(body["step_id"])
    entry = body.get("entry")
    await incoming.engine.require_waiting(saga_id, step, entry=entry)
    ends_ms = machine_clock.time_ns() // 1_000_000 + int(body.get("expires_s", _WEEK_S) * 1000)
    callbacks = await _callbacks(incoming.desk.coordinator.store.documents())
    identity = await views.identity_of_saga(incoming.engine, saga_id)
    token = callbacks.made(incoming.identity.tenant, saga_id, identity, step, ends_ms, entry)
    base = incoming.desk.settings.public_url.rstrip("/") or str(incoming.request.base_url).rstrip("/")
    return Answer(
        {"url": f"{base}/v1/callbacks/{token}", "expires_ms": ends_ms}, 201, {"Location": f"/v1/callbacks/{token}"}
    )


async def called_back(incoming: Incoming) -> Answer:
    """Take the payload of a callback as the event of its wait."""
    callbacks = await _callbacks(incoming.desk.coordinator.store.documents())
    token = incoming.path("token")
    tenant, saga_id, identity, step, entry = callbacks.read(token)
    body = await incoming.request.body()
    payload = await _decoded(body) if body else None
    engine = incoming.desk.engine_of_tenant(tenant)
    try:
        await views.require_same(engine, saga_id, identity)
        late = await engine.answer_wait(saga_id, step, payload, entry=entry, detach=True)
    except SagaNotFound as error:
        raise EventRefused(f"saga {saga_id} is not there any more", hint="nothing is left to do") from error
    return Answer({"saga_id": saga_id, "step": step, "late_saga": late}, 202)


async def _callbacks(documents: DocumentStore) -> Callbacks:
    """With the key that all servers of the store share; the first one makes it."""
    for _ in range(_TRIES):
        there = await documents.read("server", "callback-key")
        if there is not None:
            return Callbacks(base64.b64decode(there.body))
        made = base64.b64encode(secrets.token_bytes(32))
        await documents.write("server", Document("callback-key", 0, made))
    raise EventRefused("the key of callbacks cannot be made", hint="try again")


OPERATIONS: Final = [
    Operation(
        name="receiveEvent",
        method="POST",
        path="/v1/in/{source}",
        summary="Send an event with a signature",
        about="For other systems; [server.inbound.NAME] says how its events are signed, named and keyed.",
        handle=receive,
        takes_any=True,
        answers={202: "Durable."},
        refusals=(404,),  # an unknown source
    ),
    Operation(
        name="makeCallback",
        method="POST",
        path="/v1/sagas/{saga_id}/callbacks",
        summary="Make a callback URL for a step that waits for an event",
        about="Who has the URL can send that event, once, until the URL expires, and nothing else.",
        handle=make_callback,
        answers={201: "The URL."},
    ),
    Operation(
        name="callBack",
        method="POST",
        path="/v1/callbacks/{token}",
        summary="Send the payload that a wait is for",
        handle=called_back,
        takes_any=True,
        answers={202: "Durable."},
    ),
]
