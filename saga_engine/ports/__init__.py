"""The ports of the engine: what the runtime requires of a store, of tools, of observers, of operators and of models.

Everything here is a protocol, a plain message, or the machine's clock; the rooms behind the ports never import each
other.
"""

from __future__ import annotations

from saga_engine.ports.documents import Document, DocumentKind, DocumentStore, DueDocuments
from saga_engine.ports.ended import Aged, EndedStore
from saga_engine.ports.escalation import Escalation, EscalationHook, Meter, Observer, Question
from saga_engine.ports.events import (
    Channel,
    Disposition,
    DueEvent,
    EventStore,
    ListedEvent,
    Receipt,
    StoredEvent,
    Waiter,
)
from saga_engine.ports.guards import BreakerState, Claim, GuardStore, SagaLookup, StopsSeen
from saga_engine.ports.head import Head
from saga_engine.ports.planner import (
    Advisor,
    Allowance,
    CompensationRequest,
    PastStep,
    Planner,
    PlannerAnswer,
    PlannerRequest,
    PlannerUsage,
    PlanRequest,
    Repair,
    ReplanRequest,
    StepsCheck,
)
from saga_engine.ports.queue import SWEEP_START, Hint, Load, SweepPlace, Swept, Taken, Taking, WorkStore
from saga_engine.ports.seals import SealStore
from saga_engine.ports.store import (
    PAGE_START,
    Ack,
    AckCode,
    Acquired,
    Apart,
    AppendReply,
    Begun,
    Creation,
    Entry,
    Held,
    PagePlace,
    Query,
    Renewal,
    Renewals,
    SearchPlace,
    Store,
    StorePromise,
    parts_of,
)
from saga_engine.ports.tools import Call, Clock, Source, Tools
from saga_engine.ports.tracing import Tracing
from saga_engine.ports.values import ValueStore

__all__ = [
    "PAGE_START",
    "SWEEP_START",
    "Ack",
    "AckCode",
    "Acquired",
    "Advisor",
    "Aged",
    "Allowance",
    "Apart",
    "AppendReply",
    "Begun",
    "BreakerState",
    "Call",
    "Channel",
    "Claim",
    "Clock",
    "CompensationRequest",
    "Creation",
    "Disposition",
    "Document",
    "DocumentKind",
    "DocumentStore",
    "DueDocuments",
    "DueEvent",
    "EndedStore",
    "Entry",
    "Escalation",
    "EscalationHook",
    "EventStore",
    "GuardStore",
    "Head",
    "Held",
    "Hint",
    "ListedEvent",
    "Load",
    "Meter",
    "Observer",
    "PagePlace",
    "PastStep",
    "PlanRequest",
    "Planner",
    "PlannerAnswer",
    "PlannerRequest",
    "PlannerUsage",
    "Query",
    "Question",
    "Receipt",
    "Renewal",
    "Renewals",
    "Repair",
    "ReplanRequest",
    "SagaLookup",
    "SealStore",
    "SearchPlace",
    "Source",
    "StepsCheck",
    "StopsSeen",
    "Store",
    "StorePromise",
    "StoredEvent",
    "SweepPlace",
    "Swept",
    "Taken",
    "Taking",
    "Tools",
    "Tracing",
    "ValueStore",
    "Waiter",
    "WorkStore",
    "parts_of",
]
