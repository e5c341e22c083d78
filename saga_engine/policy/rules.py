"""The rules of a policy, as ``saga.toml`` or Python states them."""

from __future__ import annotations

import copy
import fnmatch
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as fields_of
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

from saga_engine.core.effects import Direction
from saga_engine.errors import SettingInvalid
from saga_engine.plan.amounts import amount
from saga_engine.policy.conditions import FOLDERS, Clause, Condition, Faulty, Held
from saga_engine.policy.hosts import Addresses, Resolver, common
from saga_engine.policy.param_path import Reach

PolicyVerdict = Literal["allow", "deny", "ask"]

VERDICTS: Final = ("allow", "deny", "ask")
DIRECTIONS: Final = ("forward", "compensate")
#: The default lifetime of a question and its approval, in seconds.
EXPIRES_S: Final = 86_400.0
MAX_EXPIRES_S: Final = 315_360_000.0
MAX_NAME_CHARS: Final = 200
MAX_MESSAGE_CHARS: Final = 2000
#: Names in records for verdicts of no rule.
CHECK: Final = "check"
DEFAULT: Final = "default"

_NO_COUNT: Final = "only a rule that denies or asks can count; put it before the rule that allows"


@dataclass(frozen=True, slots=True)
class PolicyRequest:
    """A call that is about to be made, as a policy's ``check`` sees it. ``params`` hold real secrets: do not log them.

    ``params`` have the tool's defaults filled in where the plan left them out. A backward call that is not the
    registered undo of its step is shown twice, once for each direction, and the stricter answer counts.
    """

    tool: str
    effect: str
    params: Mapping[str, Any]
    direction: Direction
    saga_id: str
    step_id: str
    attempt: int


Check = Callable[[PolicyRequest], "PolicyVerdict | Awaitable[PolicyVerdict | None] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: the calls that it matches, and its verdict on them.

    ``name``: unique; it stands in records. ``verdict``: ``allow``, ``deny`` or ``ask``. ``tools``: globs on names; by
    default all tools. ``direction``: ``forward`` or ``compensate``; by default both. A backward call that is not the
    registered undo of its step is authorized in both directions, and the stricter verdict counts. ``when``: what must
    hold, all of it. ``max_calls``: for rules that deny or ask: the rule matches each call of a saga beyond so many.
    ``max_sum``: for the same rules, ``{"param": …, "limit": …}``: it matches a call with which the sum over a saga
    would pass the limit. With both, it matches beyond either. ``expires_s``: how long a question and its approval
    stand. ``message``: shown to operators and recorded.
    """

    name: str
    verdict: PolicyVerdict
    tools: Sequence[str] = ()
    direction: Direction | None = None
    when: Sequence[Condition | Mapping[str, Any]] = ()
    max_calls: int | None = None
    max_sum: Mapping[str, Any] | None = None
    expires_s: float = EXPIRES_S
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTable:
    """Which calls may be made, and which an operator approves first.

    ``default``: the verdict on calls of which no rule speaks. ``allow_private``: addresses and networks that hosts may
    resolve to although they are not public: ``["127.0.0.1", "10.1.0.0/16"]``. ``rules``: the first that matches a call
    decides.
    """

    default: PolicyVerdict = "allow"
    allow_private: Sequence[str] = ()
    rules: Sequence[Mapping[str, Any]] = ()


_RULE_FIELDS: Final = tuple(field.name for field in fields_of(Rule))
_CONDITION_FIELDS: Final = tuple(field.name for field in fields_of(Condition))
_POLICY_FIELDS: Final = tuple(field.name for field in fields_of(PolicyTable))


class Policy:
    """Parsed rules; the first that matches a call decides.

    ``default`` (allow, deny or ask) is for calls that neither a rule nor ``check`` decides. ``allow_private``:
    addresses and networks that hosts may resolve to although they are not public. ``check`` is asked after the rules,
    may be a coroutine function, and answers with a verdict or None. ``base``: the folder from which folders in rules
    count. Raises ``SettingInvalid`` that names the rule and the field.
    """

    __slots__ = ("addresses", "allow_private", "check", "default", "defaults", "rules")

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        default: PolicyVerdict = "allow",
        allow_private: Sequence[str] = (),
        check: Check | None = None,
        *,
        base: Path | None = None,
        source: str = "the policy",
        resolver: Resolver | None = None,
    ) -> None:
        if default not in VERDICTS:
            raise _invalid(source, "", DEFAULT, f"{default!r} is no verdict", f"one of {', '.join(VERDICTS)}")
        if not isinstance(allow_private, list | tuple):
            raise _invalid(source, "", "allow_private", "it must be a list of addresses and networks")
        try:
            self.addresses = Addresses(allow_private, resolver=resolver)
        except ValueError as error:
            raise _invalid(source, "", "allow_private", str(error), 'write "127.0.0.1" or "10.1.0.0/16"') from error
        if check is not None and not callable(check):
            raise _invalid(source, "", CHECK, "it is no function")
        self.default: PolicyVerdict = default
        #: The default of each policy that this one is made of; a rule belongs to one of them, its ``layer``.
        self.defaults: tuple[PolicyVerdict, ...] = (default,)
        self.allow_private = tuple(allow_private)
        self.check = check
        self.rules: tuple[RuleMatcher, ...] = tuple(
            RuleMatcher(rule, base or Path.cwd(), self.addresses, source) for rule in rules
        )
        _refuse_twins(self.rules, source)

    @classmethod
    def parse(cls, table: Mapping[str, Any], *, base: Path, source: str) -> Policy:
        """The policy in the ``[policy]`` table of ``saga.toml``, which lies in ``base``. Raises ``SettingInvalid``."""
        _known(table, _POLICY_FIELDS, source, "")
        given = PolicyTable(**table)
        listed = given.rules
        if not isinstance(listed, list | tuple) or not all(isinstance(each, dict) for each in listed):
            raise _invalid(source, "", "rules", "it must be a list of tables", "write [[policy.rules]]")
        rules: list[Rule] = []
        for number, each in enumerate(listed, 1):
            label = each["name"] if isinstance(each.get("name"), str) and each["name"] else f"number {number}"
            _known(each, _RULE_FIELDS, source, label)
            for field in ("name", "verdict"):
                if field not in each:
                    raise _invalid(source, label, field, "it is missing")
            rules.append(Rule(**each))
        return cls(rules, given.default, given.allow_private, base=base, source=source)

    def tightened(self, other: Policy) -> Policy:
        """A policy by which a call is allowed if both allow it; the stricter verdict counts. ``check`` is ours.

        Raises ``SettingInvalid`` if rules of both have the same name.
        """
        defaults = (*self.defaults, *other.defaults)
        made = Policy((), strictest(defaults), common(self.allow_private, other.allow_private), self.check)
        made.defaults = defaults
        moved = [copy.copy(rule) for rule in other.rules]
        for rule in moved:
            rule.layer += len(self.defaults)
        made.rules = (*self.rules, *moved)
        _refuse_twins(made.rules, "two policies")
        return made

    def unmatched(self, tools: Iterable[str]) -> list[tuple[str, str]]:
        """Globs that fit none of these tools, with their rules' names: most likely typing errors."""
        names = list(tools)
        return [
            (rule.name, glob)
            for rule in self.rules
            for glob in rule.tools
            if not any(fnmatch.fnmatchcase(name, glob) for name in names)
        ]

    def concerning(self, tool: str) -> tuple[RuleMatcher, ...]:
        """The rules that could decide about a tool, in order."""
        found = [rule for rule in self.rules if rule.speaks_of(tool)]
        if self.default == "allow" and self.check is None:
            # A rule that allows in the last place changes nothing.
            while found and found[-1].verdict == "allow":
                found.pop()
        return tuple(found)


class RuleMatcher:
    """A parsed rule."""

    __slots__ = (
        "_fast", "_globs", "_slow", "base", "counts", "direction", "expires_s", "layer", "limit", "max_calls",
        "message", "name", "named", "summed", "tools", "verdict", "written",
    )  # fmt: skip

    def __init__(self, rule: Rule, base: Path, addresses: Addresses, source: str) -> None:
        if not isinstance(rule, Rule):
            raise _invalid(source, "", "rules", f"{rule!r} is no Rule")
        _check_plain_fields(rule, source)
        self.name = rule.name
        #: The rule as it was given, and the folder from which its folders count.
        self.written, self.base = rule, base
        self.layer = 0
        self.verdict = rule.verdict
        self.tools = tuple(rule.tools)
        self.direction = rule.direction
        #: Whether it names its tools, instead of matching all.
        self.named = bool(self.tools) and all(glob.strip("*") for glob in self.tools)
        self.message = rule.message
        self.expires_s = float(rule.expires_s)
        self.max_calls = rule.max_calls
        self.summed: Reach | None = None
        self.limit = Decimal(0)
        if rule.max_sum is not None:
            self.summed, self.limit = _sum_limit(rule.max_sum, rule.name, source)
        self.counts = self.max_calls is not None or self.summed is not None
        self._globs = [re.compile(fnmatch.translate(glob)) for glob in self.tools]
        clauses = [
            _clause(each, f"when, condition {number}", rule, base=base, addresses=addresses, source=source)
            for number, each in enumerate(rule.when, 1)
        ]
        self._fast = tuple(clause for clause in clauses if not clause.slow)
        self._slow = tuple(clause for clause in clauses if clause.slow)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """All its conditions."""
        return (*self._fast, *self._slow)

    def speaks_of(self, tool: str) -> bool:
        """Whether its globs match this tool."""
        return not self._globs or any(glob.match(tool) for glob in self._globs)

    def misses(self, given: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
        """Whether a condition that needs no look-up already says that the rule does not match."""
        for clause in self._fast:
            if not clause.hold(given if clause.op in ("exists", "absent") else params).holds:
                return True
        return False

    async def hold(self, given: Mapping[str, Any], params: Mapping[str, Any]) -> Held:
        """Whether all conditions hold. ``given`` are the params as planned, ``params`` those with defaults."""
        doubt = ""
        for clause in self._fast:
            held = clause.hold(given if clause.op in ("exists", "absent") else params)
            if not held.holds:
                return held
            doubt = doubt or held.doubt
        # The file system and the network are queried last, and only about calls that match everything else.
        for clause in self._slow:
            held = await clause.hold_slowly(params)
            if not held.holds:
                return held
            doubt = doubt or held.doubt
        return Held(True, doubt)


def written(policy: Policy) -> list[Any]:
    """All that a policy says, alike in every process that reads the same; of ``check`` only which function it is."""
    check = policy.check and [getattr(policy.check, name, "") for name in ("__module__", "__qualname__")]
    rules = [
        [each.layer, each.written, str(each.base) if any(one.op in FOLDERS for one in each.clauses) else ""]
        for each in policy.rules
    ]
    return [policy.defaults, sorted(policy.allow_private), check, rules]


def strictest(verdicts: Iterable[PolicyVerdict]) -> PolicyVerdict:
    """The strictest of some verdicts; allow if there are none."""
    found = set(verdicts)
    return "deny" if "deny" in found else "ask" if "ask" in found else "allow"


def _refuse_twins(rules: Sequence[RuleMatcher], source: str) -> None:
    names: set[str] = set()
    for matcher in rules:
        if matcher.name in names:
            hint = "names stand in records: make them differ"
            raise _invalid(source, matcher.name, "name", "two rules have it", hint)
        names.add(matcher.name)


# --- reading -------------------------------------------------------------------------------------------------------


def _invalid(source: str, rule: str, field: str, problem: str, hint: str | None = None) -> SettingInvalid:
    where = f"rule {rule!r}, " if rule else ""
    return SettingInvalid(f"{source}: {where}{field}: {problem}", hint=hint, rule=rule, field=field)


def _known(table: Mapping[str, Any], fields: Sequence[str], source: str, rule: str) -> None:
    """Refuse unknown fields: such a field is a typing error that would disable a guard."""
    for field in table:
        if field not in fields:
            raise _invalid(source, rule, str(field), "there is no such field", f"fields: {', '.join(fields)}")


def _check_plain_fields(rule: Rule, source: str) -> None:
    label = rule.name if isinstance(rule.name, str) else ""

    def refuse(field: str, problem: str, hint: str | None = None) -> SettingInvalid:
        return _invalid(source, label, field, problem, hint)

    if not label or len(label) > MAX_NAME_CHARS or not label.isprintable():
        raise refuse("name", f"it must be a printable text of at most {MAX_NAME_CHARS} characters")
    if label in (CHECK, DEFAULT):
        raise refuse("name", "it stands for something else in records", "choose another name")
    if rule.verdict not in VERDICTS:
        raise refuse("verdict", f"{rule.verdict!r} is no verdict", f"one of {', '.join(VERDICTS)}")
    if not isinstance(rule.tools, list | tuple) or not all(isinstance(glob, str) and glob for glob in rule.tools):
        raise refuse("tools", "it must be a list of globs", 'write ["pay_*"]; leave it out for all tools')
    if rule.direction is not None and rule.direction not in DIRECTIONS:
        raise refuse("direction", f"{rule.direction!r} is none", "forward or compensate; leave it out for both")
    if not isinstance(rule.when, list | tuple):
        raise refuse("when", "it must be a list of conditions", '[{param = "amount", op = ">", value = 1000}]')
    if rule.max_calls is not None and (type(rule.max_calls) is not int or rule.max_calls < 0):
        raise refuse("max_calls", f"{rule.max_calls!r} is no number of calls")
    if rule.verdict == "allow" and (rule.max_calls is not None or rule.max_sum is not None):
        raise refuse("max_calls" if rule.max_calls is not None else "max_sum", "the rule allows", _NO_COUNT)
    expires_s = rule.expires_s
    number = type(expires_s) in (int, float) and math.isfinite(expires_s)
    if not number or not 0 < expires_s <= MAX_EXPIRES_S:
        raise refuse("expires_s", f"{expires_s!r} is no time", "a number of seconds, more than 0")
    if not isinstance(rule.message, str) or len(rule.message) > MAX_MESSAGE_CHARS:
        raise refuse("message", f"it must be a text of at most {MAX_MESSAGE_CHARS} characters")


def _sum_limit(table: Any, rule: str, source: str) -> tuple[Reach, Decimal]:
    hint = 'write {param = "amount", limit = 5000}'
    if not isinstance(table, Mapping):
        raise _invalid(source, rule, "max_sum", "it must be a table", hint)
    _known(table, ("param", "limit"), source, rule)
    try:
        reach = Reach(table.get("param", ""))
    except ValueError as error:
        raise _invalid(source, rule, "max_sum.param", str(error), hint) from error
    limit = amount(table.get("limit"))
    if limit is None or limit < 0:
        raise _invalid(source, rule, "max_sum.limit", f"{table.get('limit')!r} is no limit of a sum", hint)
    return reach, limit


def _clause(
    given: Condition | Mapping[str, Any], place: str, rule: Rule, *, base: Path, addresses: Addresses, source: str
) -> Clause:
    if not isinstance(given, Condition):
        if not isinstance(given, Mapping):
            raise _invalid(
                source, rule.name, place, "it must be a table", 'write {param = "amount", op = ">", value = 1}'
            )
        for field in given:
            if field not in _CONDITION_FIELDS:
                raise _invalid(source, rule.name, f"{place}, {field}", "there is no such field", "param, op and value")
        for field in ("param", "op"):
            if field not in given:
                raise _invalid(source, rule.name, f"{place}, {field}", "it is missing")
        given = Condition(**given)
    try:
        return Clause(given, wary=rule.verdict != "allow", base=base, addresses=addresses)
    except Faulty as error:
        raise _invalid(source, rule.name, f"{place}, {error.field}", str(error)) from error
