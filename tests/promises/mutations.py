"""How each promise of docs/guarantees.md could be broken, by the test that is named for it.

A row that no longer fits the code is written anew, so that it breaks the same promise.
"""

from __future__ import annotations

from tests.promises.breaking import Mutation
from tests.promises.mutations_of_barriers import OF_BARRIERS
from tests.promises.mutations_of_budgets import OF_BUDGETS
from tests.promises.mutations_of_calls import OF_CALLS
from tests.promises.mutations_of_holds import OF_HOLDS
from tests.promises.mutations_of_images import OF_IMAGES
from tests.promises.mutations_of_plans import OF_PLANS
from tests.promises.mutations_of_privacy import OF_PRIVACY
from tests.promises.mutations_of_schedules import OF_SCHEDULES
from tests.promises.mutations_of_server import OF_SERVER
from tests.promises.mutations_of_sources import OF_SOURCES
from tests.promises.mutations_of_steps import OF_STEPS
from tests.promises.mutations_of_stores import OF_STORES
from tests.promises.mutations_of_supervisors import OF_SUPERVISORS
from tests.promises.mutations_of_telemetry import OF_TELEMETRY
from tests.promises.mutations_of_workers import OF_WORKERS
from tests.promises.mutations_of_writes import OF_WRITES

MUTATIONS: list[Mutation] = [
    *OF_STORES,
    *OF_CALLS,
    *OF_SUPERVISORS,
    *OF_TELEMETRY,
    *OF_WORKERS,
    *OF_BARRIERS,
    *OF_STEPS,
    *OF_SOURCES,
    *OF_SCHEDULES,
    *OF_SERVER,
    *OF_IMAGES,
    *OF_PRIVACY,
    *OF_BUDGETS,
    *OF_HOLDS,
    *OF_WRITES,
    *OF_PLANS,
]
