"""The tools of a process, by name."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from types import ModuleType
from typing import TYPE_CHECKING, Any

from saga_engine.core.effects import Done, ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.errors import ToolInvalid, ToolMissing
from saga_engine.language.errors import said
from saga_engine.plan.model_tools import ModelTools
from saga_engine.plan.schema_types import unfillable
from saga_engine.plan.undo_check import read_undo_check
from saga_engine.tools.decorator import AnyTool, Tool
from saga_engine.tools.invoke import Caller, Invocation, no_probe
from saga_engine.tools.options import LINKS, READS
from saga_engine.tools.outcomes import MAX_OUTPUT_BYTES
from saga_engine.tools.secrets import Allowed, secrets_of

if TYPE_CHECKING:
    from saga_engine.plan.costs import Costs
    from saga_engine.plan.tool_spec import ToolSpec
    from saga_engine.ports import Call


class ToolRegistry(ModelTools):
    """Finds and calls tools. Implements ``ports.Tools``.

    It is built from tools, plain functions (each becomes a tool that writes), modules (all tools in them), other
    registries, and lists of these. A tool named as ``undo`` or ``probe`` by function is registered with the tool that
    names it. Raises ``ToolInvalid`` for two different tools with the same name, for invalid declarations, and for
    unknown names of undo and probe.
    """

    def __init__(self, *sources: Any) -> None:
        self._tools: dict[str, AnyTool] = {}
        self._calls: dict[str, Invocation] = {}
        self._specs: dict[str, ToolSpec] = {}
        self._links: dict[str, dict[str, str]] = {}
        self._secrets: tuple[Allowed, ...] = ()
        #: The options of the files of settings are applied already.
        self.governed = False
        #: Whether a saga may hold the resources of any tool.
        self.holding = False
        self.max_output_bytes = MAX_OUTPUT_BYTES
        self.add(*sources)

    def allow_secrets(self, *allowed: Allowed) -> None:
        """Restrict each tool's secrets: from now on plans may pass to a tool only those that every list allows."""
        self._secrets = allowed
        self.check()

    def limit_outputs(self, max_bytes: int) -> None:
        """Limit results, in bytes of JSON: from now on a larger one is not recorded, and its step is in doubt."""
        self.max_output_bytes = max_bytes
        self._calls = {}

    def add(self, *sources: Any) -> None:
        """Register more tools, and check all. After an error the registry is unchanged."""
        before = dict(self._tools), dict(self._links)
        try:
            for found in collect(sources):
                self._register(found)
            self.check()
        except ToolInvalid:
            self._tools, self._links = before
            raise

    def drop(self, names: Iterable[str]) -> None:
        """Forget these tools; others that name one of them as their undo or probe must be dropped with it."""
        gone = set(names)
        self._tools = {name: tool for name, tool in self._tools.items() if name not in gone}
        self._links = {name: links for name, links in self._links.items() if name not in gone}
        self.check()

    def become(self, other: ToolRegistry) -> None:
        """Replace these tools by those of another registry, for all holders of this one."""
        self._tools, self._links = dict(other._tools), dict(other._links)
        self.check()

    def check(self) -> None:
        """Check every declaration, and the names of undo and probe. Raises ``ToolInvalid`` with all unknown names."""
        problems = [
            self._unknown_link(name, role, other)
            for name, links in self._links.items()
            for role, other in links.items()
            if other not in self._tools
        ]
        if problems:
            raise ToolInvalid("; ".join(problems), hint="register the tool, or correct its name", problems=problems)
        for name, links in self._links.items():
            for role in ("undo", "undo_absent"):
                undo = links.get(role)
                if undo is not None and self._tools[undo].effect == "read":
                    raise ToolInvalid(
                        f"tool {name!r}: its {role} {undo!r} only reads, so it can undo nothing",
                        hint="an undo is a tool with effect='write'",
                        tool=name,
                    )
            if (check := self._tools[name].undo_check) is not None:
                self._refuse_bad_check(name, read_undo_check(check).tool)
            if "before" in links:
                self._refuse_bad_read(name, links["before"])
        self._refuse_unfillable()
        specs = {n: t.spec(**self._links[n]) for n, t in self._tools.items()}
        if self._secrets:
            specs = {n: replace(spec, secrets=secrets_of(n, *self._secrets)) for n, spec in specs.items()}
        self._specs = specs
        self.holding = any(spec.hold for spec in specs.values())
        self._calls = {}

    def _refuse_bad_read(self, name: str, before: str) -> None:
        """Refuse a read of before-images that writes, or that a call cannot give its params."""
        read, forward = self._tools[before], self._tools[name].signature
        if read.effect != "read":
            hint = "before names a tool with effect='read'"
            raise ToolInvalid(f"tool {name!r}: its before {before!r} writes", hint=hint, tool=name)
        required = read.signature.input_schema.get("required")
        accepts = forward.accepts
        for param in required if isinstance(required, list) else ():
            if accepts is not None and param not in accepts:
                raise ToolInvalid(
                    f"tool {name!r}: its before {before!r} requires {param!r}, which is no parameter of {name!r}",
                    hint=f"give both tools a parameter {param!r}",
                    tool=name,
                )

    def _refuse_bad_check(self, name: str, tool: str) -> None:
        """Refuse an ``undo_check`` whose tool is unknown, or writes."""
        read = self._tools.get(tool)
        if read is None or read.effect != "read":
            why = "is no tool here" if read is None else "writes"
            hint = "undo_check names a tool with effect='read'"
            raise ToolInvalid(f"tool {name!r}: the tool {tool!r} of its undo_check {why}", hint=hint, tool=name)

    def _refuse_unfillable(self) -> None:
        """Refuse an undo that would be called without params: it would undo nothing and report success."""
        for name, links in self._links.items():
            if "undo" not in links or "before" in links:
                continue  # what the before-image has is known only when it is read
            if self._tools[name].undo_params is not None or self._tools[name].undo_each is not None:
                continue  # they say what it gets
            forward, undo = self._tools[name].signature, self._tools[links["undo"]].signature
            if undo.input_schema.get("required"):
                continue  # A missing required param is found when a plan is checked, or at the undo.
            why = unfillable(
                {"properties": {}, **undo.input_schema}, forward.accepts, forward.output_schema, known=True
            )
            if why:
                raise ToolInvalid(
                    f"tool {name!r}: its undo {links['undo']!r} would be called without its parameters: {why}",
                    hint="name its parameters as params of the call, or as fields of what it returns",
                    tool=name,
                    code="undo-unfillable",
                )

    # --- ports.ToolCatalog ---------------------------------------------------------------------------------------

    def spec(self, name: str) -> ToolSpec | None:
        """The declaration of the tool called ``name``; ``None`` if there is none."""
        return self._specs.get(name)

    def names(self) -> Sequence[str]:
        """The names of all tools, in order of registration."""
        return list(self._tools)

    def get(self, name: str) -> AnyTool | None:
        """The tool itself; ``None`` if there is none."""
        return self._tools.get(name)

    def costs_of(self, name: str) -> Costs:
        """What a call of a tool costs; nothing if there is no such tool."""
        tool = self._tools.get(name)
        return {} if tool is None or tool.cost is None else tool.cost

    def missing(self, name: str) -> ToolMissing:
        """The error for an unknown tool, with similar names."""
        near = get_close_matches(name, self._tools, n=3)
        return ToolMissing(
            f"no tool is called {name!r} here",
            hint=f"did you mean {', '.join(near)}?" if near else "load the module that defines it (--tools)",
            tool=name,
        )

    def __iter__(self) -> Iterator[AnyTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    # --- ports.Tools ---------------------------------------------------------------------------------------------

    async def call(self, name: str, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make one call, limited to ``call.timeout_s`` (without the wait for a limit of the tool).

        Every failure is an outcome. Raised are cancellation, and ``ToolMissing`` for an unknown name.
        """
        invoke = self._calls.get(name)
        if invoke is None:
            invoke = self._prepared(name)
        if call.around is not None:
            return await call.around(functools.partial(invoke, params, call))
        return await invoke(params, call)

    async def read(self, name: str, params: Mapping[str, Any], call: Call) -> Outcome:
        """Read what a call changes; as ``call``."""
        return await self.call(name, params, call)

    async def probe(self, name: str, params: Mapping[str, Any], call: Call) -> Outcome:
        """Ask the probe of tool ``name`` whether the call with this key and these params happened.

        The probe gets the params that it accepts by name. ``Done`` with the output: it happened. ``NotDone``: it did
        not. ``Unknown``: the probe cannot tell, or there is none. Raises ``ToolMissing``.
        """
        spec = self._specs.get(name)
        if spec is None:
            raise self.missing(name)
        if spec.probe is None:
            return no_probe(name)
        accepts = self._tools[spec.probe].signature.accepts
        hidden = self._tools[spec.probe].signature.hidden
        known = {
            key: value for key, value in params.items() if (accepts is None or key in accepts) and key not in hidden
        }
        outcome = await self.call(spec.probe, known, call._replace(direction="probe"))
        if not isinstance(outcome, Done):
            return Unknown(outcome.error)
        if outcome.output is None:
            error = ErrorInfo("did_not_happen", said("did_not_happen.probe", tool=repr(spec.probe)))
            return NotDone(error, retryable=True, definite=True)
        redaction = self._tools[name].redaction
        return outcome if redaction is None else outcome._replace(output=redaction.value("output", outcome.output))

    # --- inside --------------------------------------------------------------------------------------------------

    def _prepared(self, name: str) -> Invocation:
        found = self._tools.get(name)
        if found is None:
            raise self.missing(name)
        invoke = self._calls[name] = Caller(found, self.max_output_bytes).invoke
        return invoke

    def _register(self, new: AnyTool) -> None:
        old = self._tools.get(new.name)
        if old is new:
            return
        if old is not None:
            if old.function != new.function:
                raise ToolInvalid(
                    f"two different tools are called {new.name!r}",
                    hint="give one of them another name: @tool(name=…)",
                    tool=new.name,
                )
            new = _preferred(old, new)
            if new is old:
                return
        self._tools[new.name] = new
        self._links[new.name] = {}
        for role in LINKS:
            other = getattr(new, role)
            if other is None:
                continue
            if not isinstance(other, str):
                if not isinstance(other, Tool):
                    other = Tool(other, effect="read" if role in READS else "write", declared=False)
                self._register(other)
                other = other.name
            self._links[new.name][role] = other

    def _unknown_link(self, name: str, role: str, other: str) -> str:
        near = get_close_matches(other, self._tools, n=3)
        return f"the {role} of tool {name!r} is {other!r}, which is no tool" + (
            f" (did you mean {', '.join(near)}?)" if near else ""
        )


def _preferred(old: AnyTool, new: AnyTool) -> AnyTool:
    """Which of two declarations of one function takes precedence."""
    if old == new:
        return old
    if old.declared != new.declared:
        return old if old.declared else new
    if not old.declared:
        return old if old.effect == "read" else new  # A plain function that also serves as a probe reads.
    raise ToolInvalid(
        f"the tool {new.name!r} is declared twice, with different options",
        hint="declare it once, or give one of them another name",
        tool=new.name,
    )


def collect(source: Any) -> list[AnyTool]:
    """The tools in a source: a tool, a function, a module, a registry, or an iterable of these.

    Raises ``ToolInvalid``.
    """
    if isinstance(source, Tool):
        return [source]
    if isinstance(source, ToolRegistry):
        return list(source)
    if isinstance(source, ModuleType):
        found = {id(value): value for value in vars(source).values() if isinstance(value, Tool)}
        if not found:
            raise ToolInvalid(f"the module {source.__name__!r} has no tools", hint="decorate its functions with @tool")
        return list(found.values())
    if isinstance(source, str | bytes):
        raise ToolInvalid(f"{source!r} is a text, no tool", hint="load modules and files by name with load_tools")
    if callable(source):
        return [Tool(source, declared=False)]
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        return [found for item in source for found in collect(item)]
    raise ToolInvalid(f"a {type(source).__name__} is no tool", hint="give tools, functions, modules or registries")
