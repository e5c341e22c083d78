"""``@tool``: declares what a function does to the world, and how it may be called."""

from __future__ import annotations

import functools
import inspect
import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, overload

from saga_engine.errors import ToolInvalid
from saga_engine.plan.tooling import Effect, RetryPolicy, ToolSpec
from saga_engine.plan.values import digest
from saga_engine.tools.checking import OutputCheck, SchemaCheck, compile_schema
from saga_engine.tools.limits import ResourceKey, template_fields
from saga_engine.tools.signature import KEY_PARAMETER, Signature, parameters, read_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

P = ParamSpec("P")
R = TypeVar("R")

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_DEFAULT_RETRY = RetryPolicy(max_attempts=4, base_s=1.0, max_s=30.0, jitter=True)


class Tool(Generic[P, R]):
    """A function with its declaration. Calling it calls the function, so it can be tested like one.

    All options of :func:`tool` are attributes. ``signature`` and ``spec()`` are made at the first use, so that
    annotations may name types that are defined further down in the module.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        effect: Effect = "write",
        keyed: bool | None = None,
        key_ttl_s: float | None = None,
        undo: str | Callable[..., Any] | None = None,
        probe: str | Callable[..., Any] | None = None,
        timeout_s: float = 30.0,
        retry: RetryPolicy = _DEFAULT_RETRY,
        resource: ResourceKey | None = None,
        max_concurrency: int | None = None,
        compensates: bool = False,
        tolerates_absence: bool = False,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        tags: Iterable[str] = (),
        description: str | None = None,
        declared: bool = True,
    ) -> None:
        self.name: str = ""
        if isinstance(function, Tool):
            raise ToolInvalid(f"{function.name!r} is a tool already", hint="decorate it once", tool=function.name)
        if not callable(function) or isinstance(function, type):
            raise ToolInvalid(
                f"a {type(function).__name__} is no tool", hint="decorate a function or a callable object"
            )
        self.function = function
        self.name = _name_of(function) if name is None else name
        self.effect = effect
        self.key_ttl_s = key_ttl_s
        self.undo = undo
        self.probe = probe
        self.timeout_s = timeout_s
        self.retry = retry
        self.resource = resource
        self.max_concurrency = max_concurrency
        self.compensates = compensates
        self.tolerates_absence = tolerates_absence
        self.tags = (tags,) if isinstance(tags, str) else tuple(tags)
        #: Whether somebody declared it; ``False`` for a plain function that a registry made a tool.
        self.declared = declared
        self._keyed = keyed
        self._given_input = _copied_schema(input_schema, self.name, "input_schema")
        self._given_output = _copied_schema(output_schema, self.name, "output_schema")
        self.description = _doc_of(function) if description is None else inspect.cleandoc(description)
        self._specs: dict[tuple[str | None, str | None], ToolSpec] = {}
        functools.update_wrapper(self, function, updated=())
        _refuse_contradictions(self, keyed)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, with no time-out and no judgement."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R]:
        """In a class: the tool of the bound method."""
        if instance is None or not hasattr(self.function, "__get__"):
            return self
        options = self.options()
        function: Any = self.function
        for role in ("undo", "probe"):
            other = options[role]
            neighbour = getattr(owner, getattr(other, "__name__", ""), None) if isinstance(other, Tool) else None
            if isinstance(other, Tool) and neighbour == other:
                options[role] = other.__get__(instance, owner)  # Its neighbour in the class is bound with it.
        return Tool(function.__get__(instance, owner), **options)

    def __eq__(self, other: object) -> bool:
        """Whether both declare the same function in the same way."""
        if not isinstance(other, Tool):
            return NotImplemented
        return self is other or (self.function == other.function and self.options() == other.options())

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<tool {self.name} ({self.effect})>"

    def options(self) -> dict[str, Any]:
        """Everything that was declared, as the arguments of :func:`tool`."""
        names = (
            "name effect key_ttl_s undo probe timeout_s retry resource max_concurrency compensates tolerates_absence "
            "tags description declared"
        )
        given = {"keyed": self._keyed, "input_schema": self._given_input, "output_schema": self._given_output}
        return {name: getattr(self, name) for name in names.split()} | given

    @functools.cached_property
    def signature(self) -> Signature:
        """What the function takes and gives. Raises ``ToolInvalid``."""
        signature = read_signature(self.function, self.name, self._given_input, self._given_output)
        if isinstance(self.resource, str) and signature.accepts is not None:
            for field in template_fields(self.resource):
                if field not in signature.accepts:
                    known = ", ".join(sorted(signature.accepts)) or "none"
                    raise _invalid(self, f"its resource names {field!r}, which is no parameter", f"parameters: {known}")
        return signature

    @property
    def keyed(self) -> bool:
        """Whether the other side honours the idempotency key."""
        return self.signature.wants_key if self._keyed is None else self._keyed

    def defaults(self) -> Mapping[str, Any]:
        """The defaults of the parameters that have one."""
        found = parameters(self.function, self.name)
        return {name: p.default for name, p in found.items() if p.default is not p.empty}

    def spec(self, undo: str | None = None, probe: str | None = None) -> ToolSpec:
        """The declaration as the plan knows it, with the names of undo and probe. Raises ``ToolInvalid``."""
        spec = self._specs.get((undo, probe))
        if spec is None:
            spec = self._specs[undo, probe] = self._made_spec(undo, probe)
        return spec

    def _made_spec(self, undo: str | None, probe: str | None) -> ToolSpec:
        signature = self.signature
        given = self._given_input is not None
        check = SchemaCheck(
            self.name,
            signature.input_schema,
            hidden=signature.hidden,
            coercions=signature.coercions,
            formats=given,
        )
        # Schemas made from a signature are valid by construction; those written by hand are tried now.
        if given:
            check.compile()
        if self._given_output is not None:
            compile_schema(self._given_output, self.name, "output_schema", formats=False)
        output = OutputCheck(self.name, signature.output_schema)
        if self.key_ttl_s is not None and not self.keyed:
            raise _invalid(
                self, "it has key_ttl_s but honours no key", f"add keyed=True or a parameter {KEY_PARAMETER}"
            )
        identity = [self.name, signature.input_schema, signature.output_schema, self.effect, self.keyed]
        return ToolSpec(
            name=self.name,
            description=self.description,
            effect=self.effect,
            keyed=self.keyed,
            key_ttl_s=self.key_ttl_s,
            undo=undo,
            probe=probe,
            timeout_s=float(self.timeout_s),
            retry=self.retry,
            compensates=self.compensates,
            tolerates_absence=self.tolerates_absence,
            input_schema=signature.input_schema,
            output_schema=signature.output_schema,
            digest=digest(identity)[:12],
            check_params=check,
            check_output=output,
        )


AnyTool = Tool[..., Any]


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect = "write",
    keyed: bool | None = None,
    key_ttl_s: float | None = None,
    undo: str | Callable[..., Any] | None = None,
    probe: str | Callable[..., Any] | None = None,
    timeout_s: float = 30.0,
    retry: RetryPolicy = ...,
    resource: ResourceKey | None = None,
    max_concurrency: int | None = None,
    compensates: bool = False,
    tolerates_absence: bool = False,
    input_schema: dict[str, Any] | None = None,
    output_schema: dict[str, Any] | None = None,
    tags: Iterable[str] = (),
    description: str | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    effect: Effect = "write",
    keyed: bool | None = None,
    key_ttl_s: float | None = None,
    undo: str | Callable[..., Any] | None = None,
    probe: str | Callable[..., Any] | None = None,
    timeout_s: float = 30.0,
    retry: RetryPolicy = ...,
    resource: ResourceKey | None = None,
    max_concurrency: int | None = None,
    compensates: bool = False,
    tolerates_absence: bool = False,
    input_schema: dict[str, Any] | None = None,
    output_schema: dict[str, Any] | None = None,
    tags: Iterable[str] = (),
    description: str | None = None,
) -> Tool[P, R]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effect: Literal["read", "write"] = "write",
    keyed: bool | None = None,
    key_ttl_s: float | None = None,
    undo: str | Callable[..., Any] | None = None,
    probe: str | Callable[..., Any] | None = None,
    timeout_s: float = 30.0,
    retry: RetryPolicy = _DEFAULT_RETRY,
    resource: ResourceKey | None = None,
    max_concurrency: int | None = None,
    compensates: bool = False,
    tolerates_absence: bool = False,
    input_schema: dict[str, Any] | None = None,
    output_schema: dict[str, Any] | None = None,
    tags: Iterable[str] = (),
    description: str | None = None,
) -> Any:
    """Make a function a tool: ``@tool``, ``@tool(...)``, or ``tool(function, ...)``.

    ``name``: letters, digits and ``_.-``, at most 64; by default the function's.
    ``description``: by default the docstring.
    ``effect``: ``read`` changes nothing and may be called again freely.
    ``keyed``: the other side honours the idempotency key; by default, if a parameter is named ``idempotency_key``.
    ``key_ttl_s``: seconds for which it remembers a key; ``None`` is for ever.
    ``undo``, ``probe``: the tools that take this one back, and that tell whether a call happened (names or functions).
    ``timeout_s``: seconds for one attempt. ``retry``: how often and how fast.
    ``resource``: the key of what a call touches, ``"user:{user_id}"`` or a function of the params; calls with the same
    key run one at a time. ``max_concurrency``: calls of this tool at once. Both hold within this process.
    ``compensates``: a planner may use it in a compensation that it makes up.
    ``tolerates_absence``: as an undo, it succeeds when there is nothing to undo.
    ``input_schema``, ``output_schema``: JSON Schema, where the signature cannot say it.
    ``tags``: words to choose tools by.

    Raises ``ToolInvalid`` when the declaration contradicts itself.
    """
    options = {key: value for key, value in locals().items() if key != "function"}
    if function is None:
        return lambda decorated: Tool(decorated, **options)
    return Tool(function, **options)


# --- checks --------------------------------------------------------------------------------------------------------


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _name_of(function: Callable[..., Any]) -> str:
    function = _named(function)
    return getattr(function, "__name__", type(function).__name__)


def _doc_of(function: Callable[..., Any]) -> str:
    return inspect.getdoc(_named(function)) or ""


def _copied_schema(schema: Any, label: str, what: str) -> dict[str, Any] | None:
    """A given schema as JSON of its own, so that nobody can change it afterwards."""
    if schema is None:
        return None
    hint = "write a JSON Schema object"
    if not isinstance(schema, dict):
        raise ToolInvalid(f"the {what} of tool {label!r} is no object", hint=hint, tool=label)
    if what == "input_schema" and schema.get("type", "object") != "object":
        raise ToolInvalid(f"the input_schema of tool {label!r} must have the type 'object'", hint=hint, tool=label)
    try:
        copy: dict[str, Any] = json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolInvalid(f"the {what} of tool {label!r} is no JSON: {error}", hint=hint, tool=label) from error
    return copy


def _invalid(it: AnyTool, problem: str, hint: str) -> ToolInvalid:
    return ToolInvalid(f"tool {it.name!r}: {problem}", hint=hint, tool=it.name)


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def _refuse_contradictions(it: AnyTool, keyed: Any) -> None:
    """Refuse what can be seen to be wrong without looking at annotations."""
    if not isinstance(it.name, str) or not NAME_PATTERN.fullmatch(it.name):
        raise _invalid(
            it,
            "its name is not usable",
            "give name=…: a letter or underscore, then letters, digits, '_', '.' or '-', at most 64 characters",
        )
    if it.effect not in ("read", "write"):
        raise _invalid(it, f"effect={it.effect!r} has no meaning", "use 'read' or 'write'")
    if not isinstance(keyed, bool | None):
        raise _invalid(it, f"keyed={keyed!r} has no meaning", "use True, False or None")
    if not _seconds(it.timeout_s):
        raise _invalid(it, f"timeout_s={it.timeout_s!r} is no time", "give a positive number of seconds")
    if it.key_ttl_s is not None and not _seconds(it.key_ttl_s):
        raise _invalid(it, f"key_ttl_s={it.key_ttl_s!r} is no time", "give a positive number of seconds, or None")
    _refuse_bad_retry(it)
    _refuse_bad_limits(it)
    for option in ("compensates", "tolerates_absence"):
        if not isinstance(getattr(it, option), bool):
            raise _invalid(it, f"{option} must be True or False", f"remove it or write {option}=True")
    if not all(isinstance(tag, str) for tag in it.tags):
        raise _invalid(it, "tags must be texts", "write tags=('travel', 'paid')")
    for option in ("undo", "probe"):
        other = getattr(it, option)
        if other is not None and not isinstance(other, str) and not callable(other):
            raise _invalid(it, f"{option}={other!r} is neither a name nor a function", "name a tool")
        if other is not None and (other in (it.name, it.function) or getattr(other, "name", None) == it.name):
            raise _invalid(it, f"it is its own {option}", f"the {option} is another tool")
    if it.effect == "read" and it.undo is not None:
        raise _invalid(it, "it reads, so there is nothing to undo", "remove undo, or declare effect='write'")
    if it.effect == "read" and it.tolerates_absence:
        raise _invalid(it, "it reads, so it can be no undo", "remove tolerates_absence, or declare effect='write'")
    parameters(it.function, it.name)


def _refuse_bad_retry(it: AnyTool) -> None:
    retry = it.retry
    if not isinstance(retry, RetryPolicy):
        raise _invalid(it, f"retry={retry!r} is no RetryPolicy", "write retry=RetryPolicy(max_attempts=4)")
    attempts = retry.max_attempts
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise _invalid(it, f"retry.max_attempts={attempts!r} allows no call", "it counts the first attempt: at least 1")
    for option in ("base_s", "max_s"):
        value = getattr(retry, option)
        if value != 0 and not _seconds(value):
            raise _invalid(it, f"retry.{option}={value!r} is no time", "give a number of seconds, 0 or more")


def _refuse_bad_limits(it: AnyTool) -> None:
    limit = it.max_concurrency
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise _invalid(it, f"max_concurrency={limit!r} lets no call through", "give a whole number of at least 1")
    if it.resource is None or callable(it.resource):
        return
    if not isinstance(it.resource, str) or not it.resource:
        raise _invalid(it, f"resource={it.resource!r} is no key", "write 'user:{user_id}', or a function of the params")
    try:
        template_fields(it.resource)
    except ValueError as error:
        raise _invalid(it, f"its resource {it.resource!r} is no template: {error}", "write 'user:{user_id}'") from error
