"""Typed ids of sagas: an unambiguous beginning is enough."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from saga_engine.errors import SagaNotFound
    from saga_engine.settings import Settings

#: Fewer characters are more likely a typing error than an abbreviation.
_LEAST_CHARS: Final = 4
_MOST_SAGAS: Final = 100_000
_MOST_NAMED: Final = 5
#: How long a shell waits for completions.
_PATIENCE_S: Final = 0.5


def whole_id(error: SagaNotFound, options: dict[str, Any]) -> str | None:
    """The one id that begins with the typed text, for a saga that was not found; None if there is none.

    Raises ``SagaNotFound`` with the ids if there are several.
    """
    typed = options.get("saga_id")
    if not isinstance(typed, str) or error.context.get("saga_id") != typed:
        return None
    from saga_engine.cli.output import note, shown
    from saga_engine.cli.read_only import no_store
    from saga_engine.settings import load

    settings = load({"store": options.get("store"), "runtime": options.get("runtime")})
    if settings.runtime or no_store(settings) is not None:
        return None  # Temporal's list lags behind, so it cannot prove that an id is unique
    if len(typed) < _LEAST_CHARS:
        hint = f"{error.hint}; a prefix of an id needs {_LEAST_CHARS} or more characters"
        raise type(error)(error.message, hint=hint, **error.context)
    found = [each for each in asyncio.run(_ids(settings, settings.patience_s)) if each.startswith(typed)]
    if not found:
        return None
    if len(found) > 1:
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise type(error)(
            f"{len(found)} sagas have ids that begin with {typed}",
            hint=f"write more of it: {', '.join(sorted(found)[:_MOST_NAMED])}{more}",
            saga_id=typed,
        )
    note(f"saga {shown(found[0])}")
    return found[0]


def complete(incomplete: str) -> list[str]:
    """The ids for a shell's completion. An unavailable store offers none, and none is started."""
    from saga_engine.cli.read_only import no_store
    from saga_engine.settings import load

    try:
        settings = load({})
        if settings.runtime or no_store(settings) is not None:
            return []
        return [each for each in asyncio.run(_ids(settings, _PATIENCE_S)) if each.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a shell that completes a word has no place for an error
        return []


async def _ids(settings: Settings, patience_s: float) -> list[str]:
    from dataclasses import replace

    from saga_engine.cli.read_only import reading_from

    async with reading_from(replace(settings, patience_s=patience_s)) as store:
        return [head.saga_id for head in await store.list(None, _MOST_SAGAS)]
