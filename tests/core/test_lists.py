"""Steps with ``each``, in the core: how a plan grows by the items of a list, and who knows of it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from saga_engine.analysis.replay import Replay
from saga_engine.analysis.simulation import rehearse
from saga_engine.analysis.trace_file import read
from saga_engine.analysis.undo import choose_undo
from saga_engine.core import codec, decide
from saga_engine.core import records as r
from saga_engine.core.effects import CallTool, Done
from saga_engine.core.fold import begin, fold
from saga_engine.core.machine import FixedMeans, Machine
from saga_engine.core.plan_growth import Growth
from saga_engine.core.report import view
from saga_engine.core.state import State
from saga_engine.core.states import SAGA_FINAL
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.limits import MAX_ITEMS
from saga_engine.plan.model import load_plan
from saga_engine.plan.operator_limits import Limits
from saga_engine.plan.tool_spec import ToolSpec
from tests import tiers
from tests.core.cases import Catalog
from tests.core.each_simulation import EachSimulation
from tests.core.recording import lines_of

CATALOG = Catalog([
    ToolSpec("find", effect="read"),
    ToolSpec("book", keyed=True, undo="cancel", sensitive=("card",)),
    ToolSpec("cancel", keyed=True, tolerates_absence=True, input_schema={"type": "object", "properties": {"ref": {}}, "required": ["ref"]}),
])  # fmt: skip
FIND = {"step_id": "find", "tool": "find"}


def book(each: Any = "$output.step_find.items", **more: Any) -> dict[str, Any]:
    return {"step_id": "book", "tool": "book", "params": {"room": "$item.room"}, "each": each, **more}


class Saga:
    """A saga whose calls all succeed at once."""

    def __init__(self, *steps: dict[str, Any], items: Any = (), limits: Limits | None = None, **plan: Any) -> None:
        body = {"steps": list(steps), **plan}
        self.plan = compile_plan(load_plan(body), CATALOG)
        self.items = items
        first = r.SagaStarted(
            at=1, saga_id="one", plan=body, digest="d", seed="s", undos=self.plan.undos, reads=sorted(self.plan.reads),
            sensitive=self.plan.sensitive, limits=limits,
        )  # fmt: skip
        self.growth = Growth(first, CATALOG)
        self.records: list[r.AnyRecord] = [first]
        self.calls: list[CallTool] = []
        self.state = begin(first, self.plan, self.growth)
        self.machine = Machine(self.state, FixedMeans(decide.Capabilities(alerting=False)))

    def add(self, record: r.AnyRecord) -> None:
        self.machine.take([record])

    def run(self, until: type | None = None) -> State:
        """To its end, or until such a record was made."""
        while True:
            ready = self.machine.ready(1)
            self.records += ready.records
            self.calls += [effect for effect in self.machine.durable(ready) if isinstance(effect, CallTool)]
            if not self.calls or (until is not None and any(isinstance(record, until) for record in self.records)):
                return self.state
            effect = self.calls.pop(0)
            key = self.state.plan.steps[effect.step].key
            output = {"items": self.items} if key == "find" else {"ref": f"ref-{key}"}
            self.machine.learn(effect, Done(output), 1, 0.5)

    def error(self) -> str:
        """What the step with the list failed with."""
        error = self.state.steps[self.state.plan.by_key["book"]].forward.error
        assert error is not None
        return f"{error.error_code}: {error.message}"


ROOMS = [{"room": number} for number in range(4)]


def test_a_shared_plan_stays_as_it_is() -> None:
    """A plan is compiled once for many sagas: the items of one are no steps of another."""
    saga = Saga(FIND, book(), items=ROOMS)
    before = (len(saga.plan.steps), dict(saga.plan.by_key), [step.dependents for step in saga.plan.steps])
    assert saga.run().status == "COMPLETED"
    assert len(saga.state.plan.steps) == 6
    assert (len(saga.plan.steps), saga.plan.by_key, [step.dependents for step in saga.plan.steps]) == before


def test_a_plan_grows_around_its_items() -> None:
    """Steps that are added later stand behind the items, and those of ``finally`` behind both; a fold says the same."""
    last = [{"step_id": "end", "tool": "find"}, {"step_id": "bye", "tool": "find"}]
    saga = Saga(FIND, book(), items=ROOMS, **{"finally": last})
    saga.run(until=r.EachExpanded)
    new = {"step_id": "new", "tool": "find", "params": {"all": "$output.step_book[3].ref"}}
    saga.add(r.StepsAdded(at=1, steps=[new]))
    saga.add(r.StepsAdded(at=1, steps=[{"step_id": "newer", "tool": "find"}]))
    state = saga.run()
    keys = [step.key for step in state.plan.steps]
    assert keys == ["find", "book", *(f"book[{n}]" for n in range(4)), "new", "newer", "end", "bye"]
    assert [step.index for step in state.plan.steps] == list(range(len(keys)))
    assert {step.status for step in state.steps} == {"SUCCEEDED"}
    assert next(each.params for each in saga.records if getattr(each, "step", "") == "new") == {"all": "ref-book[3]"}
    again = fold(saga.records, saga.plan, Growth(saga.records[0], CATALOG))  # type: ignore[arg-type]
    assert view(again) == view(state)
    assert [step["step_id"] for step in view(state).plain()["steps"]][1:4] == ["book", "book[0]", "book[1]"]


@pytest.mark.parametrize(
    ("items", "each", "why"),
    [
        ({"a": 1}, "$output.step_find.items", "each_failed: 'each' needs a list, and the value is of the type object"),
        (None, "$output.step_find.items", "each_failed: 'each' needs a list, and the value is of the type null"),
        ([0] * (MAX_ITEMS + 1), "$output.step_find.items", "each_failed: the list has 10001 items, but only 10000"),
        ([], "$output.step_find.others", "each_failed: the binding $output.step_find.others does not match"),
        (
            [{"room": "x"}],
            {"of": "$output.step_find.items", "when": [{"value": "$item.room", "op": ">", "to": 1}]},
            "when_undecidable: the conditions of item 0 cannot be evaluated",
        ),
    ],
)
def test_what_is_no_list_fails_the_step(items: Any, each: Any, why: str) -> None:
    """Nothing was called, and nothing was added to the plan."""
    saga = Saga(FIND, book(each), items=items)
    assert saga.run().status == "COMPENSATED"
    assert saga.error().startswith(why)
    assert not any(isinstance(record, r.EachExpanded) for record in saga.records)


def test_the_limit_on_steps_counts_items() -> None:
    """An operator's ``max_steps`` is a limit on lists, too."""
    saga = Saga(FIND, book(), items=ROOMS, limits=Limits(max_steps=5))
    assert saga.run().status == "COMPENSATED"
    assert saga.error() == "each_failed: the saga would have 6 steps, but only 5 are allowed"
    assert Saga(FIND, book(), items=ROOMS, limits=Limits(max_steps=6)).run().status == "COMPLETED"


def test_a_sensitive_param_of_an_item_is_hidden_everywhere() -> None:
    """The list and the outputs hold its value, too."""
    items = [{"room": 1, "card": "4111-1111"}, {"room": 2, "card": "5222-2222"}]
    saga = Saga(FIND, book(params={"room": "$item.room", "card": "$item.card"}), items=items)
    shown = str(view(saga.run()))
    assert "4111" not in shown
    assert "5222" not in shown
    assert "'room': 2" in shown


def test_a_simulation_has_two_items_for_a_list() -> None:
    """With keys and an undo that tolerates absence every failure of an item is clean, or a question."""
    found = rehearse(compile_plan(load_plan({"steps": [FIND, book(), {"step_id": 3, "tool": "find"}]}), CATALOG))
    assert found.goes_well.status == "COMPLETED"
    of_items = {scenario.step_id for scenario in found.scenarios}
    assert {"book[0]", "book[1]"} <= of_items
    refused = [one for one in found.scenarios if (one.step_id, one.what) == ("book[1]", "the call fails permanently")]
    assert [(one.status, one.standing) for one in refused] == [("COMPENSATED", ())]


@pytest.mark.seeds
def test_every_law_holds_for_lists() -> None:
    """With crashes, lost answers, people and added steps; the seeds complete, compensate and waive."""
    ends: Counter[str] = Counter()
    for seed in range(tiers.examples(150)):
        dice = random.Random(seed)
        state = EachSimulation(dice, dice.choice([0.3, 0.6, 1.0])).run()
        ends[state.status] += 1
        ends["grew beside its lists"] += bool(state.lists and state.added)
    assert tiers.fewer() or all(ends[name] > 3 for name in (*SAGA_FINAL, "grew beside its lists")), ends


@pytest.mark.parametrize("rules", [(), ("**.ref",), ("params", "output", "input", "error")])
def test_a_journal_with_lists_replays(rules: tuple[str, ...]) -> None:
    """Whole and with fields left out; today's engine makes the same lists, calls and outputs of them."""
    for seed in range(40):
        dice = random.Random(seed)
        simulation = EachSimulation(dice, dice.choice([0.3, 0.6, 1.0]))
        simulation.run()
        records = [codec.decode(data) for data in simulation.journal.data]
        (trace,) = read(lines_of(records, simulation.catalog, rules))
        again = Replay(trace, simulation.catalog, None, together_ms=1000)
        assert [moment.record for moment in again.run()] == again.records[1:]
        assert again.divergence is None


def test_the_undo_of_a_completed_saga_replays() -> None:
    """Its journal begins with the lists of the saga that it undoes, which nobody decided in it."""
    saga = Saga(FIND, book({"of": "$output.step_find.items", "parallel": 2}), items=ROOMS)
    made = choose_undo(saga.run(), saga.records, "one-undo", {})
    assert made.undoes == ["book[3]", "book[2]", "book[1]", "book[0]"]
    first = msgspec.structs.replace(saga.records[0], saga_id="one-undo", undo_of="one")  # type: ignore[type-var]
    undo = Saga(FIND, book({"of": "$output.step_find.items", "parallel": 2}))
    undo.records = [first]
    undo.state = undo.machine.state = begin(first, undo.plan, undo.growth)  # type: ignore[arg-type]
    for record in [*made.opening, r.UndoRequested(at=1)]:
        undo.add(msgspec.structs.replace(record, at=1))
    assert undo.run().status == "COMPENSATED"
    assert view(undo.state).plain()["report"]["compensated"] == ["book[0]", "book[1]", "book[2]", "book[3]"]
    (trace,) = read(lines_of(undo.records, CATALOG, ()))
    again = Replay(trace, CATALOG, None, together_ms=1000)
    list(again.run())
    assert again.divergence is None
