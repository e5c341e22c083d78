"""An operator's changes to tools that they did not write: the ``[tools.NAME]`` tables of ``saga.toml``.

The source of a tool stays unchanged; a new registry holds the tools with the operator's options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypedDict

from saga_engine.errors import SettingInvalid, ToolInvalid, ToolMissing
from saga_engine.plan.tool_spec import After, BreakerPolicy, OnDoubt, RetryPolicy, Semantic
from saga_engine.tools.declaration import KEPT_BY_EFFECT
from saga_engine.tools.decorator import AnyTool, Tool
from saga_engine.tools.error_rules import Raised
from saga_engine.tools.options import LINKS
from saga_engine.tools.registry import ToolRegistry

_PATTERN: Final = re.compile(r"[A-Za-z0-9_.*?-]{1,64}")
#: Options that a glob brings only to the tools that may have them, by the effects of these.
_BY_EFFECT: Final = {**KEPT_BY_EFFECT, "raised": "write"}
#: Guards from the tool's author that ``false`` removes.
_REMOVABLE: Final = frozenset(
    {"resource", "hold", "hold_max_s", "max_concurrency", "rate", "dedupe_ttl_s", "last_good_s", "cost"}
)


class ToolChanges(TypedDict, total=False):
    """What an operator changes of tools: options of ``@tool``, in the words of TOML, and ``disabled``.

    ``effect``: ``write``: a read can be declared a write. Never the other way round, but for a plain function of whose
    effect its author says nothing: its own table may say ``read``.
    ``key_ttl_s``: seconds for which the remote system remembers a key.
    ``undo``: the tool that undoes a call, by name. ``probe``: the tool that answers whether a call happened, by name.
    ``before``: the tool that reads what a call is about to change, by name; its answer is the before-image.
    ``absent``: which answers of that read mean that there was nothing yet: ``{ error_code = "not_found" }``,
    ``{ null = true }`` or ``{ fields = { exists = false } }``.
    ``undo_absent``: the undo where there was nothing yet, by name: it removes what the call created.
    ``undo_params``: what the undo is called with, such as ``{ id = "$output.order_id" }``.
    ``undo_each``: a list, such as ``"$output.items"``: the undo is called once for each item, which ``"$item"`` binds.
    ``undo_then``: the calls that follow the undo: ``[{ tool = "cancel", params = { id = "$output.id" } }]``.
    ``after``: ``output``: the call's own output is the new value, in the form of the read; by default it is read again.
    ``expect``: ``"$before"``: a call is made only if that read still shows what the saga last read.
    ``undo_check``: what must be seen after the undo: ``{ tool = "get_order", shows = { fields = { void = true } } }``.
    ``verify``: ``false``: nobody looks whether the undo did what it says. ``verify_within_s``: seconds for which the
    old value may still be seen after it.
    ``retry``: how often and how fast a call is tried again: some of the fields of ``retry`` below.
    ``resource``: a key for what a call changes, ``"user:{user_id}"``, or several of these; ``false``: none.
    Calls with the same key run one at a time, across all processes.
    ``hold``: ``saga``: the saga keeps its resources until its end; ``false``: it does not.
    ``hold_max_s``: seconds after which operators are shown that it does so for too long; ``false``: none.
    ``max_concurrency``: calls of this tool at once in one process; ``false``: any number.
    ``rate``: ``"10/s"``, calls of this tool in all processes (per ``s``, ``min``, ``h`` or ``d``); ``false``: any
    number.
    ``breaker``: the engine pauses the tool after failures in a row: ``true``, ``false``, or some of the fields of
    ``breaker`` below.
    ``dedupe_ttl_s``: seconds for which the engine keeps a call's result and gives it to identical calls of other sagas;
    ``false``: none. Through a glob it reaches only tools that write.
    ``last_good_s``: seconds for which the last good result of a read may replace a call (a step's ``fallback``);
    ``false``: none. Through a glob it reaches only tools that read.
    ``cost``: what a call costs, by unit: an amount, or the field of the output that says it:
    ``{ usd = 0.01, tokens = "$output.usage.total_tokens" }``; ``false``: nothing.
    ``not_done``, ``unknown``: names of exceptions and HTTP statuses that mean that the call was not done, or that its
    outcome is unknown: ``["shop.SoldOut", 503]``.
    ``raised``: what an exception means that is no statement of the tool. With ``not-done`` one that its own module
    raises outright is a refusal, with ``unknown`` none is. Through a glob it reaches only tools that write.
    ``sensitive``: parameters whose values no view shows, beside those of the tool's author.
    ``redact``: fields of the output that never reach the journal, beside those of the tool's author, as dotted paths:
    ``["card.number", "items.*.ssn"]``.
    ``description``: what the tool does, for a model that chooses tools.
    ``disabled``: ``true``: nobody is offered the tool, and plans that name it are refused.
    """

    effect: Literal["write", "read"]
    keyed: bool
    key_ttl_s: float
    undo: str
    undo_params: Mapping[str, Any]
    undo_each: str
    undo_then: list[Mapping[str, Any]]
    probe: str
    before: str
    after: After
    absent: Mapping[str, Any]
    undo_absent: str
    sole_writer: bool
    expect: str | Mapping[str, str]
    undo_check: Mapping[str, Any]
    verify: bool
    verify_within_s: float
    timeout_s: float
    retry: Mapping[str, Any]
    resource: str | list[str] | Literal[False]
    hold: Literal["saga", False]
    hold_max_s: float | Literal[False]
    max_concurrency: int | Literal[False]
    rate: str | Literal[False]
    breaker: bool | Mapping[str, Any]
    dedupe_ttl_s: float | Literal[False]
    last_good_s: float | Literal[False]
    cost: Mapping[str, float | str] | Literal[False]
    compensates: bool
    tolerates_absence: bool
    not_done: list[str | int]
    unknown: list[str | int]
    raised: Raised
    on_doubt: OnDoubt
    late_s: float
    semantic: Semantic
    version: str
    sensitive: list[str]
    redact: list[str]
    tags: str | list[str]
    description: str
    use_when: str
    not_when: str
    returns: str
    disabled: bool


_ALLOWED: Final = tuple(ToolChanges.__annotations__)


class OverriddenTools(ToolRegistry):
    """A registry whose tools an operator changed.

    ``sources`` maps each changed option of a tool to its table, ``switched_off`` each tool that is switched off to the
    table that did it.
    """

    def __init__(
        self, tools: list[AnyTool], sources: Mapping[str, Mapping[str, str]], switched_off: Mapping[str, str]
    ) -> None:
        self.sources = sources
        self.switched_off = switched_off
        super().__init__(tools)

    def why_not(self, name: str) -> str:
        """Why a tool is not offered; an empty text for one that is, or that is unknown."""
        source = self.switched_off.get(name)
        return "" if source is None else f"it is switched off by {source}"

    def missing(self, name: str) -> ToolMissing:
        """The error for a tool that is switched off or unknown."""
        why = self.why_not(name)
        if not why:
            return super().missing(name)
        return ToolMissing(f"the tool {name!r} is not offered here", hint=f"{why}: remove 'disabled' there", tool=name)


def apply_overrides(
    registry: ToolRegistry, table: Mapping[str, Any], source: str, *, strict: bool = True
) -> ToolRegistry:
    """A registry like ``registry`` with the options of ``table``: tables of options by name or glob of tools.

    A glob with more plain characters takes precedence over another glob (``"pay_*"``), and a plain name over all.
    ``retry`` and ``breaker`` change the fields that they name. Through a glob, ``dedupe_ttl_s`` reaches only tools that
    write and ``last_good_s`` only those that read. ``effect`` may only be tightened, to ``write``. ``source`` is named
    in errors and in ``sources``. Not ``strict``: a table may match no tool, because several projects share it.

    Raises ``SettingInvalid`` for a table that matches no tool and for meaningless options, ``ToolInvalid`` if the
    resulting tools contradict each other (an undo that is unknown or switched off).
    """
    tables = {name: _checked(name, options, source) for name, options in table.items()}
    if not tables or not len(registry):
        return registry  # Without tools there is nothing to change; a command that needs tools reports their absence.
    names = list(registry.names())
    for pattern in tables:
        if strict and not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, n=3)
            raise SettingInvalid(
                f"{_where(source, pattern)} matches no tool",
                hint=f"did you mean {', '.join(near)}?" if near else f"tools: {', '.join(names[:20])}",
                tool=pattern,
            )
    made: list[AnyTool] = []
    before = registry if isinstance(registry, OverriddenTools) else None
    sources: dict[str, dict[str, str]] = {}
    off: dict[str, str] = {} if before is None else dict(before.switched_off)
    for tool in registry:
        changes, origins = _changes(tool, tables, source)
        if changes.pop("disabled", False):
            off[tool.name] = origins["disabled"]
            continue
        origins.pop("disabled", None)
        made.append(_rebuilt(registry, tool, changes, origins))
        sources[tool.name] = origins if before is None else {**before.sources.get(tool.name, {}), **origins}
    _refuse_lost_links(made, off)
    return OverriddenTools(made, sources, off)


def _where(source: str, pattern: str) -> str:
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", pattern)
    return f"{source} [tools.{pattern}]" if bare else f'{source} [tools."{pattern}"]'


def _invalid(source: str, pattern: str, problem: str, hint: str) -> SettingInvalid:
    return SettingInvalid(f"{_where(source, pattern)}: {problem}", hint=hint, tool=pattern)


def _checked(pattern: str, options: Any, source: str) -> Mapping[str, Any]:
    """One table, checked for unknown options."""
    if not _PATTERN.fullmatch(pattern):
        raise _invalid(source, pattern, "is no name of tools", "a name, or a glob with '*' and '?' such as \"pay_*\"")
    if not isinstance(options, Mapping):
        raise _invalid(source, pattern, "must be a table of options", f'write [tools."{pattern}"] and options below it')
    for option in options:
        if option not in _ALLOWED:
            near = get_close_matches(option, _ALLOWED, n=1)
            hint = f"did you mean {near[0]}?" if near else f"options: {', '.join(_ALLOWED)}"
            raise _invalid(source, pattern, f"{option!r} is no option that can be set here", hint)
    return options


def _specificity(pattern: str) -> tuple[bool, int, str]:
    """A sort key: ``*`` comes first and a plain name last."""
    plain = sum(char not in "*?" for char in pattern)
    return plain == len(pattern), plain, pattern


def _changes(
    tool: AnyTool, tables: Mapping[str, Mapping[str, Any]], source: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """The changed options of one tool, and the table of each."""
    matching = [pattern for pattern in sorted(tables, key=_specificity) if fnmatchcase(tool.name, pattern)]
    changes: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for pattern in matching:  # The effect decides which other options fit.
        effect = tables[pattern].get("effect")
        if effect == "read" and pattern == tool.name and not tool.declared:
            changes["effect"], origins["effect"] = "read", _where(source, pattern)
        elif effect not in (None, "write", tool.effect):
            hint = "only 'write' can be set: a tool that writes cannot be declared harmless from outside"
            raise _invalid(source, pattern, f"effect = {effect!r}", hint)
        if effect == "write" and tool.effect == "read":
            changes["effect"], origins["effect"] = "write", _where(source, pattern)
            if tool.last_good_s is not None:
                changes["last_good_s"], origins["last_good_s"] = None, _where(source, pattern)
    effect = changes.get("effect", tool.effect)
    for pattern in matching:
        for option, value in tables[pattern].items():
            fits = _BY_EFFECT.get(option, effect) == effect or pattern == tool.name
            if option == "effect" or not fits:
                continue
            before = changes.get(option, getattr(tool, option, None))
            try:
                changes[option] = _value(option, value, before)
            except _Senseless as error:
                raise _invalid(source, pattern, *error.args) from None
            if option == "sensitive" and pattern != tool.name and tool.signature.accepts is not None:
                # A glob is for many tools: each has some of these parameters.
                changes[option] = tuple(name for name in changes[option] if name in tool.signature.accepts)
            origins[option] = _where(source, pattern)
    return changes, origins


class _Senseless(Exception):
    """A meaningless value: the problem and a hint."""


def _value(option: str, value: Any, before: Any) -> Any:
    """An option as ``Tool`` takes it, from its TOML form; ``before`` is its previous value. The tool checks it then."""
    if value is False and option in _REMOVABLE:
        return None
    if option == "retry":
        return _policy(option, value, before, RetryPolicy())
    if option == "breaker" and value is not False:
        return _policy(option, {} if value is True else value, before, BreakerPolicy())
    if option in LINKS and not isinstance(value, str):
        raise _Senseless(f"{option} = {value!r} is no name of a tool", "name a tool")
    if option == "disabled" and not isinstance(value, bool):
        raise _Senseless(f"disabled = {value!r} has no meaning", "true or false")
    listed = isinstance(value, list) and all(isinstance(sign, str | int) for sign in value)
    if option in ("not_done", "unknown") and not listed:
        raise _Senseless(f"{option} = {value!r} has no meaning", f'write {option} = ["shop.SoldOut", 503]')
    if option == "sensitive":
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise _Senseless(f"sensitive = {value!r} are no names", 'write sensitive = ["card", "pin"]')
        return (*before, *value)  # the parameters that the author declared sensitive remain so
    if option == "redact":
        if not isinstance(value, list) or not all(isinstance(rule, str) for rule in value):
            raise _Senseless(f"redact = {value!r} are no paths", 'write redact = ["card.number", "items.*.ssn"]')
        return (*before, *value)  # what the author redacts remains so
    if option == "tags" and not isinstance(value, str | list):
        raise _Senseless(f"tags = {value!r} are no texts", 'write tags = ["travel", "paid"]')
    return value


def _policy(option: str, value: Any, before: Any, default: Any) -> Any:
    known = [field.name for field in fields(default)]
    if not isinstance(value, Mapping) or not set(value) <= set(known):
        raise _Senseless(f"{option} = {value!r} has no meaning", f"a table of {', '.join(known)}")
    return replace(before if isinstance(before, type(default)) else default, **value)


def _rebuilt(registry: ToolRegistry, tool: AnyTool, changes: dict[str, Any], origins: Mapping[str, str]) -> AnyTool:
    """The tool with its changes; undo and probe by name, so that they resolve to the changed ones, too."""
    spec = registry.spec(tool.name)
    links = {role: changes.get(role, getattr(spec, role, None)) for role in LINKS}
    try:
        made = Tool(tool.function, **{**tool.options(), **changes, **links})
        if changes:
            made.spec(**links)  # checks the whole tool here, where the error can name the table
    except ToolInvalid as error:
        where = ", ".join(sorted(set(origins.values())))
        message = f"{error.message} (as changed by {where})" if where else error.message
        raise ToolInvalid(message, hint=error.hint, **error.context) from error
    return made


def _refuse_lost_links(tools: list[AnyTool], off: Mapping[str, str]) -> None:
    """Refuse to switch off the undo or probe of a tool that stays: its calls could not be undone or settled."""
    for tool in tools:
        for role in LINKS:
            other = getattr(tool, role)
            if other in off:
                raise ToolInvalid(
                    f"{off[other]} switches off {other!r}, the {role} of {tool.name!r}",
                    hint=f"switch off {tool.name!r}, too, or give it another {role}",
                    tool=tool.name,
                )
