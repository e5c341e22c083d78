"""The header ``Host``, and the host of an origin, as every door reads them."""

from __future__ import annotations

import re
from typing import Final

#: A name or an address, in brackets if it has colons, and perhaps a port.
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?", re.ASCII)
_PORTS: Final = {"http": 80, "https": 443}


def split_host(text: str) -> tuple[str, int | None] | None:
    """The name, in lower case, and the port; None for what is no host."""
    found = _HOST.fullmatch(text.lower())
    if found is None or (found[2] is not None and not 0 < int(found[2]) <= 65535):
        return None
    return found[1], None if found[2] is None else int(found[2])


def is_same_origin(origin: str, host: str) -> bool:
    """Whether an origin is that of the ``Host`` of a request: the same name and the same port, written or not."""
    scheme, separator, rest = origin.lower().partition("://")
    one, other, usual = split_host(rest), split_host(host), _PORTS.get(scheme)
    if not separator or one is None or other is None or usual is None:
        return False
    return (one[0], one[1] or usual) == (other[0], other[1] or usual)
