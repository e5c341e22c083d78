"""Sealed and erased sagas leave the store: what an archive holds of them, and what still needs them."""

import uuid

import pytest

from saga_engine import Coordinator, tool
from saga_engine.analysis.trace_file import verify
from saga_engine.errors import EraseRefused, SagaErased, StoreUnavailable
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
        for saga_id, family in ((child, {child, "p"}), ("o-undo", {"o-undo", "o"})):
            told = await engine.erase(saga_id, by="ann", why="asked", family=True)
            assert (told["by"], told["why"], told["sagas"][0], {*told["sagas"]}) == ("ann", "asked", saga_id, family)
            for member in family:
                with pytest.raises(SagaErased):
                    await engine.show(member)
        ages = Retention({"COMPENSATED": 0})
        assert (await engine.purge(ages)).kept["the saga whose effects it took over is stored"] == 1
        head = await engine.store.head(child)
        assert head.status == "COMPLETED"
        found = await engine.purge(Retention(AT_ONCE))
        assert sorted(found.purged) == sorted(["p", child, "o", "o-undo"])


@tool
async def back_later(word: str, sum: int) -> None:  # noqa: A002 - a param
    """For an event that comes too late."""


def waiting(word: str) -> dict:
    late = {"tool": "back_later", "params": {"word": word, "sum": "$output.step_w.sum"}}
    return {
        "steps": [
            {"step_id": 1, "tool": "forth", "params": {"word": word}},
            {"step_id": "w", "wait": {"event": "paid", "key": word, "timeout_s": 600, "on_late": late}},
        ]
    }


async def test_what_holds_copies_of_an_erased_saga_is_named_and_erased_with_it(url):
    """Children, undos, forks and sagas of late events: refused by name, or all erased, with keys of events and terms."""
    word = f"mk{uuid.uuid4().hex}"
    second = {"step_id": 2, "tool": "forth", "params": {"word": word}}
    parent = {"steps": [{"step_id": 1, "saga": {"plan": plan(word)}}, second]}
    async with Coordinator.open(url, [forth, back, back_later], privacy=KEYS, on_escalation=()) as engine:
        await engine.run(parent, saga_id="p", tags=[word])
        (child,) = {each.saga_id for each in await engine.list()} - {"p"}
        await engine.fork("p", new_id="f", run_from=2)
        await engine.undo("f")
        await engine.submit(waiting(word), saga_id="w")
        await engine.cancel("w")
        late = (await engine.send_event("paid", word, {"sum": 7}, event_id=word)).late_saga
        assert (await engine.wait(late)).status == "COMPLETED"
        for saga_id, family in (("p", {"p", child, f"{child}-undo", "f", "f-undo"}), ("w", {"w", late})):
            with pytest.raises(EraseRefused) as refused:
                await engine.erase(saga_id, by="ann", why="asked")
            assert {*refused.value.context["sagas"]} == family - {saga_id}
            told = await engine.erase(saga_id, by="ann", why="asked", family=True)
            assert {*told["sagas"]} == family
            for again in (True, False):
                assert told == await engine.erase(saga_id, by="bob", why="again", family=again)
        for each in await engine.list():
            assert word.encode() not in each.summary
        assert not (await engine.search(tags=[word])).sagas
        assert await engine.events() == []
        again = await engine.send_event("paid", word, {"sum": 7}, event_id=word)
        assert (again.disposition, again.repeated) == ("handled", True)


async def test_a_family_of_which_a_member_runs_is_not_erased(url, tmp_path):
    """It needs what it copied. And what is stored no more is told, with the archive's file that has it."""
    ask = {"step_id": "ask", "ask": {"question": "?", "options": ["yes"]}}
    parent = {"steps": [{"step_id": 1, "saga": {"plan": plan("x")}}]}
    rules = Retention(AT_ONCE, archive=tmp_path)
    async with Coordinator.open(url, [forth, back], privacy=KEYS, on_escalation=(), retention=rules) as engine:
        await engine.run(parent, saga_id="p")
        await engine.fork("p", new_id="f", plan={"steps": [*parent["steps"], ask]})
        with pytest.raises(EraseRefused, match="saga f, which holds copies"):
            await engine.erase("p", by="ann", why="asked", family=True)
        assert (await engine.show("p")).status == "COMPLETED"
        assert (await engine.purge()).purged == []
        await engine.resolve("f", "ask", "yes", by="ann")
        await engine.run(plan("y"), saga_id="o")
        await engine.undo("o")
        assert (await engine.purge(Retention({"COMPENSATED": 0}, archive=tmp_path))).purged == []
        told = await engine.erase("o", by="ann", why="asked", family=True)
        assert {*told["sagas"]} == {"o", "o-undo"}
        head = await engine.store.head("p")
        assert await engine.store.ended().purge(head)
        told = await engine.erase("f", by="ann", why="asked", family=True)
        assert any("saga p: it was purged" in text for text in told["unreached"])


async def test_an_erasure_that_is_broken_off_is_continued_by_its_repetition(url, monkeypatch):
    """What was erased before tells what it was tied to; the saga that was named is erased last."""
    parent = {"steps": [{"step_id": 1, "saga": {"plan": plan("x")}}]}
    async with Coordinator.open(url, [forth, back], privacy=KEYS, on_escalation=()) as engine:
        await engine.run(parent, saga_id="p")
        await engine.undo("p")
        before = {each.saga_id for each in await engine.list()}
        inner, erased = engine.store.erase, []

        async def away(saga_id, **given):
            if len(erased) == 2:
                raise StoreUnavailable("the store went away")
            erased.append(saga_id)
            return await inner(saga_id, **given)

        monkeypatch.setattr(engine.store, "erase", away)
        with pytest.raises(StoreUnavailable):
            await engine.erase("p", why="asked", family=True)
        monkeypatch.undo()
        assert (await engine.show("p")).status == "COMPLETED"
        told = await engine.erase("p", why="asked", family=True)
        assert {*erased, *told["sagas"]} == before
        for saga_id in before:
            with pytest.raises(SagaErased):
                await engine.show(saga_id)


async def test_an_archive_that_has_an_erased_saga_is_named_each_time(url, tmp_path, monkeypatch):
    """Its purge was broken off between file and removal: the saga is stored, and the file has it in clear."""
    rules = Retention(AT_ONCE, archive=tmp_path)
    async with Coordinator.open(url, [forth, back], privacy=KEYS, retention=rules) as engine:
        await engine.run(plan("x"), saga_id="s")

        async def away(*_):
            raise StoreUnavailable("the store went away")

        with monkeypatch.context() as broken:
            broken.setattr("saga_engine.stores.ended.RedisEnded.purge", away)
            with pytest.raises(StoreUnavailable):
                await engine.purge()
        (file,) = tmp_path.glob("*/*.jsonl")
        told = [await engine.erase("s", by="ann", why="asked", family=family) for family in (False, False, True)]
    assert told[0] == told[1] == told[2]
    assert [text for text in told[0]["unreached"] if str(file) in text] == [
        f"saga s: {file} has a saga of this id in clear"
    ]


async def test_a_fork_that_began_beside_an_erasure_is_named_at_its_repeat(url, monkeypatch):
    """It had read the journal before; a repeat names it, and with its family erases it."""
    async with Coordinator.open(url, [forth, back], privacy=KEYS, on_escalation=()) as engine:
        await engine.run({"steps": [{"step_id": 1, "tool": "forth", "params": {"word": "x"}}]}, saga_id="s")
        inner = engine.store.erase

        async def beside(saga_id, **given):
            await engine.fork(saga_id, new_id="late", plan={"goal": "another", **plan("x")})
            return await inner(saga_id, **given)

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(engine.store, "erase", beside)
            first = await engine.erase("s", why="asked")
        assert any("saga late: it began meanwhile" in text for text in first["unreached"])
        again = await engine.erase("s", why="again")
        assert (again["sagas"], again["why"]) == (["s"], "asked")
        assert any(text.startswith("saga late: it holds copies") for text in again["unreached"])
        assert (await engine.show("late")).status == "COMPLETED"
        assert (await engine.erase("s", why="again", family=True))["sagas"] == ["s", "late"]
        with pytest.raises(SagaErased):
            await engine.show("late")
