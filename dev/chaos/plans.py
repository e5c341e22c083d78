"""Random plans: sequences and graphs, bindings, pivots, fallbacks, limits, conditions, waits, and each call's fate.

Everything about saga number N follows from N and the seed, so each saga of a run can be reproduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from dev.chaos.tools import KINDS, VALUES
from dev.chaos.values import SOLE
from saga_engine.ports import Channel

#: The time-out of a call that the external system will not answer in time.
IMPATIENT_S: Final = 0.25
_BALLAST: Final = 40_000

#: What happens to a call before an 'ok'; most calls have no fault.
_MISHAPS: Final = ("busy", "gone", "lost", "cut", "late", "hang")
_CLEAR: Final = ("busy", "gone")

#: The name of the event for which sagas wait; its key is the saga's id.
EVENT: Final = "chaos.paid"
#: The names of the events of a wait for several, each with what its key has after the saga's id. The first is that of
#: a wait for one.
CHANNELS: Final = ((EVENT, ""), (EVENT, "/2"), ("chaos.card", ""))
#: The words of a wait for several events.
SEVERAL: Final = ("first", "all")
#: What ``pick`` gives if no item fits.
NOTHING: Final = "nothing"
OPTIONS: Final = ("abort", "go on", "retry")

Plan = dict[str, Any]


class Sending(NamedTuple):
    """Events that a customer sends for a step that waits, one after the other.

    ``when``: at once (``early``), when the step waits, or when the saga has ended (``late``); and so much later.
    ``channel``: their name, and what their key has after the saga's id.
    """

    step: str
    when: str
    after_s: float
    ids: tuple[str, ...]
    channel: tuple[str, str] = CHANNELS[0]


class Errand(NamedTuple):
    """What a customer does about a saga. ``accept``: an undo leaves what cannot be undone.

    ``provides``: steps wait for the same event, so more may be needed than ``events``. ``settles``: after the saga's
    end each event that is not settled is sent again.
    """

    events: tuple[Sending, ...]
    undo: bool
    accept: bool
    provides: bool = False
    settles: bool = False


def saga_id(seed: int, number: int) -> str:
    """The id of a run's saga."""
    return f"chaos-{seed}-{number:06d}"


def plan(seed: int, number: int) -> Plan:
    """The plan of a run's saga."""
    name = saga_id(seed, number)
    body = _Drawing(Random(f"{seed}:{number}"), name).plan()
    dice = Random(f"{seed}:{number}:child")
    if dice.random() < _PARENTS and all(step.get("kind") not in ("pivot", "retriable") for step in body["steps"]):
        for at in range(dice.choice((1, 1, 2))):
            _Drawing(dice, f"{name}.{at}").add_child(body["steps"], at)
    return body


def word_of(wait: Mapping[str, Any]) -> str:
    """``first`` or ``all``; empty for a wait for one event."""
    return next((word for word in SEVERAL if word in wait), "")


def awaited(wait: Mapping[str, Any], saga: str) -> list[Channel]:
    """The events for which a step of a saga waits, in the plan's order."""
    word = word_of(wait)
    return [Channel(each["event"], each.get("key", saga)) for each in (wait[word] if word else [wait])]


def channels(plan: Plan, saga: str) -> list[Channel]:
    """All events for which the steps of a plan wait."""
    found = (channel for step in plan["steps"] if "wait" in step for channel in awaited(step["wait"], saga))
    return [*dict.fromkeys(found)]


def payload(channel: Channel, event_id: str) -> dict[str, str]:
    """What an event brings. Its id repeats among events of other names and keys; this does not."""
    other = "-other" if channel.key.endswith(CHANNELS[1][1]) else ""
    return {"id": f"{event_id}{other}{'' if channel.name == EVENT else f'-{channel.name}'}"}


def errand(seed: int, number: int) -> Errand:
    """What the customer does about a run's saga. A step that waits without a time-out gets its events in any case."""
    dice = Random(f"{seed}:{number}:errand")
    waits = [step for step in plan(seed, number)["steps"] if "wait" in step]
    events = [sending for step in waits for sending in _sendings(dice, step, saga_id(seed, number))]
    # What is sent after the saga's end comes last: the end may need the other events.
    events.sort(key=lambda sending: sending.when == "late")
    undo, accept = dice.random() < 0.06, dice.random() < 0.5
    several = any(word_of(step["wait"]) for step in waits)
    endless = any("timeout_s" not in step["wait"] for step in waits)
    return Errand(tuple(events), undo, accept, provides=endless and len(waits) > 1, settles=several)


def _sendings(dice: Random, step: Mapping[str, Any], saga: str) -> Iterator[Sending]:
    """What is sent for one step that waits."""
    wait, timeout_s = step["wait"], step["wait"].get("timeout_s")
    channels, word = awaited(wait, saga), word_of(wait)
    sure = set(range(len(channels)))
    if word == "first" and timeout_s is None:
        sure = {dice.randrange(len(channels))}
    elif timeout_s is not None and (word != "all" or dice.random() < 0.5):
        sure = set()
    for at, channel in enumerate(channels):
        when = dice.choice(("early", "waiting") if at in sure else ("early", "waiting", "waiting", "late", "never"))
        if when == "never":
            continue
        after_s = (
            dice.choice((0.0, 0.0, 0.1))
            if timeout_s is None
            else dice.choice((0.0, timeout_s * dice.uniform(0.8, 1.1)))
        )
        ids = dice.choice((("e1",), ("e1", "e1"), ("e1", "e2", "e1")))
        ids = tuple(f"{step['step_id']}-{each}" for each in ids)
        yield Sending(step["step_id"], when, after_s, ids, (channel.name, channel.key.removeprefix(saga)))


#: How many of the plans without a pivot have children.
_PARENTS: Final = 0.12


class _Drawing:
    """One plan under construction. The names of the values that it changes begin with ``name``."""

    def __init__(self, dice: Random, name: str) -> None:
        self._dice = dice
        self._name = name

    def _happens(self, percent: float) -> bool:
        return self._dice.random() * 100 < percent

    def plan(self) -> Plan:
        dice = self._dice
        count = dice.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6))
        pivot = dice.randrange(count) if self._happens(25) else None
        graph = pivot is None and self._happens(45)
        failing = dice.randrange(count) if self._happens(40) else None
        steps = [self._step(at, pivot, failing == at) for at in range(count)]
        for at, step in enumerate(steps):
            before = dice.sample(range(at), dice.randint(0, min(at, 2))) if graph else [at - 1][:at]
            if graph:
                step["depends_on"] = sorted(f"s{other}" for other in before)
            if before and self._happens(60):
                step["params"]["after"] = _ref(steps[before[0]])
            if before and at != pivot and self._happens(8):
                other = steps[before[-1]]
                told = f"i{before[-1]}" if self._happens(50) else "another"
                step["when"] = [
                    {"value": {"$first": [f"$output.step_{other['step_id']}.ref", "none"]}, "op": "==", "to": told}
                ]
        for at in range(dice.choice((0, 0, 0, 0, 1, 1, 1, 2))):
            self._add_builtin(steps, at, graph=graph, fails=pivot is None)
        if pivot is None and self._happens(12):
            self._take_back(steps, graph=graph)
        if pivot is None and self._happens(12):
            self.add_list(steps, 0, graph=graph)
        body: Plan = {"steps": steps}
        if self._happens(12):
            body["finally"] = [self._last(at) for at in range(dice.randint(1, 2))]
        if self._happens(4):
            body["deadline_s"] = dice.choice((0.5, 3, 10))
        if self._happens(3):
            body["max_tool_calls"] = dice.randint(1, 2 * count)
        if self._happens(6):
            body["on_failure"] = "pause"
        return body

    def _step(self, at: int, pivot: int | None, fails: bool) -> dict[str, Any]:
        dice = self._dice
        kind = dice.choice(KINDS)
        step: dict[str, Any] = {"step_id": f"s{at}"}
        luck = self._luck(fails=fails)
        if self._happens(12) and at != pivot:
            return step | {"tool": "look", "kind": "read", "params": {"luck": luck}, **self._patience(luck)}
        step |= {"tool": f"book_{kind}", "params": {"item": f"i{at}", "luck": luck}}
        if changes := self._happens(20):
            step |= self._change(at, f"i{at}", luck)
        elif self._happens(1):
            step["params"]["size"] = _BALLAST
        if not (changes or fails or kind == "bare") and self._happens(6):
            step["params"]["luck"] = f"break,{luck}"  # it raises after its effect
        if pivot is None or at < pivot:
            step["rollback"] = self._restore(step) if changes else self._rollback(at, kind)
            if fails and self._happens(30):
                other = dice.choice([each for each in KINDS if each != kind])
                luck = self._luck(fails=self._happens(30))
                step["fallback"] = {
                    "tool": f"book_{other}",
                    "params": {"item": f"f{at}", "luck": luck},
                    "rollback": self._rollback(at, other),
                    **self._patience(luck),
                }
            if fails and self._happens(25):
                step["on_error"] = "continue"
            elif self._happens(3):
                step["failed_when"] = [{"value": f"$output.step_s{at}.ref", "op": "==", "to": f"i{at}"}]
            elif "fallback" not in step and self._happens(5):
                del step["rollback"]
                step["kind"] = "irreversible"
        else:
            step["kind"] = "pivot" if at == pivot else "retriable"
        if self._happens(3):
            step["resource"] = f"seat:{dice.randrange(40)}"
        return step | self._patience(step["params"]["luck"])

    def _add_builtin(self, steps: list[dict[str, Any]], number: int, *, graph: bool, fails: bool) -> None:
        """A step that sleeps, waits for an event, asks or computes, at any place. ``fails``: a time-out may fail it."""
        dice = self._dice
        value: Any = {"value": "nothing"}
        word = dice.choice(("sleep", "wait", "wait", "wait", "ask", "ask", "compute"))
        bodies: dict[str, Any] = {
            "sleep": round(dice.uniform(0.0, 1.5), 3),
            "ask": {"question": "How does it go on?", "options": list(OPTIONS)},
            "compute": {"add": [number, "0.5"]},
        }
        body = self._awaited() if word == "wait" else bodies[word]
        bounded = self._happens(40)
        then: Any = "fail" if fails and self._happens(40) else dice.choice((value, "continue"))
        if bounded and word == "wait":
            body |= {"timeout_s": dice.choice((0.5, 1.5)), "on_timeout": then}
        if bounded and word == "ask":
            body |= {
                "expires_s": dice.choice((0.5, 1.5)),
                "on_timeout": {"value": OPTIONS[0]} if then == value else then,
            }
        step: dict[str, Any] = {"step_id": f"b{number}", word: body}
        several = word_of(body) if word == "wait" else ""
        event = f"$output.step_b{number}{'.payload' if several else ''}.id"
        bound = {"params": {"item": event, "luck": self._luck(fails=False)}}
        if (bounded or several) and word == "wait" and self._happens(60):
            body["on_late"] = {"tool": f"book_{dice.choice(('keyed', 'probed'))}", **bound}
        if word == "wait" and fails and self._happens(50):
            undone = f"$output.step_b{number}[0].payload.id" if several == "all" else event
            params = {"ref": undone, "luck": self._undo_luck()}
            step["rollback"] = {"tool": f"undo_{dice.choice(('keyed', 'probed'))}", "params": params}
            step["rollback"] |= self._patience(params["luck"])
        self._insert(steps, step, dice.randint(0, len(steps)), graph=graph)

    def _take_back(self, steps: list[dict[str, Any]], *, graph: bool) -> None:
        """A step that takes an earlier one back, with what the engine would call the undo with: it is that undo."""
        sure = ("fallback", "when", "failed_when", "on_error")
        found = [
            at
            for at, step in enumerate(steps)
            if step.get("rollback", {}).get("tool", "").startswith("undo_")
            and "tool" in step
            and "then" not in step["rollback"]
            and not any(word in step for word in sure)
        ]
        if not found:
            return
        at = self._dice.choice(found)
        undo = steps[at]["rollback"]
        step = {"step_id": "t0", "kind": "irreversible", **undo, "params": dict(undo["params"])}
        self._insert(steps, step, at + 1, graph=graph)

    def _awaited(self) -> dict[str, Any]:
        """What a step waits for: one event, the first of several, or all of them."""
        dice = self._dice
        if self._happens(50):
            return {"event": EVENT}
        channels = dice.sample(CHANNELS, dice.choice((1, 2, 2, 2, 3)))
        events = [{"event": name, **({"key": f"{self._name}{end}"} if end else {})} for name, end in channels]
        return {dice.choice(SEVERAL): events}

    def add_list(self, steps: list[dict[str, Any]], number: int, *, graph: bool) -> None:
        """A step for each item of a list; then the first item that fits, and a call for it."""
        dice = self._dice
        kind, collects = dice.choice(KINDS), self._happens(50)
        lucks = [self._luck(fails=self._happens(40 if collects else 8)) for _ in range(dice.randint(0, 5))]
        items = [{"n": at, "name": f"l{number}.{at}", "luck": luck} for at, luck in enumerate(lucks)]
        undo = {"ref": f"$output.step_e{number}.ref", "luck": self._undo_luck()}
        each: dict[str, Any] = {"of": items, "parallel": dice.choice((1, 1, 2, 3))}
        if collects:
            each["on_error"] = "collect"
        if self._happens(50):
            each["when"] = [{"value": "$item.n", "op": "!=", "to": dice.randrange(4)}]
        listed = {
            "step_id": f"e{number}",
            "tool": f"book_{kind}",
            "params": {"item": "$item.name", "luck": "$item.luck"},
            "each": each,
            "rollback": {"tool": f"undo_{kind}", "params": undo, **self._patience(undo["luck"])},
            **self._patience(",".join(lucks)),
        }
        outputs = f"$output.step_e{number}.outputs" if collects else f"$output.step_e{number}"
        of, of_item = dice.choice(((outputs, "$item.ref"), ({"value": items}, "$item.name")))
        wanted = [f"l{number}.{at}" for at in dice.sample(range(5), 2)]
        pick = {
            "pick": of,
            "where": [{"value": of_item, "op": "exists"}, {"value": of_item, "op": "in", "to": wanted}],
            "of": of_item,
            "default": NOTHING,
        }
        picked = {"step_id": f"p{number}", "compute": pick}
        place = dice.randint(0, len(steps))
        self._insert(steps, listed, place, graph=graph)
        self._insert(steps, picked, place + 1, graph=graph)

    def _insert(self, steps: list[dict[str, Any]], step: dict[str, Any], place: int, *, graph: bool) -> None:
        if graph:
            step["depends_on"] = [steps[place - 1]["step_id"]] if place else []
            for each in steps[place : place + 1]:
                each["depends_on"] = [*each["depends_on"], step["step_id"]]
        steps.insert(place, step)

    def add_child(self, steps: list[dict[str, Any]], number: int) -> None:
        """A child saga of calls, at any place of a row, or beside everything in a graph."""
        dice = self._dice
        count = dice.choice((1, 2, 2, 3))
        failing = dice.randrange(count) if self._happens(25) else None
        own = [self._step(at, None, failing == at) for at in range(count)]
        for step in own:
            if step.get("kind") == "irreversible":
                del step["kind"]
                at, (effect, _, kind) = int(step["step_id"][1:]), step["tool"].partition("_")
                step["rollback"] = self._restore(step) if effect == "put" else self._rollback(at, kind)
        child: dict[str, Any] = {"step_id": f"c{number}", "saga": {"plan": {"steps": own}}}
        if any("depends_on" in step for step in steps):
            child["depends_on"] = []
        steps.insert(dice.randint(0, len(steps)), child)

    def _last(self, at: int) -> dict[str, Any]:
        """A step of ``finally``."""
        luck = self._luck(fails=self._happens(20))
        params = {"item": "end:{$end.status}", "luck": luck}
        return {
            "step_id": f"f{at}",
            "tool": f"book_{self._dice.choice(KINDS)}",
            "params": params,
            **self._patience(luck),
        }

    def _change(self, at: int, value: str, luck: str) -> dict[str, Any]:
        """A call that changes a value, which has a name of its own."""
        name = self._dice.choice(VALUES)
        register = f"{self._name}/{at}{SOLE if name == 'put_sole' else ''}"
        return {"tool": name, "params": {"register": register, "ref": value, "luck": luck}}

    def _restore(self, step: dict[str, Any]) -> dict[str, Any]:
        """The undo of a call that changes a value: in words, or as the tool declares it."""
        name, register = step["tool"], step["params"]["register"]
        if self._happens(30):
            return {"tool": name}
        luck, other = self._undo_luck(), self._undo_luck()
        absent = {"tool": name.replace("put", "remove"), "params": {"register": register, "luck": other}}
        return {
            "tool": name,
            "params": {"register": register, "ref": "$before.ref", "luck": luck},
            **self._patience(luck),
            **self._then(),
            "when_absent": absent | self._patience(other) | self._then(),
        }

    def _undo_luck(self) -> str:
        luck = self._luck(fails=False)
        if self._happens(7):
            luck = self._dice.choice(("refuse,ok", "busy,refuse,lost,ok", "refuse", "crash,ok"))
        return luck

    def _rollback(self, at: int, kind: str) -> dict[str, Any]:
        luck = self._undo_luck()
        if self._happens(20):
            undo = {"tool": "drop", "params": {"request": "$key", "luck": luck}, **self._patience(luck)}
        else:
            bound = {"ref": f"$output.step_s{at}.ref", "luck": luck}
            undo = {"tool": f"undo_{kind}", "params": bound, **self._patience(luck)}
        return undo | self._then()

    def _then(self) -> dict[str, Any]:
        """The further calls of an undo."""
        if not self._happens(15):
            return {}
        calls = []
        for at in range(self._dice.choice((1, 1, 2))):
            luck = self._undo_luck()
            tool = f"undo_{self._dice.choice(KINDS)}"
            calls.append({"tool": tool, "params": {"ref": f"then {at}", "luck": luck}, **self._patience(luck)})
        return {"then": calls}

    def _luck(self, *, fails: bool) -> str:
        """The fate of each attempt.

        A call that ends in a refusal has no fault that leaves a doubt: a call is refused permanently only if no attempt
        happens, whichever worker makes it and whenever.
        """
        dice = self._dice
        many = dice.choice((0, 0, 0, 0, 0, 0, 1, 1, 2, 3))
        if fails:
            end = dice.choice(("refuse", "refuse", "crash", "busy"))
            return ",".join([dice.choice(_CLEAR) for _ in range(many)] + [end])
        return ",".join([dice.choice(_MISHAPS) for _ in range(many)] + ["ok"])

    def _patience(self, luck: str) -> dict[str, Any]:
        dice = self._dice
        found: dict[str, Any] = {"timeout_s": IMPATIENT_S} if "late" in luck or "hang" in luck else {}
        if self._happens(10):
            found["retry"] = {"max_attempts": dice.randint(2, 8), "base_s": 0.2, "max_s": dice.choice((0.5, 2.0))}
        return found


def _ref(step: dict[str, Any]) -> Any:
    """A binding to the output of a step that may have none."""
    bound = f"$output.step_{step['step_id']}.ref"
    return {"$first": [bound, None]} if "when" in step or "on_error" in step else bound
