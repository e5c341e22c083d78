"""Turns requests into prompts, cut to size and fenced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan.preview import brief
from saga_engine.planner.prompts import data, data_lines, load_prompt, safe_json
from saga_engine.ports import CompensationRequest, PlanRequest, ReplanRequest

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolSpec
    from saga_engine.planner.settings import OutputMode
    from saga_engine.ports import PastStep, PlannerRequest

#: The name of the output tool, for models that answer by calling one.
ANSWER_TOOL: Final = "answer"
#: Parameters that the engine fills at a call; a model never sees them.
_HIDDEN: Final = frozenset({"idempotency_key"})
_GOAL_CHARS: Final = 10_000
_WORDS_CHARS: Final = 800
_SHOWN_PROBLEMS: Final = 20
_SHOWN_STEPS: Final = 50
_PREVIOUS_CHARS: Final = 20_000
#: The shown size of one value, in bytes of JSON.
_VALUE_BYTES: Final = 2500


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt ready to send: two texts, the schema of the answer, the prompts' names, and the digest of all."""

    system: str
    question: str
    schema: dict[str, Any]
    label: str
    digest: str


#: What a prompt says of a request, by the names of its places.
_PLACES: Final[Mapping[str, Callable[[Any], str]]] = {
    "goal": lambda request: data("goal", request.goal[:_GOAL_CHARS]),
    "input": lambda request: data("input", _cut(dict(request.input), 6000)),
    "secrets": lambda request: data("secrets", list(request.secrets)),
    "tools": lambda request: data_lines("tools", [tool_card(spec) for spec in request.tools]),
    "stuck": lambda request: data("stuck", past_step(request.stuck)),
    "failed": lambda request: data_lines("failed", map(past_step, (request.failed, *request.also_failed))),
    "past": lambda request: data_lines("past", [past_step(step) for step in request.past[-_SHOWN_STEPS:]]),
    "left": lambda request: data_lines("left", [_cut(dict(step)) for step in request.left[:_SHOWN_STEPS]]),
    "kept": lambda request: data_lines("kept", [_cut(dict(step)) for step in request.kept[:_SHOWN_STEPS]]),
    "taken": lambda request: data("taken", list(request.taken[:500])),
    "max_steps": lambda request: str(request.max_steps),
}


def prompt_for(request: PlannerRequest, mode: OutputMode) -> Asked:
    """The prompt for a request; asked again, it also has the last answer and its problems."""
    names = {PlanRequest: "propose", CompensationRequest: "compensate"}
    prompt = load_prompt(names.get(type(request), "replan"))
    schema = answer_schema(dropping=isinstance(request, ReplanRequest))
    how = "Answer with the JSON object alone: no prose before or after it, no code fence, no comments."
    if mode == "tool":
        how = f"Give your answer by calling the tool `{ANSWER_TOOL}` once: its arguments are the JSON object."
    values = {name: _PLACES[name](request) for name in prompt.inputs if name in _PLACES}
    system, question = prompt.render({**values, "schema": safe_json(schema), "how": how})
    label = prompt.label
    if request.repair is not None:
        again = load_prompt("repair")
        shown = [problem.to_dict() for problem in request.repair.problems[:_SHOWN_PROBLEMS]]
        more, follow_up = again.render(
            {
                "answer": data("answer", request.repair.answer[:_PREVIOUS_CHARS]),
                "problems": data_lines("problems", shown),
                "notes": data_lines("notes", request.repair.notes),
                "how": how,
            }
        )
        system, question = f"{system}\n\n{more}", f"{question}\n\n{follow_up}"
        label = f"{label} {again.label}"
    return Asked(system, question, schema, label, hashlib.sha256(f"{system}\0{question}".encode()).hexdigest())


def tool_card(spec: ToolSpec) -> dict[str, Any]:
    """The description of a tool for a model."""
    card: dict[str, Any] = {"tool": spec.name, "effect": spec.effect}
    words = {"about": spec.description, "use_when": spec.use_when, "not_when": spec.not_when, "returns": spec.returns}
    card |= {name: text[:_WORDS_CHARS] for name, text in words.items() if text}
    card["params"] = trimmed_schema(spec.input_schema, _HIDDEN)
    if spec.output_schema is not None:
        card["output"] = trimmed_schema(spec.output_schema, frozenset(), 2500)
    if spec.effect == "write":
        card["undo"] = spec.undo
        card |= {"irreversible": True} if spec.undo is None else {}
    return card


def _cut(value: Any, max_bytes: int = _VALUE_BYTES) -> Any:
    return brief(value, max_bytes=max_bytes, max_items=20, max_text=800, max_depth=8)


def past_step(step: PastStep) -> dict[str, Any]:
    """A step that has happened, its output cut."""
    shown: dict[str, Any] = {"step_id": step.step_id, "tool": step.tool, "status": step.status}
    if step.name:
        shown["name"] = step.name[:200]
    if step.params is not None:
        shown["params"] = _cut({key: value for key, value in step.params.items() if key not in _HIDDEN})
    if step.output is not None:
        shown["output"] = _cut(step.output)
    if step.error is not None:
        shown["error"] = _cut(dict(step.error))
    return shown


def answer_schema(*, dropping: bool = False) -> dict[str, Any]:
    """The schema of an answer, derived from the schema of plans.

    The model does not set goal, input and id; the tools' owners set retries, time limits and resources; with
    ``impossible`` a model refuses. ``dropping``: it may also drop steps, with a reason each.
    """
    from saga_engine.plan.schema import plan_schema

    schema = plan_schema()
    defs = {name: _chosen(schema["$defs"][name], kept) for name, kept in _KEPT.items()}
    defs["Fallback"] |= {"required": ["tool"], "description": "Another call that stands in for the step's."}
    return {
        "type": "object",
        "properties": {
            "steps": _chosen(schema, ("steps",))["properties"]["steps"],
            **({"dropped": _DROPPED} if dropping else {}),
            "impossible": _IMPOSSIBLE,
        },
        "additionalProperties": False,
        "$defs": defs,
    }


def _chosen(schema: dict[str, Any], kept: tuple[str, ...]) -> dict[str, Any]:
    """An object's schema with only these fields, each without the null that a file may also have there."""
    made: dict[str, Any] = {
        name: schema[name] for name in ("type", "additionalProperties", "description") if name in schema
    }
    made["properties"] = {name: _without_null(schema["properties"][name]) for name in kept}
    required = [name for name in schema.get("required", ()) if name in kept]
    return made | ({"required": required} if required else {})


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    made = {name: value for name, value in field.items() if name not in _BOUNDS}
    if "items" in made:
        made["items"] = _without_null(made["items"])
    branches = [_without_null(branch) for branch in made.get("anyOf", ()) if branch != {"type": "null"}]
    if len(branches) == 1:
        del made["anyOf"]
        return {**branches[0], **made}
    return {**made, "anyOf": branches} if branches else made


_IMPOSSIBLE: Final[dict[str, Any]] = {
    "type": "string",
    "description": "Instead of steps: why these tools cannot serve the goal.",
}
_DROPPED: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": "Steps that the goal does not need any more, by id, each with the reason in a sentence.",
}
#: Keywords that the checks cover anyway, and that a server which enforces a schema may not support.
_BOUNDS: Final = ("default", "maxItems", "maxLength", "exclusiveMaximum")
#: The fields of the format that a model may fill.
_KEPT: Final[Mapping[str, tuple[str, ...]]] = {
    "Step": ("step_id", "name", "tool", "params", "rollback", "depends_on", "kind", "fallback"),
    "Rollback": ("tool", "params"),
    "Fallback": ("tool", "params", "rollback"),
}


# --- schemas of tools ----------------------------------------------------------------------------------------------

_KEYS = 40
_KEY_CHARS = 100
#: A schema may come from the network: deeper nesting becomes a schema that accepts anything.
_SCHEMA_DEPTH = 40
#: Keywords that only repeat or explain, in the order in which they are removed from a schema.
_SCHEMA_NOISE = ("title", "$schema", "$id", "examples", "example", "$comment")


def trimmed_schema(schema: dict[str, Any], hidden: frozenset[str], limit_chars: int = 4000) -> dict[str, Any]:
    """A JSON Schema for a model: without noise and ``hidden`` fields, and without descriptions if it is too long."""
    found: dict[str, Any] = _without(schema, _SCHEMA_NOISE)
    properties = found.get("properties")
    if isinstance(properties, dict) and hidden & properties.keys():
        found["properties"] = {name: item for name, item in properties.items() if name not in hidden}
        if isinstance(found.get("required"), list):
            found["required"] = [name for name in found["required"] if name not in hidden]
    if _size(found) <= limit_chars:
        return found
    found = _without(found, ("description", "default"))
    if _size(found) <= limit_chars:
        return found
    fields = found.get("properties")
    outline = {
        str(name)[:_KEY_CHARS]: {"type": item["type"]} if isinstance(item, dict) and "type" in item else {}
        for name, item in list(fields.items() if isinstance(fields, dict) else ())[:_KEYS]
    }
    required = found.get("required")
    needed = [name for name in (required if isinstance(required, list) else ()) if name in outline]
    return {"type": "object", "properties": outline, "required": needed}


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str))


def _without(node: Any, names: tuple[str, ...], *, named: bool = False, depth: int = 0) -> Any:
    """A copy without these keywords; a field with such a name (``named``) is not a keyword."""
    if depth > _SCHEMA_DEPTH:
        return {}
    if isinstance(node, dict):
        return {
            key: _without(
                item, names, named=not named and key in ("properties", "$defs", "definitions"), depth=depth + 1
            )
            for key, item in node.items()
            if named or key not in names
        }
    if isinstance(node, list):
        return [_without(item, names, depth=depth + 1) for item in node]
    return node
