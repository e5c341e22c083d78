"""``saga tools import openapi``: drafts HTTP tools from an OpenAPI document."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from saga_engine.cli import exit_codes
from saga_engine.errors import SettingInvalid, ToolInvalid

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_BYTES: Final = 20_000_000
_TIMEOUT_S: Final = 30.0


def import_openapi(words: Sequence[str], *, base_url: str | None, only: Sequence[str], as_json: bool) -> int:
    """Print the tables of a document as TOML; on stderr, which operations have none.

    Raises ``SettingInvalid`` if the document cannot be read or has no operation that can be declared.
    """
    if len(words) != 2 or words[0] != "openapi":
        raise typer.BadParameter("write: saga tools import openapi FILE_OR_URL", param_hint="import")
    from saga_engine.cli.output import data, document, note, shown
    from saga_engine.sources.openapi import draft_tables
    from saga_engine.sources.openapi.document import parse
    from saga_engine.sources.openapi.files import beside

    source = words[1]
    read = beside(source, _fetched)
    draft = draft_tables(parse(_text(source), source, read), base_url=base_url, only=only)
    if not draft.tables and draft.left_out:
        first = draft.left_out[0]
        raise SettingInvalid(
            f"none of the {len(draft.left_out)} operations of {source} can be declared; {first.operation}: {first.why}",
            hint="give --server if the document has no servers",
            source=source,
        )
    if as_json:
        document(asdict(draft))
        return exit_codes.COMPLETED
    heading = f"# {shown(draft.title)}, from {shown(source)}. Complete what stands in comments, then: saga tools --lint"
    data("\n".join([heading, "", *(table.toml for table in draft.tables)]).rstrip())
    for left in draft.left_out:
        note(f"left out: {shown(left.operation)}: {shown(left.why)}")
    for what, count in Counter(what for table in draft.tables for what in {kind for kind, _ in table.without}).items():
        note(f"{count} of the tools {'has' if count == 1 else 'have'} to leave out {shown(what)}")
    count = len(draft.tables)
    note(f"{count} tool{'' if count == 1 else 's'} drafted, {len(draft.left_out)} operations left out")
    return exit_codes.COMPLETED


def _text(source: str) -> str:
    """The text of a file, of stdin (``-``), or of what a URL returns."""
    if source.startswith(("http://", "https://")):
        return _fetched(source)
    try:
        body = typer.get_binary_stream("stdin").read() if source == "-" else Path(source).read_bytes()
        return body.decode("utf-8-sig")
    except OSError as error:
        raise SettingInvalid(f"{source} cannot be read: {error.strerror or error}", source=source) from error
    except UnicodeDecodeError as error:
        raise SettingInvalid(f"{source} is no UTF-8: {error}", source=source) from error


def _fetched(url: str) -> str:
    try:
        import httpx2
    except ImportError as error:
        raise ToolInvalid("HTTP tools need httpx2", hint="pip install 'saga-engine[http]'", source=url) from error
    try:
        with httpx2.stream("GET", url, follow_redirects=True, timeout=_TIMEOUT_S) as response:
            response.raise_for_status()
            body = b""
            for part in response.iter_bytes():
                body += part
                if len(body) > _MAX_BYTES:
                    raise SettingInvalid(f"{url} returns more than {_MAX_BYTES} bytes", source=url)
            return body.decode("utf-8-sig")
    except httpx2.HTTPError as error:
        raise SettingInvalid(f"{url} cannot be read: {error}", source=url) from error
    except (httpx2.InvalidURL, UnicodeDecodeError) as error:
        raise SettingInvalid(f"{url} cannot be read: {error}", source=url) from error
