"""The values of secrets for a call that is about to be made: read from the environment, and never journalled."""

from __future__ import annotations

import os

from saga_engine.core.state import State, StateScope
from saga_engine.errors import SecretMissing
from saga_engine.language.errors import said


class SecretScope(StateScope):
    """The scope of a call that is about to be made: secrets have their values, read from the environment now."""

    __slots__ = ("seen",)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.seen: dict[str, str] = {}

    def secret(self, name: str) -> str:
        """The value; raises ``SecretMissing``."""
        value = secret_value(name)
        self.seen[name] = value
        return value


def secret_value(name: str) -> str:
    """The secret's value from the environment; raises ``SecretMissing``."""
    value = os.environ.get(name)
    if value is None:
        raise SecretMissing(
            said("any.secret", name=name),
            hint=said("any.secret-hint", name=name),
            secret=name,
        )
    return value
