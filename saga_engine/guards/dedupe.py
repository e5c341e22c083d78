"""De-duplication, for tools that honour no key: an identical call of another saga gets the first result.

Intent first: a call is claimed before it is made, and its result is stored before it is reported. A claim without a
result is a call in doubt, and stays one until its owner has settled it or its time has passed.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from saga_engine.core.effects import COMPENSATE, FORWARD, Done, ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.core.scrubbing import Scrubber
from saga_engine.core.states import COMPENSATED, WAIVED
from saga_engine.errors import SagaError, StoreUnavailable, ValueNotJson
from saga_engine.guards.waiting import Word, store_trouble, turned_away
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.plan.values import digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saga_engine.guards.waiting import Chores, Counts, Waiting
    from saga_engine.ports import Call, Claim, GuardStore, SagaLookup
    from saga_engine.tools.decorator import AnyTool
    from saga_engine.tools.invoke import Invocation
    from saga_engine.tools.registry import ToolRegistry

_log = logger_of("saga_engine.guards")

_MARKER: Final = re.compile(r"\{?\$secret\.[A-Za-z_][A-Za-z0-9_]*\}?")
#: Rounds of asking who relies on a result; if they do not suffice, new ones keep coming.
_ROUNDS: Final = 5
_MAX_NAMED: Final = 5
#: Pauses between two checks of an identical call in progress, in seconds.
_POLL_S: Final = 0.005
_POLL_MAX_S: Final = 0.2


def call_digest(tool: str, params: Mapping[str, Any], call: Call) -> str:
    """The common content of identical calls. Secrets count by name, so that no digest of one is ever stored.

    Raises ``ValueNotJson``.
    """
    return digest([tool, dict(params if call.masked is None else call.masked)])


class CallIdentity(NamedTuple):
    """The place of a call in the de-duplication: its tool, the common content of identical calls, and its lifetime."""

    tool: str
    digest: str
    ttl_ms: int


class Deduplication:
    """The guard of one tool. Forward it stores results; backward it prevents an undo of what another saga relies on."""

    __slots__ = ("_counts", "_inner", "_kept", "_tool", "_ttl_ms", "_waiting")

    def __init__(self, tool: AnyTool, inner: Invocation, kept: KeptResults, counts: Counts, waiting: Waiting) -> None:
        self._waiting = waiting
        self._tool = tool
        self._inner = inner
        self._kept = kept
        self._counts = counts
        self._ttl_ms = None if tool.dedupe_ttl_s is None else round(tool.dedupe_ttl_s * 1000)

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call, unless it has been made (forward) or must not be undone (backward, or by the saga itself)."""
        if call.direction == COMPENSATE or call.undoes is not None:
            refused = await self._kept.release(call)
            return await self._inner(params, call) if refused is None else refused
        if self._ttl_ms is None or call.direction != FORWARD:
            return await self._inner(params, call)
        try:
            identity = CallIdentity(self._tool.name, call_digest(self._tool.name, params, call), self._ttl_ms)
        except ValueNotJson as error:
            return NotDone(ErrorInfo("params_invalid", error.message, error.hint, retryable=False), retryable=False)
        return await self._once(identity, params, call)

    async def _once(self, identity: CallIdentity, params: Mapping[str, Any], call: Call) -> Outcome:
        name, owner = identity.tool, call.idempotency_key
        try:
            claim = await self._kept.claim(identity, owner)
            if claim.code == "busy" and saga_of(claim.owner) != call.saga_id:
                found = await self._in_turn(identity, call)
                if isinstance(found, Word):
                    return turned_away(found, "the answer of an identical call")
                claim = found
        except SagaError as error:
            return store_trouble(error, f"whether this call of {name!r} was made before")
        if claim.owner and claim.owner != owner and saga_of(claim.owner) == call.saga_id:
            # A plan that contains a call twice means it: only another saga, or another submission, is a duplicate.
            await self._kept.unrely(name, claim.owner, owner)
            return await self._inner(params, call)
        if claim.code == "done":
            self._counts["deduplicated"] += claim.owner != owner
            return _answered(claim, owner)
        if claim.code == "busy":
            return _in_flight(name, claim)
        outcome = await self._inner(params, call)
        if type(outcome) is Done:
            await self._kept.remember(identity, outcome, params, call)
        elif type(outcome) is NotDone and _settles(outcome, claim, call):
            await self._kept.forget(name, owner)
        return outcome

    async def _in_turn(self, identity: CallIdentity, call: Call) -> Claim | Word:
        """Wait for the identical call in progress; returns its outcome once it is known, for as long as it may take."""
        loop = asyncio.get_running_loop()
        pause_s = _POLL_S
        until_s = loop.time() + call.timeout_s
        while True:
            word = await self._waiting.pause(pause_s, call, self._counts)
            if word is not Word.TURN:
                return word
            claim = await self._kept.claim(identity, call.idempotency_key)
            if claim.code != "busy" or loop.time() >= until_s:
                return claim
            if not await self._kept.sagas.saga_driven(saga_of(claim.owner)):
                # Nobody is making it now: it has ended since the claim was refused, or its outcome is in doubt.
                return await self._kept.claim(identity, call.idempotency_key)
            pause_s = min(2 * pause_s, _POLL_MAX_S)


def _settles(outcome: NotDone, claim: Claim, call: Call) -> bool:
    """Whether a 'not done' settles the whole claim: an earlier attempt may be in doubt.

    It may be if the claim existed already. Then only a tool's own permanent refusal covers all attempts under the key.
    """
    first = claim.code == "new" or call.attempt <= 1
    return first or (outcome.definite and not outcome.retryable)


def _answered(claim: Claim, owner: str) -> Outcome:
    try:
        output = msgspec.json.decode(claim.result)
    except msgspec.DecodeError as error:
        return Unknown(ErrorInfo("result_unreadable", said("result_unreadable", owner=claim.owner, why=error)))
    if claim.owner == owner:
        return Done(output)  # an earlier attempt, whose result never reached the journal
    return Done(output, via="deduplicated", source=claim.owner, age_ms=claim.age_ms)


def _in_flight(name: str, claim: Claim) -> NotDone:
    # Not definite: another saga's call in progress says nothing about our own earlier attempts.
    return NotDone(
        ErrorInfo(
            "duplicate_in_flight",
            said("duplicate_in_flight", saga=repr(saga_of(claim.owner)), tool=repr(name)),
            suggestion=said("duplicate_in_flight.hint"),
            retryable=True,
        ),
        retryable=True,
    )


def saga_of(owner: str) -> str:
    """The saga of an idempotency key."""
    return owner.partition(":")[0]


class KeptResults:
    """The shared part of all tools' de-duplication."""

    __slots__ = ("_chores", "_good", "_registry", "sagas", "store")

    def __init__(self, store: GuardStore, sagas: SagaLookup, registry: ToolRegistry, chores: Chores) -> None:
        self.store = store
        self.sagas = sagas
        self._registry = registry
        self._chores = chores
        #: Last good results that are still to be written; a newer one replaces an older.
        self._good: dict[tuple[str, str], tuple[bytes, int]] = {}

    def ttl_ms(self, name: str) -> int | None:
        """How long the calls of a tool are stored; None: not at all."""
        tool = self._registry.get(name)
        return None if tool is None or tool.dedupe_ttl_s is None else round(tool.dedupe_ttl_s * 1000)

    # --- results -------------------------------------------------------------------------------------------------

    async def claim(self, identity: CallIdentity, owner: str) -> Claim:
        """Claim a call, replacing the claim of a saga that has been compensated. Raises ``SagaError``.

        The effects of such a saga do not exist, but the store does not know that: an operator said that the call did
        not happen, or undid it by hand. (A saga that was waived or has expired may have left its effect.)
        """
        claim = await self.store.claim(identity.tool, identity.digest, owner, identity.ttl_ms)
        other = saga_of(claim.owner)
        if other in ("", saga_of(owner)) or await self.sagas.saga_status(other) != COMPENSATED:
            return claim
        heir = (await self.store.tally(f"fork\n{other}")).get(claim.owner.split(":")[1])
        if heir is not None and await self.sagas.saga_status(heir) != COMPENSATED:
            return claim  # a fork owns the effect now: it exists, or will be the fork's
        await self.store.unrely(identity.tool, claim.owner, owner)
        if await self.store.forget(identity.tool, claim.owner):
            return claim  # others still rely on it: they must settle an effect that was undone meanwhile
        return await self.store.claim(identity.tool, identity.digest, owner, identity.ttl_ms)

    async def remember(self, identity: CallIdentity, done: Done, params: Mapping[str, Any], call: Call) -> None:
        """Store a result. If that fails the call has happened nevertheless: the claim stays, without result."""
        try:
            await self.learn(identity, done, params, call)
        except StoreUnavailable as error:
            _log.warning(
                "the result of %s for %s could not be remembered: %s", identity.tool, call.idempotency_key, error
            )

    async def learn(self, identity: CallIdentity, done: Done, params: Mapping[str, Any], call: Call) -> None:
        """Store a result that is durable elsewhere, so that it can be stored later. Raises ``StoreUnavailable``."""
        result = encoded(done.output, params, call)
        try:
            await self.store.remember(identity.tool, identity.digest, call.idempotency_key, result, identity.ttl_ms)
        except StoreUnavailable:
            raise
        except SagaError as error:
            _log.warning(
                "the result of %s for %s could not be remembered: %s", identity.tool, call.idempotency_key, error
            )

    async def forget(self, name: str, owner: str) -> None:
        """Drop a claim. If that fails it expires by itself."""
        try:
            await self.store.forget(name, owner)
        except SagaError as error:
            _log.warning("the claim of %s on %s could not be dropped: %s", owner, name, error)

    async def unrely(self, name: str, owner: str, relying: str) -> None:
        """Stop relying on an owner's result. If that fails, its undo asks an operator unnecessarily."""
        try:
            await self.store.unrely(name, owner, relying)
        except SagaError as error:
            _log.warning("%s could not be taken from those that rely on %s: %s", relying, owner, error)

    async def recollect(self, name: str, owner: str) -> Done | None:
        """The stored result of an owner's call; None if there is none, or the store does not answer."""
        try:
            found = await self.store.recollect(name, owner)
            return None if found is None else Done(msgspec.json.decode(found))
        except (SagaError, msgspec.DecodeError) as error:
            _log.warning("the result of %s for %s could not be looked up: %s", name, owner, error)
            return None

    # --- before an undo ------------------------------------------------------------------------------------------

    async def release(self, call: Call) -> NotDone | None:
        """Forget the call whose undo comes next; an outcome if other sagas rely on its result."""
        if call.undoes is None or self.ttl_ms(call.undoes[0]) is None:
            return None
        name, owner = call.undoes
        relying: list[str] = []
        try:
            for _ in range(_ROUNDS):
                relying = sorted(await self.store.forget(name, owner))
                if not relying:
                    return None
                free = [other for other in relying if await self._over(other, call.saga_id)]
                if not free:
                    break
                for other in free:
                    await self.store.unrely(name, owner, other)
        except SagaError as error:
            return store_trouble(error, f"whether another saga relies on this call of {name!r}")
        return _shared(name, relying)

    async def _over(self, owner: str, own: str) -> bool:
        """Whether a saga no longer relies on a result. Our own is going backward, so it does not."""
        saga = saga_of(owner)
        return saga == own or await self.sagas.saga_status(saga) in (None, COMPENSATED, WAIVED)

    # --- last good results ---------------------------------------------------------------------------------------

    def keep_good(self, name: str, params_digest: str, result: bytes, ttl_ms: int) -> None:
        """Store the last good result of a read; nobody waits for it."""
        waits = bool(self._good)
        self._good[name, params_digest] = (result, ttl_ms)
        if not waits:
            self._chores.start(self._write_good(), "keeping last good results")

    async def _write_good(self) -> None:
        try:
            while self._good:
                (name, params_digest), (result, ttl_ms) = next(iter(self._good.items()))
                await self.store.keep_good(name, params_digest, result, ttl_ms)
                if self._good.get((name, params_digest)) == (result, ttl_ms):
                    del self._good[name, params_digest]
        finally:
            self._good.clear()

    async def good(self, name: str, params: Mapping[str, Any], max_age_s: float, call: Call) -> Outcome:
        """The last good result of a read, if it is not too old."""
        try:
            found = await self.store.good(name, call_digest(name, params, call))
            if found is not None and found[1] <= max_age_s * 1000:
                return Done(msgspec.json.decode(found[0]), via="cache", age_ms=found[1])
        except SagaError as error:
            return store_trouble(error, f"the last good result of {name!r}")
        except msgspec.DecodeError as error:
            _log.warning("the last good result of %s is unreadable: %s", name, error)
            found = None
        why = "none is kept" if found is None else f"the last one is {found[1] / 1000:.1f} s old"
        message = said("no_last_good", tool=repr(name), s=f"{max_age_s:g}", why=why)
        return NotDone(ErrorInfo("no_last_good", message, retryable=False), retryable=False)


class LastGood:
    """The guard of one read: stores its results for the time when it cannot be called."""

    __slots__ = ("_inner", "_kept", "_name", "_ttl_ms")

    def __init__(self, name: str, keep_s: float, inner: Invocation, kept: KeptResults) -> None:
        self._name = name
        self._ttl_ms = round(keep_s * 1000)
        self._inner = inner
        self._kept = kept

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call."""
        outcome = await self._inner(params, call)
        if type(outcome) is Done and call.direction == FORWARD:
            params_digest = call_digest(self._name, params, call)
            self._kept.keep_good(self._name, params_digest, encoded(outcome.output, params, call), self._ttl_ms)
        return outcome


def _shared(name: str, relying: list[str]) -> NotDone:
    sagas = list(dict.fromkeys(saga_of(owner) for owner in relying))
    more = f" and {len(sagas) - _MAX_NAMED} more" if len(sagas) > _MAX_NAMED else ""
    named = ", ".join(sagas[:_MAX_NAMED]) + more
    return NotDone(
        ErrorInfo(
            "result_shared",
            said("result_shared", tool=repr(name), sagas=named),
            suggestion=said("result_shared.hint"),
            retryable=False,
        ),
        retryable=False,
        definite=True,
    )


# --- secrets are not kept, not even as an echo -----------------------------------------------------------------------


def encoded(output: Any, params: Mapping[str, Any], call: Call) -> bytes:
    """A result in its stored form: JSON, with markers in place of the secrets that the params contain."""
    if call.masked is not None:
        known: dict[str, str] = {}
        _find_secrets(params, call.masked, known)
        if known:
            output = Scrubber({value: value for value in known}, known.__getitem__).value(output)
    return msgspec.json.encode(output)


def _find_secrets(real: Any, masked: Any, known: dict[str, str]) -> None:
    """Collect the values of secrets by comparing params with their masked form."""
    if isinstance(real, str) and isinstance(masked, str):
        if real == masked:
            return
        markers = _MARKER.findall(masked)
        found = re.fullmatch("(.*?)".join(re.escape(text) for text in _MARKER.split(masked)), real, re.DOTALL)
        pairs = zip(found.groups(), markers, strict=True) if found and markers else [(real, masked)]
        known.update((value, marker) for value, marker in pairs if value)
    elif isinstance(real, dict) and isinstance(masked, dict):
        for key, value in real.items():
            if key in masked:
                _find_secrets(value, masked[key], known)
    elif isinstance(real, list) and isinstance(masked, list):
        for one, other in zip(real, masked, strict=False):
            _find_secrets(one, other, known)
