"""A fork as text: the steps that it would reuse, run and leave, and the progress of two sagas at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.analysis.session_fork import SessionForkPlan
from saga_engine.cli import times
from saga_engine.cli.output import shown, table
from saga_engine.cli.progress import Progress
from saga_engine.cli.words import counted, more, say

if TYPE_CHECKING:
    from saga_engine.core.records import Record
    from saga_engine.runtime.fork import Fork

_SHORT: Final = 12
_MAX_LISTED: Final = 40


def fork_lines(fork: Fork) -> list[str]:
    """The reused steps with their origin, the steps that run, and those that remain with the other saga."""
    key = "fork.session" if fork.session else "fork.saga"
    about = say(key, saga=shown(fork.saga_id), of=shown(fork.of))
    lines = [say("undo.begun", about=about) if fork.begun else about]
    names = {step.key: step.name for step in fork.compiled.steps}
    tools = {step.key: step.tool for step in fork.compiled.steps}
    rows = [
        [
            each.step,
            names[each.step],
            tools[each.step],
            say("fork.reused"),
            each.source,
            each.fingerprint[:_SHORT],
        ]
        for each in fork.plan.taken[:_MAX_LISTED]
    ]
    passed = set(fork.plan.passed)
    what = {True: say("fork.again"), False: say("fork.runs")}
    rows += [[key, names[key], tools[key], what[key in passed], "", ""] for key in fork.plan.runs[:_MAX_LISTED]]
    if rows:
        titles = [say(f"title.{each}") for each in ("step", "name", "tool", "what", "from", "fingerprint")]
        lines.append(table(titles, rows, limit_chars=100))
    else:
        lines.append(say("fork.nothing"))
    lines += list(_more(fork))
    remain = fork.plan.remain if isinstance(fork.plan, SessionForkPlan) and fork.transfer != "none" else []
    for keys, fate in (
        ([key for key in fork.plan.left if key not in remain], say(f"fork.fate.{fork.transfer}")),
        (remain, say("fork.no-undo")),
    ):
        if keys:
            lines.append(say("fork.left", saga=shown(fork.of), steps=_listed(keys), fate=fate))
    return lines


def _more(fork: Fork) -> Iterator[str]:
    for what, steps in (("reused", fork.plan.taken), ("run", fork.plan.runs)):
        if len(steps) > _MAX_LISTED:
            yield say(f"fork.more-{what}", n=len(steps) - _MAX_LISTED)


def _listed(keys: Sequence[str]) -> str:
    listed = ", ".join(shown(key, 64) for key in keys[:_MAX_LISTED]) + more(len(keys) - _MAX_LISTED)
    return counted("steps", len(keys), steps=listed)


class ForkProgress(Progress):
    """Live progress of a fork. The other saga's changes are printed as lines of their own.

    ``fork_id`` is the new saga's id once it is chosen, before that an empty text.
    """

    def __init__(self, of: str) -> None:
        super().__init__(say("title.fork-of", saga=of), {})
        self.fork_id = ""
        self._of = Progress.of_many()

    def chosen(self, fork: Fork) -> None:
        """Show the preview; nothing has run yet."""
        self.fork_id = fork.saga_id
        steps = [{"step_id": step.key, "name": step.name, "status": "PENDING"} for step in fork.compiled.steps]
        self.start_from({"steps": steps, **({"session": "open"} if fork.session else {})})
        for line in fork_lines(fork):
            self.say(line)

    def observe(self, saga_id: str, record: Record) -> None:
        """Process a record of either saga."""
        if saga_id == self.fork_id:
            if not self.session or type(record).__name__ in ("EffectReused", "SessionKept"):
                super().observe(saga_id, record)  # of a session, the other records are copies: its agent is not here
        else:
            self._other(saga_id, record)

    def _other(self, saga_id: str, record: Any) -> None:
        kind = type(record).__name__
        undone = kind == "StepSucceeded" and record.direction != "forward"
        if undone:
            text = say("fork.undone", step=shown(record.step, 64))
            self.say(say("at.saga", time=times.clock(record.at), saga=shown(saga_id), text=text))
        else:
            self._of.observe(saga_id, record)
