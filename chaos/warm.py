"""Imported once by the process that forks the others, so that a killed worker is back in milliseconds."""

from __future__ import annotations

import importlib

for _name in ("core.report", "plan.compiling", "stores.redis", "stores.remote", "tools.checking"):
    importlib.import_module(f"saga_engine.{_name}")
