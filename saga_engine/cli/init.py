"""``saga init``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to write; it is made if it is missing.")
    ] = Path(),
    *,
    printed: Annotated[
        bool, typer.Option("--print", help="Print the recommended tables of saga.toml; nothing is written.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Write a folder that runs: saga.toml with the recommended guards, tools.py, plan.json and test_plan.py.

    Each guard stands in saga.toml with its reason; `saga doctor` recommends the same ones. A file that exists is never
    changed: then nothing is written (exit code 6).

    Examples:
      saga init shop
      saga init --print >> saga.toml
    """
    from saga_engine.cli.output import data, document, note, shown
    from saga_engine.cli.starter import recommended_toml, starter_files

    if printed:
        if as_json:
            document({"saga.toml": recommended_toml()})
        else:
            data(recommended_toml().strip("\n"))
        return exit_codes.COMPLETED
    files = starter_files()
    _write(folder, files)
    if as_json:
        document({"folder": str(folder), "files": list(files)})
        return exit_codes.COMPLETED
    data(f"{shown(str(folder))}: {', '.join(files)}")
    cd = "" if folder == Path() else f"cd {shown(str(folder))} && "
    note(f"hint: {cd}saga submit plan.json --id first --input customer=ada --input item=lamp --input amount=40")
    note("hint: then with --id second and amount=900: it fails, and what it did is undone")
    note("hint: saga simulate plan.json --input customer=ada --input item=lamp --input amount=40; python -m pytest")
    return exit_codes.COMPLETED


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write all files, or none. Raises ``SettingInvalid`` and ``FilesExist``."""
    from saga_engine.errors import FilesExist, SettingInvalid
    from saga_engine.files import replacing

    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = [name for name in files if (folder / name).exists()]
        if there:
            raise FilesExist(
                f"{folder} has {', '.join(there)} already; nothing was written",
                hint="give another folder; `saga init --print` prints the recommended settings alone",
            )
        for name, text in files.items():
            with replacing(folder / name, 0o644) as file:
                file.write(text.encode())
    except OSError as error:
        raise SettingInvalid(f"{folder} cannot be written: {error.strerror or error}") from error
