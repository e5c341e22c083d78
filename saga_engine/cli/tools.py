"""``saga tools``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption, ToolsOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from saga_engine.ports import BreakerState
    from saga_engine.settings import Settings
    from saga_engine.tools.decorator import AnyTool
    from saga_engine.tools.lint import Finding
    from saga_engine.tools.registry import ToolRegistry

_OPTIONS: Final = (
    *("effect", "undo", "probe", "tolerates_absence", "compensates", "keyed", "key_ttl_s", "timeout_s", "retry"),
    *("resource", "hold", "hold_max_s", "max_concurrency", "rate", "breaker", "dedupe_ttl_s", "last_good_s", "cost"),
    *("semantic", "version", "tags"),
)
_TEXTS: Final = ("description", "use_when", "not_when", "returns")
_ABOUT_CHARS: Final = 80


def tools(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]",
            help="Only this tool, in full; or 'accept' with the names of MCP servers; or 'import openapi FILE_OR_URL'.",
        ),
    ] = None,
    *,
    lint: Annotated[bool, typer.Option("--lint", help="Report descriptions that mislead a model.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Show calls and circuit breakers, from the store.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With accept: only show what changed.")] = False,
    manifest: Annotated[
        bool, typer.Option("--manifest", help="With accept: print tables for the tools that no manifest names.")
    ] = False,
    server: Annotated[
        str | None, typer.Option("--server", help="With import: where the API is, instead of the document's servers.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool", help="With import: only these tools or operations, such as 'POST /orders*'; repeatable."
        ),
    ] = None,
    tools: ToolsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List the tools with their effects, guards and undos; for one tool also the origin of each option.

    'saga tools accept [SERVER…]' connects to MCP servers, shows how their tools differ from those that were accepted,
    and accepts them: a tool that changed is not called before. The exit code is 1 if --lint finds an error, if
    --dry-run finds a change, or if a server cannot be reached.

    'saga tools import openapi FILE_OR_URL' prints [http.NAME] tables for the operations of an OpenAPI document, with
    comments on what the document cannot say. Complete them and put them into saga.toml.

    Examples:
      saga tools --tools tools.py
      saga tools book_flight --json
      saga tools --lint
      saga tools accept github --manifest
      saga tools import openapi https://api.example.com/openapi.json --tool 'POST /orders*' >> saga.toml
    """
    from saga_engine.cli.options import settings_for

    if words and words[0] == "import":
        from saga_engine.cli.import_openapi import import_openapi

        return import_openapi(words[1:], base_url=server, only=tool or (), as_json=as_json)
    if server is not None or tool:
        raise typer.BadParameter("only 'saga tools import' has it", param_hint="--tool" if tool else "--server")
    settings = settings_for(store, tools)
    if words and words[0] == "accept":
        from saga_engine.cli.accept import accept

        return accept(settings, words[1:], dry_run=dry_run, manifest=manifest, as_json=as_json)
    if dry_run or manifest:
        raise typer.BadParameter("only 'saga tools accept' has it", param_hint="--dry-run" if dry_run else "--manifest")
    if words and len(words) > 1:
        raise typer.BadParameter("name one tool", param_hint="NAME")
    return _listed(settings, words[0] if words else None, lint=lint, stats=stats, as_json=as_json)


def _listed(settings: Settings, name: str | None, *, lint: bool, stats: bool, as_json: bool) -> int:
    """Print the tools, or one of them, with what else was asked for."""
    from saga_engine.cli.options import registry_for
    from saga_engine.cli.output import document, note, stdout_kept_clean

    registry = registry_for(settings)
    if name is not None and name not in registry:
        raise registry.missing(name)
    if not len(registry):
        note("hint: no tools are configured; give them with --tools, SAGA_TOOLS or saga.toml")
    names = list(registry.names()) if name is None else [name]
    findings: list[Finding] | None = None
    with stdout_kept_clean():
        if lint:
            from saga_engine.sources.http.lint import findings as http_findings
            from saga_engine.tools.lint import lint as linted

            all_ = (*linted(registry), *http_findings(registry))
            findings = [finding for finding in all_ if name is None or finding.tool == name]
        numbers = _counted(registry, _numbers(settings, names)) if stats else None
    if as_json:
        document(_document(registry, names, findings, numbers))
    else:
        _print(registry, names, name, findings, numbers)
    failed = any(finding.severity == "error" for finding in findings or ())
    return exit_codes.ERROR if failed else exit_codes.COMPLETED


# --- facts about a tool --------------------------------------------------------------------------------------------


def _sources(registry: ToolRegistry, name: str) -> Mapping[str, str]:
    """The tables that changed a tool, by option."""
    changed: Mapping[str, Mapping[str, str]] = getattr(registry, "sources", {})
    return changed.get(name, {})


def _switched_off(registry: ToolRegistry) -> Mapping[str, str]:
    off: Mapping[str, str] = getattr(registry, "switched_off", {})
    return off


def _options(registry: ToolRegistry, name: str) -> dict[str, dict[str, Any]]:
    """Each option with its value and origin."""
    from saga_engine.tools.decorator import Tool

    tool, spec = registry.get(name), registry.spec(name)
    if tool is None or spec is None:
        return {}
    declared = tool.options()
    defaults = Tool(_undeclared, declared=False).options()
    sources = _sources(registry, name)
    found: dict[str, dict[str, Any]] = {}
    for option in _OPTIONS:
        # The registry's form: names for functions, and values from the signature for options that were left open.
        value = getattr(spec, option) if option in ("undo", "probe", "keyed") else declared[option]
        source = "default" if declared[option] == defaults[option] else "declaration"
        found[option] = {"value": _plain(value), "from": sources.get(option, source)}
    return found


def _undeclared() -> None:
    """A function without any declaration."""


def _plain(value: Any) -> Any:
    """An option as JSON."""
    from dataclasses import asdict, is_dataclass

    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if callable(value):
        return "a function of the params"
    return list(value) if isinstance(value, tuple) else value


def _guards(tool: AnyTool) -> str:
    """The guards of a tool as a short text."""
    parts = []
    if tool.dedupe_ttl_s is not None:
        parts.append(f"remembers {tool.dedupe_ttl_s:g} s")
    if callable(tool.resource):
        parts.append("resource by function")
    elif tool.resource is not None:
        parts.append("resource " + (tool.resource if isinstance(tool.resource, str) else ", ".join(tool.resource)))
    if tool.hold:
        parts.append("held by the saga")
    if tool.breaker is not None:
        parts.append(f"breaker {tool.breaker.failures}/{tool.breaker.open_s:g} s")
    if tool.max_concurrency is not None:
        parts.append(f"at most {tool.max_concurrency}")
    if tool.rate is not None:
        parts.append(tool.rate)
    if tool.last_good_s is not None:
        parts.append(f"last good {tool.last_good_s:g} s")
    if tool.cost:
        costs = (unit if isinstance(cost, str) else f"{cost:g} {unit}" for unit, cost in tool.cost.items())
        parts.append(f"costs {', '.join(costs)}")
    return " · ".join(parts)


# --- numbers from the store ----------------------------------------------------------------------------------------


def _numbers(settings: Settings, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    import asyncio

    return asyncio.run(_read_numbers(settings, names))


async def _read_numbers(settings: Settings, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The counters and the breaker of each tool; zeros if the store has none."""
    from saga_engine.guards.stats import COUNTERS
    from saga_engine.ports import BreakerState

    counters, breakers = await _kept(settings, names)
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        counted = {counter: int(counters.get(name, {}).get(counter, 0)) for counter in COUNTERS}
        counted["waited_ms"] = counted.pop("waited_us") // 1000
        found[name] = {**counted, "breaker": _breaker(breakers.get(name, BreakerState()))}
    return found


async def _kept(settings: Settings, names: Sequence[str]) -> tuple[Mapping[str, Any], Mapping[str, BreakerState]]:
    """The counters and the breakers in the store; none if there is no store."""
    from saga_engine.cli.read_only import no_store, reading_from

    if not names or no_store(settings) is not None:
        return {}, {}
    async with reading_from(settings) as store:
        keeper = getattr(store, "guard_store", None)
        if keeper is None:
            return {}, {}
        return await keeper().counters(names), await keeper().breakers(names)


def _counted(registry: ToolRegistry, numbers: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The numbers without those of tools whose calls are not counted: a tool without guards has no zeros."""
    return {
        name: one
        for name, one in numbers.items()
        if any(one[counter] for counter in one if counter != "breaker")
        or one["breaker"]["failures"]
        or ((tool := registry.get(name)) is not None and _guards(tool))
    }


def _breaker(state: BreakerState) -> dict[str, Any]:
    """A breaker: ``half-open`` waits for the outcome of one call that is let through."""
    word = "closed" if not state.tripped else "open" if state.opens_ms > 0 else "half-open"
    return {"state": word, "failures": state.failures, "opens_ms": state.opens_ms}


# --- printing ------------------------------------------------------------------------------------------------------


def _document(
    registry: ToolRegistry,
    names: Sequence[str],
    findings: Sequence[Finding] | None,
    numbers: Mapping[str, Mapping[str, Any]] | None,
) -> dict[str, Any]:
    listed = []
    for name in names:
        spec = registry.spec(name)
        if spec is None:
            continue
        one: dict[str, Any] = {"name": name, "digest": spec.digest}
        one |= {text: getattr(spec, text) for text in _TEXTS}
        one |= {"input_schema": spec.input_schema, "output_schema": spec.output_schema}
        one |= {"options": _options(registry, name), "overridden": dict(_sources(registry, name))}
        if numbers is not None:
            one["stats"] = numbers.get(name)  # None: calls without guards are not counted
        listed.append(one)
    off = [{"name": name, "from": source} for name, source in _switched_off(registry).items()]
    body: dict[str, Any] = {"tools": listed, "switched_off": off}
    if findings is not None:
        body["findings"] = [finding.to_dict() for finding in findings]
    return body


def _print(
    registry: ToolRegistry,
    names: Sequence[str],
    chosen: str | None,
    findings: Sequence[Finding] | None,
    numbers: Mapping[str, Mapping[str, Any]] | None,
) -> None:
    from saga_engine.cli.output import data, note, shown

    parts: list[str] = []
    if chosen is not None and findings is None and numbers is None:
        parts.append(_whole(registry, chosen))
    if numbers:
        parts.append(_numbers_table(numbers))
    uncounted = [each for each in names if each not in numbers] if numbers is not None else []
    if uncounted:
        note(f"hint: calls of tools without guards are not counted: {', '.join(map(shown, uncounted))}")
    if findings is not None:
        parts.append(_findings_text(findings) or "nothing to mend")
    if chosen is None and findings is None and numbers is None and names:
        parts.append(_list(registry, names))
    if parts:
        data("\n\n".join(parts))
    if chosen is None:
        for name, source in _switched_off(registry).items():
            note(f"{shown(name)} is switched off by {shown(source)}")


def _list(registry: ToolRegistry, names: Sequence[str]) -> str:
    from saga_engine.cli.output import table

    rows = []
    specs = {name: spec for name in registry.names() if (spec := registry.spec(name)) is not None}
    undos = {spec.undo for spec in specs.values()}
    for name in names:
        tool, spec = registry.get(name), specs.get(name)
        if tool is None or spec is None:
            continue
        about = next(iter(spec.description.splitlines()), "")
        stays = spec.effect == "write" and spec.undo is None and name not in undos
        undo = "none: irreversible" if stays else spec.undo
        rows.append([name, spec.effect, undo, spec.probe, _guards(tool), about])
    return table(["TOOL", "EFFECT", "UNDO", "PROBE", "GUARDS", "ABOUT"], rows, limit_chars=_ABOUT_CHARS)


def _whole(registry: ToolRegistry, name: str) -> str:
    """All facts about one tool."""
    from saga_engine.cli.output import json_text, shown, table

    spec = registry.spec(name)
    if spec is None:
        return ""
    sources = _sources(registry, name)
    lines = [name]
    for text in _TEXTS:
        told = getattr(spec, text).splitlines()
        if told:
            origin = f" ({shown(sources[text])})" if text in sources else ""
            lines += ["", f"{text}{origin}:", *("  " + shown(line) for line in told)]
    lines += ["", "params:", json_text(spec.input_schema)]
    if spec.output_schema is not None:
        lines += ["", "output:", json_text(spec.output_schema)]
    rows = [[option, _short(one["value"]), one["from"]] for option, one in _options(registry, name).items()]
    return "\n".join([*lines, "", table(["OPTION", "VALUE", "FROM"], rows, limit_chars=120)])


def _short(value: Any) -> Any:
    """An option in a cell: a policy as ``name value, name value``."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(str(each) for each in value) or "none"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _numbers_table(numbers: Mapping[str, Mapping[str, Any]]) -> str:
    from saga_engine.cli.output import table

    counters = [counter for counter in next(iter(numbers.values())) if counter != "breaker"]
    rows = [
        [name, *(one[counter] for counter in counters), _breaker_text(one["breaker"])] for name, one in numbers.items()
    ]
    return table(["TOOL", *(counter.upper().replace("_", " ") for counter in counters), "BREAKER"], rows)


def _breaker_text(breaker: Mapping[str, Any]) -> str:
    if breaker["state"] == "open":
        return f"open for {breaker['opens_ms'] / 1000:.1f} s"
    return f"{breaker['state']}, {breaker['failures']} failures" if breaker["failures"] else str(breaker["state"])


def _findings_text(findings: Sequence[Finding]) -> str:
    from saga_engine.cli.output import paint, shown

    lines = []
    for finding in findings:
        about = f"{shown(finding.tool)}: " if finding.tool else ""
        lines.append(f"{paint(finding.severity)}: {about}{shown(finding.message)} [{finding.code}]")
        lines.append(f"  hint: {shown(finding.hint)}")
    return "\n".join(lines)
