"""A file is replaced as a whole, through a name that nobody can prepare."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from saga_engine.files import replacing
from saga_engine.privacy.keyring import add_to_file, keys_from_file, made
from saga_engine.sources.mcp.pins import read_pins, write_pins


@pytest.fixture
def open_mask():
    """A process that takes no rights away from what it makes."""
    before = os.umask(0)
    yield
    os.umask(before)


def add_key(path: Path) -> None:
    add_to_file(path, made("k1"))
    assert list(keys_from_file(path)()) == ["k1"]


def accept(path: Path) -> None:
    write_pins(path, "server", {})
    assert read_pins(path) == {"server": {}}


@pytest.mark.parametrize("write", [add_key, accept])
def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write) -> None:
    """Whatever name somebody guesses and makes a link of: what it leads to stays as it was, and the file is whole."""
    path, victim = tmp_path / "saga.keys", tmp_path / "victim"
    victim.write_text("theirs")
    monkeypatch.setattr(tempfile, "_get_candidate_names", lambda: iter(["guessed", "guessed", "free"]))
    for name in (f".{path.name}.{os.getpid()}.new", f".{path.name}.guessed.part"):
        (tmp_path / name).symlink_to(victim)
    write(path)
    assert victim.read_text() == "theirs"
    assert not path.is_symlink()


def test_what_is_unfinished_is_for_its_owner_alone(tmp_path: Path, open_mask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first byte, and until it is whole; it is on the disk, with its folder, before the block has ended."""
    path, synced = tmp_path / "a", []
    really = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), really(handle)))
    with replacing(path, 0o640) as file:
        (part,) = tmp_path.iterdir()
        assert (part.stat().st_mode & 0o777, part.stat().st_size) == (0o600, 0)
        file.write(b"x" * 100_000)
        assert part.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o640
    assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]


def test_a_key_is_for_the_owner_unless_he_chose_otherwise(tmp_path: Path, open_mask) -> None:
    """A file of keys is made for its owner alone; one that exists keeps its readers, and loses other writers."""
    path = tmp_path / "saga.keys"
    add_to_file(path, made("k1"))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o660)
    add_to_file(path, made("k2"))
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    """An exception in the block: the old file stays, and nothing lies beside it."""
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(KeyError), replacing(path) as file:
        file.write(b"new")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
