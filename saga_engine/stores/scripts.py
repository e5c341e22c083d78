"""The server-side scripts: one file each in ``lua/``, with its law in the comment at the top."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).with_name("lua")


class Script(NamedTuple):
    """A script as the server identifies it: by the digest of its text."""

    body: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script of that name, after the shared prelude."""
    body = (_FOLDER / "prelude.lua").read_bytes() + (_FOLDER / f"{name}.lua").read_bytes()
    return Script(body, hashlib.sha1(body, usedforsecurity=False).hexdigest().encode())
