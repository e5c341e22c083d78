"""The table of a barrier, and the statements on it.

A call's key is the primary key of its row. The insert of the row is the first statement of a call's transaction, so the
database itself decides between two calls with one key: the second insert waits for the first transaction, and then
fails if that was committed.

========= =========================================================================================================
state     meaning
========= =========================================================================================================
open      the call's transaction runs; nobody else ever sees this state, unless the work ended the transaction itself
done      the call happened; ``result`` is what it returned
undone    it happened and was undone; ``undo_result`` is what the undo returned
refused   its undo came first; the call did not happen and never will
========= =========================================================================================================

This is the sub-transaction barrier of dtm (https://en.dtm.pub/practice/barrier.html) with one row for each call.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.mysql import LONGTEXT, VARCHAR
from sqlalchemy.exc import IntegrityError

from saga_engine.errors import OutcomeUnknown, ToolError, ValueNotJson
from saga_engine.plan.values import plain
from saga_engine.ports.machine_clock import machine_clock

OPEN: Final = "open"
DONE: Final = "done"
UNDONE: Final = "undone"
REFUSED: Final = "refused"

MAX_KEY_CHARS: Final = 255
#: How often a row that was deleted between two looks is looked for again.
ROUNDS: Final = 5


class Taken(Exception):
    """The row of this key exists. The transaction is rolled back; it contained nothing but the insert."""


class RolledBack(Exception):
    """The transaction is to be rolled back, and ``answer`` is the result of the call."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer


class Row(NamedTuple):
    """The row of a call."""

    state: str
    result: Any
    undo_result: Any


def barrier_table(name: str, schema: str | None) -> Table:
    """The table; keys are compared byte by byte in every database."""
    key = String(MAX_KEY_CHARS)
    text = Text()
    for dialect in ("mysql", "mariadb"):
        key = key.with_variant(VARCHAR(MAX_KEY_CHARS, charset="ascii", collation="ascii_bin"), dialect)
        text = text.with_variant(LONGTEXT(charset="ascii", collation="ascii_bin"), dialect)
    return Table(
        name,
        MetaData(),
        Column("call_key", key, primary_key=True),
        Column("state", String(8), nullable=False),
        Column("result", text),
        Column("undo_result", text),
        Column("created_at", BigInteger, nullable=False, index=True),
        schema=schema,
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


# --- statements ------------------------------------------------------------------------------------------------------


def claim(db: Connection, table: Table, key: str, state: str) -> None:
    """Insert the row of a key as the first statement of a transaction. Raises ``Taken``."""
    try:
        db.execute(insert(table).values(call_key=key, state=state, created_at=int(machine_clock.time())))
    except IntegrityError as error:
        raise Taken from error


def look(db: Connection, table: Table, key: str) -> Row | None:
    """The committed row of a key."""
    wanted = select(table.c.state, table.c.result, table.c.undo_result).where(table.c.call_key == key)
    found = db.execute(wanted).first()
    if found is None:
        return None
    state, result, undo_result = found
    return Row(str(state), _decoded(result), _decoded(undo_result))


def lock(db: Connection, table: Table, key: str) -> Row | None:
    """The row of a key, which is locked to the end of the transaction.

    An update locks it, and not ``SELECT … FOR UPDATE``, which SQLite does not have.
    """
    db.execute(update(table).where(table.c.call_key == key).values(call_key=key))
    return look(db, table, key)


def finish(db: Connection, table: Table, key: str, state: str, result: Any) -> Any:
    """Record the result in the transaction that has the effect. Returns it as a repeat will receive it.

    Raises ``RolledBack`` for a result that reports a failure, and ``ToolError`` for one that is no JSON.
    """
    try:
        value = plain(result)
    except ValueNotJson as error:
        message = f"the result cannot be stored, so nothing was committed: {error.message}"
        raise ToolError(message, error_code="result_not_json", retryable=False, definite=False) from error
    if isinstance(value, dict) and value.get("success") is False:
        raise RolledBack(value)
    text = json.dumps(value, allow_nan=False)
    column = "undo_result" if state == UNDONE else "result"
    db.execute(update(table).where(table.c.call_key == key).values({"state": state, column: text}))
    return json.loads(text)


def forget(db: Connection, table: Table, older_than_s: float) -> int:
    """Delete the rows of calls that are older than that; returns how many."""
    return int(db.execute(delete(table).where(table.c.created_at < machine_clock.time() - older_than_s)).rowcount)


def _decoded(text: Any) -> Any:
    return None if text is None else json.loads(text)


# --- answers ---------------------------------------------------------------------------------------------------------


def checked(key: str) -> str:
    """The key, if it can be one. Raises ``ToolError``."""
    if isinstance(key, str) and 0 < len(key) <= MAX_KEY_CHARS and key.isascii():
        return key
    message = f"a key is a text of 1 to {MAX_KEY_CHARS} ASCII characters, and this is {str(key)[:80]!r}"
    raise ToolError(message, error_code="key_invalid", retryable=False, suggestion="pass on the idempotency key")


def undone_call(undoes: str | None) -> str:
    """The key of the call that is to be undone. Raises ``ToolError``."""
    if undoes is not None:
        return checked(undoes)
    raise ToolError(
        "this call undoes no call, so there is no key of one",
        error_code="nothing_to_undo",
        retryable=False,
        suggestion="use the tool as the undo of another one; ToolContext.undoes then has the key of the call",
    )


def answer_to_call(row: Row) -> Any:
    """The answer to a call whose row exists. Raises ``ToolError`` if it comes after its undo."""
    if row.state == DONE:
        return row.result
    if row.state == OPEN:
        raise left_open()
    happened = "happened and was undone" if row.state == UNDONE else "was undone before it arrived"
    raise ToolError(
        f"nothing was done: the call with this key {happened}",
        error_code="call_undone",
        retryable=False,
        suggestion="make a new call, with a key of its own",
    )


def answer_to_probe(row: Row) -> Any:
    """What a probe returns: the result of a call that happened, ``{}`` if it had none; ``None``: it did not happen."""
    if row.state == OPEN:
        raise left_open()
    if row.state == REFUSED:
        return None
    return {} if row.result is None else row.result


def left_open() -> OutcomeUnknown:
    """The work has committed or rolled back the transaction by itself, before its result was recorded."""
    return OutcomeUnknown(
        "the work ended the barrier's transaction itself, so its effect and its result do not belong together",
        error_code="barrier_left_open",
        suggestion="look for the effect in the database; the work must leave commit and rollback to the barrier",
    )


def not_done(error: BaseException, *, again: bool) -> ToolError:
    """A failure of the database after which the transaction is rolled back. It covers this attempt alone."""
    message = f"the transaction was rolled back: {str(error).splitlines()[0] or type(error).__name__}"
    return ToolError(message, error_code="database_error", retryable=again, definite=False)


def commit_unknown(error: BaseException) -> OutcomeUnknown:
    """The commit was sent, and its answer is an error."""
    message = f"the commit failed, so the outcome is unknown: {str(error).splitlines()[0] or type(error).__name__}"
    return OutcomeUnknown(message, error_code="commit_unknown", suggestion="the same call with the same key settles it")


def busy(key: str) -> ToolError:
    """The row appeared and disappeared several times."""
    message = f"the row of the key {key[:80]} disappeared while it was read"
    return ToolError(message, error_code="barrier_busy", retryable=True, definite=False)
