"""``saga graph``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledPlan

#: How long graphviz may take, in seconds: its layouts do not scale to thousands of steps.
_DOT_TIMEOUT_S = 120


class Format(StrEnum):
    """The output formats of a diagram."""

    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    PNG = "png"


def graph(
    subject: Annotated[str, typer.Argument(metavar="PLAN|ID", help="A plan file, - for stdin, or the id of a saga.")],
    *,
    form: Annotated[
        Format, typer.Option("--format", case_sensitive=False, help="svg and png need graphviz's `dot`.")
    ] = Format.MERMAID,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write to a file.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Draw a plan, or a saga with its steps coloured by their status.

    PLAN is -, an existing file, or a name with a slash or the ending .json. Everything else is the id of a saga.

    Examples:
      saga graph trip.json
      saga graph trip-42 --format svg -o trip.svg
    """
    from saga_engine.cli.output import data, document
    from saga_engine.errors import SettingInvalid
    from saga_engine.plan import diagram

    plan, statuses = _plan(subject) if _is_plan(subject) else _saga(subject, store)
    text = (diagram.mermaid if form is Format.MERMAID else diagram.dot)(plan, statuses)
    drawn = _draw(text, form) if form in (Format.SVG, Format.PNG) else (text + "\n").encode()
    if out is not None:
        try:
            out.write_bytes(drawn)
        except OSError as error:
            raise SettingInvalid(f"{out} cannot be written: {error.strerror}") from error
        if as_json:
            document({"format": form.value, "file": str(out)})
    elif form is Format.PNG:
        _write_binary(drawn, as_json=as_json)
    elif as_json:
        document({"format": form.value, "diagram": drawn.decode()})
    else:
        data(drawn.decode().rstrip("\n"))
    return exit_codes.COMPLETED


def _is_plan(subject: str) -> bool:
    return subject == "-" or "/" in subject or subject.endswith(".json") or Path(subject).is_file()


def _plan(subject: str) -> tuple[CompiledPlan, None]:
    from saga_engine.cli.check import load_told
    from saga_engine.plan.compiler import compile_plan

    return compile_plan(load_told(subject, None), None), None


def _saga(saga_id: str, store: str | None) -> tuple[CompiledPlan, dict[str, str]]:
    """The plan of a saga, and the status of each step by its key."""
    import asyncio

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.read_only import no_store, not_found, reading_from
    from saga_engine.runtime.journal import read_records, state_of

    settings = settings_for(store)
    if (folder := no_store(settings)) is not None:
        raise not_found(saga_id, folder)

    async def read() -> tuple[CompiledPlan, dict[str, str]]:
        async with reading_from(settings) as opened:
            state = state_of(await read_records(opened, saga_id))
        return state.plan, {step.key: state.steps[step.index].status for step in state.plan.steps}

    return asyncio.run(read())


def _draw(text: str, form: Format) -> bytes:
    import shutil
    import subprocess

    from saga_engine.cli.output import shown
    from saga_engine.errors import SettingInvalid

    program = shutil.which("dot")
    if program is None:
        raise SettingInvalid(
            f"--format {form.value} needs graphviz's `dot`, which is not installed",
            hint="install graphviz, or use --format mermaid, which many editors and web pages draw",
        )
    try:
        made = subprocess.run(  # noqa: S603 - the program that the user installed, on text of ours
            [program, f"-T{form.value}"], input=text.encode(), capture_output=True, timeout=_DOT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SettingInvalid(
            f"`dot` did not finish within {_DOT_TIMEOUT_S} s", hint="the plan is too large for it: --format mermaid"
        ) from error
    if made.returncode != 0:
        raise SettingInvalid(f"`dot` failed: {shown(made.stderr.decode(errors='replace'), 500)}")
    return made.stdout


def _write_binary(drawn: bytes, *, as_json: bool) -> None:
    import sys

    from saga_engine.errors import SettingInvalid

    if as_json or sys.stdout.isatty():
        raise SettingInvalid("a png is no text for a terminal or for JSON", hint="write it to a file: -o saga.png")
    sys.stdout.buffer.write(drawn)
    sys.stdout.buffer.flush()
