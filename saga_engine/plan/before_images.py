"""The params of the read that shows a value before a call changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saga_engine.plan.bindings import Template
    from saga_engine.plan.compiled import Scope


class ReadParams:
    """The params of a before-image's read that nobody wrote: the call's params of the same names."""

    __slots__ = (
        "_forward",
        "_names",
        "_nodes",
        "bound",
        "outputs",
        "outputs_or_default",
        "raw",
        "secret_params",
        "secrets",
    )

    def __init__(self, schema: Mapping[str, Any] | None, forward: Template) -> None:
        """``schema`` is the read's input schema; without properties it takes every param."""
        properties = schema.get("properties") if schema else None
        names = list(properties) if isinstance(properties, dict) else list(forward.raw)
        self._forward = forward
        self._names = tuple(name for name in names if name in forward.raw)
        self._nodes = {name: each for name, each in forward.secret_nodes().items() if name in self._names}
        self.bound = forward.bound
        self.raw: dict[str, Any] = {name: forward.raw[name] for name in self._names}
        self.secrets = frozenset(secret for _, names_ in self._nodes.values() for secret in names_)
        self.secret_params = frozenset(self._nodes)
        self.outputs, self.outputs_or_default = forward.outputs, forward.outputs_or_default

    def resolve(self, scope: Scope) -> dict[str, Any]:
        """The params of the read. Raises ``BindingUnresolved``."""
        made = self._forward.resolve(scope)
        return {name: made[name] for name in self._names}
