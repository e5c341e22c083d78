"""``saga mcp observe``: an agent's calls go to the servers as they are, and are written down."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saga_engine.cli import exit_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saga_engine.settings import Settings


def observe(settings: Settings, names: Sequence[str], to: Path | None) -> int:
    """Serve until the client leaves; on stderr, what it called. Raises ``SettingInvalid``."""
    from saga_engine.cli.accept import chosen
    from saga_engine.cli.drive import on_stop_signals
    from saga_engine.cli.options import servers_of
    from saga_engine.cli.output import note, shown
    from saga_engine.errors import SettingInvalid
    from saga_engine.gateway.observe import Observer
    from saga_engine.gateway.stdio import stdio_streams

    servers = chosen(servers_of(settings), names)
    count: Counter[tuple[str, str]] = Counter()
    try:
        file = None if to is None else to.open("a", encoding="utf-8")
    except OSError as error:
        raise SettingInvalid(f"--to {to} cannot be written: {error.strerror}") from error

    def tell(call: dict[str, Any]) -> None:
        count[f"{call['server']}.{call['tool']}", call["manifest"]] += 1
        if file is not None:
            file.write(json.dumps(call, ensure_ascii=False) + "\n")
            file.flush()

    async def run() -> None:
        observer = Observer(servers, tell)
        async with stdio_streams() as streams:
            try:
                await observer.open()
                serving = asyncio.create_task(observer.serve(*streams), name="saga-mcp")
                on_stop_signals(lambda: _cancel(serving))
                await asyncio.wait([serving])
                if not serving.cancelled():
                    serving.result()
            finally:
                await observer.close()

    try:
        asyncio.run(run())
    finally:
        if file is not None:
            file.close()
    for (tool, effect), calls in sorted(count.items()):
        note(f"{shown(tool)}: {calls} call{'' if calls == 1 else 's'}, {effect or 'no manifest names it'}")
    return exit_codes.COMPLETED


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
