"""The reasons why a saga is not driven here (any more), in words."""

from __future__ import annotations

from saga_engine.errors import Interrupted, JournalConflict, LeaseLost, SagaError, SagaExists, SagaNotFound


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


def reserved(saga_id: str, of: str) -> SagaExists:
    """The error for a saga whose id is reserved for one that will own effects of the saga ``of``."""
    return SagaExists(
        f"the id {saga_id} is reserved for a fork of saga {of} that has not started yet; nothing was journalled",
        hint=f"repeat the `saga fork {of}` command that stopped, then start this again; or choose another id",
        saga_id=saga_id,
        reserved_for=of,
    )


def refusal(saga_id: str, code: str, digest: str) -> SagaError:
    """The error for an append that the store answered with ``code``; ``digest`` as in ``Ack``."""
    if code == "fenced":
        return LeaseLost(
            f"saga {saga_id} is no longer ours; nothing was added", hint="see `saga show`", saga_id=saga_id
        )
    if code == "exists":
        return SagaExists(f"there is a saga {saga_id} already", saga_id=saga_id, digest=digest)
    if code == "reserved":
        return reserved(saga_id, digest)
    if code == "missing":
        return SagaNotFound(f"saga {saga_id} is not in the store any more", saga_id=saga_id)
    return JournalConflict(
        f"the journal of saga {saga_id} does not end where this process left it; nothing was added",
        hint="resume the saga: it goes on from its journal",
        saga_id=saga_id,
    )
