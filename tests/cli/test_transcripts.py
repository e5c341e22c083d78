"""What each command prints, as a person sees it: the transcripts in ``transcripts/*.txt``."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from saga_engine.cli import app
from tests.cli.transcript_player import HERE, Player, Screen

TRANSCRIPTS = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(transcript: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Commands print what was reviewed: words, tables, hints, streams and exit codes.

    ``--accept-transcripts`` writes what they print now; review the diff.
    """
    player = Player(monkeypatch)
    expected = transcript.read_text()
    try:
        found = player.play(expected)
    finally:
        player.close()
    if request.config.getoption("--accept-transcripts"):
        transcript.write_text(found)
    elif found != expected:
        diff = difflib.unified_diff(expected.splitlines(), found.splitlines(), "reviewed", "now", lineterm="")
        pytest.fail("\n".join([*diff, "if it is meant so: pytest --accept-transcripts, and review"]), pytrace=False)


def test_each_command_has_a_transcript() -> None:
    """Every command of the command line is shown somewhere, with an end that is well (0, 3) and one that is not."""
    ended: dict[str, set[bool]] = {}
    for transcript in TRANSCRIPTS:
        command = ""
        for line in transcript.read_text().splitlines():
            if line.startswith("$ ") and "saga " in line:
                words = line.partition("saga ")[2].split()
                command = " ".join(words[:2] if words[0] == "trace" else words[:1])
                command += " --help" if "--help" in words else ""
            elif line.startswith("= ") and "--help" not in command:
                ended.setdefault(command, set()).add(line in ("= 0", "= 3"))
    names = {command.name for command in app.registered_commands} | {"trace export", "trace verify", "trace replay"}
    assert {name for name in names if ended.get(str(name)) != {True, False}} == set()


def test_a_screen_shows_what_is_left_on_it() -> None:
    """Lines that were drawn over are gone, and a line that is too long goes on in the next."""
    screen = Screen(4)
    screen.feed(b"one\r\ntwo\r\n\x1b[1A\r\x1b[2K\x1b[36mthree\x1b")
    screen.feed(b"[0m\xe2\x80\xa6")
    assert screen.lines() == ["one", "thre", "e…"]
