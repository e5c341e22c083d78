"""Errors that this side makes in place of an answer: what each says of the request."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

#: An answer that is too large, one that cannot be parsed, and a request that HTTP refused or lost.
UNREADABLE: Final = -32099
TOO_LARGE: Final = -32098
LABELLED: Final = -32097
#: Codes with which the SDK or a transport reports that there is no usable answer: closed, timed out, not parsed,
#: refused by HTTP. A server's own error may have them as well, and is then in doubt, too.
OWN_CODES: Final = frozenset({-32000, -32001, -32700, -32600, -32603, UNREADABLE, TOO_LARGE, LABELLED})

#: Proves that an error was made here: the server cannot know it.
_OWN: Final = secrets.token_hex(16)


def label(**known: Any) -> dict[str, Any]:
    """The data of an error that is made here: ``never_sent``, ``lost``, or the HTTP ``status``."""
    return {"own": _OWN, **known}


def label_of(data: Any) -> Mapping[str, Any] | None:
    """What is known of a failed request, if the error was made here."""
    return data if isinstance(data, dict) and data.get("own") == _OWN else None
