"""A session that only observes: its agent's calls are made as they come, and nothing is held, refused or undone.

What the engine would have done is written beside each call: a refusal or a question of the policy, a question about an
outcome that is unknown, a guard against loops, the undo of a session that failed. No saga is begun, and nothing but
the policy's counts is written to the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from saga_engine.agents.guards import AgentGuards, Answer
from saga_engine.agents.observed_file import ObservedFile
from saga_engine.agents.undeclared import is_undeclared, note_undeclared
from saga_engine.agents.watch import Watch
from saga_engine.core.effects import FORWARD, Ask, Blocked, Done, ErrorInfo, NotDone, Outcome
from saga_engine.core.plan_growth import Growth
from saga_engine.core.records import CallAdded
from saga_engine.errors import (
    BindingUnresolved,
    CallFailed,
    CallInvalid,
    PlanInvalid,
    SagaError,
    SessionEnded,
    SettingInvalid,
)
from saga_engine.plan.compiled import WithoutList
from saga_engine.plan.values import digest, plain
from saga_engine.policy.gate import Gate
from saga_engine.policy.rules import Policy
from saga_engine.ports import Call, GuardStore
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.runtime.session import Savepoint, Session
from saga_engine.runtime.session_calls import NumberedOutput, call_record, name_of, problems_of_expect
from saga_engine.settings import OBSERVED, may_observe
from saga_engine.tools.registry import ToolRegistry

#: A time-out would stop a call: a year.
_NO_TIMEOUT_S: Final = 366 * 86_400.0


def _needs_a_saga(name: str) -> Any:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise SettingInvalid(f"'{name}' needs a saga, and this session only observes", hint="observe = false")

    return refuse


class ObservedSession(Session):
    """A ``Session`` that stops nothing.

    ``ask``, ``sleep``, ``step``, ``wait_for`` and ``saga`` raise ``SettingInvalid``.
    """

    def __init__(
        self, saga_id: str, registry: ToolRegistry, policy: Policy | None, counts: GuardStore, path: Path
    ) -> None:
        super().__init__(saga_id, registry, diverging="append")
        self._registry = registry
        self._gate = None if policy is None else Gate(policy, counts)
        #: Where it is written down.
        self.file = ObservedFile(path)
        self._calls: list[tuple[str, CallAdded | None, Any]] = []  # those that stand: number, record, output
        self._count = 0
        self._answers: dict[str, Answer] = {}
        self._failed: dict[str, CallFailed] = {}

    async def call(self, tool: str | Callable[..., Any], /, params: Any = None, **named: Any) -> Any:
        """Make a call at once, and write down what the engine would have done. Raises ``CallFailed``."""
        options = {name: named.pop(name) for name in ("undo", "irreversible", "timeout_s", "expect") if name in named}
        values = {**params, **named} if isinstance(params, Mapping) else named if params is None else params
        return (await self.numbered_call(tool, values, **options)).output

    async def numbered_call(
        self,
        tool: str | Callable[..., Any],
        params: Mapping[str, Any],
        *,
        undo: Any = None,
        irreversible: bool = False,
        timeout_s: float | None = None,
        expect: str | None = None,
    ) -> NumberedOutput:
        """``call``, and its number beside its output."""
        name, place = name_of(tool), str(self._count + 1)
        taken = None if undo is not None else self.taken_back(name, params)
        spec = self.catalog.spec(name)
        if spec is None:
            call_record(self.catalog, name, params, None, irreversible=False, timeout_s=timeout_s)  # raises
        if spec is not None and (problems := problems_of_expect(spec, expect)):
            raise PlanInvalid(problems)
        self._count += 1
        would: list[dict[str, str]] = []
        record = self._record(name, params, undo, would, irreversible=irreversible or taken is not None)
        call = Call(self.saga_id, place, FORWARD, 1, f"{self.saga_id}:{place}", 0, None, _NO_TIMEOUT_S)
        if record is not None:
            would += self._looped(record, irreversible=irreversible or taken is not None)
        self._answers[place] = Answer(name)
        if record is not None:
            would += await self._policy_says(record, call)
        undeclared = is_undeclared(self.catalog, name) and not irreversible
        about = {"effect": "undeclared" if undeclared else spec.effect if spec else "", "would": would}
        told = {"tool": name, "params": sorted(map(str, params)), "digest": digest(_plain(params))[:12]}
        back = "" if record is None or record.undo is None else record.undo
        self.file.add(self.saga_id, call=place, **told, **about, undo=back)
        began_s = machine_clock.monotonic()
        outcome = await self._registry.call(name, params, call)
        found = "ok" if isinstance(outcome, Done) else "failed" if isinstance(outcome, NotDone) else "unknown"
        doubt = [self._in_doubt(name)] if found == "unknown" else []
        took_ms = round((machine_clock.monotonic() - began_s) * 1000)
        self.file.add(self.saga_id, call=place, outcome=found, took_ms=took_ms, would=doubt)
        if isinstance(outcome, Done):
            self._answers[place] = Answer(name, happened=True, output=outcome.output)
            if taken is None:
                self._calls.append((place, record, outcome.output))
            else:  # neither of the two would be undone
                self._calls = [each for each in self._calls if each[0] != taken]
            return NumberedOutput(place, outcome.output)
        self._failed[place] = _failure(name, place, outcome)
        raise self._failed[place]

    async def begin_call(self, tool: str, params: Mapping[str, Any], *, irreversible: bool = False) -> str:
        """Make a call, and return its number when it is over; ``outcome`` has what became of it."""
        place = str(self._count + 1)
        try:
            await self.numbered_call(tool, params, irreversible=irreversible)
        except CallFailed:
            if place not in self._failed:
                raise  # it could not be made
        return place

    async def outcome(self, step: str) -> Any:
        """The output of a call by its number. Raises what ``call`` raised, and ``SessionEnded``: there is none."""
        if step in self._failed:
            raise self._failed[step]
        found = self._answers.get(step)
        if found is None or not found.happened:
            raise SessionEnded(f"session {self.saga_id} has no call {step[:40]} that is over", saga_id=self.saga_id)
        return found.output

    def taken_back(self, name: str, params: Any) -> str | None:
        """The number of the newest call that stands whose undo this call is."""
        for place, record, output in reversed(self._calls):
            if record is None or record.undo != name or record.undo_each is not None or record.undo_then:
                continue
            rollback = Growth.call_of(msgspec.structs.replace(record, step=place), 0, {}, self.catalog).rollback
            spec = self.catalog.spec(record.tool)
            if rollback is None or spec is None or spec.before is not None:
                continue
            try:
                made = rollback.params.resolve(_OneCall(self.saga_id, place, record.params, output))
            except BindingUnresolved:
                continue
            if digest(made) == digest(_plain(params)):
                return str(place)
        return None

    def answer(self, number: str) -> Answer | None:
        """A call that was made, as the guards look at it."""
        return self._answers.get(number)

    def _record(
        self, name: str, params: Any, undo: Any, would: list[dict[str, str]], *, irreversible: bool
    ) -> CallAdded | None:
        """The call as a session would record it; None, and why, if it would be refused."""
        try:
            return call_record(self.catalog, name, params, undo, irreversible=irreversible, timeout_s=None)
        except CallInvalid as error:
            would.append({"do": "refuse", "why": f"refuse {name}: {error.error_code}"})
        except PlanInvalid as error:
            would.append({"do": "refuse", "why": f"refuse {name}: {error.problems[0].code}"})
        return None

    def _looped(self, record: CallAdded, *, irreversible: bool) -> list[dict[str, str]]:
        assert self.watch is not None
        if record.irreversible and not irreversible:
            note_undeclared(self.catalog, record.tool)
        try:
            self.watch.call(record, irreversible=irreversible, state=None, made=self.numbers())
        except CallFailed as error:
            return [{"do": "refuse", "why": f"refuse {record.tool}: {error.error_code}"}]
        return []

    async def _policy_says(self, record: CallAdded, call: Call) -> list[dict[str, str]]:
        """What the policy would have said."""
        tool = self._registry.get(record.tool)
        if self._gate is None or tool is None or not self._gate.concerns(record.tool):
            return []
        try:
            verdict = await self._gate.authorize(tool, record.params, call)
        except SagaError as error:
            return [{"do": "refuse", "why": f"refuse {record.tool}: {error.code}"}]
        if isinstance(verdict, Ask):
            return [{"do": "ask", "why": f"ask an operator about {record.tool} (rule {verdict.rule})"}]
        if isinstance(verdict, Blocked):
            return [{"do": "refuse", "why": f"refuse {record.tool} (rule {verdict.rule})"}]
        return []

    def _in_doubt(self, name: str) -> dict[str, str]:
        spec = self.catalog.spec(name)
        if spec is not None and spec.probe:
            return {"do": "probe", "why": f"find out with {spec.probe} whether {name} happened"}
        if spec is not None and (spec.keyed or spec.effect == "read"):
            return {"do": "repeat", "why": f"repeat {name}{' under its key' if spec.keyed else ''}"}
        return {"do": "ask", "why": f"ask an operator whether {name} happened"}

    def outputs(self) -> Mapping[str, Any]:
        """The outputs of the calls that happened, by their numbers."""
        return {key: output for key, _, output in self._calls}

    def numbers(self) -> list[str]:
        """The numbers of the calls before the present one."""
        return [str(number) for number in range(1, self._count)]

    def savepoint(self) -> Savepoint:
        """The place to which ``rollback`` would return."""
        return Savepoint(self._count)

    async def close(self, *, reason: str = "", note: str = "") -> Any:  # noqa: ARG002
        """Write down what a close with a ``reason`` would undo. Nothing is, and there is no saga to return."""
        if reason:
            await self.rollback()

    async def rest(self) -> Any:
        """Return at once: no saga ends or waits."""

    async def rollback(self, to: Savepoint | None = None) -> None:
        """Write down what would be undone. Nothing is."""
        since = 0 if to is None else to.calls
        undone, left = self.reckoned(since)
        self.file.add(self.saga_id, end="rollback", would_undo=undone, would_leave=left)
        self._calls = [each for each in self._calls if int(each[0]) <= since]

    def reckoned(self, since: int = 0) -> tuple[list[str], list[str]]:
        """The calls after a place that would be undone, in their order, and those that would be left."""
        undone: list[str] = []
        left: list[str] = []
        for place, record, _ in reversed(self._calls):
            if int(place) > since and record is not None and not record.read:
                (undone if record.undo else left).append(f"{place} {record.tool}")
        return undone, left

    ask = _needs_a_saga("ask")
    sleep = _needs_a_saga("sleep")
    step = _needs_a_saga("step")
    wait_for = _needs_a_saga("wait_for")
    saga = _needs_a_saga("saga")


class _OneCall(WithoutList):
    """What the undo of an observed call is filled in from: the call itself."""

    input: Mapping[str, Any] = {}
    end: Mapping[str, Any] = {}

    def __init__(self, saga_id: str, place: str, params: Any, output: Any) -> None:
        self.saga_id = saga_id
        self._place, self._params, self._output = place, params, output

    def output(self, step_key: str) -> Any:
        """The call's output."""
        self._require(step_key)
        return self._output

    def params(self, step_key: str) -> Any:
        """The call's params."""
        self._require(step_key)
        return self._params

    def key(self, step_key: str) -> str:
        """The key with which it was called."""
        return f"{self.saga_id}:{step_key}"

    def before(self, step_key: str) -> Any:
        """Raises ``BindingUnresolved``: no value was read."""
        raise BindingUnresolved(f"call {step_key} has no value from before it")

    def secret(self, name: str) -> str:
        """The marker of a secret."""
        return f"$secret.{name}"

    def _require(self, step_key: str) -> None:
        if step_key != self._place:
            raise BindingUnresolved(f"no call {step_key} is looked at")


def _plain(params: Any) -> Any:
    try:
        return plain(dict(params))
    except (SagaError, TypeError, ValueError):
        return repr(params)


def _failure(name: str, place: str, outcome: Outcome) -> CallFailed:
    error: ErrorInfo = getattr(outcome, "error", ErrorInfo("tool_error", "it was not done"))
    return CallFailed(
        f"{name}: {error.message}", hint=error.suggestion, error_code=error.error_code, tool=name, step=place
    )


def observed_path(said: bool | None, found: Path | None) -> Path | None:
    """The file of a session that only observes; None: it does not. ``found``: what the settings say.

    Raises ``SettingInvalid`` if the operator's file does not allow it.
    """
    if said is None:
        return found
    return (found or Path(OBSERVED)) if said and may_observe("observe=True") else None


@asynccontextmanager
async def observed(
    session: ObservedSession,
    guards: AgentGuards,
    registry: ToolRegistry,
    bring: Callable[[Any], bool],
    tools: Iterable[Any],
) -> AsyncIterator[Session]:
    """The session for the duration of a block; an error that leaves it is written down and raised again."""
    session.adopt = bring
    session.watch = Watch(
        session.catalog,
        guards,
        lambda record: session.taken_back(record.tool, record.params) is not None,
        session.answer,
        costs_of=registry.costs_of,
        now_ms=lambda: machine_clock.time_ns() // 1_000_000,
    )
    session.bring(*tools)
    file, name = session.file, session.saga_id
    file.add(name, tools=list(session.catalog.names()))
    try:
        yield session
    except BaseException as error:
        undone, left = session.reckoned()
        file.add(name, end="failed", error=type(error).__name__, would_undo=undone, would_leave=left)
        raise
    else:
        file.add(name, end="completed")
    finally:
        file.close()
