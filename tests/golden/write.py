"""``python -m tests.golden.write``: write the golden journals of this version, until it is published. Never after that.

It plays the stories of ``stories.py`` and every scenario of ``tests/scenarios`` with the real engine on a real server,
and writes what then stands in the store, the traces, and an archive into the folder of the version.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import redis

from saga_engine import Coordinator, __version__
from saga_engine.core import asking_later
from saga_engine.execution.retention import Retention
from tests.golden import dump, stories
from tests.scenarios import page
from tests.scenarios.player import Player
from tests.support.servers import DebianRedis

FOLDER: Final = Path(__file__).parent
KEYS: Final = {"k1": bytes(range(32))}
SIGN: Final = b"a key to sign the golden traces with"
STORIES: Final = "golden"
SEALED: Final = "goldsealed"
ARCHIVED: Final = "goldarchive"
#: What says who owned a saga, and nothing of it: these keys end with their processes.
_PASSING: Final = re.compile(rb":lease:|:clock$")
#: The stories that are written a second time, sealed.
TWICE: Final = ("completed", "compensated", "asked", "waiting")


def published() -> bool:
    """Whether this version has a date in CHANGELOG.md, so that its folder is closed."""
    text = (FOLDER.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    return f"\n## [{__version__}] - unreleased\n" not in text


def _anonymous(lines: Iterable[str]) -> str:
    """The lines without the host and the boot of this machine, which owners' names begin with."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    text = "".join(f"{line}\n" for line in lines)
    text = text.replace(str(FOLDER.parents[1]), "/tree").replace(sys.base_prefix, "/python")
    return text.replace(f"{socket.gethostname()}/{boot}", "golden/00000000-0000-0000-0000-000000000000")


def _kept(raw: redis.Redis) -> list[str]:
    for key in [key for key in raw.scan_iter() if _PASSING.search(key)]:
        raw.delete(key)
    return list(dump.dumped(raw))


async def _seen(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """What this version shows of each saga in a store."""
    found = {}
    async with Coordinator.open(url, **options) as coordinator:
        for head in await coordinator.list(limit=1000):
            shown = await coordinator.show(head.saga_id)
            history = await coordinator.history(head.saga_id, full=True)
            found[head.saga_id] = {"show": shown.body, "history": history}
    return found


async def _stories(server: DebianRedis, folder: Path) -> None:
    options = {"keep_finished_s": 0, "tools": stories.OPTIONS["tools"]}
    for story in stories.STORIES:
        await stories.left(f"{server.url}?namespace={STORIES}", story)
        if story.name in TWICE:
            await stories.left(f"{server.url}?namespace={SEALED}", story, privacy=KEYS)
    with server.client() as raw:
        (folder / "store.jsonl").write_text(_anonymous(_kept(raw)), encoding="utf-8")
    seen = {
        STORIES: await _seen(f"{server.url}?namespace={STORIES}", options),
        SEALED: await _seen(f"{server.url}?namespace={SEALED}", {**options, "privacy": KEYS}),
    }
    lines = [
        json.dumps([name, saga_id, body], ensure_ascii=False)
        for name, sagas in seen.items()
        for saga_id, body in sorted(sagas.items())
    ]
    (folder / "seen.jsonl").write_text(_anonymous(lines), encoding="utf-8")


async def _traces(server: DebianRedis, folder: Path) -> None:
    """A trace of each story, plain, signed and redacted by turns; and the archive of one that was purged."""
    (folder / "traces").mkdir()
    async with Coordinator.open(
        f"{server.url}?namespace={STORIES}", keep_finished_s=0, tools=stories.OPTIONS["tools"]
    ) as coordinator:
        for number, head in enumerate(sorted(await coordinator.list(limit=1000), key=lambda each: each.saga_id)):
            more: dict[str, Any] = ({}, {"sign_key": SIGN}, {"redact": ["params.what", "**.card"]})[number % 3]
            lines = await coordinator.trace(head.saga_id, full=True, **more)
            kind = ("plain", "signed", "redacted")[number % 3]
            (folder / "traces" / f"{head.saga_id}.{kind}.jsonl").write_text(_anonymous(lines), encoding="utf-8")
    url = f"{server.url}?namespace={ARCHIVED}"
    with tempfile.TemporaryDirectory() as text:
        await stories.left(url, stories.STORIES[0])
        async with Coordinator.open(url, keep_finished_s=0, tools=stories.OPTIONS["tools"]) as coordinator:
            assert (await coordinator.purge(Retention({"COMPLETED": 0}, Path(text)))).purged == ["completed"]
        _archive(Path(text), folder)


def _archive(source: Path, folder: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            shutil.copyfile(path, folder / f"archive-{path.name}")


async def _scenarios(server: DebianRedis, folder: Path) -> None:
    asking_later.DELAYS_MS = (1, 1, 1)
    for number, path in enumerate(page.scenarios()):
        if path.stem == "crash-model-away":
            asking_later.DELAYS_MS = (2000, 1, 1)
        await Player(f"{server.url}?namespace=g{number}", os.environ.__setitem__).play(path.read_text(encoding="utf-8"))
        asking_later.DELAYS_MS = (1, 1, 1)
    with server.client() as raw:
        for key in raw.scan_iter("*:owners"):
            raw.delete(key)
        (folder / "scenarios.jsonl").write_text(_anonymous(_kept(raw)), encoding="utf-8")


async def write() -> None:
    """Write the folder of this version anew."""
    if published():
        raise SystemExit(f"{__version__} is published: its golden journals are never written again")
    folder = FOLDER / __version__
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with DebianRedis() as server:
        await _stories(server, folder)
        await _traces(server, folder)
    with DebianRedis() as server:
        await _scenarios(server, folder)


if __name__ == "__main__":
    asyncio.run(write())
