"""What both the API and the console show, where that takes more than one call of the engine."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from saga_engine.api.stops import stops
from saga_engine.core.keys import identity_of
from saga_engine.core.messages import decode_message
from saga_engine.core.question_view import addressed
from saga_engine.core.records import QuestionResolved, SagaStarted
from saga_engine.errors import JournalUnreadable, SagaNotFound, SignatureInvalid
from saga_engine.execution.governed import differences, found_in
from saga_engine.execution.result import shown
from saga_engine.runtime.journal import read_records

if TYPE_CHECKING:
    from saga_engine.api import Coordinator

_TEXTS: Final = ("description", "use_when", "not_when", "returns")
_COUNTS: Final = ("driving", "under_way", "concurrency", "begun", "taken", "returned", "refused")


class Answered(NamedTuple):
    """Who answered a question, and what."""

    by: str
    decision: str


async def overview(engine: Coordinator) -> dict[str, Any]:
    """Sagas by status, the queue, the workers, and the stops that hold."""
    load = await engine.overview()
    governed = found_in(load.notes, load.owners)
    workers = [_worker(owner, report) for owner, report in sorted(load.reports.items())]
    return {
        "now_ms": load.now_ms,
        "sagas": dict(load.statuses),
        "queue": {
            "queued": load.queued,
            "timed": load.timed,
            "oldest_wait_ms": None if load.oldest_ms is None else load.now_ms - load.oldest_ms,
        },
        "workers": workers,
        "owners": {
            "alive": sum(ttl_ms > 0 for ttl_ms in load.owners.values()),
            "gone": sum(ttl_ms <= 0 for ttl_ms in load.owners.values()),
        },
        # Without the paths of files: a caller of the API has no business with this machine.
        "rules": {owner: each.body(files=False) for owner, each in governed.items()},
        "differing": [each.body(governed, files=False) for each in differences(governed)],
        "stops": [each._asdict() for each in await stops(engine.store)],
    }


def _worker(owner: str, report: bytes) -> dict[str, Any]:
    body = json.loads(report)
    return {"owner": owner, "ended": dict(body.get("ended", {})), **{name: body.get(name, 0) for name in _COUNTS}}


async def questions(
    engine: Coordinator, *, limit: int = 100, cursor: str | None = None, to: str | None = None
) -> tuple[list[dict[str, Any]], str | None]:
    """The open questions of a page of sagas, each with its saga, the step and what stands; and the next page's cursor.

    The most recently created sagas come first. With ``to`` only what plans ask of this name, role or address.
    """
    page = await engine.search(asks=True, limit=limit, cursor=cursor)
    found: list[dict[str, Any]] = []
    for head in page.sagas:
        try:
            body = await shown(await engine.show(head.saga_id))
        except SagaNotFound:
            continue  # purged since
        except JournalUnreadable as error:
            found.append({"saga_id": head.saga_id, "status": head.status, "error": error.to_dict()})
            continue
        listed = questions_of(body, waiting_messages=head.messages)
        found += [each for each in listed if to is None or addressed(each, to)]
    return found, page.cursor


def questions_of(body: Mapping[str, Any], *, waiting_messages: int = 0) -> list[dict[str, Any]]:
    """The open questions of a saga as ``show`` gives it."""
    from saga_engine.hooks.messages import asks

    names = {step["step_id"]: step["name"] for step in body["steps"]}
    standing = [
        {name: step[name] for name in ("step_id", "name", "tool", "status") if name in step}
        for step in body["steps"]
        if step["status"] == "SUCCEEDED" and step["kind"] != "read"
    ]
    return [
        {
            "saga_id": body["saga_id"],
            "status": body["status"],
            "goal": body["goal"],
            "session": "session" in body,
            **question,
            "step_name": names.get(question["step_id"], ""),
            "asks": asks(question["kind"], question["question_id"]),
            "standing": standing,
            "waiting_messages": waiting_messages,
        }
        for question in body["questions"]
    ]


async def identity_of_saga(engine: Coordinator, saga_id: str) -> str:
    """Which of the sagas that ever had this id it is. Raises ``SagaNotFound``."""
    first = (await read_records(engine.store, saga_id, whole=False))[0]
    assert isinstance(first, SagaStarted)
    return identity_of(saga_id, first.seed)


async def require_same(engine: Coordinator, saga_id: str, identity: str) -> None:
    """Raises ``SignatureInvalid`` if the saga with this id is not the one that something was signed for.

    An id is used again once its saga is purged. What was signed for the old one must do nothing to the new one.
    """
    if not hmac.compare_digest(await identity_of_saga(engine, saga_id), identity):
        raise SignatureInvalid(
            f"this was made for another saga, which had the id {saga_id} before", hint="that saga is gone"
        )


async def first_answer(engine: Coordinator, saga_id: str, question: str) -> Answered | None:
    """The answer to a question that is recorded, or that was posted first and waits to be read."""
    # In this order: a message that a worker takes in between has become a record.
    messages = await engine.store.messages(saga_id)
    for record in await read_records(engine.store, saga_id, whole=False):
        if isinstance(record, QuestionResolved) and record.question == question:
            return Answered(record.by, record.decision)
    for data in messages:
        try:
            message = decode_message(data)
        except JournalUnreadable:
            continue
        if message.kind == "resolve" and message.question == question:
            return Answered(message.by, message.decision)
    return None


async def tools(engine: Coordinator) -> list[dict[str, Any]]:
    """The tools that this server knows: texts, schemas, effects, counters and breakers."""
    registry = engine.tools
    names = list(registry.names())
    guards = engine.store.guard_store()
    counters, breakers = await guards.counters(names), await guards.breakers(names)
    found = []
    for name in names:
        spec = registry.spec(name)
        if spec is None:
            continue
        state = breakers.get(name)
        tripped = state is not None and state.tripped
        found.append(
            {
                "name": name,
                "digest": spec.digest,
                **{text: getattr(spec, text) for text in _TEXTS},
                "effect": spec.effect,
                "undo": spec.undo,
                "probe": spec.probe,
                "input_schema": spec.input_schema,
                "output_schema": spec.output_schema,
                "counters": {key: int(count) for key, count in counters.get(name, {}).items()},
                "breaker": {
                    "state": ("open" if state.opens_ms > 0 else "half-open") if state and tripped else "closed",
                    "failures": state.failures if state else 0,
                    "opens_ms": state.opens_ms if state and tripped else 0,
                },
            }
        )
    return found


def template_body(name: str, versions: Sequence[int]) -> dict[str, Any]:
    """A template in a list."""
    return {"name": name, "versions": list(versions)}
