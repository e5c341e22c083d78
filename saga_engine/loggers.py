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
