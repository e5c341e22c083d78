"""Request bodies: JSON and forms, bounded, and refused in the same words everywhere."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from saga_engine.errors import RequestInvalid, ValueNotJson
from saga_engine.execution.aside import beside
from saga_engine.execution.incoming import decoded

_MAX_FIELDS = 200
#: The largest form of who may be anybody, and of who has signed in: it may hold a plan.
_FORM_BYTES = 16 * 1024
LARGE_FORM_BYTES = 2 * 2**20


async def json_of(request: Request) -> Any:
    """The JSON body. Raises ``RequestInvalid``."""
    _require_media(request, "application/json")
    data = await request.body()
    try:
        return await decoded(data)
    except ValueNotJson as error:
        raise RequestInvalid(f"the body is no JSON: {error.message}", hint=error.hint, where="body") from None
    except RecursionError:
        raise RequestInvalid("the body is nested too deeply", where="body") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"the body is no JSON: {str(error)[:200]}", where="body") from None


async def form_of(request: Request, *, most: int = _FORM_BYTES) -> dict[str, str]:
    """The fields of a form (urlencoded; each field once), of so many bytes. Raises ``RequestInvalid``."""
    _require_media(request, "application/x-www-form-urlencoded")
    data = await request.body()
    if len(data) > most:
        raise RequestInvalid(f"the form has more than {most:,} bytes", status=413, where="body")
    try:
        text = data.decode()
        pairs = await beside(partial(_pairs, text), text)
    except ValueError as error:
        raise RequestInvalid(f"the body is no form: {error}", where="body") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RequestInvalid("a field of the form is given twice", where="body")
    return found


def _pairs(text: str) -> list[tuple[str, str]]:
    return parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=_MAX_FIELDS)


def _require_media(request: Request, expected: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != expected:
        raise RequestInvalid(
            f"the content type is {given[:80] or 'missing'!r}",
            hint=f"send {expected}",
            status=415,
            where="content-type",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestInvalid("the body is encoded", hint="send it as it is", status=415, where="content-encoding")
