"""A job on many sagas does to each of them what its sender confirmed, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, tool
from tests.server.harness import ended, serving

SENT: list[str] = []
LOST: set[str] = set()


def send(to: str) -> None:
    """A partner that knows no keys. The answer to the first letter is lost."""
    SENT.append(to)
    if to not in LOST:
        LOST.add(to)
        raise ConnectionResetError("the line went dead")


@tool
async def bare(to: str) -> None:
    send(to)


@tool(retry=RetryPolicy(max_attempts=1))
async def keyed(to: str, idempotency_key: str) -> None:
    if len([each for each in SENT if each == to]) < 1:
        SENT.append(to)
        raise ConnectionResetError("the line went dead")


def plan(*steps: tuple[str, str]) -> dict[str, Any]:
    """Steps beside each other, each a tool and to whom it sends."""
    return {
        "steps": [
            {"step_id": to, "tool": name, "params": {"to": to}, "depends_on": [], "kind": "irreversible"}
            for name, to in steps
        ]
    }


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    SENT.clear()
    LOST.clear()


RETRY = {"action": "resolve", "decision": "retry"}


@pytest.mark.parametrize(
    ("body", "said", "sent"),
    [
        pytest.param({"action": "resume"}, {"done": 2}, 1, id="resume"),
        pytest.param(RETRY, {"decision-refused": 2}, 1, id="retry"),
        pytest.param({**RETRY, "twice": True}, {"done": 2}, 2, id="retry that may happen twice"),
        pytest.param({**RETRY, "twice": True, "kind": "drift"}, {"done": 2}, 1, id="retry of another kind"),
    ],
)
async def test_a_job_repeats_a_bare_call_only_if_its_sender_knows(body: Any, said: Any, sent: int) -> None:
    """A call in doubt whose tool honours no key may happen twice: no job repeats it without `twice`."""
    async with Coordinator.open("memory://", [bare], durability="relaxed") as coordinator:
        for name in ("ada", "bo"):
            found = await coordinator.run(plan(("bare", name)), saga_id=name)
            assert [each["kind"] for each in found.body["questions"]] == ["in-doubt"]
        async with serving(coordinator) as server:
            job = await ended(await server.api(), {**body, "where": {"tool": "bare"}})
        assert job["counts"] == said
        if said == {"decision-refused": 2}:
            assert all("may happen twice" in each["message"] for each in job["failures"])  # type: ignore[attr-defined]
        await coordinator.resume_all()
        asking = [(await coordinator.show(name)).body["questions"] for name in ("ada", "bo")]
    assert sorted(SENT) == ["ada"] * sent + ["bo"] * sent
    assert [len(each) for each in asking] == [2 - sent] * 2


async def test_an_answer_that_is_refused_keeps_no_other_from_its_question() -> None:
    """Of a saga with two calls in doubt, the one whose tool honours its key is repeated, the other is not."""
    async with Coordinator.open("memory://", [bare, keyed], durability="relaxed") as coordinator:
        await coordinator.run(plan(("bare", "ada"), ("keyed", "bo")), saga_id="s")
        async with serving(coordinator) as server:
            job = await ended(await server.api(), {**RETRY, "sagas": ["s"]})
        assert job["counts"] == {"decision-refused": 1}
        await coordinator.resume_all()
        asking = (await coordinator.show("s")).body["questions"]
    assert ([each["step_id"] for each in asking], SENT.count("ada")) == (["ada"], 1)


async def test_twice_belongs_to_retry() -> None:
    """With another answer it says nothing, so its sender has meant something else."""
    async with (
        Coordinator.open("memory://", [bare], durability="relaxed") as coordinator,
        serving(coordinator) as server,
    ):
        api = await server.api()
        for wrong in ({"action": "cancel"}, {"action": "resolve", "decision": "accept"}):
            await api.post("/v1/jobs", {**wrong, "twice": True, "sagas": ["s"]}, status=422)
