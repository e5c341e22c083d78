"""Checks of a tool's declaration that need no annotations."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NoReturn

from saga_engine.errors import ToolError, ToolInvalid
from saga_engine.plan.absence import read_absence
from saga_engine.plan.bindings import Template
from saga_engine.plan.costs import why_no_costs
from saga_engine.plan.expect import read_expect
from saga_engine.plan.limits import MAX_UNDO_CALLS
from saga_engine.plan.lookalikes import own_lookalikes
from saga_engine.plan.problems import Path, Problems
from saga_engine.plan.redacted import fault_of
from saga_engine.plan.tool_spec import BreakerPolicy, RetryPolicy
from saga_engine.plan.undo_check import read_undo_check
from saga_engine.plan.values import cut, json_path
from saga_engine.plan.which_undo import UndoOf, own_params
from saga_engine.tools.limits import parse_rate, template_fields
from saga_engine.tools.options import LINKS

if TYPE_CHECKING:
    from collections.abc import Callable

NAME_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
#: Options whose values are plain text.
TEXTS: Final = ("description", "use_when", "not_when", "returns")
#: Options that keep data in the store for a number of seconds, by the effects of the tools that may have them.
KEPT_BY_EFFECT: Final = {"dedupe_ttl_s": "write", "last_good_s": "read"}
#: A time-to-live over ten years is a typing error (and a store counts its times in 63 bits).
_MAX_KEPT_S: Final = 10 * 365 * 86_400
_MAX_TEXT_CHARS: Final = 20_000
#: An old value that is seen for longer than this is no matter of consistency.
_MAX_WITHIN_S: Final = 3600
_OWN_LIST: Final = re.compile(r"\$(output|before)(?![^.\[])")


def refuse(name: str, problem: str, hint: str) -> NoReturn:
    """Raise ``ToolInvalid`` for the tool called ``name``."""
    raise ToolInvalid(f"tool {name!r}: {problem}", hint=hint, tool=name)


def refuse_contradictions(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options (those of ``Tool.options()``) that are meaningless or contradict each other.

    Raises ``ToolInvalid`` with the first problem and a hint.
    """
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        refuse(
            name,
            "its name is not usable",
            "give name=…: a letter or underscore, then letters, digits, '_', '.' or '-', at most 64 characters",
        )
    if options["effect"] not in ("read", "write"):
        refuse(name, f"effect={options['effect']!r} has no meaning", "use 'read' or 'write'")
    if not isinstance(options["keyed"], bool | None):
        refuse(name, f"keyed={options['keyed']!r} has no meaning", "use True, False or None")
    if not _seconds(options["timeout_s"]):
        refuse(name, f"timeout_s={options['timeout_s']!r} is no time", "give a positive number of seconds")
    if options["key_ttl_s"] is not None and not _seconds(options["key_ttl_s"]):
        refuse(name, f"key_ttl_s={options['key_ttl_s']!r} is no time", "give a positive number of seconds, or None")
    _refuse_bad_retry(name, options["retry"])
    _refuse_bad_limits(name, options)
    _refuse_bad_breaker(name, options["breaker"])
    _refuse_bad_memory(name, options)
    if options["cost"] is not None and (why := why_no_costs(options["cost"])):
        refuse(name, f"cost: {why}", 'write cost={"usd": 0.01, "tokens": "$output.usage.total_tokens"}')
    _refuse_bad_texts(name, options)
    for option in ("compensates", "tolerates_absence", "sole_writer"):
        if not isinstance(options[option], bool):
            refuse(name, f"{option} must be True or False", f"remove it or write {option}=True")
    if not isinstance(options["version"], str) or len(options["version"]) > 64:
        refuse(name, f"version={options['version']!r} is no version", "give a text of at most 64 characters")
    _refuse_bad_doubts(name, options)
    if options["semantic"] not in (None, "auto", "approve", "never"):
        refuse(name, f"semantic={options['semantic']!r} has no meaning", "use 'auto', 'approve' or 'never'")
    _refuse_bad_links(name, function, options)


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _refuse_bad_retry(name: str, retry: Any) -> None:
    if not isinstance(retry, RetryPolicy):
        refuse(name, f"retry={retry!r} is no RetryPolicy", "write retry=RetryPolicy(max_attempts=4)")
    if not _whole(retry.max_attempts):
        hint = "it counts the first attempt: at least 1"
        refuse(name, f"retry.max_attempts={retry.max_attempts!r} allows no call", hint)
    for option in ("base_s", "max_s"):
        value = getattr(retry, option)
        if (value != 0 or isinstance(value, bool)) and not _seconds(value):
            refuse(name, f"retry.{option}={value!r} is no time", "give a number of seconds, 0 or more")
    if not isinstance(retry.jitter, bool):
        refuse(name, f"retry.jitter={retry.jitter!r} has no meaning", "use True or False")


def _refuse_bad_limits(name: str, options: Mapping[str, Any]) -> None:
    limit = options["max_concurrency"]
    if limit is not None and not _whole(limit):
        refuse(name, f"max_concurrency={limit!r} lets no call through", "give a whole number of at least 1")
    if options["rate"] is not None:
        try:
            parse_rate(options["rate"])
        except ValueError as error:
            refuse(
                name, f"rate={options['rate']!r} cannot be read: {error}", "write '10/s', '5/min', '100/h' or '1000/d'"
            )
    _refuse_bad_hold(name, options)
    resource = options["resource"]
    if resource is None or callable(resource):
        return
    templates = [resource] if isinstance(resource, str) else resource
    if not isinstance(templates, list | tuple) or not templates:
        refuse(
            name,
            f"resource={resource!r} is no key",
            "write 'user:{user_id}', a list of these, or a function of the params",
        )
    for template in templates:
        if not isinstance(template, str) or not template:
            refuse(name, f"resource={template!r} is no key", "write 'user:{user_id}', or a function of the params")
        try:
            template_fields(template)
        except ValueError as error:
            refuse(name, f"its resource {template!r} is no template: {error}", "write 'user:{user_id}'")


def _refuse_bad_hold(name: str, options: Mapping[str, Any]) -> None:
    hold, most_s = options["hold"], options["hold_max_s"]
    if hold not in (None, "saga"):
        refuse(name, f"hold={hold!r} has no meaning", "write hold='saga', or leave it out")
    if hold is not None and options["resource"] is None:
        refuse(
            name, f"it has hold={hold!r} and names no resource", "add resource='item:{sku}': the key of what is held"
        )
    if most_s is not None and hold is None:
        refuse(name, "it has hold_max_s and holds nothing", "add hold='saga', or remove it")
    if most_s is not None and (not _seconds(most_s) or most_s > _MAX_KEPT_S):
        refuse(name, f"hold_max_s={most_s!r} is no time", "give a positive number of seconds, at most ten years")


def _refuse_bad_breaker(name: str, breaker: Any) -> None:
    if breaker is False:
        return
    if not isinstance(breaker, BreakerPolicy):
        refuse(name, f"breaker={breaker!r} has no meaning", "use True, False or BreakerPolicy(failures=3, open_s=30)")
    if not _whole(breaker.failures):
        refuse(
            name, f"breaker.failures={breaker.failures!r} is no number of failures", "give a whole number, at least 1"
        )
    if not _seconds(breaker.open_s) or breaker.open_s > _MAX_KEPT_S:
        refuse(name, f"breaker.open_s={breaker.open_s!r} is no time", "give a positive number of seconds")


def _refuse_bad_memory(name: str, options: Mapping[str, Any]) -> None:
    for option, effect in KEPT_BY_EFFECT.items():
        value = options[option]
        if value is None:
            continue
        if not _seconds(value) or value > _MAX_KEPT_S:
            refuse(name, f"{option}={value!r} is no time", "give a positive number of seconds, at most ten years")
        if options["effect"] != effect:
            other = "last_good_s" if option == "dedupe_ttl_s" else "dedupe_ttl_s"
            refuse(
                name,
                f"it {options['effect']}s, and {option} is for tools that {effect}",
                f"remove it, use {other}, or declare effect={effect!r}",
            )


def signs(given: Any) -> tuple[Any, ...]:
    """``not_done`` and ``unknown`` as tuples; a single class, name or status needs no tuple."""
    if isinstance(given, str | int | type):
        return (given,)
    return tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)


def _refuse_bad_doubts(name: str, options: Mapping[str, Any]) -> None:
    """Refuse invalid declarations about exceptions, results and calls in doubt."""
    for option in ("not_done", "unknown"):
        for sign in options[option]:
            if not _is_sign(sign):
                hint = "name exception classes, their names as text, or HTTP statuses from 400 to 599"
                refuse(name, f"{option} has {sign!r}, which is no kind of error", hint)
            own = isinstance(sign, type) and issubclass(sign, ToolError)
            if own or sign == "ToolError":
                refuse(name, f"{option} names ToolError, which is the tool's own word", "raise another exception")
        if options[option] and options["effect"] == "read" and option == "unknown":
            refuse(name, "it reads, so nothing of it can be in doubt", "remove unknown, or declare effect='write'")
    if options["raised"] not in (None, "unknown", "not-done"):
        refuse(name, f"raised={options['raised']!r} has no meaning", "use 'unknown' or 'not-done'")
    if options["raised"] is not None and options["effect"] == "read":
        refuse(name, "it reads, so nothing of it can be in doubt", "remove raised, or declare effect='write'")
    both = set(options["not_done"]) & set(options["unknown"])
    if both:
        refuse(name, f"not_done and unknown both have {min(map(str, both))}", "one of them")
    if options["failed"] is not None and not callable(options["failed"]):
        refuse(name, f"failed={options['failed']!r} is no function", "write failed=lambda result: …")
    if options["on_doubt"] not in ("ask", "undo"):
        refuse(name, f"on_doubt={options['on_doubt']!r} has no meaning", "use 'ask' or 'undo'")
    if options["on_doubt"] == "undo" and options["effect"] == "read":
        refuse(name, "it reads, so nothing of it can be in doubt", "remove on_doubt, or declare effect='write'")
    late_s = options["late_s"]
    if late_s is not None and late_s != 0 and not _seconds(late_s):
        refuse(name, f"late_s={late_s!r} is no time", "give a number of seconds, 0 or more")


def _is_sign(sign: Any) -> bool:
    if isinstance(sign, type):
        return issubclass(sign, BaseException)
    if isinstance(sign, str):
        return all(part.isidentifier() or part == "<locals>" for part in sign.split("."))
    return isinstance(sign, int) and not isinstance(sign, bool) and 400 <= sign <= 599


def _refuse_bad_texts(name: str, options: Mapping[str, Any]) -> None:
    for option in TEXTS:
        value = options[option]
        if not isinstance(value, str):
            refuse(name, f"{option}={value!r} is no text", "write a sentence")
        if len(value) > _MAX_TEXT_CHARS:
            refuse(
                name,
                f"{option} has {len(value)} characters",
                f"at most {_MAX_TEXT_CHARS:,}: a model reads it each time",
            )
    if not all(isinstance(each, str) and each for each in options["sensitive"]):
        refuse(name, "sensitive must be names of parameters", "write sensitive=('card', 'pin')")
    if fault := fault_of(options["redact"]):
        refuse(name, f"redact: {fault}", "write redact=('card.number', 'items.*.ssn')")
    if not all(isinstance(tag, str) for tag in options["tags"]):
        refuse(name, "tags must be texts", "write tags=('travel', 'paid')")


def _refuse_bad_links(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    for option in LINKS:
        other = options[option]
        if other is not None and not isinstance(other, str) and not callable(other):
            refuse(name, f"{option}={other!r} is neither a name nor a function", "name a tool")
        if option == "undo" and options["before"] is not None:
            continue  # a call that sets a value can set it back
        if other is not None and (other in (name, function) or getattr(other, "name", None) == name):
            refuse(name, f"it is its own {option}", f"the {option} is another tool")
    if options["effect"] == "read" and options["undo"] is not None:
        refuse(name, "it reads, so there is nothing to undo", "remove undo, or declare effect='write'")
    _refuse_bad_undo(name, options)
    _refuse_bad_images(name, options)
    if options["effect"] == "read" and options["tolerates_absence"]:
        refuse(name, "it reads, so it can be no undo", "remove tolerates_absence, or declare effect='write'")
    if options["effect"] == "read" and options["semantic"] not in (None, "never") and not options["compensates"]:
        refuse(name, "it reads, so there is nothing to compensate for", "remove semantic, or declare effect='write'")


def undo_calls(given: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The calls that follow the first one of an undo, with the names of their tools."""
    return tuple({**call, "tool": _name_of(call["tool"])} for call in given)


def _name_of(tool: Any) -> str:
    return tool if isinstance(tool, str) else str(getattr(tool, "name", "") or getattr(tool, "__name__", tool))


def _refuse_bad_undo(name: str, options: Mapping[str, Any]) -> None:
    """Refuse invalid declarations of what an undo calls."""
    given, then = options["undo_params"], options["undo_then"]
    hint = "undo_then=[{'tool': 'cancel', 'params': {'id': '$output.id'}}]"
    for option in ("undo_params", "undo_each", "undo_then"):
        if options[option] and options["undo"] is None:
            refuse(name, f"it has {option} but no undo", "name the tool that undoes it: undo=…")
    if given is not None and not isinstance(given, Mapping):
        refuse(name, f"undo_params={given!r} is no mapping", "undo_params={'id': '$output.id'}")
    if isinstance(then, str | Mapping) or not isinstance(then, Sequence) or len(then) > MAX_UNDO_CALLS:
        refuse(name, f"undo_then must be a list of at most {MAX_UNDO_CALLS} calls", hint)
    for call in then:
        if not isinstance(call, Mapping) or not call.get("tool") or set(call) - {"tool", "params", "each"}:
            refuse(name, f"undo_then has {call!r}, which is no call with tool, params and each", hint)
        if not isinstance(call.get("params", {}), Mapping):
            refuse(name, f"undo_then has params={call['params']!r}, which is no mapping", hint)
    for each in (options["undo_each"], *(call.get("each") for call in then)):
        if each is not None and not (isinstance(each, str) and _OWN_LIST.match(each)):
            refuse(name, f"undo_each={each!r} binds no list", "bind a list: '$output.items' or '$before.items'")


def refuse_lookalikes(name: str, options: Mapping[str, Any], own: Collection[str] | None) -> None:
    """Refuse what an undo is called with if it looks like a binding and is none: it would go out as it is written.

    ``own``: the names of the tool's params; None: any.
    """
    calls: list[tuple[Path, Any, Any]] = [(("undo_params",), options["undo_params"], options["undo_each"])]
    for number, call in enumerate(options["undo_then"]):
        calls.append((("undo_then", number, "params"), call.get("params"), call.get("each")))
    for path, params, each in calls:
        for place, text, hint in own_lookalikes(params or {}, own or (), path, listed=each is not None):
            refuse(
                name, f"{json_path(place)[2:]}={cut(text, 120)} is not a binding; the undo would get it as it is", hint
            )
        problems = Problems()
        made, of = own_params(UndoOf("", params or {}, each), "", Template({}, None, ()), problems, path)
        for problem in problems.listed():
            refuse(name, f"{json_path(path)[2:]}: {problem.message}", problem.hint)
        for bound in [*(made.places if made else ()), *(of.places if of else ())]:
            wanted = bound.tail.path[0] if bound.source == "params" and bound.tail and bound.tail.path else None
            if wanted is not None and own is not None and wanted not in own:
                known = ", ".join(sorted(own)) or "none"
                refuse(name, f"{bound.text} names {wanted!r}, which is no parameter", f"parameters: {known}")


def _refuse_bad_images(name: str, options: Mapping[str, Any]) -> None:
    """Refuse invalid declarations about the value that a call changes."""
    before, absent = options["before"], options["absent"]
    if options["after"] not in ("read", "output"):
        refuse(name, f"after={options['after']!r} has no meaning", "use 'read' or 'output'")
    if options["effect"] == "read" and before is not None:
        refuse(name, "it reads, so it changes no value that before could show", "remove before")
    for option, given in (
        ("after", options["after"] != "read"),
        ("absent", absent is not None),
        ("undo_absent", options["undo_absent"] is not None),
        ("sole_writer", options["sole_writer"]),
        ("expect", options["expect"] is not None),
    ):
        if given and before is None:
            refuse(name, f"it has {option} but no before", "name the tool that reads the value: before=…")
    if (absent is None) != (options["undo_absent"] is None) and options["undo"] is not None:
        refuse(
            name,
            "absent and undo_absent belong together",
            "absent says which answer means that there was nothing yet, undo_absent removes what the call created",
        )
    _refuse_bad_looks(name, options)
    try:
        read_expect(options["expect"])
    except ValueError as error:
        refuse(name, *error.args)
    if absent is not None:
        try:
            read_absence(absent)
        except ValueError as error:
            refuse(name, *error.args)


def _refuse_bad_looks(name: str, options: Mapping[str, Any]) -> None:
    """Refuse invalid declarations about the look after an undo."""
    check, within_s = options["undo_check"], options["verify_within_s"]
    if not isinstance(options["verify"], bool):
        refuse(name, "verify must be True or False", "verify=False: nobody looks whether the undo did what it says")
    if within_s != 0 and (not _seconds(within_s) or within_s > _MAX_WITHIN_S):
        refuse(name, f"verify_within_s={within_s!r} is no time", f"give a number of seconds, 0 to {_MAX_WITHIN_S:,}")
    if check is None:
        return
    if options["effect"] == "read":
        refuse(name, "it reads, so there is no undo to look after", "remove undo_check")
    try:
        made = read_undo_check(check)
    except ValueError as error:
        refuse(name, *error.args)
    for place, text, hint in own_lookalikes(made.params or {}, (), ("undo_check", "params"), listed=False):
        refuse(name, f"{json_path(place)[2:]}={cut(text, 120)} is not a binding; the read would get it as it is", hint)
    problems = Problems()
    own_params(UndoOf(made.tool, made.params), "", Template({}, None, ()), problems, ("undo_check", "params"))
    for problem in problems.listed():
        refuse(name, f"undo_check.params: {problem.message}", problem.hint)
