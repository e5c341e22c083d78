"""``saga token create``, ``list`` and ``revoke``: who may use `saga serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.command import command
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption
from saga_engine.cli.param_types import PlainCommand, PlainGroup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from saga_engine.server.tokens import Tokens
    from saga_engine.settings import Settings

_T = TypeVar("_T")

app = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Tokens for the API and the console of saga serve; the store has their hashes only.",
)


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who uses it; recorded as the author of what it does.")],
    *,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope", metavar="SCOPE", help="read, submit, resolve or admin (all). Repeatable; default: read."
        ),
    ] = None,
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="NAME", help="Only the sagas of this tenant ([server.tenants.NAME]).")
    ] = "",
    expires: Annotated[
        float | None, typer.Option("--expires", metavar="S", help="For so many seconds. Default: until it is revoked.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Make a token and print it once; it cannot be shown again.

    Examples:
      saga token create ci --scope submit --scope read
      saga token create Ada --scope resolve --scope read --expires 86400
    """
    from saga_engine.cli.options import person, settings_for
    from saga_engine.cli.output import data, document, note

    settings = settings_for(store)
    _require_tenant(settings, tenant)
    made, text = _with_tokens(
        settings,
        lambda tokens: tokens.create(name, scope or ["read"], tenant=tenant, expires_s=expires, by=person(None)),
    )
    if as_json:
        document({"token": text, **made.shown()})
    else:
        data(text)
        note(f"token {made.id} of {name}: {', '.join(made.scopes)}; it is not shown again")
    return exit_codes.COMPLETED


def list_tokens(
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """List the tokens: their ids, scopes and states, without their secrets.

    Examples:
      saga token list
    """
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note, shown, table
    from saga_engine.cli.read_only import no_store
    from saga_engine.cli.times import local
    from saga_engine.server.tokens import state_of

    settings = settings_for(store)
    found = [] if no_store(settings) is not None else _with_tokens(settings, lambda tokens: tokens.list())
    if as_json:
        document({"tokens": [each.shown() for each in found]})
    elif found:
        rows = [
            [
                each.id,
                shown(each.name),
                ", ".join(each.scopes),
                each.tenant,
                state_of(each),
                local(each.created_ms),
                local(each.expires_ms) if each.expires_ms else "",
            ]
            for each in found
        ]
        data(table(["TOKEN", "NAME", "SCOPES", "TENANT", "STATE", "CREATED", "EXPIRES"], rows))
    else:
        note("there are no tokens: `saga token create NAME` makes one")
    return exit_codes.COMPLETED


def revoke(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN", help="The token's id, as saga token list shows it.")],
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Revoke a token: the next request with it is refused, and its streams end within seconds.

    Examples:
      saga token revoke t4f1d2c3b4a5
    """
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, shown

    gone = _with_tokens(settings_for(store), lambda tokens: tokens.revoke(token_id))
    if as_json:
        document(gone.shown())
    else:
        data(f"token {gone.id} of {shown(gone.name)} is revoked")
    return exit_codes.COMPLETED


def _require_tenant(settings: Settings, tenant: str) -> None:
    from saga_engine.errors import SettingInvalid
    from saga_engine.server.settings import server_settings

    known = server_settings(settings.server, settings.origin("server")[1]).tenants
    if tenant and tenant not in known:
        raise SettingInvalid(
            f"there is no tenant {tenant!r}", hint=f"[server.tenants.{tenant}] in saga.toml declares it"
        )


def _with_tokens(settings: Settings, work: Callable[[Tokens], Awaitable[_T]]) -> _T:
    import asyncio

    async def run() -> Any:
        from saga_engine.cli.read_only import writing_to
        from saga_engine.server.tokens import Tokens

        async with writing_to(settings) as store:
            return await work(Tokens(store.documents()))

    found: _T = asyncio.run(run())
    return found


for _name, _command, _about in (
    ("create", create, "Make a token, shown once."),
    ("list", list_tokens, "List the tokens."),
    ("revoke", revoke, "Revoke a token."),
):
    app.command(_name, cls=PlainCommand, short_help=_about)(command(_command))
