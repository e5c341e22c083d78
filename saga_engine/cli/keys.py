"""``saga keys new``, ``list`` and ``rewrap``: the keyring, and its rotation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.command import command
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption
from saga_engine.cli.param_types import PlainCommand, PlainGroup

if TYPE_CHECKING:
    from saga_engine.privacy.rotation import KeyUse, Rotated
    from saga_engine.settings import Settings

_NAMED = 20

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The keys that seal payloads (docs/privacy.md).",
)


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name: letters, digits, '.', '_' and '-'.")],
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Add it at the end of this file of keys. Default: print it."),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Make a key for the keyring.

    At the end of the file it can open what other processes wrap with it, and wraps nothing yet. Move it to the front
    once every process has it.

    Examples:
      saga keys new k1 --file saga.keys
      saga keys new k2
    """
    from saga_engine.cli.output import data, document, note
    from saga_engine.privacy.keyring import add_to_file, made

    line = made(name)
    if file is not None:
        add_to_file(file, line)
    if as_json:
        document({"name": name, "file": None if file is None else str(file), **({} if file else {"key": line})})
    elif file is None:
        data(line)
        note("keep it secret, and keep a copy: what it seals cannot be read without it")
    else:
        data(f"key {name} is in {file}")
        note("keep a copy: what it seals cannot be read without it")
    return exit_codes.COMPLETED


def list_keys(
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List the keys of the keyring and of the store, and how many sagas each of them wraps.

    current: wraps new sagas; ready: opens what it wraps; missing: it is not in the keyring; retiring: wraps nothing
    new; retired: what it wraps is refused.

    Examples:
      saga keys list
    """
    import asyncio

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note, table

    found, clear = asyncio.run(_uses(settings_for(store)))
    if as_json:
        document({"keys": [use._asdict() for use in found], "unsealed": clear})
        return exit_codes.COMPLETED
    if found:
        rows = [
            [use.name, use.fingerprint, use.state, str(use.sagas), "wraps the store's own key" if use.store else ""]
            for use in found
        ]
        data(table(["KEY", "FINGERPRINT", "STATE", "SAGAS", ""], rows))
    else:
        note("there are no keys: `saga keys new` makes one")
    if clear:
        note(f"{_sagas(clear)} not sealed")
    return exit_codes.COMPLETED


def rewrap(
    sagas: Annotated[
        list[str] | None,
        typer.Argument(metavar="SAGA", help="Only these, also if a retired key wraps them. Default: all."),
    ] = None,
    *,
    retire: Annotated[
        list[str] | None,
        typer.Option("--retire", metavar="NAME", help="Then refuse what this key wraps; repeatable. Takes 12 s."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Wrap the data key of every saga, and the store's own, with the first key of the keyring.

    Workers may run. If it is killed, repeat it. A saga whose key this keyring does not have stays as it is, is named,
    and nothing is retired (exit code 1). A retired key can be removed from every keyring.

    Examples:
      saga keys rewrap
      saga keys rewrap --retire k1
    """
    import asyncio

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note, shown

    if sagas and retire:
        raise typer.BadParameter("a key is retired once all sagas are wrapped anew: name none", param_hint="--retire")
    found, current = asyncio.run(_rotated(settings_for(store), sagas or (), retire or ()))
    if as_json:
        failed = {saga_id: error.to_dict() for saga_id, error in sorted(found.failed.items())}
        document({"rewrapped": found.rewrapped, "retired": list(found.retired), "failed": failed})
    else:
        data(f"{_sagas(found.rewrapped)} rewrapped")
        if not found.rewrapped and not found.failed:
            note(f"nothing to do: the current key, {current}, wraps every data key here already")
            note("hint: to rotate, put a new key first in the keyring (saga keys new), then repeat this")
        for name in found.retired:
            data(f"{name} is retired: remove it from every keyring")
        for saga_id, error in sorted(found.failed.items())[:_NAMED]:
            note(f"saga {shown(saga_id)} is as it was: {shown(error.message)}")
        if len(found.failed) > _NAMED:
            note(f"and {len(found.failed) - _NAMED} more")
    return exit_codes.ERROR if found.failed else exit_codes.COMPLETED


def _sagas(count: int) -> str:
    return f"{count} saga{'' if count == 1 else 's'}"


async def _uses(settings: Settings) -> tuple[list[KeyUse], int]:
    from saga_engine.cli.keyring import keyring_for
    from saga_engine.cli.read_only import no_store, opened
    from saga_engine.privacy.rotation import uses, uses_without_store
    from saga_engine.privacy.sealed_store import SealedStore

    keyring = keyring_for(settings)
    if no_store(settings) is not None:
        return uses_without_store(keyring), 0
    async with opened(settings, snapshot=True) as inner:
        # Its own key need not open: the list also tells what is missing.
        store = SealedStore(inner, keyring)
        store.found = inner.seals().found
        return await uses(store)


async def _rotated(
    settings: Settings, sagas: list[str] | tuple[()], retire: list[str] | tuple[()]
) -> tuple[Rotated, str]:
    """What the rotation did, and the name of the current key."""
    from saga_engine.cli.keyring import keyring_for
    from saga_engine.cli.read_only import opened
    from saga_engine.errors import SettingInvalid
    from saga_engine.privacy.rotation import rotate
    from saga_engine.privacy.sealed_store import SealedStore

    keyring = keyring_for(settings)
    if keyring is None:
        raise SettingInvalid("there are no keys here to wrap with", hint="docs/privacy.md shows how to give them")
    async with opened(settings) as inner:
        store = SealedStore(inner, keyring)
        await store.unlock()
        return await rotate(store, retire=retire, only=sagas), keyring.current.name


for _name, _command, _about in (
    ("new", new, "Make a key."),
    ("list", list_keys, "List keys, and how many sagas each wraps."),
    ("rewrap", rewrap, "Wrap every data key with the current key."),
):
    app.command(_name, cls=PlainCommand, short_help=_about)(command(_command))
