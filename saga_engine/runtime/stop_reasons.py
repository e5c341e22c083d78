"""The reasons why a saga is not driven here (any more), in words."""

from __future__ import annotations

from saga_engine.errors import Interrupted, LeaseLost


def interrupted(saga_id: str) -> Interrupted:
    """The error for callers that wait for a saga that this process stops driving before its end."""
    return Interrupted(
        f"saga {saga_id} was interrupted; it stands as its journal says",
        hint=f"saga resume {saga_id}",
        saga_id=saga_id,
    )


def lost(saga_id: str) -> LeaseLost:
    """The error for callers that wait for a saga that this process may not write any more."""
    return LeaseLost(
        f"the lease of saga {saga_id} was lost; this process stopped before the next effect",
        hint=f"saga resume {saga_id}",
        saga_id=saga_id,
    )
