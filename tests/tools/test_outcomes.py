"""The classification of results and exceptions: done, not done, unknown."""

import asyncio
import concurrent.futures
import datetime as dt
import errno
import http.client
import json
import socket
import ssl
import subprocess
import urllib.error
from email.message import Message
from email.utils import formatdate
from enum import Enum

import msgspec
import pytest
import redis.exceptions
from pydantic import BaseModel

from saga_engine.core.effects import Done, NotDone, Unknown
from saga_engine.errors import ToolError
from saga_engine.tools import outcomes
from saga_engine.tools.error_rules import ErrorRules
from saga_engine.tools.outcomes import outcome_of_error, outcome_of_value


def foreign(module, name, *bases, **attributes):
    """An exception class as a library would define it: recognised by the names of its package and class."""
    return type(name, bases or (Exception,), {"__module__": module, **attributes})


def library(module, *chain):
    """The last class of a chain of classes in one module, each derived from the one before."""
    base = Exception
    for name in chain:
        base = foreign(module, name, base)
    return base("boom")


UNKNOWN = [
    TimeoutError(),
    ConnectionResetError(),
    BrokenPipeError(),
    ConnectionAbortedError(),
    OSError(errno.EHOSTUNREACH, "no route"),
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
    asyncio.IncompleteReadError(b"", 4),
    concurrent.futures.BrokenExecutor(),
    subprocess.TimeoutExpired("curl", 3),
    http.client.RemoteDisconnected(),
    http.client.IncompleteRead(b""),
    ssl.SSLEOFError(),
    urllib.error.URLError(TimeoutError()),
    urllib.error.URLError(ConnectionResetError()),
    redis.exceptions.ConnectionError("gone"),
    redis.exceptions.TimeoutError("late"),
    library("httpx", "TransportError", "TimeoutException", "ReadTimeout"),
    library("httpx", "TransportError", "NetworkError", "ReadError"),
    library("httpx2", "TransportError", "ProtocolError", "RemoteProtocolError"),
    library("httpcore", "ProtocolError", "RemoteProtocolError"),
    library("requests.exceptions", "RequestException", "ConnectionError"),
    library("requests.exceptions", "RequestException", "Timeout", "ReadTimeout"),
    library("urllib3.exceptions", "HTTPError", "TimeoutError", "ReadTimeoutError"),
    library("urllib3.exceptions", "HTTPError", "ProtocolError"),
    library("aiohttp.client_exceptions", "ClientError", "ClientConnectionError", "ServerDisconnectedError"),
    library("aiohttp.client_exceptions", "ClientError", "ClientPayloadError"),
    library("botocore.exceptions", "BotoCoreError", "HTTPClientError", "ReadTimeoutError"),
    library("some_driver", "NetworkTimeout"),
    library("some_driver", "ConnectionClosedError"),
    library("some_driver", "ServerDisconnected"),
    SystemExit(3),
    GeneratorExit(),
]

NEVER_LEFT = [
    ConnectionRefusedError(),
    socket.gaierror(-2, "Name or service not known"),
    urllib.error.URLError(ConnectionRefusedError()),
    redis.exceptions.BusyLoadingError(),
    library("httpx", "TransportError", "NetworkError", "ConnectError"),
    library("httpx", "TransportError", "TimeoutException", "ConnectTimeout"),
    library("httpx", "TransportError", "TimeoutException", "PoolTimeout"),
    library("httpx2", "TransportError", "NetworkError", "ConnectError"),
    library("requests.exceptions", "ConnectionError", "ConnectTimeout"),
    library("urllib3.exceptions", "HTTPError", "TimeoutError", "ConnectTimeoutError"),
    library("aiohttp.client_exceptions", "ClientConnectionError", "ClientConnectorError", "ClientConnectorDNSError"),
    library("botocore.exceptions", "ConnectionError", "EndpointConnectionError"),
]

SAID = [
    ValueError("bad"),
    RuntimeError("no"),
    Exception("no"),
    library("shop", "SoldOut"),
    library("redis_like", "LookupFailed"),
    urllib.error.URLError("unknown url type"),
    ssl.SSLCertVerificationError("expired"),
    library("httpx", "TransportError", "UnsupportedProtocol"),
    redis.exceptions.ResponseError("WRONGTYPE"),
    subprocess.CalledProcessError(2, "book"),
]


class Answer(BaseModel):
    """What a tool expects of an answer."""

    order: str


def broken(work):
    """The exception that ``work`` ends with, raised where real ones are."""
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("it does not fail")


BROKE = [
    broken(lambda: json.loads("<html>")),
    broken(lambda: {}["order"]),
    broken([].pop),
    broken(lambda: None.order),
    broken(lambda: len(3)),
    broken(lambda: int("soon")),
    broken(lambda: dt.datetime.strptime("soon", "%Y").astimezone()),
    broken(b"\xff".decode),
    broken(lambda: Answer(order=3)),
    broken(lambda: 1 // 0),
    MemoryError(),
    RecursionError(),
    AssertionError("no order"),
    NameError("ordr"),
    FileNotFoundError(2, "no file"),
    PermissionError(13, "no"),
    OSError(errno.EIO, "disk"),
    OSError(errno.ENOSPC, "disk"),
    subprocess.CalledProcessError(-9, "book"),
    msgspec.ValidationError("x"),
    library("some_library", "AnswerDecodeError"),
    library("some_library", "ParserError"),
    library("some_driver", "OperationalError"),
]


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("error", UNKNOWN, ids=lambda e: type(e).__name__)
def test_lost_answers_are_unknown(error, write):
    """Pitfall 14: a time-out, a lost connection and a cancellation are never stored as 'failed'."""
    assert isinstance(outcome_of_error(error, write=write), Unknown)


@pytest.mark.parametrize("error", NEVER_LEFT, ids=lambda e: type(e).__name__)
def test_requests_that_never_left_may_be_tried_again(error):
    """Errors of the connect phase prove that nothing happened; they speak for this attempt only."""
    outcome = outcome_of_error(error, write=True)
    assert isinstance(outcome, NotDone)
    assert (outcome.retryable, outcome.definite) == (True, False)


@pytest.mark.parametrize("error", SAID, ids=lambda e: type(e).__name__)
def test_what_was_said_is_not_done(error):
    """The tool's own exceptions, ValueError and RuntimeError say that nothing was done."""
    outcome = outcome_of_error(error, write=True)
    assert isinstance(outcome, NotDone)
    assert not outcome.retryable
    assert not outcome.definite


@pytest.mark.parametrize("error", BROKE, ids=lambda e: f"{type(e).__name__}-{e}"[:40])
def test_what_broke_a_write_is_unknown_and_a_read_is_not_done(error):
    """A defect says where the program stopped, and not whether the request had been carried out by then."""
    assert isinstance(outcome_of_error(error, write=True), Unknown)
    assert isinstance(outcome_of_error(error, write=False), NotDone)


def test_a_class_of_the_tool_s_own_is_said_whatever_it_derives_from():
    """``class SoldOut(KeyError)`` in the tool's package is the tool's word; a lost connection stays one."""
    sold_out = foreign("shop.errors", "SoldOut", KeyError)("x")
    lost = foreign("shop.errors", "ShopIsAway", ConnectionError)("x")
    rules = ErrorRules(home="shop.tools")
    assert isinstance(outcome_of_error(sold_out, write=True, rules=rules), NotDone)
    assert isinstance(outcome_of_error(sold_out, write=True), Unknown)
    assert isinstance(outcome_of_error(lost, write=True, rules=rules), Unknown)


@pytest.mark.parametrize("error", [*SAID, *BROKE, *NEVER_LEFT], ids=lambda e: type(e).__name__)
def test_a_probe_settles_everything_but_a_tool_error(error):
    """Where it can be asked, no exception is believed; what a refused connection proves is kept for when it cannot."""
    outcome = outcome_of_error(error, write=True, rules=ErrorRules(probed=True))
    assert isinstance(outcome, Unknown)
    assert outcome.sent is (error not in NEVER_LEFT)
    said = outcome_of_error(ToolError("no"), write=True, rules=ErrorRules(probed=True))
    assert isinstance(said, NotDone)


def test_a_bare_write_is_repeated_after_no_status_and_no_exception():
    """Without key and probe a second call could be a second effect: only a refused connection is tried again."""
    bare = ErrorRules(bare=True)

    def status(code):
        error = RuntimeError("http")
        error.status = code
        return outcome_of_error(error, write=True, rules=bare)

    assert isinstance(status(503), Unknown)
    assert status(429).once
    assert outcome_of_error(ValueError("x"), write=True, rules=bare).once
    refused = outcome_of_error(ConnectionRefusedError(), write=True, rules=bare)
    assert (refused.retryable, refused.once) == (True, False)
    assert not outcome_of_error(ToolError("x"), write=True, rules=bare).once


def test_a_declaration_says_otherwise():
    """``not_done`` and ``unknown`` count before the rules: statuses, classes and their names, the nearest first."""
    rules = ErrorRules(bare=True, not_done=frozenset({503, KeyError, "shop.Full"}), unknown=frozenset({"Busy", 404}))

    def status(code):
        error = library("shop", "Busy") if code == 503 else RuntimeError("http")
        error.status = code
        return outcome_of_error(error, write=True, rules=rules)

    assert status(503).retryable is True
    assert isinstance(status(404), Unknown)
    assert isinstance(outcome_of_error(KeyError("x"), write=True, rules=rules), NotDone)
    assert isinstance(outcome_of_error(library("shop", "TimeoutError", "Full"), write=True, rules=rules), NotDone)
    assert isinstance(outcome_of_error(library("shop", "Busy"), write=True, rules=rules), Unknown)
    assert isinstance(outcome_of_error(library("shop", "Busy", "Never"), write=True, rules=rules), Unknown)
    probed = ErrorRules(probed=True, not_done=frozenset({KeyError}))
    assert isinstance(outcome_of_error(KeyError("x"), write=True, rules=probed), NotDone)


@pytest.mark.parametrize(
    ("status", "write", "expected"),
    [
        (429, True, True),
        (503, True, True),
        (429, False, True),
        *[(status, True, False) for status in (400, 401, 402, 403, 404, 405, 409, 410, 422, 451)],
        *[(status, True, "unknown") for status in (408, 500, 501, 502, 504, 520)],
        *[(status, False, True) for status in (408, 502, 504)],
        *[(status, False, False) for status in (404, 500, 501)],
    ],
)
@pytest.mark.parametrize("place", ["response.status_code", "response.status", "status_code", "status", "code", "boto"])
def test_http_statuses(status, write, expected, place):
    """RFC 9110: 4xx are refusals; of 5xx only 503 says that nothing was done, and a read may simply be repeated."""
    error = RuntimeError("http")
    if place == "boto":
        error.response = {"ResponseMetadata": {"HTTPStatusCode": status}}
    elif place.startswith("response."):
        error.response = type("Response", (), {place.partition(".")[2]: status, "__bool__": lambda _: False})()
    else:
        setattr(error, place, status)
    outcome = outcome_of_error(error, write=write)
    assert outcome.error.error_code == f"http_{status}"
    if expected == "unknown":
        assert isinstance(outcome, Unknown)
    else:
        assert isinstance(outcome, NotDone)
        assert (outcome.retryable, outcome.definite) == (expected, False)


@pytest.mark.parametrize("value", [200, 302, 600, True, "503", None, 503.0])
def test_what_is_no_error_status_is_ignored(value):
    """Only integers from 400 to 599 are HTTP error statuses."""
    error = RuntimeError("x")
    error.code = value
    assert outcomes.http_status(error) is None


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("7", 7, 7),
        ("0", 0, 0),
        ("2.5", 2.5, 2.5),
        (formatdate(0, usegmt=True), 0, 0),
        ("99999999999", 3600, 3600),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600, 3600),
        ("-5", None, None),
        ("nan", None, None),
        ("soon", None, None),
        ("9" * 400, None, None),
    ],
)
def test_retry_after_is_honoured_within_bounds(header, least, most):
    """``Retry-After`` is seconds or an HTTP date; a hostile one neither crashes nor stalls a saga for years."""
    headers = Message()
    headers["Retry-After"] = header
    error = urllib.error.HTTPError("http://x", 503, "busy", headers, None)
    outcome = outcome_of_error(error, write=True)
    assert outcome.retryable is True
    assert outcome.retry_after_s is None if least is None else least <= outcome.retry_after_s <= most


def test_a_tool_error_is_the_tool_s_own_word():
    """``ToolError`` is 'not done', definitely, with everything the tool said; its cause does not matter."""
    error = ToolError("sold out", error_code="sold_out", retryable=True, suggestion="ask again", retry_after_s=3)
    error.__cause__ = TimeoutError()
    outcome = outcome_of_error(error, write=True)
    assert outcome == NotDone(outcome.error, retryable=True, definite=True, retry_after_s=3.0)
    assert (outcome.error.error_code, outcome.error.message) == ("sold_out", "sold out")
    assert (outcome.error.suggestion, outcome.error.retryable) == ("ask again", True)


@pytest.mark.parametrize("wait", [float("nan"), float("inf"), -1, True, "3", 10**400])
def test_a_wait_that_is_no_time_never_reaches_the_journal(wait):
    """A wait is finite, not negative and at most an hour."""
    outcome = outcome_of_error(ToolError("x", retry_after_s=wait), write=True)
    assert outcome.retry_after_s in (None, 3600.0)


def chained(error, *causes):
    for upper, lower in zip((error, *causes), causes, strict=False):
        upper.__cause__ = lower
    return error


def test_an_explicit_cause_that_leaves_it_open_makes_it_unknown():
    """``raise BookingFailed from TimeoutError`` is a time-out; so is a refused status on top of one."""
    refused = RuntimeError("wrapped")
    refused.status_code = 404
    for error in (
        chained(ValueError("x"), TimeoutError()),
        chained(ValueError("x"), KeyError("y"), ConnectionResetError()),
        chained(refused, TimeoutError()),
    ):
        assert isinstance(outcome_of_error(error, write=True), Unknown)


def test_causes_below_an_error_that_never_left_do_not_count():
    """Libraries raise their connect errors from time-outs of the socket: the library's word stands."""
    connect = chained(library("httpx", "TransportError", "ConnectTimeout"), TimeoutError())
    assert outcome_of_error(connect, write=True).retryable is True
    assert isinstance(outcome_of_error(chained(ValueError("x"), connect), write=True), NotDone)


def test_a_tool_error_among_the_causes_ends_the_chain():
    """What lies below a tool's own word has been interpreted by the tool."""
    error = chained(ValueError("x"), ToolError("no"), TimeoutError())
    assert isinstance(outcome_of_error(error, write=True), NotDone)


def test_what_was_being_handled_counts_for_a_write():
    """A RuntimeError raised while a time-out is handled is a time-out, unless it is raised ``from None``."""
    error = RuntimeError("x")
    error.__context__ = TimeoutError()
    assert isinstance(outcome_of_error(error, write=True), Unknown)
    assert isinstance(outcome_of_error(error, write=False), NotDone)
    error.__suppress_context__ = True
    assert isinstance(outcome_of_error(error, write=True), NotDone)


def test_a_circle_of_causes_ends():
    """A chain that bites its tail is walked once."""
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    assert isinstance(outcome_of_error(one, write=True), NotDone)


def test_a_group_is_unknown_if_one_of_its_errors_is():
    """Several errors at once: the doubtful one decides; a single one speaks for itself."""
    mixed = ExceptionGroup("many", [ValueError("x"), ExceptionGroup("more", [TimeoutError()])])
    assert isinstance(outcome_of_error(mixed, write=True), Unknown)
    single = outcome_of_error(ExceptionGroup("one", [ToolError("no", error_code="no")]), write=True)
    assert (single.definite, single.error.error_code) == (True, "no")
    plain = outcome_of_error(ExceptionGroup("many", [ValueError(), RuntimeError()]), write=True)
    assert plain.error.error_code == "exception_group"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BaseExceptionGroup("x", [KeyboardInterrupt()])])
def test_a_keyboard_interrupt_is_not_an_answer(error):
    """Ctrl-C belongs to the program, not to the tool."""
    with pytest.raises(KeyboardInterrupt):
        outcome_of_error(error, write=True)


@pytest.mark.parametrize(
    ("name", "unknown", "retryable"),
    [
        ("UNAVAILABLE", True, None),
        ("DEADLINE_EXCEEDED", True, None),
        ("INTERNAL", True, None),
        ("RESOURCE_EXHAUSTED", False, True),
        ("NOT_FOUND", False, False),
    ],
)
def test_grpc_statuses(name, unknown, retryable):
    """The status of an RPC decides, read by duck typing."""
    code = Enum("StatusCode", [name])[name]
    rpc = foreign("grpc.aio", "AioRpcError", foreign("grpc", "RpcError"), code=lambda _: code)
    outcome = outcome_of_error(rpc("x"), write=True)
    assert isinstance(outcome, Unknown) is unknown
    if not unknown:
        assert outcome.retryable is retryable


def test_messages_are_bounded_encodable_and_without_a_traceback():
    """What is journalled of an exception is its class in snake case and a short text."""

    class HTTPReadGone(Exception):
        pass

    class Silent(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    outcome = outcome_of_error(HTTPReadGone("x" * 5000), write=True)
    assert outcome.error.error_code == "http_read_gone"
    assert len(outcome.error.message) == 2000
    outcome_of_error(ValueError("\ud800"), write=True).error.message.encode()
    assert outcome_of_error(Silent(), write=True).error.message == "Silent"
    assert outcome_of_error(ValueError(), write=True).error.message == "ValueError"


def test_an_exception_whose_attributes_raise_is_interpreted_all_the_same():
    """A hostile property is no answer."""

    class Trap(Exception):
        @property
        def response(self):
            raise RuntimeError("trap")

        @property
        def headers(self):
            raise RuntimeError("trap")

        status = 503

    assert outcome_of_error(Trap("x"), write=True).retryable is True


# --- values ----------------------------------------------------------------------------------------------------------


def test_a_value_is_done():
    """JSON, and what becomes JSON, is an output."""

    class Order(BaseModel):
        id: int

    assert outcome_of_value({"id": 1}) == Done({"id": 1})
    assert outcome_of_value(None) == Done(None)
    assert outcome_of_value((1, 2)) == Done([1, 2])
    assert outcome_of_value(Order(id=1)) == Done({"id": 1})


def generator():
    yield 1


async def async_generator():
    yield 1


class Lying(dict):
    def items(self):
        raise RuntimeError("no items")


def circle():
    items: list = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        {"price": float("inf")},
        {"n": 2**80},
        {"text": "\ud800"},
        b"bytes",
        object(),
        {1: 2},
        generator(),
        async_generator(),
        circle(),
        Lying(a=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_result_that_cannot_be_recorded_is_unknown(value):
    """The call happened: it is neither 'failed' nor silently null."""
    outcome = outcome_of_value(value)
    assert isinstance(outcome, Unknown)
    assert outcome.error.error_code == "result_not_json"
    assert outcome.error.suggestion


def test_a_structured_error_is_the_tool_s_own_word():
    """Requirement A6: ``success: false`` with its fields says 'not done' like a ToolError."""
    body = {
        "success": False,
        "error_code": "E7",
        "error_message": "full",
        "suggestion": "later",
        "retryable": True,
        "retry_after_s": 2,
        "detail": float("nan"),
    }
    outcome = outcome_of_value(body)
    assert outcome == NotDone(outcome.error, retryable=True, definite=True, retry_after_s=2.0)
    assert (outcome.error.error_code, outcome.error.message, outcome.error.suggestion) == ("E7", "full", "later")


def test_a_structured_error_may_be_a_model_and_may_be_bare():
    """The form of the object does not matter, and missing fields have plain words."""

    class Failure(BaseModel):
        success: bool = False
        message: str = "no"

    assert outcome_of_value(Failure()).error.message == "no"
    bare = outcome_of_value({"success": False, "retryable": "yes", "error_code": ["x"], "message": 3})
    assert (bare.retryable, bare.definite, bare.error.error_code) == (None, True, "tool_error")
    assert bare.error.message


@pytest.mark.parametrize("success", [True, 0, None, "false", "no"])
def test_only_exactly_false_is_a_failure(success):
    """A value that merely looks false is an output."""
    assert isinstance(outcome_of_value({"success": success}), Done)


def test_a_result_that_is_too_large_is_a_defect_of_the_tool() -> None:
    """The call happened and what came of it is not journalled: unknown, with what to do; the limit itself still fits."""
    for fits in ("x" * 98, {"x": "y" * 92}, 10**18, None):
        assert outcome_of_value(fits, 100) == Done(fits)
    for large in ("x" * 99, {"x": "y" * 93}, ["ü" * 50]):
        found = outcome_of_value(large, 100)
        assert isinstance(found, Unknown)
        assert found.error.error_code == "output_too_large"
        assert "at most 100" in found.error.message


def test_the_limit_of_a_result_is_32_mib() -> None:
    """As the docs say."""
    assert outcomes.MAX_OUTPUT_BYTES == 32 * 2**20
    assert isinstance(outcome_of_value("x" * outcomes.MAX_OUTPUT_BYTES), Unknown)
