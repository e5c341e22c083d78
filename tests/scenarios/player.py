"""Plays a scenario through the public API and writes its output lines anew. ``docs/semantics.md`` explains the notation."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final

from saga_engine import Coordinator, PlanInvalid, Question, SagaError, SagaResult, Session
from saga_engine.errors import CallFailed, ModelUnreachable, StoreUnavailable
from saga_engine.execution.governed import differences, found_in
from saga_engine.ports import AppendReply, Entry
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from saga_engine.testing.scripted import ScriptedPlanner
from tests.scenarios import notation
from tests.scenarios.world import World

#: Ends a scenario that hangs; nothing is asserted about time.
_LIMIT_S: Final = 120.0
#: The fields of records that a scenario shows; times, ids and digests differ from run to run.
_SHOWN: Final = (
    *(
        "reason",
        "code",
        "kind",
        "rule",
        "decision",
        "attempt",
        "fallback",
        "tool",
        "undo",
        "undoes",
        "irreversible",
        "via",
    ),
    *(
        "error",
        "output",
        "params",
        "items",
        "steps",
        "dropped",
        "reasons",
        "to",
        "purpose",
        "auto",
        "by",
        "note",
        "text",
        "then",
    ),
)
#: What reads showed, as objects.
_IMAGES: Final = ("before", "after", "found")


class Dead(Faults):
    """The faults of a process that dies at a record: it does nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.dead = False

    @contextmanager
    def at(self, point: str) -> Iterator[None]:
        del point
        self._require_life()
        yield
        self._require_life()

    def _require_life(self) -> None:
        if self.dead:
            raise StoreUnavailable("this process is dead", hint="it is a scenario", url="")


class MortalStore(FaultyStore):
    """The store of a process that dies before or after it appends a chosen record."""

    faults: Dead

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url, durability="relaxed"), Dead())
        self.owner = ""
        self.dies: tuple[str, str, str, str] | None = None  # before or after, kind, step, direction

    async def open_lease(
        self, owner: str, ttl_ms: int, partitions: Sequence[int] | None = None, note: bytes = b""
    ) -> int:
        self.owner = owner
        return await super().open_lease(owner, ttl_ms, partitions, note)

    async def append(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        when = self.dies[0] if self.dies is not None and any(map(self._is_it, entries)) else ""
        self.faults.dead |= when == "before"
        reply = await super().append(owner, entries)
        if when == "after":
            self.faults.dead = True
            raise StoreUnavailable("this process has just died", hint="it is a scenario", url="")
        return reply

    def _is_it(self, entry: Entry) -> bool:
        assert self.dies is not None
        _, kind, step, direction = self.dies
        for record in map(json.loads, entry.records):
            here = record.get("direction", "forward")
            if record["k"] == kind and step in ("", record.get("step", "")) and here == direction:
                return True
        return False

    async def end_lease(self) -> None:
        """Let the store believe what it would find out later: this process is gone, or was frozen for too long."""
        await self.inner.close_lease(self.owner)


class Process:
    """One coordinator with its store."""

    def __init__(self, store: MortalStore, stack: AsyncExitStack, coordinator: Coordinator) -> None:
        self.store = store
        self.coordinator = coordinator
        self._stack = stack

    @classmethod
    async def start(cls, url: str, options: Mapping[str, Any]) -> Process:
        store, stack = MortalStore(url), AsyncExitStack()
        coordinator = await stack.enter_async_context(Coordinator.open(store, **options))
        stack.push_async_callback(store.inner.close)
        return cls(store, stack, coordinator)

    async def end(self) -> None:
        await self._stack.aclose()


class Player:
    """Plays one scenario on the store behind ``url``. ``secret`` sets an environment variable."""

    def __init__(self, url: str, secret: Callable[[str, str], None]) -> None:
        self._url = url
        self._secret = secret
        self._world = World()
        self._options: dict[str, Any] = {"on_escalation": (), "lease_s": 60.0}
        self._tools: dict[str, Any] = {}
        self._rules: dict[str, Any] = {"rules": []}
        self._plans: dict[str, dict[str, Any]] = {}
        self._planned: list[Any] = []
        self._processes: dict[str, Process] = {}
        self._told: list[str] = []
        self._untold = 0  # how many more alerts fail
        self._seen: dict[str, int] = {}  # how many records of each saga have been shown
        self._tasks: list[asyncio.Task[Any]] = []
        self._page: list[str] = []

    async def play(self, text: str) -> str:
        """The scenario as it should be now."""
        lines = list(notation.lines_without_output(text))
        while lines and lines[0].strip():
            self._page.append(lines.pop(0))  # what it explains
        try:
            async with asyncio.timeout(_LIMIT_S):
                while lines:
                    line = lines.pop(0)
                    self._page.append(line)
                    if not line.strip() or line.startswith("#"):
                        continue
                    body = []
                    while lines and lines[0].startswith(" "):
                        body.append(lines[0].strip())
                        self._page.append(lines.pop(0))
                    await self._block(line, body)
        finally:
            for task in self._tasks:
                task.cancel()
            for gate in self._world.gates.values():
                gate.set()
            for process in self._processes.values():
                await process.end()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return "\n".join(self._page) + "\n"

    # --- blocks ------------------------------------------------------------------------------------------------------

    async def _block(self, line: str, body: list[str]) -> None:
        if line.startswith("> "):
            await self._command(line[2:], body)
            return
        read = notation.words(line)
        match read.plain:
            case ["tools"]:
                self._tools |= {made.name: made for made in map(self._world.tool, body)}
                self._tools.pop(read.pairs.get("without"), None)
            case ["answers"]:
                for each in body:
                    self._world.answer(each)
            case ["plan", name]:
                self._plans[name] = {**notation.plan(body), **read.pairs}
            case ["policy"]:
                self._rules = {"rules": [notation.words(each).pairs for each in body], **read.pairs}
                self._options["policy"] = self._rules
            case ["planner"]:
                self._planned = _answers_of(body)
            case ["options"]:
                self._options |= read.pairs
            case ["people"]:
                self._options["on_escalation"] = self._tell
                self._untold = read.pairs.get("fails", 0)
            case ["secrets"]:
                for name, value in read.pairs.items():
                    self._secret(name, value)
                self._options["secrets"] = {"*": list(read.pairs)}
            case _:
                raise AssertionError(f"no block of a scenario: {line}")

    def _tell(self, question: Question) -> None:
        if self._untold:
            self._untold -= 1
            raise ConnectionRefusedError("nobody answers the phone")
        self._told.append(f"{question.step_id} {question.kind}")

    async def _process(self, name: str) -> Process:
        if name not in self._processes:
            options = {**self._options, "tools": [*self._tools.values()]}
            if self._planned:
                options["planner"] = ScriptedPlanner(*self._planned)
            self._processes[name] = await Process.start(self._url, options)
        return self._processes[name]

    # --- commands ----------------------------------------------------------------------------------------------------

    async def _command(self, line: str, body: list[str]) -> None:
        name, separator, rest = line.partition(": ")
        who, line = (name, rest) if separator and name.isupper() else ("A", line)
        read = notation.words(line)
        verb, *given = read.plain
        process = await self._process(who)
        try:
            await getattr(self, f"_do_{verb.replace('-', '_')}")(process, given, read, body)
        except SagaError as error:
            self._page.append(f"! {_code(error)}")
            self._page.extend(self._calls())

    async def _do_run(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        plan, saga_id = self._plans[given[0]], given[-1]
        await self._shown(process, process.coordinator.run(plan, saga_id=saga_id, input=read.pairs or None))

    async def _do_submit(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        plan, detach = self._plans[given[0]], "detached" in given
        name = given[2] if "as" in given else given[0]
        await process.coordinator.submit(plan, saga_id=name, input=read.pairs or None, detach=detach)

    async def _do_until(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``until SAGA KIND [STEP]``: the saga's journal has the record."""
        saga_id, kind, *step = given
        async for record in process.coordinator.follow(saga_id, since=self._seen.get(saga_id, 0)):
            self._show_record(saga_id, record)
            if record["k"] == kind and (not step or record.get("step") == step[0]):
                return
        raise AssertionError(f"{saga_id} ended without {' '.join([kind, *step])}")

    async def _do_wait(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        await self._shown(process, process.coordinator.wait(given[0]))

    async def _do_show(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        await self._shown(process, process.coordinator.show(given[0]))

    async def _do_details(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``details SAGA``: what people see of each call beside its state."""
        for step in (await process.coordinator.show(given[0])).body["steps"]:
            error = "" if step["error"] is None else f" error {_json(step['error']['message'])}"
            self._page.append(f"~ {step['step_id']} params {_json(step['params'])}{error}")

    async def _do_told(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``told SAGA``: how many steps are in effect, and who answered what."""
        shown = (await process.coordinator.show(given[0])).body
        counts = shown["counts"]
        doubt = f", {counts['in_doubt']} in doubt" if counts["in_doubt"] else ""
        self._page.append(f"~ {counts['in_effect']} of {counts['steps']} in effect{doubt}")
        for each in shown.get("answers", ()):
            said = f"{each['step_id']} {each['kind']}: {each['decision']} by={each['by']} note={_json(each['note'])}"
            self._page.append(f"~ {said}")

    async def _do_resume(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        await self._shown(process, process.coordinator.resume(given[0]))

    async def _do_work(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``work``: be a worker from here on."""
        self._tasks.append(asyncio.create_task(process.coordinator.work()))

    async def _do_resolve(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        saga_id, step, decision = given
        pairs = dict(read.pairs)
        if pairs.get("expect") == "known":  # the operator has seen what follows
            asked = (await process.coordinator.show(saga_id)).body["questions"]
            found = [each["outlooks"][decision]["mark"] for each in asked if str(each["step_id"]) == step]
            pairs["expect"] = found[0]
        await self._shown(process, process.coordinator.resolve(saga_id, step, decision, **pairs))

    async def _do_event(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``event NAME KEY key=value…``: an event arrives from outside; if it is late, its saga is shown."""
        receipt = await process.coordinator.send_event(given[0], given[1], read.pairs)
        if receipt.late_saga:
            await self._shown(process, process.coordinator.wait(receipt.late_saga))

    async def _do_cancel(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``cancel SAGA [post]``: with ``post`` the saga is not waited for."""
        wait = "post" not in given
        outcome = process.coordinator.cancel(given[0], wait=wait, **read.pairs)
        await (self._shown(process, outcome) if wait else outcome)

    async def _do_amend(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        wait = "post" not in given
        outcome = process.coordinator.amend(given[0], notation.steps(body), wait=wait, **read.pairs)
        await (self._shown(process, outcome) if wait else outcome)

    async def _do_fork(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``fork OLD NEW``, with the mended steps in its body; of a session ``from=CALL``."""
        old, new = given
        plan = {**self._plans[old], "steps": notation.steps(body)} if body else None
        outcome = await process.coordinator.fork(old, plan=plan, run_from=read.pairs.get("from"), new_id=new)
        assert isinstance(outcome, SagaResult)
        await self._show(process, outcome)

    async def _do_undo(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``undo SAGA [accept]``: a saga of its own undoes one that has completed."""
        outcome = await process.coordinator.undo(given[0], accept="accept" in given)
        assert isinstance(outcome, SagaResult)
        await self._show(process, outcome)

    async def _do_open(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``open GATE``: tools whose answer stands behind it go on."""
        self._world.gates[given[0]].set()

    async def _do_die(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``die before|after KIND [STEP [undo]]``: the process does nothing more from there on."""
        when, kind, step, undo = [*given, "", ""][:4]
        process.store.dies = (when, kind, step, "compensate" if undo else "forward")

    async def _do_freeze(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``freeze``: the lease ends, and the process does not know it."""
        await process.store.end_lease()

    async def _do_differing(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``differing``: which processes hold sagas to different rules."""
        load = await process.coordinator.overview()
        names = {each.store.owner: name for name, each in self._processes.items()}
        found = differences(found_in(load.notes, load.owners))
        for each in found:
            groups = ["+".join(sorted(names[owner] for owner in owners)) for _, owners in each.groups]
            self._page.append(f"~ {each.part}: {' / '.join(sorted(groups))}")
        self._page.extend([] if found else ["~ all the same"])

    async def _do_restart(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        """``restart``: the process ends, if it has not died before, and another one starts."""
        await process.end() if not process.store.faults.dead else await self._buried(process)
        self._processes = {name: each for name, each in self._processes.items() if each is not process}

    @staticmethod
    async def _buried(process: Process) -> None:
        await process.store.end_lease()
        await process.end()

    async def _do_session(self, process: Process, given: list[str], read: notation.Words, body: list[str]) -> None:
        saga_id, raised = given[0], ""
        try:
            async with process.coordinator.session(saga_id, **read.pairs) as session:
                await self._agent(session, body)
        except (OutOfIdeas, SagaError) as error:
            raised = _code(error)
        self._page += [f"! {raised}"] if raised else []
        if process.store.faults.dead:
            self._page.extend(self._calls())
        else:
            await self._show(process, await process.coordinator.show(saga_id))

    async def _agent(self, session: Session, body: list[str]) -> None:
        points: dict[str, Any] = {}
        for line in body:
            read = notation.words(line)
            match read.plain:
                case ["call", tool]:
                    options = {**read.fields}
                    if isinstance(options.get("undo"), list):
                        options["undo"] = tuple(options["undo"])
                    try:
                        found = _json(await session.call(tool, read.pairs, **options))
                    except CallFailed as error:
                        found = f"{type(error).__name__} {error.error_code}"
                    self._page.append(f"< {found}")
                case ["savepoint", name]:
                    points[name] = session.savepoint()
                case ["rollback", name]:
                    await session.rollback(points[name])
                case ["rollback"]:
                    await session.rollback()
                case ["fail"]:
                    raise OutOfIdeas
                case _:
                    raise AssertionError(f"an agent does not do this: {line}")

    # --- output ------------------------------------------------------------------------------------------------------

    async def _shown(self, process: Process, doing: Awaitable[SagaResult]) -> None:
        await self._show(process, await doing)

    async def _show(self, process: Process, outcome: SagaResult) -> None:
        self._page.extend(self._calls())
        for record in (await process.coordinator.history(outcome.saga_id))[self._seen.get(outcome.saga_id, 0) :]:
            self._show_record(outcome.saga_id, record)
        body = outcome.body
        listed = [f"{step['step_id']} {step['status']}{_undo_of(step)}" for step in body["steps"]]
        self._page.append(f"= {outcome.status}: {', '.join(listed)}")
        for question in body["questions"]:
            options = ", ".join(question["options"])
            self._page.append(f"? {question['step_id']} {question['kind']}: {options}")
        report = {name: ids for name, ids in body["report"].items() if ids and name != "clean"}
        lists = [
            f"{name} {', '.join(str(each['step_id'] if isinstance(each, dict) else each) for each in ids)}"
            for name, ids in report.items()
        ]
        self._page.append(f"~ {'; '.join([*lists, 'clean' if body['report']['clean'] else 'not clean'])}")
        self._page += [f"~ told: {', '.join(self._told)}"] if self._told else []
        self._told = []
        self._page.append(f"+ remaining effects: {self._world.remaining}")

    def _calls(self) -> list[str]:
        return [_fixed(f"* {call}") for call in self._world.seen()]

    def _show_record(self, saga_id: str, record: Mapping[str, Any]) -> None:
        self._seen[saga_id] = record["seq"] + 1
        subject = record.get("step", "")
        subject += {"compensate": " (undo)"}.get(record.get("direction", ""), "")
        shown = [_field(name, record[name]) for name in _SHOWN if record.get(name) not in (None, "", [], {}, False)]
        # (The calls that another came after have the same name.)
        shown += [_field(name, record[name]) for name in _IMAGES if isinstance(record.get(name), dict)]
        text = " ".join([record["k"], *filter(None, shown)])
        self._page.append(_fixed(f"| {subject:<14} {text}".rstrip()))


class OutOfIdeas(Exception):
    """What an agent raises that fails."""


def _fixed(line: str) -> str:
    """The line without the random part of idempotency keys."""
    return re.sub(r":([fc]):[0-9a-f]{16}\b", r":\1:SEED", line)


def _answers_of(body: list[str]) -> list[Any]:
    answers: list[Any] = [[]]
    for line in body:
        if line == "--":
            answers.append([])
        elif line.startswith("impossible"):
            answers[-1] = {"impossible": line.partition(" ")[2]}
        elif line == "unreachable":
            answers[-1] = ModelUnreachable("the line is down")
        elif line.startswith("dropped "):
            _, step, why = line.split(" ", 2)
            answers[-1] = {"steps": answers[-1], "dropped": {step: why}}
        else:
            answers[-1].append(notation.step(line))
    return answers


def _field(name: str, value: Any) -> str:
    if name == "error":
        return f"error={value['error_code']}"
    if (name == "attempt" and value == 1) or (name == "reason" and " " in value):
        return ""  # the first attempt goes without saying; a reason in words is told elsewhere
    if name in ("steps", "dropped") and value and isinstance(value[0], dict):
        return f"{name}={','.join(str(step['step_id']) for step in value)}"
    if name == "steps" or name == "dropped":
        return f"{name}={','.join(map(str, value))}"
    return f"{name}={value if isinstance(value, str) and ' ' not in value else _json(value)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _undo_of(step: Mapping[str, Any]) -> str:
    """The state of the undo, where it says more than the step's own."""
    undo = step["compensation"]
    return "" if undo is None or undo["status"] == step["status"] else f" (undo {undo['status']})"


def _code(error: Exception) -> str:
    if isinstance(error, PlanInvalid):
        return ", ".join(f"{error.code} {problem.code} {problem.path}" for problem in error.problems)
    return error.code if isinstance(error, SagaError) else "the agent's own error"
