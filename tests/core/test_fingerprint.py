"""Fingerprints: what they are made of, and that nothing else counts."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.analysis.fingerprint import Fingerprints, fingerprint, folded
from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo, NotDone
from saga_engine.core.fold import state_at_start
from saga_engine.errors import ValueNotJson
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.recording import Recording, tools

#: Never to change: a fork compares what different versions of the engine have recorded.
GOLDEN = [
    (("book", "v1", {}, []), "e6c8f046c43ce12f6de303b2b236fe081dfbbbdd652f8b08bbb0d69f59f23317"),
    (("", "", [], []), "267211a08f683274ac3542c47c79b6d95756623577202349fd13f9a0fcdc5490"),
    (
        (
            "book_flight",
            "8f14e45f",
            {"flight": "CA1234", "seats": 2, "price": 99.5, "who": "Zoë", "tags": [None, True]},
            ["a" * 64, "0" * 64],
        ),
        "0c9d5eb8c0c0e8f901a8b5c62299f6072a6aabcda80cd559eb441a6345df41d1",
    ),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def shuffled(value: Any, dice: random.Random) -> Any:
    """The same value with the fields of its objects in another order."""
    if isinstance(value, dict):
        items = [(key, shuffled(item, dice)) for key, item in value.items()]
        dice.shuffle(items)
        return dict(items)
    return [shuffled(item, dice) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("parts", "expected"), GOLDEN)
def test_golden_values(parts: tuple[str, str, Any, list[str]], expected: str) -> None:
    """These never change, in no version."""
    assert fingerprint(*parts) == expected


def test_it_is_the_documented_hash() -> None:
    """Whoever has SHA-256 and sorted JSON can compute it: docs/trace.md."""
    params = {"ä": [1, 2.5, None, True], "a": '☃ " \\ \n', "nested": {"z": 1, "b": {}}}
    upstream = ["f" * 64, "0" * 64]
    text = json.dumps(
        ["saga-fingerprint/1", "book", "1.2", params, sorted(upstream)],
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    assert fingerprint("book", "1.2", params, upstream) == hashlib.sha256(text.encode()).hexdigest()


@given(JSON, st.randoms(use_true_random=False), st.lists(st.text("0123456789abcdef", min_size=64, max_size=64)))
def test_orders_do_not_count(value: Any, dice: random.Random, upstream: list[str]) -> None:
    """The order of fields and of the steps before is nothing that the call depends on."""
    made = fingerprint("t", "v", {"p": value}, upstream)
    assert made == fingerprint("t", "v", {"p": shuffled(value, dice)}, dice.sample(upstream, len(upstream)))


@given(JSON, JSON)
def test_other_params_are_another_call(one: Any, other: Any) -> None:
    """Two params have the same fingerprint only if they are the same JSON; 1, 1.0 and true are three values."""
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (fingerprint("t", "v", one) == fingerprint("t", "v", other)) is same


def test_every_part_counts() -> None:
    """Tool, version, params and each step before make a difference, and no part can pass for another."""
    parts: list[Any] = [("a", "b", {}, []), ("ab", "", {}, []), ("a", "c", {}, []), ("a", "b", {"x": 1}, [])]
    parts += [("a", "b", {}, ["00"]), ("a", "b", {}, ["00", "00"]), ("a", "b", [], [])]
    assert len({fingerprint(*each) for each in parts}) == len(parts)


def test_params_as_deep_as_a_journal_allows_have_one() -> None:
    """What could be journalled can be hashed; what is no JSON is refused."""
    value: Any = {}
    for _ in range(63):
        value = {"d": value}
    assert len(fingerprint("t", "v", value)) == 64
    with pytest.raises(ValueNotJson):
        fingerprint("t", "v", {"n": float("nan")})


def test_it_is_the_same_in_another_process() -> None:
    """No hash seed, no address and no clock is in it."""
    code = "from saga_engine.analysis.fingerprint import fingerprint as f; print(f('t','v',{'b':{'y':1,'x':2},'a':[]},['1']))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("0", "1", "77")
    }
    assert runs == {fingerprint("t", "v", {"b": {"y": 1, "x": 2}, "a": []}, ["1"])}


# --- in a journal ------------------------------------------------------------------------------------------------------


def graph(params: dict[str, Any] | None = None, digest: str = "d", dice: random.Random | None = None) -> dict[str, str]:
    """The fingerprints of a diamond (1 → 2, 3 → 4) beside a lone step 5; step 2 has these params."""
    steps = [
        {"step_id": 1, "tool": "one", "params": {}},
        {"step_id": 2, "tool": "two", "params": params or {}, "depends_on": [1]},
        {"step_id": 3, "tool": "three", "params": {}, "depends_on": [1]},
        {"step_id": 4, "tool": "four", "params": {}, "depends_on": [2, 3]},
        {"step_id": 5, "tool": "five", "params": {}, "depends_on": []},
    ]
    names = ["one", "two", "three", "four", "five"]
    specs = [ToolSpec(name, undo="undo", digest=digest if name == "two" else "d") for name in names]
    saga = Recording({"steps": steps}, [*specs, ToolSpec("undo", digest="d")]).run()
    return prints(saga)


def prints(saga: Recording) -> dict[str, str]:
    started = saga.records[0]
    assert isinstance(started, r.SagaStarted)
    again = state_at_start(started, saga.catalog)
    _, found = folded(saga.records, again.plan, again.growth)
    return dict(found)


@pytest.mark.parametrize("changed", [graph({"x": 1}), graph(digest="another")], ids=["params", "version"])
def test_a_change_goes_downstream_and_nowhere_else(changed: dict[str, str]) -> None:
    """Upstream and beside it, fingerprints stay; the step itself and all that come after it change."""
    before = graph()
    assert {key for key in before if before[key] != changed[key]} == {"2", "4"}


def test_a_journals_fingerprints_are_the_documented_ones() -> None:
    """Step by step, from what is in the journal."""
    found = graph()
    one = fingerprint("one", "d", {})
    two, three = fingerprint("two", "d", {}, [one]), fingerprint("three", "d", {}, [one])
    assert found == {
        "1": one,
        "2": two,
        "3": three,
        "4": fingerprint("four", "d", {}, [two, three]),
        "5": fingerprint("five", "d", {}),
    }


def test_bindings_count_with_their_values_and_a_fallback_with_its_tool() -> None:
    """The params are those of the call; what served the step is what it is the fingerprint of. Secrets are markers."""
    other = {"tool": "other", "params": {"x": 1}}
    plan = {
        "steps": [
            {"step_id": 1, "tool": "one", "params": {"token": "$secret.TOKEN"}, "fallback": other},
            {"step_id": 2, "tool": "two", "params": {"ref": "$output.step_1.ref"}},
        ]
    }
    no = NotDone(ErrorInfo("no", "no"), retryable=False, definite=True)
    specs = [*tools("one", "other", "two", undo="undo"), *tools("undo")]
    found = prints(Recording(plan, specs, {("1", "forward"): [no]}).run())
    assert found["1"] == fingerprint("other", "digest-of-other", {"x": 1})
    assert found["2"] == fingerprint("two", "digest-of-two", {"ref": "ref-1"}, [found["1"]])
    own = prints(Recording(plan, specs).run())["1"]
    assert own == fingerprint("one", "digest-of-one", {"token": "$secret.TOKEN"})


def test_a_step_that_was_taken_over_hands_its_fingerprint_on() -> None:
    """A fork's steps stand on what was taken over as if they had made it themselves."""
    steps = [{"step_id": at, "tool": "one", "params": {}} for at in (1, 2)]
    saga = Recording({"steps": steps}, [*tools("one", undo="undo"), *tools("undo")])
    first = fingerprint("one", "digest-of-one", {})
    saga.settle(r.EffectReused(at=saga.now, step="1", source="s/1", fingerprint=first, output={"ref": "x"}))
    assert prints(saga.run())["2"] == fingerprint("one", "digest-of-one", {}, [first])


def test_after_a_step_without_one_there_is_none() -> None:
    """A call comes after all its deps: while one of them has no fingerprint, it has none either."""
    steps = [{"step_id": at, "tool": "a", "params": {}} for at in (1, 2)]
    saga = Recording({"steps": steps}, [*tools("a", undo="undo"), *tools("undo")])
    found = Fingerprints()
    found.note(saga.state, r.StepIntended(at=1, step="2"))
    assert found.get(1) is None
    found.note(saga.state, r.StepIntended(at=2, step="1"))
    found.note(saga.state, r.StepIntended(at=3, step="2"))
    first = fingerprint("a", "digest-of-a", {})
    assert found.by_key(saga.state) == {"1": first, "2": fingerprint("a", "digest-of-a", {}, [first])}
