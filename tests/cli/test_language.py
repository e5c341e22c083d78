"""In which language the command line speaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from saga_engine.cli import run, words
from saga_engine.cli.output import paint, table
from saga_engine.language import of_locale
from tests.cli.loading import loaded


@pytest.fixture(autouse=True)
def found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each test finds the language anew, in a folder without settings, and leaves none behind."""
    monkeypatch.chdir(tmp_path)
    words.choose()
    yield
    words.choose()


@pytest.mark.parametrize(
    ("environ", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh"}, "zh"),
        ({"LANG": "ZH_tw.big5"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN"}, "zh"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "zh"),
    ],
)
def test_the_locale_decides_as_posix_says(environ: dict[str, str], language: str) -> None:
    """LC_ALL over LC_MESSAGES over LANG; an empty variable is none."""
    assert of_locale(environ) == language


def test_a_setting_takes_precedence_over_the_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment over the file over the locale, as with every setting; what is wrong is told in the locale's."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert words.language() == "zh"
    Path("saga.toml").write_text('[saga]\nlanguage = "en"\n')
    words.choose()
    assert words.language() == "en"
    monkeypatch.setenv("SAGA_LANGUAGE", "zh")
    words.choose()
    assert words.language() == "zh"
    monkeypatch.setenv("SAGA_LANGUAGE", "latin")
    words.choose()
    assert words.language() == "zh"


def test_a_document_is_the_same_in_each_language(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Programs read it: errors, questions and what stands beside it on stderr are English."""
    said = []
    for language in ("en", "zh"):
        monkeypatch.setenv("SAGA_LANGUAGE", language)
        assert run(["show", "nobody", "--json"]) == 5
        said.append(capsys.readouterr())
    assert said[0] == said[1]
    assert json.loads(said[0].out)["error"]["code"] == "saga-not-found"


def test_a_state_keeps_its_colour_and_columns_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Chinese character is two columns wide."""

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    words.choose("zh")
    assert words.state("ESCALATED") == "待运维人员答复"
    assert paint(words.state("ESCALATED"), stream=Terminal()) == "\x1b[1;31m待运维人员答复\x1b[0m"  # type: ignore[arg-type]
    rows = [[words.state("ESCALATED"), "x"], [words.state("COMPLETED"), "y"], ["z" * 14, "w"]]
    lines = [line.replace("\x1b[0m", "") for line in table(["A", "B"], rows).splitlines()]
    assert [line[-1] for line in lines] == ["B", "x", "y", "w"]
    assert [sum(2 if ord(char) > 0x2E7F else 1 for char in line) for line in lines] == [17, 17, 17, 17]


def test_what_a_number_counts() -> None:
    """One of them is said otherwise in English."""
    words.choose("en")
    assert [words.counted("inbox.count", n) for n in (0, 1, 2)] == ["0 questions", "1 question", "2 questions"]
    assert (words.more(0), words.more(3), words.hidden(0)) == ("", " and 3 more", [])


def test_a_list_as_a_document_loads_no_words(cli) -> None:
    """The texts are loaded at the first word."""
    said = loaded(cli, "list", "--json", heavy=("saga_engine.cli.words_runs", "saga_engine.language.refusals"))
    assert "loaded: []" in said
