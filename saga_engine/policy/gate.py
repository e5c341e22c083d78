"""The gate before each call: evaluates the rules, stores their counts, and returns the verdict.

What a saga has used of a limit is written to the store before the call is made, under the call's idempotency key: a
crash in between, a retry or a resume counts it once and never forgets it.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from saga_engine.core.effects import COMPENSATE, FORWARD, Ask, Blocked, Direction, ErrorInfo, NotDone, Outcome
from saga_engine.errors import ValueNotJson
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.plan.amounts import amount, total
from saga_engine.plan.comparisons import no_amount
from saga_engine.plan.values import cut, digest, plain, printable
from saga_engine.policy.rules import (
    CHECK,
    DEFAULT,
    EXPIRES_S,
    VERDICTS,
    Policy,
    PolicyRequest,
    PolicyVerdict,
    RuleMatcher,
    strictest,
)
from saga_engine.ports.foreign import IN_THE_LOOP, name_of, runs_foreign_code

if TYPE_CHECKING:
    from saga_engine.ports import Call, GuardStore
    from saga_engine.tools.decorator import AnyTool

_log = logger_of("saga_engine.policy")

#: How long counts are kept after their last change if the store does not know when the saga ends (in Temporal).
TALLY_MS: Final = 30 * 24 * 3600 * 1000
#: The entry of a call whose amount is undecidable.
_UNCERTAIN: Final = "?"
_SHOWN_CHARS: Final = 300
_MESSAGE_CHARS: Final = 2000
_SUGGESTION: Final = said("policy_denied.hint")


class _Use(NamedTuple):
    """What a call adds to a tally. ``fresh``: no earlier attempt under this key left one there."""

    tally: str
    text: str
    fresh: bool


class Gate:
    """Authorizes calls by a policy. It belongs to one event loop; limits are counted in ``store``."""

    __slots__ = ("_counted", "_defaults", "_locks", "_relevant", "policy", "store")

    def __init__(self, policy: Policy, store: GuardStore) -> None:
        self.policy = policy
        self.store = store
        self._relevant: dict[str, tuple[RuleMatcher, ...]] = {}
        self._defaults: dict[str, tuple[AnyTool, Mapping[str, Any]]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: By idempotency key: the tally entries of the call that was last permitted.
        self._counted: dict[str, Sequence[_Use]] = {}

    def concerns(self, tool_name: str) -> bool:
        """Whether the policy could give any verdict but allow to a call of this tool."""
        policy = self.policy
        return policy.default != "allow" or policy.check is not None or bool(self._rules(tool_name))

    def waves_through(self, tool: AnyTool, params: Mapping[str, Any], call: Call) -> bool:
        """Whether a call is allowed, and nothing has to be counted or looked up to know it: no rule matches it.

        ``authorize`` would allow it, and ``settled`` would have nothing to do. False: it must be authorized.
        """
        policy = self.policy
        if policy.default != "allow" or policy.check is not None or call.direction == "probe":
            return False
        given = params
        defaults = self.defaults(tool)
        if defaults:
            params = {**defaults, **params}
        for rule in self._rules(tool.name):
            way = rule.direction is None or call.chosen or rule.direction == _way(call)
            if way and not rule.misses(given, params):
                return False
        self._counted.pop(call.idempotency_key, None)
        return True

    async def authorize(self, tool: AnyTool, params: Mapping[str, Any], call: Call) -> Blocked | Ask | None:
        """The verdict on one call; None: it may be made, and its use of limits is stored.

        A probe is no call of its own and always passes. Raises ``StoreUnavailable`` and ``StoreRefused`` when a limit
        cannot be looked up: then the call must not be made.
        """
        if call.direction == "probe":
            return None
        self._counted.pop(call.idempotency_key, None)
        rules = self._rules(tool.name)
        if not rules and self.policy.default == "allow" and self.policy.check is None:
            return None
        return await _Authorization(self, tool, params, call).run(rules)

    async def settled(self, tool: AnyTool, call: Call, outcome: Outcome) -> None:  # noqa: ARG002 - a part of the door
        """Remove a call's use of limits, if it certainly did not happen.

        That is so if the tool itself says so, or if the call was not made and no earlier attempt under its key is in
        doubt. Raises ``StoreUnavailable`` and ``StoreRefused``: then the call stays counted.
        """
        entries = self._counted.pop(call.idempotency_key, ())
        if not entries or not isinstance(outcome, NotDone | Blocked | Ask):
            return
        definite = isinstance(outcome, NotDone) and outcome.definite
        for entry in entries:
            if entry.fresh or definite:
                await self.store.tally_set(entry.tally, call.idempotency_key, None, TALLY_MS, call.saga_id)

    def _rules(self, tool_name: str) -> tuple[RuleMatcher, ...]:
        found = self._relevant.get(tool_name)
        if found is None:
            found = self._relevant[tool_name] = self.policy.concerning(tool_name)
        return found

    def lock(self, saga_id: str) -> asyncio.Lock:
        """One lock for each saga: parallel steps must not both use the same remainder of a limit."""
        lock = self._locks.get(saga_id)
        if lock is None:
            lock = self._locks[saga_id] = asyncio.Lock()
        return lock

    def counted(self, key: str, uses: Sequence[_Use]) -> None:
        """Store what a call has in tallies until it is settled."""
        self._counted[key] = uses

    def defaults(self, tool: AnyTool) -> Mapping[str, Any]:
        """The values that the tool uses for params that a call omits; a default of null is none."""
        known = self._defaults.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._defaults[tool.name] = (tool, _defaults(tool))
        return known[1]


def _words_of_check(local: Mapping[str, Any]) -> str:
    authorization = local["self"]
    call = authorization._call  # noqa: SLF001 - of this module
    return (
        f"the policy's check {name_of(authorization._policy.check)} "  # noqa: SLF001
        f"(tool '{authorization._tool.name}', saga {call.saga_id}, step {call.step_id})"  # noqa: SLF001
    )


class _Authorization:
    """The authorization of one call."""

    __slots__ = (
        "_asked",
        "_call",
        "_expires_s",
        "_gate",
        "_params",
        "_policy",
        "_question",
        "_shown",
        "_store",
        "_tool",
        "_uses",
    )

    def __init__(self, gate: Gate, tool: AnyTool, params: Mapping[str, Any], call: Call) -> None:
        self._gate = gate
        self._policy = gate.policy
        self._store = gate.store
        self._tool = tool
        self._call = call
        self._params = params
        self._shown = params if call.masked is None else call.masked
        #: The rules that require an approval, in order. An approval is valid for all of them and for no others.
        self._asked: list[str] = []
        #: It is valid no longer than the shortest of them allows.
        self._expires_s = math.inf
        #: The first question without a known answer.
        self._question: Ask | None = None
        self._uses: list[_Use] = []

    async def run(self, rules: Sequence[RuleMatcher]) -> Blocked | Ask | None:
        """Evaluate the rules in order, then the check and the default."""
        lock: asyncio.Lock | None = None
        defaults = self._gate.defaults(self._tool)
        params = {**defaults, **self._params} if defaults else self._params
        # The directions in which each of the policies still has to allow the call.
        ways = [_ways(self._call)] * len(self._policy.defaults)
        try:
            for rule in rules:
                mine = ways[rule.layer]
                if not mine or (rule.direction is not None and rule.direction not in mine):
                    continue
                held = await rule.hold(self._params, params)
                if not held.holds:
                    continue
                doubt = held.doubt
                if rule.counts:
                    if lock is None:
                        turn = self._gate.lock(self._call.saga_id)
                        await turn.acquire()
                        lock = turn
                    passed = await self._passes(rule, params)
                    if passed is None:
                        continue
                    doubt = passed
                if rule.verdict == "allow":
                    ways[rule.layer] = still_open(mine, rule)
                    if not any(ways):
                        break
                    continue
                blocked = self._stop(rule.verdict, rule.name, rule.message, doubt, rule.expires_s)
                if blocked is not None:
                    return blocked
                if self._question is not None and not self._call.approved:
                    # Of this policy the question is the answer; a denial of another one must not wait behind it.
                    ways[rule.layer] = ()
                    if not any(ways):
                        break
            else:
                blocked = await self._last_word(params, ways)
                if blocked is not None:
                    return blocked
            if self._question is None:
                await self._write()
            return self._question
        finally:
            if lock is not None:
                lock.release()

    # --- limits --------------------------------------------------------------------------------------------------

    async def _passes(self, rule: RuleMatcher, params: Mapping[str, Any]) -> str | None:
        """Why the call passes a limit of the rule; None if it stays within. Notes what it would add."""
        key = self._call.idempotency_key
        tally = f"{rule.name}\n{self._call.saga_id}"
        entries = dict(await self._store.tally(tally, self._call.saga_id))
        before = entries.pop(key, None)
        own, doubt = _own_amount(rule, params)
        text = format(own, "f")
        if doubt or (before is not None and amount(before) is None):
            text = _UNCERTAIN
        elif before is not None:
            # The same key with other params: whichever of the two happened, it is counted.
            own = max(own, Decimal(before))
            text = format(own, "f")
        self._uses.append(_Use(tally, text, before is None))
        if rule.max_calls is not None and len(entries) >= rule.max_calls:
            return f"the saga has made {len(entries)} such calls, and {rule.max_calls} are allowed without this rule"
        if rule.summed is None:
            return None
        if text == _UNCERTAIN:
            return f"{rule.summed.text}: {doubt or 'the amount of an earlier attempt is unknown'}"
        others = [amount(entry) for entry in entries.values()]
        if None in others:
            return f"{rule.summed.text}: the amount of an earlier call of the saga is unknown"
        if total([own, *(each for each in others if each is not None)]) > rule.limit:
            return f"with this call the sum of {rule.summed.text} passes {rule.limit}"
        return None

    async def _write(self) -> None:
        """Count the call before it is made."""
        if not self._uses:
            return
        key = self._call.idempotency_key
        self._gate.counted(key, self._uses)
        for entry in self._uses:
            await self._store.tally_set(entry.tally, key, entry.text, TALLY_MS, self._call.saga_id)

    # --- verdicts ------------------------------------------------------------------------------------------------

    async def _last_word(self, params: Mapping[str, Any], ways: Sequence[Sequence[Direction]]) -> Blocked | None:
        """What the check, then the defaults, return for a call that the rules did not allow in these directions."""
        defaults = [default for default, open_ in zip(self._policy.defaults, ways, strict=True) if open_]
        if self._policy.check is not None and ways[0]:
            words = [await self._check(params, way) for way in ways[0]]
            word = _strictest(words)
            if word == "allow":
                defaults = defaults[1:]
            elif word is not None:
                message = "" if word in VERDICTS else "the policy's check failed, so the call is not made"
                return self._stop(word if word in VERDICTS else "deny", CHECK, message, "", EXPIRES_S)
        message = "no rule of the policy speaks of this call"
        return self._stop(strictest(defaults), DEFAULT, message, "", EXPIRES_S)

    @runs_foreign_code(_words_of_check, IN_THE_LOOP)
    async def _check(self, params: Mapping[str, Any], direction: Direction) -> Any:
        """The check's own verdict. Every error of it counts as an invalid verdict."""
        call = self._call
        request = PolicyRequest(
            self._tool.name, self._tool.effect, params, direction, call.saga_id, call.step_id, call.attempt
        )
        assert self._policy.check is not None
        try:
            word: Any = self._policy.check(request)
            if inspect.isawaitable(word):
                word = await word
        except Exception as error:  # noqa: BLE001 - somebody else's code; its failure denies the call
            # Its exception may contain a secret of the params.
            trace = error if call.masked is None else None
            _log.warning("the check of the policy raised %s", type(error).__name__, exc_info=trace)
            return "failed"
        if word is not None and not (isinstance(word, str) and word in VERDICTS):
            _log.warning("the check of the policy answered with a %s that is no verdict", type(word).__name__)
            return "failed"
        return word

    def _stop(self, verdict: PolicyVerdict, rule: str, message: str, doubt: str, expires_s: float) -> Blocked | None:
        """What prevents the call for good; a question is noted, and a later rule may still deny."""
        if verdict == "allow":
            return None
        if verdict == "deny":
            text = self._text("policy_denied", rule, message, doubt)
            return Blocked(ErrorInfo("policy_denied", text, _SUGGESTION, retryable=False), rule)
        call = self._call
        self._asked.append(rule)
        self._expires_s = min(self._expires_s, expires_s)
        try:
            exact = digest(
                [call.saga_id, call.step_id, call.direction, self._tool.name, self._shown, "\n".join(self._asked)]
            )
        except ValueNotJson as error:
            text = said("policy_denied.cannot-ask", tool=self._tool.name, why=error.message)
            return Blocked(ErrorInfo("policy_denied", text, _SUGGESTION, retryable=False), rule)
        if call.approved == exact:
            # The operator who approved this question was asked only because all earlier ones had been approved.
            self._question = None
            return None
        if self._question is None:
            text = self._text("approval_required", rule, message, doubt)
            self._question = Ask(ErrorInfo("approval_required", text), exact, self._expires_s, rule)
        return None

    def _text(self, key: str, rule: str, message: str, doubt: str) -> str:
        # If there are secrets, the undecidable value may be one.
        because = f" ({doubt})" if doubt and self._call.masked is None else ""
        why = f"{because}: {message}" if message else because
        made = f"{self._tool.name} {cut(dict(self._shown), _SHOWN_CHARS)}"
        return printable(said(key, chars=2 * _MESSAGE_CHARS, call=made, rule=rule, why=why), _MESSAGE_CHARS)


def _own_amount(rule: RuleMatcher, params: Mapping[str, Any]) -> tuple[Decimal, str]:
    """What a call adds to the rule's sum, or why that is undecidable."""
    if rule.summed is None:
        return Decimal(0), ""
    found = rule.summed.find(params)
    amounts: list[Decimal] = []
    for value in found.values:
        number = amount(value)
        if number is None:
            return Decimal(0), no_amount(value)
        amounts.append(number)
    if found.strange:
        return Decimal(0), "the params are not built as this path expects"
    return total(amounts), ""


def _defaults(tool: AnyTool) -> Mapping[str, Any]:
    properties = tool.signature.input_schema.get("properties", {})
    given = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    hidden = tool.signature.hidden
    own = {name: value for name, value in tool.defaults().items() if name not in hidden}
    return {name: _plain_or_odd(value) for name, value in {**given, **own}.items() if value is not None}


def _plain_or_odd(value: Any) -> Any:
    """A default as JSON where it has such a form. Else as it is: no condition can authorize it, so none is passed."""
    try:
        return plain(value)
    except ValueNotJson:
        return value


def _way(call: Call) -> Direction:
    """The direction of a call: a step of a semantic compensation goes backward, too."""
    return COMPENSATE if call.backward or call.direction == COMPENSATE else FORWARD


def _ways(call: Call) -> tuple[Direction, ...]:
    """The directions in which a call is authorized: both, if the author of the plan chose a backward call."""
    return (COMPENSATE, FORWARD) if call.chosen else (_way(call),)


def still_open(ways: Sequence[Direction], rule: RuleMatcher) -> tuple[Direction, ...]:
    """The directions that a rule which allows leaves to the rules behind it.

    That undos are allowed in general says nothing of the calls that a plan's author makes undos; that a tool which the
    rule names may be called backward does.
    """
    if rule.direction is None or (rule.direction == COMPENSATE and rule.named):
        return ()
    return tuple(way for way in ways if way != rule.direction)


def _strictest(words: Sequence[Any]) -> Any:
    """The strictest of a check's answers; an invalid one denies, and 'allow' holds only if all say so."""
    for word in words:
        if word is not None and word not in VERDICTS:
            return word
    return next((word for word in ("deny", "ask", None) if word in words), "allow")
