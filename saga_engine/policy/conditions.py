"""Conditions on params, evaluated on the safe side.

A value satisfies a test, or it does not, or it is undecidable. A rule that denies or asks counts 'undecidable' as yes;
a rule that allows counts it as no. A value in an unusual spelling therefore never grants access.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from saga_engine.plan.comparisons import COMPARISONS, ComparisonInvalid, Predicate, Truth, predicate, texts
from saga_engine.policy.hosts import Addresses, HostPattern, HostRefused, host_of, is_address
from saga_engine.policy.param_path import Found, Reach
from saga_engine.policy.paths import inside

#: Of the value itself a reason repeats at most the host.
SlowPredicate = Callable[[Any], Awaitable[Truth]]
#: Evaluates a value of a planned call; None: only the call itself can tell.
PlannedPredicate = Callable[[Any], Truth | None]

#: How long the file system and the names of hosts may take for one condition, in seconds.
PATIENCE_S: Final = 10.0
OPS: Final = (*COMPARISONS, "exists", "absent", "inside", "outside", "host", "not-host")


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Final[Any] = _Nothing()
#: The comparisons with a folder.
FOLDERS: Final = ("inside", "outside")


class _Unknown:
    def __repr__(self) -> str:
        return "unknown"


#: A value that is known only when the call is made; in params of calls that are only planned.
UNKNOWN: Final[Any] = _Unknown()


@dataclass(frozen=True, slots=True)
class Condition:
    """One entry of a rule's ``when``: the values at a place of the params, compared with another one.

    ``param``: the place, a path: ``amount``, ``to.iban``, ``items[*].price``. ``op``: how they are compared: ``==``,
    ``in``, ``<``, ``matches``, ``inside``, ``host`` and others. ``value``: what they are compared with; ``exists`` and
    ``absent`` have none.
    """

    param: str
    op: str
    value: Any = NOTHING


class Faulty(ValueError):
    """An invalid condition; ``field`` is the wrong one."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Held(NamedTuple):
    """Whether a condition holds; ``doubt`` says what was undecidable, if that mattered."""

    holds: bool
    doubt: str = ""


class Clause:
    """A parsed condition.

    ``wary``: it belongs to a rule that denies or asks, and holds if any value satisfies it or is undecidable. Else it
    holds only if there is at least one value, none is missing, and all satisfy it for certain.
    """

    __slots__ = ("_planned", "_predicate", "_slow", "op", "reach", "slow", "wary")

    def __init__(self, condition: Condition, *, wary: bool, base: Path, addresses: Addresses) -> None:
        try:
            self.reach = Reach(condition.param)
        except ValueError as error:
            raise Faulty("param", str(error)) from error
        self.op = condition.op
        self.wary = wary
        self._predicate: Predicate | None = None
        self._slow: SlowPredicate | None = None
        self._planned: PlannedPredicate | None = None
        value = condition.value
        if self.op not in OPS:
            raise Faulty("op", f"{self.op!r} is none of {', '.join(OPS)}")
        if self.op in ("exists", "absent"):
            if value is not NOTHING:
                raise Faulty("value", f"{self.op!r} takes none")
        elif value is NOTHING:
            raise Faulty("value", "it is missing")
        elif self.op in FOLDERS:
            self._slow, self._planned = _folders(value, base, wanted=self.op == "inside")
        elif self.op in ("host", "not-host"):
            self._slow, self._planned = _hosts(value, addresses, wanted=self.op == "host")
        else:
            try:
                self._predicate = self._planned = predicate(self.op, value)
            except ComparisonInvalid as error:
                raise Faulty("value", str(error)) from error
        self.slow = self._slow is not None

    def hold(self, params: Mapping[str, Any]) -> Held:
        """Evaluate params now; for every test that is not ``slow``."""
        found = self.reach.find(params)
        if self._predicate is None:
            return self._presence(found)
        return self._sum(found, [self._predicate(value) for value in found.values])

    async def hold_slowly(self, params: Mapping[str, Any]) -> Held:
        """Evaluate params by asking the file system or the name service."""
        assert self._slow is not None
        found = self.reach.find(params)
        truths: list[Truth] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                for value in found.values:
                    truths.append(await self._slow(value))
                    if truths[-1] is self.wary or isinstance(truths[-1], str):
                        break
        except TimeoutError:
            truths.append(f"it could not be looked up within {PATIENCE_S:g} s")
        return self._sum(found, truths)

    def foresee(self, given: Mapping[str, Any], params: Mapping[str, Any]) -> bool | None:
        """Whether it holds for a planned call, as far as its text says; None: that depends on an ``UNKNOWN`` value.

        ``given`` are the params as planned, ``params`` those with defaults. No host is resolved.
        """
        if self._planned is None:
            found = self.reach.find(given)
            return None if found.strange and _has_unknown(given) else self._presence(found).holds
        found = self.reach.find(params)
        words = [None if _has_unknown(value) else self._planned(value) for value in found.values]
        truths = [word for word in words if word is not None]
        if len(truths) == len(words) and not (found.strange and _has_unknown(params)):
            return self._sum(found, truths).holds
        decided = any(word is not False for word in truths) if self.wary else any(word is not True for word in truths)
        return self.wary if decided else None

    def _sum(self, found: Found, truths: Sequence[Truth]) -> Held:
        if self.wary:
            if any(word is True for word in truths):
                return Held(True)
            for word in truths:
                if isinstance(word, str):
                    return Held(True, f"{self.reach.text}: {word}")
            return Held(found.strange, self._strange(found))
        certain = bool(truths) and not found.gaps and not found.strange and all(word is True for word in truths)
        if certain:
            return Held(True)
        doubts = [word for word in truths if isinstance(word, str)]
        return Held(False, f"{self.reach.text}: {doubts[0]}" if doubts else self._strange(found))

    def _presence(self, found: Found) -> Held:
        there = bool(found.values)
        if self.op == "exists":
            holds = there or found.strange if self.wary else there and not found.gaps and not found.strange
        elif self.wary:
            holds = not there or found.gaps or found.strange
        else:
            holds = not there and not found.strange
        return Held(holds, self._strange(found))

    def _strange(self, found: Found) -> str:
        return f"{self.reach.text}: the params are not built as this path expects" if found.strange else ""


# --- tests of one value that need the file system or the network ----------------------------------------------------


def _texts(value: Any) -> list[str]:
    try:
        return texts(value)
    except ComparisonInvalid as error:
        raise Faulty("value", str(error)) from error


def _has_unknown(value: Any) -> bool:
    """Whether a planned value, or a part of it, is known only at the call."""
    if isinstance(value, Mapping):
        return any(_has_unknown(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_has_unknown(item) for item in value)
    return value is UNKNOWN


def _folders(value: Any, base: Path, *, wanted: bool) -> tuple[SlowPredicate, Predicate]:
    texts = _texts(value)
    if any("\0" in text for text in texts):
        raise Faulty("value", "it is no folder")
    folders = [base.absolute() / text for text in texts]

    def planned(found: Any) -> Truth:
        word = inside(found, folders)
        return word if isinstance(word, str) else word is wanted

    async def check(found: Any) -> Truth:
        return await asyncio.to_thread(planned, found)

    return check, planned


def _hosts(value: Any, addresses: Addresses, *, wanted: bool) -> tuple[SlowPredicate, PlannedPredicate]:
    try:
        patterns = [HostPattern(text) for text in _texts(value)]
    except Faulty:
        raise
    except ValueError as error:
        raise Faulty("value", str(error)) from error

    async def check(found: Any) -> Truth:
        try:
            host = host_of(found)
            resolved = await addresses.resolve(host)
        except HostRefused as error:
            return str(error)
        except ValueError as error:
            return f"no host that can be trusted: {error}"
        words = [pattern.matches(host, resolved) for pattern in patterns]
        if True in words:
            return wanted
        return next((word for word in words if isinstance(word, str)), not wanted)

    def planned(found: Any) -> Truth | None:
        # By its name alone, or by its own address: no name is resolved for a plan.
        try:
            host = host_of(found)
        except ValueError as error:
            return f"no host that can be trusted: {error}"
        own = [host] if is_address(host) else []
        if any(pattern.matches(host, own) is True for pattern in patterns):
            return wanted
        by_address = not own and any(pattern.by_address for pattern in patterns)
        return None if by_address else not wanted

    return check, planned
