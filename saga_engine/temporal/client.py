"""The client's view of the sagas in one Temporal namespace: submit, query and answer."""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import functools
import gc
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.converter import DataConverter, ExternalStorage
from temporalio.envconfig import ClientConfigProfile
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode

from saga_engine.core.codec import decode, inflate, refs_of
from saga_engine.core.effects import Direction, ErrorInfo
from saga_engine.core.messages import Message
from saga_engine.core.records import AnyRecord
from saga_engine.errors import (
    AmendRefused,
    CancelRefused,
    DecisionRefused,
    JournalUnreadable,
    PlanInvalid,
    Problem,
    RuntimeUnavailable,
    SagaNotFound,
    SettingInvalid,
)
from saga_engine.settings import without_login
from saga_engine.temporal import payloads

_REFUSALS: Final = {kind.code: kind for kind in (CancelRefused, DecisionRefused, AmendRefused)}
_REFUSALS_BY_KIND: Final = {"cancel": CancelRefused, "resolve": DecisionRefused, "amend": AmendRefused}
#: How long to wait before a message is sent again, in seconds.
_RESEND_S: Final = 0.1
_AWAY: Final = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.ABORTED,
    }
)
_HINT: Final = "temporal://HOST:PORT/NAMESPACE, for example temporal://localhost:7233/default"
#: How long a worker may take to answer a query, and the first attempt at it, in seconds.
_QUERY_S: Final = 5.0
_FIRST_TRY_S: Final = 1.0
#: What a query that nobody answered in time ends with.
_IN_VAIN: Final = frozenset({RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED})


class Address(NamedTuple):
    """The address of a Temporal server, and one of its namespaces."""

    host: str
    namespace: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse ``temporal://HOST:PORT/NAMESPACE``; 7233 and ``default`` may be omitted. Raises ``SettingInvalid``."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or 7233
        except ValueError as error:
            # The message never quotes it: a wrong address may hold a password.
            raise SettingInvalid("the address of the runtime cannot be understood", hint=_HINT) from error
        namespace = parts.path.strip("/")
        if parts.scheme != "temporal" or not host or parts.query or parts.username or "/" in namespace:
            hint = f"{_HINT}; keys: TEMPORAL_API_KEY" if parts.username else _HINT
            raise SettingInvalid(f"{without_login(url)[:200]!r} is no address of a runtime", hint=hint)
        named = f"[{host}]" if ":" in host else host
        return cls(f"{named}:{port}", namespace or "default")


class Standing(NamedTuple):
    """The status of a saga, without a query to a worker: digest, last known status, and whether it has ended."""

    digest: str
    status: str
    closed: bool


class Page(NamedTuple):
    """Some records of a saga; ``length`` is their total number, ``resting`` says that it waits for an operator.

    ``waits``: why no worker could make a call yet, by the step's key and the direction.
    """

    status: str
    length: int
    resting: bool
    records: Sequence[bytes]
    waits: Mapping[tuple[str, Direction], ErrorInfo]


async def connect(url: str, external: ExternalStorage | None, *, patience_s: float) -> Client:
    """A client of the server at ``url``. TLS and keys: Temporal's own variables.

    Raises ``SettingInvalid`` and ``RuntimeUnavailable``.
    """
    address = Address.parse(url)
    try:
        config = ClientConfigProfile.load().to_client_connect_config()
    except (RuntimeError, ValueError, OSError) as error:
        raise SettingInvalid(
            f"Temporal's own settings cannot be read: {error}", hint="see TEMPORAL_CONFIG_FILE and TEMPORAL_PROFILE"
        ) from error
    config["target_host"], config["namespace"] = address
    converter = dataclasses.replace(DataConverter.default, external_storage=external)
    loop = asyncio.get_running_loop()
    until = loop.time() + patience_s
    while True:
        try:
            left = timedelta(seconds=max(until - loop.time(), 0.5))
            return await Client.connect(**config, data_converter=converter, connect_timeout=left, runtime=_runtime())
        except (RPCError, RuntimeError, OSError) as error:
            if loop.time() >= until:
                raise RuntimeUnavailable(
                    f"the Temporal server at {address.host} cannot be reached: {_said(error)}",
                    hint="is it running, and is the address right? TLS and keys: TEMPORAL_TLS and TEMPORAL_API_KEY",
                ) from error
            await asyncio.sleep(min(0.2, patience_s))


@functools.cache
def _runtime() -> Runtime:
    """The SDK's core, which would otherwise write warnings to stderr, where commands show their progress."""
    filtered = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    # Its threads must end before the interpreter does: one that still calls Python then aborts the process.
    atexit.register(_let_go)
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=filtered)))


def _let_go() -> None:
    _runtime.cache_clear()
    gc.collect()


def _said(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


class TemporalSagas:
    """Starts sagas, reads their journals, and sends messages to them.

    All methods raise ``RuntimeUnavailable`` if the server cannot be reached, and ``SagaNotFound`` for an id that
    Temporal does not know (or has deleted: it keeps closed workflows for its retention period).
    """

    def __init__(self, client: Client, task_queue: str) -> None:
        self.client = client
        self.task_queue = task_queue

    async def start(self, saga_id: str, begin: payloads.Begin) -> bool:
        """Start a saga; False if one with this id exists already, whatever its plan."""
        try:
            await self.client.start_workflow(
                payloads.WORKFLOW,
                msgspec.to_builtins(begin),
                id=saga_id,
                task_queue=self.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                memo={payloads.MEMO: {"digest": begin.started["digest"], "status": "PENDING"}},
            )
        except WorkflowAlreadyStartedError:
            return False
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise SettingInvalid(
                    f"Temporal has no namespace {self.client.namespace!r}: {_said(error)}", hint=_HINT
                ) from error
            raise self._away(error, saga_id) from error
        return True

    async def standing(self, saga_id: str) -> Standing:
        """The status of a saga as the server knows it."""
        try:
            found = await self.client.get_workflow_handle(saga_id).describe()
            memo = (await found.memo()).get(payloads.MEMO)
        except RPCError as error:
            raise self._away(error, saga_id) from error
        if found.workflow_type != payloads.WORKFLOW or not isinstance(memo, dict):
            raise SagaNotFound(f"the workflow {saga_id} is no saga", hint="choose another id", saga_id=saga_id)
        closed = found.status is not WorkflowExecutionStatus.RUNNING
        return Standing(str(memo.get("digest", "")), str(memo.get("status", "")), closed)

    async def page(self, saga_id: str, start: int, *, wait_s: float = _QUERY_S) -> Page | None:
        """Records from ``start`` on; None if no worker answers within ``wait_s``."""
        said = await self._query(saga_id, "journal", start, wait_s)
        if said is None:
            return None
        records = [record.encode() for record in said["records"]]
        waits = {(each["step"], each["direction"]): payloads.read_error(each["error"]) for each in said["waits"]}
        return Page(str(said["status"]), int(said["length"]), bool(said["resting"]), records, waits)

    async def value(self, saga_id: str, digest: str, *, wait_s: float = _QUERY_S) -> bytes | None:
        """A large value, from a worker; None if no worker answers, or the worker does not have it."""
        said = await self._query(saga_id, "value", digest, wait_s)
        return None if said is None else payloads.unpack(said)

    async def _query(self, saga_id: str, name: str, argument: Any, wait_s: float) -> Any:
        """One answer of a worker. A query that reaches a run as another one continues it is answered by neither.

        So the first attempt gets little of the time, and each later one four times as much, as far as it lasts: a
        worker may have to replay a long history first.
        """
        handle = self.client.get_workflow_handle(saga_id)
        left_s, try_s = wait_s, _FIRST_TRY_S
        while True:
            span_s = min(left_s, try_s)
            try:
                return await handle.query(name, argument, rpc_timeout=timedelta(seconds=span_s))
            except WorkflowQueryFailedError as error:
                raise JournalUnreadable(
                    f"a worker cannot tell of saga {saga_id}: {_said(error)}", hint="is it of the same version?"
                ) from error
            except RPCError as error:
                left_s, try_s = left_s - span_s, try_s * 4
                if error.status in _IN_VAIN and left_s > 0:
                    continue
                if error.status in _AWAY or error.status is RPCStatusCode.FAILED_PRECONDITION:
                    return None
                raise self._away(error, saga_id) from error

    async def ended(self, saga_id: str) -> tuple[list[bytes], dict[str, bytes]] | None:
        """The journal of a saga whose workflow has ended, and the values that are needed to read it.

        None if the workflow was terminated from outside: then a worker must be queried.
        """
        try:
            body: Mapping[str, Any] = await self.client.get_workflow_handle(saga_id).result()
        except WorkflowFailureError:
            return None
        except RPCError as error:
            raise self._away(error, saga_id) from error
        values = {digest: payloads.unpack(text) for digest, text in body["values"].items()}
        return payloads.unpack_journal(body["journal"]), values

    async def journal(self, saga_id: str, *, patience_s: float) -> list[bytes]:
        """All records. An ended saga needs no worker; otherwise it raises ``RuntimeUnavailable`` if none answers."""
        return (await self._journal(saga_id, patience_s))[0]

    async def records(self, saga_id: str, *, whole: bool, patience_s: float) -> list[AnyRecord]:
        """All records; with ``whole`` every large value is inserted, else only outputs stay references."""
        data, values = await self._journal(saga_id, patience_s)
        found = [decode(each) for each in data]
        wanted = {ref.digest for record in found for name, ref in refs_of(record).items() if whole or name != "output"}
        for digest in sorted(wanted - values.keys()):
            value = await self.value(saga_id, digest, wait_s=patience_s)
            if value is None:
                raise self._unheard(saga_id)
            values[digest] = value
        return [_filled(record, values) for record in found]

    async def _journal(self, saga_id: str, patience_s: float) -> tuple[list[bytes], dict[str, bytes]]:
        standing = await self.standing(saga_id)
        if standing.closed:
            ended = await self.ended(saga_id)
            if ended is not None:
                return ended
        records: list[bytes] = []
        while True:
            page = await self.page(saga_id, len(records), wait_s=patience_s)
            if page is None:
                raise self._unheard(saga_id)
            records += page.records
            if len(records) >= page.length:
                return records, {}

    async def send(self, saga_id: str, message: Message, *more: Any, wait_s: float) -> None:
        """Send a message to a saga; returns once the saga has processed it.

        Raises the refusal that fits it, and ``RuntimeUnavailable`` if no worker took it in time. Sending is idempotent.
        """
        try:
            async with asyncio.timeout(wait_s):
                while not await self._sent(saga_id, message, more):  # noqa: ASYNC110 - it happens elsewhere
                    await asyncio.sleep(_RESEND_S)
        except TimeoutError as error:
            raise self._unheard(saga_id) from error

    async def _sent(self, saga_id: str, message: Message, more: Sequence[Any]) -> bool:
        """Whether the message was processed; if not, it may be sent again."""
        handle = self.client.get_workflow_handle(saga_id)
        try:
            await handle.execute_update(message.kind, args=[msgspec.to_builtins(message), *more], id=message.id)
        except WorkflowUpdateFailedError as error:
            raise _refusal(error) from error
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            # The SDK has one error for both: the server did not answer in time, or we were cancelled.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None
            return False
        except RPCError as error:
            if error.status in _AWAY:
                return False
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise self._away(error, saga_id) from error
            return await self._was_heard(saga_id, message)
        return True

    async def _was_heard(self, saga_id: str, message: Message) -> bool:
        """Whether a message that found no open workflow had been processed before.

        A saga that has ended accepts no messages, and the sender must learn that; one that is open was just being
        continued in another run.
        """
        standing = await self.standing(saga_id)
        if not standing.closed:
            return False
        ended = await self.ended(saga_id)
        records = [] if ended is None else ended[0]
        if any(getattr(decode(data), "message", "") == message.id for data in records):
            return True
        raise _REFUSALS_BY_KIND[message.kind](
            f"saga {saga_id} ended ({standing.status}) before this was read", hint="see `saga show`"
        )

    def _unheard(self, saga_id: str) -> RuntimeUnavailable:
        return RuntimeUnavailable(
            f"no worker answers for saga {saga_id}",
            hint=f"start one: saga worker --runtime … --task-queue {self.task_queue} --tools …",
            saga_id=saga_id,
        )

    def _away(self, error: RPCError, saga_id: str) -> Exception:
        if error.status is RPCStatusCode.NOT_FOUND:
            return SagaNotFound(
                f"there is no saga {saga_id} in namespace {self.client.namespace}",
                hint="write the whole id; the namespace keeps a closed workflow for its retention period",
                saga_id=saga_id,
            )
        return RuntimeUnavailable(
            f"the Temporal server refuses or cannot be reached: {_said(error)}",
            hint="look at the server; nothing is lost",
            saga_id=saga_id,
        )


def _filled(record: AnyRecord, values: Mapping[str, bytes]) -> AnyRecord:
    """The record with those of its large values inserted that are available."""
    refs = refs_of(record)
    here = {name: ref for name, ref in refs.items() if ref.digest in values}
    if not here:
        return record
    made = inflate(msgspec.structs.replace(record, refs=here), values)
    return msgspec.structs.replace(made, refs={name: ref for name, ref in refs.items() if name not in here})


def _refusal(error: WorkflowUpdateFailedError) -> Exception:
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return JournalUnreadable(f"the saga did not understand the message: {_said(error)}")
    details = cause.details[0] if cause.details and isinstance(cause.details[0], dict) else {}
    problems = details.get("problems")
    if cause.type == PlanInvalid.code and problems:
        return PlanInvalid([Problem(**each) for each in problems])
    kind = _REFUSALS.get(cause.type or "")
    message = str(details.get("message") or cause.message)
    if kind is None:
        return JournalUnreadable(f"the saga did not understand the message: {message}")
    return kind(message, hint=details.get("hint"))
