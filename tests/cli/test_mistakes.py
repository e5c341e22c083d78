"""Fifteen mistakes that people make, and what they read then: each message names the place and the way out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Ran

TOOLS = """
import json, time
from pathlib import Path
from saga_engine import RetryPolicy, tool

ONCE = RetryPolicy(max_attempts=1)

def happened(what):
    with Path("world.log").open("a") as log:
        log.write(what + "\\n")

@tool(undo="unbook", retry=ONCE)
def book(item: str, nights: int = 1) -> dict:
    happened(f"book:{item}")
    return {"ref": item}

@tool(retry=ONCE)
def unbook(ref: str) -> dict:
    happened(f"unbook:{ref}")
    return {}

@tool(retry=ONCE)
def send(text: str) -> dict:
    return {}

@tool(undo="unbook", retry=ONCE)
def refuse(item: str) -> dict:
    raise ValueError("the hotel is full")

@tool(undo="unbook", retry=ONCE)
def odd(item: str) -> dict:
    happened(f"odd:{item}")
    return {"ref": item, "room": object()}

@tool(undo="unbook", retry=ONCE)
def huge(item: str) -> dict:
    happened(f"huge:{item}")
    return {"ref": item, "text": "x" * (33 << 20)}

@tool(effect="read", retry=ONCE)
def login(password: str) -> dict:
    raise ValueError(f"{password} was refused")

@tool(undo="unbook", timeout_s=0.3, retry=ONCE)
async def blocking(item: str) -> dict:
    time.sleep(3)
    happened(f"blocking:{item}")
    return {"ref": item}

@tool(undo="unbook", timeout_s=600)
def block(item: str) -> dict:
    with Path("begun").open("w") as begun:
        begun.write("begun")
    with Path("gate").open() as gate:
        gate.read()
    return {"ref": item}
"""
WITH = ("--tools", "tools.py")


@pytest.fixture
def world(cli: Cli) -> Cli:
    (cli.folder / "tools.py").write_text(TOOLS)
    return cli


def step(tool: str, **params: object) -> dict[str, object]:
    return {"tool": tool, "params": params}


def submitted(cli: Cli, *steps: dict[str, object], **fields: object) -> Ran:
    cli.plan("p.json", *steps, **{"task_id": "t", **fields})
    return cli("submit", "p.json", *WITH)


def refused(ran: Ran, *words: str) -> None:
    """The plan is refused before anything is called, in these words, and without a traceback."""
    assert ran.code == 7, ran
    for word in words:
        assert word in ran.err, ran.err
    assert "Traceback" not in ran.err


def test_a_misspelt_tool(world: Cli) -> None:
    """The tool that was meant is named."""
    refused(submitted(world, step("bok", item="a")), "$.steps[0].tool", '"bok"', "did you mean 'book'?")


def test_a_forgotten_rollback(world: Cli) -> None:
    """A writing step that cannot be undone, before others, is refused; the hint says what may be done."""
    refused(
        submitted(world, step("send", text="x"), step("book", item="a")),
        "which writes and has no undo",
        "$.steps[0]",
        "add a rollback",
    )


def test_an_undo_without_its_param(world: Cli) -> None:
    """The parameter that the undo lacks is named, before anything is booked."""
    wrong = {**step("book", item="a"), "rollback": {"tool": "unbook", "params": {}}}
    refused(submitted(world, wrong), "$.steps[0].rollback", "ref")


def test_a_binding_to_a_later_step(world: Cli) -> None:
    """The step that comes later is named with the place of the binding."""
    refused(
        submitted(world, step("book", item="$output.step_2.ref"), step("book", item="b")),
        "$.steps[0].params.item",
        "step 2, which comes later",
    )


def test_duplicate_ids(world: Cli) -> None:
    """Both places are told by the id that they share."""
    one = {"step_id": 1, **step("book", item="a")}
    refused(submitted(world, one, {**one}), "steps[0] has the same step id, 1", "$.steps[1].step_id")


def test_a_plain_exception(world: Cli) -> None:
    """What a tool says by an ordinary exception is shown as the reason, and what came before is undone."""
    ran = submitted(world, step("book", item="a"), step("refuse", item="b"))
    assert ran.code == 3
    assert "the hotel is full" in ran.out
    assert "report: clean" in ran.out
    assert world.world == ["book:a", "unbook:a"]


def test_a_result_that_is_no_json(world: Cli) -> None:
    """The effect stands, so a person is asked; the message names the place in the result and its type."""
    ran = submitted(world, step("odd", item="a"))
    assert ran.code == 4
    assert "object" in ran.out
    assert "saga resolve t 1 happened" in ran.out
    assert world.world == ["odd:a"]


def test_a_tool_that_blocks_the_event_loop(world: Cli) -> None:
    """It is named in the log with what to do about it."""
    ran = submitted(world, step("blocking", item="a"))
    assert "blocked by tool 'blocking' (saga t, step 1) at " in ran.err
    assert "tools.py" in ran.err
    assert "make it a plain def" in ran.err


def test_a_wrong_type(world: Cli) -> None:
    """The parameter and what was expected are named."""
    refused(submitted(world, step("book", item="a", nights="two")), "$.steps[0].params.nights", "integer")


def test_a_huge_output(world: Cli) -> None:
    """It is a defect of the tool whose effect stands: the limit is told, and a person is asked."""
    ran = submitted(world, step("huge", item="a"))
    assert ran.code == 4
    assert "32" in ran.out
    assert "saga resolve t 1 happened" in ran.out
    assert world.world == ["huge:a"]


def test_a_secret_in_an_error(world: Cli) -> None:
    """A value from the environment is in nothing that is printed or journalled, even where the tool says it."""
    (world.folder / "saga.toml").write_text('[secrets.allow]\n"*" = ["PASS"]\n')
    world.plan("p.json", step("login", password="$secret.PASS"), task_id="t")
    ran = world("submit", "p.json", *WITH, "--log-level", "debug", env={"PASS": "correct-horse-battery"})
    assert ran.code == 3
    said = ran.out + ran.err + world.look("show", "t").out + world.look("history", "t", "--json").out
    assert "correct-horse-battery" not in said
    assert "$secret.PASS was refused" in ran.out


def waiting_in_block(cli: Cli) -> subprocess.Popen[str]:
    """A process that drives the saga ``t``, in whose step a tool is at work."""
    for name in ("begun", "gate"):
        os.mkfifo(cli.folder / name)
    cli.plan("p.json", step("block", item="a"), task_id="t")
    driving = cli.start("submit", "p.json", *WITH)
    assert (cli.folder / "begun").read_text() == "begun"
    return driving


def test_two_processes_with_one_id(world: Cli) -> None:
    """The second one is told that another live process drives the saga, and how to look; nothing is called twice."""
    driving = waiting_in_block(world)
    second = world("submit", "p.json", *WITH)
    assert second.code == 8, second
    assert "another live process runs this saga" in second.err
    assert "saga show t" in second.err
    (world.folder / "gate").write_text("go")
    assert driving.wait(timeout=120) == 0
    driving.communicate()


def test_a_changed_plan_under_one_id(world: Cli) -> None:
    """The same id with other steps is refused; what was done stays as it was."""
    assert submitted(world, step("book", item="a")).code == 0
    ran = submitted(world, step("book", item="b"))
    assert ran.code == 6, ran
    assert "saga t" in ran.err
    assert "another plan" in ran.err
    assert world.world == ["book:a"]


def test_a_changed_signature_between_crash_and_resume(world: Cli) -> None:
    """The tool whose declaration changed is told by name where the saga goes on."""
    driving = waiting_in_block(world)
    os.killpg(driving.pid, signal.SIGKILL)
    driving.communicate()
    changed = TOOLS.replace("def block(item: str) -> dict:", "def block(item: str, floor: int) -> dict:")
    (world.folder / "tools.py").write_text(changed)
    ran = world("resume", "t", *WITH)
    assert "block" in ran.err + ran.out
    assert "changed" in ran.err + ran.out, ran


def test_a_wrong_clock(world: Cli) -> None:
    """A machine whose clock is a day ahead drives a saga as any other: the store's clock counts."""
    code = (
        "import sys, time; ahead = time.time; time.time = lambda: ahead() + 86_400\n"
        "from saga_engine.cli import main; main()"
    )
    world.plan("p.json", step("book", item="a"), step("refuse", item="b"), task_id="t", deadline_s=600)
    ran = subprocess.run(
        [sys.executable, "-c", code, "submit", "p.json", *WITH, "--json"],
        cwd=world.folder, env=world.env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 3, ran.stderr
    body = json.loads(ran.stdout)
    assert (body["status"], body["error"]["code"]) == ("COMPENSATED", "step-failed")
    assert 0 <= body["ended_ms"] - body["started_ms"] < 120_000


def test_the_list_of_mistakes_is_whole() -> None:
    """Fifteen kinds, each with its test."""
    assert Path(__file__).read_text().count("\ndef test_") == 16
