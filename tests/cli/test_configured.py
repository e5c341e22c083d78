"""What `saga.toml` sets up holds for the commands that drive sagas, and is seen by those that look."""

from __future__ import annotations

from pathlib import Path

import pytest

GUARDED = Path(__file__).with_name("guarded_world.py")
POLICY = """
[[policy.rules]]
name = "the treasurer"
tools = ["pay"]
direction = "forward"
when = [{ param = "amount", op = ">", value = 100 }]
verdict = "ask"

[[policy.rules]]
name = "never mallory"
tools = ["pay"]
when = [{ param = "to", op = "==", value = "mallory" }]
verdict = "deny"
"""
LOG = """
[[escalation.hooks]]
kind = "log"
"""


@pytest.fixture
def settings(cli):
    """Write `saga.toml` with the guarded tools and more."""

    def write(more: str = "") -> None:
        (cli.folder / "saga.toml").write_text(f'[saga]\ntools = ["{GUARDED}"]\n{more}')

    return write


def pay(to: str, amount: int, **fields) -> dict:
    return {"tool": "pay", "params": {"to": to, "amount": amount}, **fields}


def test_a_blocked_call_is_not_made_and_is_told(cli, settings):
    """A rule of saga.toml that denies: nothing is called, the rest is undone, and every face says blocked and by what."""
    settings(POLICY)
    cli.plan("p.json", pay("bob", 10), pay("mallory", 10), task_id="p")

    ran = cli("submit", "p.json")

    assert ran.code == 3
    assert cli.world == ["pay:bob:10", "refund:bob-10"]
    assert "step 2 pay: blocked" in ran.err
    assert "rule never mallory" in ran.err
    assert "compensating (blocked)" in ran.err
    assert "reason: blocked (step 2): policy_denied" in ran.out
    shown = cli.look("show", "p")
    assert "BLOCKED" in shown.out
    assert "blocked: nothing was called" in shown.out
    body = cli.look("show", "p", "--json").json
    assert ([step["status"] for step in body["steps"]], body["error"]["code"]) == (
        ["COMPENSATED", "BLOCKED"],
        "blocked",
    )
    assert 'rule="never mallory"' in cli.look("history", "p").out


def test_an_approval_shows_the_exact_call_and_lets_it_be_made(cli, settings):
    """A rule that asks exits 4 with the exact call and the two answers; `approve` makes this call, `deny` does not."""
    settings(POLICY)
    cli.plan("p.json", pay("bob", 500), task_id="p")
    asked = cli("submit", "p.json")
    assert asked.code == 4
    assert cli.world == []
    for words in ('params of the call: {"to": "bob", "amount": 500}', "the treasurer", "saga resolve p 1 approve"):
        assert words in asked.out
    assert "waits for an operator" in asked.err
    waiting = cli.look("show", "p", "--json").json["steps"][0]
    assert (waiting["attempts"], waiting["took_ms"]) == (0, None)

    done = cli("resolve", "p", "1", "approve", "--by", "kim", "--json")

    assert (done.code, done.json["status"]) == (0, "COMPLETED")
    step = done.json["steps"][0]
    assert step["attempts"] == 1  # what only asked was no call
    assert 0 <= step["took_ms"] <= step["ended_ms"] - step["started_ms"]
    assert cli.world == ["pay:bob:500"]
    assert 'decision="approve"' in cli.look("history", "p").out
    cli.plan("q.json", pay("eve", 500), task_id="q")
    cli("submit", "q.json")
    denied = cli("resolve", "q", "1", "deny", "--by", "kim", "--note", "too much")
    assert denied.code == 3
    assert cli.look("show", "q", "--json").json["steps"][0]["attempts"] == 0
    assert "kim denied the call: too much" in denied.out
    assert cli.world == ["pay:bob:500"]


def test_an_answer_that_comes_too_late_is_refused(cli, settings):
    """An approval that has expired is no answer any more (exit code 6), and a resume denies the call."""
    settings(POLICY.replace('verdict = "ask"', 'verdict = "ask"\nexpires_s = 0.001'))
    cli.plan("p.json", pay("bob", 500), task_id="p")
    assert cli("submit", "p.json").code in (3, 4)

    late = cli("resolve", "p", "1", "approve", "--json")

    assert (late.code, late.json["error"]["code"]) == (6, "decision-refused")
    resumed = cli("resume", "p")
    assert (resumed.code, cli.world) == (3, [])
    assert "approval_expired" in resumed.out
    assert "ApprovalExpired" in cli.look("history", "p").out


def test_a_result_of_another_saga_says_so(cli, settings):
    """An identical call of a second saga gets the first result, with its owner and age, and its undo leaves it alone."""
    settings()
    cli.plan("a.json", pay("bob", 10), task_id="a")
    cli.plan("b.json", pay("bob", 10), task_id="b")
    cli("submit", "a.json")

    ran = cli("submit", "b.json")

    assert (ran.code, cli.world) == (0, ["pay:bob:10"])
    assert "the result of an identical call by saga a, step 1" in ran.err
    shown = cli.look("show", "b")
    assert "step 1: the result of an identical call by saga a, step 1" in shown.out
    step = cli.look("show", "b", "--json").json["steps"][0]
    assert (step["via"], step["source"].partition(":")[0]) == ("deduplicated", "a")


def test_a_kept_result_says_how_old_it_is(cli, settings):
    """The last good result of a read stands in when it cannot be read, and the record has its age."""
    settings()
    cli.plan("a.json", {"tool": "rate", "params": {"currency": "SEK"}})
    assert cli("submit", "a.json").code == 0
    (cli.folder / "rates-are-down").touch()
    cli.plan("b.json", {"tool": "rate", "params": {"currency": "SEK"}, "fallback": {"cached_s": 600}}, task_id="b")

    ran = cli("submit", "b.json")

    assert ran.code == 0
    assert "uses a fallback" in ran.err
    shown = cli.look("show", "b").out
    assert "step 1: fallback 1 was used: rate" in shown
    assert "step 1: the last good result, " in shown
    assert cli.look("show", "b", "--json").json["steps"][0]["age_ms"] >= 0


def test_another_tool_stands_in_and_is_undone_by_its_own_undo(cli, settings):
    """A fallback that was taken is named, and what is undone is its call."""
    settings()
    transfer = {"tool": "by_bank", "params": {"to": "bob", "amount": 7}}
    (cli.folder / "rates-are-down").touch()
    cli.plan(
        "p.json",
        {**transfer, "fallback": {"tool": "pay"}},
        {"tool": "rate", "params": {"currency": "SEK"}},
        task_id="p",
    )

    ran = cli("submit", "p.json", "--json")

    assert ran.code == 3
    assert cli.world == ["pay:bob:7", "refund:bob-7"]
    assert ran.json["steps"][0]["fallback"] == {"number": 1, "tool": "pay"}
    assert "step 1: fallback 1 was used: pay" in cli.look("show", "p").out


def test_a_step_that_waits_is_shown_as_deferred(cli, settings):
    """A step that waits for its tool is shown as deferred, is called again, and then shows how often it was deferred."""
    settings()
    begun = cli.folder / "bank-is-open"
    cli.plan(
        "p.json",
        {"tool": "by_bank", "params": {"to": "bob", "amount": 7}, "fallback": {"queue_s": 1}},
        task_id="p",
        deadline_s=600,
    )
    process = cli.start("submit", "p.json")
    told = []
    while not any("deferred" in line for line in told):
        told.append(process.stderr.readline())
        assert told[-1], "it ended without parking the step"
    begun.touch()
    out, _ = process.communicate(timeout=100)

    assert (process.returncode, cli.world) == (0, ["pay:bob:7"])
    assert "COMPLETED" in out
    assert "bank_closed" in told[-1]
    assert "deferred once: its tool was not available" in cli.look("show", "p").out


def test_people_are_told_by_the_hooks_of_the_file(cli, settings):
    """[escalation] holds for a command that drives: the question reaches the log hook, once."""
    settings(POLICY + LOG)
    cli.plan("p.json", pay("bob", 500), task_id="p")

    ran = cli("submit", "p.json")

    assert ran.code == 4
    assert ran.err.count("may this call be made?") == 1
    assert "AlertSent" in cli.look("history", "p").out


@pytest.mark.parametrize(
    ("about", "more"),
    [
        ("policy", "[policy]\ndefalt = 'deny'\n"),
        ("policy", "[[policy.rules]]\nname = 'x'\n"),
        ("escalation", "[[escalation.hooks]]\nkind = 'pigeon'\n"),
    ],
)
def test_a_table_that_makes_no_sense_lets_nothing_begin(cli, settings, about, more):
    """A policy or a hook with a typing error is an error before anything is journalled; `doctor` names it."""
    settings(more)
    cli.plan("p.json", pay("bob", 10), task_id="p")

    ran = cli("submit", "p.json", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (1, "setting-invalid")
    assert cli.world == []
    assert cli("show", "p").code == 5
    found = cli("doctor", "--json")
    assert found.code == 1
    assert [one["about"] for one in found.json["findings"] if one["severity"] == "error"] == [about]


def test_the_doctor_tells_policy_and_people(cli, settings):
    """A healthy file: its rules, a glob that fits no tool, who is told, and nothing about a planner that is not set."""
    settings(POLICY + LOG + '\n[[policy.rules]]\nname = "typo"\nverdict = "deny"\ntools = ["payy"]\n')

    ran = cli("doctor", "--json")

    assert ran.code == 0
    assert [rule["name"] for rule in ran.json["policy"]["rules"]] == ["the treasurer", "never mallory", "typo"]
    assert ran.json["policy"]["unmatched"] == [{"rule": "typo", "glob": "payy"}]
    assert ran.json["escalation"] == {"hooks": 1, "further": 0, "remind_s": 3600.0, "further_after_s": 86400.0}
    assert ran.json["planner"] is None
    warned = [one for one in ran.json["findings"] if one["severity"] == "warning"]
    assert [(one["about"], "payy" in one["text"]) for one in warned] == [("guards", False), ("policy", True)]


def test_a_plan_from_outside_gets_no_secret_that_is_not_listed(cli, settings):
    """No list, no secret: `check` and `submit` refuse it by name; the operator's list lets it through."""
    settings()
    cli.plan("pay.json", pay("$secret.HOME", 10), task_id="p")
    for command in ("check", "submit", "simulate"):
        refused = cli(command, "pay.json", "--json")
        assert refused.code == 7
        assert "secret-not-allowed" in refused.out
    settings('[secrets]\nallow = { pay = ["HOME"] }')
    assert cli("check", "pay.json").code == 0
    assert cli("submit", "pay.json").code == 0


def test_a_nearer_file_cannot_loosen_the_operators(cli, settings):
    """What the operator's file denies, switches off or does not list stays so, whatever the project's file says."""
    operators = cli.folder / "operator.toml"
    operators.write_text(
        '[[policy.rules]]\nname = "no payments"\ntools = ["pay"]\nverdict = "deny"\n[secrets]\nallow = {}\n'
        "[tools.none_here]\ndisabled = true"
    )
    settings(
        '[[policy.rules]]\nname = "mine"\nverdict = "allow"\n[secrets]\nallow = { pay = ["HOME"] }\n[trace]\nredact = []'
    )
    cli.plan("pay.json", pay("ada", 10), task_id="p")
    cli.plan("secret.json", pay("$secret.HOME", 10), task_id="s")
    environ = {"SAGA_CONFIG": str(operators)}
    assert cli("submit", "pay.json").code == 0
    denied = cli("submit", "pay.json", "--id", "again", "--json", env=environ)
    assert denied.code == 3
    assert "no payments" in denied.out
    assert cli("check", "secret.json").code == 0
    assert cli("check", "secret.json", env=environ).code == 7


def test_what_looks_like_a_binding_is_warned_of(cli, settings):
    """The plan runs as it is written; `check` and `submit` say what was probably meant."""
    settings()
    cli.plan("pay.json", pay("${input.name}", 10), task_id="p")
    checked = cli("check", "pay.json")
    assert checked.code == 0
    assert "write $input.name" in checked.err
    assert cli("check", "pay.json", "--json").json["warnings"][0]["code"] == "binding-lookalike"
    done = cli("submit", "pay.json", "--json")
    assert done.code == 0
    assert "write $input.name" in done.err


def test_check_and_simulate_tell_what_the_policy_will_say(cli, settings):
    """A call that the policy denies or asks about is told before the plan runs, and changes no exit code."""
    settings(POLICY)
    cli.plan("p.json", pay("bob", 10), pay("carol", 500), pay("mallory", 10), task_id="p")

    checked = cli("check", "p.json")
    assert checked.code == 0
    assert "step 2: the call of pay needs approval by rule 'the treasurer' of the policy" in checked.err
    assert "step 3: the call of pay is denied by rule 'never mallory' of the policy" in checked.err
    codes = [(each["code"], each["path"]) for each in cli("check", "p.json", "--json").json["warnings"]]
    assert codes == [("policy-asks", "$.steps[1]"), ("policy-denies", "$.steps[2]")]

    simulated = cli("simulate", "p.json")
    assert simulated.code == 0
    assert "step 3: the call of pay is denied by rule" in simulated.err
    assert [each["code"] for each in cli("simulate", "p.json", "--json").json["warnings"]] == [
        each[0] for each in codes
    ]
    assert cli.world == []


def test_limits_of_saga_toml_hold_and_are_shown(cli, settings):
    """Too many steps are refused by check, simulate and submit; a longer deadline is tightened, and doctor shows both."""
    settings("[limits]\nmax_steps = 2\ndeadline_s = 60\n")
    cli.plan("three.json", pay("bob", 1), pay("bob", 2), pay("bob", 3))
    for command in ("check", "simulate", "submit"):
        refused = cli(command, "three.json", "--json")
        assert refused.code == 7
        assert "limit-steps" in refused.out
    cli.plan("long.json", pay("bob", 1), deadline_s=3600)
    checked = cli("check", "long.json")
    assert checked.code == 0
    assert "the plan asks for 3600, but the operator allows 60" in checked.err
    shown = cli("doctor", "--json").json["settings"]
    assert shown["limits.max_steps"] == {"value": 2, "from": "saga.toml"}
    assert shown["limits.max_parallel"] == {"value": 64, "from": "default"}
    assert cli.world == []

    settings("[limits]\nmax_step = 2\n")
    wrong = cli("submit", "long.json")
    assert wrong.code == 1
    assert "max_step, which is no limit" in wrong.err


def test_check_tells_what_the_runtime_of_the_settings_refuses(cli):
    """A plan that Temporal will not take is found before it is submitted there; no server is asked."""
    (cli.folder / "saga.toml").write_text('[saga]\nruntime = "temporal://nowhere.invalid:7233/default"\n')
    paid = {"step_id": "paid", "wait": {"event": "paid", "timeout_s": 60}}
    ships = {"step_id": "ship", "tool": "ship", "params": {"order": "$item"}, "each": {"of": [1, 2]}}
    cli.plan("p.json", paid, {**ships, "kind": "irreversible"})

    checked = cli("check", "p.json", "--json")

    assert checked.code == 0
    found = [(each["code"], each["path"]) for each in checked.json["warnings"]]
    assert found == [("runtime-refuses", "$.steps[0].wait"), ("runtime-refuses", "$.steps[1].each")]
