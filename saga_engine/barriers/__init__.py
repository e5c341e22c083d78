"""Barriers: a tool honours idempotency keys with a table in its own database (extra ``sql``)."""

from __future__ import annotations

from saga_engine.errors import SettingInvalid

try:
    from saga_engine.barriers.sql import AsyncSqlBarrier, SqlBarrier
except ModuleNotFoundError as missing:
    if missing.name is None or missing.name.partition(".")[0] != "sqlalchemy":
        raise
    raise SettingInvalid("SQLAlchemy is not installed", hint="pip install 'saga-engine[sql]'") from missing

__all__ = ["AsyncSqlBarrier", "SqlBarrier"]
