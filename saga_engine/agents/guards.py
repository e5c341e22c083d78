"""Guards against an agent that goes round in a loop: the same call in a row, too many calls, too high a cost.

Each refuses a call before it is recorded, and tells the model what to do instead. What an agent did is not undone for
that: it may still finish. An agent that runs again meets the same guards at the same calls, because they depend on
nothing but its calls and their recorded outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from saga_engine.core.records import CallAdded
from saga_engine.core.state import State
from saga_engine.core.undo_by_call import undone_by
from saga_engine.errors import CallFailed
from saga_engine.plan.costs import Costs, amount_in, dearer, is_amount, smaller, why_no_budget, why_no_costs
from saga_engine.plan.limits import MAX_SECONDS
from saga_engine.plan.values import digest
from saga_engine.settings import Settings, SettingsFile, TableReader, observing

_MOST: Final = 1_000_000_000
_NO_MORE: Final = "call nothing more: finish with what you have, and say what is missing"

_N = TypeVar("_N", int, float)


@dataclass(frozen=True, slots=True)
class AgentGuards:
    """Guards of each session, so of each agent, and of each saga of the gateway; by default none.

    ``max_same_calls``: how many calls with the same tool and params may follow each other. A read counts only while its
    answer stays the same. ``max_calls``: how many calls an agent may make; a further one is refused, and nothing is
    undone (``max_calls`` of ``[limits]`` undoes everything). ``max_time_s``: so many seconds after the session began a
    further call is refused, and nothing is undone (``deadline_s`` undoes everything). ``max_cost``: how much the calls
    may cost together, by unit: ``{ usd = 5.0, tokens = 200000 }``. ``costs``: what a call of a tool costs, by tool and
    unit: a number, or the field of its output that says it: ``{ ask_model = { tokens = "$output.usage.total_tokens"
    } }``. It is the option ``cost`` of the tool, so other budgets count it as well.
    """

    max_same_calls: int | None = None
    max_calls: int | None = None
    max_time_s: float | None = None
    max_cost: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, table: Mapping[str, Any], source: str) -> AgentGuards:
        """The guards of a table. Raises ``SettingInvalid``."""
        reader = TableReader(f"[agents] in {source}", table, of=cls)
        counts: dict[str, int | None] = {}
        for name in ("max_same_calls", "max_calls"):
            value = counts[name] = reader.any(name)
            if value is not None and (type(value) is not int or not 1 <= value <= _MOST):
                reader.refuse(name, f"must be a whole number of at least 1, not {value!r}")
        seconds = reader.any("max_time_s")
        if seconds is not None and not (is_amount(seconds) and 0 < seconds <= MAX_SECONDS):
            reader.refuse("max_time_s", f"must be a number of seconds up to {MAX_SECONDS:g}, not {seconds!r}")
        most = _table(reader, "max_cost", reader.any("max_cost"))
        if why := why_no_budget(most):
            reader.refuse("max_cost", f"is no budget: {why}", "write { usd = 5.0 }")
        costs = _table(reader, "costs", reader.any("costs"))
        for tool, given in costs.items():
            if why := why_no_costs(_table(reader, "costs", given)):
                hint = 'write { search_web = { usd = 0.01 } }, or the field of the output: "$output.usage.tokens"'
                reader.refuse("costs", f"does not say what {tool} costs: {why}", hint)
        reader.end()
        return cls(max_time_s=seconds, max_cost=most, costs=costs, **counts)

    def tightened(self, other: AgentGuards) -> AgentGuards:
        """The stricter of both, guard by guard; what a tool costs is the higher of two numbers, else as here."""
        costs = {tool: dict(given) for tool, given in other.costs.items()}
        for tool, given in self.costs.items():
            costs[tool] = dearer(given, costs.get(tool, {}))
        return AgentGuards(
            _least(self.max_same_calls, other.max_same_calls),
            _least(self.max_calls, other.max_calls),
            _least(self.max_time_s, other.max_time_s),
            smaller(self.max_cost, other.max_cost),
            costs,
        )


#: No guard holds.
NO_GUARDS: Final = AgentGuards()


@dataclass(frozen=True, slots=True)
class AgentRules:
    """What the settings say of agents. ``observes``: where their sessions only observe; None: they do not."""

    guards: AgentGuards = NO_GUARDS
    observes: Path | None = None


def agent_rules(settings: Settings | str | None, files: Sequence[SettingsFile]) -> AgentRules:
    """What these settings, and the files that hold, say of agents. Raises ``SettingInvalid``."""
    guards = NO_GUARDS
    for file in files:
        if file.tables.get("agents"):
            guards = guards.tightened(AgentGuards.parse(file.tables["agents"], file.name))
    return AgentRules(guards, observing(settings))


class Answer(NamedTuple):
    """A call that was made: its tool, and its output if it is known that it ``happened``."""

    tool: str
    happened: bool = False
    output: Any = None


#: Finds a call that was made, by its key.
Answers = Callable[[str], Answer | None]


def answers_of(state: State | None) -> Answers:
    """The calls of a saga."""

    def found(key: str) -> Answer | None:
        index = None if state is None else state.plan.by_key.get(key)
        if state is None or index is None:
            return None
        return Answer(state.plan.steps[index].tool, state.steps[index].effect is not None, state.steps[index].output)

    return found


class LoopGuard:
    """Looks at the calls of one session, one after the other.

    ``repeats``: whether the next call is answered as another life of the agent recorded it. ``costs_of``: what a call
    of a tool costs. ``now_ms``: the time, by the clock that dates records.
    """

    def __init__(
        self,
        guards: AgentGuards,
        repeats: Callable[[CallAdded], bool],
        costs_of: Callable[[str], Costs],
        now_ms: Callable[[], int],
    ) -> None:
        self._guards = guards
        self._costs_of = costs_of
        self._now_ms = now_ms
        self._began_ms: int | None = None
        self._repeats = repeats
        self._row = ("", 0)
        self._spent: dict[str, float] = {}
        self._counted: set[tuple[int, str]] = set()
        self._tools: dict[int, str] = {}  # by place: a call in flight is not in the state yet

    def check(
        self, record: CallAdded, state: State | None, made: Sequence[str], answers: Answers | None = None
    ) -> None:
        """The next call, after those with the keys ``made``; ``answers``: theirs, if no saga has them.

        Raises ``CallFailed`` if it is refused.

        A recorded call is not refused, nor one that takes back what stands: both are right whatever was spent.
        """
        try:
            if self._guards.max_time_s is not None and self._began_ms is None:
                self._began_ms = self._now_ms() if state is None else state.started_at
            self._guard(record, answers or answers_of(state), made)
        except CallFailed:
            if not (_takes_back(record, state) or self._repeats(record)):
                raise
        self._tools[len(made)] = record.tool

    def _guard(self, record: CallAdded, answers: Answers, made: Sequence[str]) -> None:
        guards, name = self._guards, record.tool
        mark = digest([name, record.params])
        news = record.read and self._row[1] > 1 and _differ(answers, made)
        again = mark == self._row[0] and not news
        self._row = (mark, self._row[1] + 1 if again else 1)
        if guards.max_same_calls is not None and self._row[1] > guards.max_same_calls:
            times = guards.max_same_calls
            same = ", and answered the same" if record.read else ""
            said = f"it was called {times} times in a row with the same params{same}"
            raise _refused(name, "same_call", said, "use that answer, change the params, or do something else")
        if guards.max_calls is not None and len(made) >= guards.max_calls:
            raise _refused(name, "too_many_calls", f"all {guards.max_calls} calls are made", _NO_MORE)
        passed_s = 0.0 if self._began_ms is None else (self._now_ms() - self._began_ms) / 1000
        if guards.max_time_s is not None and passed_s >= guards.max_time_s:
            raise _refused(name, "time_spent", f"its {guards.max_time_s:g} s have passed", _NO_MORE)
        if guards.max_cost:
            self._count(answers, made)
        for unit, cost in (self._costs_of(name) if guards.max_cost else {}).items():
            most, spent = guards.max_cost.get(unit), self._spent.get(unit, 0.0)
            if most is not None and (spent >= most or (not isinstance(cost, str) and spent + cost > most)):
                said = f"{spent:g} of {most:g} {unit} are spent"
                hint = "call nothing more that costs: finish with what you have, and say what is missing"
                raise _refused(name, "budget_spent", said, hint)

    def _count(self, answers: Answers, made: Sequence[str]) -> None:
        """Add what these calls cost. Another life has made those alone, whatever its journal has beside them.

        A number counts from the start, and for a call that failed as well: it may have been paid for.
        """
        for place, key in enumerate(made):
            known = answers(key) or Answer(self._tools.get(place, ""))
            for unit, value in self._costs_of(known.tool).items():
                if (place, unit) in self._counted or (isinstance(value, str) and not known.happened):
                    continue
                self._counted.add((place, unit))
                cost = amount_in(known.output, value) if isinstance(value, str) else float(value)
                self._spent[unit] = self._spent.get(unit, 0.0) + cost


def _takes_back(record: CallAdded, state: State | None) -> bool:
    """Whether a call is the undo of one that stands."""
    if state is None or record.read or record.undo is not None:
        return False
    found = undone_by(state, record.tool, record.params)
    return found is not None and found.how != "gone"


def _refused(tool: str, code: str, said: str, hint: str) -> CallFailed:
    return CallFailed(f"{tool}: not called: {said}", hint=hint, error_code=code, tool=tool, retryable=False)


def _differ(answers: Answers, made: Sequence[str]) -> bool:
    """Whether the last two calls are known to have answered differently."""
    known = [found for key in made[-2:] if (found := answers(key)) is not None and found.happened]
    return len(known) == 2 and digest([known[0].output]) != digest([known[1].output])


def _table(reader: TableReader, name: str, value: Any) -> dict[str, Any]:
    if value is None or value == {}:
        return {}
    if not isinstance(value, Mapping):
        reader.refuse(name, f"must be a table, not {value!r}")
    return dict(value)


def _least(one: _N | None, other: _N | None) -> _N | None:
    return other if one is None else one if other is None else min(one, other)
