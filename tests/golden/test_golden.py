"""Every version reads the journals of every published version: shows, traces, replays, continues, forks and undoes them."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.analysis.trace_file import verify
from saga_engine.cli import run
from saga_engine.core import codec
from saga_engine.core.fold import state_of
from saga_engine.core.records import AnyRecord
from tests.golden import dump, stories
from tests.golden.write import FOLDER, KEYS, SEALED, SIGN, STORIES, TWICE, published
from tests.support.servers import EmbeddedFolder

VERSIONS = sorted(path for path in FOLDER.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name))
OPTIONS: dict[str, Any] = {"keep_finished_s": 0, "tools": stories.OPTIONS["tools"]}
BY_NAME = {story.name: story for story in stories.STORIES}


def written(version: Path, name: str) -> list[str]:
    return (version / name).read_text(encoding="utf-8").splitlines()


def told(version: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What the version showed of each saga, by namespace and id."""
    return {(space, name): body for space, name, body in map(json.loads, written(version, "seen.jsonl"))}


def begun(version: Path) -> list[str]:
    """The stories of a version: those that its folder has."""
    there = {name for space, name in told(version) if space == STORIES}
    return [story.name for story in stories.STORIES if story.name in there]


EACH = [(version, name, STORIES) for version in VERSIONS for name in begun(version)]
EACH += [(version, name, SEALED) for version in VERSIONS for name in TWICE]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedFolder]:
    with EmbeddedFolder(tmp_path_factory.mktemp("embedded") / "saga") as folder:
        yield folder


async def store(server: EmbeddedFolder, version: Path, file: str = "store.jsonl") -> str:
    """The URL of a server that holds what the version left, and nothing else."""
    async with Coordinator.open(server.url):
        with server.raw() as raw:
            if old := [key for key in raw.scan_iter() if not key.startswith(b"saga:")]:
                raw.delete(*old)
            assert dump.load(raw, written(version, file)) > 100
    return server.url


def within(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """What the old one says and the new one does not: a later version may only add fields."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            yield from within(value, new[name], f"{where}.{name}") if name in new else [f"{where}.{name} is missing"]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, value in enumerate(old):
            yield from within(value, new[number], f"{where}[{number}]")
    elif old != new:
        yield f"{where}: {old!r} became {new!r}"


def verified(lines: list[str]) -> bool:
    """Whether the links of a trace hold, and its sums and its end."""
    return verify([f"{line}\n".encode() for line in lines]).broken is None


def options_of(space: str) -> dict[str, Any]:
    return {**OPTIONS, "privacy": KEYS} if space == SEALED else OPTIONS


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
async def test_what_was_shown_is_shown(server: EmbeddedFolder, version: Path) -> None:
    """States, steps, reports, questions and each record of each saga read as they did, sealed ones too."""
    url, found = await store(server, version), []
    for space in (STORIES, SEALED):
        async with Coordinator.open(f"{url}?namespace={space}", **options_of(space)) as coordinator:
            for (where, name), old in told(version).items():
                if where == space:
                    now = {
                        "show": (await coordinator.show(name)).body,
                        "history": await coordinator.history(name, full=True),
                    }
                    found += within(old, now, name)
            heads = await coordinator.search(tags=["golden"], limit=100)
            assert {head.saga_id for head in heads.sagas} == {
                name
                for (where, name), old in told(version).items()
                if where == space and "golden" in old["history"][0].get("tags", [])
            }
    assert found == []


@pytest.mark.parametrize(
    ("version", "name", "space"), EACH, ids=[f"{version.name}-{space}-{name}" for version, name, space in EACH]
)
async def test_what_was_begun_goes_on(server: EmbeddedFolder, version: Path, name: str, space: str) -> None:
    """A saga that the version left in the middle of a call, an undo, a wait or a question comes to its end."""
    url = await store(server, version)
    old = told(version)[space, name]["history"]
    options = {**stories.OPTIONS, **options_of(space)}
    async with Coordinator.open(f"{url}?namespace={space}", **options) as coordinator:
        if BY_NAME[name].dies:
            await coordinator.resume(name)
        await BY_NAME[name].then(coordinator, name)
        assert (await coordinator.show(name)).status == BY_NAME[name].ends
        now = await coordinator.history(name, full=True)
        assert list(within(old, now[: len(old)])) == [], "a record that was durable has changed"
        assert verified(await coordinator.trace(name, full=True))


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_every_journal_of_the_scenarios_is_read(version: Path) -> None:
    """All sagas of all scenarios: each record is decoded, and the journal folds to the state that its head names."""
    kept = [json.loads(line) for line in written(version, "scenarios.jsonl")]
    heads = {each["key"]: dict(each["value"]) for each in kept if ":head:" in each["key"]}
    journals = {each["key"]: each["value"] for each in kept if ":journal:" in each["key"]}
    assert len(journals) > 100
    for key, records in journals.items():
        state = state_of([codec.decode(record.encode()) for record in records])
        assert state.status == heads[key.replace(":journal:", ":head:")]["status"], key


@pytest.mark.parametrize(
    "path", [path for version in VERSIONS for path in sorted(version.glob("traces/*"))], ids=lambda path: path.name
)
def test_traces_verify_and_replay(path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Signed, redacted and plain ones; a trace that changed in one letter is refused."""
    command = ["trace", "verify", str(path)]
    if path.name.endswith(".signed.jsonl"):
        (tmp_path / "key").write_bytes(SIGN)
        (tmp_path / "key").chmod(0o600)
        command += ["--key", str(tmp_path / "key")]
    assert run(command) == 0, capsys.readouterr()
    text = path.read_text(encoding="utf-8")
    (tmp_path / "changed").write_text(text.replace('"SagaStarted"', '"SagaStartet"', 1))
    assert run([*command[:2], str(tmp_path / "changed"), *command[3:]]) != 0
    if "redacted" not in path.name:
        assert run(["trace", "replay", str(path)]) == 0, capsys.readouterr()


@pytest.mark.parametrize(
    "path", [path for version in VERSIONS for path in sorted(version.glob("archive-*"))], ids=lambda path: path.name
)
def test_archives_verify(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a purge wrote before it removed a saga."""
    assert run(["trace", "verify", str(path)]) == 0, capsys.readouterr()


def test_the_newest_folder_has_every_kind_of_record() -> None:
    """A kind that no journal of the newest folder has is named; once the version is published, that is an error.

    ``python -m tests.golden.write`` writes the folder anew, until then.
    """
    newest = VERSIONS[-1]
    texts = written(newest, "store.jsonl") + written(newest, "scenarios.jsonl") + written(newest, "seen.jsonl")
    kinds = {kind.__name__ for kind in typing.get_args(AnyRecord)}
    found = set(re.findall(r'\\?"k\\?": ?\\?"(\w+)\\?"', "\n".join(texts)))
    assert found <= kinds, "the folder has a kind that this version does not know"
    if missing := sorted(kinds - found):
        assert not published(), f"not in {newest.name}: {', '.join(missing)}"
        pytest.skip(f"not yet in {newest.name}: {', '.join(missing)}")


def test_a_difference_is_found() -> None:
    """A field that is gone or changed, at any depth; a field that was added is none."""
    old = {"a": [{"b": 1}], "c": "x"}
    assert list(within(old, {"a": [{"b": 1, "new": 2}], "c": "x", "d": 0})) == []
    assert list(within(old, {"a": [{"b": 2}]})) == [".a[0].b: 1 became 2", ".c is missing"]
    assert list(within(old, {"a": [], "c": "x"})) == [".a: [{'b': 1}] became []"]
