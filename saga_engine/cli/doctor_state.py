"""What ``saga doctor`` sees of a store at work: its server's program, its disk, open breakers, overdue schedules."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from saga_engine.ports import Load, Store
    from saga_engine.settings import Settings

#: Less free space than both is a warning: a share of the disk, and bytes.
_LEAST_FREE: Final = (0.1, 2**30)
#: A schedule that is due for so long is overdue.
_OVERDUE_MS: Final = 60_000
_NAMED: Final = 10
_DAY_S: Final = 24 * 3600


class Seen(NamedTuple):
    """A warning, and what helps."""

    about: str
    text: str
    hint: str


def program(url: str = "") -> dict[str, Any] | None:
    """The program of the embedded store's server: where it is and comes from, its version and age, its allocator."""
    from saga_engine.errors import SagaError
    from saga_engine.ports.machine_clock import machine_clock
    from saga_engine.stores.server_binary import allocator, supply, version_of

    try:
        found = supply(dict(parse_qsl(url.partition("?")[2])).get("server", ""))
    except SagaError:
        return None
    version = found.version or version_of(found.binary)
    days = max(0, round((machine_clock.time_ns() / 1e9 - found.binary.stat().st_mtime) / _DAY_S))
    return {
        "path": str(found.binary),
        "from": found.origin,
        "version": ".".join(map(str, version)) or None,
        "age_days": days,
        "allocator": None if (library := allocator()) is None else str(library),
    }


def space(base: Path, url: str) -> Iterator[Seen]:
    """Whether the disk of an embedded store is nearly full, or was when its server ended."""
    if not url.startswith("embedded://"):
        return
    folder = Path(base, Path(url.removeprefix("embedded://").partition("?")[0]).expanduser())
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    total, _, free = shutil.disk_usage(there)
    hint = "free space on this disk, or move the folder of the store to another one while no saga runs"
    if free < _LEAST_FREE[0] * total and free < _LEAST_FREE[1]:
        yield Seen("disk", f"{free // 2**20} MiB are free on the disk of {folder}", hint)
    log = folder / "server.log"
    if log.is_file():
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            if b"No space left on device" in file.read():
                yield Seen("disk", f"the disk of {folder} was full when its server last wrote: see {log}", hint)


def known_tools(settings: Settings) -> list[str]:
    """The tools whose breakers are looked at; what is wrong with them is found elsewhere."""
    from saga_engine.cli.options import registry_for
    from saga_engine.errors import SagaError

    try:
        return list(registry_for(settings).names()) if settings.names_tools else []
    except SagaError:
        return []


async def open_breakers(store: Store, tools: Sequence[str]) -> dict[str, float]:
    """The tools whose breaker is open, or half open, by name: for how many seconds no call passes."""
    states = await store.guard_store().breakers(list(tools)) if tools else {}
    return {name: state.opens_ms / 1000 for name, state in sorted(states.items()) if state.tripped}


async def held_up(store: Store, tools: Sequence[str]) -> Iterator[Seen]:
    """Breakers that are open, and schedules that nobody fires."""
    return iter([*await _breakers(store, tools), *await _overdue(store)])


async def _breakers(store: Store, tools: Sequence[str]) -> list[Seen]:
    tripped = [*await open_breakers(store, tools)]
    if not tripped:
        return []
    text = f"the breaker of {_listed(tripped)} is open: calls wait until it closes"
    return [Seen("tools", text, "the service behind it failed several times in a row; it is tried again by itself")]


async def _overdue(store: Store) -> list[Seen]:
    from saga_engine.execution.schedules import body_of

    documents = store.documents()
    due = await documents.due("schedule", 100)
    late = []
    for name in due.names:
        found = await documents.read("schedule", name)
        body = None if found is None else body_of(found.body)
        if body is not None and body.next_ms is not None and due.now_ms - body.next_ms > _OVERDUE_MS:
            late.append(name)
    if not late:
        return []
    text = f"schedule {_listed(late)} is overdue: no worker fires its ticks"
    return [Seen("schedules", text, "start a worker: `saga worker`, or `saga serve --worker`")]


def differing(load: Load) -> Iterator[Seen]:
    """Processes that hold sagas to other rules than the rest."""
    from saga_engine.cli.owners import difference_words
    from saga_engine.execution.governed import differences, found_in

    found = found_in(load.notes, load.owners)
    hint = "what holds for a saga depends on which of them drives it: give them the same files, and start them again"
    for difference in differences(found):
        for words in difference_words(difference, found):
            yield Seen("rules", words, hint)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
