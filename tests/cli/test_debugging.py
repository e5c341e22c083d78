"""What a person finds who looks for the reason: tracebacks, params, keys, the next try, the log."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

from saga_engine.cli.render_calls import waiting_lines
from saga_engine.loggers import LOGGERS
from tests.cli.conftest import Cli, Ran

#: `lookup` breaks in a way that nobody foresaw, and what it looks up is a secret.
BROKEN = """
from saga_engine import RetryPolicy, tool

@tool(effect="read", retry=RetryPolicy(max_attempts=1))
def lookup(city: str, token: str = "") -> dict:
    rooms: dict = {}
    return {"ref": rooms[token or city]}

@tool(effect="read", retry=RetryPolicy(max_attempts=2, base_s=3000, max_s=3000))
def later(city: str) -> dict:
    raise ConnectionRefusedError("nobody is there")

@tool(effect="read")
def fine(city: str, idempotency_key: str) -> dict:
    return {"city": city}
"""


def broken(cli: Cli, *steps: dict[str, Any], log: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Ran:
    (cli.folder / "tools.py").write_text(BROKEN)
    (cli.folder / "saga.toml").write_text('[secrets]\nallow = { lookup = ["ROOM_TOKEN"] }\n')
    cli.plan("p.json", *steps, task_id="t")
    return cli("submit", "p.json", "--tools", "tools.py", *log, env=env)


def test_a_defect_of_a_tool_leaves_its_traceback(cli: Cli) -> None:
    """In the log and in the journal, with file and line and without any value; `show --debug` prints it."""
    step = {"tool": "lookup", "params": {"city": "Oslo", "token": "$secret.ROOM_TOKEN"}}
    ran = broken(cli, step, log=("--log-level", "debug"), env={"ROOM_TOKEN": "hunter2-hunter2"})
    assert ran.code == 3
    place = f'File "{cli.folder}/tools.py", line 7, in lookup'
    assert "saga t: step 1: the tool 'lookup' raised an unforeseen exception (forward, attempt 1): key_error" in ran.err
    assert place in ran.err
    (record,) = [each for each in cli.look("history", "t", "--json").json["records"] if each["k"] == "StepFailed"]
    assert record["error"]["traceback"] == f'{place}\n    return {{"ref": rooms[token or city]}}\nKeyError'
    assert record["error"]["message"] == "'$secret.ROOM_TOKEN'"
    shown = cli.look("show", "t", "--debug")
    assert f"tracebacks:\n  step 1:\n    {place}\n        return" in shown.out
    plain = cli.look("show", "t")
    assert ("traceback" in plain.out, "--debug shows where" in plain.err) == (False, True)
    said = "".join([ran.out, ran.err, shown.out, cli.look("show", "t", "--json").out, json.dumps(record)])
    assert "hunter2" not in said


def test_params_and_keys_of_calls_are_shown(cli: Cli) -> None:
    """What each call was made with and under which key, secrets as markers, in text and as JSON; none for a call not made."""
    token = {"city": "Oslo", "token": "$secret.ROOM_TOKEN"}
    waiting = {"tool": "fine", "params": {"city": "$output.step_2.ref"}}
    ran = broken(cli, {"tool": "fine", "params": {"city": "Bergen"}}, {"tool": "lookup", "params": token}, waiting,
                 env={"ROOM_TOKEN": "hunter2-hunter2"})  # fmt: skip
    assert ran.code == 3
    first, second, third = cli.look("show", "t", "--json").json["steps"]
    assert (first["params"], second["params"], third["params"]) == ({"city": "Bergen"}, token, None)
    assert re.fullmatch(r"t:1:f:[0-9a-f]{16}", first["idempotency_key"])
    assert third["idempotency_key"] is None
    assert not {"next_try_ms", "traceback"} & {*first, *third}
    text = cli.look("show", "t").out
    assert f'  step 1: fine {{"city": "Bergen"}}, key {first["idempotency_key"]}\n' in text
    assert '"token": "$secret.ROOM_TOKEN"' in text


def test_the_next_try_is_told(cli: Cli) -> None:
    """A step that waits for its next attempt says when that is."""
    (cli.folder / "tools.py").write_text(BROKEN)
    cli.plan("p.json", {"tool": "later", "params": {"city": "Oslo"}}, task_id="t")
    driving = cli.start("submit", "p.json", "--tools", "tools.py")
    assert driving.stderr is not None
    for line in driving.stderr:
        if "next attempt in" in line:
            break
    os.kill(driving.pid, signal.SIGINT)
    driving.communicate(timeout=120)
    (step,) = cli.look("show", "t", "--json").json["steps"]
    assert step["next_try_ms"] - step["started_ms"] > 60_000
    assert re.search(r"notes:\n  step 1: next try in \d+ min \d+ s\n", cli.look("show", "t").out)


def test_how_long_a_wait_is() -> None:
    """From this machine's clock; what is due already says so."""
    step = {"step_id": 7, "next_try_ms": 123_000, "compensation": {"next_try_ms": 90_000}}
    assert waiting_lines({"steps": [step]}, 100_000) == [
        "  step 7: next try in 23.0 s",
        "  undo of step 7: next try due now",
    ]
    away = {"step_id": "pay", "model_asked_ms": 220_000, "compensation": None}
    assert waiting_lines({"steps": [away]}, 100_000) == ["  step pay: the model is asked again in 2 min 0 s"]


def test_a_module_that_cannot_be_imported_names_file_and_line(cli: Cli) -> None:
    """An exception, a syntax error, a bad declaration, a factory that fails: each with the place in the user's file."""
    cli.plan("p.json", {"tool": "x"}, task_id="t")
    for text, reference, place in (
        ("import json\n\nx = json.loads('{')\n", "bad.py", "bad.py:3: JSONDecodeError: Expecting"),
        ("x = 1\ndef f(:\n", "bad.py", "bad.py:2: SyntaxError: invalid syntax"),
        ("from saga_engine import tool\n\n@tool(undo=7)\ndef f() -> dict:\n    return {}\n", "bad.py", "bad.py:3: "),
        ("def make():\n    return 1 / 0\n", "bad.py:make", "bad.py:2: ZeroDivisionError"),
    ):
        (cli.folder / "bad.py").write_text(text)
        refused = cli("submit", "p.json", "--tools", reference, "--json")
        assert refused.code == 1
        assert f"{cli.folder}/{place}" in refused.json["error"]["message"]


def test_the_log_as_json(cli: Cli) -> None:
    """With --log-format json each line of stderr is one object, also the command's own words and errors; stdout is as ever."""
    step = {"tool": "lookup", "params": {"city": "Oslo"}}
    ran = broken(cli, step, log=("--log-format", "json", "--json"))
    assert (ran.code, ran.json["status"]) == (3, "COMPENSATED")
    lines = [json.loads(line) for line in ran.err.splitlines()]
    (defect,) = [line for line in lines if line["logger"] == "saga_engine.tools"]
    assert {name: defect[name] for name in ("level", "saga_id", "step_id", "tool", "direction", "attempt")} == {
        "level": "warning",
        "saga_id": "t",
        "step_id": 1,
        "tool": "lookup",
        "direction": "forward",
        "attempt": 1,
    }
    assert defect["traceback"].endswith("KeyError")
    lost = cli("submit", "nowhere.json", env={"SAGA_LOG_FORMAT": "json"})
    assert {json.loads(line)["level"] for line in lost.err.splitlines()} <= {"error", "info"}
    assert lost.code != 0
    assert cli("submit", "p.json", "--log-level", "loud").code == 2
    assert cli("submit", "p.json", env={"SAGA_LOG_FORMAT": "xml"}).code == 2


def test_a_worker_logs_the_end_of_each_saga(cli: Cli) -> None:
    """One line a saga, at the level info, which is a worker's own."""
    (cli.folder / "tools.py").write_text(BROKEN)
    for name, tool in (("a", "fine"), ("b", "lookup")):
        cli.plan(f"{name}.json", {"tool": tool, "params": {"city": "Oslo"}}, task_id=name)
        assert cli("submit", f"{name}.json", "--detach", "--tools", "tools.py").code == 0
    worker = cli.start("worker", "--tools", "tools.py", "--log-format", "json")
    assert worker.stderr is not None
    ended: dict[str, str] = {}
    for line in worker.stderr:
        told = json.loads(line)
        if told["logger"] == "saga_engine.worker" and "status" in told:
            ended[told["saga_id"]] = told["status"]
        if len(ended) == 2:
            break
    os.kill(worker.pid, signal.SIGTERM)
    worker.communicate(timeout=120)
    assert ended == {"a": "COMPLETED", "b": "COMPENSATED"}


def test_every_logger_is_declared() -> None:
    """The table of loggers, of which the page of the reference is made, names each of the engine, and no other."""
    root = Path(__file__).parents[2]
    used = {"saga_engine.cli"}
    for path in (root / "saga_engine").rglob("*.py"):
        used |= set(re.findall(r'logger_of\("(saga_engine[\w.]*)"\)', path.read_text(encoding="utf-8")))
    assert set(LOGGERS) == used
