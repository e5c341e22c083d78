"""The choice of a model and its limits: flags over environment over ``[planner]`` in ``saga.toml`` over defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from saga_engine.errors import SettingInvalid
from saga_engine.plan.tool_spec import Semantic
from saga_engine.planner.features import FEATURES
from saga_engine.ports import Allowance

OutputMode = Literal["tool", "native", "prompted", "text"]
UndoByModel = Literal["registered", "any"]
KEY_VARIABLE: Final = "SAGA_MODEL_API_KEY"


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """The model, how to ask it, and how much it may use.

    ``model``: ``provider:name``, empty if none is set. ``base_url``: a server with the provider's protocol.
    ``output``: how the JSON is requested: as a tool's arguments, by a schema that the server enforces (``native``), by
    the server's JSON mode (``prompted``), or as plain text. ``total_s``: the time for one plan with all its rounds, in
    seconds. ``max_requests``, ``max_tokens`` (in and out) and ``max_cost_usd`` limit one plan, ``max_output_tokens``
    one answer (``None``: the model's own limit; a model that reasons counts its thoughts, too). ``rounds``: how often
    the model is asked for one plan. ``tools_offered``: the maximum number of tools it is shown; others are named.
    ``secrets``: names that ``$secret.NAME`` may have in a model's plan. ``reads``: tools that read and may be called
    while a plan is made. ``prepared_plans``: plan files by intent. ``semantic``: the role in semantic compensation of
    tools that do not declare one. ``max_steps``: the maximum number of steps of a model's plan. ``undo_by_model``:
    whether a model may switch off, replace or redirect the undo that a tool registers: ``registered`` (no) or ``any``.
    ``may_use``: parts of the plan format that a model may use only with this leave (``planner.features``);
    computations, conditions, lists of calls that can be undone, and notices at the end need none.
    """

    model: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    output: OutputMode = "tool"
    total_s: float = 300.0
    max_requests: int = 10
    max_tokens: int = 200_000
    max_cost_usd: float | None = None
    max_output_tokens: int | None = None
    rounds: int = 3
    tools_offered: int = 100
    secrets: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    semantic: Semantic = "approve"
    max_steps: int = 50
    undo_by_model: UndoByModel = "registered"
    may_use: tuple[str, ...] = ()
    prepared_plans: Mapping[str, Path] = field(default_factory=dict)

    def allowance(self) -> Allowance:
        """The allowance of one plan."""
        return Allowance(self.max_requests, self.max_tokens, self.max_cost_usd, self.total_s)


#: Minimum and maximum of each number; a whole number has whole ones.
_BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "total_s": (0.01, 3600.0),
    "max_requests": (1, 1000),
    "max_tokens": (100, 100_000_000),
    "max_cost_usd": (0.0, 1_000_000.0),
    "max_output_tokens": (16, 1_000_000),
    "rounds": (1, 20),
    "tools_offered": (1, 1000),
    "max_steps": (1, 10_000),
}
_CHOICES: Final = {
    "output": get_args(OutputMode),
    "semantic": get_args(Semantic),
    "undo_by_model": get_args(UndoByModel),
}
#: Settings by their variable; settings missing here exist in the file only.
_VARIABLES: Final[Mapping[str, str]] = {
    "SAGA_MODEL": "model",
    "SAGA_MODEL_BASE_URL": "base_url",
    "SAGA_MODEL_OUTPUT": "output",
    "SAGA_MODEL_TOTAL_S": "total_s",
    "SAGA_MODEL_MAX_REQUESTS": "max_requests",
    "SAGA_MODEL_MAX_TOKENS": "max_tokens",
    "SAGA_MODEL_MAX_COST_USD": "max_cost_usd",
    "SAGA_MODEL_MAX_OUTPUT_TOKENS": "max_output_tokens",
    "SAGA_MODEL_ROUNDS": "rounds",
}


def planner_settings(
    table: Mapping[str, Any],
    flags: Mapping[str, Any] | None = None,
    *,
    base: Path = Path(),
    environ: Mapping[str, str] = os.environ,
) -> PlannerSettings:
    """The settings in force. ``table`` is ``[planner]``; its paths are relative to ``base``. A flag of None is not set.

    Raises ``SettingInvalid``.
    """
    made = _apply(PlannerSettings(), _from_file(table, base), "[planner] in saga.toml")
    from_env: dict[str, Any] = {}
    for variable, name in _VARIABLES.items():
        text = environ.get(variable, "")
        if text:
            from_env[name] = _number(variable, name, text) if name in _BOUNDS else text
    made = _apply(made, from_env, "the environment")
    made = replace(made, api_key=environ.get(KEY_VARIABLE, "").strip())
    given = {name: value for name, value in (flags or {}).items() if value not in (None, (), [])}
    return _apply(made, given, "the command line")


def _from_file(table: Mapping[str, Any], base: Path) -> dict[str, Any]:
    values = dict(table)
    if "api_key" in values:
        raise SettingInvalid(
            "[planner] in saga.toml has an api_key", hint=f"keys belong into the environment: {KEY_VARIABLE}"
        )
    plans = values.get("prepared_plans", {})
    if not isinstance(plans, Mapping) or not all(isinstance(path, str) and path for path in plans.values()):
        raise SettingInvalid("[planner.prepared_plans] names a plan file for each intent: trip = 'plans/trip.json'")
    values["prepared_plans"] = {intent: base / path for intent, path in plans.items()}
    return values


def _apply(settings: PlannerSettings, values: Mapping[str, Any], source: str) -> PlannerSettings:
    return replace(settings, **{name: _checked(name, value, source) for name, value in values.items()})


def _checked(name: str, value: Any, source: str) -> Any:
    """The value of a setting. Raises ``SettingInvalid``."""
    if name in _BOUNDS:
        least, most = _BOUNDS[name]
        kind, types = ("a whole number", int) if isinstance(least, int) else ("a number", int | float)
        if isinstance(value, bool) or not isinstance(value, types) or not least <= value <= most:
            raise SettingInvalid(f"{name} must be {kind} from {least:g} to {most:g}, not {value!r} ({source})")
    elif name in _CHOICES:
        if value not in _CHOICES[name]:
            raise SettingInvalid(f"{name} cannot be {value!r}", hint=" or ".join(_CHOICES[name]))
    elif name in ("model", "base_url"):
        if not isinstance(value, str):
            raise SettingInvalid(f"{name} in {source} must be a text")
        if name == "base_url" and value and not _is_address(value):
            raise SettingInvalid(f"base_url in {source} is no address of a server", hint="write http://host:port/v1")
    elif name in ("secrets", "reads"):
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise SettingInvalid(f"{name} in {source} must be a list of names")
        return tuple(value)
    elif name == "may_use":
        return allowed_features(value, source)
    elif name != "prepared_plans":
        known = [each.name for each in fields(PlannerSettings) if each.name != "api_key"]
        raise SettingInvalid(f"{source} sets {name}, which is no setting of the planner", hint=", ".join(known))
    return value


def allowed_features(given: Any, source: str = "may_use") -> tuple[str, ...]:
    """The features that a list names, each once. Raises ``SettingInvalid``."""
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise SettingInvalid(f"may_use in {source} must be a list of names")
    unknown = [name for name in given if name not in FEATURES]
    if unknown:
        hint = f"known: {', '.join(FEATURES)}"
        raise SettingInvalid(f"may_use names {unknown[0]!r}, which a planner cannot be allowed ({source})", hint=hint)
    return tuple(dict.fromkeys(given))


def _is_address(text: str) -> bool:
    try:
        split = urlsplit(text)
        port = split.port
    except ValueError:
        return False
    return split.scheme in ("http", "https") and bool(split.hostname) and port != 0 and text.isprintable()


def _number(variable: str, name: str, text: str) -> float:
    try:
        return int(text) if isinstance(_BOUNDS[name][0], int) else float(text)
    except ValueError as error:
        raise SettingInvalid(f"{variable} must be a number, not '{text}'") from error
