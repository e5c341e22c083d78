"""The tools of the sagas. They differ in how a call in doubt is settled; the external system decides what happens.

``keyed`` is settled by calling again with the same key, ``probed`` by its probe, ``bare`` only by an operator;
``threaded`` is keyed and blocks a thread. A breaker stands before ``keyed``, and holds no undo. ``drop`` is an undo
that needs no output and tolerates absence.

``put_KIND`` changes a value and has a before-image: ``keyed``; ``told``, keyed, whose answer is the new value;
``probed``, for a value that may not exist yet; ``sole``, bare, which alone writes the value. Each is its own undo.
"""

from __future__ import annotations

import time
from typing import Any

from dev.chaos.world import LATE_S, Outside
from saga_engine import BreakerPolicy, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.tools.registry import ToolRegistry

#: What opens after some failures in a row, of whatever sagas.
BREAKER = BreakerPolicy(failures=4, open_s=0.3)
FAST = RetryPolicy(max_attempts=6, base_s=0.02, max_s=0.3)
KINDS = ("keyed", "probed", "bare", "threaded")
#: The tools that change a value.
VALUES = ("put_keyed", "put_told", "put_probed", "put_sole")


def word_of(luck: str, attempt: int) -> str:
    """The fate of an attempt (from 1); the last word applies to all further ones."""
    words = luck.split(",")
    return words[min(attempt, len(words)) - 1]


def _request(ctx: ToolContext, name: str, luck: str, output: Any, *, once: bool | None) -> dict[str, Any]:
    word = word_of(luck, ctx.attempt)
    if word == "gone":
        raise ConnectionRefusedError("nobody listens there")
    about = [ctx.saga_id, ctx.step_id, ctx.direction, ctx.attempt, ctx.idempotency_key, ctx.epoch, None, ctx.undoes]
    return {"op": "call", "ctx": about, "tool": name, "luck": word, "output": output, "once": once}


def _outcome(reply: dict[str, Any]) -> dict[str, Any]:
    error = reply.get("error")
    if error is None:
        output: dict[str, Any] = reply["output"]
        return output
    if error == "crash":
        raise ValueError("something broke")
    if error == "break":  # after the effect: what a tool raises is no statement of it
        raise RuntimeError("something broke afterwards")
    raise ToolError(f"the external system answered: {error}", error_code=error, retryable=error == "busy")


async def _act(ctx: ToolContext, name: str, luck: str, output: Any, *, once: bool | None) -> dict[str, Any]:
    return _outcome(await Outside.ask(_request(ctx, name, luck, output, once=once)))


def _booked(item: str, size: int) -> dict[str, Any]:
    return {"ref": item, **({"ballast": "x" * size} if size else {})}


@tool(effect="read", retry=FAST)
async def find(ctx: ToolContext) -> dict[str, Any] | None:
    """Answer whether the call with this key happened; if not, it never will."""
    asked = {"op": "settle", "saga_id": ctx.saga_id, "key": ctx.idempotency_key, "epoch": ctx.epoch, "attempt": 0}
    return (await Outside.ask(asked)).get("output")


def _pair(kind: str) -> list[Any]:
    """``book_KIND`` and ``undo_KIND``."""
    once = kind != "bare" and kind != "probed"
    about: dict[str, Any] = {
        "keyed": once,
        "probe": "find" if kind == "probed" else None,
        "retry": FAST,
        "timeout_s": 20,
        "breaker": BREAKER if kind == "keyed" else None,
    }

    async def book(item: str, ctx: ToolContext, luck: str = "ok", size: int = 0, after: Any = None) -> dict[str, Any]:  # noqa: ARG001
        return await _act(ctx, f"book_{kind}", luck, _booked(item, size), once=once)

    async def undo(ref: str, ctx: ToolContext, luck: str = "ok") -> dict[str, Any]:
        return await _act(ctx, f"undo_{kind}", luck, {"undone": ref}, once=once)

    return [
        tool(name=f"book_{kind}", undo=f"undo_{kind}", **about)(book),
        tool(name=f"undo_{kind}", **about)(undo),
    ]


def _slow(luck: str, attempt: int) -> None:
    """A thread cannot be cancelled: it waits as long as the external system does, and its answer comes too late."""
    if word_of(luck, attempt) == "hang":
        time.sleep(LATE_S)


@tool(keyed=True, undo="undo_threaded", retry=FAST, timeout_s=20)
def book_threaded(item: str, ctx: ToolContext, luck: str = "ok", size: int = 0, after: Any = None) -> dict[str, Any]:  # noqa: ARG001
    """Book, in a thread."""
    return _threaded(ctx, "book_threaded", luck, _booked(item, size))


@tool(keyed=True, retry=FAST, timeout_s=20)
def undo_threaded(ref: str, ctx: ToolContext, luck: str = "ok") -> dict[str, Any]:
    """Undo it, in a thread."""
    return _threaded(ctx, "undo_threaded", luck, {"undone": ref})


def _threaded(ctx: ToolContext, name: str, luck: str, output: Any) -> dict[str, Any]:
    asked = _request(ctx, name, luck, output, once=True)
    if asked["luck"] == "hang":
        asked["luck"] = "ok"
    answer = _outcome(Outside.ask_now(asked))
    _slow(luck, ctx.attempt)
    return answer


@tool(keyed=True, tolerates_absence=True, retry=FAST, timeout_s=20)
async def drop(request: str, ctx: ToolContext, luck: str = "ok") -> dict[str, Any]:
    """Cancel by the id of the request, whether or not it ever arrived."""
    return await _act(ctx, "drop", luck, {"dropped": request}, once=True)


@tool(effect="read", retry=FAST, timeout_s=20)
async def look(ctx: ToolContext, luck: str = "ok", after: Any = None) -> dict[str, Any]:  # noqa: ARG001
    """Read something."""
    return await _act(ctx, "look", luck, {"ref": "seen"}, once=None)


@tool(effect="read", retry=FAST, timeout_s=20)
async def look_value(register: str, ctx: ToolContext) -> dict[str, Any]:
    """Read a value."""
    asked = _request(ctx, "look_value", "ok", None, once=None)
    return _outcome(await Outside.ask({**asked, "op": "value", "register": register}))


async def _put(ctx: ToolContext, name: str, luck: str, register: str, ref: str | None, *, once: bool) -> dict[str, Any]:
    asked = _request(ctx, name, luck, {"ref": ref}, once=once)
    return _outcome(await Outside.ask({**asked, "register": register, "value": ref}))


def _value_pair(kind: str, **settled: Any) -> list[Any]:
    """``put_KIND`` and ``remove_KIND``, which undoes it if there was no value."""
    once = bool(settled.get("keyed"))
    call = {name: option for name, option in settled.items() if name in ("keyed", "probe")}

    async def put(register: str, ref: str, ctx: ToolContext, luck: str = "ok", after: Any = None) -> dict[str, Any]:  # noqa: ARG001
        return await _put(ctx, f"put_{kind}", luck, register, ref, once=once)

    async def remove(register: str, ctx: ToolContext, luck: str = "ok") -> dict[str, Any]:
        return await _put(ctx, f"remove_{kind}", luck, register, None, once=once)

    around: dict[str, Any] = {"before": "look_value", "absent": {"error_code": "absent"}}
    undone: dict[str, Any] = {"undo": f"put_{kind}", "undo_absent": f"remove_{kind}"}
    return [
        tool(name=f"put_{kind}", retry=FAST, timeout_s=20, **around, **undone, **settled)(put),
        tool(name=f"remove_{kind}", retry=FAST, timeout_s=20, **call)(remove),
    ]


def _value_tools() -> list[Any]:
    return [
        *_value_pair("keyed", keyed=True),
        *_value_pair("told", keyed=True, after="output"),
        *_value_pair("probed", probe="find"),
        *_value_pair("sole", sole_writer=True),
    ]


def make_tools() -> ToolRegistry:
    """All tools."""
    pairs = [made for kind in KINDS if kind != "threaded" for made in _pair(kind)]
    return ToolRegistry([*pairs, *_value_tools(), book_threaded, undo_threaded, drop, look, look_value, find])
