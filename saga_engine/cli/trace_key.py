"""The key that signs and verifies traces, and the table ``[trace]`` of ``saga.toml``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from saga_engine.analysis.trace_signature import TraceKey
    from saga_engine.settings import Settings

KeyOption = Annotated[
    str | None,
    typer.Option("--key", metavar="KEYFILE", help="Require a signature that was made with the key in this file."),
]
_MAX_KEY_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTable:
    """What exported traces and archives leave out, and how they are signed.

    ``redact``: paths of fields that are replaced by ``[redacted]``: ``["params.card", "**.password"]``.
    ``sign``: the file with the key that signs every export, relative to ``saga.toml``.
    """

    redact: list[str] = field(default_factory=list)
    sign: str | None = None


class TraceSettings(NamedTuple):
    """The table ``[trace]``, read: rules for redacted fields, and the key that signs."""

    redact: list[str]
    key: TraceKey | None


def trace_key(file: str | Path) -> TraceKey:
    """The key in a file: its bytes, without the line end of a text file. Raises ``SettingInvalid``."""
    from saga_engine.analysis.trace_signature import TraceKey
    from saga_engine.errors import SettingInvalid

    try:
        with Path(file).open("rb") as stream:
            secret = stream.read(_MAX_KEY_BYTES)
    except OSError as error:
        raise SettingInvalid(
            f"the trace key {file} cannot be read: {error.strerror}", hint=f"openssl rand -hex 32 > {file}"
        ) from error
    return TraceKey(secret.rstrip(b"\r\n"))


def trace_settings(settings: Settings) -> TraceSettings:
    """The table, checked. A rule that cannot be parsed must not let a value through."""
    from saga_engine.settings import TableReader

    base, file_name = settings.origin("trace")
    reader = TableReader(f"[trace] in {file_name}", settings.trace, of=TraceTable)
    rules, named = reader.any("redact"), reader.any("sign")
    reader.end()
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        reader.refuse("redact", "must be a list of texts", 'redact = ["params.card"]')
    if named is None:
        return TraceSettings(rules, None)
    if not isinstance(named, str) or not named:
        reader.refuse("sign", "must name a file", 'sign = "trace.key"')
    return TraceSettings(rules, trace_key(base / named))
