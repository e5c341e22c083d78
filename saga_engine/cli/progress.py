"""Live progress on stderr, from the records as they become durable.

On a terminal a small window shows the steps in progress; elsewhere there is a line for each change. Both stay small for
a saga of ten thousand steps: the window has a fixed height, and a large saga's lines are counts and exceptional events.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from saga_engine.cli import times
from saga_engine.cli.logs import CHOSEN, reported
from saga_engine.cli.output import note, shown
from saga_engine.cli.owners import process_words
from saga_engine.cli.render import awaited_events, known_by
from saga_engine.cli.words import counted, joined, more, named, say, state, told
from saga_engine.core.session_records import FORKED

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from saga_engine.core.records import Record
    from saga_engine.core.undo_call import UndoCall
    from saga_engine.plan.model import Plan

#: Above this number of steps, routine changes are counted instead of printed.
_TOLD_ONE_BY_ONE: Final = 100
_WINDOW_ROWS: Final = 16
_REFRESH_S: Final = 0.1
_NAME_CHARS: Final = 40
_NOTE_CHARS: Final = 80

#: The records that give their step another state, forward and backward; other records concern the saga.
_STATES: Final = frozenset(
    {
        *("StepIntended", "StepQueued", "StepBegun", "StepSucceeded", "StepWaiting", "EventArrived", "ChildEnded"),
        *("StepSkipped", "OutputChecked", "EffectReused", "StepRetryScheduled", "StepFailed", "StepBlocked"),
        *("FallbackChosen", "StepDeferred", "StepInDoubt", "ProbeIntended", "ProbeFailed", "StepEscalated"),
        *("QuestionResolved", "ApprovalExpired", "StepUnsettled"),
    }
)
_ENDED: Final = frozenset(
    {
        *("StepSucceeded", "EffectReused", "StepFailed", "StepBlocked", "StepEscalated", "ApprovalExpired"),
        *("StepUnsettled", "StepSkipped", "OutputChecked", "ChildEnded"),
    }
)
_ROUTINE: Final = frozenset({"StepIntended", "StepSucceeded", "EffectReused", "StepSkipped"})
#: Questions about a session as a whole.
_OF_SESSION: Final = re.compile(r"session:\d+")
#: Records of alerts and of looks at undos; the final output of the command covers them.
_UNTOLD: Final = frozenset({"AlertIntended", "AlertSent", "SagaStarted", "UndoLooked"})
_STYLES: Final = {
    "StepSucceeded": "green",
    "EffectReused": "green",
    "StepFailed": "red",
    "StepBlocked": "red",
    "ApprovalExpired": "red",
    "StepEscalated": "bold red",
    "StepInDoubt": "magenta",
    "StepUnsettled": "magenta",
}
_MAX_NAMED: Final = 10
#: Records about the saga as a whole that need no value to be told.
_ABOUT_ITSELF: Final = frozenset(
    {
        *("DeadlinePassed", "CallLimitReached", "CompensationRefused", "AlertFailed"),
        *("SagaCompleted", "SagaCompensated", "SagaEscalated", "SagaWaived"),
    }
)


class _Row:
    """One step in one direction."""

    __slots__ = ("attempt", "begun_s", "call", "kind", "label", "note", "since_ms", "state", "took")

    def __init__(self, label: str) -> None:
        self.call: UndoCall | None = None  # of an undo of several calls
        self.label = label
        self.kind = ""
        self.state = ""
        self.attempt = 1
        self.since_ms = 0
        self.begun_s = 0.0
        self.took = ""
        self.note = ""


class Progress:
    """The progress display of a command that runs sagas. An observer; it must be cheap and must not fail."""

    def __init__(self, title: str, names: Mapping[str, str], *, many: bool = False, saga_id: str = "") -> None:
        #: The saga that is followed; empty for many.
        self.saga_id = saga_id
        self.session = False  # whether it belongs to an agent
        self._title = title
        self._names = dict(names)
        self._total = len(names)
        self._many = many
        self._large = many or len(names) > _TOLD_ONE_BY_ONE
        self._active: dict[tuple[str, str], _Row] = {}
        self._ended: deque[_Row] = deque(maxlen=_WINDOW_ROWS)
        #: Calls that were made, by step and direction: the engine's number of an attempt also counts attempts that an
        #: operator or the policy refused.
        self._calls: dict[tuple[str, str], int] = {}
        self._done = 0
        self._undone = 0
        #: Steps that ended without being done: failed, blocked or with an open question.
        self._stuck: set[str] = set()
        #: The sagas whose steps of ``finally`` run: these are not counted.
        self._ending: set[str] = set()
        self._status = ""
        self._now_ms = 0
        self._silent: set[str] = set()
        self._live: Live | None = None
        self._begun_s = time.monotonic()
        #: Records come from a thread, and the window is drawn from the event loop. Always taken before rich's lock.
        self._lock = threading.RLock()

    @classmethod
    def of_plan(cls, saga_id: str, plan: Plan) -> Progress:
        """Progress of a saga that is submitted here."""
        made = cls(say("saga", saga=saga_id), {step.key: step.title for step in plan.steps}, saga_id=saga_id)
        made._names |= {step.key: step.title for step in plan.finally_}
        return made

    def start_from(self, body: Mapping[str, Any]) -> None:
        """Start from the state of a saga before it was resumed here; ``body`` is the object of ``show``."""
        self.session = "session" in body
        self._names = {str(step["step_id"]): step["name"] for step in body["steps"]}
        if "ending" in body:
            self._ending.add(body["saga_id"])
        counted = [step for step in body["steps"] if step.get("kind") != "finally"]
        self._total = sum(step["status"] != "SKIPPED" and "compensates" not in step for step in counted)
        self._large = len(self._names) > _TOLD_ONE_BY_ONE
        self._done = sum(step["status"] == "SUCCEEDED" for step in counted)
        for step in body["steps"]:
            for direction, call in (("forward", step), ("compensate", step.get("compensation") or {})):
                self._calls[str(step["step_id"]), direction] = call.get("attempts", 0)

    @classmethod
    def of_many(cls) -> Progress:
        """Progress of many sagas at once: only exceptional events."""
        return cls(say("title.all-sagas"), {}, many=True)

    # --- records -------------------------------------------------------------------------------------------------

    def observe(self, saga_id: str, record: Record) -> None:
        """Process a record that has become durable."""
        kind = type(record).__name__
        with self._lock:
            self._now_ms = record.at
            if self.saga_id and saga_id.startswith(f"{self.saga_id}."):
                self._child(saga_id, kind, record)
            elif kind in _STATES and not _OF_SESSION.fullmatch(getattr(record, "question", "")):
                self._step(saga_id, kind, record)
            elif kind not in _UNTOLD:
                self._saga(saga_id, kind, record)

    def _child(self, saga_id: str, kind: str, record: Any) -> None:
        """A child of the saga, which has steps of its own: only exceptional events."""
        if kind in _ROUTINE or kind in _UNTOLD:
            return
        words = _saga_words(kind, record) if kind not in _STATES else ""
        if not words:
            row = _Row(say("row.step", step=shown(record.step, 64)))
            row.state = _state_words(kind, backward=getattr(record, "direction", "forward") != "forward")
            row.note = _remark(kind, record)
            words = _plain(row)
        self._print(say("at.saga", time=times.clock(record.at), saga=shown(saga_id), text=words))

    def _step(self, saga_id: str, kind: str, record: Any) -> None:
        if self._many and kind in _ROUTINE:
            return
        direction = getattr(record, "direction", "forward")  # fallbacks and deferrals are only ever forward
        backward = direction != "forward"
        place = (record.step, direction)
        row = self._active.get(place)
        if row is None:
            row = self._active[place] = _Row(self._label(record.step, backward=backward))
        row.kind = kind
        row.state = _state_words(kind, backward=backward)
        row.note = _remark(kind, record)
        call = getattr(record, "call", None) if kind == "StepIntended" else None
        if call is not None:
            if row.call is None or call.number != row.call.number:
                self._calls[place] = 0
            row.call = call
            row.label = say("row.call", label=self._label(record.step, backward=True), n=call.number + 1, of=call.of)
        if kind == "StepIntended":
            self._calls[place] = row.attempt = self._calls.get(place, 0) + 1
            row.since_ms = record.at
            row.begun_s = time.monotonic()
        made = _was_called(kind, record)
        if not made:
            self._calls[place] = max(self._calls.get(place, 0) - 1, 0)
        row.took = times.between(row.since_ms, record.at) if made and kind != "StepIntended" else ""
        ended = kind == "ChildEnded" and record.status == ("COMPENSATED" if backward else "COMPLETED")
        decided = kind == "QuestionResolved" and record.decision not in ("retry", "undo")
        goes_on = row.call is not None and row.call.number + 1 < row.call.of and _one_happened(kind, record)
        if (kind in _ENDED or decided) and not goes_on:
            del self._active[place]
            self._ended.append(row)
            if (
                kind in ("StepSucceeded", "EffectReused")
                or ended
                or (decided and record.decision in ("happened", "undone"))
            ):
                self._done += not backward and saga_id not in self._ending
                self._undone += backward
        if not backward and not self._many and saga_id not in self._ending:
            (self._stuck.add if place not in self._active else self._stuck.discard)(record.step)
            if kind in ("StepSucceeded", "EffectReused") or ended or decided:
                self._stuck.discard(record.step)
        if self._many:
            self._active.clear()
        if self._live is None:
            self._tell_step(saga_id, row, kind, record.at)

    def _tell_step(self, saga_id: str, row: _Row, kind: str, at_ms: int) -> None:
        if self._large and kind in _ROUTINE:
            every = max(self._total // 20, 1)
            count = self._undone or self._done
            if kind == "StepSucceeded" and count % every == 0:
                note(f"{times.clock(at_ms)}  {self._counts()}")
            return
        text = say("of-saga", saga=shown(saga_id), text=_plain(row)) if self._many else _plain(row)
        note(f"{times.clock(at_ms)}  {text}")

    def _saga(self, saga_id: str, kind: str, record: Any) -> None:
        words = _saga_words(kind, record)
        self._status = words
        if kind in ("StepsAdded", "CompensationProposed", "CallAdded", "EachExpanded") and not self._many:
            self._learn(kind, record)
        if kind == "FinallyStarted":
            self._ending.add(saga_id)
        self._print(say("at.saga", time=times.clock(record.at), saga=shown(saga_id), text=words))

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(line)
        else:
            note(line)

    def _learn(self, kind: str, record: Any) -> None:
        """Names of steps that were added. A compensating step is not one that the saga still has to do."""
        if kind == "CallAdded":
            added = {record.step: record.tool}
        elif kind == "EachExpanded":
            name = self._names.get(record.step, "")
            added = {f"{record.step}[{number}]": name for number in range(len(record.items))}
        else:
            added = {key: str(step.get("name", "")) for key, step in _keyed(record.steps)}
        self._names = {**self._names, **added}
        if kind != "CompensationProposed":
            self._total += len(added) - len(getattr(record, "dropped", ()))

    def _label(self, step: str, *, backward: bool) -> str:
        name = self._names.get(step, "")
        about = f" {shown(name, _NAME_CHARS)}" if name and name != step else ""
        return say("row.undo-step" if backward else "row.step", step=shown(step)) + about

    def _elapsed(self) -> str:
        return times.duration((time.monotonic() - self._begun_s) * 1000)

    def _counts(self) -> str:
        done = say("counts.of" if self._total else "counts", done=self._done, of=self._total)
        undone = say("counts.undone", n=self._undone) if self._undone else ""
        pending = self._total - self._done - len(self._active) - len(self._stuck)
        left = say("counts.pending", n=pending) if pending > 0 and not self._undone else ""
        return joined(done, undone, say("counts.active", n=len(self._active)), left)

    # --- lines ---------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Print our own line, above the window."""
        with self._lock:
            if self._live is not None:
                self._live.console.print(text)
            else:
                note(text)

    def waiting_for_owner(self, saga_id: str, owner: str, seconds: float) -> None:
        """Note that a resume has to wait for another owner's lease to end."""
        span = times.duration(seconds * 1000)
        self.say(say("owned", saga=shown(saga_id), owner=process_words(owner), span=span))

    def no_worker(self, saga_id: str) -> None:
        """Note that no worker of another runtime answers for a saga. It is printed once."""
        if saga_id not in self._silent:
            self._silent.add(saga_id)
            self.say(say("no-worker", saga=shown(saga_id)))

    @contextmanager
    def reported_logs(self) -> Iterator[None]:
        """Print the engine's log as our own lines: its quotes come from tools and are made safe first."""
        with reported(self.say):
            yield

    def leave(self) -> None:
        """Restore the terminal, because the process ends at once."""
        if self._live is not None:
            self._live.console.show_cursor()

    # --- the window ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def displayed(self) -> AsyncIterator[None]:
        """Show the window during the block, if the output is a terminal."""
        if self._many or CHOSEN.as_json or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        # Drawn from this loop and not from rich's thread, which would read the rows while they change.
        with Live(console=console, auto_refresh=False, get_renderable=self._window) as live:
            self._live = live
            drawing = asyncio.create_task(self._draw(live), name="saga-progress")
            try:
                yield
            finally:
                drawing.cancel()
                await asyncio.gather(drawing, return_exceptions=True)
                with self._lock:
                    live.refresh()
                    self._live = None

    async def _draw(self, live: Live) -> None:
        while True:
            with self._lock:
                live.refresh()
            await asyncio.sleep(_REFRESH_S)

    def _window(self) -> RenderableType:
        """The last steps that ended and those in progress, newest below, in a fixed height."""
        from rich.text import Text

        room = max(4, min(_WINDOW_ROWS, (self._live.console.height if self._live else 24) - 4))
        active = list(self._active.values())[-(room - 2) :]
        ended = list(self._ended)[-(room - len(active)) :]
        lines = [
            Text(
                say("times", times=say("row", label=shown(self._title), text=self._counts()), standing=self._elapsed()),
                style="bold",
                no_wrap=True,
                overflow="ellipsis",
            )
        ]
        for row in ended + active:
            style = _STYLES.get(row.kind, "" if row.kind != "StepIntended" else "cyan")
            begun = row.kind == "StepIntended"
            since = times.duration((time.monotonic() - row.begun_s) * 1000) if begun else ""
            lines.append(Text("  " + joined(_plain(row), since), style=style, no_wrap=True, overflow="ellipsis"))
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def _plain(row: _Row) -> str:
    parts = [row.state]
    if row.attempt > 1:
        parts.append(say("row.attempt", n=row.attempt))
    if row.took and row.took != "-":
        parts.append(row.took)
    return say("row.note" if row.note else "row", label=row.label, text=joined(*parts), note=row.note)


def _state_words(kind: str, *, backward: bool) -> str:
    return say(f"{'undo' if backward else 'run'}.{kind}")


def _by(who: str | None) -> str:
    return say("by", who=shown(who, 40)) if who else ""


def _was_called(kind: str, record: Any) -> bool:
    """False if the attempt ended before the tool was called: it waits for an answer first, or it was refused."""
    if kind == "StepEscalated":
        return bool(record.kind not in ("approval", "drift"))
    if kind == "StepSucceeded" and record.via == "unchanged":
        return False
    return kind != "StepBlocked" and getattr(record, "counted", True) is not False


def _one_happened(kind: str, record: Any) -> bool:
    """Whether a call of an undo happened, so that the next one follows if it was not the last."""
    if kind == "StepSucceeded":
        return record.via not in ("unchanged", "nothing")
    return kind == "QuestionResolved" and record.decision == "happened"


def _remark(kind: str, record: Any) -> str:
    """An additional remark about a step."""
    if kind == "QuestionResolved":
        return shown(record.decision, 30) + _by(record.by)
    if kind == "StepEscalated":
        return joined(shown(record.kind, _NOTE_CHARS), say("rule", rule=shown(record.rule, 40)) if record.rule else "")
    if kind == "StepSucceeded" and record.via != "call":
        return known_by(record.via, record.source, record.age_ms)
    if kind == "StepWaiting" and record.on == "child":
        return say("for-saga", saga=shown(record.about["saga"], _NOTE_CHARS))
    if kind == "ChildEnded":
        left = say("child-left", effects=shown(", ".join(record.left), _NOTE_CHARS)) if record.left else ""
        how = state(record.status) if record.status else say("child-no")
        return say("of-saga", saga=shown(record.saga, _NOTE_CHARS), text=how) + (left or _because(record.error))
    if kind == "StepSkipped":
        return shown(record.why, _NOTE_CHARS)
    if kind == "StepWaiting":
        return _awaited(record)
    if kind == "EventArrived":
        return say("event-came", n=record.entry + 1, source=shown(record.source, 40))
    if kind == "EffectReused":
        return say("effect-of", source=shown(record.source, _NOTE_CHARS))
    if kind == "ApprovalExpired":
        return say("no-answer")
    error = getattr(record, "error", None)
    if error is None:
        return ""
    which = say("fallback.then", n=record.fallback) if kind == "FallbackChosen" else ""
    rule = say("rule.then", rule=shown(record.rule, 40)) if kind == "StepBlocked" and record.rule else ""
    delay = getattr(record, "delay_ms", 0)
    wait = say("next-attempt", span=times.duration(delay)) if delay else ""
    return f"{which}{rule}{_error_words(error)}{wait}"


def _message(error: Any) -> str:
    return shown(told({"error_code": error.error_code, "message": error.message}), _NOTE_CHARS)


def _error_words(error: Any) -> str:
    return say("said", code=shown(error.error_code, 40), message=_message(error))


def _because(error: Any) -> str:
    return "" if error is None else say("because", why=_message(error))


def _awaited(record: Any) -> str:
    """What a step waits for, and until when."""
    what = awaited_events(record.about) if record.on == "event" else ""
    until = "" if record.due_ms is None else say("until", when=times.local(record.due_ms))
    return joined(what, until)


def _keyed(steps: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The steps of a record with their keys. A value too large for the record is not available."""
    for step in steps or ():
        if isinstance(step, Mapping) and "step_id" in step:
            yield str(step["step_id"]), step


def _named(steps: Any) -> str:
    keys = [key for key, _ in _keyed(steps)]
    listed = ", ".join(shown(key, 64) for key in keys[:_MAX_NAMED]) + more(len(keys) - _MAX_NAMED)
    return counted("steps", len(keys), steps=listed)


def _planner_words(kind: str, record: Any) -> str:
    """A request to a model, and its answer."""
    step = shown(record.step, 64)
    if kind == "PlannerAsked":
        if record.purpose == "replan":
            return say("replan", step=step)
        return say("ask-compensation", step=step)
    if kind == "PlannerGaveUp":
        said = _error_words(record.error)
        if record.delay_ms:
            return say("planner-away", step=step, error=said, span=times.duration(record.delay_ms))
        return say("planner-none", step=step, error=said)
    return say("planner-does" if record.auto else "planner-proposes", step=step, steps=_named(record.steps))


def _session_words(kind: str, record: Any) -> str:
    """An action of an agent without a plan."""
    if kind == "CallAdded":
        return say("agent-calls", tool=shown(record.tool or record.builtin, 80), step=shown(record.step, 64))
    if kind == "PartialCompensationRequested":
        return say("agent-returns", steps=_named([{"step_id": step} for step in record.steps]))
    if kind == "SessionKept":
        if record.question == FORKED:
            return say("agent-awaited")
        return say("agent-failed", why=_because(record.error))
    return say("agent-closed", why=say("because", why=shown(record.reason, 40)) if record.reason else "")


def _saga_words(kind: str, record: Any) -> str:
    """A record about the saga as a whole, as text."""
    if kind == "CompensationStarted":
        return say("compensating", reason=named("reason", shown(record.reason, 40)))
    if kind == "CompensationRequested":
        return say("settled-by-undo", step=shown(record.step, 64))
    if kind == "SagaResumed":
        return say("resumed")
    if kind == "UndoRequested":
        return say("undo-asked", by=_by(record.by))
    if kind == "CancelRequested":
        return say("cancel-asked", by=_by(record.by))
    if kind in ("PlannerAsked", "PlannerGaveUp", "CompensationProposed"):
        return _planner_words(kind, record)
    if kind in ("CallAdded", "PartialCompensationRequested", "SessionClosed", "SessionKept"):
        return _session_words(kind, record)
    if kind == "QuestionResolved":
        return say("session-answered", decision=shown(record.decision, 40), by=_by(record.by))
    if kind == "EffectTransferred":
        steps = _named([{"step_id": step} for step in record.steps])
        return say("transferred", steps=steps, saga=shown(record.to, 128))
    if kind == "EachExpanded":
        return counted("expanded", len(record.items), step=shown(record.step, 64))
    if kind == "StepsAdded":
        gone = _named([{"step_id": key} for key in record.dropped])
        dropped = say("added.dropped", steps=gone) if record.dropped else ""
        reasons = {shown(key, 64): shown(reason, _NOTE_CHARS) for key, reason in record.reasons.items()}
        why = "".join(say("added.why", step=key, why=reason) for key, reason in reasons.items())
        return say("added", steps=_named(record.steps), by=_by(record.by), dropped=dropped, why=why)
    if kind == "FinallyStarted":
        return say("finally", end=state(shown(record.end, 40)))
    if kind == "MessageRefused":
        return say("message-refused", why=shown(record.reason, 200))
    return say(f"saga.{kind}") if kind in _ABOUT_ITSELF else kind
