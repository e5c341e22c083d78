"""What a model is offered: a catalog's tools in the form of a chat API, for agents that loop by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from saga_engine.errors import ToolMissing
from saga_engine.plan.tool_spec import ToolSpec, only_helpers

_WORDS_CHARS: Final = 1_000


def described(spec: ToolSpec) -> str:
    """A tool's description for a model, with its ``use_when``, ``not_when`` and ``returns``."""
    words = {"Use when": spec.use_when, "Not when": spec.not_when, "Returns": spec.returns}
    more = [f"{name}: {text[:_WORDS_CHARS]}" for name, text in words.items() if text]
    return "\n".join([spec.description or spec.name, *more]) if more else spec.description


class ModelTools:
    """The part of a registry that models see."""

    def openai_tools(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """The tools as ``tools`` of OpenAI's chat completions, and of every API of this form.

        ``names``: only these; without it all but those that only undo or probe others, which the engine calls. Raises
        ``ToolMissing``.
        """
        return [
            {
                "type": "function",
                "function": {"name": spec.name, "description": described(spec), "parameters": spec.input_schema},
            }
            for spec in self._offered(names)
        ]

    def anthropic_tools(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """The tools as ``tools`` of Anthropic's messages; ``names`` as for ``openai_tools``. Raises ``ToolMissing``."""
        return [
            {"name": spec.name, "description": described(spec), "input_schema": spec.input_schema}
            for spec in self._offered(names)
        ]

    def _offered(self, names: Iterable[str] | None) -> list[ToolSpec]:
        hidden = only_helpers(self) if names is None else frozenset[str]()
        chosen = self.names() if names is None else list(names)
        found = {name: self.spec(name) for name in chosen if name not in hidden}
        for name, spec in found.items():
            if spec is None:
                raise ToolMissing(f"no tool is called {name!r} here", hint="register it", tool=name)
        return [spec for spec in found.values() if spec is not None]

    def names(self) -> Sequence[str]:
        """The names of all tools."""
        raise NotImplementedError

    def spec(self, name: str) -> ToolSpec | None:
        """The declaration of a tool."""
        raise NotImplementedError
