"""The laws of lists and of what is chosen out of them: each item once, in its lane, and its answer in its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dev.chaos import plans
from dev.chaos.told import Told
from saga_engine.core import transitions as t

#: Records that end the forward part of an item.
_ENDS: Final = frozenset({"StepSucceeded", "StepFailed", "StepBlocked", "StepSkipped", "QuestionResolved"})


def breaches(plan: Mapping[str, Any], told: Told) -> Iterator[str]:
    """Every law that a saga breaks, as sentences."""
    steps = {str(step["step_id"]): step for step in told.body["steps"]}
    for written in plan["steps"]:
        key = written["step_id"]
        if "each" in written:
            for sentence in (*_items(written, steps, told), *_lanes(written, told)):
                yield f"step {key}: {sentence}"
        if "pick" in written.get("compute", {}) and steps[key]["status"] == t.SUCCEEDED:
            wanted = _picked(written["compute"], steps)
            if steps[key]["output"] != wanted:
                yield f"step {key}: it picked {steps[key]['output']}, and the first that fits is {wanted}"


def figures(told: Told) -> Counter[str]:
    """What of all this happened."""
    items = [step for step in told.body["steps"] if "[" in str(step["step_id"])]
    picked = sum("pick" in str(step.get("builtin")) or step.get("via") == "computed" for step in told.body["steps"])
    return Counter({"lists": told.kinds()["EachExpanded"], "items": len(items), "computed": picked})


def _items(written: Mapping[str, Any], steps: Mapping[str, Any], told: Told) -> Iterator[str]:
    """The items are those for which the conditions hold, in their order; their answers are the list's."""
    each, key = written["each"], written["step_id"]
    wanted = [item for item in each["of"] if all(item["n"] != condition["to"] for condition in each.get("when", ()))]
    begun = [
        record.get("items", []) for record in told.history if record["k"] == "EachExpanded" and record["step"] == key
    ]
    if begun and begun != [wanted]:
        yield f"its items are {begun}, and those that fit are {wanted}"
    own = [steps[f"{key}[{at}]"] for at in range(len(wanted))] if begun else []
    called = {step_id for step_id in steps if step_id.startswith(f"{key}[")}
    if len(called) != len(own):
        yield f"it has {len(called)} items in the report, and {len(own)} in the journal"
    for item, step in zip(wanted, own, strict=False):
        if step["output"] is not None and "output_ref" not in step and step["output"]["ref"] != item["name"]:
            yield f"the item {item['name']} has the answer {step['output']}"
    if steps[key]["status"] != t.SUCCEEDED:
        return
    answers = [step["output"] if step["status"] not in (t.FAILED, t.BLOCKED) else None for step in own]
    output = steps[key]["output"]
    found = output["outputs"] if each.get("on_error") == "collect" else output
    if found != answers:
        yield f"its output is {found}, and its items answered {answers}"


def _lanes(written: Mapping[str, Any], told: Told) -> Iterator[str]:
    """With N at a time, an item begins when the one N places before it has ended."""
    key, lanes = written["step_id"], written["each"]["parallel"]
    over: set[str] = set()
    for record in told.history:
        step = str(record.get("step", ""))
        if not step.startswith(f"{key}[") or record.get("direction", "forward") != "forward":
            continue
        number = int(step.removeprefix(f"{key}[").removesuffix("]"))
        if record["k"] == "StepIntended" and number >= lanes and f"{key}[{number - lanes}]" not in over:
            yield f"{step} was called before {key}[{number - lanes}] had ended"
        elif record["k"] in _ENDS:
            over.add(step)


def _picked(pick: Mapping[str, Any], steps: Mapping[str, Any]) -> Any:
    """The first item that fits, from the plan's own list, or from the outputs of the items."""
    wanted: Sequence[str] = pick["where"][1]["to"]
    if isinstance(pick["pick"], Mapping):
        names = [item["name"] for item in pick["pick"]["value"]]
    else:
        listed = steps[pick["pick"].removeprefix("$output.step_").removesuffix(".outputs")]["output"]
        outputs = listed["outputs"] if isinstance(listed, Mapping) else listed
        names = [output["ref"] for output in outputs if output is not None]
    return next((name for name in names if name in wanted), plans.NOTHING)
