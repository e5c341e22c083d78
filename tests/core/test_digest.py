"""The digest of random sagas' journals is one of the core alone: not of a process, and not of chance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.digest import KINDS, compare, digests, main, summed
from tests.support.mutating import rewrite

SEEDS = 4 * len(KINDS)
ROOT = Path(__file__).parents[2]


def test_another_process_makes_the_same_journals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With another hash seed, and in several processes: the digests are the same, of each kind and of all."""
    file = tmp_path / "before.json"
    command = [sys.executable, "-m", "tests.core.digest", "--seeds", str(SEEDS), "--save", str(file)]
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    said = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
    assert main(["--seeds", str(SEEDS), "--workers", "2", "--against", str(file)]) == 0
    here = capsys.readouterr().out
    assert here == f"{said}0 of {SEEDS} journals differ\n"
    assert len(said.splitlines()) == len(KINDS) + 1


def test_a_change_of_the_core_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A blank in the bytes of a record, which means nothing to whoever reads it, is another journal."""
    before = list(digests(SEEDS))
    data = "    data = _encode(record)"
    bounded = "\n    if len(data) <= INLINE_LIMIT:"
    rewrite((f"{data}{bounded}", f"""{data}.replace(b'"at":', b'"at": '){bounded}"""))(monkeypatch)
    found = list(digests(SEEDS))
    assert compare(found, before) == 1
    assert f"{SEEDS} of {SEEDS} journals differ" in capsys.readouterr().out
    assert summed(found).items().isdisjoint(summed(before).items())


def test_another_number_of_sagas_is_no_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Digests of more sagas are not those of fewer."""
    file = tmp_path / "before.json"
    file.write_text(json.dumps(list(digests(len(KINDS)))))
    assert main(["--seeds", str(2 * len(KINDS)), "--against", str(file)]) == 1
    assert "give the same --seeds" in capsys.readouterr().out
