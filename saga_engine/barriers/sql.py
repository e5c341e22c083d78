"""A tool honours idempotency keys with a table in its own database: SQLite, PostgreSQL, MySQL, MariaDB and others.

``SqlBarrier`` is for plain functions and a SQLAlchemy ``Engine``, ``AsyncSqlBarrier`` for ``async`` ones and an
``AsyncEngine``. The *work* of a call runs in the transaction that also records its key and its result:

* A repeated call, also one at the same time in another process, returns the result of the first one.
* A call that fails leaves nothing, so it may be repeated under its key.
* An undo runs at most once, and only if the call happened. If the call has not happened, the undo does nothing, and the
  call is refused if it arrives later.

This holds for what the transaction covers. The work must not commit, and a request that it sends elsewhere is not
covered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from saga_engine.barriers.table import (
    DONE,
    OPEN,
    REFUSED,
    ROUNDS,
    UNDONE,
    RolledBack,
    Row,
    Taken,
    answer_to_call,
    answer_to_probe,
    barrier_table,
    busy,
    checked,
    claim,
    commit_unknown,
    finish,
    forget,
    left_open,
    lock,
    look,
    not_done,
    undone_call,
)
from saga_engine.loggers import logger_of

_log = logger_of("saga_engine.barriers")


class _Barrier:
    """What both barriers share: the table."""

    def __init__(self, table: str, schema: str | None) -> None:
        #: The table, for your migrations (Alembic) and queries.
        self.table = barrier_table(table, schema)


class SqlBarrier(_Barrier):
    """A barrier for plain functions. Threads and processes may share its table."""

    def __init__(self, engine: Engine, *, table: str = "saga_barrier", schema: str | None = None) -> None:
        super().__init__(table, schema)
        self._engine = engine

    def create_table(self) -> None:
        """Create the table if it does not exist."""
        self.table.metadata.create_all(self._engine)

    def call(self, key: str, work: Callable[[Connection], Any]) -> Any:
        """Do the work once for this key. Returns its result as JSON, or that of the call that did it before.

        ``work`` receives the connection of the transaction. Raises ``ToolError`` if the call was undone before, or if
        the database failed and rolled back, and ``OutcomeUnknown`` if the commit failed. What ``work`` raises is
        raised again, after the transaction is rolled back.
        """
        checked(key)
        for _ in range(ROUNDS):
            try:
                with _transaction(self._engine) as db:
                    claim(db, self.table, key, OPEN)
                    return finish(db, self.table, key, DONE, work(db))
            except RolledBack as failed:
                return failed.answer
            except Taken:
                row = self._row(key)
            if row is not None:
                return answer_to_call(row)
        raise busy(key)

    def undo(self, undoes: str | None, work: Callable[[Connection, Any], Any]) -> Any:
        """Undo the call with the key ``undoes`` (``ToolContext.undoes``) once. Returns the result of the work.

        ``work`` receives the connection of the transaction and the result of the call. It does not run if the call
        did not happen; then the call is refused if it arrives later, and ``None`` is returned.
        """
        key = undone_call(undoes)
        for _ in range(ROUNDS):
            try:
                with _transaction(self._engine) as db:
                    claim(db, self.table, key, REFUSED)
                return None
            except Taken:
                pass
            try:
                with _transaction(self._engine) as db:
                    row = lock(db, self.table, key)
                    if row is not None and row.state == DONE:
                        return finish(db, self.table, key, UNDONE, work(db, row.result))
            except RolledBack as failed:
                return failed.answer
            if row is not None:
                return _undone_before(row)
        raise busy(key)

    def probe(self, key: str) -> Any:
        """The result of the call with this key (``{}`` if it returned ``None``), or ``None`` if it did not happen.

        It waits for a call in another transaction to end. It does not stop a call that arrives later.
        """
        checked(key)
        for _ in range(ROUNDS):
            try:
                with _transaction(self._engine) as db:
                    claim(db, self.table, key, OPEN)
                    raise RolledBack(None)
            except RolledBack:
                return None
            except Taken:
                row = self._row(key)
            if row is not None:
                return answer_to_probe(row)
        raise busy(key)

    def purge(self, older_than_s: float) -> int:
        """Delete the rows of calls that are older than that; returns how many. See docs/barriers.md for how old."""
        with _transaction(self._engine) as db:
            return forget(db, self.table, older_than_s)

    def _row(self, key: str) -> Row | None:
        with _transaction(self._engine) as db:
            return look(db, self.table, key)


class AsyncSqlBarrier(_Barrier):
    """A barrier for ``async`` functions; its methods are those of :class:`SqlBarrier`."""

    def __init__(self, engine: AsyncEngine, *, table: str = "saga_barrier", schema: str | None = None) -> None:
        super().__init__(table, schema)
        self._engine = engine

    async def create_table(self) -> None:
        """Create the table if it does not exist."""
        async with self._engine.begin() as db:
            await db.run_sync(self.table.metadata.create_all)

    async def call(self, key: str, work: Callable[[AsyncConnection], Awaitable[Any]]) -> Any:
        """Do the work once for this key: see :meth:`SqlBarrier.call`."""
        checked(key)
        for _ in range(ROUNDS):
            try:
                async with _async_transaction(self._engine) as db:
                    await db.run_sync(claim, self.table, key, OPEN)
                    return await db.run_sync(finish, self.table, key, DONE, await work(db))
            except RolledBack as failed:
                return failed.answer
            except Taken:
                row = await self._row(key)
            if row is not None:
                return answer_to_call(row)
        raise busy(key)

    async def undo(self, undoes: str | None, work: Callable[[AsyncConnection, Any], Awaitable[Any]]) -> Any:
        """Undo the call with the key ``undoes`` once: see :meth:`SqlBarrier.undo`."""
        key = undone_call(undoes)
        for _ in range(ROUNDS):
            try:
                async with _async_transaction(self._engine) as db:
                    await db.run_sync(claim, self.table, key, REFUSED)
                return None
            except Taken:
                pass
            try:
                async with _async_transaction(self._engine) as db:
                    row: Row | None = await db.run_sync(lock, self.table, key)
                    if row is not None and row.state == DONE:
                        return await db.run_sync(finish, self.table, key, UNDONE, await work(db, row.result))
            except RolledBack as failed:
                return failed.answer
            if row is not None:
                return _undone_before(row)
        raise busy(key)

    async def probe(self, key: str) -> Any:
        """Whether the call with this key happened: see :meth:`SqlBarrier.probe`."""
        checked(key)
        for _ in range(ROUNDS):
            try:
                async with _async_transaction(self._engine) as db:
                    await db.run_sync(claim, self.table, key, OPEN)
                    raise RolledBack(None)
            except RolledBack:
                return None
            except Taken:
                row = await self._row(key)
            if row is not None:
                return answer_to_probe(row)
        raise busy(key)

    async def purge(self, older_than_s: float) -> int:
        """Delete the rows of calls that are older than that: see :meth:`SqlBarrier.purge`."""
        async with _async_transaction(self._engine) as db:
            return int(await db.run_sync(forget, self.table, older_than_s))

    async def _row(self, key: str) -> Row | None:
        async with _async_transaction(self._engine) as db:
            row: Row | None = await db.run_sync(look, self.table, key)
            return row


def _undone_before(row: Row) -> Any:
    """The answer to an undo whose work has been done, or has nothing to do."""
    if row.state == OPEN:
        raise left_open()
    return row.undo_result


# --- transactions ----------------------------------------------------------------------------------------------------


@contextmanager
def _transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction: an error rolls it back, and an error of its commit leaves the outcome unknown."""
    try:
        connection = engine.connect()
    except SQLAlchemyError as error:
        raise not_done(error, again=True) from error
    with connection as db:
        begun = db.begin()
        try:
            yield db
        except BaseException as error:
            ended = not begun.is_active
            try:
                begun.rollback()
            except SQLAlchemyError as lost:
                _give_up(db, lost)
            raised = _interpreted(error, ended=ended)
            if raised is error:
                raise
            raise raised from error
        if not begun.is_active:
            raise left_open()
        try:
            begun.commit()
        except SQLAlchemyError as error:
            raise _commit_failed(error) from error


@asynccontextmanager
async def _async_transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """The same with an asynchronous engine. Cancelling it rolls back, unless the commit was sent."""
    try:
        connection = await engine.connect()
    except (SQLAlchemyError, OSError) as error:
        raise not_done(error, again=True) from error
    async with _closing(connection) as db:
        begun = await db.begin()
        try:
            yield db
        except BaseException as error:
            ended = not begun.is_active
            try:
                await begun.rollback()
            except SQLAlchemyError as lost:
                await db.run_sync(_give_up, lost)
            raised = _interpreted(error, ended=ended)
            if raised is error:
                raise
            raise raised from error
        if not begun.is_active:
            raise left_open()
        try:
            await begun.commit()
        except SQLAlchemyError as error:
            raise _commit_failed(error) from error


@asynccontextmanager
async def _closing(connection: AsyncConnection) -> AsyncIterator[AsyncConnection]:
    try:
        yield connection
    finally:
        # Also if the caller is cancelled meanwhile, or the pool would lack the connection.
        await asyncio.shield(connection.close())


def _interpreted(error: BaseException, *, ended: bool) -> BaseException:
    """What an error before the commit means, after the rollback. ``ended``: the work had ended the transaction."""
    if ended:
        return left_open()
    if isinstance(error, DBAPIError):
        passing = isinstance(error, OperationalError) or error.connection_invalidated
        return not_done(error, again=passing)
    return not_done(error, again=False) if isinstance(error, SQLAlchemyError) else error


def _commit_failed(error: SQLAlchemyError) -> Exception:
    # A constraint that is checked at the commit has refused it.
    return not_done(error, again=False) if isinstance(error, IntegrityError) else commit_unknown(error)


def _give_up(db: Connection, error: SQLAlchemyError) -> None:
    """Close a connection whose rollback failed: the database rolls back what it has not committed."""
    _log.warning("the rollback failed, so its connection is closed: %s", error)
    db.invalidate(error)
