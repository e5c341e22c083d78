"""Imported once by the process that forks the others, so that a killed worker restarts in milliseconds."""

from __future__ import annotations

import saga_engine.core.report
import saga_engine.plan.compiler
import saga_engine.stores.redis
import saga_engine.stores.remote
import saga_engine.tools.schema_check  # noqa: F401
