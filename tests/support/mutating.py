"""Break the package on purpose: a change is a text that stands once in the package, and what stands there instead.

The text alone says where: no module, no function, no file. So the code may move from one module to another, and what
was proved about it stays proved. A text that is gone, or that stands in two places, is an error that says so. Lengthen
it (by the rest of its line, or by the line before) until it is unique.

``broken`` gives the changed files, for a copy of the tree. ``install`` changes the functions of this process, whoever
imported them and under whatever name: a function keeps its identity and gets other code.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
#: A text of the package, and what stands in its place.
Change = tuple[str, str]
_SUFFIXES = (".py", ".lua", ".js", ".css")


class Misfit(LookupError):
    """A change fits no place of the package, or more than one."""


@functools.cache
def _own_texts() -> dict[Path, str]:
    return _texts_of(ROOT)


def _texts(root: Path) -> dict[Path, str]:
    return _own_texts() if root == ROOT else _texts_of(root)


def _texts_of(root: Path) -> dict[Path, str]:
    package = root / "saga_engine"
    files = (file for suffix in _SUFFIXES for file in sorted(package.rglob(f"*{suffix}")))
    return {file.relative_to(root): file.read_text(encoding="utf-8") for file in files}


def places(text: str, root: Path = ROOT) -> list[Path]:
    """The files that have a text, each as often as it stands there."""
    return [file for file, code in _texts(root).items() for _ in range(code.count(text))]


def place(text: str, root: Path = ROOT) -> Path:
    """The one file in which a text stands, once."""
    found = places(text, root)
    if len(found) != 1:
        where = ", ".join(map(str, sorted(set(found)))) or "nowhere"
        raise Misfit(
            f"a text of a mutation must stand once in the package, and stands {len(found)} times ({where}):\n{text}"
        )
    return found[0]


def broken(changes: Iterable[Change], root: Path = ROOT) -> dict[Path, str]:
    """The files that the changes change, with their new text."""
    texts: dict[Path, str] = {}
    for old, new in changes:
        file = place(old, root)
        text = texts.get(file, _texts(root)[file])
        if old not in text:
            raise Misfit(f"an earlier change of the same mutation took this text away:\n{old}")
        texts[file] = text.replace(old, new)
    return texts


def install(*changes: Change) -> list[tuple[FunctionType, CodeType]]:
    """Change the functions of this process; those that changed, with the code that they had."""
    changed: list[tuple[FunctionType, CodeType]] = []
    for file, text in broken(changes).items():
        module = importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
        before, mutants = _functions(_texts(ROOT)[file], file), _functions(text, file)
        names = [name for name in mutants if name not in before or _essence(mutants[name]) != _essence(before[name])]
        if not names:
            raise Misfit(f"no function of {module.__name__} is changed by {changes}: only what a function does can be")
        for name in names:
            function = _resolve(module, name)
            changed.append((function, function.__code__))
            function.__code__ = mutants[name]
    return changed


class Mutant(NamedTuple):
    """The package, broken by some changes."""

    changes: tuple[Change, ...]

    def install(self) -> None:
        """Break it for the rest of this process."""
        install(*self.changes)

    def __call__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Break it for the time of a test."""
        for function, genuine in install(*self.changes):
            mutant, function.__code__ = function.__code__, genuine
            monkeypatch.setattr(function, "__code__", mutant)


def rewrite(*changes: Change) -> Mutant:
    return Mutant(changes)


def _functions(text: str, file: Path) -> dict[str, CodeType]:
    """The functions and methods of a module by qualified name; what they define inside belongs to them."""
    found: dict[str, CodeType] = {}
    for code in _defined(compile(text, str(file), "exec", dont_inherit=True)):
        name = code.co_qualname
        # (A getter and its setter have one name, as overloads have.)
        found[name if name not in found else f"{name} again"] = code
    return found


def _defined(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_NEWLOCALS:
                yield constant
            else:
                yield from _defined(constant)


def _essence(code: CodeType) -> Any:
    """What a function does, wherever it stands in its file."""
    constants = [_essence(each) if isinstance(each, CodeType) else (type(each), each) for each in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def _resolve(module: Any, name: str) -> FunctionType:
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
        found = getattr(found, "__func__", getattr(found, "fget", getattr(found, "func", found)))
    found = inspect.unwrap(found)
    if not isinstance(found, FunctionType):
        raise Misfit(f"{name} of {module.__name__} is no function: {found!r}")
    return found
