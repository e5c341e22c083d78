"""Processes of one namespace that hold sagas to different rules are named wherever processes are shown."""

from __future__ import annotations

import itertools
import os
import re
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.execution.governed import differences, found_in
from saga_engine.privacy.keyring import Keyring
from saga_engine.privacy.sealed_store import SealedStore
from saga_engine.server.app import create_app
from saga_engine.server.settings import ServerSettings
from saga_engine.stores import open_store
from tests.cli.conftest import TOOLS, Cli
from tests.server.console.page_reader import Browser
from tests.server.harness import serving
from tests.support.servers import EmbeddedFolder

ASKS: dict[str, Any] = {"rules": [{"name": "large", "tools": ["pay"], "verdict": "ask"}]}
DENIES: dict[str, Any] = {"rules": [{"name": "large", "tools": ["pay"], "verdict": "deny"}]}
PLAN: dict[str, Any] = {"steps": [{"step_id": 1, "tool": "look", "params": {}}]}
_LIMIT_S = 120


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedFolder]:
    """One embedded server for all tests of the module."""
    with EmbeddedFolder(tmp_path_factory.mktemp("embedded") / "saga") as folder:
        yield folder


@pytest.fixture
def url(shared_folder: EmbeddedFolder) -> str:
    return f"{shared_folder.url}?namespace={uuid.uuid4().hex}"


@asynccontextmanager
async def at_work(url: str, **options: Any) -> AsyncIterator[Coordinator]:
    """A process that has a lease."""
    async with Coordinator.open(url, [look], settings=None, on_escalation=(), **options) as coordinator:
        await coordinator.run(PLAN)
        yield coordinator


async def parts(coordinator: Coordinator) -> list[str]:
    load = await coordinator.overview()
    return [each.part for each in differences(found_in(load.notes, load.owners))]


@pytest.mark.parametrize(
    ("one", "other", "differing"),
    [
        ({}, {}, []),
        ({"policy": ASKS}, {"policy": {**ASKS, "default": "allow"}}, []),
        ({"policy": ASKS}, {"policy": DENIES}, ["policy"]),
        ({"policy": ASKS}, {}, ["policy"]),
        ({"limits": {"max_calls": 5}}, {"limits": {"max_calls": 5}}, []),
        ({"limits": {"max_calls": 5}}, {"limits": {"max_calls": 6}}, ["limits"]),
        ({"secrets": {"look": ["A", "B"]}}, {"secrets": {"look": ["B", "A"]}}, []),
        ({"secrets": {"look": ["A"]}}, {"secrets": {"look": ["*"]}}, ["secrets"]),
        ({"policy": ASKS, "limits": {"max_steps": 3}}, {"policy": DENIES}, ["policy", "limits"]),
    ],
    ids=itertools.count(),
)
async def test_what_differs_is_named_and_nothing_else(
    url: str, one: dict[str, Any], other: dict[str, Any], differing: list[str]
) -> None:
    """Of two processes with the same rules none is named, however those are written; else the part that differs."""
    async with at_work(url, **one) as first, at_work(url, **other):
        assert await parts(first) == differing


async def test_who_has_gone_is_not_compared(url: str) -> None:
    """A difference lasts as long as both processes do."""
    async with at_work(url, policy=ASKS) as first:
        async with at_work(url, policy=DENIES):
            assert await parts(first) == ["policy"]
        assert await parts(first) == []


async def test_api_and_console_name_them_without_their_files(url: str, tmp_path: Path) -> None:
    """Both show which processes differ, in what, and no path of this machine."""
    async with at_work(url, policy=ASKS) as first, at_work(url, policy=DENIES, limits={"max_calls": 1}):
        owners = set((await first.overview()).notes)
        async with serving(first, ServerSettings(port=0)) as server:
            api = await server.api()
            body = await api.get("/v1/overview")
            assert [each["part"] for each in body["differing"]] == ["policy", "limits"]
            for each in body["differing"]:
                assert {one["owner"] for group in each["groups"] for one in group["processes"]} == owners
            assert set(body["rules"]) == owners
            assert "files" not in str(body)
        browser = Browser(create_app(first, ServerSettings(auth="none")))
        page = unescape(await browser.page("/ui/workers"))
        section = re.search(r'<section[^>]*id="differing".*?</section>', page, re.DOTALL)
        assert section is not None
        assert ("Policy" in section[0], "Limits" in section[0], "Allowed secrets" in section[0]) == (True, True, False)
        assert all(owner[:80] in section[0] for owner in owners)
    async with at_work(url, policy=ASKS) as alone:
        page = await Browser(create_app(alone, ServerSettings(auth="none"))).page("/ui/workers")
        assert 'id="differing"' not in page


async def test_a_sealed_store_shows_them_to_those_with_its_keys(url: str) -> None:
    """A digest could be guessed, and a path tells of a machine: both are sealed, and without keys nobody is named."""
    keys = Keyring({"k1": bytes(range(32))})
    async with at_work(url, policy=ASKS, privacy=keys) as first, at_work(url, policy=DENIES, privacy=keys):
        assert await parts(first) == ["policy"]
        plain = open_store(url)
        await plain.open()
        raw = (await plain.work().overview()).notes
        assert len(raw) == 2
        assert not any(b"policy" in note for note in raw.values())
        without = SealedStore(plain, None)
        await without.unlock()
        assert dict((await without.work().overview()).notes) == {}
        await plain.close()


# --- real processes --------------------------------------------------------------------------------------------------


def toml(verdict: str, calls: int) -> str:
    return f'[[policy.rules]]\nname = "b"\ntools = ["book"]\nverdict = "{verdict}"\n[limits]\nmax_calls = {calls}\n'


@pytest.fixture
def three(tmp_path: Path) -> Iterator[tuple[Cli, list[int]]]:
    """Three workers of one store in three folders, the last of which has other rules; and their pids."""
    started = []
    for name, verdict in (("one", "ask"), ("two", "ask"), ("three", "deny")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saga.toml").write_text(toml(verdict, 9))
        process = Cli(tmp_path / name).start("worker", "--tools", str(TOOLS), "--store", f"embedded://{tmp_path}/.saga")
        started.append(process)
        assert process.stderr is not None
        assert any("worker: up to" in line for line in process.stderr)
    yield Cli(tmp_path), [process.pid for process in started]
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=_LIMIT_S)


def test_doctor_and_top_name_the_process_that_differs(three: tuple[Cli, list[int]]) -> None:
    """Real processes: which one differs, in what, from which, and the file that each has read."""
    cli, pids = three
    ran = cli("doctor", "--json")
    (found,) = [one for one in ran.json["findings"] if one["about"] == "rules"]
    assert found["severity"] == "warning"
    assert re.search(
        rf"the policy of pid {pids[2]} on \S+ \({cli.folder}/three/saga.toml\) differs from that of pid", found["text"]
    )
    assert all(f"pid {pid} on" in found["text"] for pid in pids[:2])
    assert (f"{cli.folder}/one/saga.toml" in found["text"], "saga again" not in found["hint"]) == (True, True)
    body = cli("top", "--once", "--every", "0.2", "--json").json
    (differing,) = body["differing"]
    assert [len(group["processes"]) for group in differing["groups"]] == [2, 1]
    assert differing["groups"][1]["processes"][0]["files"] == [f"{cli.folder}/three/saga.toml"]
    assert len(body["rules"]) == 3
    table = cli("top", "--once", "--every", "0.2").out
    assert re.search(rf"^differ   the policy of pid {pids[2]} on ", table, re.MULTILINE)
    assert "the limits of" not in table
