"""Values as TOML 1.0 in one line, and tables with comments, which no writer of TOML that is small offers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def key(name: str) -> str:
    """A name as a key."""
    return name if _BARE.fullmatch(name) else value(name)


def value(of: Any) -> str:
    """A value in one line. Raises ``ValueError`` for null and for a number that TOML cannot express."""
    if isinstance(of, str):
        # A text of JSON is one of TOML, but for lone surrogates; a reader sees every character.
        text = json.dumps(of.encode("utf-8", "replace").decode(), ensure_ascii=False)
        return text if text.isprintable() else "".join(map(_shown, text))
    if isinstance(of, bool):
        return "true" if of else "false"
    if isinstance(of, int) and -(2**63) <= of < 2**63:
        return str(of)
    if isinstance(of, float) and of - of == 0:
        text = repr(of)
        return text if "." in text or "e" in text else f"{text}.0"
    if isinstance(of, list | tuple):
        return f"[{', '.join(value(each) for each in of)}]"
    if isinstance(of, Mapping):
        return f"{{ {', '.join(f'{key(str(name))} = {value(each)}' for name, each in of.items())} }}" if of else "{}"
    raise ValueError(f"TOML has no {'null' if of is None else of!r}")


def _shown(char: str) -> str:
    return char if char.isprintable() else f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}"
