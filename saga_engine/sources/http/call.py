"""One call of an HTTP tool: a request, its answer, and the outcome.

The rule: a request that was never sent is *not done*. Once the first byte was written, only an answer that can be
interpreted settles a write, and everything else is *unknown*. A read changes nothing, so its *unknown* counts as *not
done*.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urljoin, urlsplit

from saga_engine.core.scrubbing import scrubber
from saga_engine.errors import OutcomeUnknown, SecretMissing, ToolError
from saga_engine.plan.expect import CHANGED
from saga_engine.plan.jsonpath import Mismatch, find
from saga_engine.plan.values import canonical, printable
from saga_engine.sources.http.answers import (
    MAX_REFUSAL_BYTES,
    Unreadable,
    is_json,
    media_type,
    read_json,
    refusal_message,
    retry_after_s,
)
from saga_engine.sources.http.endpoint import Endpoint, Made, make_request
from saga_engine.sources.http.templates import ABSENT, KEY, Unfit, Values
from saga_engine.tools.context import ToolContext
from saga_engine.tools.error_rules import Refused

if TYPE_CHECKING:
    from saga_engine.sources.http.transport import Answer, RawRequest

MAX_REDIRECTS: Final = 5
#: Precondition Failed (RFC 9110 section 15.5.13).
_OTHER: Final = 412
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
#: Characters allowed in a target that another machine sent; all others are escaped.
_TARGET: Final = "/?:@!$&'()*+,;=-._~%[]"


class HttpCall:
    """The function of an HTTP tool. Two are equal if their declarations are."""

    def __init__(self, endpoint: Endpoint, *, ca_file: Any, verify: bool, allow_private: tuple[str, ...]) -> None:
        self.endpoint = endpoint
        self._network = (endpoint.scheme == "https", allow_private, ca_file, verify, endpoint.reuse)
        self.__name__ = endpoint.name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HttpCall):
            return NotImplemented
        return self.endpoint == other.endpoint and self._network == other._network

    def __hash__(self) -> int:
        return hash(self.endpoint.name)

    @property
    def host(self) -> str:
        """The called host: a constant of the declaration."""
        return self.endpoint.host

    async def __call__(self, /, saga_call: ToolContext, **params: Any) -> Any:
        """Make one request; returns the output, or raises ``ToolError`` (not done) or ``OutcomeUnknown``."""
        key = {KEY: saga_call.idempotency_key}
        values = Values({**self.endpoint.defaults, **params, **key}, os.environ)
        try:
            try:
                request = make_request(self.endpoint, values)
            except Unfit as error:
                raise _this_time(f"the request cannot be made: {error}", "params_invalid") from None
            except SecretMissing as error:
                raise _this_time(error.message, "secret_missing", suggestion=error.hint) from None
            async with self._asked(request) as answer:
                output = await self._interpreted(answer)
        except (ToolError, OutcomeUnknown) as error:
            raise _without_secrets(error, values.seen) from None
        return _scrubbed(output, values.seen)

    # --- request and answer --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _asked(self, request: Made) -> AsyncGenerator[Answer, None]:
        """Send the request; a read that may be redirected is sent again to the endpoint's target."""
        from saga_engine.sources.http.transport import Lost, Network, NeverSent, ask

        network, target = Network(*self._network), request.target
        try:
            for _ in range(MAX_REDIRECTS + 1):
                async with ask(network, self._raw(request, target)) as answer:
                    if not (self.endpoint.follow_redirects and answer.status in _REDIRECTS):
                        yield answer
                        return
                    target = self._redirected(target, answer.headers)
            raise _this_time(f"more than {MAX_REDIRECTS} redirects", "redirect_refused")
        except NeverSent as error:
            message = f"nothing was sent to {self.host}: {error.reason}"
            raise _this_time(message, error.error_code, retryable=error.retryable) from error
        except Lost as error:
            message = f"{self.host} was asked, and its answer was lost: {error.reason}"
            raise self._unknown(message, error.error_code) from error

    def _raw(self, request: Made, target: str) -> RawRequest:
        from saga_engine.sources.http.transport import RawRequest

        it = self.endpoint
        return RawRequest(
            it.method,
            it.scheme,
            it.host,
            it.port,
            target,
            request.headers,
            request.body,
            it.connect_timeout_s,
            it.read_timeout_s,
        )

    def _redirected(self, target: str, headers: Mapping[str, str]) -> str:
        """The target on the same host that an answer points to: secrets and params go to no other host."""
        it = self.endpoint
        try:
            there = urlsplit(urljoin(f"{it.scheme}://{it.authority}{target}", headers.get("location", "")))
            port = there.port or {"http": 80, "https": 443}.get(there.scheme)
        except ValueError:
            raise _this_time("it redirects to what is no URL", "redirect_refused") from None
        if (there.scheme, there.hostname, port) != (it.scheme, it.host, it.port) or there.username is not None:
            where = printable(there.netloc, 100)
            raise _this_time(f"it redirects to another host ({where}), which is not followed", "redirect_refused")
        path = quote(there.path or "/", safe=_TARGET)
        return f"{path}?{quote(there.query, safe=_TARGET)}" if there.query else path

    # --- outcome -------------------------------------------------------------------------------------------------

    async def _interpreted(self, answer: Answer) -> Any:
        meaning = self.endpoint.statuses.meaning(answer.status)
        if meaning == "done":
            return await self._output(answer)
        if meaning == "absent":
            return {} if self.endpoint.write else None
        message = await self._message(answer)
        if meaning == "not-done" or not self.endpoint.write:
            raise self._refusal(answer, message)
        raise self._unknown(message, f"http_{answer.status}")

    async def _output(self, answer: Answer) -> Any:
        """The output of a call that is done; an unreadable body leaves a write in doubt."""
        from saga_engine.sources.http.transport import Lost

        it = self.endpoint
        if it.answer == "none":
            return self._with_headers({}, answer)
        try:
            body = await answer.read(it.max_response_bytes)
            output = self._read(body, media_type(answer.headers))
        except Lost as error:
            raise self._unreadable(answer.status, error.reason, error.error_code) from error
        except (Unreadable, Mismatch) as error:
            raise self._unreadable(answer.status, str(error), "answer_unreadable", retryable=False) from error
        if it.absent_output is not ABSENT and canonical(output) == canonical(it.absent_output):
            return None
        return self._with_headers(output, answer)

    def _with_headers(self, output: Any, answer: Answer) -> Any:
        """The output with what the headers say."""
        if not self.endpoint.output_headers:
            return output
        if not isinstance(output, dict):
            reason = "it is no object, so 'output_headers' have no place in it"
            raise self._unreadable(answer.status, reason, "answer_unreadable", retryable=False)
        return output | {name: answer.headers.get(header) for name, header in self.endpoint.output_headers}

    def _read(self, body: bytes, kind: str) -> Any:
        it = self.endpoint
        if not body and not it.wants_output:
            return {}
        if it.answer == "text":
            if not (kind.startswith("text/") or it.any_content_type):
                raise Unreadable(f"the answer is no text, but {_shown(kind)}")
            try:
                return {"text": body.decode("utf-8")}
            except UnicodeDecodeError as error:
                raise Unreadable(f"the answer is no UTF-8: {error.reason}") from error
        if not (is_json(kind) or it.any_content_type):
            raise Unreadable(f"the answer is no JSON, but {_shown(kind)}")
        value = read_json(body)
        failed = None if it.failure is None else it.failure.of(value)
        if failed is not None:
            return failed
        if it.tail is None or (isinstance(value, dict) and value.get("success") is False):
            return value  # An answer that reports a failure need not have the fields of a success.
        return find(value, it.tail)

    async def _message(self, answer: Answer) -> str:
        from saga_engine.sources.http.transport import Lost

        try:
            body = await answer.read(min(MAX_REFUSAL_BYTES, self.endpoint.max_response_bytes))
        except Lost:
            body = b""  # The status decides; only its explanation is lost.
        said = refusal_message(body, media_type(answer.headers))
        status = f"{self.host} answered {answer.status}"
        return f"{status}: {said}" if said else status

    def _refusal(self, answer: Answer, message: str) -> ToolError:
        statuses = self.endpoint.statuses
        retryable = answer.status in statuses.retryable
        return Refused(
            message,
            error_code=CHANGED if self.endpoint.compares and answer.status == _OTHER else f"http_{answer.status}",
            retryable=retryable,
            retry_after_s=retry_after_s(answer.headers) if retryable else None,
            definite=answer.status in statuses.settles,
            once=answer.status in statuses.once,
        )

    def _unreadable(
        self, status: int, reason: str, error_code: str, *, retryable: bool = True
    ) -> ToolError | OutcomeUnknown:
        message = f"{self.host} answered {status}, and the answer cannot be used: {reason}"
        return self._unknown(message, error_code, retryable=retryable)

    def _unknown(self, message: str, error_code: str, *, retryable: bool = True) -> ToolError | OutcomeUnknown:
        if self.endpoint.write:
            return OutcomeUnknown(message, error_code=error_code)
        return _this_time(message, error_code, retryable=retryable)


def _shown(kind: str) -> str:
    return printable(kind, 100) or "without a type"


def _this_time(message: str, error_code: str, *, retryable: bool = False, suggestion: str | None = None) -> ToolError:
    """This attempt was not made; that says nothing about earlier ones."""
    return ToolError(message, error_code=error_code, retryable=retryable, suggestion=suggestion, definite=False)


# --- secrets never reach a record, not even as an echo ---------------------------------------------------------------


def _without_secrets(error: ToolError | OutcomeUnknown, seen: Mapping[str, str]) -> ToolError | OutcomeUnknown:
    error.message = _scrubbed(error.message, seen)
    error.args = (error.message,)
    return error


def _scrubbed(value: Any, seen: Mapping[str, str]) -> Any:
    """The same value with a marker in place of each secret that it contains, in any spelling."""
    found = scrubber(seen)
    return found.value(value) if found else value
