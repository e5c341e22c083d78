"""The engine's loggers, and what their records leave out while a sealed store is open in this process.

The message of an exception may quote anything: a param, an output, a line of a tool's own database. So of a sealed
store no message of an exception is logged, unless the operator chose ``[escalation] payloads = true``. Records keep
the exception's code and its traceback without values. This holds at the loggers, because there are many lines that
log an exception and more will come; a logger belongs to the process, and so does what it leaves out.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from saga_engine.errors import (
    DurabilityInsufficient,
    IssuerUnavailable,
    KeyMissing,
    KeyRefused,
    LeaseHeld,
    LeaseLost,
    QuotaExceeded,
    SagaErased,
    SagaError,
    SagaNotFound,
    SealBroken,
    StoreRefused,
    StoreUnavailable,
)
from saga_engine.tracebacks import traceback_of

#: Every logger of the engine, and what it tells: the page of the reference is made of it.
LOGGERS: Final = {
    "saga_engine": "parent of all loggers below; owners and releases of sagas; observers that raised or were too slow",
    "saga_engine.tools": "unforeseen exceptions of tools, with their tracebacks",
    "saga_engine.driver": "defects inside the engine while it runs a saga",
    "saga_engine.events": "events that cannot be brought to their saga yet (`warning`)",
    "saga_engine.companions": "waits, children and ends that could not be told yet, and are tried again (`warning`)",
    "saga_engine.children": "parents that are gone when a child ends (`info`)",
    "saga_engine.retention": "sagas that were purged (`info`), and those that cannot be archived or read",
    "saga_engine.schedules": "ticks that could not be submitted, schedules that paused themselves",
    "saga_engine.worker": "the end of each saga that a worker ran (`info`), of dead owners, or that it cannot run",
    "saga_engine.lease": "a lease that was lost, could not be renewed, or began without a server that is away",
    "saga_engine.writer": "a group commit that failed inside the engine",
    "saga_engine.audit": "orphaned sagas, damaged sagas, and what dead processes left in the store",
    "saga_engine.listener": "what a listener of HTTP refuses or cuts off",
    "saga_engine.quota": "a quota that cannot be read",
    "saga_engine.watchdog": "a blocked event loop, with the tool and the line",
    "saga_engine.stores": "keys of the store that another program overwrote, and what was rebuilt",
    "saga_engine.privacy": "sealed summaries and messages that cannot be opened (`warning`)",
    "saga_engine.trials": "calls that may end their process, when they are tried apart from others",
    "saga_engine.barriers": "a rollback in the database of a tool that failed",
    "saga_engine.guards": "resources, breakers, rates and de-duplication",
    "saga_engine.sources.mcp": "MCP servers that cannot be reached, and (`debug`) what they write to stderr",
    "saga_engine.gateway": "lines that are no messages, refused requests, sagas of clients that have left",
    "saga_engine.server": "jobs that cannot be carried out yet (`warning`); requests that failed by a fault of the "
    "engine, each with its reference (`error`)",
    "saga_engine.telemetry": "a receiver of spans that fails (`warning`), spans that were lost (`error`)",
    "saga_engine.policy": "checks of the policy that failed",
    "saga_engine.planner": "a planner that failed",
    "saga_engine.escalation": "questions to operators, by the hook `log`",
    "saga_engine.temporal": "activities of a Temporal worker",
    "saga_engine.testing": "connections that the cutting proxy lost",
    "saga_engine.cli": "a command's own messages, with `--log-format json`",
}
#: What stands in place of a text that is left out.
SEALED: Final = "[sealed]"
#: They quote nothing but names of keys, sagas and owners, and the store's address: what an operator has to look for.
_OF_NAMES: Final = (
    DurabilityInsufficient,
    IssuerUnavailable,
    KeyMissing,
    KeyRefused,
    LeaseHeld,
    LeaseLost,
    QuotaExceeded,
    SagaErased,
    SagaNotFound,
    SealBroken,
    StoreRefused,
    StoreUnavailable,
)


class _Withholding(logging.Filter):
    """Takes the messages of exceptions out of records, while somebody asks for it. It stops no record."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if not self.asked:
            return True
        if isinstance(record.args, tuple):
            record.args = tuple(_without_text(each) for each in record.args)
        if record.name == "asyncio":  # its further lines describe the task, with its exception
            record.msg, record.args = record.getMessage().partition("\n")[0], ()
        if record.exc_info and record.exc_info[1] is not None:
            # A formatter prints this text and does not make another one.
            record.exc_text = traceback_of(record.exc_info[1])
            record.exc_info = None
        return True


_FILTER: Final = _Withholding()
#: The loggers of libraries that carry what the engine sends and gets, or hold its tasks. A tool's own are the tool's.
#: ``client`` is the MCP SDK's, too.
_LIBRARIES: Final = frozenset(
    {"asyncio", "mcp", "client", "httpx2", "httpcore2", "redis", "starlette", "uvicorn", "pydantic_ai"}
)


def logger_of(name: str) -> logging.Logger:
    """The logger of this name. Each of the engine's loggers is made here."""
    made = logging.getLogger(name)
    made.addFilter(_FILTER)
    return made


@contextmanager
def withholding(asked: bool = True) -> Iterator[None]:
    """Log no message of an exception during the block, wherever in this process."""
    if asked:
        _watch_libraries()
    _FILTER.asked += asked
    try:
        yield
    finally:
        _FILTER.asked -= asked


@functools.cache
def _watch_libraries() -> None:
    """Have each record of a library pass the filter where it is made: many libraries are imported later."""
    genuine = logging.getLogRecordFactory()

    def made(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = genuine(*args, **kwargs)
        if record.name.split(".")[0] in _LIBRARIES:
            _FILTER.filter(record)
        return record

    logging.setLogRecordFactory(made)


def quoted(text: str) -> str:
    """A text of a tool, a client or a param, for the log: itself, unless such texts are left out."""
    return SEALED if _FILTER.asked else text


def _without_text(value: Any) -> Any:
    if isinstance(value, BaseException) and not isinstance(value, _OF_NAMES):
        return f"{value.code if isinstance(value, SagaError) else type(value).__name__} {SEALED}"
    return value
