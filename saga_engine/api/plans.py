"""The tools of a coordinator with the operator's options, and what writes its plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from saga_engine.errors import PlannerUnavailable, ToolInvalid
from saga_engine.loggers import logger_of
from saga_engine.plan.values import printable
from saga_engine.tools.registry import ToolRegistry, collect

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import Semantic
    from saga_engine.planner.planning import Planning
    from saga_engine.planner.settings import PlannerSettings
    from saga_engine.policy.rules import Policy
    from saga_engine.ports import Advisor, Planner, Source

_log = logger_of("saga_engine")


async def declared_tools(tools: Iterable[Any] | ToolRegistry, sources: Iterable[Source]) -> ToolRegistry:
    """The tools of a program together with those of its sources. Raises ``ToolInvalid`` and ``SettingInvalid``."""
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
    opened: list[Source] = []
    try:
        for each in sources:
            opened.append(each)
            await each.open()
        return ToolRegistry(registry, [tool for each in opened for tool in each.tools()]) if opened else registry
    except BaseException:
        for each in opened:
            await each.close()
        raise


async def close_sources(registry: ToolRegistry) -> None:
    """End the connections of the tools' sources; a source's failure is logged."""
    found = {id(it): it for tool in registry if (it := getattr(tool.function, "source", None)) is not None}
    for source in found.values():
        try:
            await source.close()
        except Exception:  # noqa: BLE001 - what matters is done: the calls in flight were awaited
            _log.warning("the tools' source %r could not be closed", source, exc_info=True)


class Registration:
    """Registers tools after a coordinator was opened: the operator's options apply to them, too."""

    def __init__(
        self,
        tools: ToolRegistry,
        declared: ToolRegistry | None,
        configured: Callable[[ToolRegistry], ToolRegistry] | None,
    ) -> None:
        self.tools = tools
        #: The tools before the operator's options, and what applies these.
        self._declared = tools if declared is None else declared
        self._configured = configured
        #: Tools that only a session's agent has, with their undos and probes: by name, which life of it brought them.
        self.brought: dict[str, Any] = {}

    def drop(self, names: Sequence[str]) -> None:
        """Forget tools; those that name one of them as their undo or probe must be among them."""
        for registry in {id(each): each for each in (self.tools, self._declared)}.values():
            registry.drop(names)

    def register(self, tools: tuple[Any, ...]) -> None:
        """Add tools, with the operator's options. Raises ``ToolInvalid``, ``SettingInvalid``; nothing changes then."""
        for tool in collect(tools):
            if getattr(tool.function, "needs_approval", ""):
                raise ToolInvalid(
                    f"the tool {tool.name!r} is described by no manifest",
                    hint="describe it, or give its server to Coordinator.open(sources=…), which asks about each call",
                    tool=tool.name,
                )
        if self._configured is not None and self._declared is not self.tools:
            declared = ToolRegistry(self._declared, *tools)
            self.tools.become(self._configured(declared))
            self._declared = declared
        else:
            self.tools.add(*tools)


def planning_of(
    given: str | Planner | PlannerSettings | Planning | None, policy: Policy | None = None
) -> Planning | None:
    """What writes plans, without the tools that the policy always denies; None: no planner."""
    if given is None:
        return None
    from saga_engine.planner.planning import Planning
    from saga_engine.planner.selection import select_by_words
    from saga_engine.policy.plan_time import withheld

    planning = given if isinstance(given, Planning) else Planning.of(given, select_by_words)
    return planning if policy is None else replace(planning, withheld=withheld(policy))


def advising(
    planning: Planning | None, advisor: Advisor | None, semantic: Semantic | None
) -> tuple[Advisor | None, Semantic]:
    """What is asked for steps of a saga, and the role of tools that do not declare it.

    Raises ``PlannerUnavailable`` for an object that is no advisor.
    """
    if advisor is not None and not callable(getattr(advisor, "advise", None)):
        raise PlannerUnavailable(
            f"the advisor {printable(type(advisor).__name__, 80)} has no method 'advise'",
            hint="give an object with the member of saga_engine.ports.Advisor, or a planner",
        )
    if planning is None:
        return advisor, semantic or "approve"
    return advisor or planning.advisor, semantic or planning.settings.semantic
