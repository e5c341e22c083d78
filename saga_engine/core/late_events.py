"""``on_late`` of a ``wait`` step: the call for an event that comes after its wait is over.

The saga may have ended by then, and what has ended never changes. So the call is a saga of its own. What its params
bind of the first saga is noted when the wait ends (``LateCall``); its plan is made when the event is known. There the
resolved params are the input: they are data, and nothing of them is read as a binding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from saga_engine.core.effects import FORWARD
from saga_engine.core.masking import Mask, mask_of
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import Made
from saga_engine.core.waits import Came
from saga_engine.errors import BindingUnresolved
from saga_engine.plan.binder import Binder
from saga_engine.plan.bindings import Template
from saga_engine.plan.compiled import WithoutList
from saga_engine.plan.own_binder import OwnBinder
from saga_engine.plan.problems import Problems
from saga_engine.plan.values import cut, digest
from saga_engine.plan.wait import several

#: The step of that saga.
STEP: Final = "on_late"
#: So much of a saga's id is part of that of the saga that handles a late event.
_ID_CHARS: Final = 100
_SHOWN_CHARS: Final = 4_000


class LateCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a wait that is over leaves for late events.

    ``params`` bind the event, as the output of ``step``, and what the other fields hold of the saga. ``hidden``: texts
    that no view of the saga shows. ``session``: the params bind as those of a session's undos. ``several``: the wait is
    for several events. ``token`` is the saga's alone, so nobody else can choose the id of the saga that handles an
    event.
    """

    saga: str
    step: str
    token: str
    tool: str
    params: dict[str, Any] = {}
    steps: list[str] = []
    outputs: dict[str, Any] = {}
    input: dict[str, Any] = {}
    end: dict[str, Any] = {}
    key: str = ""
    hidden: list[str] = []
    session: bool = False
    several: bool = False

    def saga_id(self, event: str, name: str, key: str) -> str:
        """The id of the saga that handles an event: one event has one. Ids repeat among events of other names."""
        return late_saga_id(self.saga, self.token, event, name, key, several=self.several)

    def output(self, name: str, key: str, payload: Any) -> Any:
        """What its params bind as the output of the step: the payload, or of a wait for several the event."""
        return Came(name, key, "", payload).output() if self.several else payload


def late_token(seed: str, saga_id: str, step: str) -> str:
    """What only the saga of a step knows: no sender of events can say which saga handles one that comes too late."""
    return digest(["saga-late-token/1", seed, saga_id, step])


def late_saga_id(saga_id: str, token: str, event: str, name: str, key: str, *, several: bool) -> str:
    """The id of the saga that handles a late event of a saga with this token."""
    what = [event, name, key] if several else [event]
    return f"{saga_id[:_ID_CHARS]}-late-{digest(['saga-late/1', token, *what])[:16]}"


class LatePlan(NamedTuple):
    """The plan of the saga that handles a late event; ``sensitive``: params that no view of it shows, by tool."""

    plan: dict[str, Any]
    sensitive: Mapping[str, list[str]]


def late_call(state: State, index: int, *, anew: bool = False) -> LateCall | None:
    """What is called for a late event; None: nothing is, or its event or an operator ended the wait.

    After a wait for the ``first`` of several the others are late. ``anew``: the step has begun to wait again since, so
    that wait was in vain, whatever came of the next one.
    """
    step = state.plan.steps[index]
    if step.late is None or not (anew or may_be_late(state, index)):
        return None
    assert isinstance(step.late.params, Template), "it is written in the plan"
    bound = {(place.source, place.step) for place in step.late.params.places}
    steps = sorted(key for source, key in bound if source == "output")
    others = [key for key in steps if key != step.key and state.steps[state.plan.by_key[key]].effect is not None]
    scope = StateScope(state)
    mask = mask_of(state)
    return LateCall(
        saga=state.saga_id,
        step=step.key,
        token=late_token(state.seed, state.saga_id, step.key),
        tool=step.late.tool,
        params=step.late.params.raw,
        steps=steps,
        outputs={key: scope.output(key) for key in others},
        input=dict(state.input) if any(source == "input" for source, _ in bound) else {},
        end=dict(scope.end),
        key=state.key(index, FORWARD),
        hidden=[] if mask is None else [*mask.texts()],
        session=state.session,
        several=bool(several(step.params.raw["wait"])),
    )


def may_be_late(state: State, index: int) -> bool:
    """Whether an event for a step that waited, or waits, may come too late; ``late_call`` says more."""
    effect = state.steps[index].effect
    word = several(state.plan.steps[index].params.raw["wait"])
    in_vain = ("timer", "event") if word == "first" else ("timer",)
    return effect is None or (isinstance(effect, Made) and effect.via in in_vain)


def with_event(call: LateCall, payload: Any) -> LatePlan:
    """The plan for one event. Raises ``BindingUnresolved`` if the event lacks what the call binds."""
    keys = {key: index for index, key in enumerate(call.steps)}
    binder = OwnBinder({}, Problems()) if call.session else Binder(keys, Problems(), end=True)
    found = binder.template(call.params, call.step, ()).resolve(_Given(call, payload))
    mask = Mask({}, call.hidden)
    params = {name: f"$input.params[{number}]" for number, name in enumerate(found)}
    made = {
        "goal": _goal(call),
        "input": {"params": [*found.values()]},
        "on_failure": "pause",
        "steps": [{"step_id": STEP, "tool": call.tool, "params": params, "kind": "pivot"}],
    }
    hidden = [name for name, value in found.items() if any(True for _ in mask.found(value))]
    return LatePlan(made, {call.tool: hidden} if hidden else {})


def asking(call: LateCall, payload: Any, why: str) -> LatePlan:
    """The plan in place of a call that cannot be made with this event: an operator handles it."""
    question = "{$input.goal} Its on_late cannot be called: {$input.why} The event: {$input.event}"
    given = {"goal": _goal(call), "why": cut(why, 500), "event": cut(payload, _SHOWN_CHARS)}
    shown = Mask({}, call.hidden).value(given)
    step = {"step_id": STEP, "ask": {"question": question, "options": ["handled"]}}
    return LatePlan({"goal": given["goal"], "input": shown, "steps": [step]}, {})


def _goal(call: LateCall) -> str:
    return f"An event came too late for step {call.step} of saga {call.saga}."


class _Given(WithoutList):
    """The values of the saga, as the call has them, and the event."""

    __slots__ = ("_call", "_payload")

    def __init__(self, call: LateCall, payload: Any) -> None:
        self._call = call
        self._payload = payload

    @property
    def saga_id(self) -> str:
        return self._call.saga

    @property
    def input(self) -> Mapping[str, Any]:
        return self._call.input

    @property
    def end(self) -> Mapping[str, Any]:
        return self._call.end

    def output(self, step_key: str) -> Any:
        if step_key == self._call.step:
            return self._payload
        if step_key not in self._call.outputs:
            raise BindingUnresolved(f"step {step_key} has no output", step=step_key, absent=True)
        return self._call.outputs[step_key]

    def key(self, step_key: str) -> str:  # noqa: ARG002 - its own
        return self._call.key

    def before(self, step_key: str) -> Any:
        raise BindingUnresolved(f"step {step_key} has no value from before its call", step=step_key)

    params = before

    def secret(self, name: str) -> str:
        return f"$secret.{name}"
