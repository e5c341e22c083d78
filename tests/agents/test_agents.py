"""Agents and clients that know nothing of the engine book through ``saga mcp`` with a scripted model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agents.clients import FRAMEWORKS, Framework, environment, environments
from tests.agents.desk import Desk, fails, is_killed

BARE = Path(__file__).with_name("bare.py")


@pytest.mark.slow
async def test_an_agent_that_is_killed_is_followed_by_one_that_leaves_nothing(tmp_path: Path) -> None:
    """SIGKILL to agent and gateway; the next agent goes on in the same saga, its call is refused, and it rolls back."""
    desk = Desk(tmp_path)
    await desk.accept()
    assert "Nothing is booked" in is_killed(desk, sys.executable, BARE)


async def test_an_agent_whose_call_is_refused_leaves_nothing(tmp_path: Path) -> None:
    """Two rooms are booked, the payment is refused, and the agent rolls back."""
    desk = Desk(tmp_path)
    await desk.accept()
    assert "Nothing is booked" in fails(desk, sys.executable, BARE)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda each: each.name)
async def test_the_agents_of_a_framework(framework: Framework, tmp_path: Path) -> None:
    """The program of the docs, unchanged, in an environment that has the framework and not the engine."""
    python = environment(framework, environments())
    for way in (fails, is_killed):
        (folder := tmp_path / way.__name__).mkdir()
        desk = Desk(folder)
        await desk.accept()
        assert "Nothing is booked" in way(desk, python, framework.program)
