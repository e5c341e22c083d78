"""Owners of sagas in a readable form: a process of a machine."""

from __future__ import annotations

from saga_engine.cli.output import shown


def process_words(owner: str) -> str:
    """``pid 4711 on vm`` for the name that a process gives its lease; other names unchanged."""
    from saga_engine.execution.owner import parse

    found = parse(owner)
    return shown(owner, 80) if found is None else f"pid {found.pid} on {shown(found.host, 60)}"
