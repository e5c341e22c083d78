"""The key that signs and verifies traces, and the table ``[trace]`` of ``saga.toml``."""

from __future__ import annotations

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
_FIELDS = ("redact", "sign")
_MAX_KEY_BYTES = 1 << 16


class TraceSettings(NamedTuple):
    """The table ``[trace]``: rules for redacted fields, and the key that signs."""

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
    from saga_engine.errors import SettingInvalid

    base, file_name = settings.origin("trace")
    unknown = sorted(set(settings.trace) - set(_FIELDS))
    if unknown:
        raise SettingInvalid(f"[trace] in {file_name} has the unknown field {unknown[0]!r}", hint=", ".join(_FIELDS))
    rules = settings.trace.get("redact", [])
    if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
        raise SettingInvalid(
            f"redact of [trace] in {file_name} must be a list of texts", hint='redact = ["params.card"]'
        )
    named = settings.trace.get("sign")
    if named is None:
        return TraceSettings(rules, None)
    if not isinstance(named, str) or not named:
        raise SettingInvalid(f"sign of [trace] in {file_name} must name a file", hint='sign = "trace.key"')
    return TraceSettings(rules, trace_key(base / named))
