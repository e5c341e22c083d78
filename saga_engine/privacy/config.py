"""The table ``[privacy]`` of ``saga.toml`` and its variables: where the keyring's keys come from."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from saga_engine.errors import SettingInvalid
from saga_engine.privacy.keyring import Keyring, KeySource, keys_from_file, parse_keys
from saga_engine.settings import Settings, TableReader

#: Keys themselves, and the file that holds them.
KEYS: Final = "SAGA_PRIVACY_KEYS"
KEYS_FILE: Final = "SAGA_PRIVACY_KEYS_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyTable:
    """Where the keys of the keyring come from, with which payloads are sealed. It has one of these fields.

    ``keys_file``: a file with one ``NAME:BASE64`` in each line, relative to ``saga.toml``; nobody else may write it.
    ``keys_from``: ``module:function``; the function returns keys of 32 bytes by name.
    """

    keys_file: str = ""
    keys_from: str = ""


class KeysFrom(NamedTuple):
    """Where keys come from: a description for the operator, the source, and the file if it is one."""

    where: str
    source: KeySource
    file: Path | None = None


def keys_from(settings: Settings, environ: Mapping[str, str] = os.environ) -> KeysFrom | None:
    """Where the settings say that keys come from; None: nothing is sealed. Raises ``SettingInvalid``.

    The environment takes precedence over ``saga.toml``, and the operator's file over a nearer one.
    """
    if environ.get(KEYS) and environ.get(KEYS_FILE):
        raise SettingInvalid(f"{KEYS} and {KEYS_FILE} are both set", hint="keys come from one place")
    if environ.get(KEYS):
        return KeysFrom(KEYS, partial(parse_keys, environ[KEYS], KEYS))
    if environ.get(KEYS_FILE):
        path = Path(environ[KEYS_FILE])
        return KeysFrom(str(path), keys_from_file(path), path)
    files = settings.holding("privacy")
    if not files and not settings.privacy:
        return None
    table, base, name = (
        (files[0].tables["privacy"], files[0].base, files[0].name)
        if files
        else (settings.privacy, settings.file_base, settings.file_name)
    )
    reader = TableReader(f"[privacy] in {name}", table, of=PrivacyTable)
    file, function = reader.text("keys_file"), reader.text("keys_from")
    reader.end()
    if bool(file) == bool(function):
        raise SettingInvalid(
            f"[privacy] in {name} must have keys_file or keys_from", hint='keys_file = "saga.keys"; docs/privacy.md'
        )
    if function:
        return KeysFrom(function, _function(function, name))
    path = base / Path(file).expanduser()
    return KeysFrom(str(path), keys_from_file(path), path)


def keyring_of(settings: Settings, environ: Mapping[str, str] = os.environ) -> Keyring | None:
    """The keyring that the settings name; None: nothing is sealed. Raises ``SettingInvalid``."""
    found = keys_from(settings, environ)
    return None if found is None else Keyring(found.source)


def as_keyring(given: Keyring | KeySource | None) -> Keyring | None:
    """What ``Coordinator.open(privacy=…)`` was given. Raises ``SettingInvalid``."""
    return given if given is None or isinstance(given, Keyring) else Keyring(given)


def _function(reference: str, name: str) -> Any:
    module, colon, attribute = reference.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else None
    except (ImportError, AttributeError) as error:
        raise SettingInvalid(f"keys_from of [privacy] in {name} cannot be imported: {error}") from error
    if not callable(found):
        raise SettingInvalid(
            f"keys_from of [privacy] in {name} must name a function", hint="module:function, which returns keys by name"
        )
    return found
