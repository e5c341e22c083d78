"""What people are asked, over all sagas."""

from __future__ import annotations

import asyncio
import json
import shlex
import textwrap

import pytest

from tests.cli.conftest import TOOLS

WITH = ("--tools", str(TOOLS))
PROBED = textwrap.dedent(
    '''
    from saga_engine import tool


    @tool
    def look(item: str) -> dict | None:
        """Whether it happened."""
        raise RuntimeError("the register is closed")


    @tool(undo="unsend", probe="look")
    def send(item: str) -> dict:
        """The request goes out and the answer is lost."""
        raise ConnectionError("the line is dead")


    @tool
    def unsend() -> dict:
        return {}
    '''
)


@pytest.fixture
def asking(cli, book):
    """Two sagas that ask: a call in doubt, and later an undo that failed; and one that completed."""
    cli.plan(
        "doubt.json",
        book("a"),
        {"step_id": "v", "tool": "vanish", "params": {"item": "b"}},
        task_id="doubt",
        goal="two \x1b[31mbeds",
    )
    assert cli("submit", "doubt.json", *WITH).code == 4
    (cli.folder / "undo-is-broken").touch()
    undo = {"tool": "unbook", "params": {"ref": "c"}, "retry": {"max_attempts": 1}}
    cli.plan("undo.json", book("c", rollback=undo), {"tool": "fail"}, task_id="undo")
    assert cli("submit", "undo.json", *WITH).code == 4
    cli.plan("good.json", book("d"), task_id="good")
    assert cli("submit", "good.json", *WITH).code == 0
    return cli


def test_every_open_question_is_listed_oldest_first_with_its_answers(asking):
    """Each with what is asked, what is known, the remaining effects, and lines that work as they are printed."""
    listed = asking("inbox")

    assert listed.code == 0
    text = listed.out
    assert text.startswith("2 questions\n")
    assert text.index("saga doubt") < text.index("saga undo")
    assert "saga good" not in text
    assert "step v (vanish): in-doubt: did the call happen?" in text
    assert "undo of step 1 (unbook): undo-failed" in text
    assert "connection_error: the line is dead" in text
    assert 'step 1 book_a (book) remains: {"ref":"a"}' in text
    assert "is in doubt" in text
    assert 'step 1 book_c (book) remains: its undo failed: {"ref":"c"}' in text
    assert "\x1b" not in text

    line = next(each for each in text.splitlines() if "not-happened" in each)
    (asking.folder / "undo-is-broken").unlink()
    assert asking(*shlex.split(line.replace("--tools …", shlex.join(WITH)))[1:]).code == 3
    assert "1 question\n" in asking("inbox").out


def test_the_document_has_all_there_is(asking):
    """One JSON document: questions with their answers as decision and command."""
    body = asking("inbox", "--json").json

    assert (body["unreadable"], body["has_more"]) == ([], False)
    doubt, undo = body["questions"]
    assert (doubt["saga_id"], doubt["status"], doubt["step_id"], doubt["kind"]) == (
        "doubt",
        "ESCALATED",
        "v",
        "in-doubt",
    )
    assert (undo["saga_id"], undo["direction"], undo["kind"]) == ("undo", "compensate", "undo-failed")
    assert doubt["asked_ms"] <= undo["asked_ms"]
    assert [answer["decision"] for answer in doubt["answers"]] == doubt["options"]
    assert doubt["answers"][0]["command"].startswith("saga resolve doubt v happened --output")
    assert [(each["step_id"], each["output"], each["how"]) for each in doubt["standing"]] == [
        (1, {"ref": "a"}, "remains"),
        ("v", None, "is in doubt"),
    ]
    assert [each["how"] for each in undo["standing"]] == ["remains: its undo failed"]


def test_a_limit_takes_those_that_began_first(asking):
    """What waits longest is what somebody should see."""
    body = asking("inbox", "--limit", "1", "--json").json
    assert [question["saga_id"] for question in body["questions"]] == ["doubt"]
    assert body["has_more"] is True
    assert "--limit" in asking("inbox", "--limit", "1").err


def test_what_the_probes_said_is_known(cli):
    """A probe that could not tell is no secret: how often it was asked, and its last word."""
    (cli.folder / "probed.py").write_text(PROBED)
    cli.plan(
        "p.json", {"tool": "send", "params": {"item": "x"}, "retry": {"max_attempts": 2, "base_s": 0.001}}, task_id="p"
    )
    assert cli("submit", "p.json", "--tools", "probed.py").code == 4

    (question,) = cli("inbox", "--json").json["questions"]

    assert question["probe"]["tries"] == 3
    assert "the register is closed" in json.dumps(question["probe"]["error"])
    assert "probed 3 times without an answer" in cli("inbox").out


def test_nobody_is_asked_anything(cli, book):
    """An empty inbox says so on stderr, and stdout stays empty; exit code 0."""
    cli.plan("good.json", book("a"), task_id="good")
    cli("submit", "good.json", *WITH)
    empty = cli("inbox")
    assert (empty.code, empty.out) == (0, "")
    assert "no open questions" in empty.err
    assert cli("inbox", "--json").json == {"questions": [], "unreadable": [], "has_more": False}


def test_an_answer_that_waits_is_said(asking):
    """A decision that was recorded without the tools is still to be read (8): nobody needs to answer twice."""
    assert asking("resolve", "doubt", "v", "not-happened").code == 8
    doubt, undo = asking("inbox", "--json").json["questions"]
    assert (doubt["waiting_messages"], undo["waiting_messages"]) == (1, 0)
    assert "waits to be read" in asking("inbox").out


async def test_what_a_model_said_is_known(cli):
    """Who decides sees which model proposed the steps, or why a model that was asked has none."""
    from saga_engine import Coordinator, ToolError, tool
    from saga_engine.testing.scripted import ScriptedPlanner

    @tool(semantic="approve")
    async def tweet(text: str) -> dict[str, int]:
        return {"id": 7}

    @tool(compensates=True)
    async def apologise(post: int) -> None:
        return None

    @tool(effect="read")
    async def fail() -> None:
        raise ToolError("no", retryable=False)

    planner = ScriptedPlanner(
        [{"step_id": "fix_1", "tool": "apologise", "params": {"post": 7}}], {"impossible": "no \x1b[31mway"}
    )
    steps = [{"step_id": "news", "tool": "tweet", "params": {"text": "hi"}}, {"step_id": "end", "tool": "fail"}]
    async with Coordinator.open(
        f"embedded://{cli.folder}/.saga", [tweet, apologise, fail], planner=planner
    ) as coordinator:
        for name in ("proposed", "refused"):
            assert (await coordinator.run({"task_id": name, "steps": steps})).status == "ESCALATED"
        proposed, refused = (await asyncio.to_thread(cli, "inbox", "--json")).json["questions"]
        text = (await asyncio.to_thread(cli, "inbox")).out
    assert (proposed["planner"]["model"], proposed["planner"]["error"]) == ("scripted:planner", None)
    assert refused["planner"]["error"]["error_code"] == "goal_impossible"
    assert "proposed by the model scripted:planner (compensate@script)" in text
    assert "found no steps that compensate for it: goal_impossible: nothing makes up for the step: no \\x1b" in text
    assert "\x1b" not in text


def test_what_is_to_be_approved_is_shown_whole():
    """Who approves sees the exact call, or each step that a model proposes, and until when; control characters are no use."""
    from saga_engine.cli.render import question_lines
    from saga_engine.settings import Settings

    asked = {
        "step_id": 1,
        "direction": "compensate",
        "error": None,
        "idempotency_key": "k",
        "call": "d1",
        "asked_ms": 1,
    }
    approval = {"kind": "approval", "tool": "wire", "params": {"amount": 10}, "rule": "over 5", "expires_ms": 2_000}
    proposed = [{"step_id": "m1", "tool": "send_voucher", "params": {"to": "a\x1b"}}]
    compensation = {"kind": "compensation", "tool": "", "steps": proposed, "expires_ms": 2_000}
    lines = {
        kind["kind"]: "\n".join(question_lines("trip", asked | kind | {"options": ["approve", "deny"]}, Settings()))
        for kind in (approval, compensation)
    }
    assert 'params of the call: {"amount": 10}' in lines["approval"]
    assert 'step m1 send_voucher: {"to": "a\\u001b"}' in lines["compensation"]
    for text in lines.values():
        assert "denied unless answered before 19" in text
        assert "saga resolve trip 1 approve" in text


async def test_a_saga_that_cannot_be_read_hides_no_other(asking):
    """Exit code 1 and its name; the questions of the others are there."""
    from saga_engine.stores import open_store

    store = open_store(f"embedded://{asking.folder}/.saga")
    await store.open()
    try:
        await damage(store, "doubt")
    finally:
        await store.close()

    ran = asking("inbox", "--json")

    assert ran.code == 1
    assert [question["saga_id"] for question in ran.json["questions"]] == ["undo"]
    assert [(each["saga_id"], each["error"]["code"]) for each in ran.json["unreadable"]] == [
        ("doubt", "journal-unreadable")
    ]
    assert "cannot be read" in asking("inbox").err


async def damage(store, saga_id: str) -> None:
    """Put a record into a journal that no version knows."""
    from saga_engine.ports import Entry

    await store.open_lease("vandal", 60_000)
    taken = await store.acquire(saga_id, "vandal")
    await store.append("vandal", [Entry(saga_id, taken.seq, taken.epoch, [b'{"k":"Nonsense","at":1}'], release=True)])
    await store.close_lease("vandal")
