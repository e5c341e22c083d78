"""No view shows the values of sensitive params: no operator, model, log or trace receives them.

The journal states which params of which tools are sensitive, so a reader needs no tools for that. A call gets the real
value, and the journal holds it: a saga must be able to repeat its calls. Only views are masked. A sensitive param is
replaced as a whole. The same value elsewhere (in an error, in an output, as the input that a binding reads) is replaced
like a secret, in every spelling, if it has ``LEAST_CHARS`` characters or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from saga_engine.core import records as r
from saga_engine.core import views as v
from saga_engine.core.codec import Stored, abridge
from saga_engine.core.effects import FORWARD, ErrorInfo
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import state_at_start
from saga_engine.core.plan_growth import plan_of
from saga_engine.core.questions import OPTIONS
from saga_engine.core.redaction import REDACTED, without_values
from saga_engine.core.scrubbing import Scrubber
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import Proposal
from saga_engine.errors import BindingUnresolved, JournalUnreadable, SagaError
from saga_engine.plan.bindings import Template
from saga_engine.plan.compiled import CompiledStep, Params, Scope, WithoutList
from saga_engine.plan.each import ItemParams

_T = TypeVar("_T", bound=r.AnyRecord)
_Called = TypeVar("_Called", bound=v.CallResult | v.UndoCallResult)

#: A shorter value is only masked in its own place: elsewhere it is too common.
LEAST_CHARS: Final = 4
#: The fields of records that hold what plans, tools and people said; all others are the engine's own.
_SAID: Final = (
    *("params", "undo_params", "plan", "steps", "input", "output", "facts", "items"),
    *("error", "note", "reason", "reasons", "why", "by", "to", "text", "schema", "about"),
    *("before", "after", "found"),
)
#: Images of values (``images``): what their fields are called is sensitive like params.
_IMAGES: Final = frozenset({"before", "after", "found"})
#: The fields of a plan that hold no user values.
_FORM: Final = frozenset(
    {
        "step_id",
        "tool",
        "depends_on",
        "kind",
        "retry",
        "timeout_s",
        "deadline_s",
        "max_tool_calls",
        "max_cost",
        "on_failure",
        "on_error",
    }
)
#: The engine's own answers; any other is an option of the plan's.
_WORDS: Final = frozenset(option for options in OPTIONS.values() for option in options) | {"answer", "ask-again"}
#: The lists of steps in an outlook.
_LISTED: Final = frozenset({"calls", "undoes", "settles", "remains", "elsewhere", "begins"})
#: The records with the output of a step.
_RETURNED: Final = (r.StepSucceeded, r.ChildEnded, r.EffectReused)
#: Hashes of values of which all but a few digits may be known: those can be guessed.
_DIGESTS: Final = ("digest", "call", "fingerprint")


class Mask:
    """What is sensitive in one saga: ``marks``, names of params by tool, and the ``values`` that are known."""

    __slots__ = ("_marks", "_scrubber", "_values")

    def __init__(self, marks: Mapping[str, Iterable[str]], values: Iterable[str] = ()) -> None:
        self._marks = {tool: frozenset(names) for tool, names in marks.items()}
        self._values = set(values)
        self._scrubber: Scrubber | None = None

    def __bool__(self) -> bool:
        return bool(self._marks)

    def learn(self, value: Any) -> None:
        """A value of a sensitive param: its texts and numbers are sensitive."""
        new = {text for text in _leaves(value) if text not in self._values}
        if new:
            self._values |= new
            self._scrubber = None

    def mark(self, marks: Mapping[str, Iterable[str]]) -> None:
        """More params are sensitive."""
        for tool, names in marks.items():
            self._marks[tool] = self._marks.get(tool, frozenset()) | frozenset(names)

    def names(self, *tools: str) -> frozenset[str]:
        """The sensitive params of these tools."""
        return frozenset().union(*(self._marks.get(tool, ()) for tool in tools))

    def texts(self) -> Iterable[str]:
        """The sensitive texts that are known."""
        return sorted(self._values)

    def found(self, value: Any) -> Iterator[str]:
        """The texts in a value that contain something sensitive."""
        for text in dict.fromkeys(_leaves(value)):
            if self.value(text) != text:
                yield text

    def params(self, params: Any, *tools: str) -> Any:
        """Params of a call of one of these tools, or of the undo of one, as views may show them."""
        if not isinstance(params, dict):
            return self.value(params)
        hidden = self.names(*tools)
        return {name: REDACTED if name in hidden else self.value(value) for name, value in params.items()}

    def image(self, image: Any, *tools: str) -> Any:
        """The image of a value that one of these tools changes: fields of sensitive names are hidden at any depth.

        A value without fields may be the very value of a sensitive param, so it is hidden if there is such a param.
        """
        hidden = self.names(*tools)
        if not hidden or not isinstance(image, dict):
            return REDACTED if hidden and image is not None else self.value(image)
        return {
            name: self.value(_without_fields(value, hidden) if name == "value" else value)
            for name, value in image.items()
        }

    def template(self, params: Any, *tools: str) -> Any:
        """The same for params as a plan has them: bindings stay, because they are no values."""
        if not isinstance(params, dict):
            return self.value(params)
        hidden = self.names(*tools)
        return {name: without_values(value) if name in hidden else self.value(value) for name, value in params.items()}

    def value(self, value: Any) -> Any:
        """JSON without the sensitive values that are known."""
        if self._scrubber is None:
            self._scrubber = Scrubber({value: value for value in self._values}, marker=_redacted)
        return self._scrubber.value(value) if self._scrubber else value

    def error(self, error: ErrorInfo) -> ErrorInfo:
        """A masked error."""
        return msgspec.structs.replace(error, **self.said(msgspec.structs.asdict(error)))

    def failure(self, failure: v.Failure) -> v.Failure:
        """Why a saga did not simply complete, masked."""
        return msgspec.structs.replace(failure, **self.said(msgspec.structs.asdict(failure)))

    def planned(self, value: Any, *above: str) -> Any:
        """A plan, or steps, wherever they are in ``value``; an undo also has the sensitive params of its step."""
        if isinstance(value, list):
            # The steps that are rolled back or handed over stand by their ids.
            return [self.planned(item, *above) if isinstance(item, dict) else item for item in value]
        if not isinstance(value, dict):
            return self.value(value)
        tool = value.get("tool")
        tools = (*above, tool) if isinstance(tool, str) else above
        made = dict(value)
        for name in value.keys() - _FORM:
            item = value[name]
            if isinstance(item, list):
                made[name] = [
                    self.planned(each, *tools) if isinstance(each, dict) else self.value(each) for each in item
                ]
            else:
                made[name] = self.template(item, *tools) if name == "params" else self.planned(item, *tools)
        if "steps" in made and made.get("name") != value.get("name"):  # that of a plan has no brackets
            made["name"] = made["name"].replace(REDACTED, "redacted")
        return made

    def body(self, body: dict[str, Any], tools: Sequence[str]) -> dict[str, Any]:
        """A record as plain JSON; ``tools`` are those that its ``params`` may be for."""
        made = dict(body)
        for name, value in body.items():
            if (name in _DIGESTS or name == "hidden") and value and not isinstance(value, dict):  # a place is no digest
                made[name] = [REDACTED] if name == "hidden" else REDACTED
            elif name in _SAID or (name == "options" and body.get("kind") == "ask"):
                made[name] = self._field(name, value, tools)
            elif name == "decision" and value not in _WORDS:
                made[name] = self.value(value)
            elif name == "refs":
                made[name] = {of: self._ref(of, ref, tools) for of, ref in value.items()}
        return made

    def _field(self, name: str, value: Any, tools: Sequence[str]) -> Any:
        if name == "params":
            return self.params(value, *tools)
        if name == "undo_params":
            return self.template(value, *tools)
        if name in _IMAGES:  # the calls that a session's call came after have the same name, and nobody's values
            return value if isinstance(value, list) else self.image(value, *tools)
        if name in ("plan", "steps"):
            return self.planned(value)
        if name == "error":
            return self.said(value)
        return self.value(value)

    def said(self, error: Any) -> Any:
        """An error as plain JSON: its numbers are the engine's own."""
        if not isinstance(error, dict):
            return error
        return {name: self.value(said) if isinstance(said, str) else said for name, said in error.items()}

    def _ref(self, name: str, ref: dict[str, Any], tools: Sequence[str]) -> dict[str, Any]:
        made = dict(ref)
        if "brief" in made:
            made["brief"] = self._field(name, made["brief"], tools)
        if name != "output":
            made["digest"] = REDACTED
        if made.get("summary"):
            made["summary"] = self.value(made["summary"]) if name == "output" else REDACTED
        return made


class Reader:
    """Masks the records of one saga as they are read, in the order of its journal."""

    __slots__ = ("_mask", "_state")

    def __init__(self) -> None:
        self._mask = Mask({})
        self._state: State | None = None

    @property
    def masks(self) -> bool:
        """Whether anything is sensitive so far."""
        return bool(self._mask)

    def feed(self, records: Iterable[r.AnyRecord]) -> None:
        """Learn what is sensitive in these; large values should be restored, else they stay unknown."""
        for record in records:
            self._mask.mark(getattr(record, "sensitive", {}))
            try:
                self._follow(record)
            except SagaError:
                self._state = None  # a damaged journal is shown by its records alone

    def mask(self, record: r.AnyRecord) -> dict[str, Any]:
        """A record as plain JSON, masked."""
        return self._mask.body(plain_of(record), tools_of(self._state, record))

    def masked(self, record: _T) -> _T:
        """The same as a record."""
        return msgspec.convert(self.mask(record), type(record))

    def _follow(self, record: r.AnyRecord) -> None:
        if isinstance(record, r.SagaStarted):
            self._state = state_at_start(record, None)
        elif self._state is not None:
            evolve(self._state, abridge(record))
        if self._state is not None:
            learn(self._mask, self._state, record)


def plain_of(record: r.AnyRecord) -> dict[str, Any]:
    """A record as plain JSON."""
    if isinstance(record, r.SagaStarted):
        record = msgspec.structs.replace(record, plan=plan_of(record))
    body: dict[str, Any] = msgspec.to_builtins(record)
    return body


def is_sensitive(records: Iterable[r.AnyRecord]) -> bool:
    """Whether anything in a journal is."""
    return any(getattr(record, "sensitive", None) for record in records)


def masked_record(mask: Mask, state: State, record: _T) -> _T:
    """A record, masked."""
    return msgspec.convert(mask.body(plain_of(record), tools_of(state, record)), type(record))


def masked_records(records: Sequence[_T], whole: Sequence[r.AnyRecord] | None = None) -> list[_T]:
    """The records of a journal from its start, masked; ``whole``: the same ones with large values restored."""
    if not is_sensitive(records):
        return list(records)
    reader = Reader()
    reader.feed(records if whole is None else whole)
    return [reader.masked(record) for record in records]


def mask_of(state: State) -> Mask | None:
    """The mask of a saga as it stands; None if nothing in it is sensitive."""
    if not state.sensitive:
        return None
    mask = Mask(state.sensitive)
    for step in state.plan.all_steps():
        _learn_step(mask, state, step)
    for at in state.steps:
        if isinstance(at.semantic, Proposal):
            _learn_planned(mask, list(at.semantic.added.addition.steps))
    return mask


def learn(mask: Mask, state: State, record: r.AnyRecord) -> None:
    """Learn from a record that was just folded into ``state``; the first one reveals everything in the plan."""
    if not state.sensitive:
        return
    if isinstance(record, r.SagaStarted | r.StepsAdded | r.QuestionResolved | r.FinallyStarted):
        for step in state.plan.all_steps():
            _learn_step(mask, state, step)
        return
    if isinstance(record, r.CompensationProposed):
        _learn_planned(mask, record.steps)
    index = state.plan.by_key.get(getattr(record, "step", ""), -1)
    if isinstance(record, r.EachExpanded):
        first = state.plan.steps[index].items
        for step in state.plan.steps[first : first + len(record.items)]:
            _learn_step(mask, state, step)
        return
    if index < 0 or not isinstance(record, (r.CallAdded, r.StepIntended, r.StepBegun, r.StepEscalated, *_RETURNED)):
        return
    step = state.plan.steps[index]
    _learn_step(mask, state, step)
    for name in _IMAGES:
        _learn_image(mask, getattr(record, name, None), mask.names(*tools_of(state, record)))
    if isinstance(record, r.StepIntended) and isinstance(record.params, dict):
        _learn_params(mask, record.params, mask.names(*tools_of(state, record)))
    elif isinstance(record, _RETURNED) and getattr(record, "direction", FORWARD) == FORWARD:
        for other in step.dependents:
            if step.key in state.plan.steps[other].params.outputs:
                _learn_step(mask, state, state.plan.steps[other])


def tools_of(state: State | None, record: r.AnyRecord) -> list[str]:
    """The tools whose sensitive params may be among the ``params`` of a record."""
    if isinstance(record, r.CallAdded):
        return [
            record.tool,
            *([] if record.undo is None else [record.undo]),
            *(call["tool"] for call in record.undo_then),
        ]
    index = -1 if state is None else state.plan.by_key.get(getattr(record, "step", ""), -1)
    return [] if state is None or index < 0 else tools_of_step(state.plan.steps[index])


def tools_of_step(step: CompiledStep) -> list[str]:
    """All tools that may be called for a step: a sensitive param of one is sensitive for all."""
    return [call.tool for call in step.calls()]


def _learn_step(mask: Mask, state: State, step: CompiledStep) -> None:
    if step.child is not None:
        for text in state.steps[step.index].hidden if step.index < len(state.steps) else ():
            mask.learn(text)
        _learn_child(mask, step, _AtHand(state))
        return
    names = mask.names(*tools_of_step(step))
    if not names:
        return
    scope = _AtHand(state)
    for call in step.calls():
        _learn_params(mask, _partly(call.params, names, scope), names)
    if step.index >= len(state.steps):
        return
    at = state.steps[step.index]
    for image in (at.before, at.after, at.cleared):
        _learn_image(mask, image, names)
    undo = at.undo
    if undo is not None and isinstance(undo.params, dict):
        _learn_params(mask, undo.params, names)


def _learn_child(mask: Mask, step: CompiledStep, scope: Scope) -> None:
    """What is sensitive to a child: in its plan, and in the input that it gets."""
    child = step.child
    assert child is not None
    inner = _ChildScope({**child.input, **_partly(child.given, frozenset(child.given.raw), scope)})
    for each in child.steps:
        if each.child is not None:
            _learn_child(mask, each, inner)
        names = mask.names(*tools_of_step(each))
        for call in each.calls() if names else ():
            _learn_params(mask, _partly(call.params, names, inner), names)


class _ChildScope(WithoutList):
    """The values that are known of a child before it has run: its input."""

    __slots__ = ("input",)

    saga_id = ""
    end: Mapping[str, Any] = {}

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.input = given

    def output(self, step_key: str) -> Any:
        raise BindingUnresolved(f"step {step_key} of a child", step=step_key)

    params = key = before = output

    def secret(self, name: str) -> str:
        return f"$secret.{name}"


def _partly(params: Params, names: frozenset[str], scope: Scope) -> Mapping[str, Any]:
    """Those of the params that are known now."""
    if isinstance(params, Template | ItemParams):
        return params.partly(names, scope)
    try:
        return params.resolve(scope)
    except (BindingUnresolved, JournalUnreadable):
        return {}


def _learn_params(mask: Mask, params: Mapping[str, Any], names: frozenset[str]) -> None:
    for name in names & params.keys():
        mask.learn(params[name])


def _learn_planned(mask: Mask, value: Any, *above: str) -> None:
    """The literal values in steps that are only proposed."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, Mapping):
            tools = (*above, str(item.get("tool", "")))
            if isinstance(item.get("params"), Mapping):
                _learn_params(mask, item["params"], mask.names(*tools))
            for part in ("rollback", "then", "when_absent", "fallback"):
                _learn_planned(mask, item.get(part), *tools)


class _AtHand(StateScope):
    """A value that was not fetched is none."""

    __slots__ = ()

    def output(self, step_key: str) -> Any:
        self._require(step_key)
        value = super().output(step_key)
        if isinstance(value, Stored):
            raise BindingUnresolved(f"the output of step {step_key} is not at hand", step=step_key)
        return value

    def params(self, step_key: str) -> Any:
        self._require(step_key)
        return super().params(step_key)

    def before(self, step_key: str) -> Any:
        self._require(step_key)
        return super().before(step_key)

    def _require(self, step_key: str) -> None:
        """A step of ``finally`` is none before that has begun, and others may bind it."""
        if step_key not in self._state.plan.by_key:
            raise BindingUnresolved(f"step {step_key} has not begun", step=step_key)


def _without_fields(value: Any, hidden: frozenset[str]) -> Any:
    """What a read has shown without its fields called ``hidden``, and without what has no field."""
    if isinstance(value, dict):
        return {
            name: REDACTED
            if name in hidden
            else _without_fields(item, hidden)
            if isinstance(item, dict | list)
            else item
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_without_fields(item, hidden) for item in value]
    return value if value is None else REDACTED


def _learn_image(mask: Mask, image: Any, names: frozenset[str]) -> None:
    """The same values, which echoes may hold."""
    if names and isinstance(image, dict):
        _learn_fields(mask, image.get("value"), names)


def _learn_fields(mask: Mask, value: Any, names: frozenset[str]) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            if name in names:
                mask.learn(item)
            elif isinstance(item, dict | list):
                _learn_fields(mask, item, names)
    elif isinstance(value, list):
        for item in value:
            _learn_fields(mask, item, names)
    else:
        mask.learn(value)


def _redacted(_: str) -> str:
    return REDACTED


def _leaves(value: Any) -> Iterator[str]:
    """The texts and numbers in a value that are long enough to be looked for; a secret has its own marker."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        if len(text) >= LEAST_CHARS and not text.startswith("$secret.") and text != REDACTED:
            yield text


# --- views of a state ------------------------------------------------------------------------------------------------


def masked_view(state: State, shown: v.SagaView) -> v.SagaView:
    """The object of ``report.view`` without what is sensitive; the very object if nothing is."""
    mask = mask_of(state)
    if mask is None:
        return shown
    pairs = zip(shown.steps, state.plan.steps, strict=True)
    tools = {step.step_id: tools_of_step(step) for step in state.plan.steps}
    return msgspec.structs.replace(
        shown,
        report=msgspec.structs.replace(
            shown.report,
            dropped=[msgspec.structs.replace(each, reason=mask.value(each.reason)) for each in shown.report.dropped],
        ),
        goal=mask.value(shown.goal),
        steps=[_masked_step(mask, each, tools_of_step(step)) for each, step in pairs],
        error=None if shown.error is None else mask.failure(shown.error),
        questions=[_masked_question(mask, each, tools[each.step_id], state) for each in shown.questions],
    )


def _masked_question(mask: Mask, shown: v.QuestionView, tools: Sequence[str], state: State) -> v.QuestionView:
    made: dict[str, Any] = {"error": None if shown.error is None else mask.error(shown.error)}
    given = {name: value for name in shown.__struct_fields__ if (value := getattr(shown, name)) is not UNSET}
    if "params" in given:
        made["params"] = mask.params(shown.params, *tools)
    if "steps" in given:
        made["steps"] = mask.planned(shown.steps)
    made |= {name: mask.image(given[name], *tools) for name in _IMAGES & given.keys()}
    made["outlooks"] = masked_outlooks(mask, shown.outlooks, state.plan.steps)
    made |= {name: mask.value(given[name]) for name in {"why", "text", "schema", "to"} & given.keys()}
    if shown.kind == "ask":
        made["options"] = mask.value(shown.options)
    if "call" in given:
        made["call"] = REDACTED
    return msgspec.structs.replace(shown, **made)


def masked_outlooks(mask: Mask, outlooks: Mapping[str, Any], steps: Sequence[CompiledStep]) -> dict[str, Any]:
    """The params of what an answer would undo, without what is sensitive."""
    tools = {step.step_id: tools_of_step(step) for step in steps}
    return {
        option: {
            **{name: [named(mask, each) for each in of] if name in _LISTED else of for name, of in body.items()},
            **(
                {"undoes": [_masked_params(mask, each, tools[each["step_id"]]) for each in body["undoes"]]}
                if "undoes" in body
                else {}
            ),
        }
        for option, body in outlooks.items()
    }


def _masked_params(mask: Mask, shown: Mapping[str, Any], tools: Sequence[str]) -> dict[str, Any]:
    params = shown.get("params")
    return {**named(mask, shown), "params": None if params is None else mask.params(params, *tools)}


def named(mask: Mask, step: Mapping[str, Any]) -> dict[str, Any]:
    """A step as previews show it: its name is its plan's."""
    return {**step, "name": mask.value(step["name"])} if "name" in step else {**step}


def _masked_step(mask: Mask, shown: _Called, tools: Sequence[str]) -> _Called:
    made: dict[str, Any] = {
        "params": mask.params(shown.params, *tools),
        "error": None if shown.error is None else mask.error(shown.error),
        "shown": mask.value(shown.shown),
    }
    if isinstance(shown, v.CallResult):
        made |= {"name": mask.value(shown.name), "traceback": mask.value(shown.traceback)}
    if isinstance(shown, v.UndoResult | v.StepResult):
        made["unverified_because"] = mask.value(shown.unverified_because)
    if isinstance(shown, v.UndoResult) and shown.calls:
        made["calls"] = [_masked_step(mask, call, tools) for call in shown.calls]
    if isinstance(shown, v.StepResult):
        made |= {name: mask.image(value, *tools) for name in ("before", "after") if (value := getattr(shown, name))}
        made["came"] = [msgspec.convert(mask.value(each.plain()), v.Came) for each in shown.came]
        if shown.compensation is not None:
            made["compensation"] = _masked_step(mask, shown.compensation, tools)
        if shown.waits is not None:
            made["waits"] = msgspec.structs.replace(shown.waits, about=mask.value(shown.waits.about))
    return msgspec.structs.replace(shown, **made)
