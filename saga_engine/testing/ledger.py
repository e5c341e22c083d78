"""The ledger of an external system: its requests, its effects, and whether the engine's report agrees.

A tool of a test writes two lines: *sent*, as soon as a request arrives, and *applied*, when its effect happens. They
are separate, because processes die between them. Afterwards ``compare`` checks the engine's report against the lines
and names every disagreement::

    ledger = OutsideLedger("world.db")

    @tool(undo="cancel", probe="find")
    def book(item: str, ctx: ToolContext) -> dict:
        ledger.sent(ctx, "book", {"item": item})
        return ledger.apply(ctx, "book", {"ref": item})

    @tool
    def cancel(ref: str, ctx: ToolContext) -> dict:
        ledger.sent(ctx, "cancel", {"ref": ref})
        return ledger.apply(ctx, "cancel", {"cancelled": ref})

    @tool(effect="read")
    def find(ctx: ToolContext) -> dict | None:
        effect = ledger.find(ctx.idempotency_key)
        return effect.output if effect else None

The ledger is one SQLite file. Every line is a transaction, so it is whole or absent, whichever process is killed in the
middle; any number of threads and processes may write. It is not synced: it outlives a killed process, not a power cut.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from saga_engine.core import transitions as t
from saga_engine.errors import ToolError
from saga_engine.tools.context import ToolContext

What = Literal["sent", "applied"]

_SCHEMA = """
CREATE TABLE lines (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    what TEXT NOT NULL CHECK (what IN ('sent', 'applied', 'by-hand')),
    saga_id TEXT NOT NULL,
    step_id TEXT NOT NULL,
    direction TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    key TEXT NOT NULL,
    tool TEXT NOT NULL,
    value TEXT NOT NULL,
    undoes TEXT NOT NULL
);
CREATE INDEX by_key ON lines (key, what);
CREATE INDEX by_undone ON lines (undoes, what);
CREATE INDEX by_step ON lines (saga_id, step_id, direction, what);
"""
#: How long a line waits for another process's line, in seconds.
_PATIENCE_S = 60.0
_COLUMNS = "seq, what, saga_id, step_id, direction, attempt, epoch, key, tool, undoes, value"


class Line(NamedTuple):
    """One line of the ledger. ``value`` is the params of a sent line, or the output of an applied one.

    ``undoes``: the key of the call that this one undoes, be it an undo of the engine's or a call of the saga itself.
    """

    seq: int
    what: str
    saga_id: str
    step_id: str
    direction: str
    attempt: int
    epoch: int
    key: str
    tool: str
    undoes: str
    value: Any

    @property
    def output(self) -> Any:
        """The answer to the call (of an applied line)."""
        return self.value


class OutsideLedger:
    """The ledger of an external system; see the module. Opening the same path again continues the same ledger."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            _create(self.path)

    # --- written by tools ----------------------------------------------------------------------------------------

    def sent(self, ctx: ToolContext, tool: str, params: Any = None) -> Line:
        """Enter that a request has arrived. Nothing has been done yet."""
        with self._writing() as db:
            return _add(db, "sent", ctx, tool, params)

    def apply(self, ctx: ToolContext, tool: str, output: Any = None, *, once: bool = True) -> Any:
        """Enter that the effect happens; returns the answer to the call.

        With ``once`` this system honours keys: a key that it has seen gets the first answer and no second effect. A
        forward call whose undo has been applied already is refused with ``ToolError``, so that a delayed request cannot
        restore a cancelled effect. Without ``once`` every call is an effect, as at a tool that honours no keys.

        Raises ``ValueError`` if the request was not entered with ``sent`` first.
        """
        with self._writing() as db:
            if not _lines(db, "what = 'sent' AND key = ?", ctx.idempotency_key):
                raise ValueError(f"the request {ctx.idempotency_key} was applied before it was sent: call sent() first")
            earlier = _lines(db, "what = 'applied' AND key = ?", ctx.idempotency_key) if once else ()
            if earlier:
                return earlier[0].value
            place = (ctx.saga_id, ctx.step_id)
            undone = "what = 'applied' AND saga_id = ? AND step_id = ? AND direction = 'compensate'"
            if once and ctx.direction == "forward" and (_lines(db, undone, *place) or _taken_back(db, ctx)):
                raise ToolError("this request has been cancelled already", error_code="cancelled", retryable=False)
            return _add(db, "applied", ctx, tool, output).value

    def by_hand(self, saga_id: str, step_id: int | str, note: str = "") -> Line:
        """Enter that an operator undid a step's effect, without the engine."""
        with self._writing() as db:
            return _add(db, "by-hand", ToolContext(saga_id, str(step_id), "compensate", 0, "", 0, None), "", note)

    # --- read by probes and tests --------------------------------------------------------------------------------

    def find(self, key: str) -> Line | None:
        """The effect of the call with this key; None if it did not happen."""
        with closing(self._connect()) as db:
            found = _lines(db, "what = 'applied' AND key = ?", key)
        return found[0] if found else None

    def lines(self, saga_id: str | None = None, *, what: What | None = None) -> Sequence[Line]:
        """All lines in order, or those of one saga or of one kind."""
        with closing(self._connect()) as db:
            return _lines(db, "(?1 IS NULL OR saga_id = ?1) AND (?2 IS NULL OR what = ?2)", saga_id, what)

    def standing(self, saga_id: str | None = None) -> Sequence[Line]:
        """Effects that were applied and not undone since, in order."""
        standing: dict[tuple[str, str], list[Line]] = {}
        for line in _as_undos(self.lines(saga_id)):
            if line.what == "applied" and line.direction == "forward":
                standing.setdefault((line.saga_id, line.step_id), []).append(line)
            elif line.what != "sent":
                standing.pop((line.saga_id, line.step_id), None)
        return sorted(line for found in standing.values() for line in found)

    def compare(
        self,
        outcome: Any,
        plan: Any = None,
    ) -> list[str]:
        """Every disagreement between the engine's report and this ledger, as sentences; an empty list is agreement.

        ``outcome``: a ``SagaResult``, or the object that ``show --json`` prints. With ``plan`` (anything that
        ``submit`` takes) the order of the undos is checked too. Input that was given with the submission need not be
        repeated.
        """
        body: Mapping[str, Any] = outcome if isinstance(outcome, Mapping) else outcome.to_dict()
        lines = self.lines(body["saga_id"])
        steps = {str(step["step_id"]): step for step in body["steps"]}
        strangers = sorted({line.step_id for line in lines} - steps.keys())
        found = [f"step {step_id}: the world was asked for it, the report does not know it" for step_id in strangers]
        meant = _as_undos(lines)
        for step_id, step in steps.items():
            sent = [line for line in lines if line.step_id == step_id]
            own = [line for line in meant if line.step_id == step_id]
            found += [f"step {step_id}: {text}" for text in (*_requests(step, sent), *_effects(body, step, own))]
        found += _keys(meant)
        if plan is not None:
            found += _order(plan, body, lines)
        return found

    # --- inside --------------------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=_PATIENCE_S, isolation_level=None)
        db.execute("PRAGMA synchronous = OFF")
        return db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        # A connection for each line: it may be written from any thread and after a fork. IMMEDIATE, because a
        # transaction that changed from reading to writing could find the file locked and fail at once.
        with closing(self._connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")


def _create(path: Path) -> None:
    """Make the complete file under another name, then rename it: no process ever sees half a ledger."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    made = Path(name)
    try:
        with closing(sqlite3.connect(made)) as db:
            db.executescript(_SCHEMA)
        try:
            os.link(made, path)
        except FileExistsError:
            return  # another process was faster; its file is equivalent
    finally:
        made.unlink()


def _add(db: sqlite3.Connection, what: str, ctx: ToolContext, tool: str, value: Any) -> Line:
    text = json.dumps(value, allow_nan=False)
    cursor = db.execute(
        f"INSERT INTO lines ({_COLUMNS}) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (
            *(what, ctx.saga_id, ctx.step_id, ctx.direction, ctx.attempt, ctx.epoch, ctx.idempotency_key),
            *(tool, ctx.undoes or "", text),
        ),
    )
    return _lines(db, "seq = ?", cursor.lastrowid)[0]


def _lines(db: sqlite3.Connection, where: str, *values: Any) -> list[Line]:
    # ``where`` is always a literal of this module; variable parts are bound.
    rows = db.execute(f"SELECT {_COLUMNS} FROM lines WHERE {where} ORDER BY seq", values)  # noqa: S608
    return [Line._make((*row[:-1], json.loads(row[-1]))) for row in rows]


def _taken_back(db: sqlite3.Connection, ctx: ToolContext) -> bool:
    """Whether the saga has taken this call back itself."""
    return bool(ctx.idempotency_key and _lines(db, "what = 'applied' AND undoes = ?", ctx.idempotency_key))


def _as_undos(lines: Sequence[Line]) -> list[Line]:
    """The lines, with each call that takes another one back as the undo of that step, which it is."""
    made = {line.key: line.step_id for line in lines if line.direction == "forward" and not line.undoes}
    return [
        line._replace(step_id=made[line.undoes], direction="compensate")
        if line.direction == "forward" and line.undoes in made
        else line
        for line in lines
    ]


# --- the comparison ------------------------------------------------------------------------------------------------


def _requests(step: Mapping[str, Any], lines: Sequence[Line]) -> Iterator[str]:
    """No record, no effect: each journalled intent allows one request, and nothing else does."""
    undo = step["compensation"] or {"attempts": 0}
    asked = [line for line in lines if line.what == "sent"]
    sides = [("forward", step["attempts"], [line for line in asked if line.direction == "forward"])]
    back = [line for line in asked if line.direction == "compensate"]
    if "calls" in undo:
        for call in undo["calls"]:
            own = [line for line in back if line.key == call["idempotency_key"]]
            back = [line for line in back if line.key != call["idempotency_key"]]
            sides.append(("compensate", call["attempts"], own))
        if back:
            yield f"its undo called {back[0].tool} under a key that the report does not know"
    else:
        sides.append(("compensate", undo["attempts"], back))
    for direction, attempts, sent in sides:
        numbers = [line.attempt for line in sent]
        if len(set(numbers)) > attempts:
            yield f"attempt {max(numbers)} ({direction}) was sent, the report knows of {attempts}"
        for number in sorted({number for number in numbers if numbers.count(number) > 1}):
            yield f"attempt {number} ({direction}) was sent {numbers.count(number)} times"
        for tool in sorted({line.tool for line in sent}):  # a fallback is another call, with a key of its own
            keys = {line.key for line in sent if line.tool == tool}
            if len(keys) > 1:
                yield f"its attempts ({direction}, {tool}) went out under {len(keys)} different keys"


def _effects(body: Mapping[str, Any], step: Mapping[str, Any], lines: Sequence[Line]) -> Iterator[str]:
    """Exactly the effects exist that the report names, and none happened twice."""
    # What an event stands for happened elsewhere; its undo is a call like any other.
    standing = int(step.get("via") == "event" and step["kind"] == "compensatable")
    undone = 0
    calls = {call["idempotency_key"] for call in (step["compensation"] or {}).get("calls", ())}
    left = set(calls)
    for line in lines:
        if line.what == "applied" and line.direction == "forward":
            standing += 1
            if standing == 2:
                yield "its effect was applied again while it stood"
        elif line.what == "applied" and line.key in left and len(left) > 1:
            left.remove(line.key)  # of an undo of several calls: the last one ends it
        elif line.what == "applied":
            undone += 1
            standing = 0
        elif line.what == "by-hand":
            standing = 0
    if undone > 1:
        yield f"it was undone {undone} times"
    if step["kind"] == "read":
        if standing or undone:
            yield "it is said to read only, and changed something"
        return
    if step.get("via") in ("deduplicated", "fork", "timer") or step.get("handed_to") or "undoes" in step:
        return  # another saga owns the effect, or will undo it; a wait ended without an event; or it is itself an undo
    yield from _verdict(body, step, stands=standing > 0, lines=lines)


def _verdict(body: Mapping[str, Any], step: Mapping[str, Any], *, stands: bool, lines: Sequence[Line]) -> Iterator[str]:
    status, report = step["status"], body["report"]
    listed = [name for name, ids in report.items() if name not in ("clean", "verified") and step["step_id"] in ids]
    if len(listed) > 1:
        yield f"it is in more than one list of the report: {', '.join(listed)}"
    ended = body["status"] in t.SAGA_FINAL
    if step["kind"] == "finally":  # its effect is wanted however the saga ends
        if (status == t.SUCCEEDED) is not stands and status not in (t.IN_DOUBT, t.RUNNING):
            yield f"it is {status}, and its effect {'stands' if stands else 'does not stand'}"
        return
    if step.get("compensated_by_others") or "compensates" in step:
        if (status == t.SUCCEEDED or step.get("compensated_by_others")) and not stands:
            yield "the report counts its effect as standing, or as a compensation, and there is none"
        return  # with a semantic compensation both effects exist, although they count as compensated
    if body["status"] == t.COMPLETED and status not in (t.SUCCEEDED, t.RESOLVED) and not _passed(body, step, listed):
        yield f"the saga is said to be completed, the step is {status}"
    if status == t.SUCCEEDED and not stands:
        yield "it is said to have happened, and does not stand"
    if "compensated" in listed and stands:
        yield "it is said to be undone, and stands"
    if status == t.COMPENSATED and "compensated" not in listed:
        yield "it is said to be undone, but is missing from the report's list"
    if status in (t.PENDING, t.SKIPPED, t.FAILED) and stands:
        yield f"it is {status}, and its effect stands"
    if status in (t.PENDING, t.SKIPPED) and any(line.direction == "forward" for line in lines):
        yield f"it is {status}, and was asked for"
    if stands and not listed and status not in (t.SUCCEEDED, t.RUNNING, t.PENDING, t.SKIPPED, t.FAILED):
        yield f"its effect stands, it is {status}, and the report does not list it"
    if stands and body["status"] == t.COMPENSATED and "left_in_place" not in listed:
        yield "the saga is said to be undone, and its effect stands"
    if stands and ended and body["status"] != t.COMPLETED and report["clean"]:
        yield "the report is said to be clean, and its effect stands"


def _passed(body: Mapping[str, Any], step: Mapping[str, Any], listed: Sequence[str]) -> bool:
    """Whether a saga may complete although this step did not happen, or was undone."""
    if body.get("session"):  # its agent knows, and has dealt with it
        return step["status"] in (t.FAILED, t.BLOCKED, t.COMPENSATED, t.SKIPPED)
    allowed = step.get("dropped") or {"skipped", "continued"} & set(listed)  # by the plan's conditions
    return bool(allowed or "undone_by" in step)  # or another step of the plan has taken it back


def _keys(lines: Sequence[Line]) -> Iterator[str]:
    owners: dict[str, set[tuple[str, str]]] = {}
    for line in lines:
        if line.key:
            owners.setdefault(line.key, set()).add((line.step_id, line.direction))
    for key, places in owners.items():
        if len(places) > 1:
            named = ", ".join(f"step {step_id} {direction}" for step_id, direction in sorted(places))
            yield f"one key stands for different calls ({named}): {key}"


def _order(plan: Any, body: Mapping[str, Any], lines: Sequence[Line]) -> Iterator[str]:
    """A step's undo comes after the undos of all its dependents, except those that are never to be undone.

    What the saga takes back itself it takes back in an order of its own.
    """
    from saga_engine.plan.compiler import compile_plan
    from saga_engine.plan.each import add_items
    from saga_engine.plan.model import load_plan

    undone = {
        line.step_id: line.seq
        for line in lines
        if line.what == "by-hand" or (line.what == "applied" and line.direction == "compensate")
    }
    happened = {line.step_id for line in lines if line.what == "applied" and line.direction == "forward"}
    staying = {str(step["step_id"]) for step in body["steps"] if step["kind"] != "compensatable"}
    staying |= {str(step_id) for step_id in body["report"]["left_in_place"]}
    staying |= {str(step["step_id"]) for step in body["steps"] if "undone_by" in step}
    # The report knows reads that only the tools' registrations declare; they have no order of undos.
    reads = {str(step["step_id"]) for step in body["steps"] if step["kind"] == "read"}
    loaded = load_plan(plan)
    reads -= {step.key for step in loaded.steps if step.each is not None}  # only its items call something
    compiled = compile_plan(loaded, None, undos={}, reads=reads, input_unknown=True)
    steps, by_key = list(compiled.steps), dict(compiled.by_key)
    for parent in [step for step in steps if step.each is not None]:  # a list does nothing itself: its items do
        count = sum(str(step["step_id"]).startswith(f"{parent.key}[") for step in body["steps"])
        add_items(steps, by_key, parent.index, [None] * count, len(steps))
    for later in steps:
        if later.key not in happened or (later.key in staying and later.key not in undone):
            continue
        direct = [index for index in later.deps if steps[index].each is None]
        through = [index for parent in later.deps if steps[parent].each is not None for index in steps[parent].deps]
        for index in (*direct, *through):
            earlier = steps[index].key
            if earlier in undone and undone.get(later.key, _NEVER) > undone[earlier]:
                yield f"step {earlier} was undone before step {later.key}, which depends on it"


_NEVER = 1 << 62
