"""``saga purge`` and ``[retention]``, in real folders with the embedded store."""

from __future__ import annotations

import json
from pathlib import Path

TOOLS = """
from saga_engine import tool

@tool(undo="unbook")
def book(n: int) -> dict: return {"n": n}

@tool
def unbook(n: int) -> dict: return {}
"""
PLAN = {"steps": [{"step_id": 1, "tool": "book", "params": {"n": 1}}]}


def world(cli, table=""):
    (cli.folder / "tools.py").write_text(TOOLS)
    (cli.folder / "plan.json").write_text(json.dumps(PLAN))
    (cli.folder / "saga.toml").write_text(f'[saga]\ntools = ["tools.py"]\n{table}')
    assert cli("submit", "plan.json", "--id", "s1").code == 0


def test_sagas_are_removed_by_hand(cli):
    """A dry run names them; then they are archived and removed, and the file verifies."""
    world(cli)
    assert cli("purge", "--json").code == 2
    assert cli("purge", "--older-than", "1d", "--json").json["purged"] == []
    ran = cli("purge", "--status", "completed", "--older-than", "0s", "--dry-run", "--json")
    assert (ran.code, ran.json) == (0, {"dry_run": True, "purged": ["s1"], "kept": {}, "archive": None})
    assert cli("show", "s1").code == 0
    ran = cli("purge", "--older-than", "0s", "--archive", "old", "--json")
    assert (ran.code, ran.json["purged"], ran.json["archive"]) == (0, ["s1"], "old")
    assert cli("show", "s1").code == 5
    (path,) = Path(cli.folder, "old").glob("*/s1.*.jsonl")
    assert cli("trace", "verify", str(path)).code == 0
    assert cli("trace", "replay", str(path)).code == 0


def test_what_was_archived_is_read_back(cli):
    """As it was shown before, with its history; of an id that was used again the last one, with a word of the other."""
    world(cli, '[retention]\narchive = "old"\n')
    shown, told = cli("show", "s1", "--json").json, cli("history", "s1", "--full", "--json").json
    assert cli("archive", "list").code == 1
    assert cli("purge", "--older-than", "0s").code == 0
    ran = cli("archive", "show", "s1", "--json")
    (path,) = Path(cli.folder, "old").glob("*/s1.*.jsonl")
    assert (ran.code, ran.json) == (0, {**shown, "file": str(path)})
    assert cli("archive", "show", "s1", "--history", "--json").json == told
    assert cli("archive", "show", str(path), "--json").json == ran.json
    assert cli("archive", "show", "s2").code == 5
    assert cli("submit", "plan.json", "--id", "s1").code == 0
    assert cli("purge", "--older-than", "0s").code == 0
    listed = cli("archive", "list", "--json").json
    assert [(each["saga_id"], each["status"]) for each in listed["sagas"]] == [("s1", "COMPLETED")] * 2
    again = cli("archive", "show", "s1")
    assert again.code == 0
    assert str(path) in again.err.replace("\n", "")
    assert cli("archive", "list", "--limit", "1", "--json").json["has_more"] is True


def test_a_file_that_was_changed_is_refused(cli):
    """A flipped letter, a lost line, half a file: each is an error with its line; the list says that it does not know."""
    world(cli)
    assert cli("purge", "--older-than", "0s", "--archive", "old").code == 0
    (path,) = Path(cli.folder, "old").glob("*/s1.*.jsonl")
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for changed in (
        whole.replace(b'"n":1', b'"n":2', 1),
        b"".join(lines[:2] + lines[3:]),
        whole[: len(whole) // 2],
        b"",
    ):
        path.write_bytes(changed)
        ran = cli("archive", "show", "s1", "--archive", "old")
        assert ran.code == 1
        assert "trace-broken" in ran.err
    assert cli("archive", "list", "--archive", "old", "--json").json["sagas"][0]["status"] is None
    path.write_bytes(lines[0] + b"x" * 100_000 + b"\n" + lines[-2] + lines[-1])
    assert cli("archive", "list", "--archive", "old", "--json").json["sagas"][0]["status"] == "COMPLETED"


def test_the_table_is_the_default(cli):
    """Without options the rules of saga.toml count; doctor shows them, and an archive that cannot be written."""
    world(cli, '[retention]\ncompleted = "90d"\narchive = "tools.py"\n[trace]\nredact = ["params.n"]\n')
    assert cli("purge", "--json").json == {
        "dry_run": False,
        "purged": [],
        "kept": {},
        "archive": f"{cli.folder}/tools.py",
    }
    ran = cli("purge", "--older-than", "0s", "--json")
    assert (ran.code, ran.json["kept"]) == (1, {"it cannot be archived": 1})
    ran = cli("doctor", "--json")
    assert ran.code == 1
    assert ran.json["settings"]["retention.completed"] == {"value": 90 * 86400, "from": "saga.toml"}
    assert ran.json["settings"]["retention.waived"] == {"value": 30 * 86400, "from": "keep_finished_s"}
    assert [one["about"] for one in ran.json["findings"] if one["severity"] == "error"] == ["retention"]
    ran = cli("purge", "--older-than", "0s", "--archive", "old", "--json")
    assert ran.json["purged"] == ["s1"]
    (path,) = Path(cli.folder, "old").glob("*/s1.*.jsonl")
    assert '"n":"[redacted]"' in path.read_text()


def test_a_wrong_rule_starts_nothing(cli):
    """A typing error in the table is refused by every command that runs sagas."""
    world(cli)
    (cli.folder / "saga.toml").write_text('[saga]\ntools = ["tools.py"]\n[retention]\ncompleted = "1 month"\n')
    ran = cli("submit", "plan.json", "--id", "s2", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "setting-invalid")
    assert cli("purge", "--json").json["error"]["code"] == "setting-invalid"
