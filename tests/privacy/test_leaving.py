"""Sealed and erased sagas leave the store: what an archive holds of them, and what still needs them."""

import uuid

import pytest

from saga_engine import Coordinator, tool
from saga_engine.analysis.trace_file import verify
from saga_engine.errors import SagaErased
from saga_engine.execution.retention import Retention

KEYS = {"k1": bytes(range(32))}
AT_ONCE = dict.fromkeys(("COMPLETED", "COMPENSATED", "WAIVED"), 0)


@tool(undo="back")
async def forth(word: str) -> dict:
    return {"said": word}


@tool
async def back(said: str) -> None:
    """Its undo."""


@pytest.fixture
def url(shared_folder):
    return f"{shared_folder.url}?namespace={uuid.uuid4().hex}"


def plan(word: str) -> dict:
    return {"steps": [{"step_id": 1, "tool": "forth", "params": {"word": word}}]}


def files(folder) -> dict[str, bytes]:
    """The archive: each file is whole, and of one saga."""
    found = {}
    for path in folder.glob("*/*.jsonl"):
        with path.open("rb") as lines:
            check = verify(lines)
        assert check.broken is None
        ((saga_id, _, complete),) = check.sagas
        assert complete
        found[saga_id] = path.read_bytes()
    return found


async def test_a_sealed_saga_is_archived_readable_and_an_erased_one_not_at_all(url, tmp_path):
    """An archive is no store: its files are in clear. An erased saga leaves without one, and holds up nothing."""
    async with Coordinator.open(url, [forth, back], privacy=KEYS) as engine:
        await engine.run(plan("kept"), saga_id="kept")
        await engine.run(plan("gone"), saga_id="gone")
        await engine.erase("gone", by="ann", why="asked")
        found = await engine.purge(Retention(AT_ONCE, archive=tmp_path))
        assert sorted(found.purged) == ["gone", "kept"]
        assert not found.kept
        assert await engine.list() == []
    archived = files(tmp_path)
    assert archived.keys() == {"kept"}
    assert b'"kept"' in archived["kept"]


async def test_an_erased_saga_stays_as_long_as_another_one_needs_it(url):
    """A child until its parent leaves, an undo until what it undid leaves: as if nothing had been erased."""
    parent = {"steps": [{"step_id": 1, "saga": {"plan": plan("child")}}]}
    async with Coordinator.open(url, [forth, back], privacy=KEYS) as engine:
        await engine.run(parent, saga_id="p")
        await engine.run(plan("x"), saga_id="o")
        await engine.undo("o")
        (child,) = {each.saga_id for each in await engine.list()} - {"p", "o", "o-undo"}
        for saga_id in (child, "o-undo"):
            told = await engine.erase(saga_id, by="ann", why="asked")
            assert (told["by"], told["why"]) == ("ann", "asked")
            with pytest.raises(SagaErased):
                await engine.show(saga_id)
        ages = Retention({"COMPENSATED": 0})
        assert (await engine.purge(ages)).kept["the saga whose effects it took over is stored"] == 1
        head = await engine.store.head(child)
        assert head.status == "COMPLETED"
        found = await engine.purge(Retention(AT_ONCE))
        assert sorted(found.purged) == sorted(["p", child, "o", "o-undo"])
