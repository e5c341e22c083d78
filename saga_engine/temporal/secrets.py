"""Secrets and Temporal: only marks pass through it, and the worker that makes the call inserts the values.

Many people read a history. For a secret it contains a mark with a number that occurs nowhere else in the params, so a
tool's output, which an attacker may have written, can never pass for a mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from saga_engine.core.state import State, StateScope
from saga_engine.plan.compiled import Params
from saga_engine.plan.values import canonical


class Marked(NamedTuple):
    """Resolved params: ``masked`` for display, ``params`` with marks made of ``nonce`` for ``names``."""

    params: dict[str, Any]
    masked: dict[str, Any] | None = None
    nonce: str = ""
    names: tuple[str, ...] = ()


class _MarkingScope(StateScope):
    __slots__ = ("_nonce",)

    def __init__(self, state: State, nonce: str) -> None:
        super().__init__(state)
        self._nonce = nonce

    def secret(self, name: str) -> str:
        return f"⟪{self._nonce}:{name}⟫"


def marked(state: State, template: Params, bits: Callable[[int], int]) -> Marked:
    """The params of a call; ``bits(n)`` gives n random bits. Raises ``BindingUnresolved``."""
    masked = template.resolve(StateScope(state))
    if not template.secrets:
        return Marked(masked)
    text = canonical(masked).decode()
    nonce = f"{bits(128):032x}"
    while nonce in text:
        nonce = f"{bits(128):032x}"
    names = tuple(sorted(template.secrets))
    return Marked(template.resolve(_MarkingScope(state, nonce)), masked, nonce, names)


def filled(params: dict[str, Any], nonce: str, values: Mapping[str, str]) -> dict[str, Any]:
    """The params with the secrets' values in place of their marks."""
    mark = re.compile(f"⟪{re.escape(nonce)}:({'|'.join(map(re.escape, values))})⟫")

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return mark.sub(lambda found: values[found[1]], value) if nonce in value else value
        if isinstance(value, dict):
            return {name: fill(item) for name, item in value.items()}
        if isinstance(value, list):
            return [fill(item) for item in value]
        return value

    return {name: fill(value) for name, value in params.items()}
