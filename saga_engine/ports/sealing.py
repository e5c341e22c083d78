"""What a store may read of each field that goes to it, beside the ports that the fields belong to.

A store that seals payloads (``privacy``) is made from these tables: each member of each port, each argument, each field
of a message has its row. What has none is refused when that store is made; no verb passes by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from saga_engine import ports as p

#: ``by hand``: sealed with the key of its saga, or by a rule of its own, where ``privacy`` writes the verb by hand.
#: ``stored``: as the store has it, also what is sealed in it.
Word = Literal["by hand", "stored"]


class Sealed(NamedTuple):
    """A payload, sealed with the store's key for one place: what it is, and the arguments and fields that say where.

    ``empty``: an empty one is not sealed. ``lost``: what is shown of one that does not open: it is ``refused``, shown
    as it is (``kept``), shown ``empty``, or left out (``absent``).
    """

    kind: str
    at: str
    empty: bool = False
    lost: Literal["refused", "kept", "empty", "absent"] = "refused"


class Name(NamedTuple):
    """A name that would reveal a value: the store has a keyed digest of it, which nobody reads."""

    kind: str
    at: str = ""


class Token(NamedTuple):
    """As ``Name``, but with the key it can be read. An empty one stays so."""

    kind: str
    at: str = ""


class Each(NamedTuple):
    """The values of a mapping, whose keys are clear; ``key``: what a key is called in a place."""

    key: str
    value: Sealed


Rule = Word | Sealed | Name | Token | Each
#: Arguments or fields by name. None: clear, or, of messages, as each of their fields.
Fields = Mapping[str, Rule | None]


class Verb(NamedTuple):
    """A member of a port: its arguments, and what it returns. ``by_hand``: ``privacy`` writes it."""

    given: Fields
    returns: Rule | None = None
    by_hand: bool = False


def _fields(clear: str = "", **others: Rule) -> Fields:
    return {**dict.fromkeys(clear.split()), **others}


def _verb(clear: str = "", returns: Rule | None = None, **others: Rule) -> Verb:
    return Verb(_fields(clear, **others), returns)


def _clear(*rows: str, by_hand: bool = False) -> dict[str, Verb]:
    """Verbs of which nothing needs a rule of its own; each row: the verb and its arguments."""
    return {verb: Verb(_fields(given), by_hand=by_hand) for verb, _, given in (row.partition(" ") for row in rows)}


def _by_hand(*rows: str) -> dict[str, Verb]:
    return _clear(*rows, by_hand=True)


_STOP: Final = Sealed("stop", "scope", lost="kept")  # it stops, whatever it says
_CALL: Final = Name("call", "tool")
_RESULT: Final = Sealed("result", "tool owner")
_GOOD: Final = Sealed("good", "tool digest")
_RESOURCE: Final = Name("resource")
_TALLY: Final = Sealed("tally", "name saga_id owner")
_NOTE: Final = Sealed("hold", "saga", lost="empty")  # it holds, whatever it says
_EVENT_ID: Final = Token("event id", "channel")
_PAYLOAD: Final = Sealed("event", "channel id", empty=True)
_ABOUT: Final = Sealed("wait", "channel", empty=True)
_DOCUMENT: Final = Sealed("document", "kind name")
_VALUE: Final = Sealed("value", "digest")

#: The fields that stand for a message in a place.
IDENTITY: Final[Mapping[type, tuple[str, ...]]] = {p.Channel: ("name", "key"), p.StoredEvent: ("id",)}

#: Each field of each message of the ports. What a place needs stands before what is sealed for it.
MESSAGES: Final[Mapping[Any, Fields]] = {
    # journals
    p.Entry: _fields(
        "saga_id seq epoch status release consumed keep_ms due_ms asks creation",
        records="by hand", summary="by hand", values="by hand", terms="by hand",
    ),
    p.Creation: _fields("owned room key", digest="by hand"),
    p.Ack: _fields("code messages released", digest="by hand"),
    p.AppendReply: _fields("now_ms acks late"),
    p.Head: _fields(
        "saga_id status epoch owner owner_ttl_ms created_ms changed_ms length messages key",
        digest="by hand", summary="by hand",
    ),
    p.Query: _fields("statuses asks since_ms until_ms limit", terms="by hand"),
    p.Acquired: _fields("epoch seq", messages="by hand"),
    p.Held: _fields("owner ttl_ms"),
    p.Renewal: _fields("now_ms alive wakes only"),
    p.Renewals: _fields("found late"),
    p.Begun: _fields("now_ms partitions"),
    p.StorePromise: _fields("url server level findings"),
    # guards
    p.Claim: _fields("code owner age_ms", result=Sealed("result", "tool owner", empty=True)),
    p.BreakerState: _fields("failures tripped opens_ms"),
    p.HoldClaim: _fields("family saga started_ms write ticket undo skips", note=_NOTE),
    p.Holder: _fields("family saga write since_ms started_ms", note=_NOTE),
    p.HoldAnswer: _fields("granted new since_ms others"),
    p.HeldResource: _fields("holders waiting"),
    p.Write: _fields("key at_ms"),  # (idempotency keys are clear, as those of tickets)
    # events
    p.Channel: _fields("name", key=Token("event key", "name")),
    p.Waiter: _fields("saga_id step nth"),
    p.StoredEvent: _fields(id=_EVENT_ID, payload=_PAYLOAD),
    p.Receipt: _fields(
        "disposition known waiter", payload=Sealed("event", "channel event", empty=True), about=_ABOUT,
    ),
    p.DueEvent: _fields("channel waiter", event=_EVENT_ID),
    p.ListedEvent: _fields("channel at_ms disposition waiter", id=_EVENT_ID, payload=_PAYLOAD),
    # documents, the queue, what has ended
    p.Document: _fields("name revision", body=_DOCUMENT),
    p.DueDocuments: _fields("now_ms names"),
    p.Taken: _fields("saga_id epoch seq messages", records="by hand"),
    p.Taking: _fields("now_ms alive next_due_ms sagas ended"),
    p.Hint: _fields("owner saga_id"),
    p.Swept: _fields("at orphans owned damaged"),
    p.Load: _fields(
        "now_ms statuses queued timed oldest_ms owners reports",
        notes=Each("owner", Sealed("lease", "owner", lost="absent")),
    ),
    p.Aged: _fields("now_ms heads looked"),
}  # fmt: skip

#: Each member of each port. What a verb returns must have a rule if it is text.
VERBS: Final[Mapping[type, Mapping[str, Verb]]] = {
    p.Store: {
        **_clear("close", "verify", "promise", "renew owner ttl_ms", "close_lease owner clean partitions",
                 "release saga_id epoch due_ms", "guard_store", "event_store", "value_store",
                 "documents", "work", "ended", "seals"),
        **_by_hand("open", "open_lease owner ttl_ms partitions note", "renew_blocking owner ttl_ms limit_s held",
                   "acquire saga_id owner dead_owner", "reserve saga_id digest of ttl_ms", "append owner entries",
                   "read saga_id start most", "values saga_id digests", "head saga_id", "list status limit",
                   "page status at", "search query after", "post saga_id message spare_ms", "messages saga_id"),
        "url": _verb(returns="stored"),
        "stops_seen": _verb(returns="stored"),
    },
    p.Apart: {
        **_clear("partition_of saga_id", "renew owner ttl_ms"),
        **_by_hand("open_apart", "append_apart"),
        "renew_apart": _verb(returns="stored"),
    },
    p.SagaLookup: {**_clear("saga_driven saga_id"), "saga_status": _verb("saga_id", returns="stored")},
    p.GuardStore: {
        **_clear("unrely tool owner relying", "holds", "breaker_trial tool trial_ms", "count tool counters",
                 "breaker_outcome tool failed failures open_ms"),
        "stops": _verb(returns=Each("scope", _STOP)),
        "set_stop": _verb("scope", entry=_STOP, returns=Each("scope", _STOP)),
        "claim": _verb("tool owner ttl_ms", digest=_CALL),
        "remember": _verb("tool owner ttl_ms", digest=_CALL, result=_RESULT),
        "forget": _verb("tool owner", returns="stored"),
        "recollect": _verb("tool owner", returns=_RESULT),
        "take": _verb("tickets ttl_ms", resource=_RESOURCE, returns="stored"),
        "keep": _verb("tickets ttl_ms", resource=_RESOURCE, returns="stored"),
        "give": _verb("ticket wrote", resource=_RESOURCE, returns="stored"),
        "writes": _verb(resource=_RESOURCE),
        "free": _verb("ticket ttl_ms silent_ms", resource=_RESOURCE, returns="stored"),
        "hold": _verb("claim ttl_ms", resource=_RESOURCE),
        "leave": _verb("ticket", resource=_RESOURCE),
        "unhold": _verb("family saga since_ms ticket", resource=_RESOURCE),
        "reserve": _verb("interval_us burst max_wait_ms", rate=Name("rate")),
        "breakers": _verb("tools", returns="stored"),
        "counters": _verb("tools", returns="stored"),
        "tally": _verb("saga_id", name=Name("tally"), returns=Each("owner", _TALLY)),
        "tally_set": _verb("owner ttl_ms saga_id", name=Name("tally"), entry=_TALLY),
        "keep_good": _verb("tool ttl_ms", digest=_CALL, result=_GOOD),
        "good": _verb("tool", digest=_CALL, returns=_GOOD),
    },
    p.EventStore: {
        **_clear("send channel event keep_ms most", "address channel waiter event keep_ms",
                 "forget channel saga_id keep_ms", "due partitions older_ms limit", "listed channel limit"),
        "first": _verb("channel", returns=_ABOUT),
        "register": _verb("channel waiter keep_ms", about=_ABOUT),
        "over": _verb("channel waiter keep_ms", taken=_EVENT_ID, about=_ABOUT),
        "arrived": _verb("channel waiter keep_ms again_ms", event=_EVENT_ID),
        "handled": _verb("channel keep_ms", event=_EVENT_ID),
        "refuse": _verb("channel waiter keep_ms", event=_EVENT_ID),
        "look": _verb("channel", event=_EVENT_ID),
    },
    p.DocumentStore: {
        **_clear("read kind name", "write kind document due_ms", "remove kind name revision", "due kind limit"),
        "names": _verb("kind after limit", returns="stored"),
    },
    p.ValueStore: {
        "put": _verb("ttl_ms", digest=Name("shared value"), data=_VALUE),
        "get": _verb(digest=Name("shared value"), returns=_VALUE),
    },
    p.WorkStore: {
        **_clear("count", "listen partitions heard", "reclaim owner partitions dead silent_ms", "sweep owner at queue",
                 "forget owner", "mend partitions", "report owner body ttl_ms", "overview"),
        **_by_hand("take owner nonce limit partitions", "restore_terms saga_id terms"),
        "owners": _verb("partitions", returns="stored"),
        "damage": _verb(returns="stored"),
        "rebuild": _verb(returns="stored"),
    },
    p.EndedStore: {
        **_clear("count", "hold partition limit", "reserved saga_id"),
        "aged": _verb("partition status age_ms skip limit", returns="stored"),
        "purge": _verb(head="stored"),
    },
    p.SealStore: {
        **_clear("erase saga_id summary"),
        "found": _verb(returns="stored"),
        "replace": _verb("saga_id old new", returns="stored"),
    },
}  # fmt: skip
