"""What the files of settings say about every saga of a process, whichever way it came in: policy, secrets, limits.

Each way into the engine passes here: ``Coordinator.open`` (and so sessions, the gateway and the server),
``TemporalCoordinator.open``, its worker, and each command. The folder's ``saga.toml`` holds unless a program names
other settings; the operator's file always holds. What a program gives itself can only add to both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from saga_engine.execution.governed import Governed, governed
from saga_engine.loggers import logger_of
from saga_engine.plan.costs import Costs, dearer, why_no_costs
from saga_engine.plan.operator_limits import NO_LIMITS, Limits, limits_from
from saga_engine.policy.rules import Policy, written
from saga_engine.settings import Settings, SettingsFile, check_output_limit, load, operators_file
from saga_engine.tools.lint import refusals_unstated
from saga_engine.tools.overrides import apply_overrides
from saga_engine.tools.registry import ToolRegistry
from saga_engine.tools.secrets import Allowed, allowed_of, allowed_secrets

_log = logger_of("saga_engine")
#: What a program says about files: nothing (those that are found hold), other settings, or that it wants none.
SettingsChoice = Settings | Literal["found"] | None
#: The tables that hold for every saga, whoever opens the engine.
_GOVERNING: Final = ("policy", "secrets", "limits", "tools")
#: The files that were named in the log of this process.
_named: set[Path] = set()
#: The tools of which this process has warned.
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class Governing:
    """The files that hold, the operator's first; ``operators`` of them are the operator's."""

    files: tuple[SettingsFile, ...] = ()
    operators: int = 0

    def policy(self, given: Policy | Mapping[str, Any] | None = None) -> Policy | None:
        """A policy by which a call must pass every file's and the program's; None: nobody gave one.

        Raises ``SettingInvalid``.
        """
        tables = [(file.tables["policy"], file) for file in self._holding("policy")]
        found = [Policy.parse(table, base=file.base, source=file.name) for table, file in tables]
        if isinstance(given, Policy):
            found.append(given)
        # A program that hands over the table of the file itself gives no second policy.
        elif given is not None and all(given != table for table, _ in tables):
            found.append(Policy.parse(given, base=Path.cwd(), source="policy"))
        whole: Policy | None = None
        for policy in found:
            whole = policy if whole is None else whole.tightened(policy)
        return whole

    def limits(self, given: Limits | Mapping[str, Any] | None = None) -> Limits:
        """The stricter of the program's and every file's, limit by limit. Raises ``SettingInvalid``."""
        found = NO_LIMITS if given is None else limits_from(given)
        for file in self._holding("limits"):
            found = found.tightened(Limits.parse(file.tables["limits"], file.name))
        return found

    def least(self, setting: str, given: int) -> int:
        """The smaller of ``given`` and what the files say for a ``setting`` that is a limit; 0 means no limit."""
        said = [file.tables.get("saga", {}).get(setting) for file in self.files]
        return min((number for number in (given, *said) if number), default=given)

    def secrets(self, given: Mapping[str, Sequence[str]] | None = None) -> list[Allowed]:
        """The lists that must all allow a secret; without any, none is allowed. Raises ``SettingInvalid``."""
        own = [] if given is None else [allowed_secrets(given, "secrets")]
        return [*(allowed_of(file.tables["secrets"], file.name) for file in self._holding("secrets")), *own] or [{}]

    def configured(
        self, declared: ToolRegistry, given: Mapping[str, Any] | None = None, *, strict: bool = False
    ) -> ToolRegistry:
        """Declared tools with all options for them: the project's, then the program's, then the operator's.

        ``strict``: a table of the project must match a tool. Raises ``SettingInvalid`` and ``ToolInvalid``.
        """
        registry = declared
        files = () if declared.governed else self.files
        operators, projects = files[: self.operators], files[self.operators :]
        for file in reversed(projects):
            if file.tables.get("tools"):
                registry = apply_overrides(registry, file.tables["tools"], file.name, strict=strict)
        if given:
            registry = apply_overrides(registry, given, "tool_options")
        for file in reversed(operators):
            if file.tables.get("tools"):
                registry = apply_overrides(registry, file.tables["tools"], file.name, strict=False)
        costs = {name: {"cost": cost} for name, cost in self.costs().items()}
        return apply_overrides(registry, costs, "[agents.costs]", strict=False) if costs else registry

    def costs(self) -> Mapping[str, Any]:
        """What calls cost by tool, as ``[agents.costs]`` says; where several files do, the higher of two amounts."""
        found: dict[str, Costs] = {}
        for file in self.files:
            said = file.tables.get("agents", {}).get("costs", {})
            for tool, costs in said.items() if isinstance(said, Mapping) else ():
                if not why_no_costs(costs):  # what is wrong is said where the whole table is read
                    found[tool] = dearer(found.get(tool, {}), costs)
        return found

    def registered(
        self,
        declared: ToolRegistry,
        options: Mapping[str, Any] | None = None,
        secrets: Mapping[str, Sequence[str]] | None = None,
        max_output_bytes: int | None = None,
    ) -> ToolRegistry:
        """Declared tools as calls may use them: with their options, their secrets, the maximum size of a result.

        Raises ``SettingInvalid`` and ``ToolInvalid``.
        """
        registry = self.configured(declared, options)
        if max_output_bytes is not None:
            check_output_limit(max_output_bytes)
            registry.limit_outputs(self.least("max_output_bytes", max_output_bytes))
        registry.allow_secrets(*self.secrets(secrets))
        _warn_of_refusals(registry)
        return registry

    def governed(
        self, rules: Policy | None, limits: Limits, secrets: Mapping[str, Sequence[str]] | None = None
    ) -> Governed:
        """What the lease of a process records of what holds in it: these rules and limits, and allowed secrets."""
        allowed = [{name: sorted(listed) for name, listed in each.items()} for each in self.secrets(secrets)]
        return governed(
            None if rules is None else written(rules),
            limits,
            sorted(allowed, key=repr),
            [str(file.base / file.name) for file in self.files],
        )

    def _holding(self, table: str) -> list[SettingsFile]:
        # An empty table of secrets allows none: it is there.
        return [file for file in self.files if table in file.tables]


def _warn_of_refusals(registry: ToolRegistry) -> None:
    """Say once of each tool that its refusals will ask a person."""
    specs = [spec for name in registry.names() if (spec := registry.spec(name)) is not None]
    undoing = {name for spec in specs for name in (spec.undo, spec.undo_absent)}
    for spec in specs:
        undo = None if spec.undo is None else registry.spec(spec.undo)
        if spec.name not in undoing and spec.name not in _warned and refusals_unstated(spec, undo):
            _warned.add(spec.name)
            _log.info(  # `saga tools --lint` is where an author looks; an operator's commands are no place for it
                "the tool %r has a key, and does not say which exceptions are refusals: one that is no ToolError asks "
                "an operator; see 'refusals-unstated' of `saga tools --lint`",
                spec.name,
            )


def governing(settings: SettingsChoice) -> Governing:
    """The files that hold for a process which opens the engine with these settings. Raises ``SettingInvalid``.

    ``"found"``: the files that every command reads. None: no file of a folder. Whatever is given, the operator's file
    holds. A file that was found, and not given, is named once in the log.
    """
    theirs = operators_file(os.environ)
    if isinstance(settings, Settings):
        files = settings.files
    elif settings is None:
        files = () if theirs is None else (theirs,)
    else:
        files = load({}).files
        for file in files:
            _name(file)
    if theirs is None:
        return Governing(files)
    return Governing((theirs, *(file for file in files if file != theirs)), operators=1)


def _name(file: SettingsFile) -> None:
    holding = [name for name in _GOVERNING if name in file.tables]
    path = file.base / file.name
    if holding and path not in _named:
        _named.add(path)
        _log.info("%s of %s: in force here", ", ".join(f"[{name}]" for name in holding), path)
