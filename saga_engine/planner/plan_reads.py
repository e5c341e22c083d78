"""Lookups while a plan is made: tools that an operator declared safe for it, few and bounded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

from saga_engine.core.effects import FORWARD, Done
from saga_engine.errors import Problem, ValueNotJson
from saga_engine.plan.problems import known_names
from saga_engine.plan.values import cut, json_path, plain, printable
from saga_engine.policy.gate import Gate
from saga_engine.ports import Call

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolSpec
    from saga_engine.policy.rules import Policy
    from saga_engine.ports import GuardStore, PlanRequest
    from saga_engine.tools.registry import ToolRegistry

#: Makes one call of a tool that reads: its value, or the reason why there is none, and whether there is one.
ReadCall = Callable[["ToolSpec", Mapping[str, Any], float], Awaitable[tuple[bool, Any]]]

#: The most calls for one plan, and the longest time for one of them.
MAX_READS: Final = 20
READ_S: Final = 20.0
_MESSAGE_CHARS: Final = 500


@dataclass(slots=True)
class PlanReads:
    """Makes lookups for one plan. ``made`` are the calls so far, for the review: tool, params, whether it worked."""

    call: ReadCall
    made: list[dict[str, Any]] = field(default_factory=list)

    async def make(self, wanted: Any, request: PlanRequest) -> tuple[list[dict[str, Any]], list[Problem]]:
        """The results of what a model wants to look up; or the problems, and then nothing was called."""
        listed = wanted if isinstance(wanted, list) else [wanted]
        problems: list[Problem] = []
        calls: list[tuple[ToolSpec, dict[str, Any]]] = []
        if len(self.made) + len(listed) > MAX_READS:
            message = f"{len(self.made) + len(listed)} lookups are more than the {MAX_READS} that one plan may have"
            return [], [Problem("limit-reads", "$.reads", message, "look up less, or plan the reads as steps")]
        offered = {spec.name: spec for spec in request.tools if spec.name in request.reads}
        for number, each in enumerate(listed):
            path = ("reads", number)
            tool = each.get("tool") if isinstance(each, Mapping) else None
            spec = offered.get(tool) if isinstance(tool, str) else None
            if spec is None:
                hint = known_names(sorted(offered), "tools that may be called while planning")
                message = f"{cut(tool, 80)} may not be called while planning"
                problems.append(Problem("read-not-allowed", json_path((*path, "tool")), message, hint))
                continue
            params, found = _params(each, spec)
            problems += [
                Problem("params-invalid", json_path((*path, "params", *place)), printable(said, 300))
                for place, said in found
            ]
            calls.append((spec, params))
        if problems:
            return [], problems[:MAX_READS]
        return [await self._made(spec, params) for spec, params in calls], []

    async def _made(self, spec: ToolSpec, params: dict[str, Any]) -> dict[str, Any]:
        worked, value = await self.call(spec, params, min(spec.timeout_s, READ_S))
        self.made.append({"tool": spec.name, "params": params, "worked": worked})
        said = {"result": value} if worked else {"error": printable(str(value), _MESSAGE_CHARS)}
        return {"tool": spec.name, "params": params, **said}


def registry_reads(tools: ToolRegistry, policy: Policy | None) -> ReadCall:
    """Calls tools of a registry. Each call must be allowed by the policy outright: nobody is asked for an approval."""
    gate = None if policy is None else Gate(policy, cast("GuardStore", _Tallies()))

    async def call(spec: ToolSpec, params: Mapping[str, Any], timeout_s: float) -> tuple[bool, Any]:
        tool = tools.get(spec.name)
        key = f"planning:{uuid4().hex}"
        made = Call("planning", spec.name, FORWARD, 1, key, 0, None, timeout_s)
        if tool is None or tool.effect != "read":
            return False, f"there is no tool {spec.name} that reads"
        stop = None if gate is None else await gate.authorize(tool, params, made)
        outcome = await tools.call(spec.name, params, made) if stop is None else stop
        return (True, outcome.output) if isinstance(outcome, Done) else (False, outcome.error.message)

    return call


class _Tallies:
    """What a policy counts of the lookups for one plan; no saga has them."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, str]] = {}

    async def tally(self, name: str, saga_id: str) -> Mapping[str, str]:  # noqa: ARG002 - a store's verb
        return self._counts.get(name, {})

    async def tally_set(self, name: str, owner: str, entry: str | None, ttl_ms: int, saga_id: str = "") -> None:  # noqa: ARG002
        if entry is not None:
            self._counts.setdefault(name, {})[owner] = entry


def _params(each: Mapping[str, Any], spec: ToolSpec) -> tuple[dict[str, Any], list[tuple[tuple[str | int, ...], str]]]:
    """The params of a lookup, and what is wrong with them: nothing is bound, so a binding is a text like any other."""
    given = each.get("params", {})
    if not isinstance(given, Mapping):
        return {}, [((), "the params are an object")]
    try:
        params: dict[str, Any] = plain(dict(given))
    except ValueNotJson as error:
        return {}, [((), error.message)]
    bound = [
        ((name,), f"{cut(value, 80)} is a binding; write the value itself")
        for name, value in params.items()
        if isinstance(value, str) and value.startswith("$")
    ]
    return params, [*bound, *spec.check_params(params)]
