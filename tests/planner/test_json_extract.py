"""One JSON object is found in whatever a model wraps around it, and nothing is made up."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.planner.json_extract import MAX_ANSWER_CHARS, find_object, is_cut

PLAN = {"steps": [{"step_id": 1, "tool": "a", "params": {"text": 'a } " { // no comment /* nor this */ ,]'}}]}
TEXT = json.dumps(PLAN)


@pytest.mark.parametrize(
    "said",
    [
        TEXT,
        f"\n  {TEXT}\n",
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}\n```\nI hope that this helps {{smile}}.",
        f"Sure! Here is the plan:\n\n{TEXT}\n\nIt books {{everything}}.",
        f"In the form {{steps}} that you want: {TEXT}",
        f'<think>first {{ then {{"steps": []}} ...</think>{TEXT}',
        TEXT[:-1] + ",}",
        TEXT.replace('{"steps": [', '{ // the plan\n"steps": [ /* one\nstep */ '),
        TEXT.replace('"tool": "a",', '"tool": "a", // by a\n'),
        f'First I thought of {{"steps": []}}, but this is better: {TEXT}',
        f'{{"note": "not this one, however long it is ............................................................................."}} {TEXT}',
    ],
)
def test_the_object_is_found_in_what_is_said_around_it(said: str) -> None:
    """Fences, prose on both sides, thoughts, comments and trailing commas are taken from a model."""
    assert json.loads(find_object(said)) == PLAN


@pytest.mark.parametrize(
    "said", ["", "I cannot do that.", "[1, 2]", "{", TEXT[:-3], '{"steps": NaN}', '{"a" 1}', "{]}", '"{']
)
def test_what_is_no_whole_object_is_not_completed(said: str) -> None:
    """Half a plan is no plan."""
    assert not find_object(said)


def test_an_object_that_breaks_off_is_told_from_none() -> None:
    """The model is told what went wrong: its answer had no end, or no object at all."""
    assert is_cut(f"Here: {TEXT[:-3]}")
    assert not is_cut("no object")
    assert not is_cut(TEXT)


def test_a_hostile_answer_costs_little() -> None:
    """Depth, length and heaps of braces end in no object, not in a crash or a hang."""
    for said in ("{" * 200_000, '{"a":' * 100_000, "[" * 100_000 + "{", '{"a": ' + "9" * 100_000 + "}"):
        found = find_object(said)
        assert not found or json.loads(found, parse_int=str)
    assert not find_object("{}" + " " * MAX_ANSWER_CHARS)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=20),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=10,
    ),
    st.text(alphabet="abc \n.,:!`", max_size=30),
    st.text(max_size=30),
)
def test_any_params_survive_being_found(value: object, before: str, after: str) -> None:
    """Whatever stands in a plan's texts, finding the plan changes nothing of it."""
    plan = {"steps": [value]}
    assert json.loads(find_object(f"{before}{json.dumps(plan)}\n{after.replace('{', '')}")) == plan


@given(st.text(alphabet='{}[]",:\\/* \n`a1', max_size=200))
def test_noise_never_breaks_the_reader(said: str) -> None:
    """Any text gives an object or none."""
    found = find_object(said)
    assert not found or isinstance(json.loads(found), dict)


def test_what_a_model_only_thinks_is_no_answer() -> None:
    """A plan that was weighed and dropped does not count, before the answer or after it."""
    assert not find_object(f"<think>perhaps {TEXT}</think> I cannot do that.")
    assert json.loads(find_object(f'{TEXT} <think>or {{"steps": []}}?</think>')) == PLAN
