"""``saga event`` and ``saga events``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli.from_table import argument, option
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from saga_engine.ports import ListedEvent
    from saga_engine.runtime.events import EventReceipt
    from saga_engine.settings import Settings


def event(
    name: Annotated[str, argument("sendEvent", "name", metavar="NAME")],
    key: Annotated[str, argument("sendEvent", "key", metavar="KEY")],
    payload: Annotated[
        str | None, argument("sendEvent", "payload", metavar="PAYLOAD", more=", or - to read it from stdin.")
    ] = None,
    *,
    event_id: Annotated[
        str | None,
        option("sendEvent", "event_id", "--id", metavar="ID"),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Send an event to the saga that waits for it.

    The event is durable when the command ends. What nothing waits for is kept for seven days. A worker, or the process
    that runs the saga, continues it. An event that comes too late has the exit code 6, unless the step's `on_late`
    handles it; `saga events` lists it.

    Example:
      saga event payment.received order-17 '{"amount": "49.90"}' --id evt_81
    """
    import asyncio

    from saga_engine.cli import exit_codes
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, shown
    from saga_engine.cli.words import say

    settings = settings_for(store)
    receipt = asyncio.run(_sent(settings, name, key, _payload(payload), event_id))
    if as_json:
        document(receipt._asdict())
    else:
        step = say("event.step", step=shown(receipt.step), saga=shown(receipt.saga_id)) if receipt.saga_id else ""
        again = say("event.again") if receipt.repeated else ""
        what = say("event.too-late" if receipt.disposition == "late" else f"event.{receipt.disposition}")
        data(say("event.sent", event=shown(receipt.event_id), what=what, step=step, again=again))
        if receipt.late_saga:
            data(say("event.late", saga=shown(receipt.late_saga)))
    handled = receipt.disposition not in ("late", "refused") or receipt.late_saga
    return exit_codes.COMPLETED if handled else exit_codes.CONFLICT


def events(
    name: Annotated[str | None, argument("listEvents", "name", metavar="NAME")] = None,
    key: Annotated[str | None, argument("listEvents", "key", metavar="KEY")] = None,
    *,
    limit: Annotated[int, option("listEvents", "limit", "--limit", most=10_000)] = 100,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List the events of the last seven days and what became of each, the last one first.

    Example:
      saga events payment.received
    """
    import asyncio

    from saga_engine.cli import exit_codes
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note, shown
    from saga_engine.cli.read_only import nothing_stored
    from saga_engine.cli.times import local
    from saga_engine.cli.words import say

    settings = settings_for(store)
    found = [] if nothing_stored(settings) else asyncio.run(_listed(settings, name, key, limit))
    if as_json:
        document({"events": [_as_json(each) for each in found]})
        return exit_codes.COMPLETED
    for each in found:
        waiter = each.waiter
        step = say("events.step", saga=shown(waiter.saga_id), step=shown(waiter.step)) if waiter else ""
        channel = f"{shown(each.channel.name)} {shown(each.channel.key)}"
        data(f"{local(each.at_ms)}  {each.disposition:7}  {channel}  {shown(each.id)}{step}")
    if not found:
        note(say("events.none"))
    return exit_codes.COMPLETED


def _payload(text: str | None) -> Any:
    import json
    import sys

    from saga_engine.errors import ValueNotJson
    from saga_engine.plan.strict_json import strict_json
    from saga_engine.plan.wait import MAX_PAYLOAD_BYTES

    if text is None:
        return None
    given = sys.stdin.read(MAX_PAYLOAD_BYTES + 1) if text == "-" else text
    try:
        return strict_json(given)
    except json.JSONDecodeError as error:
        message = f"the payload is not JSON: {error.msg} at column {error.colno}; a text stands in quotes: '\"text\"'"
        raise typer.BadParameter(message, param_hint="PAYLOAD") from error
    except ValueNotJson as error:
        raise typer.BadParameter(error.message, param_hint="PAYLOAD") from error


async def _sent(settings: Settings, name: str, key: str, payload: Any, event_id: str | None) -> EventReceipt:
    from saga_engine.api import Coordinator
    from saga_engine.cli.keyring import keyring_for

    keyring = keyring_for(settings)
    async with Coordinator.open(
        settings.store,
        (),
        durability=settings.durability,
        patience_s=settings.patience_s,
        privacy=keyring,
        settings=settings,
    ) as coordinator:
        return await coordinator.send_event(name, key, payload, event_id=event_id)


async def _listed(settings: Settings, name: str | None, key: str | None, limit: int) -> list[ListedEvent]:
    from saga_engine.cli.read_only import looking_at_all

    async with looking_at_all(settings) as coordinator:
        return list(await coordinator.events(name, key, limit=limit))


def _as_json(event: ListedEvent) -> dict[str, Any]:
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
