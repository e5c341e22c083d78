"""Finds tools by the name of a module or a file, as ``--tools`` gives it."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from saga_engine.errors import ToolInvalid
from saga_engine.tools.decorator import AnyTool, Tool
from saga_engine.tools.registry import ToolRegistry, collect
from saga_engine.tracebacks import place_outside_the_engine

if TYPE_CHECKING:
    from pathlib import Path


def load_tools(reference: str, base: Path) -> list[AnyTool]:
    """The tools that ``reference`` names.

    ``pkg.module``, ``pkg.module:NAME``, ``path/to/file.py`` or ``path/to/file.py:NAME``; paths are relative to
    ``base``, which is also searched for modules. NAME is a tool, a list of tools, a registry, or a function without
    parameters that returns one of these. Without NAME: all tools in the module. A file is imported under a private
    name, so it cannot clash with an installed module; its folder is on ``sys.path``, so it can import other files
    there.

    Raises ``ToolInvalid`` if the reference leads nowhere, the import fails, or there are no tools.
    """
    target, name = _split(reference, base)
    if not target:
        raise ToolInvalid(f"{reference!r} names no module", hint="write pkg.module:NAME or path/to/file.py:NAME")
    file = base / target
    module = _from_file(file, reference) if _is_path(target, file) else _from_name(target, base, reference)
    source = module if name is None else _named_source(module, name, reference)
    try:
        tools = collect(source)
    except ToolInvalid as error:
        raise ToolInvalid(f"{reference}: {error.message}", hint=error.hint, reference=reference) from error
    if not tools:
        raise ToolInvalid(f"{reference} has no tools", hint="decorate functions with @tool", reference=reference)
    return list({id(tool): tool for tool in tools}.values())


def _split(reference: str, base: Path) -> tuple[str, str | None]:
    """Module or file, and NAME. A colon inside a path does not separate them."""
    target, colon, name = reference.rpartition(":")
    if not colon or (base / reference).is_file():
        return reference, None
    if all(part.isidentifier() for part in name.split(".")):
        return target, name
    return (target, None) if not name else (reference, None)


def _is_path(target: str, file: Path) -> bool:
    return target.endswith(".py") or os.sep in target or "/" in target or file.is_file()


def _from_file(file: Path, reference: str) -> ModuleType:
    if not file.is_file():
        what = "a folder, not a file" if file.is_dir() else "not there"
        raise ToolInvalid(
            f"the tools file {str(file)!r} is {what}",
            hint="give the path of a Python file, or the name of a module without '.py'",
            reference=reference,
        )
    path = file.resolve()
    status = path.stat()
    # The same file is the same module; a changed file is another one.
    identity = f"{path}:{status.st_mtime_ns}:{status.st_size}"
    private = f"_saga_tools_{hashlib.sha256(identity.encode(errors='surrogateescape')).hexdigest()[:16]}"
    loaded = sys.modules.get(private)
    if loaded is not None:
        return loaded
    _add_to_path(path.parent)
    loader = importlib.machinery.SourceFileLoader(private, str(path))
    spec = importlib.util.spec_from_file_location(private, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[private] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[private]
        raise _import_failed(str(file), error, reference) from error
    return module


def _from_name(target: str, base: Path, reference: str) -> ModuleType:
    if not all(part.isidentifier() for part in target.split(".")):
        raise ToolInvalid(
            f"{target!r} is neither a module nor an existing file",
            hint="write pkg.module:NAME or path/to/file.py:NAME",
            reference=reference,
        )
    _add_to_path(base.resolve())
    importlib.invalidate_caches()
    try:
        return importlib.import_module(target)
    except (Exception, SystemExit) as error:
        raise _import_failed(target, error, reference) from error


def _add_to_path(folder: Path) -> None:
    # Permanently: a tool may import another file of the folder during a call.
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_failed(what: str, error: BaseException, reference: str) -> ToolInvalid:
    """The error for a module that cannot be imported, with file and line."""
    place = place_outside_the_engine(error)
    message = f"{type(error).__name__}: {getattr(error, 'msg', None) or error}"
    if isinstance(error, ToolInvalid):
        return ToolInvalid(f"{place or what}: {error.message}", hint=error.hint, reference=reference)
    if isinstance(error, ModuleNotFoundError):
        own = error.name is not None and (what == error.name or what.startswith(f"{error.name}."))
        hint = (
            "check the name and the folder it is started from"
            if own
            else f"install {error.name!r} or correct the import"
        )
    elif isinstance(error, SystemExit):
        hint = "the module ends the program when it is imported: guard that with if __name__ == '__main__'"
    else:
        hint = "--debug shows the whole traceback"
    return ToolInvalid(
        f"the tools in {what!r} cannot be imported: {_placed(error)}{message[:1000]}", hint=hint, reference=reference
    )


def _placed(error: BaseException) -> str:
    place = place_outside_the_engine(error)
    return f"{place}: " if place else ""


def _named_source(module: ModuleType, name: str, reference: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            near = [tool for tool, value in vars(module).items() if isinstance(value, Tool | ToolRegistry)]
            raise ToolInvalid(
                f"{reference}: there is no {name!r}",
                hint=f"it has {', '.join(near[:20])}" if near else "it has no tools: decorate functions with @tool",
                reference=reference,
            ) from error
    if isinstance(found, Tool | ToolRegistry | ModuleType) or not callable(found):
        return found
    return _made(found, name, reference)


def _made(factory: Any, name: str, reference: str) -> Any:
    """The tools that a function returns."""
    try:
        made = factory()
    except Exception as error:
        raise ToolInvalid(
            f"{reference}: {name}() failed: {_placed(error)}{type(error).__name__}: {str(error)[:1000]}",
            hint="NAME is a tool, a list of tools, a registry, or a function that returns one of these",
            reference=reference,
        ) from error
    if inspect.iscoroutine(made):
        made.close()
    if isinstance(made, Tool | ToolRegistry | ModuleType | list | tuple):
        return made
    raise ToolInvalid(
        f"{reference}: {name}() returned {type(made).__name__}, no tools",
        hint=f"if {name} is itself a tool, decorate it with @tool",
        reference=reference,
    )
