"""The ports of the engine: what the runtime requires of a store, of tools, of observers, of operators and of models.

Everything here is a protocol or a plain message; the rooms behind the ports never import each other.
"""

from __future__ import annotations

from saga_engine.ports.documents import Document, DocumentKind, DocumentStore, DueDocuments
from saga_engine.ports.escalation import Escalation, EscalationHook, Observer, Question
from saga_engine.ports.guards import BreakerState, Claim, GuardStore, SagaLookup
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
from saga_engine.ports.queue import SWEEP_START, Load, SweepPlace, Swept, Taken, Taking, WorkStore
from saga_engine.ports.store import (
    PAGE_START,
    Ack,
    AckCode,
    Acquired,
    Apart,
    AppendReply,
    Creation,
    Entry,
    Head,
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
from saga_engine.ports.values import ValueStore

__all__ = [
    "PAGE_START",
    "SWEEP_START",
    "Ack",
    "AckCode",
    "Acquired",
    "Advisor",
    "Allowance",
    "Apart",
    "AppendReply",
    "BreakerState",
    "Call",
    "Claim",
    "Clock",
    "CompensationRequest",
    "Creation",
    "Document",
    "DocumentKind",
    "DocumentStore",
    "DueDocuments",
    "Entry",
    "Escalation",
    "EscalationHook",
    "GuardStore",
    "Head",
    "Held",
    "Load",
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
    "Renewal",
    "Renewals",
    "Repair",
    "ReplanRequest",
    "SagaLookup",
    "SearchPlace",
    "Source",
    "StepsCheck",
    "Store",
    "StorePromise",
    "SweepPlace",
    "Swept",
    "Taken",
    "Taking",
    "Tools",
    "ValueStore",
    "WorkStore",
    "parts_of",
]
