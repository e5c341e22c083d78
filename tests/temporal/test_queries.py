"""Queries to a workflow that goes on as another run: nobody answers some of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from saga_engine.temporal.client import TemporalSagas


class Lost:
    """A client of a server that loses the first queries."""

    def __init__(self, lost: int, status: RPCStatusCode = RPCStatusCode.DEADLINE_EXCEEDED) -> None:
        self.left = lost
        self.status = status
        self.tries: list[float] = []

    def get_workflow_handle(self, _: str) -> Any:
        return self

    async def query(self, _: str, __: Any, *, rpc_timeout: timedelta) -> str | None:
        self.tries.append(rpc_timeout.total_seconds())
        self.left -= 1
        if self.left >= 0:
            raise RPCError("in vain", self.status, b"")
        return None


@pytest.mark.parametrize(
    ("lost", "wait_s", "tries"),
    [(0, 60.0, [1.0]), (1, 60.0, [1.0, 4.0]), (9, 10.0, [1.0, 4.0, 5.0]), (9, 0.5, [0.5])],
)
async def test_a_query_that_nobody_answers_is_asked_again_within_its_time(
    lost: int, wait_s: float, tries: list[float]
) -> None:
    """Each attempt has longer than the last, because a worker may have to replay a long history."""
    client: Any = Lost(lost)
    assert await TemporalSagas(client, "queue").page("saga", 0, wait_s=wait_s) is None
    assert client.tries == tries


async def test_a_server_that_is_away_is_asked_once() -> None:
    """Its caller knows how long it wants to try."""
    client: Any = Lost(9, RPCStatusCode.UNAVAILABLE)
    assert await TemporalSagas(client, "queue").page("saga", 0, wait_s=60.0) is None
    assert client.tries == [1.0]
