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
