"""Sessions that only observe: nothing is held, refused or undone, and what the engine would have done is in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saga_engine import CallFailed, Coordinator, OutcomeUnknown, sync_session, tool
from saga_engine.agents.observed_file import draft, summed
from saga_engine.errors import SagaNotFound, SettingInvalid
from saga_engine.settings import Settings, SettingsFile

LOG: list[str] = []


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    LOG.clear()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@tool
def cancel_room(ref: str) -> None:
    LOG.append(f"cancel {ref}")


@tool(undo=cancel_room)
def book_room(city: str) -> dict[str, str]:
    LOG.append(f"book {city}")
    return {"ref": city}


def search_web(query: str) -> str:
    LOG.append(f"search {query}")
    return query


def send_mail(to: str) -> str:
    if to == "nobody":
        raise OutcomeUnknown("the line went dead")
    LOG.append(f"send {to}")
    return to


TOOLS = [book_room, search_web, send_mail]
POLICY: dict[str, Any] = {
    "rules": [
        {"name": "mail", "tools": ["send_*"], "verdict": "ask"},
        {
            "name": "rome",
            "tools": ["book_*"],
            "when": [{"param": "city", "op": "==", "value": "Rome"}],
            "verdict": "deny",
        },
    ]
}
FILE = Path("saga-observed.jsonl")


async def test_nothing_is_stopped_and_everything_is_told() -> None:
    """What the policy denies or asks about, what is in doubt and what an error would undo: all of it just happens."""
    async with Coordinator.open("memory://", TOOLS, policy=POLICY) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s", observe=True) as s:
                assert await s.call(book_room, city="Rome") == {"ref": "Rome"}
                await s.call(search_web, query="tides")
                await s.call(send_mail, to="Ada")
                with pytest.raises(CallFailed, match="went dead"):
                    await s.call(send_mail, to="nobody")
                raise LookupError
        with pytest.raises(SagaNotFound):
            await engine.show("s")
    assert LOG == ["book Rome", "search tides", "send Ada"]
    found = summed([FILE]).to_dict()
    assert (found["sessions"], found["failed"], found["would_undo"], found["would_leave"]) == (1, 1, 1, 2)
    assert found["would"] == {
        "refuse book_room (rule rome)": 1,
        "ask an operator about send_mail (rule mail)": 2,
        "ask an operator whether send_mail happened": 1,
    }
    assert found["tools"]["send_mail"]["outcomes"] == {"ok": 1, "unknown": 1}
    assert [name for name, each in found["tools"].items() if each["never_undoable"]] == ["search_web", "send_mail"]


async def test_the_intent_is_written_before_the_call_and_no_value_is(here: Path) -> None:
    """A tool finds the line of its own call in the file, with the names of its params and without their values."""
    seen: list[str] = []

    def look() -> None:
        seen.append(FILE.read_text())

    async with Coordinator.open("memory://", [look, search_web]) as engine, engine.session("s", observe=True) as s:
        await s.call(search_web, query="a secret")
        await s.call(look)
    last = json.loads(seen[0].splitlines()[-1])
    assert (last["tool"], "outcome" in last) == ("look", False)
    assert "a secret" not in seen[0]


async def test_a_rollback_is_told_and_not_made() -> None:
    """Also to a savepoint: what came before it is no part of the sum."""
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s", observe=True) as s:
        await s.call(book_room, city="Oslo")
        point = s.savepoint()
        await s.call(book_room, city="Bern")
        await s.rollback(point)
    assert LOG == ["book Oslo", "book Bern"]
    assert summed([FILE]).undone == 1


async def test_what_needs_a_saga_says_so() -> None:
    """Built-in steps wait for people and events; a session that only observes has nobody to wait for."""
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s", observe=True) as s:
        with pytest.raises(SettingInvalid, match="only observes"):
            await s.ask("Shall we?")


def test_the_setting_holds_for_an_agent_that_blocks(here: Path) -> None:
    """``observe`` of ``saga.toml``, with a path from its folder; a program may say otherwise."""
    (here / "saga.toml").write_text('[saga]\nobserve = "seen.jsonl"\n')
    for observe, status in ((None, None), (False, "s")):
        with sync_session("s", store="memory://", observe=observe) as s:
            assert s.tool(search_web)("x") == "x"
            assert s.session.saga_id == (status or "s")
    assert summed([here / "seen.jsonl"]).sessions == 1


async def test_an_operators_rules_are_not_observed_away(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program cannot take itself out of the operator's policy; the operator can."""
    theirs = here / "operator.toml"
    theirs.write_text('[policy]\ndefault = "deny"\n')
    monkeypatch.setenv("SAGA_CONFIG", str(theirs))
    async with Coordinator.open("memory://", TOOLS) as engine:
        with pytest.raises(SettingInvalid, match="has rules that hold"):
            async with engine.session("s", observe=True):
                pass
    theirs.write_text('[saga]\nobserve = true\n[policy]\ndefault = "deny"\n')
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s") as s:
        assert await s.call(search_web, query="x") == "x"
    assert summed([here / FILE]).whys == {"refuse search_web (rule default)": 1}


def test_the_draft_has_what_names_suggest(here: Path) -> None:
    """A table for each tool that nobody declared, to be checked; its lines are settings that load."""
    tools = {"session": "s", "tools": ["add_note", "remove_note"]}
    calls = [
        {"session": "s", "call": str(at), "tool": each} for at, each in enumerate(("search_web", "add_note", "go"))
    ]
    FILE.write_text("\n".join(json.dumps(each) for each in (tools, *calls)) + "\n{ cut")
    found = summed([FILE])
    assert found.unread == 1
    assert draft(found).splitlines() == [
        "[tools.add_note]",
        'undo = "remove_note"          # a guess by its name: check it',
        "",
        "# [tools.go]",
        '# undo = "…"             # the tool that takes it back, if there is one',
        "",
        "[tools.search_web]",
        'effect = "read"          # a guess by its name: check it',
    ]


def test_a_period_and_a_file_that_is_not_there(here: Path) -> None:
    """Lines before the period do not count, and a missing file is said with what writes one."""
    FILE.write_text(
        json.dumps({"at_ms": 1000, "tool": "a", "call": "1"}) + "\n" + json.dumps({"at_ms": 3000, "tool": "b"})
    )
    assert list(summed([FILE], since_ms=2000).tools) == ["b"]
    with pytest.raises(SettingInvalid, match="cannot be read"):
        summed([here / "none"])


async def test_what_the_engine_would_not_do_is_not_said() -> None:
    """Who takes a call back itself is not refused, and neither call would be undone; a read that changes is no loop."""

    @tool(effect="read")
    def look(at: str) -> int:
        LOG.append(at)
        return len(LOG)

    limits = {"max_same_calls": 2, "max_cost": {"usd": 2}, "costs": {"search_web": {"usd": 1}}}
    settings = Settings(files=(SettingsFile({"agents": limits}, Path(), "saga.toml"),))
    async with Coordinator.open("memory://", [*TOOLS, look, cancel_room], settings=settings) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s", observe=True) as s:
                await s.call(book_room, city="Oslo")
                await s.call(cancel_room, ref="Oslo")
                for _ in range(4):
                    await s.call(look, at="clock")
                for query in "abc":
                    await s.call(search_web, query=query)
                raise LookupError
    found = summed([FILE])
    assert (found.undone, found.left) == (0, 3)
    assert found.whys == {"refuse search_web: budget_spent": 1}


async def test_a_call_is_begun_and_a_session_closed_as_any() -> None:
    """An agent that takes the outcome later, or ends its session itself, meets no error that says nothing."""
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s", observe=True) as s:
        assert await s.outcome(await s.begin_call("search_web", {"query": "x"})) == "x"
        lost = await s.begin_call("send_mail", {"to": "nobody"})
        with pytest.raises(CallFailed, match="went dead"):
            await s.outcome(lost)
        await s.close()
        await s.rest()


async def test_a_full_disk_stops_no_call(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be written down is said once, and the calls go on."""
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s", observe=True) as s:
        s.file._file.close()  # type: ignore[attr-defined]
        s.file._file = Path("/dev/full").open("a")  # type: ignore[attr-defined]  # noqa: ASYNC230, SIM115
        assert await s.call(search_web, query="x") == "x"
    assert [each.message for each in caplog.records if "cannot be written" in each.message] == [
        "what is observed cannot be written to saga-observed.jsonl: No space left on device; the calls go on"
    ]


def test_lines_of_another_shape_are_unreadable(here: Path) -> None:
    """A file that somebody edited is summed as far as it is one."""
    odd = [{"at_ms": "now"}, {"session": ["s"], "call": "1", "tool": "a"}, {"tool": "a", "would": 3}, {"tool": 1}]
    FILE.write_text("\n".join(json.dumps(each) for each in [*odd, {"at_ms": 1, "tool": "b", "call": "1"}]))
    found = summed([FILE])
    assert (found.unread, list(found.tools)) == (4, ["b"])
