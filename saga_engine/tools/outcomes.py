"""Interprets an answer or an exception of a tool as *done*, *not done*, or *unknown*.

The rule: *unknown* is never taken for *failed*. An error that leaves open whether the request reached the remote system
(a time-out, a lost connection, a cancelled call, a server that failed while it worked) is unknown. So is, of a write
with a key or a probe, every exception that is no *statement* (``error_rules``); of a bare write only breakage is, and a
deliberate error is 'not done'. Errors that prove that the request was never sent are 'not done' and may be tried again.
If the tool has a probe, it settles everything but a statement. Libraries are recognised by the names of their exception
classes, so none of them is imported. HTTP status codes are read from any exception that carries one.

Sources: RFC 9110 sections 15.5, 15.6 and 10.2.3 (Retry-After); the exception lists of the libraries named below.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, Literal, NamedTuple

import msgspec

from saga_engine.core.effects import Done, ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.errors import OutcomeUnknown, ToolError, ValueNotJson
from saga_engine.language.errors import said
from saga_engine.plan.values import plain
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.tools.error_rules import PLAIN, ErrorRules, Refused
from saga_engine.tracebacks import traceback_of

MAX_MESSAGE_CHARS = 2000
MAX_CODE_CHARS = 100
#: A wait of more than an hour that a server requests is ignored: it would outlast the purpose of the saga.
MAX_RETRY_AFTER_S = 3600.0

#: The maximum size of a result, as JSON: it is journalled, and every reader of the journal gets it.
MAX_OUTPUT_BYTES = 32 * 2**20

_MAX_CAUSES = 16
_SMALL_KINDS = frozenset({bool, int, float, type(None)})
_encode = msgspec.json.Encoder().encode

_Word = Literal["never-left", "unknown", "not-done"]

#: What exceptions of libraries prove, by top package and class names.
_WORDS: dict[_Word, dict[str, str]] = {
    "never-left": {
        "builtins": "ConnectionRefusedError",
        "socket": "gaierror",
        "httpx": "ConnectError ConnectTimeout PoolTimeout",
        "httpx2": "ConnectError ConnectTimeout PoolTimeout",
        "httpcore": "ConnectError ConnectTimeout PoolTimeout ConnectionNotAvailable",
        "httpcore2": "ConnectError ConnectTimeout PoolTimeout ConnectionNotAvailable",
        "requests": "ConnectTimeout",
        "urllib3": "ConnectTimeoutError NewConnectionError EmptyPoolError",
        "aiohttp": "ClientConnectorError ConnectionTimeoutError",
        "redis": "BusyLoadingError MaxConnectionsError",
        "valkey": "BusyLoadingError MaxConnectionsError",
        "botocore": "ConnectTimeoutError EndpointConnectionError",
    },
    "unknown": {
        "builtins": "TimeoutError ConnectionError",
        "asyncio": "CancelledError IncompleteReadError",
        "concurrent": "CancelledError TimeoutError BrokenExecutor",
        "subprocess": "TimeoutExpired",
        "ssl": "SSLError",
        "http": "BadStatusLine IncompleteRead RemoteDisconnected LineTooLong",
        "httpx": "TransportError DecodingError TooManyRedirects",
        "httpx2": "TransportError DecodingError TooManyRedirects",
        "httpcore": "TimeoutException NetworkError ProtocolError ProxyError",
        "httpcore2": "TimeoutException NetworkError ProtocolError ProxyError",
        "requests": "ConnectionError Timeout ChunkedEncodingError ContentDecodingError TooManyRedirects",
        "urllib3": "TimeoutError ProtocolError MaxRetryError DecodeError SSLError",
        "aiohttp": "ClientConnectionError ClientPayloadError ServerTimeoutError TooManyRedirects",
        "redis": "ConnectionError TimeoutError",
        "valkey": "ConnectionError TimeoutError",
        "botocore": "ConnectionError HTTPClientError",
    },
    # The request was not sent, and sending it again unchanged does not help.
    "not-done": {
        "ssl": "SSLCertVerificationError",
        "httpx": "UnsupportedProtocol",
        "httpx2": "UnsupportedProtocol",
        "httpcore": "UnsupportedProtocol",
        "httpcore2": "UnsupportedProtocol",
        "requests": "InvalidURL MissingSchema InvalidSchema InvalidHeader",
        "redis": "AuthenticationError",
        "valkey": "AuthenticationError",
    },
}
#: The same by (top package, class): the nearest class in an exception's MRO decides.
_KNOWN: dict[tuple[str, str], _Word] = {
    (package, name): word
    for word, packages in _WORDS.items()
    for package, names in packages.items()
    for name in names.split()
}
_KNOWN_PACKAGES = frozenset(package for package, _ in _KNOWN)

#: Classes of packages outside the table, by the words that libraries use for the same failures.
_DOUBTFUL_NAME = re.compile(
    r"(Time[dD]?[oO]ut(Error|Exception|Expired)?|DeadlineExceeded|Connection(Error|Closed\w*|Lost|Reset\w*|Aborted\w*)"
    r"|Disconnected(Error)?|NetworkError|ProtocolError)$"
)
_DOUBTFUL_ERRNO = frozenset(
    {
        getattr(errno, name)
        for name in ("ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", "EHOSTDOWN", "ENETRESET", "ENOTCONN", "ENOBUFS")
        if hasattr(errno, name)
    }
)
#: gRPC status names (grpc.github.io/grpc/core/md_doc_statuscodes.html) that leave open whether the server acted.
_DOUBTFUL_GRPC = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL", "DATA_LOSS"})
_RETRYABLE_GRPC = frozenset({"RESOURCE_EXHAUSTED", "ABORTED"})

_RETRYABLE_STATUS = frozenset({429, 503})
#: Statuses that may change on a retry, if it is certain that nothing was done.
_PASSING_STATUS = frozenset({408, 425, 429, 502, 503, 504})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


# --- values --------------------------------------------------------------------------------------------------------


def outcome_of_value(value: Any, max_bytes: int = MAX_OUTPUT_BYTES) -> Outcome:
    """Interpret a returned value.

    An object whose ``success`` is exactly ``False`` says that nothing was done. A value that is not finite JSON means
    that the call happened and cannot be recorded: *unknown*. So does a result over ``max_bytes``.
    """
    if type(value) is dict and value.get("success") is False:
        return _reported_failure(value)
    try:
        output = plain(value)
    except ValueNotJson as error:
        return _not_json(error.message)
    except Exception as error:  # noqa: BLE001 - an object that fails while it is read is no JSON either
        return _not_json(said("result_not_json.unread", why=describe(error)))
    if output is not value and type(output) is dict and output.get("success") is False:
        return _reported_failure(output)
    if type(output) not in _SMALL_KINDS:
        size = len(_encode(output))
        if size > max_bytes:
            return _too_large(size, max_bytes)
    return Done(output)


def _too_large(size: int, most: int) -> Unknown:
    """The call happened but its result cannot be recorded: a defect of the tool."""
    message = said("output_too_large", n=size, most=most)
    return Unknown(ErrorInfo("output_too_large", message, suggestion=said("output_too_large.hint")))


def does_not_fit(found: Sequence[tuple[Any, str]], *, hidden: bool) -> Unknown:
    """The call returned something else than the tool's output schema says. ``hidden``: no value may be shown."""
    path, misfit = found[0]
    what = "" if hidden else f": {misfit}"
    place = f" at {'.'.join(map(str, path))}" if path else ""
    return Unknown(
        ErrorInfo(
            "output_invalid",
            bounded(said("output_invalid", where=f"{place}{what}")),
            suggestion=said("output_invalid.hint"),
        )
    )


def _not_json(reason: str) -> Unknown:
    return Unknown(
        ErrorInfo(
            "result_not_json",
            bounded(said("result_not_json", why=reason)),
            suggestion=said("result_not_json.hint"),
        )
    )


def _reported_failure(body: Mapping[str, Any]) -> NotDone:
    message = next((body[n] for n in ("error_message", "message", "error") if isinstance(body.get(n), str)), None)
    retryable = body.get("retryable")
    return _refusal(
        body.get("error_code"),
        message or "the tool reported a failure without a message",
        body.get("suggestion"),
        retryable if isinstance(retryable, bool) else None,
        body.get("retry_after_s"),
    )


def outcome_of_failure(said: Any, value: Any) -> Outcome:
    """The outcome of a result that the tool's ``failed`` check calls an error: the tool's own statement."""
    if isinstance(said, ToolError):
        return outcome_of_error(said, write=True)
    if isinstance(said, Mapping):
        return _reported_failure(said)
    if isinstance(said, str):
        return _reported_failure({"message": said})
    fields = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    return _reported_failure(fields if isinstance(fields, Mapping) else {})


def _refusal(code: Any, message: Any, suggestion: Any, retryable: bool | None, retry_after_s: Any) -> NotDone:
    """The tool's own statement that it did nothing."""
    return NotDone(
        ErrorInfo(
            bounded(str(code), MAX_CODE_CHARS) if isinstance(code, str | int) and str(code) else "tool_error",
            bounded(str(message)),
            suggestion=bounded(suggestion) if isinstance(suggestion, str) else None,
            retryable=retryable,
        ),
        retryable=retryable,
        definite=True,
        retry_after_s=_wait(retry_after_s),
    )


def _wait(seconds: Any) -> float | None:
    """A plausible wait in seconds: finite, not negative, at most an hour."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        seconds = float(seconds)
    except OverflowError:
        return MAX_RETRY_AFTER_S
    return min(seconds, MAX_RETRY_AFTER_S) if isfinite(seconds) and seconds >= 0 else None


# --- exceptions ----------------------------------------------------------------------------------------------------


def outcome_of_error(error: BaseException, *, write: bool, rules: ErrorRules = PLAIN) -> Outcome:
    """Interpret an exception that ended a tool. Raises ``KeyboardInterrupt`` again and nothing else.

    ``rules`` are those of the tool's declaration.
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, ToolError):
        retryable = error.retryable if isinstance(error.retryable, bool) else None
        refused = _refusal(error.error_code, error.message, error.suggestion, retryable, error.retry_after_s)
        return refused._replace(definite=error.definite, once=isinstance(error, Refused) and error.once)
    if isinstance(error, OutcomeUnknown):
        return Unknown(
            ErrorInfo(
                bounded(error.error_code, MAX_CODE_CHARS) or "outcome_unknown",
                bounded(error.message),
                suggestion=None if error.suggestion is None else bounded(error.suggestion),
            )
        )
    if isinstance(error, BaseExceptionGroup):
        return _outcome_of_group(error, write=write, rules=rules)
    if not isinstance(error, Exception):
        return Unknown(_info(error))
    status = http_status(error)
    declared = rules.declared(error, status)
    if declared == "unknown":
        return Unknown(_info(error))
    meaning = _meaning(error, write=write, rules=rules)
    word, retryable = meaning.word, meaning.retryable
    if declared == "not-done":
        again = True if word == "never-left" else None if status is None else status in _PASSING_STATUS
        return NotDone(_info(error, again), retryable=again, retry_after_s=_retry_after(error))
    if not meaning.stated and rules.says_refused(error):
        return NotDone(_info(error), once=rules.bare)
    raised = not meaning.stated and rules.raised is not None
    if raised or word == "unknown":
        return Unknown(_info(error, False if raised and rules.probed else None), raised=raised)
    if rules.probed:
        # The probe knows the outcome better than an exception; the exception still decides about a retry.
        return Unknown(_info(error, bool(retryable)), sent=word != "never-left")
    if not (write or meaning.stated):
        retryable = True  # a read that raises is read again: it has no effect, and nobody said that it is useless
    # A call that may have had an effect in spite of the error is not repeated if nothing would detect a second one.
    once = rules.bare and word != "never-left"
    return NotDone(_info(error, retryable), retryable=retryable, retry_after_s=_retry_after(error), once=once)


class _Meaning(NamedTuple):
    """What an exception means, and whether a retry can help; ``None`` if it says neither.

    ``stated``: a status, the tables or the declaration have its meaning, or that of the exception that it came from.
    """

    word: _Word
    retryable: bool | None
    stated: bool


def _meaning(error: Exception, *, write: bool, rules: ErrorRules) -> _Meaning:
    """The meaning of an exception together with its causes."""
    meaning = _alone(error, write=write, rules=rules)
    if meaning.word != "not-done":
        return meaning
    for cause in _causes(error, implicit=write):
        if isinstance(cause, ToolError):
            break
        if rules.declared(cause, http_status(cause)) == "not-done":
            return meaning._replace(stated=True)
        if not isinstance(cause, Exception) or rules.declared(cause, http_status(cause)) == "unknown":
            return _Meaning("unknown", None, stated=True)
        below = _alone(cause, write=write, rules=rules)
        if below.word == "unknown":
            return below
        if below.word == "never-left":
            # The request of this cause was never sent, whatever the library's own causes say.
            return meaning._replace(stated=True)
    return meaning


def _outcome_of_group(group: BaseExceptionGroup[BaseException], *, write: bool, rules: ErrorRules) -> Outcome:
    """Several errors at once: unknown if one of them is.

    What else the group did before one of its tasks raised is not known: nothing in it is raised outright.
    """
    if rules.raised is not None:
        rules = replace(rules, raised="unknown")
    outcomes = [outcome_of_error(leaf, write=write, rules=rules) for leaf in _leaves(group)]
    if len(outcomes) == 1:
        return outcomes[0]
    unknown = [outcome for outcome in outcomes if isinstance(outcome, Unknown)]
    if unknown:
        return Unknown(unknown[0].error, raised=all(outcome.raised for outcome in unknown))
    return NotDone(_info(group), once=rules.bare)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _causes(error: BaseException, *, implicit: bool) -> Iterator[BaseException]:
    """The chain of causes without the error itself; a cycle ends it.

    ``implicit``: also the exception that was being handled when an error was raised, unless by ``from None``.
    """
    seen = {id(error)}
    cause = _cause(error, implicit=implicit)
    while cause is not None and id(cause) not in seen and len(seen) <= _MAX_CAUSES:
        yield cause
        seen.add(id(cause))
        cause = _cause(cause, implicit=implicit)


def _cause(error: BaseException, *, implicit: bool) -> BaseException | None:
    if error.__cause__ is not None or not implicit or error.__suppress_context__:
        return error.__cause__
    return error.__context__


def _alone(error: BaseException, *, write: bool, rules: ErrorRules) -> _Meaning:
    """The meaning of one exception alone."""
    known = _foreseen(error, write=write, rules=rules)
    if known is not None:
        return _Meaning(*known, stated=True)
    return _Meaning("unknown" if write and rules.broke(error) else "not-done", None, stated=False)


def _foreseen(error: BaseException, *, write: bool, rules: ErrorRules) -> tuple[_Word, bool | None] | None:
    """The meaning of one exception by statuses and tables; None if they do not have it."""
    code = http_status(error)
    if code is not None:
        return _status_verdict(code, write=write, bare=rules.bare)
    names = [(cls.__module__.partition(".")[0], cls.__name__) for cls in type(error).__mro__]
    if ("grpc", "RpcError") in names:
        return _grpc_verdict(error)
    if ("urllib", "URLError") in names:
        reason = _attribute(error, "reason")
        known = isinstance(reason, Exception) and reason is not error
        if known:
            return _foreseen(reason, write=write, rules=rules)
        return "not-done", None
    for name in names:
        word = _known(name)
        if word is not None:
            return word, {"never-left": True, "unknown": None, "not-done": False}[word]
    if isinstance(error, OSError) and error.errno in _DOUBTFUL_ERRNO:
        return "unknown", None
    return None


def _known(name: tuple[str, str]) -> _Word | None:
    word = _KNOWN.get(name)
    if word is not None:
        return word
    package, cls = name
    return "unknown" if package not in _KNOWN_PACKAGES and _DOUBTFUL_NAME.search(cls) else None


def _status_verdict(code: int, *, write: bool, bare: bool) -> tuple[_Word, bool | None]:
    if code in _RETRYABLE_STATUS and not (bare and code >= 500):  # a proxy may say 503 about a request that got through
        return "not-done", True
    if code < 500 and code != 408:
        return "not-done", False
    if write:
        return "unknown", None  # The server may have acted before it failed.
    return "not-done", code in (408, 502, 504)


def _grpc_verdict(error: BaseException) -> tuple[_Word, bool | None]:
    try:
        name = getattr(error.code(), "name", "UNKNOWN")  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - an RPC error that cannot tell its status leaves everything open
        name = "UNKNOWN"
    if name in _DOUBTFUL_GRPC:
        return "unknown", None
    return "not-done", name in _RETRYABLE_GRPC


# --- HTTP ----------------------------------------------------------------------------------------------------------


def http_status(error: BaseException) -> int | None:
    """The HTTP status (400 to 599) that an exception carries in one of the usual places."""
    response = _attribute(error, "response")
    if isinstance(response, Mapping):  # botocore.exceptions.ClientError
        metadata = response.get("ResponseMetadata")
        candidates = [metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None]
    else:
        candidates = [_attribute(response, "status_code"), _attribute(response, "status")]
    candidates += [_attribute(error, name) for name in ("status_code", "status", "code")]
    for value in candidates:
        if isinstance(value, int) and 400 <= value <= 599:
            return int(value)
    return None


def _attribute(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a property that raises holds no answer
        return None


def _retry_after(error: BaseException) -> float | None:
    """The ``Retry-After`` of the answer, in seconds: a number, or a date compared with this machine's clock."""
    response = _attribute(error, "response")
    if isinstance(response, Mapping):
        metadata = response.get("ResponseMetadata")
        sources = [metadata.get("HTTPHeaders") if isinstance(metadata, Mapping) else None]
    else:
        sources = [_attribute(response, "headers"), _attribute(error, "headers")]
    for headers in sources:
        for name in ("retry-after", "Retry-After"):
            try:
                text = None if headers is None else headers.get(name)
            except Exception:  # noqa: BLE001 - no headers in this place
                break
            if isinstance(text, str | int | float) and not isinstance(text, bool):
                return _parsed_wait(str(text).strip())
    return None


def _parsed_wait(text: str) -> float | None:
    if text.isascii() and text.replace(".", "", 1).isdigit() and len(text) <= 20:
        return _wait(float(text))
    try:
        moment = parsedate_to_datetime(text[:100])
        return _wait(max(0.0, moment.timestamp() - machine_clock.time()))
    except (TypeError, ValueError, OverflowError, OSError):
        return None


# --- words ---------------------------------------------------------------------------------------------------------


def _info(error: BaseException, retryable: bool | None = None) -> ErrorInfo:
    code = http_status(error)
    return ErrorInfo(
        f"http_{code}" if code is not None else snake_case(type(error).__name__),
        describe(error),
        retryable=retryable,
        # Known network failures need no traceback; any other exception of a tool is unexpected.
        traceback=None if _foreseen(error, write=True, rules=PLAIN) else traceback_of(error),
    )


def describe(error: BaseException) -> str:
    """An exception's message for the record: bounded, encodable, and never empty. No traceback."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot speak still has a name
        text = ""
    return bounded(text.strip()) or type(error).__name__


def bounded(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """A text that fits into a record: at most ``limit`` characters, with lone surrogates replaced."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()


def snake_case(name: str) -> str:
    """``ReadTimeout`` becomes ``read_timeout``."""
    return bounded(_CAMEL.sub("_", name).lower().strip("_") or "error", MAX_CODE_CHARS)


def timed_out(timeout_s: float) -> Unknown:
    """The outcome of a call that exceeded its time."""
    return Unknown(ErrorInfo("timeout", said("timeout", s=f"{timeout_s:g}")))


def still_at_work(waited_s: float) -> Unknown:
    """The outcome of a call that exceeded its time in a thread, which cannot be stopped, and still runs."""
    message = said("timeout.at-work", s=f"{waited_s:g}")
    return Unknown(ErrorInfo("timeout", message, suggestion=said("timeout.hint")), at_work=True)


def cancelled_by_itself() -> Unknown:
    """The outcome of a tool that ended with a cancellation nobody requested."""
    return Unknown(ErrorInfo("cancelled", said("cancelled")))
