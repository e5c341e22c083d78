"""What a call depends on, in one hash: the tool, its declaration, the params, and the calls it came after.

The fingerprint of a step's forward call is the SHA-256, in hex, of the canonical JSON (``plan.values.canonical``) of

    ["saga-fingerprint/1", TOOL, VERSION, PARAMS, [UPSTREAM, …]]

``TOOL`` is the name of the tool that is called: the fallback's, if one was taken. A built-in step has ``=`` and its
word. ``VERSION`` is the digest of its
declaration as it was journalled on the day (``SagaStarted.tools`` and its likes; it covers the schemas, the effect and
the declared version), or an empty text if none was. ``PARAMS`` are the params of the call as the journal has them:
bindings filled in, secrets as their markers. ``UPSTREAM`` are the fingerprints of the steps of ``upstream``, sorted. A
step that comes after one without a fingerprint has none. One that failed before it called anything has that of the
params ``null``, after ``failed:``; one that was skipped the same, after ``skipped:``.

So a change anywhere upstream changes all fingerprints downstream, and those of independent branches stay. docs/trace.md
tells the same to readers in other languages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from saga_engine.core import records as r
from saga_engine.core.codec import abridge, refs_of
from saga_engine.core.effects import FORWARD
from saga_engine.core.fold import fold
from saga_engine.core.plan_growth import Growth
from saga_engine.core.state import State, StateScope
from saga_engine.core.steps import ask, compute, each
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.values import canonical

FORMAT: Final = "saga-fingerprint/1"


def fingerprint(tool: str, version: str, params: Any, upstream: Iterable[str] = ()) -> str:
    """The fingerprint of one call; see the module's docstring. Raises ``ValueNotJson``."""
    # Put together from its parts: the whole nests one level deeper than params may.
    parts = (FORMAT, tool, version, params, sorted(upstream))
    return sha256(b"[" + b",".join(canonical(part) for part in parts) + b"]").hexdigest()


def upstream(state: State, index: int) -> Sequence[int]:
    """The steps that a step comes after: its ``deps``. The items of a list come after what the list comes after.

    The order among them is none: an item that is new, changed or failed changes nothing about the others. The step that
    has the list comes after all of them.
    """
    step = state.plan.steps[index]
    parent = step if step.item is None else state.plan.steps[step.item.parent]
    items = state.lists.get(parent.index)
    if items is None:
        return step.deps
    own = range(parent.items, parent.items + len(items))
    before = [other for other in parent.deps if other not in own]
    return before if step.item is not None else [*before, *own]


class Fingerprints:
    """The fingerprints of one saga's steps, by index, as its journal is folded.

    A step has one from its first forward intent on, or from the moment it is reused.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[int, str] = {}

    def note(self, state: State, record: r.AnyRecord) -> None:
        """Read a record; ``state`` is the one before it, or after it. Records that are no calls change nothing."""
        if isinstance(record, r.EffectReused):
            self._found[state.plan.by_key[record.step]] = record.fingerprint
        elif isinstance(record, r.StepEscalated) and record.kind == "ask":
            index = state.plan.by_key[record.step]
            self._found.pop(index, None)
            made = self.of_call(state, index, ask.as_params(record))
            if made is not None:
                self._found[index] = made
        elif isinstance(record, r.StepWaiting) and record.direction == FORWARD:
            index = state.plan.by_key[record.step]
            self._found.pop(index, None)
            made = self.of_call(state, index, state.plan.steps[index].params.resolve(StateScope(state)))
            if made is not None:
                self._found[index] = made
        elif isinstance(record, r.StepSkipped):
            self.skip(state, state.plan.by_key[record.step])
        elif isinstance(record, r.StepFailed) and record.direction == FORWARD:
            self.fail(state, state.plan.by_key[record.step])
        elif isinstance(record, r.StepSucceeded) and record.via in (compute.VIA, each.VIA):
            index = state.plan.by_key[record.step]
            word = state.plan.steps[index].builtin
            made = None if "output" in refs_of(record) else self.of_call(state, index, {word: record.output})
            if made is not None:
                self._found[index] = made
        elif isinstance(record, r.StepIntended) and record.direction == FORWARD:
            index = state.plan.by_key[record.step]
            made = None if "params" in refs_of(record) else self.of_call(state, index, intended_params(state, record))
            if made is None:
                self._found.pop(index, None)
            else:
                self._found[index] = made

    def of_call(self, state: State, index: int, params: Any) -> str | None:
        """The fingerprint that a step's forward call would have with these params; None: its deps have none."""
        before = [self._found.get(other) for other in upstream(state, index)]
        if None in before:
            return None
        builtin = state.plan.steps[index].builtin
        tool = f"={builtin}" if builtin else state.acting(index).tool  # no tool's name begins so
        return fingerprint(tool, state.tools.get(tool, ""), params, [each for each in before if each is not None])

    def skip(self, state: State, index: int) -> None:
        """The conditions of a step do not hold; what depends on it has a fingerprint all the same."""
        made = self.of_call(state, index, None)
        if made is not None:
            self._found[index] = f"skipped:{made}"

    def fail(self, state: State, index: int) -> None:
        """The step failed. If it called nothing, what depends on it has a fingerprint all the same."""
        if index not in self._found and (made := self.of_call(state, index, None)) is not None:
            self._found[index] = f"failed:{made}"

    def give(self, index: int, made: str | None) -> None:
        """The step counts as having this fingerprint, whatever it calls; None: as having none."""
        self._found.pop(index, None)
        if made is not None:
            self._found[index] = made

    def get(self, index: int) -> str | None:
        """The fingerprint of a step; None if it has none."""
        return self._found.get(index)

    def by_key(self, state: State) -> dict[str, str]:
        """All of them, by the steps' keys."""
        return {state.plan.steps[index].key: made for index, made in self._found.items()}


def intended_params(state: State, record: r.StepIntended) -> Any:
    """The params of the call that an intent orders. Without its own, it has those of its template."""
    if record.params is not None:
        return record.params
    index = state.plan.by_key[record.step]
    serving = state.serving(index, record.direction)
    return serving.params.resolve(StateScope(state))


def folded(
    records: Iterable[r.AnyRecord], plan: CompiledPlan, growth: Growth | None = None
) -> tuple[State, Mapping[str, str]]:
    """The folded state of a journal, and the fingerprints of its steps by key.

    The records need their params whole; outputs may be references. Raises ``JournalUnreadable``.
    """
    found = Fingerprints()
    state = fold(map(abridge, records), plan, growth, note=found.note)
    return state, found.by_key(state)
