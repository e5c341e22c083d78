"""`saga simulate`: what a person reads before an agent spends money; no tool is called for it."""

from __future__ import annotations

import json
from pathlib import Path

from saga_engine import Coordinator, tool
from tests.cli.conftest import TOOLS

BOOKING = Path(__file__).parents[2] / "examples" / "booking" / "tools.py"

#: The plan of the source article.
TRAVEL = {
    "task_id": "travel_request_001",
    "steps": [
        {
            "step_id": 1,
            "name": "book_flight",
            "tool": "airline_api",
            "params": {"flight": "CA1234", "date": "2026-02-01"},
            "rollback": {"tool": "airline_api_cancel", "params": {"order_id": "$output.step_1.order_id"}},
        },
        {
            "step_id": 2,
            "name": "book_hotel",
            "tool": "hotel_api",
            "params": {"hotel": "Hilton", "nights": 1},
            "rollback": {"tool": "hotel_api_cancel", "params": {"booking_ref": "$output.step_2.booking_ref"}},
        },
    ],
}

GOLDEN = """\
without a failure: COMPLETED after 2 calls
32 failure points: 28 clean, 4 ask an operator, 0 leave an effect

STEP           FAILURE                                                                   SAGA       REMAINS                      QUESTIONS                                                                            CALLS  VERDICT
1 book_flight  the call happens, and no attempt or probe gets a response                 ESCALATED  1 book_flight                step 1: did the call happen? (happened, not-happened, retry, accept)                 7      asks
1 book_flight  step 2 fails, the undo of step 1 fails permanently                        ESCALATED  1 book_flight                undo of step 1: its undo failed permanently: who undoes it? (undone, retry, accept)  3      asks
2 book_hotel   the call happens, and no attempt or probe gets a response                 ESCALATED  1 book_flight, 2 book_hotel  step 2: did the call happen? (happened, not-happened, retry, accept)                 8      asks
2 book_hotel   the saga is cancelled after step 2, the undo of step 2 fails permanently  ESCALATED  1 book_flight, 2 book_hotel  undo of step 2: its undo failed permanently: who undoes it? (undone, retry, accept)  3      asks
"""

#: Tools that must not be called, and say so in the file ``called`` if they are.
RAISING = """\
from pathlib import Path
from saga_engine import tool

def called(*args):
    Path("called").touch()
    raise AssertionError("a rehearsal called a tool")

@tool(effect="read")
def seek(item: str, idempotency_key: str) -> dict | None:
    called()

@tool(undo="drop", probe=seek)
def take(item: str, idempotency_key: str) -> dict:
    called()

@tool(tolerates_absence=True)
def drop(item: str) -> dict:
    called()
"""


def test_the_plan_of_the_article(cli) -> None:
    """The booking plan, rehearsed with the booking tools, reads as it stands here; nothing is stored and nothing booked."""
    (cli.folder / "trip.json").write_text(json.dumps(TRAVEL))
    ran = cli("simulate", "trip.json", "--tools", str(BOOKING))
    assert (ran.code, ran.out) == (0, GOLDEN)
    assert "no tool was called" in ran.err
    assert sorted(path.name for path in cli.folder.iterdir()) == ["trip.json"]


def test_no_tool_is_called(cli) -> None:
    """Tools that raise when they are called are not called, in no direction and not as a probe."""
    (cli.folder / "raising.py").write_text(RAISING)
    cli.plan("p.json", *({"tool": "take", "params": {"item": "a"}} for _ in range(3)))
    ran = cli("simulate", "p.json", "--tools", "raising.py", "--json")
    assert ran.code == 0
    assert ran.json["summary"] | {"points": 0} == {
        "points": 0,
        "left_out": 0,
        "steps": 3,
        "steps_played": 3,
        "clean": len(ran.json["scenarios"]) - 6,
        "asks": 6,
        "left": 0,
    }
    assert not (cli.folder / "called").exists()


def test_all_lists_what_is_clean_too(cli, book) -> None:
    """`--all` has a row for every failure point, `--json` an object; without it only what is not clean is listed."""
    cli.plan("p.json", book("a"), book("b", kind="pivot"), book("c", kind="retriable"))
    body = cli("simulate", "p.json", "--tools", str(TOOLS), "--json").json
    whole = cli("simulate", "p.json", "--tools", str(TOOLS), "--all").out.splitlines()
    short = cli("simulate", "p.json", "--tools", str(TOOLS)).out.splitlines()
    assert len(whole) == len(body["scenarios"]) + 4
    assert len(short) == body["summary"]["asks"] + body["summary"]["left"] + 4
    assert body["summary"]["left"] > 0
    assert body["clean"] is False
    (stuck,) = [each for each in body["scenarios"] if (each["step_id"], each["fault"]) == (3, "refused")]
    assert (stuck["verdict"], stuck["standing"]) == ("left", [1, 2])
    assert stuck["asked"] == [
        {
            "step_id": 3,
            "tool": "book",
            "direction": "forward",
            "kind": "step-failed",
            "options": ["retry", "happened", "accept"],
        }
    ]


def test_an_invalid_plan_is_told_as_by_check(cli, book) -> None:
    """The plan is checked first, and what is wrong with it is printed as `saga check` prints it; exit code 7."""
    cli.plan("p.json", book("a"), {"tool": "boook"}, {"tool": "book", "params": {"item": 7}})
    for more in ([], ["--json"]):
        simulated = cli("simulate", "p.json", "--tools", str(TOOLS), *more)
        checked = cli("check", "p.json", "--tools", str(TOOLS), *more)
        assert simulated == checked
        assert simulated.code == 7
    cli.plan("p.json", {**book("a"), "why": "cheap"}, {"tool": "boook"})
    assert cli("simulate", "p.json", "--tools", str(TOOLS)) == cli("check", "p.json", "--tools", str(TOOLS))


def test_inputs_count(cli, book) -> None:
    """`--input` fills what the plan leaves open, from stdin, too; without it the plan is invalid."""
    plan = json.dumps({"steps": [{"step_id": 1, **book("$input.what")}]})
    assert cli("simulate", "-", "--tools", str(TOOLS), stdin=plan).code == 7
    ran = cli("simulate", "-", "--tools", str(TOOLS), "--input", "what=flat", stdin=plan)
    assert (ran.code, ran.out.splitlines()[0]) == (0, "without a failure: COMPLETED after 1 call")


def test_without_tools_it_says_so(cli, book) -> None:
    """There is nothing to play without the tools' declarations: a clear error instead of a table."""
    cli.plan("p.json", book("a"))
    ran = cli("simulate", "p.json")
    assert (ran.code, ran.out) == (1, "")
    assert "--tools" in ran.err


def test_names_from_a_model_cannot_act_on_a_terminal(cli, book) -> None:
    """Names of steps are printed safely."""
    cli.plan("p.json", book("a", name="\x1b[2Jgone\u202e"))
    ran = cli("simulate", "p.json", "--tools", str(TOOLS), "--all")
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out


def test_a_plan_that_cannot_complete_says_so_first(cli, book) -> None:
    """A call limit that is too low shows in the first line: the saga would be undone even if all goes well."""
    cli.plan("p.json", book("a"), book("b"), max_tool_calls=1)
    ran = cli("simulate", "p.json", "--tools", str(TOOLS))
    assert ran.out.splitlines()[0] == "without a failure: COMPENSATED (call-limit) after 2 calls"


async def test_the_coordinator_simulates() -> None:
    """`Coordinator.simulate` plays the same, calls nothing, and leaves no saga behind."""
    called: list[str] = []

    @tool
    def drop(ref: str) -> dict:
        called.append("drop")
        return {}

    @tool(undo=drop)
    def take(item: str) -> dict:
        called.append("take")
        return {"ref": item}

    plan = {"steps": [{"step_id": 1, "tool": "take", "params": {"item": "$input.what"}}]}
    async with Coordinator.open(store="memory://", tools=[take, drop]) as coordinator:
        rehearsal = await coordinator.simulate(plan, input={"what": "flat"})
        assert await coordinator.list() == []
    assert rehearsal.goes_well.status == "COMPLETED"
    assert rehearsal.count("left") == 0
    assert rehearsal.count("asks") > 0
    assert called == []


async def test_a_cancel_right_after_a_computation_comes_before_the_next_call() -> None:
    """The cancel behind each step is played, also behind one that no call makes: nothing is called then."""

    @tool
    def drop(ref: str) -> dict:
        return {}

    @tool(undo=drop)
    def take(item: int) -> dict:
        return {"ref": "r"}

    steps = [
        {"step_id": "sum", "compute": {"sum": [1, 2]}},
        {"step_id": "take", "tool": "take", "params": {"item": "$output.step_sum"}},
    ]
    async with Coordinator.open(store="memory://", tools=[take, drop]) as coordinator:
        rehearsal = await coordinator.simulate({"steps": steps})
    cancelled = {
        each["step_id"]: (each["status"], each["reason"], each["calls"])
        for each in rehearsal.to_dict()["scenarios"]
        if each["what"] == "the saga is cancelled right after it"
    }
    assert cancelled == {"sum": ("COMPENSATED", "cancelled", 0), "take": ("COMPENSATED", "cancelled", 2)}
