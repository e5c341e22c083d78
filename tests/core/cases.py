"""The random plans of the simulation, and their tools."""

from __future__ import annotations

import random
from typing import Any

from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec

#: How many steps may be added while a saga runs.
SPARE = 12


class Catalog:
    """Tool declarations by name."""

    def __init__(self, specs: list[ToolSpec]) -> None:
        self.specs = self._specs = {spec.name: spec for spec in specs}

    def add(self, spec: ToolSpec) -> None:
        self._specs[spec.name] = spec

    def spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name)

    def names(self) -> list[str]:
        return list(self._specs)


def _tools(
    dice: random.Random, key: str, policy: RetryPolicy, *, read: bool, semantic: bool, last_good_s: float | None
) -> list[ToolSpec]:
    """A step's own tool, another one that may replace it, and their undos and probes."""
    return [
        ToolSpec(
            name=f"do_{key}",
            effect="read" if read else "write",
            keyed=dice.random() < 0.6,
            key_ttl_s=dice.choice([None, None, 12.0]),
            timeout_s=6.0,
            probe=f"probe_{key}" if dice.random() < 0.3 else None,
            retry=policy,
            remembers=not read and dice.random() < 0.3,
            last_good_s=last_good_s,
            semantic="approve" if semantic else None,
            on_doubt="undo" if dice.random() < 0.25 else "ask",
        ),
        ToolSpec(name=f"alt_{key}", keyed=dice.random() < 0.5, timeout_s=6.0, retry=policy),
        ToolSpec(name=f"undo_alt_{key}", keyed=True),
        ToolSpec(name=f"probe_{key}", effect="read"),
        ToolSpec(
            name=f"undo_{key}",
            keyed=dice.random() < 0.6,
            tolerates_absence=dice.random() < 0.6,
            probe=f"probe_{key}" if dice.random() < 0.2 else None,
        ),
    ]


def make_case(dice: random.Random) -> tuple[dict[str, Any], Catalog]:
    """A random plan that passes the checks, and its tools."""
    count = dice.randint(1, 6)
    graph = dice.random() < 0.5
    pivot = dice.randrange(count) if dice.random() < 0.25 and not graph else None
    steps: list[dict[str, Any]] = []
    specs: list[ToolSpec] = []
    policy = RetryPolicy(max_attempts=dice.randint(1, 3), base_s=1.0, max_s=4.0)
    for index in range(count):
        key = f"s{index}"
        read = dice.random() < 0.15 and index != pivot
        after_pivot = pivot is not None and index > pivot
        step: dict[str, Any] = {"step_id": key, "tool": f"do_{key}", "params": {"n": index}}
        last_good_s = 60.0 if read and dice.random() < 0.5 else None
        semantic = not read and index != pivot and not after_pivot and dice.random() < 0.12
        final = not (read or semantic or index == pivot or after_pivot) and dice.random() < 0.1
        specs += _tools(dice, key, policy, read=read, semantic=semantic, last_good_s=last_good_s)
        step["fallback"] = make_fallbacks(dice, key, read=read, undone=index != pivot and not (after_pivot or final))
        if last_good_s:
            step["fallback"].append({"cached_s": 30})
        if dice.random() < 0.2:
            step["fallback"].append({"queue_s": 3})
        if not step["fallback"]:
            del step["fallback"]
        if index == pivot:
            step["kind"] = "pivot"
        elif after_pivot and not read:
            step["kind"] = "retriable"
        elif final:
            step["kind"] = "irreversible"
        elif not read and not semantic:
            step["rollback"] = {
                "tool": f"undo_{key}",
                "params": {"ref": undone_by(dice, key)},
                "retry": {"max_attempts": dice.randint(1, 3), "base_s": 1, "max_s": 2},
            }
        if graph and index:
            step["depends_on"] = sorted({f"s{dice.randrange(index)}" for _ in range(dice.randint(0, 2))})
        if index and not graph and dice.random() < 0.4:
            step["params"]["earlier"] = f"$output.step_s{dice.randrange(index)}.ref"
        steps.append(step)
    plan: dict[str, Any] = {"goal": "simulated", "steps": steps}
    if dice.random() < 0.5:
        plan["on_failure"] = dice.choice(["pause", "replan", "replan"])
    for number in range(SPARE):
        specs += [*spare_tools(dice, f"x{number}"), *spare_tools(dice, f"y{number}")]
    if dice.random() < 0.15 or any("queue_s" in each for step in steps for each in step.get("fallback", ())):
        plan["deadline_s"] = dice.randint(1, 12)
    if dice.random() < 0.15:
        plan["max_tool_calls"] = dice.randint(1, 8)
    return plan, Catalog(specs)


def spare_tools(dice: random.Random, key: str) -> list[ToolSpec]:
    """The tools of a step that is added while the saga runs, and of one that makes up for another."""
    once = RetryPolicy(max_attempts=2, base_s=1.0, max_s=1.0)
    return [
        ToolSpec(name=f"do_{key}", keyed=dice.random() < 0.7, undo=f"undo_{key}", retry=once, timeout_s=6.0),
        ToolSpec(
            name=f"undo_{key}",
            keyed=True,
            tolerates_absence=True,
            retry=once,
            input_schema={"type": "object", "properties": {"ref": {}}},
        ),
        ToolSpec(
            name=f"fix_{key}",
            keyed=dice.random() < 0.7,
            compensates=True,
            semantic=dice.choice(["auto", "approve", None]),
            retry=once,
            timeout_s=6.0,
        ),
    ]


def make_fallbacks(dice: random.Random, key: str, *, read: bool, undone: bool) -> list[dict[str, Any]]:
    """Another tool that may stand in for a step, with an undo of its own."""
    if read or dice.random() > 0.3:
        return []
    fallback: dict[str, Any] = {"tool": f"alt_{key}"}
    if undone:
        fallback["rollback"] = {"tool": f"undo_alt_{key}", "params": {"ref": undone_by(dice, key)}}
    return [fallback]


def undone_by(dice: random.Random, key: str) -> str:
    """What an undo names its object by: the key of the call, the caller's own word for it, or what the call returned."""
    luck = dice.random()
    return "$key" if luck < 0.4 else f"own-{key}" if luck < 0.5 else f"$output.step_{key}.ref"


def undone_by_own_words(body: dict[str, Any]) -> set[str]:
    """The undos of a plan that bind nothing: what they name may be anybody's."""
    steps = body["steps"]
    calls = [step["rollback"] for step in steps if "rollback" in step]
    calls += [way["rollback"] for step in steps for way in step.get("fallback", ()) if "rollback" in way]
    return {call["tool"] for call in calls if not str(call["params"].get("ref", "$")).startswith("$")}
