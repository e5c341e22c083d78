"""The shipped manifests of servers that do not run here, or only with an account, against the lists of their tools.

``github`` is a program in Go: its list is published in its repository (``published/github.json`` names the version).
The others list their tools without an account. Nothing of the real systems is behind these calls, and docs/mcp.md says
so: what is proven is that each tool is described, and that each undo is a call that the server's schema accepts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from saga_engine.policy.unlisted import with_unlisted
from saga_engine.sources.mcp import McpServer
from saga_engine.sources.mcp.shipped import builtin
from tests.gateway.agents import Agent, about, agent, engine
from tests.mcp.real_servers import HERE

GITHUB = Path(__file__).parent / "published" / "github.json"
OURS = {"owner": "ann", "repo": "inn"}
#: How each of the others is started without an account.
LISTED: dict[str, dict[str, Any]] = {
    "slack": {
        "command": [str(HERE / "node_modules/.bin/mcp-server-slack")],
        "env": {"SLACK_BOT_TOKEN": "xoxb-0", "SLACK_TEAM_ID": "T0"},
    },
    "mail": {"command": [str(HERE / "python2/bin/mcp-email-server"), "stdio"]},
    "google-calendar": {"command": [str(HERE / "node_modules/.bin/google-calendar-mcp")]},
}
EVENT = {"calendarId": "primary", "summary": "s", "start": "2026-12-01T10:00:00", "end": "2026-12-01T11:00:00"}
PATIENCE = {"start_timeout_s": 600, "timeout_s": 600}


class Published:
    """A server with a published list. ``answers``: what its tools say."""

    def __init__(self, kind: str, listed: Path, folder: Path) -> None:
        self.kind = kind
        self._calls, self._answers = folder / "calls", folder / "answers.json"
        self._calls.touch()
        self.answers()
        script = Path(__file__).with_name("published_server.py")
        command = [sys.executable, str(script), str(listed), str(self._calls), str(self._answers)]
        self.server = McpServer(kind, command=command, manifest=f"builtin:{kind}", **PATIENCE)

    def answers(self, **texts: Any) -> None:
        self._answers.write_text(json.dumps(texts))

    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """Those that write, since the last time."""
        found = [tuple(json.loads(line)) for line in self._calls.read_text().splitlines()]
        self._calls.write_text("")
        reads = {name for name, table in builtin(self.kind)["tools"].items() if table.get("effect") == "read"}
        return [each for each in found if each[0] not in reads]


async def asked(it: Agent, tool: str, **params: Any) -> bool:
    """Whether an operator is asked before the call; the saga is given up then."""
    answer = await it.call(tool, **params)
    await it.call("saga_rollback")
    return "pending" in about(answer)


# --- every tool is described ------------------------------------------------------------------------------------------


def test_the_manifest_of_github_names_each_published_tool_and_calls_a_read_what_github_does() -> None:
    published = json.loads(GITHUB.read_text())
    tables = builtin("github")
    assert tables["tried"]["version"] == published["version"]
    assert set(tables["tools"]) == {tool["name"] for tool in published["tools"]}
    reads = {name for name, table in tables["tools"].items() if table.get("effect") == "read"}
    assert reads == {tool["name"] for tool in published["tools"] if tool["annotations"].get("readOnlyHint")}


@pytest.mark.parametrize("kind", LISTED)
async def test_the_manifest_names_each_tool_that_the_server_lists(kind: str, tmp_path: Path) -> None:
    """The list is that of the real server, in the version that the manifest names."""
    server = _listed(kind, tmp_path)
    pins = await server.listed()
    await server.close()
    tables = builtin(kind)
    assert {name: pin.digest for name, pin in pins.items()} == tables["tried"]["digests"]
    assert set(tables["tools"]) == set(pins)
    for name, table in tables["tools"].items():
        hints = pins[name].hints
        assert table.get("effect") != "read" or hints.get("readOnlyHint", True), name


def _listed(kind: str, folder: Path, **more: Any) -> McpServer:
    table = LISTED[kind]
    if not Path(table["command"][0]).exists():
        pytest.skip(f"{table['command'][0]} is not installed: make mcp-servers")
    env = dict(table.get("env", {}))
    if kind == "google-calendar":  # it wants the file of an application, and no account
        file = folder / "application.json"
        web = {"client_id": "x", "client_secret": "y", "redirect_uris": ["http://localhost:3000/oauth2callback"]}
        file.write_text(json.dumps({"installed": web}))
        env["GOOGLE_OAUTH_CREDENTIALS"] = str(file)
    return McpServer(kind, **{**table, "env": env, **more, **PATIENCE})


# --- what is irreversible is asked about ------------------------------------------------------------------------------


async def test_what_reaches_others_is_asked_about_first(tmp_path: Path) -> None:
    """A comment, a review, a pull request, a push, a merge: nothing takes them back."""
    it = Published("github", GITHUB, tmp_path)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("add_issue_comment", {"issue_number": 1, "body": "hello"}),
        ("issue_write", {"method": "create", "title": "t"}),
        ("issue_write", {"method": "update", "issue_number": 1, "labels": ["bug"]}),
        ("label_write", {"method": "delete", "name": "bug"}),
        ("create_pull_request", {"title": "t", "head": "b", "base": "main"}),
        ("pull_request_review_write", {"method": "create", "pullNumber": 1, "event": "APPROVE"}),
        ("merge_pull_request", {"pullNumber": 1}),
        ("push_files", {"branch": "b", "files": [{"path": "f", "content": "c"}], "message": "m"}),
        ("create_or_update_file", {"branch": "b", "path": "f", "content": "c", "message": "m"}),
        ("delete_file", {"branch": "b", "path": "f", "message": "m"}),
    ]
    async with _agents(it.server) as desk:
        for tool, params in calls:
            assert await asked(desk, tool, **OURS, **params), tool
    assert it.calls() == []


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("slack", [("slack_post_message", {"channel_id": "C1", "text": "hello"})]),
        ("slack", [("slack_add_reaction", {"channel_id": "C1", "timestamp": "1.2", "reaction": "eyes"})]),
        ("mail", [("send_email", {"account_name": "a", "recipients": ["a@example.com"], "subject": "s", "body": "b"})]),
        ("mail", [("delete_emails", {"account_name": "a", "email_ids": ["1"]})]),
        (
            "google-calendar",
            [
                ("delete-event", {"calendarId": "primary", "eventId": "e1"}),
                (
                    "create-event",
                    {**EVENT, "attendees": [{"email": "a@example.com"}]},
                ),
            ],
        ),
    ],
)
async def test_a_message_is_asked_about_first(
    kind: str, calls: list[tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    """The real server is never called: its process would send with the account that an operator gave it."""
    async with _agents(_listed(kind, tmp_path, manifest=f"builtin:{kind}")) as desk:
        for tool, params in calls:
            assert await asked(desk, tool, **params), tool


# --- what is undone ---------------------------------------------------------------------------------------------------


async def test_the_undos_of_github_are_calls_that_its_schema_accepts(tmp_path: Path) -> None:
    """A label, the text of an issue and of a pull request get their old values; a new label and a sub-issue go."""
    it = Published("github", GITHUB, tmp_path)
    label, text = {"name": "bug", **OURS}, {"title": "old", "body": "was", "state": "open"}
    red, green = ({"id": "L", "name": "bug", "color": color, "description": "d"} for color in ("ff0000", "00ff00"))
    none = {"error": "label 'bug' not found in ann/inn"}
    async with _agents(it.server) as desk:
        it.answers(get_label=[red, green, green, red])  # before and after the call, before and after its undo
        told = await _undone(it, desk, "label_write", method="update", color="00ff00", **label)
        assert told == ("label_write", {"method": "update", **label, "color": "ff0000", "description": "d"})
        it.answers(get_label=[none, green, green, none])
        told = await _undone(it, desk, "label_write", method="create", color="00ff00", **label)
        assert told == ("label_write", {"method": "delete", **label})
        issue, closed = {"number": 1, **text}, {"number": 1, **text, "state": "closed"}
        it.answers(issue_read=[issue, closed, closed, issue])
        told = await _undone(it, desk, "issue_write", method="update", issue_number=1, state="closed", **OURS)
        assert told == ("issue_write", {"method": "update", "issue_number": 1, **OURS, **text})
        old, new = ({"number": 2, "title": title, "state": "open"} for title in ("old", "new"))  # it has no body
        it.answers(pull_request_read=[old, new, new, old])
        told = await _undone(it, desk, "update_pull_request", pullNumber=2, title="new", **OURS)
        assert told == ("update_pull_request", {"pullNumber": 2, **OURS, "title": "old", "state": "open"})
        told = await _undone(it, desk, "sub_issue_write", method="add", issue_number=1, sub_issue_id=9, **OURS)
        assert told == ("sub_issue_write", {"method": "remove", "issue_number": 1, "sub_issue_id": 9, **OURS})
        await desk.done("create_branch", branch="b", **OURS)
        report = (await desk.call("saga_rollback")).structured_content or {}
        assert "delete the branch b of ann/inn" in report["questions"][0]["about"]


async def test_an_event_without_guests_is_deleted_again(tmp_path: Path) -> None:
    server = _listed("google-calendar", tmp_path)
    pins = await server.listed()
    await server.close()
    listed = tmp_path / "listed.json"
    tools = [{"name": name, "inputSchema": pin.input_schema} for name, pin in pins.items()]
    listed.write_text(json.dumps({"tools": tools}))
    it = Published("google-calendar", listed, tmp_path)
    it.answers(**{"create-event": {"event": {"id": "e1", "summary": "s"}}})
    async with _agents(it.server) as desk:
        told = await _undone(it, desk, "create-event", **EVENT)
    assert told == ("delete-event", {"calendarId": "primary", "eventId": "e1", "sendUpdates": "none"})


async def _undone(it: Published, desk: Agent, tool: str, **params: Any) -> tuple[str, dict[str, Any]]:
    """The one call that undoes this one."""
    answer = await desk.call(tool, **params)
    assert not answer.is_error, str(answer)
    assert [name for name, _ in it.calls()] == [tool]
    assert (await desk.done("saga_rollback"))["clean"]
    (undo,) = it.calls()
    return undo


@asynccontextmanager
async def _agents(server: McpServer) -> AsyncIterator[Agent]:
    """An agent behind a gateway with the rules of ``saga mcp``."""
    await server.open()
    policy = with_unlisted(None, server.tools(), of_agents=True)
    async with engine(server, policy=policy) as coordinator, agent(coordinator) as desk:
        yield desk
