"""The steps of a session: calls that an agent makes one after the other, with values instead of bindings.

An agent's values may come from a model or from another tool, so the engine never searches them for bindings or secrets.
Only the params of an undo may bind, and only to the output and the key of the call itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from saga_engine.errors import BindingUnresolved
from saga_engine.plan import jsonpath
from saga_engine.plan.bindings import Template, UndoParams
from saga_engine.plan.compiled import CompiledRollback, CompiledStep, Kind, Params, Scope
from saga_engine.plan.compiler import undo_retry
from saga_engine.plan.problems import Problems
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
from saga_engine.plan.values import cut

_DEFAULT = ToolSpec(name="")
_OWN = re.compile(r"\$output(?![^.\[])")


def compile_call(
    index: int,
    key: str,
    tool: str,
    params: dict[str, Any],
    *,
    deps: tuple[int, ...],
    catalog: ToolCatalog | None,
    undo: str | None,
    undo_params: Mapping[str, Any] | None,
    kind: Kind,
    timeout_s: float | None,
) -> CompiledStep:
    """One call as a step. Raises ``PlanInvalid`` for an invalid path in its undo's params."""
    spec = catalog.spec(tool) if catalog is not None else None
    values = Template(params, None, ())
    declared = spec or _DEFAULT
    return CompiledStep(
        index=index,
        step_id=int(key) if key.isdecimal() else key,
        key=key,
        name=tool,
        kind=kind,
        tool=tool,
        spec=spec,
        params=values,
        rollback=None if undo is None else _rollback(key, undo, undo_params, values, catalog, declared.undo),
        retry=declared.retry,
        timeout_s=declared.timeout_s if timeout_s is None else timeout_s,
        deps=deps,
        data_deps=frozenset(deps),
    )


def _rollback(  # noqa: PLR0917
    key: str,
    undo: str,
    given: Mapping[str, Any] | None,
    forward: Template,
    catalog: ToolCatalog | None,
    registered: str | None,
) -> CompiledRollback:
    spec = catalog.spec(undo) if catalog is not None else None
    usual: Params | None = None
    if given is None or undo == registered:
        usual = UndoParams(spec.input_schema if spec is not None else None, key, forward)
    params = OwnOutput(key, dict(given or {})) if given is not None or usual is None else usual
    declared = spec or _DEFAULT
    return CompiledRollback(
        tool=undo,
        spec=spec,
        params=params,
        retry=undo_retry(declared.retry),
        timeout_s=declared.timeout_s,
        needs_output=key in params.outputs,
        usual=usual if undo == registered else None,
    )


class OwnOutput:
    """The params of an undo that an agent gave: values, except where a whole text binds.

    ``$output`` with a path is the call's own output, ``$key`` its idempotency key. An undo that binds only the key
    needs no output, so it can undo a call in doubt.

    Raises ``PlanInvalid`` for an invalid path.
    """

    __slots__ = ("_by_key", "_key", "_tails", "bound", "outputs", "raw", "secret_params", "secrets")

    def __init__(self, key: str, given: dict[str, Any]) -> None:
        self.raw = given
        self._key = key
        self._tails: dict[str, jsonpath.Tail | None] = {}
        self._by_key = False
        self._collect(given)
        self.bound = bool(self._tails) or self._by_key
        self.outputs = frozenset({key} if self._tails else ())
        self.secrets: frozenset[str] = frozenset()
        self.secret_params: frozenset[str] = frozenset()

    def resolve(self, scope: Scope) -> dict[str, Any]:
        """The params of the undo. Raises ``BindingUnresolved``."""
        if not self.bound:
            return self.raw
        output = scope.output(self._key) if self._tails else None
        found: dict[str, Any] = self._filled(self.raw, output, scope.key(self._key))
        return found

    def _collect(self, value: Any) -> None:
        if value == "$key":
            self._by_key = True
        elif isinstance(value, str) and _OWN.match(value):
            rest = value.removeprefix("$output")
            tail = jsonpath.parse(rest) if rest else None
            if isinstance(tail, jsonpath.TailFault):
                problems = Problems()
                problems.add(tail.code, ("undo",), f"{cut(value, 120)}: {tail.message}", tail.hint)
                problems.refuse()
            self._tails[value] = tail
        elif isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                self._collect(item)

    def _filled(self, value: Any, output: Any, own_key: str) -> Any:
        if value == "$key":
            return own_key
        if isinstance(value, str) and value in self._tails:
            tail = self._tails[value]
            if tail is None:
                return output
            try:
                return jsonpath.find(output, tail)
            except jsonpath.Mismatch as mismatch:
                raise BindingUnresolved(f"{cut(value, 120)}: {mismatch}", binding=value, step=self._key) from mismatch
        if isinstance(value, dict):
            return {name: self._filled(item, output, own_key) for name, item in value.items()}
        if isinstance(value, list):
            return [self._filled(item, output, own_key) for item in value]
        return value
