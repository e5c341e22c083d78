"""What needs no thought is mended and told; what does is left to the model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.plan.compiler import check_plan, compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.planner.repair import mend_form, move_irreversible_last, move_pivot_last, name_undos
from tests.plan.catalog import TEXT, Catalog, closed, declare
from tests.planner.scenes import FLIGHT, HOTEL, MAIL, SHOP, codes, step


def mended(*steps: dict[str, Any], **plan: Any) -> tuple[dict[str, Any], list[str]]:
    notes: list[str] = []
    return mend_form({"steps": list(steps), **plan}, SHOP, notes), notes


def moved(*steps: dict[str, Any]) -> tuple[list[Any], list[str], list[str]]:
    """Order of the ids, codes of what is still wrong, and notes."""
    notes: list[str] = []
    plan = move_pivot_last(load_plan({"steps": list(steps)}), SHOP, notes)
    return [each.step_id for each in plan.steps], codes(check_plan(plan, SHOP)), notes


def test_a_missing_rollback_is_the_registered_one() -> None:
    """The engine names the tool's own undo in the plan; that is as it should be, so no note says it."""
    made, notes = mended(FLIGHT)
    assert (made["steps"], notes) == ([FLIGHT], [])
    named = name_undos(load_plan(made), SHOP)
    assert named.model_dump(exclude_unset=True)["steps"][0]["rollback"] == {"tool": "flights.cancel"}
    assert check_plan(named, SHOP) == []
    assert name_undos(named, SHOP) is named


def test_a_named_undo_is_the_registered_one() -> None:
    """A rollback of the tool's name alone is filled like the registration's, and is the same undo in every respect."""
    plans = [load_plan({"steps": [FLIGHT]}), load_plan({"steps": [{**FLIGHT, "rollback": {"tool": "flights.cancel"}}]})]
    plain, named = (compile_plan(plan, SHOP) for plan in plans)
    for made in (plain, named):
        rollback = made.steps[0].rollback
        assert rollback is not None
        assert rollback.params is rollback.usual
        assert rollback.needs_output
    assert plain.undos == named.undos == {"1": "flights.cancel"}
    # Continued after a restart: the journalled undo is the same for both.
    again = compile_plan(plans[1], SHOP, undos=named.undos, reads=named.reads).steps[0].rollback
    assert again is not None
    assert again.params is again.usual


@pytest.mark.parametrize(
    "rollback",
    [
        {},
        {"tool": None},
        {"tool": "flights.uncancel", "params": {"order_id": "1"}},
        {"tool": "flights.cancel", "params": {}},
    ],
)
def test_a_rollback_that_says_nothing_is_the_registered_one(rollback: Any) -> None:
    """One that names no tool, or the registered undo without what it needs."""
    made, notes = mended({**FLIGHT, "rollback": rollback})
    assert "rollback" not in made["steps"][0]
    assert len(notes) == 1


def test_a_rollback_that_means_something_stays() -> None:
    """A model may undo in another way than registered; the checks find that."""
    own = {"tool": "mail.send", "params": {"to": "a", "text": "b"}}
    made, notes = mended({**FLIGHT, "rollback": own})
    assert made["steps"][0]["rollback"] == own
    assert notes == []


def test_a_read_has_nothing_to_undo() -> None:
    """Its rollback and its kind 'compensatable' are left out."""
    made, notes = mended(
        step(1, "flights.search", {"to": "Rome"}, rollback={"tool": "flights.cancel"}, kind="compensatable")
    )
    assert made["steps"][0] == step(1, "flights.search", {"to": "Rome"})
    assert len(notes) == 2


def test_wrappings_and_nulls_are_taken_off() -> None:
    """A plan inside 'plan', fields filled with null, steps without ids, an id for the saga."""
    notes: list[str] = []
    inner = {
        "task_id": "trip-1",
        "goal": None,
        "steps": [{"tool": "ledger.post", "params": {"amount": None}, "kind": None, "rollback": None}],
    }
    made = mend_form({"plan": inner, "impossible": None}, SHOP, notes)
    assert made == {"steps": [{"step_id": 1, "tool": "ledger.post", "params": {"amount": None}}]}
    assert len(notes) == 3


@pytest.mark.parametrize(
    "odd", [{"steps": 3}, {"steps": [1, None, "x"]}, {}, {"steps": [{"tool": 1, "rollback": []}]}, {"plan": [1]}]
)
def test_what_is_no_plan_passes_through(odd: dict[str, Any]) -> None:
    """Mending never fails: the form is checked afterwards."""
    mend_form(odd, SHOP, [])


def test_a_thousand_faults_do_not_get_a_thousand_notes() -> None:
    """The notes about one answer are bounded."""
    _, notes = mended(*({**FLIGHT, "step_id": number, "rollback": {}} for number in range(1000)))
    assert len(notes) == 50


def test_a_pivot_is_moved_behind_what_can_be_undone() -> None:
    """It then waits for all of it."""
    early = {**MAIL, "step_id": 1, "params": {"to": "a", "text": "b"}}
    order, wrong, notes = moved(early, {**FLIGHT, "step_id": 2}, {**HOTEL, "step_id": 3})
    assert (order, wrong) == ([2, 3, 1], [])
    assert len(notes) == 1


def test_what_comes_after_the_pivot_stays_after_it() -> None:
    """A retriable step, and a read that needs the pivot's output, move with it."""
    pivot = step("send", "mail.send", {"to": "a", "text": "b"}, kind="pivot")
    read = step("look", "flights.search", {"to": "{$output.step_send.place}"})
    again = step("again", "mail.send", {"to": "c", "text": "d"}, kind="retriable")
    order, wrong, _ = moved(pivot, read, again, {**FLIGHT, "step_id": "fly"})
    assert (order, wrong) == (["fly", "send", "look", "again"], [])


def test_a_pivot_whose_output_an_undoable_step_needs_is_left_to_the_model() -> None:
    """The graph does not allow it to go last."""
    pivot = step(1, "mail.send", {"to": "a", "text": "b"}, kind="pivot")
    order, wrong, notes = moved(pivot, step(2, "hotels.book", {"hotel": "$output.step_1.place"}))
    assert (order, wrong, notes) == ([1, 2], ["pivot-not-last"], [])


def test_a_second_pivot_is_left_to_the_model() -> None:
    """Which of the two is the point of no return is a decision."""
    one = step(1, "mail.send", {"to": "a", "text": "b"}, kind="pivot")
    order, wrong, notes = moved(one, {**one, "step_id": 2}, {**FLIGHT, "step_id": 3})
    assert order == [1, 2, 3]
    assert "pivot-second" in wrong
    assert notes == []


@given(st.permutations(["fly", "stay", "post", "send"]), st.lists(st.booleans(), min_size=4, max_size=4))
def test_any_order_with_one_free_pivot_can_be_mended(order: list[str], parallel: list[bool]) -> None:
    """Whatever the order and whatever runs side by side, a pivot that nobody needs ends up valid, with the same calls."""
    known = {
        "fly": step("fly", "flights.book", {"flight": "AZ1"}),
        "stay": step("stay", "hotels.book", {"hotel": "Roma"}),
        "post": step("post", "ledger.post", {"amount": 1}),
        "send": step("send", "mail.send", {"to": "a", "text": "b"}, kind="pivot"),
    }
    steps = [
        {**known[name], **({"depends_on": []} if free else {})} for name, free in zip(order, parallel, strict=True)
    ]
    ids, wrong, _ = moved(*steps)
    assert wrong == []
    assert sorted(ids) == sorted(order)


def test_what_cannot_be_undone_is_moved_behind_what_can() -> None:
    """A post that only a model could make up for waits for the bookings that it does not serve; the note says so."""
    catalog = Catalog(
        *(spec for name in SHOP.names() if (spec := SHOP.spec(name)) is not None),
        declare("tweet", closed(["text"], text=TEXT), semantic="approve", output_schema=closed(["id"], id=TEXT)),
    )
    notes: list[str] = []
    news = step("news", "tweet", {"text": "we go!"})
    plan = load_plan({"steps": [news, FLIGHT, {**HOTEL, "params": {"hotel": "$output.step_news.id"}}, MAIL]})
    better = move_irreversible_last(plan, catalog, notes)
    assert [each.key for each in better.steps] == ["1", "news", "2", "3"]
    assert check_plan(better, catalog) == []
    assert [("news" in note, "moved" in note) for note in notes] == [(True, True)]
    assert move_irreversible_last(better, catalog, notes) is better
