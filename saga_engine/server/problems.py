"""Errors as HTTP responses: problem+json (RFC 9457) with the engine's codes."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from saga_engine.errors import PlanInvalid, SagaError
from saga_engine.loggers import logger_of

_log = logger_of("saga_engine.server")

MEDIA_TYPE: Final = "application/problem+json"
#: The status of a response by the code of its error.
STATUS: Final[Mapping[str, int]] = {
    "plan-invalid": 422,
    "value-not-json": 422,
    "binding-unresolved": 422,
    "event-refused": 422,
    "setting-invalid": 422,
    "goal-impossible": 422,
    "planner-asks": 422,
    "planner-needs": 422,
    "request-invalid": 400,
    "unauthenticated": 401,
    "signature-invalid": 401,
    "forbidden": 403,
    "saga-not-found": 404,
    "template-not-found": 404,
    "schedule-not-found": 404,
    "step-unknown": 404,
    "job-not-found": 404,
    "token-not-found": 404,
    "saga-exists": 409,
    "key-reused": 409,
    "lease-held": 409,
    "decision-refused": 409,
    "cancel-refused": 409,
    "resume-refused": 409,
    "files-exist": 409,
    "amend-refused": 409,
    "fork-refused": 409,
    "undo-refused": 409,
    "erase-refused": 409,
    "key-missing": 409,
    "seal-broken": 409,
    "saga-erased": 410,
    "session-diverged": 409,
    "session-ended": 409,
    "needs-person": 409,
    "extension-missing": 409,
    "tool-missing": 409,
    "secret-missing": 409,
    "journal-conflict": 409,
    "quota-exceeded": 429,
    "queue-full": 429,
    "planner-unavailable": 501,
    "runtime-unsupported": 501,
    "planner-failed": 502,
    "model-unreachable": 503,
    "store-unavailable": 503,
    "store-refused": 503,
    "durability-insufficient": 503,
    "runtime-unavailable": 503,
    "issuer-unavailable": 503,
    "interrupted": 503,
    "lease-lost": 503,
}
#: What the server itself can answer to any request: malformed, unknown caller, forbidden, too many, a defect.
OF_SERVER: Final = (
    *("request-invalid", "unauthenticated", "forbidden", "quota-exceeded", "key-reused", "issuer-unavailable"),
    "unexpected",
)
TITLES: Final[Mapping[int, str]] = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Request timed out",
    409: "Conflict",
    410: "Erased",
    413: "Too large",
    415: "Unsupported media type",
    422: "Cannot be processed",
    429: "Too many requests",
    500: "Internal error",
    501: "Not available here",
    502: "The model gave no valid plan",
    503: "Unavailable",
}
#: Where the store is; callers are not told.
_STORE: Final = re.compile(r" at (?:rediss?(?:\+\w+)?|unix|embedded|memory)://\S*")


def without_address(text: str) -> str:
    """A text of an error without the address of the store: a caller, known or not, has no use for it."""
    return _STORE.sub("", text)


def status_of(error: SagaError) -> int:
    """The HTTP status of an error."""
    given = error.context.get("status")
    return given if error.code == "request-invalid" and isinstance(given, int) else STATUS.get(error.code, 500)


def problem_of(error: SagaError) -> dict[str, Any]:
    """The body of a response: code, what (``detail``), ``where``, ``hint``, and all problems of a plan."""
    status = status_of(error)
    said = error.to_dict()
    hidden = ("status", "where", "retry_after_s", "url")
    context = {key: value for key, value in said.get("context", {}).items() if key not in hidden}
    where = error.context.get("where") or (error.problems[0].path if isinstance(error, PlanInvalid) else "")
    body: dict[str, Any] = {
        "type": f"urn:saga-engine:error:{error.code}",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": without_address(error.message),
        "code": error.code,
        "verdict": error.verdict,
    }
    more = {"where": where, "hint": error.hint, "context": context}
    body |= {name: value for name, value in more.items() if value}
    if "problems" in said:
        body["problems"] = said["problems"]
    return body


def problem_response(error: SagaError) -> Response:
    """The response that reports an error."""
    body = problem_of(error)
    headers: dict[str, str] = {}
    if body["status"] in (429, 503):
        headers["Retry-After"] = str(max(1, round(error.context.get("retry_after_s", 1))))
    if body["status"] == 401 and error.code == "unauthenticated":
        headers["WWW-Authenticate"] = 'Bearer realm="saga"'
    if body["status"] == 408:
        headers["Connection"] = "close"  # the rest of the body is not read
    if "allow" in error.context:
        headers["Allow"] = error.context["allow"]
    return Response(msgspec.json.encode(body, enc_hook=str), body["status"], headers, MEDIA_TYPE)


def unexpected_response(error: Exception) -> Response:
    """The response to a defect: its text stays in the log, under the reference that the caller gets."""
    reference = secrets.token_hex(6)
    _log.error("request failed (reference %s)", reference, exc_info=error)
    body = {
        "type": "urn:saga-engine:error:unexpected",
        "title": TITLES[500],
        "status": 500,
        "detail": "the server failed unexpectedly",
        "code": "unexpected",
        "hint": f"its log has the reference {reference}",
    }
    return Response(msgspec.json.encode(body), 500, media_type=MEDIA_TYPE)
