"""`saga trace`: a run leaves the store as a file, and is checked and run again where there is neither store nor tool."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.analysis.replay import Replay
from saga_engine.analysis.trace_file import read, verify
from tests.cli.conftest import TOOLS, Cli


@pytest.fixture
def ran(cli: Cli, book: Any) -> Cli:
    """A folder with a saga that failed at its last step and was undone."""
    cli.plan("p.json", book("a"), book("$output.step_1.ref"), {"tool": "fail"}, task_id="t")
    assert cli("submit", "p.json", "--tools", str(TOOLS)).code == 3
    return cli


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_there_and_here(ran: Cli, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A saga is exported there, and verified and replayed here, with no store, no tools, and nothing called."""
    there = ran("trace", "export", "t", "-o", "t.jsonl", "--tools", str(TOOLS), "--json")
    assert there.code == 0
    told = lines(ran.folder / "t.jsonl")
    assert there.json == {"file": "t.jsonl", "sagas": 1, "lines": len(told), "hash": told[-1]["hash"]}
    before = ran.world
    here = Cli(tmp_path_factory.mktemp("laptop"))
    (here.folder / "t.jsonl").write_bytes((ran.folder / "t.jsonl").read_bytes())
    checked = here("trace", "verify", "t.jsonl", "--json")
    assert (checked.code, checked.json["whole"], checked.json["hash"]) == (0, True, told[-1]["hash"])
    assert checked.json["sagas"] == [{"saga_id": "t", "status": "COMPENSATED", "complete": True}]
    again = here("trace", "replay", "t.jsonl", "--json")
    assert (again.code, again.json["same"]) == (0, True)
    decided = [one["record"]["k"] for one in again.json["sagas"][0]["moments"] if one["sort"] == "decided"]
    assert decided.count("StepIntended") == 5
    assert decided[-1] == "SagaCompensated"
    shown = here("trace", "replay", "t.jsonl")
    assert (shown.code, shown.out.splitlines()[-1]) == (0, "same: every decision is the same; COMPENSATED")
    assert sorted(path.name for path in here.folder.iterdir()) == ["t.jsonl"]
    assert ran.world == before


def test_stdout_carries_the_trace_alone(ran: Cli) -> None:
    """Without -o the lines go to stdout, and can be piped on; --json has no place for them there."""
    piped = ran("trace", "export", "t")
    assert piped.code == 0
    assert verify(line.encode() + b"\n" for line in piped.out.splitlines()).broken is None
    assert ran("trace", "verify", "-", stdin=piped.out).code == 0
    assert ran("trace", "export", "t", "--json").code == 2
    assert ran("trace", "export").code == 2
    assert ran("trace", "export", "t", "--all").code == 2


def test_all_sagas_go_into_one_file(ran: Cli, book: Any) -> None:
    """--all exports every saga, the first created first; a named one that is not there leaves no file."""
    ran.plan("q.json", book("c"), task_id="u")
    assert ran("submit", "q.json", "--tools", str(TOOLS)).code == 0
    assert ran("trace", "export", "--all", "-o", "all.jsonl").code == 0
    ids = [line["saga_id"] for line in lines(ran.folder / "all.jsonl") if line["type"] == "saga"]
    assert ids == ["t", "u"]
    lost = ran("trace", "export", "nobody", "-o", "none.jsonl")
    assert lost.code == 5
    assert not [path for path in ran.folder.iterdir() if "none.jsonl" in path.name]


def test_a_file_that_was_changed_is_told_and_not_replayed(ran: Cli) -> None:
    """Verify names the line and exits 1; replay refuses."""
    ran("trace", "export", "t", "-o", "t.jsonl", "--tools", str(TOOLS))
    path = ran.folder / "t.jsonl"
    whole = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*whole[:3], whole[3].replace("forward", "backward"), *whole[4:]]), encoding="utf-8")
    said = ran("trace", "verify", "t.jsonl")
    assert (said.code, said.out.splitlines()) == (1, ["broken: line 4: it was changed: its hash does not fit"])
    assert ran("trace", "verify", "t.jsonl", "--json").json["broken"]["line"] == 4
    refused = ran("trace", "replay", "t.jsonl", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "trace-broken")
    path.write_text("".join(whole[:-1]), encoding="utf-8")
    assert "cut short" in ran("trace", "verify", "t.jsonl").out
    assert ran("trace", "verify", "nowhere.jsonl").code == 1


def test_a_signed_trace_is_verified_by_its_key(ran: Cli) -> None:
    """--sign or `sign` of [trace] signs; --key demands it, and says so; a bad key, or none, is an error with a hint."""
    (ran.folder / "trace.key").write_text("ab" * 32 + "\n")
    (ran.folder / "other.key").write_text("cd" * 32 + "\n")
    assert ran("trace", "export", "t", "-o", "t.jsonl", "--sign", "trace.key").code == 0
    checked = ran("trace", "verify", "t.jsonl", "--key", "trace.key")
    assert (checked.code, "signature: made with this key" in checked.out) == (0, True)
    told = ran("trace", "verify", "t.jsonl", "--key", "trace.key", "--json").json
    assert (told["whole"], told["signed"], told["verified"]) == (True, True, True)
    assert "--key KEYFILE" in ran("trace", "verify", "t.jsonl").err
    other = ran("trace", "verify", "t.jsonl", "--key", "other.key")
    assert (other.code, "its signature does not fit: it names the key" in other.out) == (1, True)
    assert ran("trace", "export", "t", "-o", "plain.jsonl").code == 0
    plain = ran("trace", "verify", "plain.jsonl", "--key", "trace.key", "--json")
    assert (plain.code, plain.json["broken"]["message"].endswith("it has no signature")) == (1, True)
    (ran.folder / "saga.toml").write_text('[trace]\nsign = "trace.key"\n')
    assert ran("trace", "export", "t", "-o", "t.jsonl").code == 0
    assert ran("trace", "verify", "t.jsonl", "--key", "trace.key").code == 0
    (ran.folder / "saga.toml").unlink()
    (ran.folder / "short.key").write_text("secret")
    short = ran("trace", "export", "t", "--sign", "short.key")
    assert (short.code, "openssl rand -hex 32" in short.err) == (1, True)
    assert "cannot be read" in ran("trace", "verify", "t.jsonl", "--key", "nowhere.key").err


def test_fields_are_left_out_by_rules(ran: Cli) -> None:
    """--redact and [trace] redact add up; a rule that names nothing, or a field of [trace] that nobody reads, is an error."""
    (ran.folder / "saga.toml").write_text('[trace]\nredact = ["params.item"]\n')
    told = ran("trace", "export", "t", "--redact", "error.message").out
    assert '"item":"[redacted]"' in told
    assert "no rooms" not in told
    assert json.loads(told.splitlines()[0])["redacted"] == ["params.item", "error.message"]
    assert ran("trace", "export", "t", "--redact", "parms.item").code == 1
    (ran.folder / "saga.toml").write_text('[trace]\nredcat = ["params.item"]\n')
    assert "redcat" in ran("trace", "export", "t").err
    (ran.folder / "saga.toml").write_text('[trace]\nredact = "params.item"\n')
    assert ran("trace", "export", "t").code == 1


def test_without_tools_the_trace_is_whole_and_says_what_is_missing(ran: Cli) -> None:
    """Exporting needs no tools, not even loadable ones; replaying then needs them, and says so."""
    (ran.folder / "broken.py").write_text("1/0")
    (ran.folder / "saga.toml").write_text('[saga]\ntools = ["broken.py"]\n')
    bare = ran("trace", "export", "t", "-o", "t.jsonl")
    assert bare.code == 0
    assert "declarations are left out" in bare.err
    (ran.folder / "saga.toml").unlink()
    missing = ran("trace", "replay", "t.jsonl", "--json")
    assert (missing.code, missing.json["error"]["code"]) == (1, "tool-missing")
    assert ran("trace", "replay", "t.jsonl", "--tools", str(TOOLS)).code == 0
    assert ran("trace", "export", "t", "--tools", "broken.py").code == 1


#: Tools of the same names: ``book`` must not be repeated any more, and ``fail`` may be.
CHANGED = """\
from saga_engine import RetryPolicy, tool

def called():
    raise AssertionError("a replay called a tool")

@tool(undo="unbook")
def book(item: str, colour: str = "red") -> dict:
    called()

@tool
def unbook(ref: str) -> dict:
    called()

@tool(undo="unbook")
def fail(message: str = "") -> dict:
    called()
"""


def test_todays_tools_and_another_plan_show_the_first_difference(ran: Cli, book: Any) -> None:
    """A changed declaration is told; a plan that goes another way exits 6 with both sides."""
    ran("trace", "export", "t", "-o", "t.jsonl", "--tools", str(TOOLS))
    (ran.folder / "changed.py").write_text(CHANGED)
    same = ran("trace", "replay", "t.jsonl", "--tools", "changed.py", "--json")
    assert (same.code, [each["tool"] for each in same.json["sagas"][0]["changed_tools"]]) == (
        0,
        ["book", "fail", "unbook"],
    )
    ran.plan("new.json", book("a"), book("b"), {"tool": "fail"})
    other = ran("trace", "replay", "t.jsonl", "--plan", "new.json")
    assert other.code == 6
    assert "diverged at line 4: today's engine decides otherwise" in other.out
    assert other.out.count("StepIntended") >= 3
    body = ran("trace", "replay", "t.jsonl", "--plan", "new.json", "--json").json
    assert body["same"] is False
    assert body["sagas"][0]["divergence"]["line"] == 4
    then, now = (body["sagas"][0]["divergence"][side][0] for side in ("recorded", "today"))
    assert then != now
    assert now["params"] == {"item": "b"}
    ran.plan("bad.json", {"tool": "nobody"})
    assert ran("trace", "replay", "t.jsonl", "--plan", "bad.json").code == 7
    ran.plan("bad.json", book("{{item}}"), book("$input.item", nmae="x"), book("$output.step_9.ref"))
    said = ran("trace", "replay", "t.jsonl", "--plan", "bad.json")
    assert (said.code, "$.steps[1].nmae" in said.err, "there is no step 9" in said.err) == (7, True, True)
    ran.plan("like.json", book("{{item}}"))
    said = ran("trace", "replay", "t.jsonl", "--plan", "like.json")
    assert "warning: $.steps[0].params.item" in said.err


def test_stepping_waits_for_a_person(ran: Cli) -> None:
    """--step waits for Enter at a terminal before each decision; without a terminal it is a wrong command line."""
    ran("trace", "export", "t", "-o", "t.jsonl", "--tools", str(TOOLS))
    assert ran("trace", "replay", "t.jsonl", "--step").code == 2
    assert ran("trace", "replay", "t.jsonl", "--step", "--json").code == 2
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ran.command("trace", "replay", "t.jsonl", "--step"),
        cwd=ran.folder,
        env=ran.env,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(theirs)
        os.write(ours, b"\n" * 7)
        out, err = process.communicate(timeout=60)
        os.close(ours)
    assert process.returncode == 0
    assert err.count(b"[Enter]") == 7
    assert out.count(b"=>") == 7


def test_names_in_a_trace_cannot_act_on_a_terminal(cli: Cli, book: Any) -> None:
    """A trace comes from elsewhere: what it holds is printed safely."""
    cli.plan(
        "p.json", {**book("a\x1b[2J"), "name": "\x1b[2J"}, {"tool": "fail", "params": {"message": "\x1b[2J\u202e"}}
    )
    cli("submit", "p.json", "--tools", str(TOOLS), "--id", "t")
    cli("trace", "export", "t", "-o", "t.jsonl", "--tools", str(TOOLS))
    for command in ("verify", "replay"):
        said = cli("trace", command, "t.jsonl")
        assert said.code == 0
        assert "\x1b" not in said.out + said.err
        assert "\u202e" not in said.out + said.err


# --- through the API -----------------------------------------------------------------------------------------------------


async def test_what_really_ran_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parallel steps, retries with jitter, big outputs, a secret, and an undo: a journal of the real driver replays."""
    monkeypatch.setenv("TOKEN", "s3cr3t-value")
    tries: list[str] = []
    once = RetryPolicy(max_attempts=2, base_s=0.01, max_s=0.01)

    @tool(tolerates_absence=True)
    def drop(ref: str, idempotency_key: str) -> dict:
        return {}

    @tool(undo=drop, retry=once)
    def take(item: str, idempotency_key: str) -> dict:
        tries.append(item)
        if tries.count(item) == 1:
            raise ToolError("busy", retryable=True)
        return {"ref": item, "rows": ["x" * 1000] * 100}

    @tool(undo=drop, retry=RetryPolicy(max_attempts=1))
    def fail(token: str, ref: str, idempotency_key: str) -> dict:
        raise ToolError(f"no {token}")

    steps: list[dict[str, Any]] = [
        {"step_id": at, "tool": "take", "params": {"item": f"ünï-{at}"}, "depends_on": []} for at in range(1, 9)
    ]
    last = {"token": "$secret.TOKEN", "ref": "$output.step_1.ref"}
    steps.append({"step_id": 9, "tool": "fail", "params": last, "depends_on": list(range(1, 9))})
    async with Coordinator.open(
        store="memory://", tools=[take, fail, drop], secrets={"fail": ["TOKEN"]}
    ) as coordinator:
        outcome = await coordinator.run({"steps": steps}, saga_id="s")
        assert outcome.status == "COMPENSATED"
        for options in ({}, {"full": True}, {"redact": ["**.ref"]}):
            told = await coordinator.trace("s", **options)  # type: ignore[arg-type]
            assert "s3cr3t-value" not in "".join(told)
            (trace,) = read(f"{line}\n".encode() for line in told)
            again = Replay(trace, coordinator.tools)
            assert len(list(again.run())) == len(trace.entries) - 1
            assert again.divergence is None
