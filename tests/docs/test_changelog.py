"""What the changelog names exists: commands, options, settings, parameters, codes, files, extras."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import tomllib
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

import saga_engine
from saga_engine import errors, settings
from saga_engine.api.temporal import TemporalCoordinator
from saga_engine.cli import app
from saga_engine.core.messages import DECISIONS
from saga_engine.tools import options
from tests.docs.pages import ROOT

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
#: Classes whose members the changelog names, beside the public names.
CLASSES = {"TemporalCoordinator": TemporalCoordinator}
#: What is a file or a folder of the project begins with one of these.
PLACES = ("docs", "deploy", "dev", "examples", "tests")


@functools.cache
def source() -> str:
    """The package's text, its modules' names, and the page of the plans: any other name stands in one of them."""
    files = [path for path in (ROOT / "saga_engine").rglob("*") if path.suffix in (".py", ".lua", ".toml", ".js")]
    pages = [*(ROOT / "docs").glob("plan-*[a-z].md")]
    texts = [path.read_text(encoding="utf-8") for path in [*files, *pages]]
    return "\n".join([*texts, *(path.stem for path in files)])


def named(text: str) -> list[str]:
    """Everything between single backticks."""
    return sorted({re.sub(r"\s+", " ", each) for each in re.findall(r"`([^`]+)`", text)})


def wrong(name: str) -> str:
    """Why there is no such thing, or an empty text."""
    words = name.split()
    if words[0] == "saga" and len(words) > 1:
        return _command(words[1:])
    if words[0] == "make":
        return "" if re.search(rf"^{re.escape(words[1])}:", MAKEFILE, re.MULTILINE) else "no target"
    if words[0].startswith("--"):
        return "" if words[0] in _all_options(typer.main.get_command(app)) else "no option"
    if (variable := re.fullmatch(r"SAGA_([A-Z_]+)", name)) and not _setting("saga", variable[1].lower()):
        return ""  # a setting of ``[saga]`` has a variable, whose name is made from its own
    if table := re.fullmatch(r"\[([a-z]+)[\w.]*\](?: (\w+))?", name):
        return _setting(table[1], table[2])
    if name.partition("/")[0] in PLACES:
        return "" if (ROOT / name).exists() else "no file"
    if option := re.fullmatch(r"@tool\((.+)\)", name):
        return ", ".join(each for each in _keywords(option[1]) if each not in options.OPTIONS)
    if (owner := re.fullmatch(r"([A-Za-z]\w+)(?:\.\w+)*(?:\(.*\))?", name)) and owner[1] in _classes():
        return _member(name)
    if re.fullmatch(r"[a-z]+(-[a-z]+)+", name):
        return "" if f'"{name}"' in source() or name in DECISIONS else "no code"
    parts = [each for each in re.findall(r"[A-Za-z_][\w-]*", name) if each not in ("NAME", "HOST", "PORT", "ID")]
    return ", ".join(each for each in parts if not re.search(rf"(?<![\w]){re.escape(each)}(?![\w])", source()))


def _classes() -> dict[str, Any]:
    public = {each: getattr(saga_engine, each) for each in saga_engine.__all__ if each not in ("__version__", "tool")}
    sessions = {"session": saga_engine.Coordinator.session, "submit": saga_engine.Coordinator.submit}
    errors_ = {each.__name__: each for each in vars(errors).values() if inspect.isclass(each)}
    return {**errors_, **public, **CLASSES, **sessions, "saga_engine": saga_engine}


def _member(name: str) -> str:
    """``Coordinator.open(limits=…)``: the class, its member, and the parameters of that."""
    path, _, given = name.partition("(")
    first, *rest = path.split(".")
    value = _classes()[first]
    for each in rest:
        known = getattr(value, "__dataclass_fields__", {})
        if not hasattr(value, each) and each not in known and each not in getattr(value, "__annotations__", {}):
            try:
                value = importlib.import_module(f"{value.__name__}.{each}")
            except (AttributeError, ImportError):
                return f"{value} has no {each}"
        else:
            value = getattr(value, each, None)
    if not given:
        return ""
    parameters = inspect.signature(value).parameters
    return ", ".join(each for each in _keywords(given) if each not in parameters)


def _keywords(given: str) -> list[str]:
    return re.findall(r"(\w+)=", given)


def _setting(table: str, field: str | None) -> str:
    if table not in ("saga", *settings._TABLES):
        return "no table"
    return "" if field is None or re.search(rf'"{field}"|^ +{field}: ', source(), re.MULTILINE) else "no field"


def _all_options(command: Any) -> set[str]:
    own = {each for param in command.params for each in (*param.opts, *param.secondary_opts)}
    return own.union(*(_all_options(each) for each in getattr(command, "commands", {}).values()))


def _command(words: list[str]) -> str:
    """Each alternative of ``a|b`` is a command; what follows the last command are its arguments and options."""
    command: Any = typer.main.get_command(app)
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        if missing := [each for each in words[0].split("|") if each not in command.commands]:
            return f"no command {', '.join(missing)}"
        command, words = command.commands[words[0].split("|")[0]], words[1:]
    known = {each for param in command.params for each in (*param.opts, *param.secondary_opts)}
    if (
        words
        and not words[0].startswith("-")
        and not any(param.param_type_name == "argument" for param in command.params)
    ):
        return f"no argument {words[0]}"
    return ", ".join(each for each in words if each.startswith("--") and each not in known)


def test_what_the_changelog_names_exists() -> None:
    """A reader of a release can type, import and set whatever it names."""
    found = {name: why for name in named(CHANGELOG) if (why := wrong(name))}
    assert found == {}
    assert len(named(CHANGELOG)) > 200


def test_the_changelog_names_every_command_and_every_extra() -> None:
    """The first release is described whole."""
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert commands - set(named(CHANGELOG)) == set()
    development = {"test", "dev", "docs"}
    extras = set(re.findall(r"extra\s+`([a-z-]+)`", CHANGELOG))
    listed = re.search(r"Each is an extra\s+\(([^)]*)\)", CHANGELOG)  # one for each framework of agents
    assert listed is not None
    extras |= set(re.findall(r"`([a-z-]+)`", listed[1]))
    assert extras | {"langchain"} == set(PROJECT["optional-dependencies"]) - development  # (of tools, not of a loop)


@pytest.mark.parametrize(
    "name",
    [
        "saga sow", "saga keys lst", "saga list --no", "saga keys list NAME", "make toast", "--no-such-option",
        "[polizy]", "[secrets] permitted", "docs/none.md", "@tool(undoes=…)", "Coordinator.opens", "Coordinator.open(limit=…)",
        "session(on_diverging=…)", "no-such-code", "StepQueud", "max_outputs_bytes", "saga_engine.testing.none",
    ],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    """Each kind of name."""
    assert wrong(name)
