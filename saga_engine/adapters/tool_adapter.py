"""Shared parts of both frameworks: the tools that an agent is offered, and the errors that its model may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from saga_engine.adapters.results import ERROR_CHARS
from saga_engine.errors import (
    CallFailed,
    CallInvalid,
    PlanInvalid,
    SagaError,
    SettingInvalid,
    ToolMissing,
    ValueNotJson,
)
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec, only_helpers
from saga_engine.runtime.session_calls import name_of
from saga_engine.tools.decorator import AnyTool, FailedCheck, Tool

#: Errors that a model can correct: a call that was not done, and invalid params. All others end its run.
FOR_THE_MODEL: Final = (CallFailed, PlanInvalid, ValueNotJson)


#: Decides which results are errors: for all tools, or by name.
FailedChecks = FailedCheck | Mapping[str, FailedCheck] | None


def specs(catalog: ToolCatalog, tools: Iterable[Any], *, undos: bool) -> list[ToolSpec]:
    """The declarations of ``tools``: names, functions, or the framework's tools; without those that only undo or probe.

    With ``undos`` these are among them. Raises ``ToolMissing``.
    """
    found = []
    hidden = frozenset[str]() if undos else only_helpers(catalog)
    for tool in tools:
        name = name_of(tool)
        spec = catalog.spec(name)
        if spec is None:
            raise ToolMissing(
                f"the coordinator has no tool {name!r}",
                hint="sagas call their tools without the agent: open the coordinator with register(...)",
                tool=name,
            )
        if name not in hidden:
            found.append(spec)
    return found


def words(error: SagaError) -> str | None:
    """The message of an error for the model; None if the model cannot correct it."""
    if not isinstance(error, FOR_THE_MODEL):
        return None
    if isinstance(error, PlanInvalid):
        if any(problem.code != "params-invalid" for problem in error.problems):
            return None  # a tool without an undo is its author's error
        return short("; ".join(f"{problem.path}: {problem.message}" for problem in error.problems))
    if isinstance(error, CallInvalid):
        return short("; ".join(f"{problem.path}: {problem.message}" for problem in error.problems))
    return short(f"{error.message} ({error.hint})" if error.hint else error.message)


def short(text: str) -> str:
    """A text that a model sees; one that is too long says how long it was."""
    if len(text) <= ERROR_CHARS:
        return text
    told = f"… ({len(text)} characters)"
    return text[: ERROR_CHARS - len(told)] + told


def declared(  # noqa: PLR0917 - one call for each tool of a framework
    function: Any,
    name: str,
    description: str,
    schema: dict[str, Any],
    undo: Mapping[str, Any],
    reads: Iterable[str],
    options: Mapping[str, Mapping[str, Any]],
    failed: FailedChecks = None,
) -> AnyTool:
    """A framework's tool as a tool of this engine; options as of ``tool``. Raises ``ToolInvalid``.

    A tool of whose effect nothing is said is undeclared: its calls count as writes that nothing takes back.
    """
    given: dict[str, Any] = {"effect": "read"} if name in set(reads) else {}
    if name in undo:
        given["undo"] = name_of(undo[name])
    check = failed.get(name) if isinstance(failed, Mapping) else failed
    if check is not None:
        given["failed"] = check
    given |= options.get(name, {})
    said = not {"effect", "undo", "semantic"}.isdisjoint(given)
    return Tool(function, declared=said, name=name, description=description, input_schema=schema, **given)


def require_known(names: Iterable[str], *mentioned: Iterable[str]) -> None:
    """Raises ``SettingInvalid`` for an unknown name: a misspelt undo would leave a tool without one."""
    known = set(names)
    for name in {name for names in mentioned for name in names} - known:
        raise SettingInvalid(f"{name!r} is none of the tools", hint=f"they are {', '.join(sorted(known))}")
