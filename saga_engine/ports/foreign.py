"""Marks where the event loop runs user code, so that a watchdog can name the code that blocks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, TypeVar

_Fn = TypeVar("_Fn", bound=Callable[..., Any])
_Words = Callable[[Mapping[str, Any]], str]

#: Advice about code that may be a plain ``def``.
IN_A_THREAD: Final = "an async def must not block: make it a plain def, which runs in a thread, or await its waits"
#: Advice about code that runs in the event loop either way.
IN_THE_LOOP: Final = "it runs in the event loop, where nothing may block: make it an async def that awaits its waits"


class Foreign(NamedTuple):
    """User code: what it is, in words, and what to do if it blocks."""

    text: str
    advice: str


_MARKED: dict[CodeType, tuple[_Words, str]] = {}


def runs_foreign_code(words: _Words, advice: str = IN_A_THREAD) -> Callable[[_Fn], _Fn]:
    """Mark a function that calls user code; ``words`` names it, by the function's local variables."""

    def marked(function: _Fn) -> _Fn:
        _MARKED[function.__code__] = (words, advice)
        return function

    return marked


def foreign_code(frame: FrameType) -> Foreign | None:
    """The user code that runs below this frame; None if the frame's function is not marked."""
    found = _MARKED.get(frame.f_code)
    return None if found is None else Foreign(found[0](frame.f_locals), found[1])


def name_of(code: Any) -> str:
    """The name of a user's function or object, as it was written."""
    name = getattr(code, "__qualname__", None) or type(code).__qualname__
    return str(name).rpartition("<locals>.")[2]
