"""A fork takes over exactly what it may, said by a model of dependencies that knows no fingerprints.

The model compares what a step *is*: its tool, the declaration of that day, its params with all values in place, and, for
each step that it comes after, the same again. It keeps its own books of what stands in the world.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saga_engine.analysis import fork
from saga_engine.analysis.fingerprint import folded
from saga_engine.core import records as r
from saga_engine.core.decide import Capabilities
from saga_engine.core.effects import COMPENSATE, FORWARD, CallTool, Done, ErrorInfo, NotDone
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.machine import FixedMeans, Machine
from saga_engine.core.messages import Message, answer, check_fork
from saga_engine.core.plan_growth import Growth
from saga_engine.core.state import State
from saga_engine.errors import ForkRefused
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec
from tests import tiers
from tests.core.simulation import Catalog

QUIET = Capabilities(alerting=False)
ONCE = RetryPolicy(max_attempts=1)
REFUSED = NotDone(ErrorInfo("full", "no rooms", retryable=False), retryable=False, definite=True)
TOOLS = ("book", "hire", "look", "alt")
READ = "look"
NONE = -1
CASES = settings(deadline=None, max_examples=tiers.examples(300), suppress_health_check=list(HealthCheck))


# --- plans ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A step as the cases are drawn. ``after`` None: it follows the one before it in the list."""

    key: str
    tool: str
    x: int
    binds: tuple[str, ...] = ()
    after: tuple[str, ...] | None = ()
    other_way: bool = False
    goes_on: bool = False

    def template(self, way: int, lacking: Collection[str] = ()) -> dict[str, Any]:
        """``lacking``: the steps that may have no output; what binds one has a default."""
        bound = {key: f"$output.step_{key}.v" for key in self.binds}
        given = {f"of_{key}": {"$first": [text, NONE]} if key in lacking else text for key, text in bound.items()}
        return {"x": self.x + 10 * way, **given}


Plan = tuple[Step, ...]


def body(plan: Plan, on_failure: str) -> dict[str, Any]:
    steps = []
    lacking = {step.key for step in plan if step.goes_on}
    for step in plan:
        made: dict[str, Any] = {"step_id": step.key, "tool": step.tool, "params": step.template(0, lacking)}
        if step.goes_on:
            made["on_error"] = "continue"
        if step.after is not None:
            made["depends_on"] = list(step.after)
        if step.other_way:
            made["fallback"] = {"tool": "alt", "params": step.template(1, lacking)}
        if step.tool != READ:
            made["rollback"] = {"tool": "undo", "params": {"key": "$key"}}
            if step.other_way:
                made["fallback"]["rollback"] = {"tool": "undo", "params": {"key": "$key"}}
        steps.append(made)
    return {"steps": steps, "on_failure": on_failure}


def sound(steps: list[Step]) -> Plan:
    """Without references to what is not there (any more) or does not come before."""
    known: set[str] = set()
    made = []
    for step in steps:
        if step.key in known:
            continue
        after = None if step.after is None else tuple(sorted(known.intersection(step.after)))
        binds = tuple(key for key in step.binds if key in known)
        other_way = step.other_way and step.tool not in (READ, "alt")
        made.append(replace(step, binds=binds, after=after, other_way=other_way))
        known.add(step.key)
    return tuple(made)


def deps(plan: Plan) -> dict[str, set[str]]:
    """What each step comes after, read from the plan."""
    found: dict[str, set[str]] = {}
    previous: set[str] = set()
    for step in plan:
        found[step.key] = set(previous if step.after is None else step.after) | set(step.binds)
        previous = {step.key}
    return found


def catalog(versions: Mapping[str, int]) -> Catalog:
    specs = [
        ToolSpec(
            name=name, effect="read" if name == READ else "write", retry=ONCE, digest=f"{name}/{versions.get(name, 1)}"
        )
        for name in TOOLS
    ]
    return Catalog([*specs, ToolSpec(name="undo", keyed=True, retry=ONCE, digest="undo/1")])


KEYS = tuple(f"s{number}" for number in range(6))
REFS = st.lists(st.sampled_from(KEYS), max_size=2, unique=True).map(tuple)
STEPS = st.builds(
    Step,
    key=st.sampled_from(KEYS),
    tool=st.sampled_from(TOOLS),
    x=st.integers(0, 1),
    binds=st.lists(st.sampled_from(KEYS), max_size=1).map(tuple),
    after=st.one_of(st.none(), REFS),
    other_way=st.booleans(),
)
#: Half of them go on, and most bind something, so that many a step needs what may have failed.
GOING_ON = st.builds(
    lambda step, goes_on, binds: replace(step, goes_on=goes_on, binds=binds), STEPS, st.booleans(), REFS
)


@st.composite
def mended(draw: st.DrawFn, plan: Plan) -> Plan:
    """The plan after some changes, or as it was."""
    steps = list(plan)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(steps) - 1))
        step, other = steps[at], draw(STEPS)
        change = draw(st.sampled_from(["x", "tool", "binds", "after", "way", "key", "add", "twin", "remove", "swap"]))
        if change == "add":
            steps.insert(at, other)
        elif change == "twin":
            steps.append(replace(step, key=other.key))
        elif change == "remove" and len(steps) > 1:
            del steps[at]
        elif change == "swap":
            steps.insert(draw(st.integers(0, len(steps) - 1)), steps.pop(at))
        elif change in ("x", "tool", "binds", "after", "way", "key"):
            name = "other_way" if change == "way" else change
            steps[at] = replace(step, **{name: getattr(other, name)})
    return sound(steps)


# --- a saga, and books of what it did --------------------------------------------------------------------------------


@dataclass
class World:
    """What stands outside, and who undid what: effects are named by the key of their call."""

    standing: set[str] = field(default_factory=set)
    undone: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass
class Played:
    """A saga of a case, played by the engine's core; ``did`` is the model's: what each step was, and put out."""

    plan: Plan
    state: State = field(repr=False)
    compiled: CompiledPlan = field(repr=False)
    started: r.SagaStarted = field(repr=False)
    world: World
    fates: Mapping[str, str]
    outputs: Mapping[str, int]
    versions: Mapping[str, int]
    journal: list[r.AnyRecord] = field(default_factory=list, repr=False)
    did: dict[str, tuple[str, int]] = field(default_factory=dict)  # the tree and the output
    lent: set[str] = field(default_factory=set)  # steps whose effect is not, or no longer, the saga's own
    now: int = 1000

    def add(self, record: r.AnyRecord) -> None:
        evolve(self.state, record)
        self.journal.append(record)

    def play(self, most: int = 1000) -> None:
        """Until it ends or rests, or ``most`` rounds are over."""
        for _ in range(most):
            self.now += 1
            machine = Machine(self.state, FixedMeans(QUIET))
            ready = machine.ready(self.now)
            if not ready.records:
                return
            self.journal += ready.records
            for effect in machine.durable(ready):
                if isinstance(effect, CallTool):
                    self._call(effect)

    def _call(self, effect: CallTool) -> None:
        step = self.plan[effect.step]
        key = self.state.key(effect.step, FORWARD)
        fate = self.fates.get(step.key, "done")
        outcome: Done | NotDone
        if effect.direction == COMPENSATE:
            outcome = REFUSED if fate == "stuck" else Done({})
            if isinstance(outcome, Done):
                self.world.standing.discard(key)
                self.world.undone[self.state.saga_id, key] += 1
        else:
            way = self.state.steps[effect.step].using
            outcome = self._forward(step, way, fate)
            if isinstance(outcome, Done):
                self.did[step.key] = (self.tree(step, way), outcome.output["v"])
                self.world.standing.add(key)
            if isinstance(outcome, Done) and outcome.via == "deduplicated":
                self.lent.add(step.key)
        machine = Machine(self.state, FixedMeans(QUIET))
        machine.learn(effect, outcome, self.now, 0.5)
        self.journal += machine.said().records

    def _forward(self, step: Step, way: int, fate: str) -> Done | NotDone:
        if fate == "failed" or (fate == "other way" and not way):
            return REFUSED
        output = {"v": self.outputs.get(step.key, 0)}
        if fate == "deduplicated" and step.tool != READ and not way:
            return Done(output, via="deduplicated", source="elsewhere:s0:f:")
        return Done(output)

    def tree(self, step: Step, way: int) -> str:
        """What the step is, with all that it comes after."""
        nothing = ("failed", NONE)
        params = {**step.template(way), **{f"of_{key}": self.did.get(key, nothing)[1] for key in step.binds}}
        tool = "alt" if way else step.tool
        before = sorted(self.did.get(key, nothing)[0] for key in deps(self.plan)[step.key])
        return json.dumps([tool, self.versions.get(tool, 1), sorted(params.items()), before])


def start(
    saga_id: str, plan: Plan, versions: Mapping[str, int], world: World, *, on_failure: str = "compensate", **more: Any
) -> Played:
    made = load_plan(body(plan, on_failure))
    tools = catalog(versions)
    compiled = compile_plan(made, tools)
    started = r.SagaStarted(
        at=1,
        saga_id=saga_id,
        plan=msgspec.Raw(made.json_bytes),
        digest=saga_id,
        seed="seed",
        undos=compiled.undos,
        reads=sorted(compiled.reads),
        tools=compiled.tool_digests,
    )
    state = begin(started, compiled, Growth(started, tools))
    fates, outputs = more.get("fates", {}), more.get("outputs", {})
    played = Played(plan, state, compiled, started, world, fates, outputs, versions)
    played.journal.append(started)
    return played


@dataclass
class Case:
    """A saga that has ended or rests, and a fork of it that nobody has begun."""

    old: Played
    new: Played
    elsewhere: set[str]
    run_from: str | None
    chosen: fork.ForkPlan

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        for text in (self.old, sorted(self.old.world.standing), self.new.plan, self.new.versions, self.chosen):
            printer.text(f"\n{text}")
        printer.text(f"\nelsewhere={self.elsewhere} run_from={self.run_from}")

    def stands(self, key: str) -> bool:
        """Whether a step of the old saga may be taken over, by the books."""
        if key not in self.old.did or key in self.old.lent or key in self.elsewhere:
            return False
        return self.old.state.key(self.old.state.plan.by_key[key], FORWARD) in self.old.world.standing


FATES = st.sampled_from(["done", "done", "done", "done", "failed", "deduplicated", "other way", "stuck"])
OFTEN_FAILED = st.sampled_from(["failed", "failed", "failed", "done", "other way"])


@st.composite
def cases(draw: st.DrawFn, steps: st.SearchStrategy[Step] = STEPS) -> Case:
    plan = sound(draw(st.lists(steps, min_size=1, max_size=6)))
    on_failure = draw(st.sampled_from(["pause", "pause", "compensate"]))
    fates = {step.key: draw(OFTEN_FAILED if step.goes_on else FATES) for step in plan}
    outputs = {step.key: draw(st.integers(0, 1)) for step in plan}
    old = start("old", plan, {}, World(), on_failure=on_failure, fates=fates, outputs=outputs)
    old.play()
    if old.state.questions and draw(st.booleans()):
        _settle(old, draw(st.sampled_from(["accept", "undone", "not-happened", "retry"])))
    while not _can_be_forked(old):
        _settle(old, draw(st.sampled_from(["accept", "undone"])))
    new_plan = draw(mended(plan))
    elsewhere = set(draw(st.lists(st.sampled_from([step.key for step in plan]), max_size=1)))
    run_from = draw(st.one_of(st.none(), st.none(), st.sampled_from([step.key for step in new_plan])))
    versions = draw(st.sampled_from([{}, {}, {"book": 2}, {"alt": 2}]))
    new = start("new", new_plan, versions, old.world, fates={"": "done"})
    return Case(old, new, elsewhere, run_from, _choose(old, new, run_from, elsewhere))


def _can_be_forked(saga: Played) -> bool:
    try:
        check_fork(saga.state)
    except ForkRefused:
        return False
    return True


def _settle(saga: Played, decision: str) -> None:
    """A person answers the first question, if it allows this answer."""
    question = next(iter(saga.state.questions.values()))
    if decision in question.options:
        step = saga.state.plan.steps[question.step].key
        message = Message(id="m", kind="resolve", step=step, decision=decision, question=question.id)
        saga.fates = {**saga.fates, step: "done"}
        if decision == "undone":
            saga.world.standing.discard(saga.state.key(question.step, FORWARD))
        elif decision == "accept" and question.direction == COMPENSATE:
            # It stands, and a person has said so: it is no business of the engine's any more.
            saga.lent.add(step)
        saga.add(answer(saga.state, message, saga.now))
        saga.play()


def _choose(old: Played, new: Played, run_from: str | None, elsewhere: set[str]) -> fork.ForkPlan:
    state, prints = folded(old.journal, old.compiled, Growth(old.started, catalog(old.versions)))
    growth = Growth(new.started, catalog(new.versions))
    return fork.choose(state, prints, new.started, new.compiled, growth, run_from=run_from, elsewhere=elsewhere)


def own(case: Case) -> Iterator[str]:
    """The steps that have kept their id and all that they come after, by the books; each has its own result."""
    found: dict[str, tuple[str, int]] = {}
    before = deps(case.new.plan)
    reader = Played(**{**vars(case.new), "did": found})
    rest = {step.key: step for step in case.new.plan}
    while ready := [key for key in rest if before[key] <= found.keys()]:
        for key in ready:
            step = rest.pop(key)
            ways = range(2 if step.other_way else 1)
            trees = [reader.tree(step, way) for way in ways]
            if key != case.run_from and case.stands(key) and case.old.did[key][0] in trees:
                found[key] = case.old.did[key]
                yield key


# --- the laws --------------------------------------------------------------------------------------------------------


@CASES
@given(cases())
def test_what_is_taken_over_is_the_same_call_after_the_same_calls_and_stands(case: Case) -> None:
    """Soundness: the same tool, declaration and params, after the same steps; and no effect is taken twice."""
    sources: list[str] = []
    before = deps(case.new.plan)
    ways = {step.key: step for step in case.new.plan}
    for record in case.chosen.taken:
        saga, _, source = record.source.partition("/")
        assert saga == "old"
        assert case.stands(source), f"{source} does not stand"
        assert before[record.step] <= case.new.did.keys(), "it comes after a step that runs anew"
        assert record.step != case.run_from
        tree, output = case.old.did[source]
        assert case.new.tree(ways[record.step], record.fallback) == tree
        assert record.output == {"v": output}
        assert record.key == case.old.state.key(case.old.state.plan.by_key[source], FORWARD)
        case.new.did[record.step] = (tree, output)
        sources.append(source)
    assert len(sources) == len(set(sources))


@CASES
@given(cases())
def test_what_has_not_changed_keeps_its_own_effect(case: Case) -> None:
    """Each step whose id and whole past are unchanged, and that stands, takes its own result, whatever else there is."""
    taken = {record.step: record.source for record in case.chosen.taken}
    expected = {key: f"old/{key}" for key in own(case)}
    assert {key: taken.get(key) for key in expected} == expected


@CASES
@given(cases())
def test_nothing_runs_that_could_be_taken_over(case: Case) -> None:
    """Completeness: a step runs because it is told to, comes after one that runs, or is nothing that stands and is free."""
    used = {record.source.partition("/")[2] for record in case.chosen.taken}
    for record in case.chosen.taken:
        case.new.did[record.step] = case.old.did[record.source.partition("/")[2]]
    free = {case.old.did[key][0] for key in case.old.did if case.stands(key) and key not in used}
    before = deps(case.new.plan)
    for step in case.new.plan:
        if step.key in case.new.did:
            continue
        assert step.key in case.chosen.runs
        if step.key == case.run_from or not before[step.key] <= case.new.did.keys():
            continue
        for way in range(2 if step.other_way else 1):
            assert case.new.tree(step, way) not in free, f"{step.key} need not run"


@CASES
@given(cases())
def test_what_is_shown_is_all_there_is(case: Case) -> None:
    """Each step of the fork is taken over or runs; what stays behind is what stands, changes the world and is not taken."""
    taken = [record.step for record in case.chosen.taken]
    assert sorted([*taken, *case.chosen.runs]) == sorted(step.key for step in case.new.plan)
    used = {record.source.partition("/")[2] for record in case.chosen.taken}
    tools = {step.key: step.tool for step in case.old.plan}
    stays = [key for key in case.old.did if case.stands(key) and key not in used and tools[key] != READ]
    assert sorted(case.chosen.left) == sorted(stays)


@CASES
@given(cases(), st.booleans(), st.integers(0, 40))
def test_every_effect_has_one_owner(case: Case, fork_fails: bool, died_after: int) -> None:
    """The old saga hands over and undoes the rest, the fork runs to either end: nothing is undone twice, or by nobody.

    A fork that is chosen again while the old saga turns around takes over what was handed to it, and nothing else.
    """
    old, new = case.old, case.new
    rests = not old.state.ended_at
    sources = [record.source.partition("/")[2] for record in case.chosen.taken]
    effects = {old.state.key(old.state.plan.by_key[key], FORWARD): key for key in sources}
    before = set(old.world.standing)
    if rests:
        old.fates = dict.fromkeys(old.fates, "done")
        old.add(answer(old.state, Message(id="h", kind="transfer", steps=sources, to="new"), old.now))
        old.play(died_after)
        again = _choose(old, new, case.run_from, case.elsewhere)
        assert [record.source for record in again.taken] == [record.source for record in case.chosen.taken]
        old.play()
        assert old.state.ended_at
        third = _choose(old, start("third", new.plan, {}, old.world), None, set())
        assert not {record.key for record in third.taken} & effects.keys()
    new.fates = dict.fromkeys(case.chosen.runs, "failed" if fork_fails else "done")
    for record in case.chosen.taken:
        new.add(record)
        new.did[record.step] = old.did[record.source.partition("/")[2]]
    new.play()
    assert new.state.ended_at
    reads = {key for key, step in effects.items() if case.old.plan[old.state.plan.by_key[step]].tool == READ}
    by_new = {key for (saga, key), count in new.world.undone.items() if saga == "new" and key in effects}
    undone_by_old = {key for saga, key in new.world.undone if saga == "old"}
    assert not by_new & undone_by_old
    assert all(count == 1 for count in new.world.undone.values())
    failed = new.state.status == "COMPENSATED"
    assert by_new == (set(effects) - reads if failed else set())
    assert failed == (fork_fails and bool(case.chosen.runs))
    if rests:
        own_effects = {key for key in before if _writes(old, key) and key.split(":")[1] not in old.lent}
        assert own_effects - set(effects) <= undone_by_old, "what nobody wants is undone"


def _writes(saga: Played, effect: str) -> bool:
    step = effect.split(":")[1]
    return next(each.tool for each in saga.plan if each.key == step) != READ


# --- the old saga went on without a step -----------------------------------------------------------------------------


def _needs(plan: Plan, key: str) -> set[str]:
    """The steps whose outputs a step binds, at any depth."""
    of = {step.key: step.binds for step in plan}
    found: set[str] = set()
    left = [*of[key]]
    while left:
        at = left.pop()
        if at not in found:
            found.add(at)
            left += of[at]
    return found


@CASES
@given(cases(GOING_ON))
def test_what_is_reused_needs_nothing_that_runs_again(case: Case) -> None:
    """It binds only what is reused; what was passed failed, and the old saga went on without it."""
    taken = {record.step for record in case.chosen.taken}
    old = case.old.state
    for record in case.chosen.taken:
        assert _needs(case.new.plan, record.step) <= taken
        assert case.stands(record.source.partition("/")[2])
    for key in case.chosen.passed:
        assert key in case.chosen.runs
    lost = sum(step.status == "FAILED" and step.settled for step in old.steps)
    assert len(case.chosen.passed) <= lost


@CASES
@given(cases(GOING_ON), st.booleans(), st.integers(0, 40))
def test_a_fork_of_what_went_on_makes_nothing_twice(case: Case, works: bool, died_after: int) -> None:
    """The plan is as it was: nothing that stays is made again, unless the fork is refused. Its own fork runs nothing.

    What came after an effect that is another saga's runs again, like that: such sagas are left out.

    A fork that is chosen again while the old saga turns around takes over what was handed to it, and nothing else.
    """
    old = case.old
    new = start("new", old.plan, {}, old.world)
    chosen = _choose(old, new, None, set())
    if chosen.again or old.lent:
        return
    if not old.state.ended_at:
        old.fates = dict.fromkeys(old.fates, "done")
        sources = [record.source.partition("/")[2] for record in chosen.taken]
        old.add(answer(old.state, Message(id="h", kind="transfer", steps=sources, to="new"), old.now))
        old.play(died_after)
        again = _choose(old, new, None, set())
        assert [record.source for record in again.taken] == [record.source for record in chosen.taken]
        old.play()
    new.fates = dict.fromkeys(chosen.runs, "done") if works else {key: old.fates[key] for key in chosen.runs}
    for record in chosen.taken:
        new.add(record)
        new.did[record.step] = old.did[record.step]
    new.play()
    for step in old.plan:
        kept = old.state.key(old.state.plan.by_key[step.key], FORWARD)
        made = new.state.key(new.state.plan.by_key[step.key], FORWARD)
        if step.tool != READ and kept != made:
            assert not {kept, made} <= old.world.standing, f"{step.key} was made twice"
    if new.state.status == "COMPLETED" and works:
        third = _choose(new, start("third", old.plan, {}, old.world), None, set())
        assert third.runs == []


def test_what_made_up_for_another_step_is_not_taken_over() -> None:
    """Its effect belongs to that step's story: whoever plans the same call wants it once more."""
    plan = (Step("s0", "book", 0), Step("s1", "book", 1))
    old, new = start("old", plan, {}, World()), start("new", plan, {}, World())
    old.play()
    state, prints = folded(old.journal, old.compiled, Growth(old.started, catalog({})))
    state.plan.steps[1] = replace(state.plan.steps[1], compensates=0)

    chosen = fork.choose(state, prints, new.started, new.compiled, Growth(new.started, catalog({})))

    assert ([record.step for record in chosen.taken], chosen.runs, chosen.left) == (["s0"], ["s1"], [])
