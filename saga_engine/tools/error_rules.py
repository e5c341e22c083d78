"""Rules for exceptions of writes that the tables of ``outcomes`` do not name: breakage or a deliberate error.

An exception from *breakage* (a decode error, a ``KeyError``, a lack of memory) shows where the program stopped, and not
whether the remote system carried out the request before that: the call may have happened. A *deliberate* exception (the
tool's own classes, ``ValueError``, ``RuntimeError``) is the tool's statement that the call was not done. A tool's
declaration (``not_done``, ``unknown``) takes precedence over both.
"""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from saga_engine.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable


class Refused(ToolError):
    """A refusal that the tool itself is not sure of. ``once``: if it is wrong, a repeat would cause a second effect."""

    def __init__(self, message: str, *, once: bool, **fields: Any) -> None:
        super().__init__(message, **fields)
        self.once = once


class NeverSent(ToolError):
    """A tool's answer to its time-out: it had sent nothing yet, so this attempt was not made."""

    def __init__(self, message: str, *, error_code: str) -> None:
        super().__init__(message, error_code=error_code, retryable=True, definite=False)


Declared = Literal["not-done", "unknown"]
#: An entry of ``not_done`` and ``unknown``: a class, its name with or without the module, or an HTTP status.
Sign = type[BaseException] | str | int

#: Exceptions that mean breakage wherever they are raised, by top package and class names.
_BROKEN_NAMES: Final = {
    "builtins": (
        "ArithmeticError AssertionError AttributeError BufferError EOFError ImportError LookupError MemoryError "
        "NameError OSError RecursionError ReferenceError StopAsyncIteration StopIteration SyntaxError SystemError "
        "TypeError UnicodeError"
    ),
    "json": "JSONDecodeError",
    "binascii": "Error",
    "zlib": "error",
    "struct": "error",
    "aiohttp": "ContentTypeError",
    "msgspec": "MsgspecError",
    "pydantic": "ValidationError",
    "pydantic_core": "ValidationError",
}
_BROKEN: Final = frozenset((package, name) for package, names in _BROKEN_NAMES.items() for name in names.split())
#: The same for packages not listed above: common names for an answer that a library cannot read, and for a database
#: that lost its connection (PEP 249).
_BROKEN_NAME: Final = re.compile(
    r"((Decod|Deserializ|Unmarshal|Pars)\w*(Error|Exception)|Validation(Error|Exception)|OperationalError|InterfaceError)$"
)


@dataclass(frozen=True, slots=True)
class ErrorRules:
    """How to interpret the exceptions of one tool.

    ``probed``: the tool has a probe, which settles everything but the tool's own statement. ``bare``: a second call
    could cause a second effect, and nothing would detect it. ``home``: the module of its function, whose classes are
    its own. ``not_done``, ``unknown``: the declaration's classes and HTTP statuses.
    """

    probed: bool = False
    bare: bool = False
    home: str = ""
    not_done: frozenset[Sign] = frozenset()
    unknown: frozenset[Sign] = frozenset()

    def declared(self, error: BaseException, status: int | None) -> Declared | None:
        """The declared meaning of an exception: that of its status, else of the nearest of its classes."""
        if not (self.not_done or self.unknown):
            return None
        signs: list[Sign] = [] if status is None else [status]
        for cls in type(error).__mro__:
            signs += [cls, f"{cls.__module__}.{cls.__qualname__}", cls.__name__]
        for sign in signs:
            if sign in self.not_done:
                return "not-done"
            if sign in self.unknown:
                return "unknown"
        return None

    def broke(self, error: BaseException) -> bool:
        """Whether an exception means breakage and not a deliberate error."""
        if type(error) in (ValueError, RuntimeError):
            return not _was_raised(error)
        for cls in type(error).__mro__:
            package = cls.__module__.partition(".")[0]
            if self._owns(package):
                return False
            if (package, cls.__name__) in _BROKEN:
                return True
            if package not in _STANDARD and _BROKEN_NAME.search(cls.__name__):
                return True
        return _was_killed(error)

    def _owns(self, package: str) -> bool:
        return bool(self.home) and package == self.home.partition(".")[0] and package not in _STANDARD


_STANDARD: Final = sys.stdlib_module_names
PLAIN: Final = ErrorRules()


def rules_of(
    function: Callable[..., Any], *, write: bool, keyed: bool, probed: bool, tolerates_absence: bool, signs: Any
) -> ErrorRules:
    """The rules for a tool; ``signs`` are the pair of its ``not_done`` and ``unknown``."""
    while isinstance(function, functools.partial):
        function = function.func
    home = getattr(function, "__module__", None) or type(function).__module__
    bare = write and not (keyed or probed or tolerates_absence)
    not_done, unknown = signs
    return ErrorRules(write and probed, bare, home, frozenset(not_done), frozenset(unknown))


def _was_raised(error: BaseException) -> bool:
    """Whether a ``raise`` statement made the exception, and not a failed conversion.

    ``int("soon")`` and ``datetime.strptime`` raise ``ValueError`` about an answer that cannot be read.
    """
    traceback = error.__traceback__
    if traceback is None:
        return True
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _STANDARD:
        return False
    from dis import opname

    return opname[frame.f_code.co_code[traceback.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")


def _was_killed(error: BaseException) -> bool:
    """A subprocess that a signal ended reports nothing; one that ended by itself reports by its exit code."""
    code = getattr(error, "returncode", None)
    called = any((cls.__module__, cls.__name__) == ("subprocess", "CalledProcessError") for cls in type(error).__mro__)
    return called and isinstance(code, int) and code < 0
