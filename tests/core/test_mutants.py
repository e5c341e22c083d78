"""The simulation can fail: each of these broken engines is caught by it."""

from __future__ import annotations

import inspect
import itertools
import random
import sys
import textwrap
from collections.abc import Callable
from types import ModuleType

import pytest

from saga_engine.core import adding, decide, evolve, judge, people, settling, state, unwinding
from saga_engine.errors import JournalUnreadable
from tests.core.simulation import Simulation, Violation

Patch = Callable[[pytest.MonkeyPatch], None]


def rewrite(module: ModuleType | type, function: str, *changes: tuple[str, str]) -> Patch:
    """A mutant of one function, made by replacing text in its source; the text must be there."""

    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        source = textwrap.dedent(inspect.getsource(getattr(module, function)))
        for old, new in changes:
            assert old in source, f"{module.__name__}.{function} has changed: the mutant no longer fits"
            source = source.replace(old, new)
        namespace: dict[str, object] = {}
        home = sys.modules[module.__module__] if isinstance(module, type) else module
        exec(compile(source, f"<mutant of {function}>", "exec"), home.__dict__, namespace)
        mutant = namespace[function]
        original = getattr(module, function)
        monkeypatch.setattr(module, function, mutant)
        for kind, handler in list(evolve._HANDLERS.items()):
            if handler is original:
                monkeypatch.setitem(evolve._HANDLERS, kind, mutant)

    return apply


def both(*patches: Patch) -> Patch:
    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        for patch in patches:
            patch(monkeypatch)

    return apply


def new_key_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = itertools.count()
    monkeypatch.setattr(state, "idempotency_key", lambda saga, step, *_: f"{saga}:{step}:{next(counter)}")


MUTANTS: dict[str, Patch] = {
    "compensate forwards": both(
        rewrite(unwinding, "_send_back", (".dependents\n", ".deps\n")),
        rewrite(unwinding, "_let_go", ("[index].deps", "[index].dependents")),
    ),
    "treat unknown as failed": rewrite(judge, "judge", ('if spec.effect != "read":', "if False:")),
    "forget an in-doubt step": lambda monkeypatch: monkeypatch.setattr(
        unwinding, "_NOTHING_TO_UNDO", frozenset({*unwinding._NOTHING_TO_UNDO, "IN_DOUBT"})
    ),
    "forget the calls in flight at a crash": rewrite(
        evolve,
        "_resumed",
        (
            'settling.doubt(state, index, direction, ErrorInfo("answer_lost", record.reason or _ANSWER_LOST), None)',
            "state.in_flight.pop((index, direction))",
        ),
    ),
    "new key on retry": new_key_each_time,
    "compensate twice": rewrite(settling, "intended", ("state.undo_ready.pop(index, None)", "None")),
    "repeat a write without a key": rewrite(decide, "_repeatable", ("if not spec.keyed:", "if False:")),
    "repeat after the key has expired": rewrite(decide, "_repeatable", ("spec.key_ttl_s is None or", "True or")),
    "a later refusal settles an earlier doubt": rewrite(judge, "judge", ("if call.doubtful and", "if False and")),
    "start forward calls while turning around": rewrite(
        decide, "_turn_around", ("if any(direction == FORWARD for _, direction in state.in_flight):", "if False:")
    ),
    "compensate past the pivot": rewrite(decide, "_turn_around", ("if pivot is not None:", "if False:")),
    "report a failed undo as done": rewrite(
        settling, "failed", ('move(step, "undo_failed")', "unwinding.end_undo(state, index); return")
    ),
    "undo before the dependents are undone": both(
        rewrite(unwinding, "undo_turn", ("if step.undo_waits or", "if")),
        rewrite(unwinding, "_send_back", ("if not steps[index].undo_waits]", "]")),
    ),
    "undo blindly what does not tolerate it": rewrite(
        decide, "_blind_undo", ("return rollback.spec.tolerates_absence", "return True")
    ),
    "an approval counts for ever": rewrite(
        state.State, "approval", ("and self.at < call.approval_until", "and call.approval_until")
    ),
    "a denied call is made all the same": rewrite(people, "decided", ('if record.decision == "deny":', "if False:")),
    "a blocked undo counts as done": rewrite(
        settling, "refused", ('move(step, "undo_failed")', 'move(step, "undo"); move(step, "undone")')
    ),
    "a block settles an earlier doubt": rewrite(settling, "refused", ("if call.doubtful:", "if False:")),
    "undo what another saga made": rewrite(state.State, "undoing", ('step.via == "shared" or', "")),
    "undo a fallback by the step's own undo": both(
        rewrite(state.State, "rollback", ("self.acting(index).rollback", "self.plan.steps[index].rollback")),
    ),
    "a fallback under the step's own key": rewrite(state.State, "key", ("self.seed, step.using)", "self.seed, 0)")),
    "fall back while the step is in doubt": rewrite(
        judge, "judge", ("if call.doubtful and not (outcome.definite and not outcome.retryable):", "if False:")
    ),
    "run a model's steps without asking": rewrite(judge, "judge_advice", ("auto = all(", "auto = True or all(")),
    "ask the model again": rewrite(decide, "_stuck", ("and not state.steps[index].settled_ask", "")),
    "steps that failed have made up for another": rewrite(
        adding,
        "remedy_failed",
        ("step.open_remedies = 0", "step.open_remedies = 1; remedy_happened(state, stuck); return"),
    ),
    "the first of several steps makes up for all": rewrite(
        adding, "remedy_happened", ("step.open_remedies -= 1", "step.open_remedies = 0")
    ),
    "wait for steps that were dropped": rewrite(adding, "_drop", ("state.remaining -= 1", "None")),
    "added steps are started at once": rewrite(adding, "_grow", ("if not step.waits:", "if True:")),
    "skip the steps that wait for a retry": rewrite(unwinding, "close_call", ('move(step, "fail")', "None")),
}


def hunt(seeds: range) -> str | None:
    """The first broken law, or None."""
    for seed in seeds:
        dice = random.Random(seed)
        try:
            Simulation(dice, dice.choice([0.3, 0.6, 1.0])).run()
        except (Violation, JournalUnreadable, KeyError, AssertionError) as caught:
            return f"{type(caught).__name__}: {caught}"
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken engine does not get through."""
    MUTANTS[name](monkeypatch)
    assert hunt(range(3000)), f"nothing noticed the mutant '{name}'"


def test_the_simulation_catches_nothing_else() -> None:
    """The same hunt finds nothing in the engine as it is, so what it finds are the mutants."""
    assert hunt(range(300)) is None
