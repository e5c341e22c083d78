"""Finds questions, waits and conditions that decide nothing, or without anybody: legal, never meant well.

A person who writes a plan may have a reason. Of a model's plan these are problems: those who are asked believe that
their answer counts, and those who read the plan believe that a condition can go either way.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import Problem
from saga_engine.plan import graph, jsonpath, schema_types
from saga_engine.plan.comparisons import COMPARISONS, ComparisonInvalid, predicate
from saga_engine.plan.compiler import checked_draft
from saga_engine.plan.effort import spend
from saga_engine.plan.notices import is_notice
from saga_engine.plan.values import cut, json_path

if TYPE_CHECKING:
    from saga_engine.plan.bindings import Place
    from saga_engine.plan.compiled import CompiledStep
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.model import Plan, Step
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolCatalog

UNUSED: Final = "ask-unused"
CONSTANT: Final = "condition-constant"
ENDLESS: Final = "wait-endless"
YES: Final = "timeout-means-yes"
ALIKE: Final = "options-alike"
SECRET: Final = "ask-for-secret"  # noqa: S105 - a rule, no secret

#: Words that agree, in the languages of goals that are common; a text agrees if one is its first word.
_AGREES: Final = frozenset(
    {"yes", "y", "ok", "okay", "approve", "approved", "accept", "accepted", "agree", "agreed", "confirm", "confirmed",
     "allow", "allowed", "go", "proceed", "continue", "true", "paid", "sure", "grant", "granted", "release", "send",
     "ja", "genehmigen", "genehmigt", "freigeben", "freigegeben", "zustimmen", "bestätigen", "einverstanden", "weiter",
     "oui", "si", "sí", "是", "同意", "批准", "确认", "允许", "好", "好的", "可以"}
)  # fmt: skip
#: What nobody should type into an answer, which is journalled and shown.
_SECRETS: Final = re.compile(
    r"pass ?(?:word|phrase|wort|code)|kennwort|\bpins?\b|\bcvv2?\b|\bcvc2?\b|\btans?\b|\botp\b|secret|credential"
    r"|api[ _-]?key|zugangsdaten|private[ _-]?key|seed phrase|(?:access|auth|bearer|login)[ _-]?token|one-time code"
    r"|security (?:code|answer)|card number|kartennummer|social security number|密码|口令|验证码|密钥|卡号",
    re.IGNORECASE,
)
_BINDS: Final = re.compile(r"\$(?:output|input|item|index|before|end|saga|key|secret)(?!\w)")
_OUTPUT: Final = re.compile(r"\$output\.step_([A-Za-z0-9_-]{1,64})(?![A-Za-z0-9_-])(.*)\Z", re.DOTALL)
_WORDS: Final = re.compile(r"\w+")
_NEAR: Final = 0.85
#: Options of which each is compared with each; the letters of one, and of a word.
_MOST_COMPARED: Final = 20
_COMPARED_CHARS: Final = 200
_WORD_CHARS: Final = 40
#: Letters of other alphabets, by their numbers, and the Latin ones that they look like.
_LOOKS: Final = {
    0x430: "a", 0x435: "e", 0x43E: "o", 0x440: "p", 0x441: "c", 0x443: "y", 0x445: "x", 0x456: "i", 0x458: "j",
    0x455: "s", 0x501: "d", 0x3BF: "o", 0x3B1: "a", 0x406: "I", 0x41E: "O", 0x410: "A", 0x415: "E", 0x420: "P",
    0x421: "C", 0x422: "T", 0x425: "X", 0x30: "o",
}  # fmt: skip


def misuses(plan: Plan, catalog: ToolCatalog | None) -> list[Problem]:
    """The questions, waits and conditions of a plan that do not do what they seem to."""
    made = checked_draft(plan, catalog)
    found: list[Problem] = []
    for index, step in enumerate(plan.steps):
        spend()
        found += _conditions(made, index, step)
        if step.ask is not None:
            found += _ask(made, index, step)
        if step.wait is not None:
            found += _wait(made, index, step)
    return found


# --- conditions ------------------------------------------------------------------------------------------------------


def comparisons(raw: Any, path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every comparison of a condition, with its place."""
    if isinstance(raw, list):
        for at, each in enumerate(raw):
            yield from comparisons(each, (*path, at))
    elif isinstance(raw, Mapping) and "op" in raw:
        yield path, raw
    elif isinstance(raw, Mapping):
        for name in ("any", "all", "not"):
            if name in raw:
                yield from comparisons(raw[name], (*path, name))


def conditions_in(step: Step) -> Iterator[tuple[Path, Any]]:
    """Every condition of a step, as written, with its place in the step."""
    if step.when is not None:
        yield ("when",), step.when
    if step.failed_when is not None:
        yield ("failed_when",), step.failed_when
    if getattr(step.each, "when", None) is not None:
        yield ("each", "when"), step.each.when  # type: ignore[union-attr]
    yield from _in_expression(step.compute, ("compute",))
    yield from _in_expression(step.params, ("params",))


def _in_expression(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """The conditions of a computation: those of ``if`` and ``where``."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name in {"if", "where"} and isinstance(inner, list | Mapping):
                yield (*path, name), inner
            else:
                yield from _in_expression(inner, (*path, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _in_expression(inner, (*path, at))


def _conditions(made: Draft, index: int, step: Step) -> Iterator[Problem]:
    for inner, raw in conditions_in(step):
        for path, each in comparisons(raw, inner):
            why = _why_constant(made, each)
            if why:
                message = f"the condition {cut(dict(each), 120)} {why}, so it decides nothing"
                hint = "compare what a step returns or the input has with the value that it can have; else leave it out"
                yield Problem(CONSTANT, json_path(("steps", index, *path)), message, hint)


def _why_constant(made: Draft, each: Mapping[str, Any]) -> str:
    value, op, to = each.get("value"), each.get("op"), each.get("to")
    if not _BINDS.search(repr(value)) and not _BINDS.search(repr(to)):
        return "binds nothing"
    if op in COMPARISONS and value == to:
        return "compares a value with itself"
    choices = _choices(made, value)
    if op not in COMPARISONS or not choices or _BINDS.search(repr(to)):
        return ""
    try:
        truths = {predicate(str(op), to)(choice) for choice in choices}
    except ComparisonInvalid:
        return ""
    if len(truths) != 1 or not isinstance(truth := truths.pop(), bool):
        return ""
    shown = ", ".join(cut(choice, 40) for choice in choices[:8])
    return f"is {'true' if truth else 'false'} for every value that there can be ({shown})"


def _choices(made: Draft, value: Any) -> Sequence[Any]:
    """The few values that a binding can have; empty: many, or it is not known."""
    found = _OUTPUT.match(value) if isinstance(value, str) else None
    step = None if found is None else made.by_key.get(found[1], made.by_key.get(f"step_{found[1]}"))
    if found is None or step is None or step in made.each:
        return ()
    spec = made.steps[step].spec
    tail = jsonpath.parse(found[2]) if found[2] else jsonpath.Tail("")
    if spec is None or spec.output_schema is None or isinstance(tail, jsonpath.TailFault) or tail.selectors:
        return ()
    node = schema_types.locate(spec.output_schema, tail.path)
    if not isinstance(node, Mapping):
        return ()
    if isinstance(node.get("enum"), list):
        return list(node["enum"])
    return [True, False] if node.get("type") == "boolean" else ()


# --- what an answer decides ------------------------------------------------------------------------------------------


def truth_with(raw: Any, key: str, output: Any) -> bool | None:
    """Whether a condition holds if the step ``key`` has this output; None: that does not decide it."""
    if isinstance(raw, list):
        return _all([truth_with(each, key, output) for each in raw])
    if not isinstance(raw, Mapping):
        return None
    if "not" in raw:
        inner = truth_with(raw["not"], key, output)
        return None if inner is None else not inner
    if isinstance(raw.get("all"), list):
        return _all([truth_with(each, key, output) for each in raw["all"]])
    if isinstance(raw.get("any"), list):
        found = _all([_opposite(truth_with(each, key, output)) for each in raw["any"]])
        return _opposite(found)
    found_at = _OUTPUT.match(raw["value"]) if isinstance(raw.get("value"), str) else None
    if found_at is None or found_at[1] != key or raw.get("op") not in COMPARISONS or _BINDS.search(repr(raw.get("to"))):
        return None
    tail = jsonpath.parse(found_at[2]) if found_at[2] else jsonpath.Tail("")
    try:
        value = output if isinstance(tail, jsonpath.TailFault) else jsonpath.find(output, tail)
        truth = predicate(str(raw["op"]), raw.get("to"))(value)
    except (jsonpath.Mismatch, ComparisonInvalid):
        return None
    return truth if isinstance(truth, bool) else None


def _all(truths: Sequence[bool | None]) -> bool | None:
    return False if False in truths else None if None in truths else True


def _opposite(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def decided(plan: Plan, key: str, output: Any) -> tuple[list[str], list[str], bool]:
    """What follows if the step ``key`` has this output: steps that run, steps that do not, and whether it fails."""
    runs: list[str] = []
    skipped: list[str] = []
    fails = False
    for step in plan.steps:
        if step.key == key and step.failed_when is not None:
            fails = truth_with(step.failed_when, key, output) is True
        truth = None if step.when is None or step.key == key else truth_with(step.when, key, output)
        if truth is not None:
            (runs if truth else skipped).append(step.key)
    return runs, skipped, fails


# --- questions -------------------------------------------------------------------------------------------------------


def _uses(made: Draft, key: str) -> list[tuple[Place, bool]]:
    """The bindings of a step's output, each with whether it decides something: all but words in a message do."""
    found: list[tuple[Place, bool]] = []
    for index, some in made.bound.items():
        for template, spec, _, _ in some:
            told = made.steps[index].spec if spec is None else spec
            says = told is not None and not made.steps[index].builtin and is_notice(told)
            for place in template.places:
                if place.source == "output" and place.step == key:
                    condition = bool({"when", "failed_when"} & set(place.path))
                    found.append((place, condition or not (place.embedded and says)))
    for each in made.each.values():
        found += [(place, True) for place in each.of.places if place.source == "output" and place.step == key]
    return found


def _ask(made: Draft, index: int, step: Step) -> Iterator[Problem]:
    assert step.ask is not None
    path = ("steps", index, "ask")
    options = step.ask.options if isinstance(step.ask.options, tuple) else ()
    answers = [
        (place, decides) for place, decides in _uses(made, step.key)
        if place.tail is None or not place.tail.path or place.tail.path[0] == "answer"
    ]  # fmt: skip
    counts = any(decides for _, decides in answers) or (answers and not options)
    # A question at the end, whose answer is a result of the plan, decides nothing and need not.
    asks_leave = any(agrees(option) for option in options)
    last = not any(each.kind != "read" for each in _after(made, index))
    if not counts and (asks_leave or not (last or len(options) == 1)):
        message = f"nothing depends on the answer to step {step.key}: the plan goes on the same whatever is said"
        hint = (
            f'let a step have a condition on it: "when": [{{"value": "$output.step_{step.key}.answer", "op": '
            '"==", "to": "…"}]; before a pivot, let the question fail: "failed_when" on its own answer'
        )
        yield Problem(UNUSED, json_path(path), message, hint)
    elif options and all(agrees(option) for option in options):
        message = f"every option of step {step.key} agrees: {', '.join(options)[:200]}"
        yield Problem(ALIKE, json_path((*path, "options")), message, "give an option that refuses, and let it count")
    for one, other in _alike(options):
        message = f"the options {cut(one, 80)} and {cut(other, 80)} look alike"
        yield Problem(ALIKE, json_path((*path, "options")), message, "give options that nobody confuses")
    text = f"{step.ask.question} {_names(step.ask.answer_schema)}"
    if not options and _SECRETS.search(text):
        message = f"step {step.key} asks for a secret, and its answer is journalled and shown"
        hint = "let a tool have the secret: bind $secret.NAME in its params"
        yield Problem(SECRET, json_path((*path, "question")), message, hint)
    yield from _timeout_of_ask(made.plan, step, options, (*path, "on_timeout"))


def _after(made: Draft, index: int) -> list[CompiledStep]:
    """The steps that may run after this one."""
    before = graph.reach(index, [step.deps for step in made.steps])
    return [step for step in made.steps if step.index != index and step.index not in before]


def _timeout_of_ask(plan: Plan, step: Step, options: Sequence[str], path: Path) -> Iterator[Problem]:
    assert step.ask is not None
    then = step.ask.on_timeout
    if isinstance(then, str):
        if then == "continue" and not any(_names_step(raw, step.key) for raw in _all_conditions(plan)):
            message = f"if nobody answers step {step.key}, the plan goes on as if somebody had agreed"
            yield Problem(YES, json_path(path), message, "leave on_timeout out: then the step fails")
        return
    meant = agrees(then.value)
    runs, _, fails = decided(plan, step.key, {"answer": then.value})
    for option in options:
        other_runs, _, other_fails = decided(plan, step.key, {"answer": option})
        meant = meant or (other_fails and not fails) or set(other_runs) < set(runs)
    if meant:
        message = f"if nobody answers step {step.key}, {cut(then.value, 80)} counts, which agrees to something"
        hint = "let silence refuse: give the option that does the least, or leave on_timeout out"
        yield Problem(YES, json_path(path), message, hint)


def _all_conditions(plan: Plan) -> Iterator[Any]:
    for step in plan.steps:
        yield from (raw for _, raw in conditions_in(step))


def _names_step(raw: Any, key: str) -> bool:
    return re.search(rf"\$output\.step_{re.escape(key)}(?![A-Za-z0-9_-])", repr(raw)) is not None


def agrees(value: Any) -> bool:
    """Whether a value says yes: true, a word that agrees, or a text that begins with one."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        return any(agrees(inner) for inner in value.values())
    if not isinstance(value, str):
        return False
    found = _WORDS.findall(value.casefold())
    refuses = {"not", "no", "nicht", "nein", "kein", "don", "without", "later"} & set(found)
    return bool(found) and not refuses and (found[0] in _AGREES or value.strip() in _AGREES)


def _alike(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options that differ by signs, by letters that look the same, or by a letter or two in their words.

    Each is named once, with the first one that it resembles. Of many options, or long ones, only those are found whose
    difference is not a letter: nobody reads them closely, and each pair costs as much as its texts are long.
    """
    seen: dict[str, str] = {}
    close: list[tuple[list[str], str]] = []
    for option in options:
        spend()
        words = _WORDS.findall(unicodedata.normalize("NFKC", option).translate(_LOOKS).casefold())
        text = "".join(words)
        if text in seen:
            yield seen[text], option
            continue
        seen[text] = option
        if len(options) > _MOST_COMPARED or len(text) > _COMPARED_CHARS:
            continue
        for others, other in close:
            spend()
            pairs = list(zip(words, others, strict=False)) if len(words) == len(others) else []
            if pairs and all(_near(*pair) for pair in pairs):
                yield other, option
                break
        close.append((words, option))


def _near(one: str, other: str) -> bool:
    if one == other:
        return True
    least, most = sorted((len(one), len(other)))
    if least <= 4 or most > _WORD_CHARS or any(char.isdigit() for char in one + other):
        return False
    compared = difflib.SequenceMatcher(None, one, other)
    return compared.real_quick_ratio() >= _NEAR and compared.quick_ratio() >= _NEAR and compared.ratio() >= _NEAR


def _names(schema: Any) -> str:
    """The names and words in the schema of an answer."""
    if isinstance(schema, Mapping):
        return " ".join(f"{name} {_names(inner)}" for name, inner in schema.items())
    return schema if isinstance(schema, str) else ""


# --- waits -----------------------------------------------------------------------------------------------------------


def _wait(made: Draft, index: int, step: Step) -> Iterator[Problem]:
    assert step.wait is not None
    path = ("steps", index, "wait")
    plan = made.plan
    if step.wait.timeout_s is None and plan.deadline_s is None:
        message = f"step {step.key} waits for ever if its event does not come"
        yield Problem(ENDLESS, json_path(path), message, 'add "timeout_s": SECONDS')
    then = step.wait.on_timeout
    if then == "fail":
        return
    unseen = not any(_names_step(raw, step.key) for raw in _all_conditions(plan))
    writes = any(each.kind != "read" and not each.builtin for each in made.steps[index + 1 :])
    value = None if isinstance(then, str) else then.value
    if agrees(value) or (unseen and writes):
        message = f"if no event comes for step {step.key}, the plan goes on as if it had come"
        hint = "leave on_timeout out, so that the step fails; or let later steps have a condition on its output"
        yield Problem(YES, json_path((*path, "on_timeout")), message, hint)
