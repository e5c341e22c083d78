"""Computations of a plan: exact arithmetic, sums over lists, dates and choices, written as JSON.

An expression is a literal, a binding, a list of expressions, or an object with one operation and its options:
``{"round": {"percent": [15, "$output.step_1.total"]}, "places": 2}``. There are no expression texts. An object that is
a value stands in ``{"value": …}``. What a binding brings is data: it is never taken for an operation.

Operations over a list evaluate their ``of``, ``by`` and ``where`` for each item, as ``$item`` and ``$index``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from saga_engine.errors import BindingUnresolved
from saga_engine.plan import dates, decimals
from saga_engine.plan.amounts import amount
from saga_engine.plan.bindings import COMPUTE, FIRST, Template
from saga_engine.plan.conditions import Condition, ConditionReader
from saga_engine.plan.decimals import NotComputable, Number
from saga_engine.plan.effort import spend
from saga_engine.plan.limits import MAX_TEXT_CHARS
from saga_engine.plan.problems import known_names
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from saga_engine.plan.binder import Binder
    from saga_engine.plan.bindings import Place
    from saga_engine.plan.compiled import Scope
    from saga_engine.plan.problems import Path, Problems

#: The word of the step.
WORD: Final = "compute"
#: Nested operations, and operations of one computation.
MAX_DEPTH: Final = 16
MAX_OPERATIONS: Final = 200
#: Items of one list, and visits of items in one computation.
MAX_ITEMS: Final = 10_000
MAX_VISITS: Final = 100_000
#: Of several items that fit, how many an error names.
_MAX_NAMED: Final = 5
_MAX_NAME_CHARS: Final = 60


class Run:
    """One computation: a scope that also knows which item of a list is being visited."""

    __slots__ = ("_at", "_left", "_scope")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._left = MAX_VISITS
        #: The item that is visited, and its position; before any, that of the scope.
        self._at: tuple[Any, int] | None = None

    @property
    def item(self) -> Any:
        """The item of the list that is visited."""
        return self._scope.item if self._at is None else self._at[0]

    @property
    def index(self) -> int:
        """Its position, from 0."""
        return self._scope.index if self._at is None else self._at[1]

    @property
    def saga_id(self) -> str:
        """As the scope below."""
        return self._scope.saga_id

    @property
    def input(self) -> Mapping[str, Any]:
        """As the scope below."""
        return self._scope.input

    @property
    def end(self) -> Mapping[str, Any]:
        """As the scope below."""
        return self._scope.end

    def output(self, step_key: str) -> Any:
        """As the scope below."""
        return self._scope.output(step_key)

    def params(self, step_key: str) -> Any:
        """As the scope below."""
        return self._scope.params(step_key)

    def before(self, step_key: str) -> Any:
        """As the scope below."""
        return self._scope.before(step_key)

    def key(self, step_key: str) -> str:
        """As the scope below."""
        return self._scope.key(step_key)

    def secret(self, name: str) -> str:
        """As the scope below."""
        return self._scope.secret(name)

    def over(self, items: Any) -> Generator[Any, None, None]:
        """Visit the items of a list; after it the outer item is back. Raises ``NotComputable``."""
        if not isinstance(items, list | tuple):
            raise NotComputable("a list is expected")
        if len(items) > MAX_ITEMS:
            raise NotComputable(f"a list has more than {MAX_ITEMS} items")
        outer = self._at
        try:
            for at, item in enumerate(items):
                spend()
                self._left -= 1
                if self._left < 0:
                    raise NotComputable(f"it visits more than {MAX_VISITS} items")
                self._at = item, at
                yield item
        finally:
            self._at = outer


#: Gives the value of an expression. Raises ``NotComputable`` and ``BindingUnresolved``.
Get = Callable[[Run], Any]


class _At(NamedTuple):
    """An operation as written: its object, its name, its place, and whether items of a list are visited there."""

    raw: dict[str, Any]
    name: str
    path: Path
    depth: int
    item: bool


class ComputeReader:
    """Compiles the computation of one step; wrong expressions become problems."""

    def __init__(self, binder: Binder, problems: Problems, own: str) -> None:
        self._binder = binder
        self._problems = problems
        self._own = own
        self._left = MAX_OPERATIONS
        binder.computes = True
        #: Everything that it binds, with the whole path in the plan.
        self.bound: list[Place] = []

    def read(self, raw: Any, path: Path, *, depth: int = 0, item: bool = False) -> Get:
        """The expression that stands at ``path``; of a wrong one, one that is never evaluated."""
        if depth > MAX_DEPTH:
            return self.wrong("limit-depth", path, f"an expression is nested deeper than {MAX_DEPTH} levels", "")
        if isinstance(raw, list):
            parts = [self.read(each, (*path, at), depth=depth + 1, item=item) for at, each in enumerate(raw)]
            return lambda run: [get(run) for get in parts]
        if isinstance(raw, dict) and raw.keys() == {COMPUTE}:
            return self.read(raw[COMPUTE], (*path, COMPUTE), depth=depth + 1, item=item)
        if isinstance(raw, dict) and FIRST not in raw and raw.keys() != {"value"}:
            return self._operation(raw, path, depth, item=item)
        value = raw["value"] if isinstance(raw, dict) and FIRST not in raw else raw
        template = self._binder.template({"value": value}, self._own, path, item=item)
        wrapped = value is not raw
        self._bind(template, path, 0 if wrapped else 1)
        return lambda run: template.resolve(run)["value"]

    def _bind(self, template: Template, path: Path, skip: int = 0) -> None:
        """Note what a template binds; its places begin with so many names that the plan does not have."""
        for place in template.places:
            if place.source == "secret":
                self.wrong("compute-invalid", path, "a secret cannot be computed with", "bind it in a call's params")
            self.bound.append(place._replace(path=(*path, *place.path[skip:])))

    def _operation(self, raw: dict[str, Any], path: Path, depth: int, *, item: bool) -> Get:
        names = [name for name in raw if name in OPERATIONS]
        if len(names) != 1:
            odd = str(next(iter(raw), ""))
            hint = self._problems.did_you_mean(odd, list(OPERATIONS)) or known_names(list(OPERATIONS), "operations")
            hint = f'{hint}; an object that is a value stands in {{"value": …}}'
            return self.wrong("compute-invalid", path, "an expression has exactly one operation", hint)
        self._left -= 1
        if self._left < 0:
            return self.wrong("limit-nodes", path, f"more than {MAX_OPERATIONS} operations", "let a tool compute it")
        build, options = OPERATIONS[names[0]]
        extra = [name for name in raw if name != names[0] and name not in options]
        if extra:
            hint = known_names(sorted(options), "options") if options else "it has no options"
            return self.wrong("compute-invalid", path, f"'{names[0]}' has no option {cut(extra[0], 40)}", hint)
        return build(self, _At(raw, names[0], path, depth, item))

    def wrong(self, code: str, path: Path, message: str, hint: str) -> Get:
        """Report a problem; the expression is never evaluated."""
        self._problems.add(code, path, message, hint)
        return _never

    # --- the parts of an operation ---------------------------------------------------------------------------------

    def part(self, at: _At, name: str, *, item: bool = False) -> Get:
        """The expression at an option of the operation, or at its name."""
        if name not in at.raw:
            return self.wrong("compute-invalid", at.path, f"'{at.name}' needs '{name}'", "")
        return self.read(at.raw[name], (*at.path, name), depth=at.depth + 1, item=at.item or item)

    def operands(self, at: _At, count: int = 0) -> list[Get]:
        """The operands of the operation: so many, or with 0 any number but none."""
        given = at.raw[at.name]
        place = (*at.path, at.name)
        if not isinstance(given, list) or (len(given) != count if count else not given):
            wanted = f"{count} operands" if count else "operands, at least one"
            self.wrong("compute-invalid", place, f"'{at.name}' takes a list of {wanted}", "")
            return [_never] * max(count, 1)
        return [
            self.read(each, (*place, number), depth=at.depth + 1, item=at.item) for number, each in enumerate(given)
        ]

    def each(self, at: _At, name: str = "of") -> Get:
        """What is taken of each item: the item itself, unless the option says more."""
        return self.part(at, name, item=True) if name in at.raw else lambda run: run.item

    def conditions(self, at: _At, name: str, *, item: bool) -> Condition:
        """The conditions at an option of the operation, or at its name."""
        reader = ConditionReader(self._binder, self._problems, self._own, item=at.item or item)
        if name not in at.raw:
            self.wrong("compute-invalid", at.path, f"'{at.name}' needs '{name}'", "")
        found = reader.read(at.raw.get(name, []) or [], (*at.path, name)) if name in at.raw else Condition()
        self.bound += reader.bound
        return found

    def word(self, at: _At, name: str, choices: Mapping[str, Any], default: str) -> str:
        """One of some words."""
        word = at.raw.get(name, default)
        if not isinstance(word, str) or word not in choices:
            self.wrong("compute-invalid", (*at.path, name), f"'{name}' is one of {', '.join(choices)}", "")
            return default
        return word

    def places(self, at: _At) -> int:
        """The places after the point."""
        found = at.raw.get("places", 0)
        if type(found) is not int or not 0 <= found <= decimals.MAX_PLACES:
            message = f"'places' is a whole number from 0 to {decimals.MAX_PLACES}"
            self.wrong("compute-invalid", (*at.path, "places"), message, "")
            return 0
        return found


class Computation(Template):
    """A computation as the params of its step: their only value is the result."""

    __slots__ = ("_get",)

    def __init__(self, body: dict[str, Any], places: tuple[Place, ...], get: Get) -> None:
        super().__init__({WORD: body}, None, places)
        self._get = get

    def resolve(self, scope: Scope) -> dict[str, Any]:
        """The result, under its word. Raises ``BindingUnresolved``, also for operands that have no result."""
        try:
            return {WORD: self._get(Run(scope))}
        except NotComputable as error:
            raise BindingUnresolved(f"the computation has no result: {error}") from error


def computation(binder: Binder, problems: Problems, body: dict[str, Any], own: str, path: Path) -> Computation:
    """Compile the computation of the step at ``path``; wrong expressions become problems."""
    reader = ComputeReader(binder, problems, own)
    get = reader.read(body, (*path, WORD))
    places = tuple(place._replace(path=place.path[len(path) :]) for place in reader.bound)
    return Computation(body, places, get)


def inline(
    binder: Binder, raw: dict[str, Any], own: str, path: Path, *, item: bool
) -> tuple[Inline | None, list[Place]]:
    """A computation that stands in params, and what it binds; None: it has a problem.

    ``item``: the params are resolved for each item of a list.
    """
    before = binder.problems.count
    if len(raw) != 1:
        hint = f'write {{"{COMPUTE}": {{"add": [1, 2]}}}}'
        binder.problems.add("compute-invalid", path, f"'{COMPUTE}' stands alone in its object", hint)
        return None, []
    reader = ComputeReader(binder, binder.problems, own)
    made = Inline(raw, reader.read(raw[COMPUTE], (*path, COMPUTE), item=item), constant=not reader.bound)
    if binder.problems.count == before and not reader.bound:
        try:
            made.get(_NOTHING)
        except BindingUnresolved as error:
            binder.problems.add("compute-invalid", path, error.message, "")
    return (made, reader.bound) if binder.problems.count == before else (None, [])


class Inline:
    """The result of a computation, as a part of params (:class:`saga_engine.plan.bindings.Node`)."""

    __slots__ = ("_constant", "_get", "_raw")

    def __init__(self, raw: dict[str, Any], get: Get, *, constant: bool) -> None:
        self._raw = raw
        self._get = get
        self._constant = constant

    def get(self, scope: Scope) -> Any:
        """The result. Raises ``BindingUnresolved``, also for operands that have none."""
        try:
            return self._get(Run(scope))
        except NotComputable as error:
            raise BindingUnresolved(f"the computation has no result: {error}") from error

    def sample(self, inputs: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """The result, if it binds nothing."""
        return self.get(_NOTHING) if self._constant else self._raw


class _Nothing:
    """The scope of a computation that binds nothing."""

    saga_id = ""
    item: Any = None
    index = 0
    input: Mapping[str, Any] = {}
    end: Mapping[str, Any] = {}

    def output(self, step_key: str) -> Any:
        raise AssertionError(step_key)

    params = before = key = secret = output


_NOTHING: Final = _Nothing()


def is_operation(value: Any) -> str:
    """The name of the operation that an object has the form of; empty: of none."""
    if not isinstance(value, dict):
        return ""
    names = [name for name in value if name in OPERATIONS]
    return names[0] if len(names) == 1 and value.keys() <= {names[0], *OPERATIONS[names[0]][1]} else ""


def _never(run: Run) -> Any:  # noqa: ARG001
    raise AssertionError("an expression with a problem is never evaluated")


def _numbers(gets: list[Get], run: Run) -> list[Number]:
    return [decimals.number(get(run)) for get in gets]


# --- the operations ------------------------------------------------------------------------------------------------


def _arithmetic(compute: Callable[[list[Number]], Number], count: int = 0) -> Callable[[ComputeReader, _At], Get]:
    def build(reader: ComputeReader, at: _At) -> Get:
        gets = reader.operands(at, count)
        return lambda run: compute(_numbers(gets, run)).plain()

    return build


def _subtract(reader: ComputeReader, at: _At) -> Get:
    """Of numbers; of dates it gives the days between them, and of a date and a duration the date before."""
    one, other = reader.operands(at, 2)

    def get(run: Run) -> Any:
        start, by = one(run), other(run)
        if not isinstance(start, str) or amount(start) is not None:
            return decimals.subtract(decimals.number(start), decimals.number(by)).plain()
        day = dates.moment(start)
        if isinstance(by, str) and by.removeprefix("-").startswith("P"):
            months, rest = dates.duration(by)
            return dates.written(dates.later(day, dates.Duration(-months, -rest)))
        return dates.days_between(dates.moment(by), day)

    return get


def _divide(reader: ComputeReader, at: _At) -> Get:
    one, other = reader.operands(at, 2)
    places, mode = reader.places(at), reader.word(at, "mode", decimals.ROUNDING, "half-up")

    def get(run: Run) -> Any:
        return decimals.divide(decimals.number(one(run)), decimals.number(other(run)), places, mode).plain()

    return get


def _round(reader: ComputeReader, at: _At) -> Get:
    get = reader.part(at, "round")
    places, mode = reader.places(at), reader.word(at, "mode", decimals.ROUNDING, "half-up")
    return lambda run: decimals.rounded(decimals.number(get(run)), places, mode).plain()


def _over(compute: Callable[[list[Number]], Number]) -> Callable[[ComputeReader, _At], Get]:
    def build(reader: ComputeReader, at: _At) -> Get:
        items, of = reader.part(at, at.name), reader.each(at)
        return lambda run: compute([decimals.number(of(run)) for _ in run.over(items(run))]).plain()

    return build


def _extreme(choose: Callable[..., Number]) -> Callable[[list[Number]], Number]:
    def compute(found: list[Number]) -> Number:
        if not found:
            raise NotComputable("the list is empty")
        return choose(found, key=lambda each: each.value)

    return compute


def _count(reader: ComputeReader, at: _At) -> Get:
    items = reader.part(at, "count")
    where = reader.conditions(at, "where", item=True) if "where" in at.raw else None
    return lambda run: sum(1 for _ in run.over(items(run)) if where is None or _holds(where, run))


def _map(reader: ComputeReader, at: _At) -> Get:
    items, of = reader.part(at, "map"), reader.part(at, "of", item=True)
    return lambda run: [of(run) for _ in run.over(items(run))]


def _filter(reader: ComputeReader, at: _At) -> Get:
    items, where = reader.part(at, "filter"), reader.conditions(at, "where", item=True)
    return lambda run: [item for item in run.over(items(run)) if _holds(where, run)]


def _sort(reader: ComputeReader, at: _At) -> Get:
    items, by = reader.part(at, "sort"), reader.each(at, "by")
    down = reader.word(at, "order", {"up": 0, "down": 1}, "up") == "down"

    def get(run: Run) -> Any:
        found = items(run)
        keys = [by(run) for _ in run.over(found)]
        if all(isinstance(key, str) for key in keys) and not all(amount(key) is not None for key in keys):
            ranks: list[Any] = keys
        else:
            ranks = [decimals.number(key).value for key in keys]
        return [found[index] for index in sorted(range(len(keys)), key=ranks.__getitem__, reverse=down)]

    return get


def _pick(reader: ComputeReader, at: _At) -> Get:
    items, of = reader.part(at, "pick"), reader.each(at)
    where = reader.conditions(at, "where", item=True) if "where" in at.raw else None
    several = reader.word(at, "several", {"first": 0, "error": 1}, "first")
    default = reader.part(at, "default") if "default" in at.raw else None

    def get(run: Run) -> Any:
        found: list[tuple[int, Any]] = []
        with closing(run.over(items(run))) as visits:
            for _ in visits:
                if where is None or _holds(where, run):
                    found.append((run.index, of(run)))
                    if several == "first":
                        break
        if len(found) > 1:
            raise NotComputable(f"{len(found)} items fit, and one is wanted: {_named(found)}")
        if not found and default is None:
            raise NotComputable("no item fits")
        return found[0][1] if found or default is None else default(run)

    return get


def _named(found: Sequence[tuple[int, Any]]) -> str:
    """What fits, for whoever is to choose: short texts and numbers are named, other items only by their position."""

    def name(at: int, value: Any) -> str:
        short = isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _MAX_NAME_CHARS)
        return cut(value, 6 * _MAX_NAME_CHARS) if short else f"item {at}"

    shown = [name(at, value) for at, value in found[:_MAX_NAMED]]
    return ", ".join([*shown, f"and {len(found) - _MAX_NAMED} more"] if len(found) > _MAX_NAMED else shown)


def _if(reader: ComputeReader, at: _At) -> Get:
    test = reader.conditions(at, "if", item=False)
    then, other = reader.part(at, "then"), reader.part(at, "else")
    return lambda run: then(run) if _holds(test, run) else other(run)


def _join(reader: ComputeReader, at: _At) -> Get:
    items, of = reader.part(at, "join"), reader.each(at)
    between = at.raw.get("with", "")
    if not isinstance(between, str):
        return reader.wrong("compute-invalid", (*at.path, "with"), "'with' is a text", "")

    def get(run: Run) -> str:
        texts = [of(run) for _ in run.over(items(run))]
        if not all(isinstance(text, str | int) and not isinstance(text, bool) for text in texts):
            raise NotComputable("only texts and whole numbers are joined")
        if sum(len(str(text)) + len(between) for text in texts) > MAX_TEXT_CHARS:
            raise NotComputable(f"the text has more than {MAX_TEXT_CHARS} characters")
        return between.join(map(str, texts))

    return get


def _date_add(reader: ComputeReader, at: _At) -> Get:
    start, by = reader.operands(at, 2)
    return lambda run: dates.written(dates.later(dates.moment(start(run)), dates.duration(by(run))))


def _days_between(reader: ComputeReader, at: _At) -> Get:
    start, end = reader.operands(at, 2)
    return lambda run: dates.days_between(dates.moment(start(run)), dates.moment(end(run)))


def _weekday(reader: ComputeReader, at: _At) -> Get:
    day = reader.part(at, "weekday")
    return lambda run: dates.moment(day(run)).isoweekday()


def _holds(condition: Condition, run: Run) -> bool:
    truth = condition.evaluate(run)
    if isinstance(truth, bool):
        return truth
    raise NotComputable(truth)


#: What builds each operation, and its options.
OPERATIONS: Final[Mapping[str, tuple[Callable[[ComputeReader, _At], Get], frozenset[str]]]] = {
    "add": (_arithmetic(decimals.add), frozenset()),
    "subtract": (_subtract, frozenset()),
    "multiply": (_arithmetic(decimals.multiply), frozenset()),
    "divide": (_divide, frozenset({"places", "mode"})),
    "percent": (_arithmetic(lambda found: decimals.percent(*found), 2), frozenset()),
    "round": (_round, frozenset({"places", "mode"})),
    "sum": (_over(decimals.add), frozenset({"of"})),
    "min": (_over(_extreme(min)), frozenset({"of"})),
    "max": (_over(_extreme(max)), frozenset({"of"})),
    "count": (_count, frozenset({"where"})),
    "map": (_map, frozenset({"of"})),
    "filter": (_filter, frozenset({"where"})),
    "sort": (_sort, frozenset({"by", "order"})),
    "pick": (_pick, frozenset({"where", "of", "several", "default"})),
    "if": (_if, frozenset({"then", "else"})),
    "join": (_join, frozenset({"of", "with"})),
    "date_add": (_date_add, frozenset()),
    "days_between": (_days_between, frozenset()),
    "weekday": (_weekday, frozenset()),
}
