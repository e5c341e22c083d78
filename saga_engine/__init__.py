"""saga_engine: an AI agent's plan of tool calls as one unit.

The public names, imported when they are first used: ``saga --help`` and ``saga list`` need none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saga_engine._version import __version__

if TYPE_CHECKING:
    from saga_engine.adapters.sync import SyncSession, sync_session
    from saga_engine.api import Coordinator
    from saga_engine.core.views import CallResult, Failure, StepResult
    from saga_engine.errors import (
        CallBlocked,
        CallFailed,
        NeedsPerson,
        OutcomeUnknown,
        PlanInvalid,
        SagaError,
        ToolError,
    )
    from saga_engine.execution.result import Handle, SagaResult
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import BreakerPolicy, RetryPolicy
    from saga_engine.policy.rules import Policy, Rule
    from saga_engine.ports import Escalation, Question
    from saga_engine.runtime.run_sync import run_sync
    from saga_engine.runtime.session import Savepoint, Session
    from saga_engine.runtime.session_calls import Undo
    from saga_engine.tools.context import ToolContext
    from saga_engine.tools.decorator import Tool, tool
    from saga_engine.tools.registry import ToolRegistry
    from saga_engine.tools.signature import Sensitive
    from saga_engine.tools.tool_search import select_tools

_HOMES = {
    "BreakerPolicy": "saga_engine.plan.tool_spec",
    "CallBlocked": "saga_engine.errors",
    "CallFailed": "saga_engine.errors",
    "CallResult": "saga_engine.core.views",
    "Coordinator": "saga_engine.api",
    "Failure": "saga_engine.core.views",
    "Handle": "saga_engine.execution.result",
    "NeedsPerson": "saga_engine.errors",
    "SagaResult": "saga_engine.execution.result",
    "OutcomeUnknown": "saga_engine.errors",
    "Plan": "saga_engine.plan.model",
    "PlanInvalid": "saga_engine.errors",
    "Escalation": "saga_engine.ports",
    "Policy": "saga_engine.policy.rules",
    "Question": "saga_engine.ports",
    "Rule": "saga_engine.policy.rules",
    "RetryPolicy": "saga_engine.plan.tool_spec",
    "SagaError": "saga_engine.errors",
    "Savepoint": "saga_engine.runtime.session",
    "Sensitive": "saga_engine.tools.signature",
    "Session": "saga_engine.runtime.session",
    "StepResult": "saga_engine.core.views",
    "SyncSession": "saga_engine.adapters.sync",
    "Tool": "saga_engine.tools.decorator",
    "ToolContext": "saga_engine.tools.context",
    "ToolError": "saga_engine.errors",
    "ToolRegistry": "saga_engine.tools.registry",
    "Undo": "saga_engine.runtime.session_calls",
    "run_sync": "saga_engine.runtime.run_sync",
    "select_tools": "saga_engine.tools.tool_search",
    "sync_session": "saga_engine.adapters.sync",
    "tool": "saga_engine.tools.decorator",
}

__all__ = [
    "BreakerPolicy",
    "CallBlocked",
    "CallFailed",
    "CallResult",
    "Coordinator",
    "Escalation",
    "Failure",
    "Handle",
    "NeedsPerson",
    "OutcomeUnknown",
    "Plan",
    "PlanInvalid",
    "Policy",
    "Question",
    "RetryPolicy",
    "Rule",
    "SagaError",
    "SagaResult",
    "Savepoint",
    "Sensitive",
    "Session",
    "StepResult",
    "SyncSession",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolRegistry",
    "Undo",
    "__version__",
    "run_sync",
    "select_tools",
    "sync_session",
    "tool",
]


if not TYPE_CHECKING:  # else every name would be one to a type checker

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'saga_engine' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
