"""A fork of a session reuses a prefix of its agent's calls, and every effect has one owner, by books of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saga_engine.analysis.fingerprint import folded
from saga_engine.analysis.session_fork import Calls, SessionForkPlan, choose_calls
from saga_engine.core import records as r
from saga_engine.core import session_records
from saga_engine.core.decide import Capabilities
from saga_engine.core.effects import COMPENSATE, FORWARD, AnyEffect, CallTool, Done, ErrorInfo, NotDone
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin, fold
from saga_engine.core.machine import FixedMeans, Machine
from saga_engine.core.messages import Message, answer
from saga_engine.core.plan_growth import Growth, compile_started
from saga_engine.core.state import State
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec
from saga_engine.runtime.session_history import recorded_calls
from tests.core.simulation import Catalog

QUIET = Capabilities(alerting=False)
ONCE = RetryPolicy(max_attempts=1)
REFUSED = NotDone(ErrorInfo("full", "no rooms", retryable=False), retryable=False, definite=True)
CASES = settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
TOOLS = {
    "book": ToolSpec(name="book", retry=ONCE, undo="undo", digest="book/1"),
    "look": ToolSpec(name="look", effect="read", retry=ONCE, digest="look/1"),
    "send": ToolSpec(name="send", retry=ONCE, digest="send/1"),
    "undo": ToolSpec(name="undo", keyed=True, retry=ONCE, digest="undo/1"),
}


def catalog(changed: str = "") -> Catalog:
    digests = {changed: f"{changed}/2"}
    return Catalog([replace(spec, digest=digests.get(spec.name, spec.digest)) for spec in TOOLS.values()])


@dataclass
class Played:
    """A session of a script, played by the engine's core, and the books of the world outside."""

    saga_id: str
    state: State = field(repr=False)
    journal: list[r.AnyRecord] = field(repr=False)
    now: int = 1000
    fates: dict[str, str] = field(default_factory=dict)
    standing: dict[str, None] = field(default_factory=dict)  # keys of calls, in the order in which they happened
    undone: list[str] = field(default_factory=list)  # the same, as undos are made

    def add(self, record: r.AnyRecord | None) -> None:
        assert record is not None
        evolve(self.state, record)
        self.journal.append(record)

    def play(self, order: Sequence[int] = ()) -> None:
        """Until there is nothing to do; ``order`` mixes the ends of calls that are made side by side."""
        while True:
            self.now += 1
            calls = [effect for effect in self._decided() if isinstance(effect, CallTool)]
            if not calls:
                return
            for _, effect in sorted(zip([*order, *range(len(calls))], calls, strict=False), key=lambda pair: pair[0]):
                self._call(effect)

    def _call(self, effect: CallTool) -> None:
        key = self.state.key(effect.step, FORWARD)
        fate = self.fates.get(self.state.plan.steps[effect.step].key, "done")
        outcome: Done | NotDone = Done({"v": effect.step})
        if effect.direction == COMPENSATE:
            self.standing.pop(key)
            self.undone.append(key)
        elif fate == "failed":
            outcome = REFUSED
        elif fate == "shared":
            outcome = Done({"v": effect.step}, via="deduplicated", source="elsewhere:1:f:")
        else:
            self.standing[key] = None
        machine = Machine(self.state, FixedMeans(QUIET))
        machine.learn(effect, outcome, self.now, 0.5)
        self.journal += machine.said().records

    def _decided(self) -> list[AnyEffect]:
        machine = Machine(self.state, FixedMeans(QUIET))
        ready = machine.ready(self.now)
        self.journal += ready.records
        return machine.durable(ready)

    # --- its agent ---------------------------------------------------------------------------------------------

    def calls(self, wave: Sequence[tuple[str, str, int]]) -> None:
        after = [step.key for step, at in zip(self.state.plan.steps, self.state.steps, strict=True) if at.effect]
        for tool, fate, _ in wave:
            call = r.CallAdded(
                at=0,
                step="",
                tool=tool,
                params={"n": len(self.state.steps)},
                undo="undo" if tool == "book" else None,
                undo_params={"key": "$key"} if tool == "book" else None,
                irreversible=tool == "send",
                read=tool == "look",
                tool_digest=TOOLS[tool].digest,
            )
            self.add(session_records.add_call(self.state, call, after[-4:], self.now))
            self.fates[self.state.plan.steps[-1].key] = fate
        self.play([order for _, _, order in wave])

    def back(self, count: int) -> None:
        chosen = [step.key for step in self.state.plan.steps[-count:]]
        record = session_records.partial_compensation(self.state, chosen, self.now, len(self.state.steps))
        if record is not None:
            self.add(record)
            self.play()

    def kept(self) -> None:
        record = session_records.keep(self.state, "", ErrorInfo("broken", "it failed"), self.now, ask=False)
        if record is not None:
            self.add(record)
            self.play()

    def returns(self) -> None:
        self.now += 1
        self.add(r.SagaResumed(at=self.now, owner="next", epoch=self.state.epoch + 1, agent=True))

    def closed(self, reason: str) -> None:
        self.add(session_records.close(self.state, reason, "", self.now))
        self.play()

    # --- its fork ----------------------------------------------------------------------------------------------

    def chosen(
        self, to: str, run_from: str | None, changed: str = "", elsewhere: Sequence[str] = ()
    ) -> SessionForkPlan:
        first = self.journal[0]
        assert isinstance(first, r.SagaStarted)
        state, prints = folded(self.journal, compile_started(first, catalog()), Growth(first, catalog()))
        recorded = recorded_calls(self.journal, keeps=True)
        added = {record.step: record for record in self.journal if isinstance(record, r.CallAdded)}
        calls = Calls(state=state, places=recorded.keys, anew=recorded.anew, added=added, fingerprints=prints)
        started, tools = started_as(to, self.saga_id), catalog(changed)
        plan = compile_started(started, tools)
        return choose_calls(calls, started, plan, tools, run_from=run_from, elsewhere=elsewhere)


def started_as(saga_id: str, fork_of: str = "") -> r.SagaStarted:
    body = msgspec.Raw(msgspec.json.encode({"goal": "", "steps": []}))
    return r.SagaStarted(at=1, saga_id=saga_id, plan=body, digest=saga_id, seed="seed", session=True, fork_of=fork_of)


def session(saga_id: str, fork_of: str = "", opening: Sequence[r.AnyRecord] = ()) -> Played:
    started = started_as(saga_id, fork_of)
    tools = catalog()
    played = Played(saga_id, begin(started, compile_started(started, tools), Growth(started, tools)), [started])
    for record in opening:
        played.add(record)
    return played


TOOL = st.sampled_from(["book", "book", "book", "look", "send"])
FATE = st.sampled_from(["done", "done", "done", "done", "failed", "shared"])
OPS = st.one_of(
    st.lists(st.tuples(TOOL, FATE, st.integers(0, 3)), min_size=1, max_size=3),
    st.lists(st.tuples(TOOL, st.just("done"), st.integers(0, 3)), min_size=1, max_size=2),
    st.integers(1, 3),
    st.just("kept"),
)


@st.composite
def sessions(draw: st.DrawFn) -> Played:
    """A session that rests or has ended."""
    played = session("old")
    for op in draw(st.lists(OPS, min_size=1, max_size=5)):
        if isinstance(op, list):
            played.calls(op)
        elif isinstance(op, int):
            played.back(op)
        elif played.state.steps:
            played.kept()
            played.returns()
    if not played.state.steps:
        played.calls([("book", "done", 0)])
    end = draw(st.sampled_from(["kept", "kept", "kept", "", "session-failed"]))
    if end == "kept":
        played.kept()
    else:
        played.closed(end)
    return played


FROM = st.one_of(st.none(), st.integers(1, 10).map(str))


def sources(chosen: SessionForkPlan) -> list[str]:
    return [record.source.partition("/")[2] for record in chosen.taken]


def copied(chosen: SessionForkPlan) -> list[r.CallAdded]:
    return [record for record in chosen.opening if isinstance(record, r.CallAdded)]


@CASES
@given(sessions(), FROM, st.sampled_from(["", "", "book", "look"]), st.lists(st.integers(1, 6).map(str), max_size=1))
def test_what_is_reused_is_a_prefix_that_stands_and_the_longest_one(
    old: Played, run_from: str | None, changed: str, elsewhere: list[str]
) -> None:
    """Each copied call is the agent's at its place; what is reused stands; what is not has a reason that lies there."""
    chosen = old.chosen("new", run_from, changed, elsewhere)
    recorded = recorded_calls(old.journal, keeps=True)
    prefix = recorded.keys[: len(copied(chosen))]
    for number, (key, call) in enumerate(zip(prefix, copied(chosen), strict=True), 1):
        before = next(each for each in old.journal if isinstance(each, r.CallAdded) and each.step == key)
        assert (call.step, call.place) == (str(number), 0)
        assert (call.tool, call.params, call.undo) == (before.tool, before.params, before.undo)
    assert set(sources(chosen)) | {key for key in prefix if old.fates[key] == "failed"} == set(prefix)
    for record in chosen.taken:
        key = old.state.key(old.state.plan.by_key[record.source.partition("/")[2]], FORWARD)
        assert key in old.standing
        assert record.key == key
        assert record.output == {"v": old.state.plan.by_key[record.source.partition("/")[2]]}
    if len(prefix) < len(recorded.keys):
        key = recorded.keys[len(prefix)]
        index = old.state.plan.by_key[key]
        gone = old.fates[key] == "done" and old.state.key(index, FORWARD) not in old.standing
        last = old.fates[key] == "failed" and key in recorded.anew
        other = old.state.plan.steps[index].tool == changed or key in elsewhere or old.fates[key] == "shared"
        undone = old.state.status == "COMPENSATED"
        assert key == run_from or gone or last or undone or (other and old.fates[key] != "failed")


@CASES
@given(sessions(), FROM)
def test_a_fork_waits_for_its_agent_and_answers_it_as_before(old: Played, run_from: str | None) -> None:
    """Its opening folds to what the old session was up to there; nothing of it is open, and nothing is done by itself."""
    chosen = old.chosen("new", run_from)
    new = session("new", "old", chosen.opening)
    recorded = recorded_calls(new.journal, keeps=True)
    assert recorded.keys == [call.step for call in copied(chosen)]
    assert (recorded.anew, recorded.rollbacks) == (set(), [])
    new.play()
    assert not new.standing
    assert not new.undone
    assert [question.kind for question in new.state.questions.values()] == ["session-kept"] * bool(recorded.keys)
    assert new.state.open
    if recorded.keys:
        assert session_records.add_call(new.state, copied(chosen)[0], (), new.now) is None
    first = new.journal[0]
    assert isinstance(first, r.SagaStarted)
    again = fold(new.journal, compile_started(first, catalog()), Growth(first, catalog()))
    assert (again.status, again.happened) == (new.state.status, len(chosen.taken))
    new.returns()
    new.calls([("book", "done", 0)])
    assert new.state.steps[-1].effect
    new.closed("")
    assert new.state.status == "COMPLETED"


@CASES
@given(sessions(), FROM, st.integers(0, 3))
def test_every_effect_has_one_owner(old: Played, run_from: str | None, calls: int) -> None:
    """The old session hands over and undoes the rest, the fork undoes what it owns, both in reverse of what happened."""
    chosen = old.chosen("new", run_from)
    effects = {old.state.key(old.state.plan.by_key[key], FORWARD): key for key in sources(chosen)}
    tools = {old.state.key(step.index, FORWARD): step.tool for step in old.state.plan.steps}
    before, undone = [key for key in old.standing if tools[key] == "book"], len(old.undone)
    new = session("new", "old", chosen.opening)
    new.standing = {key: None for key in old.standing if key in effects}
    if not old.state.ended_at:
        old.add(answer(old.state, Message(id="t", kind="transfer", steps=sources(chosen), to="new"), old.now))
        assert isinstance(old.journal[-1], r.EffectTransferred)
        again = old.chosen("new", run_from)
        assert again.opening == chosen.opening
        assert not old.chosen("third", None).taken
        old.play()
        assert old.state.ended_at
        assert old.chosen("new", run_from).opening == chosen.opening
        assert old.undone[undone:] == [key for key in reversed(before) if key not in effects]
    if copied(chosen):
        new.returns()
    for _ in range(calls):
        new.calls([("book", "done", 0)])
    if new.state.steps:
        new.closed("session-failed")
        assert new.state.ended_at
        own = [key for key in new.undone if key not in effects]
        assert new.undone == [*own, *(key for key in reversed(before) if key in effects)]
        assert len(own) == calls
    assert all(count == 1 for count in Counter([*old.undone, *new.undone]).values())


@CASES
@given(sessions(), st.integers(1, 3))
def test_what_has_changed_since_the_choice_is_not_handed_over(old: Played, count: int) -> None:
    """The agent ran again and rolled something back: a transfer that names it is refused, and nothing has changed."""
    if old.state.ended_at:
        return
    stale = sources(old.chosen("new", None))
    old.returns()
    old.back(count)
    old.kept()
    fresh = sources(old.chosen("new", None))
    record: Any = answer(old.state, Message(id="t", kind="transfer", steps=stale, to="new"), old.now)
    standing = all(old.state.key(old.state.plan.by_key[key], FORWARD) in old.standing for key in stale)
    assert isinstance(record, r.EffectTransferred if standing else r.MessageRefused)
    assert set(fresh) <= set(stale)
