"""Turns requests into prompts, cut to size and fenced."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan import words
from saga_engine.plan.preview import brief
from saga_engine.planner.features import FEATURES, plan_fields, told, told_others, usable
from saga_engine.planner.prompts import data, data_lines, load_prompt, safe_json
from saga_engine.planner.tool_cards import HIDDEN_PARAMS, compact_card, named_card, split_undos, trimmed_schema
from saga_engine.ports import CompensationRequest, PlanRequest, ReplanRequest

if TYPE_CHECKING:
    from saga_engine.errors import Problem
    from saga_engine.plan.tool_spec import ToolSpec
    from saga_engine.planner.prompts import Prompt
    from saga_engine.planner.settings import OutputMode
    from saga_engine.ports import PastStep, PlannerRequest

#: The name of the output tool, for models that answer by calling one.
ANSWER_TOOL: Final = "answer"
_HIDDEN: Final = HIDDEN_PARAMS
_GOAL_CHARS: Final = 10_000
_WORDS_CHARS: Final = 800
_SHOWN_PROBLEMS: Final = 20
_SHOWN_STEPS: Final = 50
_PREVIOUS_CHARS: Final = 20_000
_SHOWN_HIDDEN: Final = 1000
#: The shown size of one value, in bytes of JSON.
_VALUE_BYTES: Final = 2500


_STEP_PATH: Final = re.compile(r"^\$\.(steps|finally)\[(\d+)\](.*)\Z", re.DOTALL)


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
    "tools": lambda request: data_lines("tools", _tools(request)),
    "undos": lambda request: data_lines("undos", [compact_card(spec) for spec in split_undos(request.tools)[1]]),
    "hidden": lambda request: data_lines("hidden", [named_card(spec) for spec in request.hidden[:_SHOWN_HIDDEN]]),
    "now": lambda request: data("now", request.now or "not known"),
    "answers": lambda request: data("answers", _cut(dict(request.answers), 8000)),
    "reads": lambda request: data("reads", list(request.reads)),
    "read_results": lambda request: data_lines(
        "read_results", [_cut(dict(one), 16_000, 200) for one in request.read_results]
    ),
    "stuck": lambda request: data("stuck", past_step(request.stuck)),
    "failed": lambda request: data_lines("failed", map(past_step, _failed(request))),
    "reason": lambda request: data("reason", request.reason),
    "past": lambda request: data_lines("past", [past_step(step) for step in request.past[-_SHOWN_STEPS:]]),
    "left": lambda request: data_lines("left", [_cut(dict(step)) for step in request.left[:_SHOWN_STEPS]]),
    "kept": lambda request: data_lines("kept", [_cut(dict(step)) for step in request.kept[:_SHOWN_STEPS]]),
    "taken": lambda request: data("taken", list(request.taken[:500])),
    "max_steps": lambda request: str(request.max_steps),
    "parts": lambda request: told(request.may_use, without=_without_parts(request)),
    "others": told_others,
}


def prompt_for(request: PlannerRequest, mode: OutputMode) -> Asked:
    """The prompt for a request; asked again, it also has the last answer and its problems."""
    names = {PlanRequest: "propose", CompensationRequest: "compensate"}
    prompt = load_prompt(names.get(type(request), "replan"))
    schema = schema_for(request)
    how = "Answer with the JSON object alone: no prose before or after it, no code fence, no comments."
    if mode == "tool":
        how = f"Give your answer by calling the tool `{ANSWER_TOOL}` once: its arguments are the JSON object."
    values = {name: _PLACES[name](request) for name in prompt.inputs if name in _PLACES}
    # With these modes the schema is sent beside the prompt.
    where = {"tool": f"Its JSON Schema is that of the tool `{ANSWER_TOOL}`.", "native": "Its JSON Schema is enforced."}
    system, question = prompt.render({**values, "schema": where.get(mode) or safe_json(schema), "how": how})
    label = prompt.label
    for again, filled in _additions(request):
        more, follow_up = again.render({**filled, "how": how})
        system, question = f"{system}\n\n{more}", f"{question}\n\n{follow_up}"
        label = f"{label} {again.label}"
    return Asked(system, question, schema, label, hashlib.sha256(f"{system}\0{question}".encode()).hexdigest())


def _additions(request: PlannerRequest) -> Iterator[tuple[Prompt, dict[str, str]]]:
    """The prompts that are added to that of a request: the plan to change, then the last answer and its problems."""
    if isinstance(request, PlanRequest) and request.revises is not None:
        yield load_prompt("revise"), {"plan": data("plan", dict(request.revises))}
    if request.repair is not None:
        given = _as_object(request.repair.answer)
        shown = [_problem(problem, given) for problem in request.repair.problems[:_SHOWN_PROBLEMS]]
        filled = {"problems": data_lines("problems", shown)}
        # As JSON the model reads its own words; as a text in JSON each quote would be escaped.
        whole = given is not None and len(request.repair.answer) <= _PREVIOUS_CHARS
        filled["answer"] = data("answer", given if whole else request.repair.answer[:_PREVIOUS_CHARS])
        filled["notes"] = data_lines("notes", request.repair.notes)
        prompt = load_prompt(request.repair.prompt)
        yield prompt, {name: text for name, text in filled.items() if name in prompt.inputs}


def _as_object(answer: str) -> dict[str, Any] | None:
    """The object of an answer as it was written; None if it cannot be read."""
    try:
        found = json.loads(answer, parse_constant=lambda name: name)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _problem(problem: Problem, answer: dict[str, Any] | None) -> dict[str, Any]:
    """A problem for a model: by the id of its step in the answer, where it has one, and the path in that step."""
    found = _STEP_PATH.match(problem.path)
    inner = (answer or {}).get("plan")
    whole = inner if isinstance(inner, dict) and "steps" not in (answer or {}) else answer or {}
    steps = whole.get(found[1]) if found is not None else None
    shown: dict[str, Any] = {"code": problem.code}
    if found is not None and isinstance(steps, list) and int(found[2]) < len(steps):
        step = steps[int(found[2])]
        named = step.get("step_id") if isinstance(step, dict) else None
        shown |= {"step": int(found[2]) + 1 if named is None else named, "path": found[3].lstrip(".") or "the step"}
    else:
        shown["path"] = problem.path
    shown["message"] = problem.message
    return shown | ({"hint": problem.hint} if problem.hint else {})


def _tools(request: Any) -> list[dict[str, Any]]:
    """The tools of a request, in the short form, and without the undos, which have a list of their own.

    Of a compensation they are shown whole: they are few, and its amounts and ids matter.
    """
    if not isinstance(request, CompensationRequest):
        return [compact_card(spec) for spec in split_undos(request.tools)[0]]
    return [tool_card(spec) for spec in request.tools]


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


def _cut(value: Any, max_bytes: int = _VALUE_BYTES, max_items: int = 20) -> Any:
    return brief(value, max_bytes=max_bytes, max_items=max_items, max_text=800, max_depth=8)


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
    if step.attempts:
        shown["attempts"] = step.attempts
    return shown


def _failed(request: CompensationRequest | ReplanRequest) -> Sequence[PastStep]:
    return request.failed if isinstance(request, CompensationRequest) else (request.failed, *request.also_failed)


def schema_for(request: PlannerRequest) -> dict[str, Any]:
    """The schema of the answer to a request."""
    if isinstance(request, PlanRequest):
        return plan_answer_schema(request.may_use, without=_without_parts(request))
    if isinstance(request, CompensationRequest):
        return answer_schema()
    without = _without_parts(request)
    return answer_schema(dropping=True, parts=[name for name in usable(request.may_use) if name not in without])


def answer_schema(*, dropping: bool = False, parts: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of an answer, derived from the schema of plans.

    The model does not set goal, input and id; the tools' owners set retries, time limits and resources; with
    ``impossible`` a model refuses. ``dropping``: it may also drop steps, with a reason each. ``parts``: the parts of
    the format that it may use. The prompt says what a field means, so the schema does not.
    """
    from saga_engine.plan.schema import plan_schema

    schema = plan_schema()
    defs = {name: _chosen(schema["$defs"][name], kept) for name, kept in _KEPT.items()}
    defs["Step"] = _step_schema(schema["$defs"]["Step"], parts)
    _with_named(defs, schema["$defs"])
    defs["Fallback"] |= {"required": ["tool"]}
    if "Each" in defs and "on_error" not in parts:
        del defs["Each"]["properties"]["on_error"]
    defs = {name: _unsaid(each) for name, each in defs.items()}
    return {
        "type": "object",
        "properties": {
            "steps": _STEPS,
            **({"dropped": _DROPPED} if dropping else {}),
            "impossible": _IMPOSSIBLE,
        },
        "additionalProperties": False,
        "$defs": defs,
    }


def _step_schema(schema: dict[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """A step with the fields of the parts of the format that a model may use."""
    more = tuple(field for name in parts for field in FEATURES[name].fields if not FEATURES[name].of_plan)
    made = _chosen(schema, _KEPT["Step"] + more)
    made["required"] = ["step_id"] if {*words.BUILTINS, *words.names()} & set(more) else ["step_id", "tool"]
    if "irreversible" not in parts:
        kind = made["properties"]["kind"]
        made["properties"]["kind"] = {**kind, "enum": [each for each in kind["enum"] if each != "irreversible"]}
    return made


def _with_named(defs: dict[str, Any], known: Mapping[str, Any]) -> None:
    """Add the definitions that the fields of features refer to."""
    missing = _named(defs) - defs.keys()
    while missing:
        defs |= {name: _chosen(known[name], tuple(known[name]["properties"])) for name in sorted(missing)}
        missing = _named(defs) - defs.keys()


def _named(node: Any) -> set[str]:
    """The definitions that a schema refers to."""
    if isinstance(node, list):
        return set().union(*map(_named, node))
    if not isinstance(node, dict):
        return set()
    own = {node["$ref"].rpartition("/")[2]} if isinstance(node.get("$ref"), str) else set()
    return own.union(*map(_named, node.values()))


def plan_answer_schema(may_use: Sequence[str] = (), *, without: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of an answer to a goal: steps, assumptions, a refusal, or a request for something first."""
    schema = answer_schema(parts=[name for name in usable(may_use) if name not in without])
    more = dict.fromkeys(plan_fields(may_use), _STEPS)
    return {**schema, "properties": {**schema["properties"], **more, **_FIRST}}


def _unsaid(node: Any, *, named: bool = False) -> Any:
    """A schema without its words and without choices that are anything; a field with such a name is no keyword.

    ``named``: the keys are names of fields.
    """
    if isinstance(node, list):
        return [_unsaid(item) for item in node]
    if not isinstance(node, dict):
        return node
    choices = node.get("anyOf")
    if (
        isinstance(choices, list)
        and not named
        and all(set(each) <= _PLAIN or each == {"items": {}, "type": "array"} for each in choices)
    ):
        return {"type": sorted({each["type"] for each in choices})}
    return {
        key: _unsaid(item, named=not named and key in ("properties", "$defs"))
        for key, item in node.items()
        if named
        or not (key in _WORDLESS or (key == "additionalProperties" and item is True) or (key == "items" and item == {}))
    }


def _without_parts(request: PlannerRequest) -> Sequence[str]:
    """Parts of the format that an answer cannot have: another way is a part of a plan."""
    if isinstance(request, PlanRequest):
        return ("each",) if request.on_failure == "replan" else ()
    return ("finally", "each")


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


_STEPS: Final[dict[str, Any]] = {"type": "array", "items": {"$ref": "#/$defs/Step"}}
_IMPOSSIBLE: Final[dict[str, Any]] = {"type": "string"}
_DROPPED: Final[dict[str, Any]] = {"type": "object", "additionalProperties": {"type": "string"}}
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
#: What only a plan's answer may have beside the steps, or in their place.
_FIRST: Final[dict[str, Any]] = {
    "assumptions": _TEXTS,
    "questions": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "question": {"type": "string"}, "options": _TEXTS},
            "required": ["name", "question"],
            "additionalProperties": False,
        },
    },
    "tools": _TEXTS,
    "needs": _TEXTS,
    "reads": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"tool": {"type": "string"}, "params": {"type": "object"}},
            "required": ["tool"],
            "additionalProperties": False,
        },
    },
}
#: Keywords that the schema of an answer leaves out: the prompt says what is meant, and the checks find what is not.
_WORDLESS: Final = frozenset({"description", "title", "minLength", "minimum", "maximum", "minItems", "pattern"})
#: Keywords of a choice that says no more than a type.
_PLAIN: Final = frozenset({"type", "additionalProperties", *_WORDLESS}) - {"items"}
#: Keywords that the checks cover anyway, and that a server which enforces a schema may not support.
_BOUNDS: Final = ("default", "maxItems", "maxLength", "exclusiveMaximum")
#: The fields of the format that a model may fill.
_KEPT: Final[Mapping[str, tuple[str, ...]]] = {
    "Step": ("step_id", "name", "tool", "params", "rollback", "depends_on", "kind", "fallback"),
    "Rollback": ("tool", "params"),
    "Fallback": ("tool", "params", "rollback"),
}
