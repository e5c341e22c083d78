"""Request bodies: JSON and forms, bounded, and refused in the same words everywhere."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from saga_engine.errors import RequestInvalid, ValueNotJson
from saga_engine.execution.plan_cache import no_collection
from saga_engine.plan.strict_json import require_unique

_MAX_FIELDS = 200
#: A larger body is checked in a thread.
_AT_ONCE = 64 * 1024


async def json_of(request: Request) -> Any:
    """The JSON body. Raises ``RequestInvalid``."""
    _require_media(request, "application/json")
    data = await request.body()
    try:
        with no_collection():
            found = msgspec.json.decode(data)
        if len(data) > _AT_ONCE:  # long work is no reason to keep others waiting
            await asyncio.to_thread(_require_unique, data)
        else:
            require_unique(data)
        return found
    except ValueNotJson as error:
        raise RequestInvalid(f"the body is no JSON: {error.message}", hint=error.hint, where="body") from None
    except RecursionError:
        raise RequestInvalid("the body is nested too deeply", where="body") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"the body is no JSON: {str(error)[:200]}", where="body") from None


def _require_unique(data: bytes) -> None:
    with no_collection():
        require_unique(data)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form (urlencoded; each field once). Raises ``RequestInvalid``."""
    _require_media(request, "application/x-www-form-urlencoded")
    try:
        text = (await request.body()).decode()
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise RequestInvalid(f"the body is no form: {error}", where="body") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RequestInvalid("a field of the form is given twice", where="body")
    return found


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
