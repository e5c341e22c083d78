"""The loop of a saga, as a machine without clock, dice, disk or network: every driver of a saga stands on it.

The machine is told what comes from outside: an outcome (``learn``), a message (``hear``), a call that waits or begins
(``note``), any other fact (``take``). ``ready`` adds what follows from it, and returns all that must be durable now.
Effects come only out of ``durable``, which takes what ``ready`` returned and is called when that has been written. So
the order of the steps is a matter of types: without a durable record there is no effect to perform (row 1 of
docs/guarantees.md). If the write fails, the machine is dropped, and the journal counts.

*Looks* are the only effects without a record: they read the value that a call is about to change, or look whether an
undo did what it says (``core.verified``). They change nothing,
so nothing is lost with them. Until a look has an outcome, the intent that needs it is left out of what is decided, and
what nobody uses at once is forgotten: it would be too old.

The form is that of etcd's raft library: what is to be written and what is to be done, in one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from saga_engine.core import records as r
from saga_engine.core.decide import Capabilities, decide
from saga_engine.core.effects import (
    COMPENSATE,
    Alert,
    AnyEffect,
    AskPlanner,
    CallTool,
    Direction,
    ErrorInfo,
    LookAfterUndo,
    NotDone,
    Outcome,
    Probe,
    ReadBefore,
    Unknown,
)
from saga_engine.core.evolve import evolve
from saga_engine.core.expected import expects, known
from saga_engine.core.images import Image, note_of, wants_image
from saga_engine.core.interpret import Advice, interpret, interpret_advice, interpret_alert, interpret_read
from saga_engine.core.messages import Message, answer, answer_to
from saga_engine.core.state import State
from saga_engine.core.verified.looking import due, interpret_look, marked
from saga_engine.plan.tool_spec import ToolCatalog

#: What an effect came to: a call's or a probe's outcome, a model's advice, why operators could not be told, an image.
Result = Outcome | Advice | ErrorInfo | Image | None
#: Whether a round of decisions may be recorded now. One that may not is decided anew later.
Admits = Callable[[Sequence[r.AnyRecord]], bool]


class Means(Protocol):
    """What the process that drives a saga can do."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do beside calling tools."""

    @property
    def remind_ms(self) -> int:
        """After how long operators are reminded of a question, in ms; 0: never."""

    @property
    def catalog(self) -> ToolCatalog | None:
        """The tools that it has. None: it asks no model."""


class FixedMeans(NamedTuple):
    """Means that do not change."""

    capabilities: Capabilities = Capabilities()
    remind_ms: int = 0
    catalog: ToolCatalog | None = None


class Ready(NamedTuple):
    """What must be durable before anything more is done."""

    records: Sequence[r.AnyRecord]
    #: Looks that are to be made, beside those that are under way.
    looks: Sequence[ReadBefore | LookAfterUndo] = ()
    #: Whether anything waits for a look.
    held: bool = False


class Machine:
    """One saga, as its driver has it."""

    __slots__ = ("_looked", "_looking", "_records", "decided_at", "looks", "means", "state")

    def __init__(self, state: State, means: Means) -> None:
        self.state = state
        #: When something was decided last, in ms. What has become due since then has not been considered yet.
        self.decided_at = 0
        self.means = means
        #: Whether undos are looked at.
        self.looks = True
        self._records: list[r.AnyRecord] = []
        #: What looks have shown since the last decision, with the dice of each.
        self._looked: dict[int, tuple[Image | NotDone, float]] = {}
        #: The looks that are under way.
        self._looking: set[ReadBefore | LookAfterUndo] = set()

    # --- what comes from outside -----------------------------------------------------------------------------------

    def begin(self, first: Iterable[r.AnyRecord]) -> None:
        """The records that start or resume the saga: the state has them in it, and they are not durable yet."""
        self._records.extend(first)

    def take(self, records: Iterable[r.AnyRecord]) -> None:
        """Facts that are recorded as they are. Each is in the state before the next one is asked for."""
        for record in records:
            evolve(self.state, record)
            self._records.append(record)

    def hear(self, message: Message | bytes, now: int) -> r.AnyRecord:
        """Answer a message; one in bytes may be unreadable, and is then refused."""
        answers = answer_to if type(message) is bytes else answer
        record = answers(self.state, message, now)  # type: ignore[arg-type]
        record = marked(self.state, record) if self.looks and self.state.plan.looks else record
        self.take([record])
        return record

    def note(self, step: str, direction: Direction, now: int, *, waits: bool, image: Image | None = None) -> None:
        """A call waits for a guard; or it waits no more, and is made once that is durable."""
        self.take([note_of(now, step, direction, image, waits=waits)])

    def learn(self, effect: AnyEffect, result: Result, now: int, dice: float) -> None:
        """An effect has an outcome. ``dice``: a number between 0 and 1, drawn once for each outcome."""
        state, kind = self.state, type(effect)
        if kind is ReadBefore:
            step = effect.step  # type: ignore[union-attr]
            self._looking.discard(effect)
            # A defect of the engine counts as a look that failed.
            image = NotDone(result.error, retryable=False) if type(result) is Unknown else result
            self._looked[step] = image, dice  # type: ignore[assignment]
            return
        record: r.AnyRecord
        if kind is LookAfterUndo:
            self._looking.discard(effect)
            record = interpret_look(state, effect, result, now, dice)  # type: ignore[arg-type]
        elif kind is Alert:
            record = interpret_alert(state, effect.question, result, now, dice, self.means.remind_ms)  # type: ignore[union-attr, arg-type]
        elif kind is AskPlanner:
            catalog = self.means.catalog
            assert catalog is not None, "a model was asked"
            record = interpret_advice(state, effect, result, catalog, self.means.capabilities, now)  # type: ignore[arg-type]
        elif state.plan.looks:
            record = self.meaning(effect, result, now, dice)
        else:
            record = interpret(state, effect, result, now, dice)  # type: ignore[arg-type]
        evolve(state, record)
        self._records.append(record)

    def meaning(self, effect: AnyEffect, result: Result, now: int, dice: float) -> r.AnyRecord:
        """What the outcome of a call or a probe means; nothing changes yet."""
        state = self.state
        record: r.AnyRecord = interpret(state, effect, result, now, dice)  # type: ignore[arg-type]
        looks = state.plan.looks and self.looks and effect.direction == COMPENSATE  # type: ignore[union-attr]
        return marked(state, record) if looks else record

    def meant(self, record: r.AnyRecord) -> None:
        """The record of an outcome."""
        evolve(self.state, record)
        self._records.append(record)

    # --- what follows ----------------------------------------------------------------------------------------------

    def said(self) -> Ready:
        """What must be durable, without anything more that follows from it."""
        return Ready(self._records)

    def ready(self, now: int, admits: Admits | None = None, first: Sequence[r.AnyRecord] | None = None) -> Ready:
        """Decide until nothing more follows; each round is evolved before the next. ``first``: a round decided before.

        If something raises while a round is decided, those before it stand, and this may be called again.
        """
        state, records, capabilities = self.state, self._records, self.means.capabilities
        self.decided_at = now
        wanted: set[int] = set()
        while found := decide(state, now, capabilities) if first is None else first:
            first = None
            if admits is not None and not admits(found):
                break
            if state.plan.images and not (found := self._seen(found, now, wanted)):
                break
            for record in found:
                evolve(state, record)
            records.extend(found)
        if not (wanted or self._looked or state.looks):
            return Ready(records)
        self._looked.clear()
        after = due(state, now)
        looks: list[ReadBefore | LookAfterUndo] = [*map(ReadBefore, wanted), *after]
        looks = [look for look in looks if look not in self._looking]
        return Ready(records, looks, bool(wanted or after))

    def due(self, *, waits: bool = True) -> int | None:
        """When something is due that was not at the last decision (Unix ms); ``waits`` as of ``State.next_due``."""
        return self.state.next_due(self.decided_at, waits=waits)

    def durable(self, ready: Ready) -> list[AnyEffect]:
        """What is to be done now that this has been written."""
        assert ready.records is self._records, "it is not what was to be made durable last"
        self._records = []
        places = self.state.plan.by_key
        effects: list[AnyEffect] = []
        for record in ready.records:  # (For each append: without a function of its own.)
            kind = type(record)
            if kind is r.StepIntended:
                effects.append(CallTool(places[record.step], record.direction, record.attempt))
            elif kind is r.ProbeIntended:
                effects.append(Probe(places[record.step], record.direction, record.attempt))
            elif kind is r.AlertIntended:
                effects.append(Alert(record.question, record.attempt, record.round))
            elif kind is r.PlannerAsked:
                effects.append(AskPlanner(places[record.step], record.purpose))
        if ready.looks:
            effects += ready.looks
            self._looking.update(ready.looks)
        return effects

    def _seen(self, found: Sequence[r.AnyRecord], now: int, wanted: set[int]) -> list[r.AnyRecord]:
        """What is decided, with what its calls are about to change; intents that still need to know that are left out.

        They are decided again once it has been read.
        """
        out: list[r.AnyRecord] = []
        for record in found:
            if type(record) is not r.StepIntended or not wants_image(self.state, record):
                out.append(record)
                continue
            step = self.state.plan.by_key[record.step]
            if expects(self.state, step):
                out.append(interpret_read(self.state, record, known(self.state, step), now, 0.0))
            elif step in self._looked:
                image, dice = self._looked.pop(step)
                wanted.discard(step)
                out.append(interpret_read(self.state, record, image, now, dice))
            else:
                wanted.add(step)
        return out


def turn(machine: Machine, now: int, admits: Admits | None = None) -> list[AnyEffect]:
    """Decide, and do what follows at once: for drivers whose journal is a list."""
    return machine.durable(machine.ready(now, admits))
