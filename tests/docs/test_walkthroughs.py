"""Whoever follows a page from top to bottom sees what it shows."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.walkthroughs import Walk, alike, fences, followed, programs_missing


@pytest.mark.parametrize("page", followed(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_is_what_its_commands_print(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Files, commands, output and exit codes; ``--accept-transcripts`` writes the output: review the diff."""
    text = page.read_text(encoding="utf-8")
    if missing := programs_missing(page):
        assert "CI" not in os.environ, missing
        pytest.skip(f"without {missing}")
    with Walk(tmp_path) as walk:
        found = walk.follow(text)
    assert walk.ends == []
    if request.config.getoption("--accept-transcripts"):
        page.write_text(found, encoding="utf-8")
    elif found != text:
        diff = difflib.unified_diff(text.splitlines(), found.splitlines(), "the page", "now", lineterm="")
        pytest.fail("\n".join(diff), pytrace=False)


@pytest.mark.parametrize("page", followed(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_chinese_page_shows_the_same_blocks(page: Path) -> None:
    """What was run for the English page is what the Chinese one shows."""
    assert len(fences(page)) > 3
    assert fences(page.with_suffix(".zh.md")) == fences(page)


@pytest.mark.parametrize("page", followed(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_reader_sees_the_name_of_each_file(page: Path) -> None:
    """A fence is not shown: whoever reads a page must find above each file how it is called, in both languages."""
    for shown in (page, page.with_suffix(".zh.md")):
        text = shown.read_text(encoding="utf-8")
        files = [block for block in fences(shown) if re.match(r"```\w+ [\w./-]+\.\w+\n", block)]
        heads = [(block, block.split("\n", 1)[0].split()[1]) for block in files]
        assert [name for block, name in heads if f"**`{name}`**\n\n{block}" not in text] == []


def test_other_output_and_another_end_are_found(tmp_path: Path) -> None:
    """A page that shows something else, or hides how a command ended, is not what happened."""
    walk = Walk(tmp_path)
    page = (
        "```python a.py\nimport sys\nprint('3 ms, two')\nsys.exit(2)\n```\n\n```console run 2\n$ python a.py\n{}\n```\n"
    )
    assert walk.follow(page.format("9 ms, two")) == page.format("9 ms, two")
    assert walk.follow(page.format("3 ms, one")) == page.format("3 ms, two")
    assert walk.ends == []
    assert walk.follow(page.replace("run 2", "run").format("3 ms, two")) != ""
    assert len(walk.ends) == 1


def test_times_and_seeds_are_alike_and_words_are_not() -> None:
    """Only what a clock or chance makes is left out."""
    assert alike("12:00:01  done, 3 ms  key a:f:00112233445566ff") == alike(
        "13:10:59 done, 1.2 s key a:f:ffeeddccbbaa9988"
    )
    assert alike("2 steps") != alike("3 steps")


def test_servers_of_a_page_run_in_terminals_of_their_own(tmp_path: Path) -> None:
    """They answer while the page goes on, at a free port, and end with it; how one ended is found."""
    get = "from urllib.request import urlopen\nprint(8000, urlopen('http://127.0.0.1:8000/get.py').status)\n"
    page = (
        f"```python get.py\n{get}```\n\n```console serve\n$ python -m http.server 8000 --bind 127.0.0.1\n```\n\n"
        "```console run\n$ python get.py\n8000 200\n```\n"
    )
    with Walk(tmp_path) as walk:
        assert walk.follow(page) == page
    assert walk.ends == []
    with Walk(tmp_path) as walk:
        walk.follow("```console serve\n$ python no-such-file.py 8000\n```\n")
    assert ["no-such-file.py 8000: ended with 2" in each for each in walk.ends] == [True]
