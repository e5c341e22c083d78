"""Rules for exceptions of writes that the tables of ``outcomes`` do not name.

An exception shows where the program stopped, and not whether the remote system carried out the request before that. Of
a write with a key or a probe it is unknown, because the same key or the probe can find out. The exceptions are the
tool's *statements*: ``ToolError``, what its declaration names (``not_done``), and with ``raised="not-done"`` what its
own module raises outright.

Of a bare write nothing can find out, and nobody would want to be asked about each ``ValueError("full")``. There an
exception from *breakage* (a decode error, a ``KeyError``, a lack of memory) is unknown, and a *deliberate* one (the
tool's own classes, ``ValueError``, ``RuntimeError``) counts as the statement that the call was not done.
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
#: What an exception means that is no statement of the tool: with ``not-done`` its own module's count as statements.
Raised = Literal["unknown", "not-done"]
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
    its own. ``not_done``, ``unknown``: the declaration's classes and HTTP statuses. ``raised``: what an exception
    means that is no statement; None: breakage is told from deliberate errors.
    """

    probed: bool = False
    bare: bool = False
    home: str = ""
    not_done: frozenset[Sign] = frozenset()
    unknown: frozenset[Sign] = frozenset()
    raised: Raised | None = None

    def says_refused(self, error: BaseException) -> bool:
        """Whether the tool declares that what its own module raises outright was not done, and this is such an error.

        Outright: not from another exception, nor while one is handled. Either could be the end of a call that happened.
        """
        if self.raised != "not-done" or error.__cause__ is not None or error.__context__ is not None:
            return False
        return _raised_in(error) == self.home

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
    function: Callable[..., Any],
    *,
    write: bool,
    keyed: bool,
    probed: bool,
    tolerates_absence: bool,
    signs: Any,
    raised: Raised | None = None,
) -> ErrorRules:
    """The rules for a tool; ``signs`` are the pair of its ``not_done`` and ``unknown``."""
    while isinstance(function, functools.partial):
        function = function.func
    home = getattr(function, "__module__", None) or type(function).__module__
    bare = write and not (keyed or probed or tolerates_absence)
    not_done, unknown = signs
    if raised is None and (keyed or probed):
        raised = "unknown"  # the same key, or the probe, finds out what an exception leaves open
    return ErrorRules(write and probed, bare, home, frozenset(not_done), frozenset(unknown), raised if write else None)


def _was_raised(error: BaseException) -> bool:
    """Whether a ``raise`` statement made the exception, and not a failed conversion.

    ``int("soon")`` and ``datetime.strptime`` raise ``ValueError`` about an answer that cannot be read.
    """
    if error.__traceback__ is None:
        return True
    module = _raised_in(error)
    return bool(module) and module.partition(".")[0] not in _STANDARD


def _raised_in(error: BaseException) -> str:
    """The module whose ``raise`` statement made the exception; an empty text if none did."""
    traceback = error.__traceback__
    if traceback is None:
        return ""
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    from dis import opname

    raised = opname[frame.f_code.co_code[traceback.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")
    return str(frame.f_globals.get("__name__", "?")) if raised else ""


def _was_killed(error: BaseException) -> bool:
    """A subprocess that a signal ended reports nothing; one that ended by itself reports by its exit code."""
    code = getattr(error, "returncode", None)
    called = any((cls.__module__, cls.__name__) == ("subprocess", "CalledProcessError") for cls in type(error).__mro__)
    return called and isinstance(code, int) and code < 0
