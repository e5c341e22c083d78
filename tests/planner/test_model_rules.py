"""What a model may not do although a person may: each slip goes back with a hint, and no honest plan does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest

from dev.benchmarks.eval_planner import load_cases
from saga_engine import Coordinator, tool
from saga_engine.errors import PlannerFailed, SettingInvalid
from saga_engine.plan.guesses import Given, guesses
from saga_engine.plan.model import load_plan
from saga_engine.planner.allowed_tools import Offer
from saga_engine.planner.model_rules import model_problems
from saga_engine.planner.planning import PlannedPlan, Planning
from saga_engine.planner.prompting import answer_schema, prompt_for
from saga_engine.planner.review import review_plan
from saga_engine.planner.settings import PlannerSettings, planner_settings
from saga_engine.ports import CompensationRequest, PastStep, PlanRequest, ReplanRequest
from saga_engine.testing.scripted import ScriptedPlanner
from tests.plan.catalog import NUMBER, TEXT, Catalog, closed, declare
from tests.planner.scenes import step

GOAL = "Create a machine web-1 of size small, open port 443 of it for 10.0.0.0/8, and post its address to #ops."
CLOUD = Catalog(
    declare(
        "create_vm",
        closed(["name", "size"], name=TEXT, size={"type": "string", "enum": ["small", "m5.large"]}),
        undo="delete_vm",
        output_schema=closed(["vm_id", "public_ip"], vm_id=TEXT, public_ip=TEXT),
    ),
    declare("delete_vm", closed(["vm_id"], vm_id=TEXT), tolerates_absence=True),
    declare(
        "open_port",
        closed(["vm_id", "port"], vm_id=TEXT, port=NUMBER, cidr=TEXT),
        undo="close_port",
        output_schema={"type": "object", "properties": {"rule_id": TEXT}, "required": ["rule_id"]},
    ),
    declare("close_port", closed(["rule_id"], rule_id=TEXT, reason=TEXT)),
    declare("find_vm", closed(["name"], name=TEXT), effect="read", output_schema=closed(["vm_id"], vm_id=TEXT)),
    declare("list_ports", closed(["vm_id"], vm_id=TEXT), effect="read"),
    declare("post", closed(["channel", "text"], channel=TEXT, text=TEXT), description="Post to a channel, like #ops."),
    declare("add_record", closed(["name", "value"], name=TEXT, value=TEXT)),
    declare("drop_record", closed(["name"], name=TEXT, value=TEXT)),
    declare("tweet", closed(["text"], text=TEXT), semantic="approve", output_schema=closed(["id"], id=NUMBER)),
    declare("charge", closed(["amount"], amount=NUMBER), output_schema=closed(["receipt"], receipt=TEXT)),
    declare(
        "ship", closed(["receipt"], receipt=TEXT), undo="unship", output_schema=closed(["parcel_id"], parcel_id=TEXT)
    ),
    declare("unship", closed(["parcel_id"], parcel_id=TEXT)),
)
VM = step("vm", "create_vm", {"name": "web-1", "size": "small"})
PORT = step("port", "open_port", {"vm_id": "$output.step_vm.vm_id", "port": 443})
POST = step("post", "post", {"channel": "#ops", "text": "up at {$output.step_vm.public_ip}"}, kind="pivot")
GOOD = {"steps": [VM, PORT, POST]}


async def planned(*answers: Any, goal: str = GOAL, given: Any = None, **settings: Any) -> tuple[PlannedPlan, Any]:
    planner = ScriptedPlanner(*answers)
    specs = [spec for name in CLOUD.names() if (spec := CLOUD.spec(name)) is not None]
    planning = Planning(planner, PlannerSettings(**settings))
    return await planning.plan(goal, specs, catalog=CLOUD, input=given), planner


def port(vm_id: Any, **others: Any) -> dict[str, Any]:
    return step("port", "open_port", {"vm_id": vm_id, "port": 443}, **others)


def posted(text: str) -> dict[str, Any]:
    return step("post", "post", {"channel": "#ops", "text": text}, kind="pivot")


def step_of(key: str, **body: Any) -> dict[str, Any]:
    return {"step_id": key, **body}


N_IS_1 = {"value": "$item.n", "op": "==", "to": 1}
SPELLINGS = [
    "{{vm.vm_id}}", "{{ vm.vm_id }}", "${output.step_vm.vm_id}", "${steps.vm.output.vm_id}", "$vm.vm_id", "$step_vm.vm_id",
    "$outputs.step_vm.vm_id", "<vm_id of step vm>", "<the vm_id from step vm>", "$.steps[0].output.vm_id",
    "{{$output.step_vm.vm_id}}", "${vm.vm_id}", "{vm.vm_id}", "output.step_vm.vm_id", "step_vm.vm_id", "$vm",
    "[vm_id of step vm]", "$steps[0].output.vm_id",
]  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_what_looks_like_a_binding_goes_back_with_the_right_spelling(spelling: str) -> None:
    """A firewall rule for the machine '{{vm.vm_id}}' is not made: the model hears how the binding is written."""
    _, planner = await planned({"steps": [VM, port(spelling), POST]}, GOOD)
    (problem,) = planner.asked[1].repair.problems
    assert (problem.code, problem.path) == ("binding-lookalike", "$.steps[1].params.vm_id")
    assert "write $output.step_vm" in problem.hint


@pytest.mark.parametrize(
    "text", ["up at $output.step_vm.public_ip now", "up at {vm.public_ip}", "since $today", "{{name}}"]
)
async def test_inside_a_text_as_well(text: str) -> None:
    """A message is not sent with the words of a template in it."""
    _, planner = await planned({"steps": [VM, PORT, posted(text)]}, GOOD)
    assert [problem.code for problem in planner.asked[1].repair.problems] == ["binding-lookalike"]


@pytest.mark.parametrize(
    ("spoilt", "code", "path"),
    [
        (port("vm-0a1b2c3d"), "value-invented", "params.vm_id"),
        (port("vm-123"), "value-invented", "params.vm_id"),
        (port("vm_id"), "value-invented", "params.vm_id"),
        (port("1f0a5c6e-7d3b-4c2a-9f1e-0a1b2c3d4e5f"), "value-invented", "params.vm_id"),
        (port("$input.machine"), "binding-input-missing", "params.vm_id"),
        (step("port", "list_ports", {"vm_id": "i-0abc12345"}), "value-invented", "params.vm_id"),
        (port("$output.step_vm.id"), "binding-path-absent", "params.vm_id"),
        (port("$output.step_vm.vm_id", kind="retriable"), "undo-switched-off", "kind"),
        (port("$output.step_vm.vm_id", kind="pivot"), "undo-switched-off", "kind"),
        (
            port("$output.step_vm.vm_id", rollback={"tool": "list_ports", "params": {"vm_id": "$output.step_vm.vm_id"}}),
            "rollback-reads",
            "rollback.tool",
        ),
        (
            port("$output.step_vm.vm_id", rollback={"tool": "delete_vm", "params": {"vm_id": "$output.step_vm.vm_id"}}),
            "undo-replaced",
            "rollback.tool",
        ),
        (
            port("$output.step_vm.vm_id", rollback={"tool": "close_port", "params": {"rule_id": "rule-17"}}),
            "undo-redirected",
            "rollback.params.rule_id",
        ),
        (
            port("$output.step_vm.vm_id", rollback={"tool": "close_port", "params": {"rule_id": "$output.step_vm.vm_id"}}),
            "undo-redirected",
            "rollback.params.rule_id",
        ),
        (
            port("$output.step_vm.vm_id", rollback={"tool": "close_port", "params": {"rule_id": "$output.step_port.ruleId"}}),
            "binding-undeclared",
            "rollback.params.rule_id",
        ),
        (
            step("port", "add_record", {"name": "www", "value": "x"}, rollback={"tool": "drop_record", "params": {"name": "mail"}}),
            "undo-unrelated",
            "rollback.params",
        ),
        (
            step(
                "port",
                "add_record",
                {"name": "www", "value": "x"},
                rollback={"tool": "post", "params": {"channel": "#ops", "text": "undone: {$output.step_port.ok}"}},
            ),
            "undo-unrelated",
            "rollback.params",
        ),
    ],
)  # fmt: skip
async def test_a_slip_goes_back(spoilt: dict[str, Any], code: str, path: str) -> None:
    """An id that nobody gave, a path that no schema has, an undo switched off, replaced, or aimed at something else."""
    pivot = {} if spoilt.get("kind") != "pivot" else {"kind": None}
    last = {**POST, **pivot} if not pivot else step("post", "find_vm", {"name": "web-1"})
    answer = {"steps": [VM, spoilt, last], "input": {"machine": "vm-999"}}
    _, planner = await planned(answer, GOOD)
    problems = [(problem.code, problem.path) for problem in planner.asked[1].repair.problems]
    assert (code, f"$.steps[1].{path}") in problems
    assert all(problem.hint for problem in planner.asked[1].repair.problems if problem.code == code)


ALL = ("compute", "wait", "each", "when", "on_error")
FIND = step("find", "find_vm", {"name": "web-1"}, on_error="continue")
FOUND = "$output.step_find.vm_id"
#: An id in every place that a value of a param can come from: the steps, and the path of the problem.
DOORS: dict[str, tuple[dict[str, Any], str]] = {
    "itself": ({"steps": [port("vm-0a1b2c3d")]}, "[0].params.vm_id"),
    "a default": ({"steps": [FIND, port({"$first": [FOUND, "vm-0a1b2c3d"]})]}, "[1].params.vm_id['$first'][1]"),
    "the input": ({"steps": [port("$input.machine")], "input": {"machine": "vm-0a1b2c3d"}}, "[0].params.vm_id"),
    "inside the input": (
        {"steps": [port("$input.machines[0].id")], "input": {"machines": [{"id": "vm-0a1b2c3d"}]}},
        "[0].params.vm_id",
    ),
    "a text": ({"steps": [port("vm-{$input.rest}")], "input": {"rest": "0a1b2c3d"}}, "[0].params.vm_id"),
    "a list": ({"steps": [port("$item", each={"of": ["vm-0a1b2c3d"]})]}, "[0].params.vm_id"),
    "a list of objects": ({"steps": [port("$item.vm", each={"of": [{"vm": "vm-0a1b2c3d"}]})]}, "[0].params.vm_id"),
    "a list in the input": (
        {"steps": [port("$item", each="$input.machines")], "input": {"machines": ["vm-0a1b2c3d"]}},
        "[0].params.vm_id",
    ),
    "a computation": (
        {"steps": [step_of("id", compute={"join": ["vm-", "0a1b2c3d"]}), port("$output.step_id")]},
        "[1].params.vm_id",
    ),
    "an operand": (
        {"steps": [FIND, step_of("id", compute={"join": ["vm-0a1b2c3d", FOUND]}), port("$output.step_id")]},
        "[2].params.vm_id",
    ),
    "a choice": (
        {
            "steps": [
                step_of("id", compute={"pick": {"value": [{"id": "vm-0a1b2c3d", "n": 1}]}, "where": [N_IS_1]}),
                port("$output.step_id.id"),
            ]
        },
        "[1].params.vm_id",
    ),
    "a list that is computed": (
        {"steps": [step_of("ids", compute={"value": ["vm-0a1b2c3d"]}), port("$item", each="$output.step_ids")]},
        "[1].params.vm_id",
    ),
    "a wait in vain": (
        {
            "steps": [
                step_of("told", wait={"event": "told", "timeout_s": 9, "on_timeout": {"value": {"id": "vm-0a1b2c3d"}}}),
                port("$output.step_told.id"),
            ]
        },
        "[1].params.vm_id",
    ),
    "a late event": (
        {
            "steps": [
                step_of(
                    "told",
                    wait={
                        "event": "told",
                        "timeout_s": 9,
                        "on_late": {"tool": "delete_vm", "params": {"vm_id": "vm-0a1b2c3d"}},
                    },
                ),
                VM,
            ]
        },
        "[0].wait.on_late.params.vm_id",
    ),
    "another tool": (
        {"steps": [VM, step("port", "charge", {"amount": 1}, fallback={"tool": "delete_vm", "params": {"vm_id": "vm-0a1b2c3d"}})]},
        "[1].fallback[0].params.vm_id",
    ),
    "the default of an undo": (
        {
            "steps": [
                {
                    **VM,
                    "rollback": {
                        "tool": "delete_vm",
                        "params": {"vm_id": {"$first": ["$output.step_vm.vm_id", "vm-0a1b2c3d"]}},
                    },
                }
            ]
        },
        "[0].rollback.params.vm_id['$first'][1]",
    ),
    "a word in an undo": (
        {
            "steps": [
                {
                    **VM,
                    "rollback": {
                        "tool": "delete_vm",
                        "params": {"vm_id": {"$first": ["$output.step_vm.vm_id", "latest"]}},
                    },
                }
            ]
        },
        "[0].rollback.params.vm_id['$first'][1]",
    ),
}  # fmt: skip


def invented(answer: dict[str, Any], request: Any) -> list[str]:
    specs = [spec for name in CLOUD.names() if (spec := CLOUD.spec(name)) is not None]
    offer = Offer(specs, CLOUD, undo_by_model="any", may_use=ALL)
    plan = load_plan({"input": {"rest": "z"}, **answer})
    return [each.path for each in model_problems(plan, offer, request) if each.code == "value-invented"]


@pytest.mark.parametrize("door", DOORS)
def test_a_value_is_checked_wherever_it_comes_from(door: str) -> None:
    """An id that nobody gave is found as if it stood in the param alone; one that the goal or the input names passes."""
    answer, path = DOORS[door]
    stuck = PastStep("past", "tweet", "FAILED")
    steps = [*answer["steps"], POST] if door == "the default of an undo" else answer["steps"]
    asked = [PlanRequest(GOAL, []), ReplanRequest(GOAL, stuck, [], [], [], input={})]
    if "input" not in answer:
        asked.append(CompensationRequest(GOAL, stuck, [stuck], []))
    for request in asked:
        assert invented({**answer, "steps": steps}, request) == [f"$.steps{path}"], request
        told = replace(request, goal=f"{GOAL} It is vm-0a1b2c3d, the latest.")
        assert invented({**answer, "steps": steps}, told) == []


def test_what_the_author_may_choose_is_no_invented_id() -> None:
    """Names, numbers and words stay the author's, also as a default, an operand or an item of a list."""
    for value in ({"$first": [FOUND, None]}, "$output.step_find.vm_id", "$output.step_id"):
        named = step_of("id", compute={"join": ["$output.step_find.vm_id", "-a"]})
        assert invented({"steps": [FIND, named, port(value)]}, PlanRequest(GOAL, [])) == []
    listed = step("add", "add_record", {"name": "$item", "value": "x9"}, each={"of": ["www2", "mail2"]})
    same = step(
        "add",
        "open_port",
        {"vm_id": "$output.step_vm.vm_id", "port": 443},
        rollback={"tool": "close_port", "params": {"rule_id": "$output.step_add.rule_id", "reason": "v2"}},
    )
    assert invented({"steps": [VM, listed]}, PlanRequest(GOAL, [])) == []
    assert invented({"steps": [VM, same]}, PlanRequest(GOAL, [])) == []


async def test_a_model_asks_a_person_only_with_leave() -> None:
    """An ``ask`` step goes back without ``may_use``; with it the schema of the answer has its form."""
    which = {"step_id": "which", "ask": {"question": "Which port?", "options": ["a", "b"]}}
    opened = {**PORT, "when": [{"value": "$output.step_which.answer", "op": "==", "to": "a"}]}
    answer = {"steps": [VM, which, opened]}
    _, planner = await planned(answer, GOOD)
    assert [(each.code, each.path) for each in planner.asked[1].repair.problems] == [
        ("feature-not-allowed", "$.steps[1].ask")
    ]
    made, planner = await planned(answer, may_use=("ask",))
    assert [step.builtin for step in made.plan.steps] == ["", "ask", ""]
    schema = answer_schema(parts=planner.asked[0].may_use)
    jsonschema_rs.validate(schema, {"steps": [which]})
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(answer_schema(), {"steps": [which]})


async def test_the_review_names_what_a_model_calls_for_a_late_event() -> None:
    """No undo takes it back, so a person reads of it before the plan runs; its tool is one that was offered."""
    late = {"tool": "post", "params": {"channel": "#ops", "text": "{$output.step_paid.id} came late"}}
    paid = {"step_id": "paid", "wait": {"event": "paid", "key": "42", "timeout_s": 60, "on_late": late}}
    made, planner = await planned({"steps": [VM, paid, PORT]}, may_use=("wait",))
    assert (made.rounds, made.review["late"]) == (1, [{"step_id": "paid", **late}])
    foreign = {**paid, "wait": {**paid["wait"], "on_late": {"tool": "wire_money", "params": {}}}}
    _, planner = await planned({"steps": [VM, foreign, PORT]}, GOOD, may_use=("wait",))
    assert [(each.code, each.path) for each in planner.asked[1].repair.problems] == [
        ("tool-unknown", "$.steps[1].wait.on_late.tool")
    ]


async def test_an_undo_is_not_switched_off_by_a_pivot_first() -> None:
    """A pivot first and the rest retriable: the machine and the port would stay, whatever fails."""
    first = {**POST, "params": {"channel": "#ops", "text": "soon"}}
    rest = [{**VM, "kind": "retriable"}, {**PORT, "kind": "retriable"}]
    _, planner = await planned({"steps": [first, *rest]}, GOOD)
    assert [problem.code for problem in planner.asked[1].repair.problems] == ["undo-switched-off"] * 2


async def test_a_step_that_needs_the_pivot_may_be_retriable() -> None:
    """What needs the receipt of a charge can only come after it: nothing else is legal there."""
    steps = [
        step(1, "charge", {"amount": 12}, kind="pivot"),
        step(2, "ship", {"receipt": "$output.step_1.receipt"}, kind="retriable"),
    ]
    made, _ = await planned({"steps": steps}, goal="Charge 12 and ship it")
    assert made.rounds == 1


async def test_the_operator_may_let_a_model_decide_about_undos() -> None:
    """``undo_by_model = "any"`` is the operator's leave; reads as rollbacks and lookalikes stay refused."""
    own = {"tool": "delete_vm", "params": {"vm_id": "$output.step_vm.vm_id"}}
    answer = {"steps": [VM, {**PORT, "rollback": own}, POST]}
    made, _ = await planned(answer, undo_by_model="any")
    assert made.rounds == 1
    with pytest.raises(PlannerFailed):
        await planned({"steps": [VM, port("{{vm.vm_id}}")]}, undo_by_model="any", rounds=1)
    with pytest.raises(SettingInvalid, match="undo_by_model"):
        planner_settings({"undo_by_model": "none"})


async def test_a_model_declares_a_step_irreversible_only_with_leave() -> None:
    """Without ``may_use`` it goes back and is neither shown nor offered; with it the review names the step."""
    final = step("post", "post", {"channel": "#ops", "text": "soon"}, kind="irreversible")
    answer = {"steps": [VM, PORT, final]}
    _, planner = await planned(answer, GOOD)
    assert [(each.code, each.path) for each in planner.asked[1].repair.problems] == [
        ("feature-not-allowed", "$.steps[2].kind")
    ]
    made, planner = await planned(answer, may_use=("irreversible",))
    assert made.rounds == 1
    assert made.review["irreversible"] == [
        {"step_id": "post", "tool": "post", "kind": "irreversible", "notice": "post"}
    ]
    told = [prompt_for(request, "text") for request in (planner.asked[0], replace(planner.asked[0], may_use=()))]
    assert ['"kind": "irreversible"' in asked.system for asked in told] == [True, False]
    assert "`irreversible` (" in told[1].system, "it is named among what was not allowed"
    with pytest.raises(SettingInvalid, match="loops"):
        planner_settings({"may_use": ["loops"]})


async def test_an_undo_is_not_switched_off_by_the_kind_irreversible() -> None:
    """The leave is for writes that have no undo: a tool's registered undo stays."""
    answer = {"steps": [VM, {**PORT, "kind": "irreversible"}, POST]}
    _, planner = await planned(answer, GOOD, may_use=("irreversible",))
    assert [problem.code for problem in planner.asked[1].repair.problems] == ["undo-switched-off"]


async def test_fields_that_were_not_offered_are_left_out_with_a_note() -> None:
    """A model sets no deadline, no call limit, no time-outs, no retries and no locks; the note says so."""
    body = {
        "steps": [
            {**VM, "timeout_s": 1, "retry": {"max_attempts": 1}, "resource": "all", "fallback": {"queue_s": 1}},
            {
                **PORT,
                "rollback": {"tool": "close_port", "params": {"rule_id": "$output.step_port.rule_id"}, "timeout_s": 1},
            },
            POST,
        ],
        "on_failure": "pause",
        "deadline_s": 1,
        "max_tool_calls": 1,
    }
    made, _ = await planned(body)
    assert made.rounds == 1
    written = made.plan.model_dump(exclude_unset=True)
    assert written.keys() == {"goal", "steps"}
    assert written["steps"][0].keys() == {"step_id", "tool", "params", "rollback"}
    assert written["steps"][0]["rollback"].keys() == {"tool"}, "the registered undo, named for the reader"
    assert written["steps"][1]["rollback"].keys() == {"tool", "params"}
    told = " ".join(made.notes)
    fields = ("on_failure", "deadline_s", "max_tool_calls", "timeout_s", "retry", "resource", "queue_s")
    assert [name for name in fields if name not in told] == []


async def test_a_plan_of_a_model_has_fifty_steps_at_most() -> None:
    """More is a loop gone wrong; an operator can allow it."""
    many = {"steps": [step(number, "find_vm", {"name": "web-1"}) for number in range(51)]}
    _, planner = await planned(many, GOOD)
    assert [problem.code for problem in planner.asked[1].repair.problems] == ["limit-steps"]
    made, _ = await planned(many, max_steps=51)
    assert len(made.plan.steps) == 51


# --- nothing honest is refused -------------------------------------------------------------------------------------

HONEST: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
    (GOAL, {}, [VM, PORT, POST]),
    (GOAL, {}, [VM, {**PORT, "rollback": {"tool": "close_port", "params": {"rule_id": "$output.step_port.rule_id"}}}]),
    (GOAL, {}, [VM, {**PORT, "rollback": {"tool": "close_port", "params": {"rule_id": "$output.step_port.rule_id", "reason": "the plan failed"}}}]),
    ("Open 443 of machine VM 0A1B", {}, [port("vm-0a1b")]),
    ("Open 443 of the machine", {"vm": "vm-77"}, [port("$input.vm")]),
    ("Open 443 of the machine", {"vm": "vm-77"}, [port("vm-77")]),
    ("给机器vm-77打开443端口", {}, [port("vm-77")]),
    ("Find web-1 and open its port 8443 from 10.0.0.0/8", {}, [step(1, "find_vm", {"name": "web-1"}), step(2, "open_port", {"vm_id": "$output.step_1.vm_id", "port": 8443, "cidr": "10.0.0.0/8"})]),
    ("Point www to 93.184.216.34", {}, [step(1, "add_record", {"name": "www", "value": "93.184.216.34"}, rollback={"tool": "drop_record", "params": {"name": "www"}})]),
    ("Point www to the machine", {}, [VM, step(2, "add_record", {"name": "www", "value": "$output.step_vm.public_ip"}, rollback={"tool": "drop_record", "params": {"name": "www", "value": "$output.step_vm.public_ip"}})]),
    ("Two big machines", {}, [step(1, "create_vm", {"name": "app-01", "size": "m5.large"}), step(2, "create_vm", {"name": "app-02", "size": "m5.large"}, depends_on=[])]),
    ("Post the prices: $5 for a and ${b} for b", {}, [posted("a is $5, b is ${b}")]),
    ("Post a template for welcome mails with a placeholder for the name to #ops", {}, [posted("Dear {{name}}, welcome!")]),
    ("Post on 2026-02-01 that room 12 costs 120.00 EUR", {}, [posted("2026-02-01: room 12 costs 120.00 EUR <b>now</b>")]),
    ("Tell everybody about the machine", {}, [VM, step(2, "tweet", {"text": "new machine at {$output.step_vm.public_ip}"})]),
    ("Charge 12, then ship it and post the parcel", {}, [step(1, "charge", {"amount": 12}, kind="pivot"), step(2, "ship", {"receipt": "$output.step_1.receipt"}, kind="retriable"), step(3, "post", {"channel": "#ops", "text": "{$output.step_2.parcel_id}"}, kind="retriable")]),
]  # fmt: skip


@pytest.mark.parametrize(("goal", "given", "steps"), HONEST, ids=[str(number) for number in range(len(HONEST))])
async def test_an_honest_plan_is_accepted_at_once(
    goal: str, given: dict[str, Any], steps: list[dict[str, Any]]
) -> None:
    """Names, dates, amounts, networks, sizes, and ids that were given in another case or spelling are no guesses."""
    made, _ = await planned({"steps": steps}, goal=goal, given=given)
    assert made.rounds == 1


CASES = [case for case in load_cases() if not case.impossible]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_good_plans_of_six_other_catalogues_are_accepted(case: Any) -> None:
    """The plans by which models are measured pass the rules for models."""
    tools = [spec for name in case.tools.names() if (spec := case.tools.spec(name)) is not None]
    request = PlanRequest(case.goal, tools, dict(case.input))
    _, problems = review_plan(dict(case.ideal or {}), Offer(tools, case.tools, None), request, [])
    assert problems == []


# --- steps for a stuck saga ----------------------------------------------------------------------------------------


@tool(undo="drop")
async def make(name: str) -> dict[str, Any]:
    """Make a thing."""
    if name == "first":
        raise ValueError("no more of these")
    return {"thing_id": "T-1"}


@tool
async def drop(thing_id: str) -> None:
    """Drop a thing."""


@tool(undo="untag")
async def tag(thing_id: str) -> dict[str, Any]:
    """Tag a thing."""
    return {"tag_id": "G-1"}


@tool
async def untag(tag_id: str) -> None:
    """Remove a tag."""


async def test_another_way_is_held_to_the_same_rules() -> None:
    """Steps for a saga that is stuck: a lookalike and an undo switched off go back, and the next answer is taken."""
    plan = {"goal": "make and tag", "on_failure": "replan", "steps": [step(1, "make", {"name": "first"})]}
    wrong = {"steps": [step("a", "make", {"name": "other"}), step("b", "tag", {"thing_id": "{{a.thing_id}}"})]}
    right = {"steps": [step("a", "make", {"name": "other"}), step("b", "tag", {"thing_id": "$output.step_a.thing_id"})]}
    planner = ScriptedPlanner(wrong, right)
    async with Coordinator.open(
        "memory://", [make, drop, tag, untag], durability="relaxed", planner=planner
    ) as coordinator:
        outcome = await coordinator.run(plan)
    assert outcome.status == "COMPLETED", outcome.body
    assert [problem.code for problem in planner.asked[1].repair.problems] == ["binding-lookalike"]


def test_what_a_step_returned_is_known_whatever_is_declared() -> None:
    """A step that happened may have returned more than its tool declares; a field that it did not return stays a guess."""
    plan = load_plan(
        {
            "steps": [
                step("port", "open_port", {"vm_id": "$input.vm", "port": 443}),
                step("shut", "close_port", {"rule_id": "$output.step_port.ruleId"}),
            ],
            "input": {"vm": "vm-1"},
        }
    )
    for returned, codes in (({}, ["binding-undeclared"]), ({"ruleId": "r"}, []), ({"id": "r"}, ["binding-undeclared"])):
        found = guesses(plan, CLOUD, Given([], {"vm": "vm-1"}, {"port": returned}))
        assert [problem.code for problem in found] == codes
