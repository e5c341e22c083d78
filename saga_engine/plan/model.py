"""The plan as written: pydantic models of version 1 of the format, and the one way to load it.

Nothing is coerced (``"1"`` is not a number, ``true`` is not 1) and nothing is ignored: an unknown field is a problem.
``docs/plan-format.md`` gives the meaning of the fields. Only this module, ``model_parts`` and
``step_bodies`` import pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from saga_engine.plan import limits, words
from saga_engine.plan.costs import why_no_budget
from saga_engine.plan.effort import spend
from saga_engine.plan.model_parts import Retry, Rollback, StepId, ToolName, UndoCall, UndoCalls
from saga_engine.plan.parser import read_source
from saga_engine.plan.problems import Path as ProblemPath
from saga_engine.plan.problems import Problems
from saga_engine.plan.step_bodies import Ask, Child, Late, Model, Seconds, Values, Wait, finite, listed
from saga_engine.plan.values import cut, digest_of_json, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saga_engine.plan.parser import Source


def _wrapped(value: Any) -> Any:
    if value == []:  # checked here: pydantic would count only the items that remain after it dropped the faulty ones
        raise PydanticCustomError("empty", "expected a fallback, or a list with at least one")
    return (value,) if isinstance(value, dict) else listed(value)


def _one_or_list(schema: dict[str, Any]) -> None:
    # The input of _wrapped: the list, its only item alone, or nothing.
    listed = schema["anyOf"][0]
    listed["minItems"] = 1
    schema["anyOf"].insert(0, listed["items"])


def _word(value: str) -> str:
    if not (value.isprintable() and value == value.strip()):
        raise PydanticCustomError("tag", "a tag is a printable text without spaces at its ends")
    return value


def _budget(value: dict[str, float]) -> dict[str, float]:
    if why := why_no_budget(value):
        raise PydanticCustomError("budget", "{reason}", {"reason": why})
    return value


#: A word by which sagas are found.
Tag = Annotated[str, Field(min_length=1, max_length=limits.MAX_TAG_CHARS), AfterValidator(_word)]
_Conditions = Annotated[list[Any] | dict[str, Any], AfterValidator(finite)]


_M = TypeVar("_M", bound=Model)


class Fallback(Model, frozen=True):
    """What replaces a call that failed permanently: exactly one of ``tool``, ``cached_s`` and ``queue_s``."""

    tool: ToolName | None = Field(None, description="Another tool to call instead.")
    params: Values | None = Field(None, description="The params of that call. Default: the params of the step.")
    rollback: Rollback | None = Field(None, description="The undo of that call. Default: its tool's registered undo.")
    retry: Retry | None = Field(None, description="How often and how fast that call is retried.")
    timeout_s: Seconds | None = Field(None, description="The longest time for one attempt of that call, in seconds.")
    cached_s: Seconds | None = Field(
        None, description="For a read: use its last good result, if it is at most so many seconds old."
    )
    queue_s: Seconds | None = Field(
        None,
        description="Defer the step, notify operators, and try again every so many seconds. Put it last.",
    )


class Each(Model, frozen=True):
    """A list: the step is called once for each of its items."""

    of: Annotated[Any, AfterValidator(finite)] = Field(
        description="The list: a binding such as '$output.step_1.items', or a list with bindings."
    )
    parallel: Annotated[int, Field(ge=1, le=limits.MAX_PARALLEL)] = Field(
        1, description="How many items may run at a time. Default: one after the other."
    )
    on_error: Literal["stop", "collect"] = Field(
        "stop",
        description=(
            "What the failure of an item causes. stop: what on_failure says. collect: the other items go on, and the "
            "output is an object with 'outputs' and 'failed'."
        ),
    )
    when: _Conditions | None = Field(
        None, description="Conditions on '$item'. The items for which they do not hold are left out."
    )


#: Fields that belong to a call of a tool alone.
OF_CALLS: Final = ("params", "rollback", "kind", "retry", "timeout_s", "resource", "fallback", "each")


def _without_tool(schema: dict[str, Any]) -> None:
    schema["properties"]["tool"].pop("default", None)
    brought = {name: words.word(name) for name in words.shipped()}
    schema["properties"] |= {name: {**word.schema, "description": word.about} for name, word in brought.items()}
    schema["oneOf"] = [{"required": [word]} for word in ("tool", *words.BUILTINS, *brought)]
    schema["additionalProperties"] = False


def _brought(name: str, info: ValidationInfo) -> str:
    if not (info.context is RECORDED or words.known(name)):
        raise PydanticCustomError("extra_forbidden", "Extra inputs are not permitted")
    return name


#: The context in which a step's word need not be known here: that of a plan that was checked when it was recorded.
RECORDED: Final = {"recorded": True}


class Step(Model, frozen=True, extra="allow", json_schema_extra=_without_tool):
    """One call of a tool, or a built-in step."""

    #: The words that are brought (``words``), and their bodies.
    __pydantic_extra__: dict[Annotated[str, AfterValidator(_brought)], Annotated[Any, AfterValidator(finite)]]

    step_id: StepId = Field(
        description="A whole number from 0, or a text of letters, digits, '_' and '-'; unique in the plan."
    )
    name: Annotated[str, Field(max_length=limits.MAX_NAME_CHARS)] | None = Field(
        None, description="The name of the step for people. Default: the tool's name."
    )
    tool: ToolName = Field("", description="The name of the tool to call.")
    ask: Ask | None = Field(None, description="In place of a tool: ask a person. The answer is the step's output.")
    compute: Values | None = Field(
        None,
        description=(
            "In place of a tool: an exact computation, such as {'multiply': ['$output.step_1.price', 2]}. Its result "
            "is the step's output."
        ),
    )
    saga: Child | None = Field(
        None, description="In place of a tool: run another saga. Its outputs are the step's output."
    )
    wait: Wait | None = Field(None, description="In place of a tool: wait for an event from outside.")
    params: Values = Field(
        default_factory=dict,
        description=(
            "The params of the call. A text such as '$output.step_1.order_id' is replaced by the value that the step "
            "returned. Inside a longer text it stands in braces: 'order {$output.step_1.order_id}'."
        ),
    )
    rollback: Rollback | None = Field(
        None,
        description=(
            "The call that undoes the step; for a 'wait', what undoes the event that came. Default: its tool's "
            "registered undo."
        ),
    )
    depends_on: Annotated[tuple[StepId, ...], BeforeValidator(listed)] | None = Field(
        None, description="Ids of the steps to wait for. Default: the step before it in the list."
    )
    kind: Literal["compensatable", "irreversible", "pivot", "retriable", "read"] | None = Field(
        None,
        description=(
            "compensatable: it can be undone (the default). irreversible: it cannot be undone, and its effect remains "
            "if the rest is undone. pivot: the point of no return. retriable: after the pivot, never undone. "
            "read: it changes nothing."
        ),
    )
    when: _Conditions | None = Field(
        None,
        description=(
            "Conditions. Unless all hold, the step is skipped, and what depends on it goes on. Example: "
            "[{'value': '$output.step_1.total', 'op': '>', 'to': 100}]."
        ),
    )
    each: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS + 200)] | Each | None = Field(
        None,
        description=(
            "A list, such as '$output.step_1.items': the tool is called once for each item, which '$item' and '$index' "
            "bind. The output is the list of outputs. Or an object with 'of', 'parallel', 'on_error' and 'when'."
        ),
    )
    on_error: Literal["fail", "continue"] | None = Field(
        None, description="What the step's failure causes. fail: what on_failure says. continue: the saga goes on."
    )
    failed_when: _Conditions | None = Field(
        None, description="Conditions on the output. If all hold, the step failed: its effect is undone like any other."
    )
    retry: Retry | None = Field(None, description="How often and how fast the call is retried.")
    timeout_s: Seconds | None = Field(None, description="The longest time for one attempt, in seconds.")
    resource: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS)] | None = Field(
        None,
        description="The key of what the call changes, such as 'user:{$input.user}'. Calls with it run one at a time.",
    )
    expect: Literal["$before"] | None = Field(
        None,
        description=(
            "'$before': the call is made only if the value that its tool changes is still what this saga last read."
        ),
    )
    fallback: (
        Annotated[tuple[Fallback, ...], Field(max_length=limits.MAX_FALLBACKS), BeforeValidator(_wrapped)] | None
    ) = Field(
        None,
        description="What replaces the call if it fails permanently: one fallback, or several in order.",
        json_schema_extra=_one_or_list,
    )

    @property
    def key(self) -> str:
        """The id as text."""
        return str(self.step_id)

    def calls(self) -> Iterator[tuple[ProblemPath, Step | UndoCall | Fallback | Late]]:
        """Every call that is written for the step, its own first, with its path inside the step."""
        servings: list[tuple[ProblemPath, Step | Fallback]] = [((), self)]
        servings += [(("fallback", number), each) for number, each in enumerate(self.fallback or ())]
        for path, serving in servings:
            yield path, serving
            if serving.rollback is not None:
                yield from serving.rollback.written((*path, "rollback"))
        if self.wait is not None and self.wait.on_late is not None:
            yield ("wait", "on_late"), self.wait.on_late

    @property
    def title(self) -> str:
        """The step's name for people: its own name, or its tool's, or the word of the built-in step."""
        return self.name or self.tool or self.builtin

    @property
    def builtin(self) -> str:
        """The word of a built-in step; empty for a call of a tool."""
        brought = (word for word, body in (self.__pydantic_extra__ or {}).items() if body is not None)
        return next((word for word in words.BUILTINS if getattr(self, word) is not None), "") or next(brought, "")

    @property
    def body(self) -> Any:
        """What is written under the word of a built-in step."""
        given = getattr(self, self.builtin)
        return given.model_dump(exclude_unset=True, exclude={"on_late"}) if isinstance(given, Model) else given


class Plan(Model, frozen=True):
    """A saga plan, version 1: either every step completes, or every step is undone."""

    task_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] | None = Field(
        None,
        description="The saga's id: letters, digits, '.', '_' and '-', at most 128. Default: a new id.",
    )
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] | None = Field(
        None, description="The name of the plan, which all its sagas share: letters, digits, '.', '_' and '-'."
    )
    tags: Annotated[tuple[Tag, ...], Field(max_length=limits.MAX_TAGS), BeforeValidator(listed)] = Field(
        (), description="Words by which its sagas are found, such as 'customer:42'."
    )
    goal: Annotated[str, Field(max_length=limits.MAX_GOAL_CHARS)] = Field(
        "", description="The purpose of the plan, in a sentence."
    )
    input: Values = Field(default_factory=dict, description="Values that params bind as '$input.name'.")
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=limits.MAX_STEPS), BeforeValidator(listed)] = (
        Field(description="The steps, in order.")
    )
    finally_: Annotated[tuple[Step, ...], Field(max_length=limits.MAX_FINALLY), BeforeValidator(listed)] = Field(
        (),
        alias="finally",
        description=(
            "Steps that run at the end, whether the saga completed or was undone; '$end.status' says which. They are "
            "never undone, and their failure does not change the end."
        ),
    )
    assumptions: Annotated[
        tuple[Annotated[str, Field(max_length=limits.MAX_ASSUMPTION_CHARS)], ...],
        Field(max_length=limits.MAX_ASSUMPTIONS),
        BeforeValidator(listed),
    ] = Field((), description="What the author took for granted, for the people who read the plan.")
    deadline_s: Seconds | None = Field(None, description="The longest time for the whole saga, in seconds.")
    max_tool_calls: Annotated[int, Field(ge=1, le=limits.MAX_CALLS)] | None = Field(
        None, description="The maximum number of tool calls of the saga, counting each attempt."
    )
    max_cost: Annotated[dict[str, float], AfterValidator(_budget)] | None = Field(
        None, description="How much the saga's calls may cost together, by unit: {'usd': 5.0, 'tokens': 200000}."
    )
    on_failure: Literal["compensate", "pause", "replan"] = Field(
        "compensate",
        description=(
            "What a failure causes. compensate: undo everything. pause: stop and ask an operator. "
            "replan: ask the planner for another way, and undo everything if there is none."
        ),
    )

    @cached_property
    def json_bytes(self) -> bytes:
        """The plan as compact JSON, with the fields that were given and in their order."""
        return msgspec.json.encode(self.model_dump(exclude_unset=True))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, in hex; independent of the order of keys."""
        return digest_of_json(self.json_bytes)


_NESTED: dict[str, type[Model]] = {
    "rollback": Rollback,
    "then": UndoCall,
    "when_absent": UndoCalls,
    "retry": Retry,
    "fallback": Fallback,
    "ask": Ask,
    "saga": Child,
    "wait": Wait,
    "each": Each,
}
#: Replacements for pydantic's messages: by field, then by pydantic's type of error.
_EXPECTED = {
    "step_id": "a step id is a whole number from 0, or 1 to 64 letters, digits, '_' and '-'",
    "each": "each is a binding to a list, or an object with 'of'",
    "rollback": "a rollback is an object; the calls that follow its first one are its 'then'",
    "depends_on": "depends_on is a list of step ids",
    "task_id": "a saga id is a letter or digit, then letters, digits, '.', '_' and '-', at most 128 characters",
    "too_short": "a plan needs at least one step",
    "tuple_type": "expected a list",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "string_type": "expected a text",
    "bool_type": "expected true or false",
}
# Replaces the steps while the rest of a plan with faulty steps is checked.
_ANY_STEP = Step(step_id=0, tool="any")


def load_plan(source: Plan | Source, *, session: bool = False, recorded: bool = False) -> Plan:
    """The plan from a dict, JSON text or bytes, or a file (a ``str`` is JSON if it starts with ``{``).

    Only the form is checked here; :func:`saga_engine.plan.checks.check_plan` checks the meaning. A ``session`` begins
    without steps. A ``recorded`` one was checked before: what brought its words need not be installed here. Raises
    ``PlanInvalid`` with all problems of the form.
    """
    return source if isinstance(source, Plan) else load_json(read_source(source), session=session, recorded=recorded)


def load_json(data: dict[str, Any], *, session: bool = False, recorded: bool = False) -> Plan:
    """``load_plan`` of what has just been decoded, and whose bounds hold."""
    if session and data.get("steps") == []:
        return load_json({**data, "steps": [{"step_id": 0, "tool": "any"}]}, recorded=recorded).model_copy(
            update={"steps": ()}
        )
    problems = Problems()
    last = data.get("finally")
    if isinstance(last, list) and len(last) <= limits.MAX_FINALLY:
        made = [_step(step, ("finally", index), problems, recorded=recorded) for index, step in enumerate(last)]
        data = {**data, "finally": tuple(step for step in made if step is not None)}
    given = data.get("steps")
    steps: tuple[Step, ...] | None = None
    if isinstance(given, list) and len(given) > limits.MAX_STEPS:
        message = f"the plan has {len(given)} steps, but only {limits.MAX_STEPS} are allowed"
        problems.add("limit-steps", ("steps",), message, "split it into several sagas")
        steps = (_ANY_STEP,)
    elif isinstance(given, list) and given:
        made = [_step(step, ("steps", index), problems, recorded=recorded) for index, step in enumerate(given)]
        steps = tuple(step for step in made if step is not None) or (_ANY_STEP,)
    plan = _validated(Plan, data if steps is None else {**data, "steps": steps}, (), problems)
    if plan is None or problems:
        problems.refuse()
    return plan


def load_step(data: Any, path: ProblemPath) -> Step:
    """One step of a recorded plan. Raises ``PlanInvalid``."""
    problems = Problems()
    step = _step(data, path, problems, recorded=True)
    if step is None or problems:
        problems.refuse()
    return step


def form_of(word: str, body: Any, problems: Problems) -> dict[str, Any] | None:
    """The body of a built-in step, or ``None`` and the problems of its form."""
    made = _validated(_NESTED[word], body, (word,), problems)
    return None if made is None else plain(made.model_dump(exclude_unset=True))


def _step(data: Any, path: ProblemPath, problems: Problems, *, recorded: bool = False) -> Step | None:
    """A step calls a tool, or is one built-in step; the fields of calls belong to calls."""
    spend()
    if isinstance(data, dict) and len(data) <= limits.MAX_FIELDS:
        bodies = bodies_of(data, recorded=recorded)
        if not bodies and "tool" not in data:
            known = ", ".join((*words.BUILTINS, *words.names()))
            hint = f"{Step.model_fields['tool'].description} A step without a tool has one of: {known}"
            problems.add("field-missing", (*path, "tool"), "'tool' is missing", hint)
        elif len(bodies) > 1:
            message = f"a step has exactly one of {', '.join(bodies)}"
            problems.add("builtin-invalid", (*path, bodies[1]), message, "make several steps of it")
        elif bodies != ["tool"]:
            allowed = ("rollback",) if bodies == ["wait"] else ()  # of the event that came
            for field in [field for field in OF_CALLS if bodies and field in data and field not in allowed]:
                message = f"'{field}' belongs to a call of a tool, and a step with '{bodies[0]}' makes none"
                problems.add("builtin-invalid", (*path, field), message, "remove it")
        if isinstance(data.get("each"), dict):  # one of two forms: pydantic would report the faults of both
            data = {**data, "each": _validated(Each, data["each"], (*path, "each"), problems)}
    return _validated(Step, data, path, problems, recorded=recorded)


def bodies_of(step: Mapping[str, Any], *, recorded: bool = False) -> list[str]:
    """What a step has of which it may have one: ``tool``, and words. ``recorded``: unknown fields are words, too."""
    found = [word for word in ("tool", *words.BUILTINS) if step.get(word) is not None]
    if step.keys() <= Step.model_fields.keys():
        return found
    others = [name for name in step if name not in Step.model_fields and step[name] is not None]
    return found + [name for name in others if recorded or words.known(name)]


def _validated(
    kind: type[_M], data: Any, path: ProblemPath, problems: Problems, *, recorded: bool = False
) -> _M | None:
    """One object of the format, or ``None`` and its problems."""
    if _oversized(data, path, problems):
        return None
    try:
        return kind.model_validate(data, context=RECORDED if recorded else None)
    except ValidationError as error:
        if problems.full():
            problems.skip(error.error_count())
        else:
            _translate(kind, data, path, error, problems)
    return None


#: What other formats call a list, and its parts.
_LIST: Final = frozenset({"foreach", "loop", "withitems", "items", "map", "repeat", "iterate", "over", "in", "list"})
_ITEM: Final = frozenset({"as", "var", "variable", "item", "itemname", "itemvar"})


def other_name(owner: type[BaseModel], field: str) -> str:
    """A hint for a field of a list that has another name here; empty if it is not known."""
    word = field.lower().replace("_", "").replace("-", "")
    if owner is Step and word in _LIST:
        return 'for one call for each item of a list write "each": "$output.step_1.items", and "$item" in the params'
    if owner is Each and word in _LIST:
        return "the list is the field 'of'"
    if owner is Each and word in _ITEM:
        return "remove it: the item is always '$item', and its position '$index'"
    return ""


def oversized(data: Any) -> bool:
    """Whether an object has so many fields, or names so many steps, that it is refused unchecked."""
    return _oversized(data, (), Problems())


def _oversized(data: Any, path: ProblemPath, problems: Problems) -> bool:
    """Refuse an object with so many faults that pydantic's report of them would itself exhaust the process."""
    if not isinstance(data, dict):
        return False
    found = len(data) > limits.MAX_FIELDS
    if found:
        problems.add("field-unknown", path, f"the object has {len(data)} fields", "remove the unknown ones")
    waits = data.get("depends_on")
    if isinstance(waits, list) and len(waits) > limits.MAX_STEPS:
        message = f"it names {len(waits)} steps, but a plan has at most {limits.MAX_STEPS}"
        problems.add("limit-steps", (*path, "depends_on"), message, "name each step once")
        found = True
    for name in data.keys() & _NESTED.keys():
        below = data[name]
        for index, each in enumerate(below[: limits.MAX_FALLBACKS] if isinstance(below, list) else ()):
            found = _oversized(each, (*path, name, index), problems) or found
        found = _oversized(below, (*path, name), problems) or found
    return found


def _translate(kind: type[Model], data: Any, path: ProblemPath, error: ValidationError, problems: Problems) -> None:
    """Pydantic's findings as problems of the plan, one for each place."""
    seen: set[ProblemPath] = set()
    for detail in error.errors(include_url=False):
        inner = place_of(data, detail)
        if inner not in seen:
            seen.add(inner)
            _add(kind, path, inner, detail, problems)


def place_of(data: Any, detail: ErrorDetails) -> ProblemPath:
    """The place of a pydantic finding in the data: pydantic's own path also has the branches of unions in it."""
    place: list[str | int] = []
    for part in detail["loc"]:
        if part == 0 and isinstance(data, dict):
            continue  # one object where a list is also allowed
        if isinstance(data, dict):
            known = part in data
        else:
            known = isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        if known:
            data = data[part]
        elif detail["type"] != "missing":
            break
        place.append(part)
    return tuple(place)


#: The names that other formats have for a field, where no likeness leads to it.
_MEANT: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    Plan: {"id": "task_id", "tasks": "steps", "timeout": "deadline_s", "timeout_s": "deadline_s"},
    Step: {
        "id": "step_id",
        **dict.fromkeys(("args", "arguments", "parameters", "input"), "params"),
        **dict.fromkeys(("needs", "after", "requires"), "depends_on"),
        **dict.fromkeys(("function", "action", "tool_name"), "tool"),
        **dict.fromkeys(("undo", "compensate", "compensation"), "rollback"),
    },
}


def _add(kind: type[Model], path: ProblemPath, inner: ProblemPath, detail: ErrorDetails, problems: Problems) -> None:
    where = (*path, *inner)
    owner = kind
    for part in inner[:-1]:
        owner = _NESTED.get(str(part), owner)
    fields = {field.alias or name: field for name, field in owner.model_fields.items()}
    names = [*fields, *(words.names() if owner is Step else ())]
    name = next((str(part) for part in reversed(inner) if part in fields), "")
    about = (fields[name].description or "") if name else ""
    given = detail.get("input")
    if detail["type"] == "missing":
        problems.add("field-missing", where, f"'{name}' is missing", about)
    elif detail["type"] == "extra_forbidden":
        field = str(inner[-1])
        meant = _MEANT.get(owner, {}).get(field.lower())
        near = f"did you mean '{meant}'?" if meant else other_name(owner, field) or problems.did_you_mean(field, names)
        near = near or f"known fields: {', '.join(names)}"
        problems.add("field-unknown", where, f"unknown field {cut(field, 64)}", near)
    elif not inner:
        problems.add("field-invalid", where, f"a {kind.__name__.lower()} is an object, not {cut(given, 60)}")
    else:
        message = detail["msg"][:1].lower() + detail["msg"][1:]
        expected = _EXPECTED.get(name) or _EXPECTED.get(detail["type"]) or message
        problems.add("field-invalid", where, f"{expected}; got {cut(given, 60)}", about)
