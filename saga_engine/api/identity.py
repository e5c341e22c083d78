"""The identity of every saga with a plan, on whatever runtime."""

from __future__ import annotations

import secrets
from typing import Any

from saga_engine.core.submission import Submission
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.model import Plan
from saga_engine.plan.values import digest


def identity_of(plan: Plan, given: dict[str, Any] | None) -> str:
    """The identity of a saga: the digest of its plan and its submitted input. One id has one identity."""
    return plan.digest if given is None else digest([plan.digest, given])


def submission_of(saga_id: str, plan: Plan, compiled: CompiledPlan, given: dict[str, Any] | None) -> Submission:
    """A new saga, with its own seed for its keys."""
    return Submission(
        saga_id=saga_id,
        plan=plan.json_bytes,
        compiled=compiled,
        digest=identity_of(plan, given),
        seed=secrets.token_hex(8),
        input=given,
    )
