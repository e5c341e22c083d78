"""``saga mcp check --try``: makes the calls of a file on the servers as they are, and undoes each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from saga_engine.api import Coordinator
    from saga_engine.gateway.offer import Offered
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry


async def make_trial(settings: Settings, registry: ToolRegistry, file: Path) -> dict[str, Any]:
    """Make each call and undo it, between two reads of everything that the file reads.

    Each call is a saga in the configured store, so a trial that is killed can be undone. Raises ``SettingInvalid``.
    """
    from saga_engine.cli.drive import configured, store_opened
    from saga_engine.cli.progress import Progress
    from saga_engine.plan.values import canonical

    calls, reads = _read(file, registry)
    guards = configured(settings)
    guards.pop("on_escalation", None)  # a trial alarms nobody
    made: list[dict[str, Any]] = []
    async with store_opened(settings, registry, Progress("mcp", {}, many=True), guards, observed=False) as coordinator:
        before = [await _seen(registry, tool, params) for tool, params in reads]
        made.extend([await _tried(coordinator, registry, tool, params) for tool, params in calls])
        after = [await _seen(registry, tool, params) for tool, params in reads]
    changed = [
        {"tool": tool, "params": params, "before": old, "after": new}
        for (tool, params), old, new in zip(reads, before, after, strict=True)
        if canonical(old) != canonical(new)
    ]
    as_before = not changed and all(each["outcome"] in ("undone", "not made", "read") for each in made)
    return {"calls": made, "changed": changed, "as_before": as_before}


def _read(file: Path, registry: ToolRegistry) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    from saga_engine.errors import SettingInvalid
    from saga_engine.plan.strict_json import strict_json

    hint = '{"calls": [{"tool": "SERVER.TOOL", "params": {}}], "reads": [{"tool": "SERVER.TOOL", "params": {}}]}'
    try:
        body = strict_json(file.read_text(encoding="utf-8"))
        if not isinstance(body, dict) or not body.keys() <= {"calls", "reads"}:
            raise ValueError("it is no object with calls and reads")
        found = [[(each["tool"], each.get("params", {})) for each in body.get(name, [])] for name in ("calls", "reads")]
    except (OSError, UnicodeError, json.JSONDecodeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingInvalid(f"--try {file}: {error}", hint=hint) from error
    for tool, params in [*found[0], *found[1]]:
        spec = registry.spec(tool) if isinstance(tool, str) else None
        if spec is None or not isinstance(params, dict):
            raise SettingInvalid(f"--try {file}: {tool!r} is no tool here, or its params are no object", hint=hint)
    for tool, _ in found[1]:
        spec = registry.spec(tool)
        if spec is None or spec.effect != "read":
            raise SettingInvalid(f"--try {file}: {tool} writes, so it is no read", hint='effect = "read"')
    return found[0], found[1]


async def _seen(registry: ToolRegistry, tool: str, params: Mapping[str, Any]) -> Any:
    """What a read shows; a text if it fails."""
    from saga_engine.core.effects import Done
    from saga_engine.ports import Call

    spec = registry.spec(tool)
    assert spec is not None
    context = Call("trial", "1", "probe", 1, "trial:1:b:0", 0, None, timeout_s=spec.timeout_s)
    outcome = await registry.call(tool, dict(params), context)
    return outcome.output if isinstance(outcome, Done) else f"cannot be read: {outcome.error.message}"


async def _tried(coordinator: Coordinator, registry: ToolRegistry, tool: str, params: Any) -> dict[str, Any]:
    """Make one call and undo it."""
    from saga_engine.errors import SagaError
    from saga_engine.execution.ids import new_saga_id
    from saga_engine.gateway.work import Call, Pending, Work

    work = Work(coordinator, f"try-{new_saga_id()}", kept=False, goal=f"a trial of {tool}")
    about = {"tool": tool, "saga_id": await work.saga_id()}
    try:
        await work.call(_offer(registry, tool), params, Call())
    except Pending:
        report = await work.rollback(None)
        return {**about, "outcome": "asked", "about": "an operator is asked before it is made"}
    except SagaError as error:
        report = await work.rollback(None)
        return {**about, "outcome": "not made" if report.clean else "unknown", "about": error.message}
    report = await work.rollback(None)
    if report.questions:
        return {**about, "outcome": "asked", "about": report.questions[0]["about"] or report.questions[0]["kind"]}
    if report.left or report.unknown:
        return {**about, "outcome": "left", "about": "nothing undoes it"}
    return {**about, "outcome": "undone" if report.undone else "read", "about": ""}


def _offer(registry: ToolRegistry, tool: str) -> Offered:
    from saga_engine.gateway.offer import Offered

    spec = registry.spec(tool)
    assert spec is not None
    irreversible = spec.effect == "write" and spec.undo is None and spec.semantic in (None, "never")
    return Offered(tool, tool, {}, irreversible, spec.effect == "read")
