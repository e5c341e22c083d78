"""Time and tools, as a driver of a saga uses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from saga_engine.core.effects import Direction, NotDone, Outcome
from saga_engine.plan.tool_spec import ToolCatalog


class Clock(Protocol):
    """The store's clock as this process knows it."""

    def now_ms(self) -> int:
        """Unix milliseconds on the store's clock, never going back."""
        ...


class Standing(NamedTuple):
    """What a guard may need to know of the saga of a call.

    ``started_ms``: when it began. ``parent``: the saga that waits for it. ``undo_of``: the saga that it undoes.
    ``turns``: it is about to be undone, or is. ``may_turn``: whether all that it has done can be undone, and nothing of
    it is in doubt.
    """

    started_ms: int
    parent: str = ""
    undo_of: str = ""
    turns: bool = False
    may_turn: Callable[[], bool] = bool


class Call(NamedTuple):
    """Everything that a tool, and the guards before it, may know of the call.

    ``deadline_ms`` is on the store's clock; it is None backward, where no call is abandoned for lack of time.
    ``masked`` are the params with a marker for each secret, None if they hold none: the form that may be stored and
    shown. ``approved`` is the digest of the exact call that an operator approved, as long as that is valid.
    ``resources`` are those that the plan names for the step. ``undoes``: the tool and the idempotency key of the
    call that this one undoes, backward or because the saga takes it back itself.

    ``permit`` is called right before the call by the guard that delayed it: it raises ``LeaseLost`` if this process may
    not start a call any more. ``backward``: the call is an undo, or a step of a semantic compensation.
    ``key_until_ms``: a repeat of a call in doubt must not be sent after that moment (on the store's clock), because its
    key may be forgotten by then. ``chosen``: a backward call whose tool or params are not those of the registered undo:
    the author of the plan chose them. ``waits``: a guard that delays a call for long calls it with True, and the chain
    calls it with False right before the call; what it returns, if anything, is awaited. After the first it is durable
    that the call was not made, after the second that it may have been; or it raises, and the call must not start. If
    the second has an outcome, that is the outcome, and nothing is called. ``around`` makes the call that it is given,
    or does not, after all guards and before they release anything: it reads what the call changes.
    ``wanted``: False as soon as the saga has something else to look at; a guard that holds a call without end then
    gives it back, not made. ``suspect``: processes ended while they made the call, so that the chain calls ``waits``
    with False although no guard has delayed it. ``guard_wait_s``: how long a rate or a bulkhead may delay the call;
    None: for ever. ``budget`` tells how much the calls of the saga may cost together, by unit; None: no budget may
    refuse the call, because it takes something back or comes after the pivot. ``expected``: params that tell the other
    side what the saga has read; no plan gives them. ``standing`` tells of the saga.
    """

    saga_id: str
    step_id: str
    direction: Direction | Literal["probe"]
    attempt: int
    idempotency_key: str
    epoch: int
    deadline_ms: int | None
    timeout_s: float
    masked: Mapping[str, Any] | None = None
    approved: str = ""
    resources: tuple[str, ...] = ()
    undoes: tuple[str, str] | None = None
    permit: Callable[[], None] | None = None
    backward: bool = False
    key_until_ms: int | None = None
    chosen: bool = False
    waits: Callable[[Call, bool], Awaitable[Outcome | None] | None] | None = None
    wanted: Callable[[], bool] | None = None
    around: Callable[[Callable[[], Awaitable[Outcome]]], Awaitable[Outcome]] | None = None
    guard_wait_s: float | None = None
    suspect: bool = False
    budget: Callable[[], Mapping[str, float] | None] | None = None
    expected: Mapping[str, Any] | None = None
    standing: Callable[[], Standing] | None = None


class Rivals(NamedTuple):
    """The sagas that have written what a step's undo would overwrite, since that step: as told, and what to do.

    ``written_ms``: of each resource, when the last write was that stands; 0: there is none.
    """

    told: str
    advice: str
    written_ms: tuple[int, ...]


class Source(Protocol):
    """Where tools come from that need a connection: it is made when it is first needed, and again after a loss."""

    async def open(self) -> None:
        """Prepare ``tools``."""
        ...

    def tools(self) -> Sequence[Any]:
        """Its tools. Their functions have it as their attribute ``source``."""
        ...

    async def close(self) -> None:
        """End the connection of the running event loop; a later call makes another one."""
        ...


class Tools(ToolCatalog, Protocol):
    """The tools of a process: their declarations, and a way to call them."""

    async def call(self, name: str, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make one call, bounded by ``call.timeout_s``; waiting for its turn does not count.

        Every failure is an outcome; only cancellation and the refusal of ``call.permit`` are raised.
        """
        ...

    async def probe(self, name: str, params: Mapping[str, Any], call: Call) -> Outcome:
        """Ask whether the call of tool ``name`` with this key and these params happened.

        ``Done`` with the output: it did. ``NotDone``: it did not. ``Unknown``: the probe cannot tell.
        """
        ...

    async def read(self, name: str, params: Mapping[str, Any], call: Call) -> Outcome:
        """Read what a call changes, or has changed. Only the policy stands before it: no other guard delays it.

        Every failure is an outcome; only cancellation is raised.
        """
        ...

    async def rivals(self, name: str, params: Mapping[str, Any], call: Call) -> Rivals | NotDone | None:
        """Which other sagas wrote what the undo ``call`` changes since the tool ``name`` did, called with ``params``.

        None: nobody is known of. ``NotDone``: that cannot be told. Raises ``StoreUnavailable`` and ``StoreRefused``.
        """
        ...

    def held(self) -> Mapping[str, Sequence[str]]:
        """The tickets of this process by resource, held or waiting; called from another thread."""
        ...

    async def last_good(self, name: str, params: Mapping[str, Any], max_age_s: float, call: Call) -> Outcome:
        """The last good result of a read with these params: ``Done`` via ``cache``, or ``NotDone``. Calls nothing."""
        ...

    async def learn(self, name: str, params: Mapping[str, Any], output: Any, call: Call, *, age_ms: int = 0) -> None:
        """Store the output of a call that happened according to an operator, if its tool is deduplicated.

        Repeating it changes nothing. ``age_ms``: how long ago the operator said so. Raises ``StoreUnavailable``.
        """
        ...
