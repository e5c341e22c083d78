"""``@tool`` declares the effect of a function and how the engine may call it."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from saga_engine.core.redaction import Redaction
from saga_engine.errors import ToolInvalid
from saga_engine.plan.absence import read_absence
from saga_engine.plan.expect import filled
from saga_engine.plan.tool_spec import BreakerPolicy, ToolSpec
from saga_engine.plan.undo_check import read_undo_check
from saga_engine.plan.values import digest
from saga_engine.tools.declaration import refuse, refuse_contradictions, refuse_lookalikes, signs, undo_calls
from saga_engine.tools.docstrings import read_docstring
from saga_engine.tools.limits import template_fields, templates_of
from saga_engine.tools.options import LINKS, OPTIONS, PLAIN, FailedCheck, PlainOptions, ToolOptions, refuse_unknown
from saga_engine.tools.schema_check import OutputCheck, SchemaCheck, compile_schema
from saga_engine.tools.signature import KEY_PARAMETER, Signature, parameters, read_signature, shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

P = ParamSpec("P")
R = TypeVar("R")


class Tool(PlainOptions, Generic[P, R]):
    """A function with its declaration. Calling it calls the function, so a test can use it like one.

    All options of ``tool`` are attributes. ``signature`` and ``spec()`` are computed at the first use, so that
    annotations may name types that the module defines later.
    """

    def __init__(self, function: Callable[P, R], *, declared: bool = True, **options: Unpack[ToolOptions]) -> None:
        refuse_unknown(options)
        super().__init__(**{name: value for name, value in options.items() if name in PLAIN})  # type: ignore[arg-type]
        self.name: str = ""
        if isinstance(function, Tool):
            raise ToolInvalid(f"{function.name!r} is a tool already", hint="decorate it once", tool=function.name)
        if not callable(function) or isinstance(function, type):
            raise ToolInvalid(
                f"a {type(function).__name__} is no tool", hint="decorate a function or a callable object"
            )
        if _yields(function):
            raise ToolInvalid(
                "a generator is no tool: its body would only run while somebody takes its values",
                hint="return the whole result, as a list for example",
                tool=getattr(function, "__name__", ""),
            )
        self.function = function
        name = options.get("name")
        self.name = _name_of(function) if name is None else name
        #: Whether the author declared it; ``False`` for a plain function that a registry made a tool.
        self.declared = declared
        # The author could later change a list that they passed.
        resource = options.get("resource")
        self.resource = tuple(resource) if isinstance(resource, list) else resource
        breaker = options.get("breaker", False)
        #: The policy of the circuit breaker; ``None`` if the tool has none.
        self.breaker: BreakerPolicy | None = (
            BreakerPolicy() if breaker is True else None if breaker is False else breaker
        )
        self.not_done = signs(options.get("not_done", ()))
        self.unknown = signs(options.get("unknown", ()))
        self.sensitive = _words(options.get("sensitive", ()))
        self.redact = _words(options.get("redact", ()))
        self.tags = _words(options.get("tags", ()))
        self._keyed = options.get("keyed")
        self._given_input = _copied_schema(options.get("input_schema"), self.name, "input_schema")
        self._given_output = _copied_schema(options.get("output_schema"), self.name, "output_schema")
        found = parameters(function, self.name)
        self._documented = read_docstring(_doc_of(function), found)
        description = options.get("description")
        self.description = self._documented.description if description is None else _clean(description)
        self.use_when = _clean(options.get("use_when", ""))
        self.not_when = _clean(options.get("not_when", ""))
        self.returns = _clean(options.get("returns", "")) or self._documented.returns
        self._specs: dict[tuple[str | None, ...], ToolSpec] = {}
        functools.update_wrapper(self, function, updated=())
        refuse_contradictions(self.name, function, self.options())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without a time-out and without interpreting the result."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R]:
        """In a class: the tool of the bound method."""
        if instance is None or not hasattr(self.function, "__get__"):
            return self
        options = self.options()
        function: Any = self.function
        for role in LINKS:
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
        """Everything that was declared, as the arguments of ``tool``."""
        changed = {
            "keyed": self._keyed,
            "breaker": False if self.breaker is None else self.breaker,
            "input_schema": self._given_input,
            "output_schema": self._given_output,
        }
        return {name: changed[name] if name in changed else getattr(self, name) for name in (*OPTIONS, "declared")}

    @functools.cached_property
    def signature(self) -> Signature:
        """The parameters and the return type of the function. Raises ``ToolInvalid``."""
        signature = read_signature(
            self.function,
            self.name,
            self._given_input,
            self._given_output,
            self._documented.params,
            filled(self.expect),
        )
        for hidden in self.sensitive:
            if signature.accepts is not None and hidden not in signature.accepts:
                known = ", ".join(sorted(signature.accepts)) or "none"
                refuse(self.name, f"sensitive names {hidden!r}, which is no parameter", f"parameters: {known}")
        refuse_lookalikes(self.name, self.options(), signature.accepts)
        if callable(self.resource) or signature.accepts is None:
            return signature
        for field in [field for template in templates_of(self.resource) for field in template_fields(template)]:
            if field not in signature.accepts:
                known = ", ".join(sorted(signature.accepts)) or "none"
                refuse(self.name, f"its resource names {field!r}, which is no parameter", f"parameters: {known}")
        return signature

    @property
    def keyed(self) -> bool:
        """Whether the remote system honours the idempotency key."""
        return self.signature.wants_key if self._keyed is None else self._keyed

    def hidden_params(self) -> tuple[str, ...]:
        """The parameters whose values no view shows, whichever way they were marked."""
        return tuple(sorted({*self.sensitive, *self.signature.sensitive}))

    @functools.cached_property
    def redaction(self) -> Redaction | None:
        """What replaces the redacted fields of an output; None: none are."""
        return Redaction([f"output.{rule}" for rule in self.redact]) if self.redact else None

    def defaults(self) -> Mapping[str, Any]:
        """The defaults of the parameters that have one."""
        found = parameters(self.function, self.name)
        return {name: p.default for name, p in found.items() if p.default is not p.empty}

    def spec(
        self,
        undo: str | None = None,
        probe: str | None = None,
        before: str | None = None,
        undo_absent: str | None = None,
    ) -> ToolSpec:
        """The declaration as the plan uses it, with the names of the tools that it names. Raises ``ToolInvalid``."""
        links = (undo, probe, before, undo_absent)
        spec = self._specs.get(links)
        if spec is None:
            spec = self._specs[links] = self._made_spec(*links)
        return spec

    def _made_spec(self, undo: str | None, probe: str | None, before: str | None, undo_absent: str | None) -> ToolSpec:
        signature = self.signature
        given = self._given_input is not None
        check = SchemaCheck(
            self.name,
            signature.input_schema,
            hidden=signature.hidden,
            coercions=signature.coercions,
            formats=given,
            sensitive=frozenset(self.hidden_params()),
        )
        # Schemas derived from a signature are valid by construction; hand-written ones are compiled now.
        if given:
            check.compile()
        if self._given_output is not None:
            compile_schema(self._given_output, self.name, "output_schema", formats=False)
        output = OutputCheck(self.name, signature.output_schema)
        if self.key_ttl_s is not None and not self.keyed:
            refuse(self.name, "it has key_ttl_s but honours no key", f"add keyed=True or a parameter {KEY_PARAMETER}")
        # The digest excludes text for readers: a better docstring does not make another tool.
        returned = None if signature.output_schema is None else shape(signature.output_schema)
        identity = [self.name, shape(signature.input_schema), returned, self.effect, self.keyed]
        identity += [self.version] if self.version else []
        return ToolSpec(
            name=self.name,
            description=self.description,
            effect=self.effect,
            keyed=self.keyed,
            told_key=signature.wants_key or bool(signature.context),
            key_ttl_s=self.key_ttl_s,
            undo=undo,
            undo_params=None if self.undo_params is None else dict(self.undo_params),
            undo_each=self.undo_each,
            undo_then=undo_calls(self.undo_then),
            probe=probe,
            before=before,
            after=self.after,
            absent=None if self.absent is None else read_absence(self.absent),
            undo_absent=undo_absent,
            sole_writer=self.sole_writer,
            expect=self.expect if self.expect is None or isinstance(self.expect, str) else dict(self.expect),
            undo_check=None if self.undo_check is None else read_undo_check(self.undo_check),
            verify=self.verify,
            verify_within_s=float(self.verify_within_s),
            resource=None if callable(self.resource) else templates_of(self.resource),
            hold=self.hold is not None,
            timeout_s=float(self.timeout_s),
            retry=self.retry,
            compensates=self.compensates,
            tolerates_absence=self.tolerates_absence,
            undoes_by_key=bool(signature.context) and not signature.input_schema.get("properties"),
            on_doubt=self.on_doubt,
            says_refusals=bool(self.not_done) or self.raised is not None,
            semantic=self.semantic,
            remembers=self.dedupe_ttl_s is not None,
            last_good_s=self.last_good_s,
            sensitive=self.hidden_params(),
            redact=self.redact,
            use_when=self.use_when,
            not_when=self.not_when,
            returns=self.returns,
            tags=self.tags,
            declared=self.declared,
            input_schema=signature.input_schema,
            output_schema=signature.output_schema,
            digest=digest(identity)[:12],
            check_params=check,
            check_output=output,
        )


__all__ = ["AnyTool", "FailedCheck", "Tool", "tool"]

AnyTool = Tool[..., Any]


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a function a tool: ``@tool``, ``@tool(...)``, or ``tool(function, ...)``.

    ``name``: letters, digits and ``_.-``, at most 64. Default: the function's.
    ``description``: for the planner: what the tool does. Default: the docstring.
    ``use_when``, ``not_when``: when to choose it, and when to choose another.
    ``returns``: a description of the output. Default: ``Returns:`` of the docstring.
    ``effect``: ``"read"`` changes nothing and may be called again freely. Default: ``"write"``.
    ``keyed``: the remote side honours the idempotency key. Default: if a parameter is named ``idempotency_key``.
    ``key_ttl_s``: seconds for which it remembers a key; ``None`` is for ever.
    ``undo``: the tool that undoes this one, by name or function.
    ``undo_params``: what the undo is called with, where the names of its parameters are not those of the output or of
    the call: ``{"id": "$output.order_id"}``. A whole text may bind: ``$output`` and ``$before`` (each with a path),
    ``$params.NAME``, which is what the call itself got, or ``$key``. A text that only resembles a binding, such as
    ``{{sku}}`` or ``$input.sku``, is refused.
    ``undo_each``: a list, such as ``"$output.items"``: the undo is called once for each item, which ``"$item"`` and
    ``"$index"`` bind in ``undo_params``.
    ``undo_then``: calls that follow it, in order: ``[{"tool": "cancel", "params": {"id": "$output.id"}}]``, at most 8,
    also with ``each``.
    ``probe``: the tool that reports whether a call happened, by name or function.
    ``before``: the tool that reads what a call is about to change, a function or a name. The engine calls it before the
    call, with the call's params of the same names; its answer is the before-image, which the undo may bind as
    ``$before``. Before the undo the engine reads again, and asks an operator if somebody else changed the value.
    ``after``: ``"output"``: the call's output is the new value, in the form of the read. Default: it is read again.
    ``absent``: which answers of the read mean that there was nothing yet: ``{"error_code": "not_found"}``, ``{"null":
    True}`` or ``{"fields": {"exists": False}}``.
    ``undo_absent``: the undo in that case, which removes what the call created.
    ``sole_writer``: nothing but this tool and its undo changes the value, so that reading it settles a call in doubt.
    ``expect``: ``"$before"``: a call is made only if ``before`` still shows what its saga last read, else it is not
    done (``changed_meanwhile``). ``{"version": "$before.version"}``: the other side compares, told by this parameter.
    ``undo_check``: what a read shows after the undo: ``{"tool": get_order, "params": {"id": "$output.id"}, "shows":
    {"fields": {"status": "void"}}}``, as in ``absent``. Default: the read of ``before``, or the undo's probe.
    ``verify``, ``verify_within_s``: whether to look after the undo (yes), and how long it may show the old value (0 s).
    ``timeout_s``: seconds for one attempt. Default: ``30.0``.
    ``retry``: a ``RetryPolicy``. Default: 4 attempts, 1 s to 30 s, jitter.
    ``resource``: the keys of what a call touches: ``"user:{user_id}"``, several of these, or a function of the params.
    ``hold``, ``hold_max_s``: ``"saga"``: the saga keeps them until its end; after so many seconds that is overdue.
    ``max_concurrency``: concurrent calls of this tool in one process.
    ``rate``: ``"10/s"``: calls of this tool in all processes, per ``s``, ``min``, ``h`` or ``d``.
    ``breaker``: ``True`` or a ``BreakerPolicy(failures=3, open_s=30)``: pauses the tool after failures in a row.
    ``dedupe_ttl_s``: writes: seconds for which an identical call of another saga receives the result of this one.
    ``last_good_s``: reads: seconds for which a step's ``fallback`` may use the last good result.
    ``cost``: what a call costs, for budgets: amounts by unit, or fields of its output: ``{"usd": "$output.price"}``.
    ``compensates``: a planner may use it in a semantic compensation.
    ``tolerates_absence``: as an undo, it succeeds when there is nothing to undo.
    ``not_done``, ``unknown``: exceptions (classes, or names such as ``"shop.SoldOut"``) and HTTP statuses that mean so.
    ``raised``: what an exception means that is no statement of the tool: ``"unknown"``, the engine finds out (the
    default with a key or a probe); ``"not-done"``, what the tool's own module raises outright is its refusal, and only
    the rest is unknown. Default: by key and probe.
    ``failed``: a function that decides whether a result is an error: for an error it returns a true value, a message, a
    dict with the fields of ``ToolError``, or a ``ToolError``.
    ``on_doubt``: ``"undo"``: a call in doubt that nothing else can settle turns the saga around, if its rollback
    cancels by ``$key`` (or looks first, after a before-image) and tolerates absence. Default: ``"ask"``.
    ``late_s``: seconds for which the engine waits for the thread of a plain function after its time-out, before it asks
    an operator. Default: ``timeout_s``, at least 30.
    ``semantic``: the tool's role in semantic compensation: ``"auto"``, ``"approve"`` or ``"never"``; ``None``: the
    engine's default. A tool that says ``"auto"`` or ``"approve"`` and has no ``undo`` leaves its compensation to the
    model.
    ``version``: change it when the tool's meaning changes: a fork then reuses no result of the old version. A running
    saga checks its params again.
    ``input_schema``, ``output_schema``: JSON Schema (Draft 2020-12, or what its ``$schema`` names), if the signature
    cannot express it. Default: by signature.
    ``sensitive``: parameters whose values no view shows.
    ``redact``: fields of the output that never reach the journal, as dotted paths: ``("card.number", "items.*.ssn")``.
    ``tags``: words to select tools by.

    Raises ``ToolInvalid`` if the declaration contradicts itself.
    """
    refuse_unknown(options)
    return Tool(function, **options) if function is not None else lambda decorated: Tool(decorated, **options)


# --- parts of a declaration ------------------------------------------------------------------------------------------


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _name_of(function: Callable[..., Any]) -> str:
    function = _named(function)
    return getattr(function, "__name__", type(function).__name__)


def _doc_of(function: Callable[..., Any]) -> str:
    return inspect.getdoc(_named(function)) or ""


def _clean(text: Any) -> Any:
    """A text without the indentation of its source; a value that is not text is refused later."""
    return inspect.cleandoc(text) if isinstance(text, str) else text


def _yields(function: Callable[..., Any]) -> bool:
    """Whether a call makes a generator, whose body has not begun when the call returns."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    called = inner if inspect.isroutine(inner) else type(inner).__call__
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def _words(given: Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _copied_schema(schema: Any, label: str, what: str) -> dict[str, Any] | None:
    """A given schema as a JSON copy, so that nobody can change it afterwards."""
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
