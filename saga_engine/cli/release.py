"""``saga release``: what sagas hold, and taking it away; and what other commands say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.from_table import argument
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saga_engine.api.holds import Held
    from saga_engine.ports import Store
    from saga_engine.settings import Settings

_MOST_WAITING = 3


def release(
    what: Annotated[
        str | None,
        argument(
            *("releaseHold", "resource"),
            metavar="[RESOURCE|SAGA]",
            help="The resource as it is listed, or a saga's id.",
        ),
    ] = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Take a resource away from the saga that holds it, or all that a saga holds; alone, list what is held.

    A tool with hold="saga" has its saga keep a resource until it has ended and its undos are done. After a release
    others may have it at once. The saga takes it again at its next call, if it is free. Its later undos are checked
    for drift if their tools have 'before'; others overwrite what was written meanwhile.

    Examples:
      saga release
      saga release item:4711
      saga release trip-42 --yes
    """
    import asyncio
    import sys

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note
    from saga_engine.cli.read_only import writing_to
    from saga_engine.cli.words import say

    settings = settings_for(store)
    found = asyncio.run(_listed(settings))
    if what is None:
        if as_json:
            document({"holds": bodies(found)})
        else:
            data("\n".join(line(each) for each in found) or say("held.none"))
        return exit_codes.COMPLETED
    chosen = [each for each in found if each.resource == what or each.is_of(what)]
    if chosen and not yes:
        tell_holds(chosen)
        note(say("held.consequences"))
        if not sys.stdin.isatty():
            raise typer.BadParameter(say("held.no-one"), param_hint="--yes")
        if not typer.confirm(say("held.ask"), default=False, err=True):
            note(say("nothing-changed"))
            return exit_codes.COMPLETED

    async def work() -> list[Held]:
        from saga_engine.api.holds import release as taken

        async with writing_to(settings) as opened:
            by_key = any(each.resource == what for each in chosen)
            return await (taken(opened, resource=what) if by_key else taken(opened, saga_id=what))

    done = asyncio.run(work())
    if as_json:
        document({"released": bodies(done)})
    else:
        data("\n".join(say("held.released", what=_named(each)) for each in done) or say("held.free"))
    return exit_codes.COMPLETED


async def _listed(settings: Settings) -> list[Held]:
    from saga_engine.cli.read_only import no_store, reading_from

    if no_store(settings) is not None:
        return []
    async with reading_from(settings) as opened:
        return await holds_in(opened)


# --- in other commands ---------------------------------------------------------------------------------------------


async def holds_in(store: Store) -> list[Held]:
    """What sagas hold in a store; nothing in a copy that has no guards."""
    from saga_engine.api.holds import held

    return await held(store) if getattr(store, "guard_store", None) is not None else []


def bodies(found: Sequence[Held]) -> list[dict[str, Any]]:
    """Holds as JSON."""
    return [each.body() for each in found]


def tell_holds(found: Sequence[Held]) -> None:
    """Print holds as notes."""
    from saga_engine.cli.output import note

    for each in found:
        note(line(each))


def line(held: Held) -> str:
    """One hold: what, who, since when, and who waits."""
    from saga_engine.cli.output import shown
    from saga_engine.cli.times import local
    from saga_engine.cli.words import joined, more, say

    waits = [say("held.since", saga=shown(who), when=local(since)) for who, since in held.waiting[:_MOST_WAITING]]
    sagas = joined(*waits) + more(len(held.waiting) - _MOST_WAITING)
    waiting = say("held.waiting", sagas=sagas) if waits else ""
    overdue = say("held.overdue", n=f"{held.max_s:g}") if held.overdue else ""
    about = {"shared": "" if held.alone else say("held.shared"), "overdue": overdue, "waiting": waiting}
    return say("held.line", what=_named(held), when=local(held.since_ms), tool=shown(held.tool), **about)


def _named(held: Held) -> str:
    from saga_engine.cli.output import shown
    from saga_engine.cli.words import say

    return say("held.what", resource=shown(held.resource), saga=shown(held.saga))
