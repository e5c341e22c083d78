"""The params of a registered undo, where the plan gives none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from saga_engine.errors import BindingUnresolved
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from saga_engine.plan.bindings import Template
    from saga_engine.plan.compiled import Scope


class UndoParams:
    """The params of a registered undo that the plan does not specify.

    Each parameter of the undo gets the field of that name in the step's output, else the step's own param of that name.
    After a before-image was read it gets the field of the before-image if the call had such a param or the output has
    no such field, and the step's own param only if the read had it, too: the others are what the call changed.

    A parameter that none of these has is omitted or, if the undo requires it, raises ``BindingUnresolved``. The same
    error is raised for an undo that names parameters and gets none of them: called without them, it would undo nothing
    and report success.
    """

    __slots__ = (
        "_forward_secrets", "_key", "_names", "_read", "_required",
        "bound", "outputs", "outputs_or_default", "raw", "secret_params", "secrets",
    )  # fmt: skip

    def __init__(
        self, schema: Mapping[str, Any] | None, key: str, forward: Template, read: Iterable[str] | None = None
    ) -> None:
        """``schema`` is the undo's input schema. Without one (the tool is unknown here) the undo needs the output.

        ``read``: the params of the read of the before-image; None: there is none.
        """
        self._read = None if read is None else frozenset(read)
        properties, required = (schema.get("properties"), schema.get("required")) if schema else (None, None)
        names = list(properties) if isinstance(properties, dict) else []
        self._required = frozenset([name for name in names if name in required] if isinstance(required, list) else ())
        self._names = tuple(names)
        self._key = key
        # The stored params do not hold the secrets themselves, so these are resolved again.
        nodes = forward.secret_nodes()
        self._forward_secrets = {name: nodes[name][0] for name in names if name in nodes}
        self.bound = True
        self.raw: dict[str, Any] = {}
        self.secrets = frozenset(secret for name in self._forward_secrets for secret in nodes[name][1])
        self.secret_params = frozenset(self._forward_secrets)
        needs_output = schema is None or not forward.raw.keys() >= self._required
        needs_output = needs_output or (bool(names) and forward.raw.keys().isdisjoint(names))
        needs_output = needs_output and self._read is None
        self.outputs = self.outputs_or_default = frozenset({key} if needs_output else ())

    def are(self, raw: Mapping[str, Any]) -> bool:
        """Whether params that are written like this have the same values whenever they have any."""
        if self._read is not None:
            return False
        return bool(self._names) and raw == {name: f"$output.step_{self._key}.{name}" for name in self._names}

    def _image(self, scope: Scope) -> Any:
        try:
            return scope.before(self._key)
        except BindingUnresolved:
            return None  # there was nothing, or nothing was read

    def resolve(self, scope: Scope) -> dict[str, Any]:
        """The params of the undo. Raises ``BindingUnresolved``."""
        try:
            output = scope.output(self._key)
        except BindingUnresolved:
            if self.outputs:
                raise
            # It is unknown whether the step happened, and the undo can be called without its output.
            output = None
        fields = output if isinstance(output, dict) else {}
        given: Mapping[str, Any] | None = None
        if self._read is not None:
            given = scope.params(self._key)
            image = self._image(scope)
            found = image if isinstance(image, dict) else {}
            fields = fields | {name: value for name, value in found.items() if name in given or name not in fields}
            given = {name: value for name, value in given.items() if name in self._read}
        made: dict[str, Any] = {}
        for name in self._names:
            if name in fields:
                made[name] = fields[name]
                continue
            if given is None:
                given = scope.params(self._key)
            if name in self._forward_secrets:
                made[name] = self._forward_secrets[name].get(scope)
            elif name in given:
                made[name] = given[name]
            elif name in self._required:
                raise BindingUnresolved(
                    f"the undo requires '{name}', which step {self._key} has neither in its output nor in its params",
                    hint="add a rollback with params to the step",
                    binding=name,
                    step=self._key,
                )
        if self._names and not made:
            raise BindingUnresolved(
                f"the undo would get no params: neither the output nor the params of step {self._key} have any of "
                f"{cut(', '.join(self._names), 200)}",
                hint="add a rollback with params to the step",
                binding=self._names[0],
                step=self._key,
            )
        return made
