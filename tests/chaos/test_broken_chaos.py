"""The laws of chaos name what a broken engine does: each is broken in one way, and a small chaos run finds it out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev.chaos import plans
from saga_engine import Coordinator
from saga_engine.core import images
from saga_engine.core.images import Image
from saga_engine.core.state import State
from saga_engine.core.state_values import StepState
from saga_engine.core.steps import each as each_steps
from saga_engine.guards import stops as held_calls
from saga_engine.plan import compiler, compute
from saga_engine.runtime import image_reader, listening
from saga_engine.runtime.image_reader import ImageReader
from saga_engine.stores.events import RedisEvents
from tests.support import small_chaos
from tests.support.mutating import rewrite

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the external system listens on a Unix socket")

SEED = 30
Breaking = Callable[[pytest.MonkeyPatch], None]


# --- values ----------------------------------------------------------------------------------------------------------


def values(seed: int, number: int) -> dict[str, Any]:
    """All kinds of values are changed, a rival changes some of them as well, and then everything is undone."""
    saga_id, kinds = plans.saga_id(seed, number), ("keyed", "told", "probed", "sole", "keyed", "told", "probed")
    fates = ("ok", "busy,gone,ok", "ok", "lost,ok", "cut,ok", "ok", "ok")
    steps: list[dict[str, Any]] = []
    for at, (kind, luck) in enumerate(zip(kinds, fates, strict=True)):
        register = f"{saga_id}/{at}{'!' if kind == 'sole' else ''}"
        params = {"register": register, "ref": f"i{at}", "luck": luck}
        restored = {"register": register, "ref": "$before.ref", "luck": fates[number % len(fates)]}
        removed = {"tool": f"remove_{kind}", "params": {"register": register}}
        rollback = {"tool": f"put_{kind}", "params": restored, "when_absent": removed}
        steps.append({"step_id": f"s{at}", "tool": f"put_{kind}", "params": params, "rollback": rollback})
    ids = [step["step_id"] for step in steps]
    steps = [step | {"depends_on": []} for step in steps]
    steps.append({"step_id": "b0", "sleep": 0.5, "depends_on": ids})  # the slowest rival writes within this time
    refused = {"item": "no", "luck": "refuse"}
    steps.append({"step_id": "no", "tool": "book_keyed", "params": refused, "kind": "pivot", "depends_on": ["b0"]})
    return {"steps": steps}


def never_asks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(images, "judge", lambda *_, **__: "undo")


def does_not_look(patch: pytest.MonkeyPatch) -> None:
    async def call(_: Any, make: Any) -> Any:
        return await make()

    patch.setattr(image_reader._Undo, "__call__", call)


def releases_every_value(patch: pytest.MonkeyPatch) -> None:
    real = images.judge

    def judge(step: Any, found: Image, **known: bool) -> Any:
        return "undo" if step.cleared is not None else real(step, found, **known)

    patch.setattr(images, "judge", judge)


def looks_once(patch: pytest.MonkeyPatch) -> None:
    real = images.needs_image

    def needs_image(state: State, index: int) -> bool:
        return real(state, index) and state.steps[index].forward.attempt == 0

    patch.setattr(images, "needs_image", needs_image)


def always_asks(patch: pytest.MonkeyPatch) -> None:
    real = images.judge

    def judge(step: Any, found: Image, **known: bool) -> Any:
        judged = real(step, found, **known)
        return "drift" if judged == "undo" and step.cleared is None else judged

    patch.setattr(images, "judge", judge)


def remembers_another_value(patch: pytest.MonkeyPatch) -> None:
    real, last = ImageReader.read, [{"value": {"ref": "nothing"}}]

    async def read(self: ImageReader, state: State, index: int, *way: Any) -> Any:
        found = await real(self, state, index, *way)
        if way or not isinstance(found, dict):
            return found
        last.append(found)
        return last[-2]

    patch.setattr(ImageReader, "read", read)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        pytest.param(None, "", id="whole"),
        pytest.param(never_asks, "the call had left", id="never asks"),
        pytest.param(does_not_look, "had not looked", id="does not look"),
        pytest.param(releases_every_value, "the call had left", id="a release is of every value"),
        pytest.param(looks_once, "without a before-image", id="looks before the first attempt only"),
        pytest.param(always_asks, "which nobody else wrote", id="always asks"),
        pytest.param(remembers_another_value, "its owner saw", id="remembers another value"),
    ],
)
async def test_a_value_that_is_overwritten_silently_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Breaking | None, sentence: str
) -> None:
    """Whoever else writes, an undo overwrites only what its owner saw, and what the call left or an operator released."""
    monkeypatch.setattr(plans, "plan", values)
    if broken:
        broken(monkeypatch)
    found = await small_chaos.run(tmp_path, SEED, range(3 if broken else 8), longest_s=10.0 if broken else 60.0)
    said = [each for breaches in found.breaches.values() for each in breaches]
    assert (not said) if not sentence else any(sentence in each for each in said), said
    if not sentence:
        assert min(found.figures[name] for name in ("values set", "restored", "drifts", "released")) > 3, found.figures


# --- lists, what is chosen out of them, and late events --------------------------------------------------------------


def lists(seed: int, number: int) -> dict[str, Any]:
    """A list of which an item fails, a choice, a wait that ends in time and one that does not."""
    items = [{"n": at, "name": f"l0.{at}", "luck": "refuse" if at == 2 else "busy,ok"} for at in range(6)]
    where = [{"value": "$item.ref", "op": "exists"}, {"value": "$item.ref", "op": "in", "to": ["l0.3", "l0.4"]}]
    late = {"tool": "book_keyed", "params": {"item": "$output.step_b1.id"}}
    steps: list[dict[str, Any]] = [
        {
            "step_id": "e0",
            "tool": "book_probed",
            "params": {"item": "$item.name", "luck": "$item.luck"},
            "each": {
                "of": items,
                "parallel": 2,
                "on_error": "collect",
                "when": [{"value": "$item.n", "op": "!=", "to": 1}],
            },
            "rollback": {"tool": "undo_probed", "params": {"ref": "$output.step_e0.ref"}},
        },
        {
            "step_id": "p0",
            "compute": {"pick": "$output.step_e0.outputs", "where": where, "of": "$item.ref", "default": plans.NOTHING},
        },
        {"step_id": "b0", "wait": {"event": plans.EVENT, "timeout_s": 60, "on_late": _late("b0")}},
        {
            "step_id": "b1",
            "wait": {"event": plans.EVENT, "timeout_s": 0.05, "on_timeout": "continue", "on_late": late},
        },
    ]
    if number % 2:
        steps[2]["rollback"] = {"tool": "undo_keyed", "params": {"ref": "$output.step_b0.id"}}
        refused = {"item": "no", "luck": "refuse"}
        steps.append({"step_id": "no", "tool": "book_keyed", "params": refused, "kind": "pivot"})
    return {"steps": steps}


def _late(step: str) -> dict[str, Any]:
    return {"tool": "book_keyed", "params": {"item": f"$output.step_{step}.id"}}


def sent(seed: int, number: int) -> plans.Errand:
    """One event in time, then another one after the end, which comes twice."""
    sendings = (plans.Sending("b0", "early", 0.0, ("b0-e1",)), plans.Sending("b1", "late", 0.0, ("b1-e1", "b1-e1")))
    return plans.Errand(sendings, undo=False, accept=False)


def has_no_lanes(patch: pytest.MonkeyPatch) -> None:
    real = compiler.over_list
    patch.setattr(compiler, "over_list", lambda *args, **options: real(*args, **options | {"parallel": 64}))


def leaves_no_item_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(each_steps, "_wanted", lambda *_: True)


def mixes_answers(patch: pytest.MonkeyPatch) -> None:
    real = each_steps._outputs

    def outputs(*of: Any) -> Any:
        found = real(*of)
        return found | {"outputs": found["outputs"][::-1]}

    patch.setattr(each_steps, "_outputs", outputs)


def picks_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compute, "_holds", lambda *_: False)


def begins_another_saga_each_time(patch: pytest.MonkeyPatch) -> None:
    real, sagas = Coordinator._begin_late, iter(range(1000))

    async def begin(self: Coordinator, late: Any, saga_id: str, *, detach: bool = False) -> None:
        for _ in range(2):  # as if two processes chose the id by themselves
            await real(self, late, f"{saga_id}{next(sagas)}", detach=detach)

    patch.setattr(Coordinator, "_begin_late", begin)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        pytest.param(None, "", id="whole"),
        pytest.param(has_no_lanes, "had ended", id="all items at once"),
        pytest.param(leaves_no_item_out, "those that fit", id="an item that the conditions leave out"),
        pytest.param(mixes_answers, "its items answered", id="answers in another order"),
        pytest.param(picks_nothing, "the first that fits", id="another choice"),
        pytest.param(begins_another_saga_each_time, "late events are handled, by", id="a late event twice"),
    ],
)
async def test_a_wrong_list_choice_or_late_event_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Breaking | None, sentence: str
) -> None:
    """Each item once, in its lane, its answer in its place; the first that fits; a late event once, and no other."""
    monkeypatch.setattr(plans, "plan", lists)
    monkeypatch.setattr(plans, "errand", sent)
    if broken:
        broken(monkeypatch)
    found = await small_chaos.run(tmp_path, SEED, range(2 if broken else 4), longest_s=10.0 if broken else 60.0)
    said = [each for breaches in found.breaches.values() for each in breaches]
    assert (not said) if not sentence else any(sentence in each for each in said), said
    if not sentence:
        assert found.figures["late events handled"] == 4
        assert (found.figures["lists"], found.figures["items"]) == (4, 20)


# --- waits for several events ----------------------------------------------------------------------------------------


def several(seed: int, number: int) -> dict[str, Any]:
    """Waits for all of two events, for the first of two, and for two of which one comes before the saga turns around."""
    saga = plans.saga_id(seed, number)
    paid, card = ([{"event": name}, {"event": name, "key": f"{saga}/2"}] for name in (plans.EVENT, "chaos.card"))
    late = {"tool": "book_keyed", "params": {"item": "$output.step_b2.payload.id"}}
    refused = {"tool": "book_keyed", "params": {"item": "no", "luck": "refuse"}, "kind": "pivot"}
    return {
        "steps": [
            {"step_id": "b0", "wait": {"all": paid}, "depends_on": []},
            {"step_id": "b1", "wait": {"first": card}, "depends_on": ["b0"]},
            {"step_id": "b2", "wait": {"all": paid, "on_late": late}, "depends_on": ["b1"]},
            {"step_id": "b3", "wait": card[0], "depends_on": ["b1"]},
            {"step_id": "no", **refused, "depends_on": ["b3"]},
        ]
    }


def several_sent(seed: int, number: int) -> plans.Errand:
    """Both events for ``b1`` are there early, and half of what ``b2`` waits for comes before the saga turns around."""
    sendings = (
        plans.Sending("b1", "early", 0.0, ("b1-e1",), ("chaos.card", "")),
        plans.Sending("b1", "early", 0.0, ("b1-e1",), ("chaos.card", "/2")),
        plans.Sending("b0", "waiting", 0.0, ("b0-e1", "b0-e1"), (plans.EVENT, "/2")),
        plans.Sending("b0", "waiting", 0.3, ("b0-e1",)),
        plans.Sending("b2", "waiting", 0.0, ("b2-e1",), (plans.EVENT, "/2")),
        plans.Sending("b3", "waiting", 0.3, ("b3-e1",), ("chaos.card", "")),
    )
    return plans.Errand(sendings, undo=False, accept=False, settles=True)


ends_with_any = rewrite(
    ("len(found) < len(wait.events())", "False"), ('(len(wait.events()) if wait.word == "all" else 1)', "1")
)
sorts_by_arrival = rewrite(
    (
        "outputs = [found[number].output() for number in sorted(found)]",
        "outputs = [found[number].output() for number in found]",
    )
)


def takes_each_at_once(patch: pytest.MonkeyPatch) -> None:
    async def arrived(self: RedisEvents, channel: Any, waiter: Any, event: str, *, keep_ms: int, again_ms: int) -> None:
        await self.over(channel, waiter, keep_ms=keep_ms, taken=event)

    patch.setattr(RedisEvents, "arrived", arrived)


def takes_all_of_the_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StepState, "took", lambda self, *_: self.event)


def tells_nothing_of_what_came_in_vain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(listening, "late_call", lambda *_, **__: None)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        pytest.param(None, "", id="whole"),
        pytest.param(ends_with_any, "ended with 1 of the 2", id="any event ends a wait for all"),
        pytest.param(sorts_by_arrival, " with [", id="in the order in which they came"),
        pytest.param(takes_each_at_once, "the store says by", id="what came in vain is taken"),
        pytest.param(takes_all_of_the_first, "the store says by", id="all events of a wait for the first are taken"),
        pytest.param(tells_nothing_of_what_came_in_vain, "its on_late was not called", id="what came in vain is lost"),
    ],
)
async def test_an_event_of_several_that_is_lost_or_counts_twice_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Breaking | None, sentence: str
) -> None:
    """All of them end a wait for all, one ends a wait for the first, and what came in vain is given back."""
    monkeypatch.setattr(plans, "plan", several)
    monkeypatch.setattr(plans, "errand", several_sent)
    if broken:
        broken(monkeypatch)
    found = await small_chaos.run(tmp_path, SEED, range(1 if broken else 4))
    said = [each for breaches in found.breaches.values() for each in breaches]
    assert (not said) if not sentence else any(sentence in each for each in said), said
    if not sentence:
        figures = ("ended by all", "ended by first", "events that came in vain", "late events handled")
        assert [found.figures[name] for name in figures] == [4, 4, 4, 4]


# --- stops -----------------------------------------------------------------------------------------------------------


def stoppable(seed: int, number: int) -> dict[str, Any]:
    """Some calls; then what was done is undone, while the tool of the undos is stopped."""
    steps: list[dict[str, Any]] = [
        {
            "step_id": f"s{at}",
            "tool": f"book_{kind}",
            "params": {"item": f"i{at}", "luck": luck},
            "rollback": {"tool": "undo_keyed", "params": {"ref": f"$output.step_s{at}.ref", "luck": luck}},
        }
        for at, (kind, luck) in enumerate((("keyed", "ok"), ("probed", "busy,ok"), ("keyed", "lost,ok")))
    ]
    refused = {"item": "no", "luck": "refuse"}
    return {"steps": [*steps, {"step_id": "no", "tool": "book_keyed", "params": refused, "kind": "pivot"}]}


checks_no_stop = rewrite(("call.direction != FORWARD or call.backward", "True"))
hears_of_no_stop = rewrite(("self.seen.version > self.version", "False"))
holds_undos = rewrite(("call.direction != FORWARD or call.backward", "False"))


_SAGA = f"saga:{plans.saga_id(SEED, 0)}"


@pytest.mark.parametrize(
    ("broken", "scope", "sentence"),
    [
        pytest.param(None, "all", "", id="whole"),
        pytest.param(None, "tool:book_keyed", "", id="whole, of a tool"),
        pytest.param(None, _SAGA, "", id="whole, of a saga"),
        pytest.param(checks_no_stop, "all", "which was stopped", id="no stop is checked"),
        pytest.param(checks_no_stop, "tool:book_keyed", "which was stopped", id="no stop of a tool is checked"),
        pytest.param(checks_no_stop, _SAGA, "which was stopped", id="no stop of a saga is checked"),
        pytest.param(hears_of_no_stop, "all", "which was stopped", id="news of a stop are not read"),
        pytest.param(holds_undos, "all", "was held by a stop", id="undos are held"),
    ],
)
async def test_a_call_that_a_stop_does_not_hold_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Breaking | None, scope: str, sentence: str
) -> None:
    """No forward call is ordered and made while a stop covers it; undos go on, whatever is stopped."""
    monkeypatch.setattr(plans, "plan", stoppable)
    monkeypatch.setattr(plans, "errand", lambda *_: plans.Errand((), undo=False, accept=False))
    monkeypatch.setattr(held_calls, "POLL_S", 0.05)
    if broken:
        broken(monkeypatch)
    numbers, longest_s = range(1 if broken else 3), 5.0 if broken is holds_undos else 60.0
    stopped = (scope, "tool:undo_keyed")
    found = await small_chaos.run(tmp_path, SEED, numbers, longest_s=longest_s, stopped=stopped)
    said = [each for breaches in found.breaches.values() for each in breaches]
    assert (not said) if not sentence else any(sentence in each for each in said), said
    if not sentence:
        assert found.figures["sent under a stop"] == 0
        assert found.figures["undone under a stop"] >= 3
