"""How every saga starts, on whatever runtime: its identity, and its first record."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from saga_engine._version import __version__
from saga_engine.core.records import SagaStarted
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.model import Plan
from saga_engine.plan.values import digest


def identity_of(plan: Plan, given: dict[str, Any] | None) -> str:
    """The identity of a saga: the digest of its plan and its submitted input. One id has one identity."""
    return plan.digest if given is None else digest([plan.digest, given])


def first_record(
    saga_id: str, plan: Plan, compiled: CompiledPlan, given: dict[str, Any] | None, at_ms: int
) -> SagaStarted:
    """The record that starts a saga at ``at_ms`` (Unix ms), with its own seed for its keys."""
    return SagaStarted(
        at=at_ms,
        saga_id=saga_id,
        plan=msgspec.Raw(plan.json_bytes),
        digest=identity_of(plan, given),
        seed=secrets.token_hex(8),
        input=given,
        undos=compiled.undos,
        reads=sorted(compiled.reads),
        tools=compiled.tool_digests,
        sensitive=compiled.sensitive,
        engine=__version__,
    )
