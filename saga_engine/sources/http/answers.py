"""Interprets an answer: the outcome that its status means, the value of its body, the reason for a refusal.

An answer comes from the network. JSON is parsed more strictly than by ``json.loads`` (RFC 8259, I-JSON RFC 7493): a
body with a duplicate name, with NaN, or nested too deep is not a reliable answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal

from saga_engine.errors import ValueNotJson
from saga_engine.plan.values import plain, printable
from saga_engine.ports.machine_clock import machine_clock

StatusMeaning = Literal["done", "not-done", "absent", "unknown"]

MAX_MESSAGE_CHARS: Final = 500
#: No more than this is read of a body that only explains a refusal.
MAX_REFUSAL_BYTES: Final = 64 * 1024

#: RFC 9110 sections 15.5 and 15.4: a client error means that the request was not carried out, and 307 and 308 that it
#: is to be sent elsewhere. Not 408 and 499, which also answer a request that was in progress; not 301, 302 and 303,
#: with which web applications answer a form that they have just processed.
NOT_DONE: Final = frozenset({307, 308, 503, *(code for code in range(400, 499) if code != 408)})
DONE: Final = frozenset(range(200, 300))
RETRYABLE: Final = frozenset({408, 425, 429, 502, 503, 504})
#: From an endpoint that remembers keys, these come after it has looked the key up: they also say that no earlier
#: request with this key was carried out.
SETTLES: Final = frozenset({400, 402, 422})


class Unreadable(Exception):
    """The body cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Statuses:
    """The meaning of each status. A status in no set is ``unknown``.

    ``absent``: there is nothing there (for a probe: it did not happen). ``retryable``: not done, but a retry may
    succeed. ``settles``: not done, including earlier attempts under the same key. ``once``: not done and not repeated,
    because the status may be wrong and a second call would cause a second effect.
    """

    done: frozenset[int] = DONE
    not_done: frozenset[int] = NOT_DONE
    absent: frozenset[int] = frozenset()
    retryable: frozenset[int] = RETRYABLE
    settles: frozenset[int] = frozenset()
    once: frozenset[int] = frozenset()

    def meaning(self, status: int) -> StatusMeaning:
        """The outcome that a status means."""
        if status in self.absent:
            return "absent"
        if status in self.done:
            return "done"
        return "not-done" if status in self.not_done else "unknown"


# --- bodies --------------------------------------------------------------------------------------------------------


def media_type(headers: Mapping[str, str]) -> str:
    """The media type without its parameters, in lower case; empty if none is given."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    """Whether a media type means JSON (RFC 6839: ``application/problem+json`` and the like do)."""
    return kind in {"application/json", "text/json"} or kind.endswith("+json")


def read_json(body: bytes) -> Any:
    """The value of a body. Raises ``Unreadable``."""
    try:
        return plain(json.loads(body.decode("utf-8-sig"), object_pairs_hook=_unique))
    except Unreadable:
        raise
    except ValueNotJson as error:
        raise Unreadable(error.message) from error
    except RecursionError:
        raise Unreadable("the answer is nested too deep") from None
    except ValueError as error:
        raise Unreadable(f"the answer is no JSON: {printable(str(error), 200)}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    raise Unreadable(f"the answer has the name '{printable(name, 100)}' twice in one object")


# --- refusals ------------------------------------------------------------------------------------------------------


def refusal_message(body: bytes, kind: str) -> str:
    """The endpoint's reason for its refusal, from the usual places; empty if it has no readable one."""
    if is_json(kind):
        try:
            return printable(_said(read_json(body), 3).strip(), MAX_MESSAGE_CHARS)
        except Unreadable:
            return ""
    if kind == "text/plain":
        return printable(body[: 4 * MAX_MESSAGE_CHARS].decode("utf-8", "replace").strip(), MAX_MESSAGE_CHARS)
    return ""


#: RFC 9457 defines detail and title; RFC 6749 error_description; the others are common.
_PLACES = ("detail", "message", "error_message", "error_description", "error", "errors", "title", "msg", "reason")


def _said(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return value
    if depth and isinstance(value, list) and value:
        return _said(value[0], depth - 1)
    if depth and isinstance(value, dict):
        return next((said for place in _PLACES if (said := _said(value.get(place), depth - 1))), "")
    return ""


_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The wait that the endpoint asks for, in seconds (RFC 9110 section 10.2.3); ``None`` if there is no valid one.

    A date is compared with the answer's own ``Date``, so that the two clocks need not agree.
    """
    text = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    then = _moment(text)
    if then is None:
        return None
    now = _moment(headers.get("date", "").strip())
    return max(0.0, then - (machine_clock.time() if now is None else now))


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text[:100]).timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None
