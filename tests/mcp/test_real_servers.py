"""The shipped manifests, tried on the servers that they describe: each write is undone by the server's own tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saga_engine.sources.mcp.shipped import builtin
from tests.gateway.agents import agent, engine
from tests.mcp.real_servers import KINDS, Files, Git, Memory, RealWorld

Calls = list[tuple[str, dict[str, Any]]]


def of_files(it: Files) -> list[Calls]:
    edit = {"oldText": "two\nthree", "newText": "2\n3"}
    write: Calls = [("write_file", {"path": it.path("a.txt"), "content": "other"})]
    moved: Calls = [("move_file", {"source": it.path("a.txt"), "destination": it.path("sub/c.txt")})]
    return [
        write,
        [("edit_file", {"path": it.path("a.txt"), "edits": [edit]})],
        [("edit_file", {"path": it.path("a.txt"), "edits": [edit], "dryRun": True})],
        moved,
        [("move_file", {"source": it.path("sub"), "destination": it.path("sub2")})],
        [*write, *moved, ("write_file", {"path": it.path("sub/c.txt"), "content": "third"})],
    ]


def of_memory(it: Memory) -> list[Calls]:
    bo = {"name": "Bo", "entityType": "guest", "observations": ["loud"]}
    ann = {"name": "Ann", "entityType": "guest", "observations": ["another one"]}
    likes = {"from": "Inn", "to": "Ann", "relationType": "likes"}
    sleeps = {"from": "Ann", "to": "Inn", "relationType": "sleeps in"}
    more = {"entityName": "Ann", "contents": ["old", "kind"]}
    gone = {"entityName": "Ann", "observations": ["tall", "never said"]}
    return [
        [("create_entities", {"entities": [bo, ann]})],  # the second one is there already
        [("create_relations", {"relations": [likes, sleeps]})],
        [("add_observations", {"observations": [more]})],
        [("delete_entities", {"entityNames": ["Nobody"]})],
        [("delete_entities", {"entityNames": ["Ann"]})],  # and its relation
        [("create_relations", {"relations": [likes]}), ("delete_entities", {"entityNames": ["Inn", "Ann"]})],
        [("delete_observations", {"deletions": [gone]})],
        [("delete_relations", {"relations": [likes, sleeps]})],
        [
            ("create_entities", {"entities": [bo]}),
            ("create_relations", {"relations": [{"from": "Bo", "to": "Ann", "relationType": "knows"}]}),
            ("add_observations", {"observations": [{"entityName": "Bo", "contents": ["early"]}, more]}),
            ("delete_observations", {"deletions": [{"entityName": "Bo", "observations": ["loud"]}, gone]}),
        ],
    ]


def of_git(it: Git) -> list[Calls]:
    repo = {"repo_path": str(it.folder)}
    return [
        [("git_add", {**repo, "files": ["f", "new"]})],
        [("git_checkout", {**repo, "branch_name": "other"})],
        [("git_checkout", {**repo, "branch_name": "HEAD~0"}), ("git_add", {**repo, "files": ["."]})],
    ]


CALLS: dict[str, Any] = {"filesystem": of_files, "memory": of_memory, "git": of_git}


@pytest.mark.parametrize("kind", KINDS)
async def test_each_write_is_undone_by_the_servers_own_tools(kind: str, tmp_path: Path) -> None:
    """After a rollback the hash of the world is the one before, and the report is clean.

    The shipped manifest names every tool of the version that it was tried with, and the digests of its declarations.
    """
    world: RealWorld = KINDS[kind](tmp_path)
    server, before, tables = world.server(), world.hash(), builtin(kind)
    async with engine(server) as coordinator, agent(coordinator) as it:
        assert {name: tool.digest for name, tool in (server.pins() or {}).items()} == tables["tried"]["digests"]
        assert set(tables["tools"]) == set(tables["tried"]["digests"])
        for calls in CALLS[kind](world):
            for tool, params in calls:
                answer = await it.call(tool, **params)
                assert not answer.is_error, str(answer)
            changed = world.hash() != before
            told = await it.done("saga_rollback")
            assert (told["clean"], told["left"], len(told["undone"])) == (True, [], len(calls)), told
            assert world.hash() == before, (calls, world.facts())
            harmless = calls[0][1].get("dryRun") or calls[0][1].get("entityNames") == ["Nobody"]
            assert changed != bool(harmless), calls


# --- what a server's own tools cannot undo ---------------------------------------------------------------------------


async def test_a_file_that_was_created_is_asked_about(tmp_path: Path) -> None:
    """The filesystem server deletes nothing: the report names exactly the file that is left, and what is to be done."""
    world = Files(tmp_path)
    before = world.facts()
    async with engine(world.server()) as coordinator, agent(coordinator) as it:
        await it.done("write_file", path=world.path("a.txt"), content="other")
        await it.done("write_file", path=world.path("new.txt"), content="new")
        await it.done("create_directory", path=world.path("deep/er"))
        preview = await it.done("saga_preview")
        kinds = ("would_undo", "would_ask", "would_wait", "would_remain")
        assert [[each["call"] for each in preview[kind]] for kind in kinds] == [["1"], ["2"], [], ["3"]]
        told = await it.call("saga_rollback")
        body = told.structured_content
        assert told.is_error
        assert body is not None
        assert [each["call"] for each in body["undone"]] == ["1"], body  # another file: it does not wait for the answer
        assert [each["call"] for each in body["left"]] == ["3", "2"], body
        question = body["questions"][0]
        assert f"delete the file {world.path('new.txt')}" in question["about"], question
        (world.folder / "new.txt").unlink()
        await coordinator.resolve("desk", 2, "undone", by="operator")
        await coordinator.resume("desk")
        report = (await coordinator.show("desk")).body["report"]
        assert (report["compensated"], report["left_in_place"]) == ([1, 2], [3]), report
    left = {name for name in world.facts() if name not in before}
    assert left == {"deep", "deep/er"}
    assert {name: each for name, each in world.facts().items() if name not in left} == before


async def test_a_created_file_can_be_moved_away_instead(tmp_path: Path) -> None:
    """With a folder for what was undone, an operator's own table of a helper replaces the shipped one."""
    world, trash = Files(tmp_path), tmp_path / "trash"
    trash.mkdir()
    remove = {"tool": "move_file", "params": {"source": "{path}", "destination": f"{trash}/{{idempotency_key}}"}}
    server = world.server(command=[*world.command(), str(trash)], helpers={"remove_created": remove})
    before = world.hash()
    async with engine(server) as coordinator, agent(coordinator) as it:
        for text in ("new", "newer"):
            await it.done("write_file", path=world.path("new.txt"), content=text)
        assert (await it.done("saga_rollback"))["clean"]
    assert world.hash() == before
    assert [each.read_text() for each in trash.iterdir()] == ["new"]


async def test_commits_and_branches_stay_and_are_named(tmp_path: Path) -> None:
    """The git server takes neither back: the report lists both, and the index is as before."""
    world = Git(tmp_path)
    repo, index = {"repo_path": str(world.folder)}, world.facts()[2]
    async with engine(world.server()) as coordinator, agent(coordinator) as it:
        await it.call("git_create_branch", **repo, branch_name="mine")
        await it.call("git_checkout", **repo, branch_name="mine")
        await it.call("git_add", **repo, files=["f"])
        await it.call("git_commit", **repo, message="two")
        await it.call("git_checkout", **repo, branch_name="main")
        told = (await it.call("saga_rollback")).structured_content
        assert told is not None
        assert [each["tool"] for each in told["left"]] == ["git.git_commit", "git.git_create_branch"], told
    assert world.git("branch", "--format=%(refname:short)").split() == ["main", "mine", "other"]
    assert (world.git("symbolic-ref", "HEAD").strip(), world.facts()[2]) == ("refs/heads/main", index)


async def test_an_index_with_other_changes_is_asked_about(tmp_path: Path) -> None:
    """The git server unstages all or nothing, so an operator unstages what was added to a staged change."""
    world = Git(tmp_path)
    world.git("add", "f")
    async with engine(world.server()) as coordinator, agent(coordinator) as it:
        await it.call("git_add", repo_path=str(world.folder), files=["new"])
        told = (await it.call("saga_rollback")).structured_content
        assert told is not None
        assert 'unstage ["new"]' in told["questions"][0]["about"]


async def test_what_cannot_be_restored_is_not_overwritten(tmp_path: Path) -> None:
    """Neither a file that somebody else has changed since, nor one that is no text: its before-image would be another."""
    world = Files(tmp_path)
    async with engine(world.server()) as coordinator, agent(coordinator) as it:
        before = world.hash()
        assert "image_unread" in await it.refused("write_file", path=world.path("bytes"), content="text")
        assert world.hash() == before
        await it.done("write_file", path=world.path("a.txt"), content="mine")
        (world.folder / "a.txt").write_text("theirs")
        told = (await it.call("saga_rollback")).structured_content
        assert told is not None
        assert told["questions"][0]["kind"] == "drift"
    assert (world.folder / "a.txt").read_text() == "theirs"
