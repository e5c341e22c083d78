"""More shipped manifests, tried on the servers that they describe: git with its cases, a calendar, a SQL database.

``git-mcp-server`` does several things with one tool: what holds for a call is said by the value of a param.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from saga_engine.policy.unlisted import with_unlisted
from saga_engine.sources.mcp import McpServer
from saga_engine.sources.mcp.shipped import builtin, builtin_names
from tests.gateway.agents import about, agent, engine
from tests.mcp.more_servers import Repository, calendar, sql
from tests.mcp.real_servers import KINDS

Calls = list[tuple[str, dict[str, Any]]]

ADD: Calls = [("git_add", {"paths": ["f"]})]
#: Work as an agent does it, each part of which is undone alone and after another part failed.
WORK: dict[str, Calls] = {
    "add": [("git_add", {"paths": ["f", "new"]})],
    "commit": [*ADD, ("git_commit", {"message": "two"})],
    "amend": [*ADD, ("git_commit", {"message": "other words", "amend": True})],
    "branch": [("git_branch", {"mode": "create", "branchName": "mine"})],
    "branch-delete": [("git_branch", {"mode": "delete", "branchName": "other", "force": True})],
    "branch-rename": [("git_branch", {"mode": "rename", "branchName": "other", "newBranchName": "third"})],
    "tag": [("git_tag", {"mode": "create", "tagName": "v1"})],
    "tag-said": [("git_tag", {"mode": "create", "tagName": "v2", "annotated": True, "message": "m"})],
    "tag-delete": [("git_tag", {"mode": "delete", "tagName": "light"})],
    "switch": [("git_checkout", {"target": "other"})],
    "switch-new": [("git_checkout", {"target": "mine", "createBranch": True})],
    "merge": [("git_merge", {"branch": "other", "noFastForward": True})],
    "cherry-pick": [("git_cherry_pick", {"commits": ["other"]})],
    "reset": [("git_reset", {"mode": "soft", "target": "other"})],
    "remote": [("git_remote", {"mode": "add", "name": "up", "url": "/nowhere"})],
    "all": [
        ("git_checkout", {"target": "mine", "createBranch": True}),
        ("git_add", {"paths": ["f", "new"]}),
        ("git_commit", {"message": "two"}),
        ("git_tag", {"mode": "create", "tagName": "v3"}),
        ("git_checkout", {"target": "main"}),
        ("git_merge", {"branch": "mine"}),
    ],
}
#: The case of each of these calls, as plans name it.
CASES = {
    **{("git_branch", mode): f"git_branch.{mode}" for mode in ("create", "delete", "rename")},
    **{("git_tag", mode): f"git_tag.{mode}" for mode in ("create", "delete")},
    ("git_commit", None): "git_commit.staged",
    ("git_merge", None): "git_merge.commit",
    ("git_cherry_pick", None): "git_cherry_pick.commit",
    ("git_reset", "soft"): "git_reset.soft",
    ("git_remote", "add"): "git_remote.add",
    ("git_checkout", True): "git_checkout.create",
    ("git_checkout", None): "git_checkout.switch",
}


def in_plans(tool: str, params: dict[str, Any]) -> str:
    case = CASES.get((tool, params.get("mode", params.get("createBranch"))), tool)
    return f"git-mcp-server.{case}"


# --- git --------------------------------------------------------------------------------------------------------------


async def test_each_write_of_git_is_undone_by_the_servers_own_tools(tmp_path: Path) -> None:
    """Refs, HEAD, index, work tree and remotes are as before. The agent calls the server's tools and knows no case."""
    world, tables = Repository(tmp_path), builtin("git-mcp-server")
    server, before = world.server(), world.facts()
    async with engine(server) as coordinator, agent(coordinator) as it:
        assert {name: pin.digest for name, pin in (server.pins() or {}).items()} == tables["tried"]["digests"]
        assert set(tables["tools"]) == set(tables["tried"]["digests"])
        assert not [name for name in await it.names() if "." in name]
        for name, calls in WORK.items():
            for tool, params in calls:
                answer = await it.call(tool, path=str(world.folder), **params)
                assert not answer.is_error, str(answer)
            assert world.facts() != before, name
            told = await it.done("saga_rollback")
            assert (told["clean"], len(told["undone"])) == (True, len(calls)), (name, told)
            assert world.facts() == before, name


async def test_a_plan_that_fails_after_each_write_leaves_the_repository_as_before(tmp_path: Path) -> None:
    """Plans name the cases. The last step fails, and everything before it is undone."""
    world = Repository(tmp_path)
    before = world.facts()
    async with engine(world.server()) as coordinator:
        for name, calls in WORK.items():
            made = [*calls, ("git_show", {"object": "no such object"})]
            steps = [
                {
                    "step_id": number,
                    "tool": in_plans(tool, params),
                    "params": {"path": str(world.folder), **params},
                    **({"depends_on": [number - 1]} if number > 1 else {}),
                }
                for number, (tool, params) in enumerate(made, 1)
            ]
            result = await coordinator.run({"steps": steps})
            assert result.status == "COMPENSATED", (name, result.body["report"])
            assert world.facts() == before, name


async def test_a_push_is_the_pivot_of_a_plan_and_asked_of_an_agent(tmp_path: Path) -> None:
    """Nothing takes it back: an agent's push waits for an operator, and what a plan does after it is not undone."""
    world = Repository(tmp_path)
    server = world.server()
    repo, before = {"path": str(world.folder)}, world.facts()
    await server.open()
    policy = with_unlisted(None, server.tools(), of_agents=True)
    async with engine(server, policy=policy) as coordinator, agent(coordinator) as it:
        for tool, params in (
            ("git_push", {"remote": "origin", "branch": "main"}),
            ("git_reset", {"mode": "hard", "target": "other"}),
            ("git_clean", {"force": True}),
            ("git_commit", {"message": "two", "filesToStage": ["f"]}),
            ("git_stash", {"mode": "push"}),
            ("git_checkout", {"target": "main", "force": True}),
        ):
            assert "pending" in about(await it.call(tool, **repo, **params)), tool
            await it.call("saga_rollback")
        reads: Calls = [("git_branch", {"mode": "list"}), ("git_tag", {}), ("git_stash", {"mode": "list"})]
        for tool, params in [*reads, ("git_push", {"remote": "origin", "branch": "main", "dryRun": True})]:
            assert not (await it.call(tool, **repo, **params)).is_error, tool
        assert world.facts() == before
    async with engine(world.server()) as coordinator:
        plan = {
            "steps": [
                {"step_id": 1, "tool": "git-mcp-server.git_tag.create", "params": {**repo, "mode": "create", "tagName": "v1"}},
                {
                    "step_id": 2, "tool": "git-mcp-server.git_push", "kind": "pivot", "depends_on": [1],
                    "params": {**repo, "remote": "origin", "branch": "main"},
                },
            ]
        }  # fmt: skip
        assert (await coordinator.run(plan)).status == "COMPLETED"
    assert "refs/heads/main" in world.git("-C", str(world.remote), "for-each-ref")


async def test_what_cannot_be_restored_is_not_changed(tmp_path: Path) -> None:
    """The object of an annotated tag cannot be made again, and a branch that others moved since is asked about."""
    world = Repository(tmp_path)
    before, repo = world.facts(), {"path": str(world.folder)}
    async with engine(world.server()) as coordinator, agent(coordinator) as it:
        assert "image_unread" in await it.refused("git_tag", **repo, mode="delete", tagName="heavy")
        assert world.facts() == before
        await it.done("git_branch", **repo, mode="create", branchName="mine")
        world.git("branch", "-f", "mine", "other")
        told = (await it.call("saga_rollback")).structured_content or {}
        assert told["questions"][0]["kind"] == "drift"
    assert "mine" in world.git("branch")


# --- a calendar -------------------------------------------------------------------------------------------------------


async def test_a_created_event_is_deleted_and_a_changed_one_is_asked_about(tmp_path: Path) -> None:
    """On Radicale: its files are as before. The server cannot make a deleted event again, so it is asked first."""
    when = {"start": "2026-12-02T09:00:00Z", "end": "2026-12-02T10:00:00Z"}
    with calendar(tmp_path) as world:
        server, before, of = world.server(), world.facts(), {"calendarUrl": world.calendar}
        await server.open()
        assert set(builtin("caldav")["tools"]) == set(server.pins() or {})
        policy = with_unlisted(None, server.tools(), of_agents=True)
        async with engine(server, policy=policy) as coordinator, agent(coordinator) as it:
            await it.call("create-event", **of, **when, summary="tea")
            await it.call("create-todo", **of, summary="buy tea")
            assert len(world.facts()) == len(before) + 2
            told = await it.done("saga_rollback")
            assert (told["clean"], len(told["undone"])) == (True, 2), told
            assert world.facts() == before
            for tool in ("delete-event", "update-event"):
                assert "pending" in about(await it.call(tool, **of, uid="old")), tool
                await it.call("saga_rollback")
        assert world.facts() == before


# --- SQL --------------------------------------------------------------------------------------------------------------


async def test_a_statement_is_asked_about_and_tools_of_the_configuration_are_undone(tmp_path: Path) -> None:
    """On PostgreSQL: an agent's statement is not made before an operator approves it."""
    async with sql(tmp_path) as world:
        server, before = world.server(), world.facts()
        await server.open()
        assert set(builtin("dbhub")["tools"]) <= set(server.pins() or {})
        policy = with_unlisted(None, server.tools(), of_agents=True)
        async with engine(server, policy=policy) as coordinator, agent(coordinator) as it:
            assert "pending" in about(await it.call("execute_sql", sql="DELETE FROM orders"))
            await it.call("saga_rollback")
            assert not (await it.call("search_objects", object_type="table")).is_error
            assert not (await it.call("add_order", id=2, item="milk")).is_error
            assert world.facts() == [*before, (2, "milk")]
            assert (await it.done("saga_rollback"))["clean"]
        assert world.facts() == before


# --- all manifests ----------------------------------------------------------------------------------------------------


def test_each_shipped_manifest_is_tried() -> None:
    """None is shipped that no test drives."""
    here, published = {"git-mcp-server", "caldav", "dbhub"}, {"github", "google-calendar", "mail", "slack"}
    assert set(builtin_names()) == {*KINDS, *here, *published}


@pytest.mark.parametrize("name", builtin_names())
def test_each_manifest_can_be_read(name: str) -> None:
    """Its tables are those of ``saga.toml``, and its helpers call tools that it names."""
    tables = builtin(name)
    McpServer("it", command=["-"], manifest=f"builtin:{name}")
    for helper, table in tables.get("helpers", {}).items():
        assert "by_hand" in table or table["tool"] in tables["tools"], helper
