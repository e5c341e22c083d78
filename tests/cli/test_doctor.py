"""`saga doctor` speaks also when nothing works."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from saga_engine.execution.schedules import ScheduleBody
from saga_engine.execution.timetable import Timetable
from saga_engine.plan.operator_limits import Limits
from saga_engine.ports import Creation, Document, Entry
from saga_engine.stores import open_store
from tests.cli.conftest import TOOLS
from tests.support.servers import DebianRedis


def findings(ran, severity: str) -> list[dict]:
    return [finding for finding in ran.json["findings"] if finding["severity"] == severity]


def test_a_healthy_folder(cli, book):
    """Store, tools, settings with their sources and versions are told; exit code 0."""
    (cli.folder / "saga.toml").write_text(f'[saga]\ntools = ["{TOOLS}"]\nlease_s = 7\n')

    cli.plan("p.json", book("a"))
    assert cli("submit", "p.json").code == 0

    ran = cli("doctor", "--json", env={"SAGA_PATIENCE_S": "5"})

    assert (ran.code, ran.json["healthy"]) == (0, True)
    assert ran.json["store"]["level"] == "fsync"
    assert {name: one["from"] for name, one in ran.json["settings"].items()} == {
        **dict.fromkeys((*(f"limits.{name}" for name in Limits.__struct_fields__), "otlp"), "default"),
        "store": "default",
        "tools": "saga.toml",
        "durability": "default",
        "lease_s": "saga.toml",
        "patience_s": "SAGA_PATIENCE_S",
        "keep_finished_s": "default",
        "queue_limit": "default",
        "max_output_bytes": "default",
        "runtime": "default",
        "task_queue": "default",
        "loop_cpu_s": "default",
        "observe": "default",
        "language": "default",
    }
    assert "book" in {tool["name"] for tool in ran.json["tools"]}
    serving = ran.json["installation"]["server"]
    assert serving.keys() == {"path", "from", "version", "age_days", "allocator"}
    told = cli("doctor")
    assert told.code == 0
    assert f"{serving['version']}, {serving['age_days']} days old, from {serving['from']}" in told.out
    assert (serving["allocator"] or "it needs a quarter less CPU") in told.out


def test_secrets_that_the_environment_lacks_are_a_finding(cli):
    """What `[secrets]` allows and the environment has not is a warning with the names and what to do, not an error."""
    allow = '[secrets]\nallow = { "book*" = ["ROOM_TOKEN", "CAR_TOKEN"], "cancel" = ["*"] }\n'
    (cli.folder / "saga.toml").write_text(f'[saga]\ntools = ["{TOOLS}"]\n')
    assert not [one for one in findings(cli("doctor", "--json"), "warning") if one["about"] == "secrets"]
    (cli.folder / "saga.toml").write_text(f'[saga]\ntools = ["{TOOLS}"]\n{allow}')
    ran = cli("doctor", "--json", env={"CAR_TOKEN": "there"})
    (found,) = [one for one in findings(ran, "warning") if one["about"] == "secrets"]
    assert (ran.code, "ROOM_TOKEN" in found["text"], "CAR_TOKEN" in found["text"]) == (0, True, False)
    assert "Temporal" in found["hint"]


def test_an_unreachable_store_is_a_finding(cli):
    """A store that is down is an error with a hint, told like everything else; the command itself works."""
    ran = cli("doctor", "--store", "unix:///nowhere/at/all.sock", "--json")

    assert (ran.code, ran.json["healthy"], ran.json["store"]) == (1, False, None)
    assert [(one["about"], bool(one["hint"])) for one in findings(ran, "error")] == [("store", True)]


def test_a_store_is_not_made_by_looking(cli):
    """Where there is no store yet, that is said; one that cannot be made is an error. Nothing is left behind."""
    ran = cli.look("doctor", "--json")
    assert (ran.code, ran.json["store"], list(cli.folder.iterdir())) == (0, None, [])
    assert any("the first saga creates it" in one["text"] for one in findings(ran, "ok"))
    (cli.folder / "file").touch()
    ran = cli.look("doctor", "--store", f"embedded://{cli.folder}/file/store", "--json")
    assert (ran.code, [one["about"] for one in findings(ran, "error")]) == (1, ["store"])


def test_broken_tools_and_settings_are_findings(cli):
    """Tools that cannot be loaded and a saga.toml that cannot be read are findings, too."""
    ran = cli("doctor", "--tools", "nowhere.py", "--json")
    assert (ran.code, [one["about"] for one in findings(ran, "error")]) == (1, ["tools"])
    (cli.folder / "saga.toml").write_text("[saga]\nstorre = 1\n")
    ran = cli("doctor", "--json")
    assert (ran.code, [one["about"] for one in findings(ran, "error")]) == (1, ["settings"])


def test_that_nobody_is_told_is_a_warning(cli):
    """Without [escalation] questions reach nobody but a log; the doctor says so, and what to write."""
    ran = cli("doctor", "--store", "memory://", "--json")
    [finding] = [one for one in findings(ran, "warning") if one["about"] == "escalation"]
    assert "no operator is notified" in finding["text"]
    assert "[[escalation.hooks]]" in finding["hint"]


def test_a_password_is_not_shown(cli):
    """The store's address is shown without its password, in settings and in findings."""
    ran = cli("doctor", "--store", "redis://ada:opensesame@localhost:1/0", "--json")
    assert ran.code == 1
    assert "opensesame" not in ran.out + ran.err


@pytest.mark.debian_redis
def test_a_weak_store_is_told_with_the_cure(cli):
    """A server that promises too little is an error that names the command that mends it; `relaxed` makes it a warning."""
    with DebianRedis(appendfsync="everysec") as server:
        ran = cli("doctor", "--store", server.url, "--json")
        lenient = cli("doctor", "--store", server.url, "--json", env={"SAGA_DURABILITY": "relaxed"})
    assert ran.code == 1
    assert any("appendfsync always" in one["hint"] for one in findings(ran, "error"))
    assert lenient.code == 0
    assert any("appendfsync" in one["text"] for one in findings(lenient, "warning"))


def test_sagas_that_nobody_drives_are_a_finding(cli):
    """The store is fine, and yet a saga stands still: it says so, and what goes on with it."""

    async def orphan() -> None:
        store = open_store(f"embedded://{cli.folder}/.saga")
        await store.open()
        await store.open_lease("gone", 60_000)
        entry = Entry("s1", 0, 0, [b"r0"], "RUNNING", b"{}", creation=Creation("d", owned=True))
        await store.append("gone", [entry])
        await store.close_lease("gone", clean=True)
        await store.close()

    asyncio.run(orphan())
    ran = cli("doctor", "--json")
    (found,) = [one for one in findings(ran, "warning") if one["about"] == "store"]
    assert "1 saga has not ended" in found["text"]
    assert "saga resume --all" in found["hint"]


@pytest.mark.parametrize(("status", "warned"), [("RUNNING", True), ("COMPLETED", False)])
def test_a_process_that_died_is_a_finding_while_a_saga_lives(cli, status, warned):
    """A lease that has ended is no reason to worry an operator once every saga has ended, whoever ended them."""

    async def die() -> None:
        store = open_store(f"embedded://{cli.folder}/.saga")
        await store.open()
        await store.open_lease("gone", 60_000)
        entry = Entry("s1", 0, 0, [b"r0"], status, b"{}", creation=Creation("d", owned=True))
        await store.append("gone", [entry])
        await store.renew("gone", 1)
        await store.close()

    asyncio.run(die())
    found = [one["text"] for one in findings(cli("doctor", "--json"), "warning")]
    assert any("1 process died" in text for text in found) is warned, found


def test_a_disk_that_was_full_is_named(cli, book):
    """A server that died of it says so in its log, and doctor says it by name."""
    cli.plan("p.json", book("a"))
    assert cli("submit", "p.json", "--tools", str(TOOLS)).code == 0
    assert not [one for one in findings(cli("doctor", "--json"), "warning") if "was full" in one["text"]]
    with (cli.folder / ".saga" / "server.log").open("a") as log:
        log.write("1:M 01 Jan 2026 # Error writing to the AOF file: No space left on device\n")
    ran = cli("doctor", "--json")
    (found,) = [one for one in findings(ran, "warning") if "was full" in one["text"]]
    assert found["about"] == "disk"
    assert ran.json["installation"]["server"]["from"] == "wheel"
    assert ran.json["installation"]["server"]["version"]


def test_open_breakers_and_overdue_schedules_are_findings(cli):
    """Calls that wait for a breaker, which ``top`` shows as well, and a schedule whose ticks nobody fires."""
    (cli.folder / "saga.toml").write_text(f'[saga]\ntools = ["{TOOLS}"]\n')

    async def hold_up() -> None:
        store = open_store(f"embedded://{cli.folder}/.saga")
        await store.open()
        guards = store.guard_store()
        for _ in range(3):
            await guards.breaker_outcome("book", failed=True, failures=3, open_ms=600_000)
        now_ms = (await store.documents().due("schedule", 1)).now_ms
        body = ScheduleBody("t", Timetable(every_s=60), next_ms=now_ms - 120_000)
        await store.documents().write("schedule", Document("tick", 0, msgspec.json.encode(body)), due_ms=1)
        await store.close()

    asyncio.run(hold_up())
    texts = [one["text"] for one in findings(cli("doctor", "--json"), "warning")]
    assert "the breaker of book is open: calls wait until it closes" in texts
    assert "schedule tick is overdue: no worker fires its ticks" in texts
    top = ("top", "--once", "--every", "0.2")
    assert [*cli(*top, "--json").json["breakers"]] == ["book"]
    (line,) = [line for line in cli(*top).out.splitlines() if line.startswith("breakers")]
    assert line.startswith("breakers book open for ")
    assert line.endswith("s more: calls wait")
