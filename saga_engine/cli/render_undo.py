"""The undo of a completed saga as text: what it would undo and leave, and its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from saga_engine.cli.output import shown, table
from saga_engine.cli.progress import Progress
from saga_engine.cli.words import say

if TYPE_CHECKING:
    from saga_engine.core.records import Record
    from saga_engine.runtime.undo import Undo

_MAX_LISTED: Final = 40


def undo_lines(found: dict[str, Any]) -> list[str]:
    """A preview as text: what is undone, in that order, what remains, and what belongs to other sagas."""
    about = say("undo.about", saga=shown(found["saga_id"], 128), of=shown(found["undo_of"], 128))
    rows_of = [*found["undoes"], *found["remains"], *found["elsewhere"]]
    if not rows_of and not found["begun"]:
        about = say("saga", saga=shown(found["undo_of"], 128))  # there is no other saga
    lines = [say("undo.begun", about=about) if found["begun"] else about]
    rows = [_row(each, say("undo.undone")) for each in found["undoes"][:_MAX_LISTED]]
    rows += [_row(each, say("undo.remains")) for each in found["remains"][:_MAX_LISTED]]
    rows += [_row(each, say("undo.elsewhere", owner=each["owner"])) for each in found["elsewhere"][:_MAX_LISTED]]
    if rows:
        titles = [say(f"title.{each}") for each in ("step", "name", "tool", "undo", "what")]
        lines.append(table(titles, rows, limit_chars=100))
    elif not found["begun"]:
        lines.append(say("undo.nothing"))
    more = sum(max(len(found[name]) - _MAX_LISTED, 0) for name in ("undoes", "remains", "elsewhere"))
    if more:
        lines.append(say("undo.hidden", n=more))
    if found["remains"] and not found["begun"]:
        lines.append(say("undo.accept"))
    return lines


def _row(step: dict[str, Any], what: str) -> list[str]:
    return [str(step["step_id"]), step["name"], step["tool"], step["undo"] or "", shown(what, 140)]


#: The records of the other saga with which an undo starts.
_OPENING: Final = frozenset({"CallAdded", "StepsAdded", "EachExpanded", "EffectReused"})


class UndoProgress(Progress):
    """Live progress of an undo. ``undo_id``: the id of its saga, once that is known."""

    def __init__(self, of: str) -> None:
        super().__init__(say("title.undo-of", saga=of), {})
        self.undo_id = ""

    def chosen(self, found: Undo) -> None:
        """Show the preview; nothing has run yet."""
        self.undo_id = found.saga_id
        preview = found.to_dict()
        names = [*preview["undoes"], *preview["remains"], *preview["elsewhere"]]
        steps = [{"step_id": each["step_id"], "name": each["name"], "status": "PENDING"} for each in names]
        self.start_from({"steps": steps})
        for line in undo_lines(preview):
            self.say(line)

    def observe(self, saga_id: str, record: Record) -> None:
        """Process a record of the undo; of the completed saga there is only that it transferred its effects."""
        if saga_id == self.undo_id and type(record).__name__ not in _OPENING:
            super().observe(saga_id, record)
