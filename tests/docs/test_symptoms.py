"""What the FAQ and the page of symptoms name exists: every command with its options, every code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from saga_engine.cli import app
from saga_engine.core.messages import DECISIONS
from tests.docs.pages import ROOT

DOCS = ROOT / "docs"
PAGES = [DOCS / f"{name}.md" for name in ("faq", "faq.zh", "troubleshooting", "troubleshooting.zh")]
#: Settings, options of tools and parameters that these pages name beside codes.
NAMES = {"allowed_hosts", "idempotency_key", "key_ttl_s", "late_s", "max_concurrency", "patience_s", "timeout_s"}


def commands(page: Path) -> list[str]:
    """Every command line on a page, in its text or in a block; ``…`` stands for words that are left out."""
    text = page.read_text(encoding="utf-8")
    found = [*re.findall(r"`(saga [^`]+)`", text), *re.findall(r"^\$ (saga .+)$", text, re.MULTILINE)]
    return sorted({each for each in found if "…" not in each})


def parse(line: str) -> None:
    """Raise unless the command exists and takes these arguments and options. Nothing runs."""
    words = shlex.split(line)[1:]
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="saga")
    while isinstance(command, typer.core.TyperGroup):
        named = command.get_command(context, words[0])
        assert named is not None, f"there is no command {words[0]!r}"
        command, name, words = named, words[0], words[1:]
        if not isinstance(command, typer.core.TyperGroup) or not words or words[0].startswith("-"):
            command.make_context(name, words, parent=context)
            return


@pytest.mark.parametrize(
    ("page", "line"),
    [(page, line) for page in PAGES for line in commands(page)],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_every_command_exists(page: Path, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its arguments and options: who is called at night copies it as it stands."""
    assert page.is_file()
    (tmp_path / "trip.json").write_text("{}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    if line not in ("saga amend", "saga check"):
        parse(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_is_explained(page: Path) -> None:
    """What looks like a code is one of ``errors.md``, or a name that the pages are known to use."""
    text = page.read_text(encoding="utf-8")
    errors = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("errors.md", "reference/errors.md"))
    explained = {
        code for row in re.findall(r"^\| (`[^|]+) \|", errors, re.MULTILINE) for code in re.findall(r"`([^`]+)`", row)
    }
    named = set(re.findall(r"`([a-z]+(?:[-_][a-z]+)+)`", text))
    assert named - explained - NAMES - set(DECISIONS) == set()
    if page.name.startswith("troubleshooting"):
        assert len(named & explained) > 20
        assert len(commands(page)) > 20


@pytest.mark.parametrize("name", ["faq", "troubleshooting"])
def test_the_chinese_page_names_the_same(name: str) -> None:
    """The same commands in the same words."""
    assert commands(DOCS / f"{name}.zh.md") == commands(DOCS / f"{name}.md")


@pytest.mark.parametrize("line", ["saga sow ID", "saga resume --al", "saga keys lst", "saga amend ID"])
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    """A wrong name, a wrong option, a wrong name in a group, a missing argument."""
    with pytest.raises(Exception, match=r"(?i)no command|no such option|missing parameter"):
        parse(line)
