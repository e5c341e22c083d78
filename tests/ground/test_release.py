"""What ``make release-check`` would find: each of its judgements, on something wrong."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from dev.release import artefacts, environments, licences, naming
from dev.release.report import Failed, Report

ROOT = Path(__file__).parents[2]
ALLOWED = {"MIT": "", "Apache-2.0": "", "PSF-2.0": ""}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only AND MIT OR Apache-2.0", True),
        ("MIT AND (GPL-3.0-only OR Apache-2.0)", True),
        ("(MIT OR Apache-2.0) AND GPL-3.0-only", False),
        ("GPL-3.0-only OR (MIT AND PSF-2.0)", True),
        ("MIT GPL-3.0-only", False),
        ("(MIT", False),
        ("UNKNOWN", False),
        ("", False),
    ],
)
def test_an_expression_of_licences_is_kept_or_not(text: str, kept: bool) -> None:
    """AND needs both, OR one of them; what is no expression is refused."""
    assert licences.allowed(text, ALLOWED) is kept


def test_a_licence_is_what_a_person_read_then_what_the_package_says() -> None:
    """Its expression before its free text, a known spelling in place of it, and a whole text is no name of a licence."""
    row = {
        "Name": "a",
        "License-Expression": "UNKNOWN",
        "License-Metadata": "MIT style",
        "License-Classifier": "MIT License",
    }
    known = {"read": {"b": "PSF-2.0"}, "spellings": {"MIT style": "MIT", "MIT License": "MIT"}}
    assert licences.expression(row, known) == "MIT"
    assert licences.expression(row | {"License-Expression": "Apache-2.0"}, known) == "Apache-2.0"
    assert licences.expression(row | {"Name": "b"}, known) == "PSF-2.0"
    assert licences.expression(row | {"License-Metadata": "Permission is\nhereby granted"}, known) == "MIT"
    long = {"License-Metadata": "Permission is\nhereby granted", "License-Classifier": "UNKNOWN"}
    assert licences.expression(row | long, known) == "UNKNOWN"


def test_a_licence_that_nobody_allowed_fails_and_so_does_a_reading_of_nothing() -> None:
    """The message names the package."""
    read = [licences.Package(name, "1", said) for name, said in licences.rules()["read"].items()]
    assert "all allowed" in licences.licences(read)
    with pytest.raises(Failed, match=r"viral 2: AGPL-3\.0-only"):
        licences.licences([*read, licences.Package("viral", "2", "AGPL-3.0-only")])
    with pytest.raises(Failed, match=read[0].name):
        licences.licences(read[1:])


def test_what_does_not_belong_into_an_sdist_is_found() -> None:
    """A file that the commit has not, and what a run leaves behind even if somebody committed it."""
    tracked = {"a.py", "saved.rdb", "b/__pycache__/x"}
    files = dict.fromkeys(["a.py", "PKG-INFO", "notes.txt", "saved.rdb", "b/__pycache__/x"], b"")
    assert artefacts.strays(files, tracked) == ["b/__pycache__/x", "notes.txt", "saved.rdb"]


def test_a_path_of_this_machine_is_found() -> None:
    """As a word of its own: a longer name that begins like it is another one."""
    files = {"a": b'x = "/srv/build-7/tree/x"', "b": b"/srv/build-77", "c": b"nothing"}
    assert artefacts.traces(files, ["/srv/build-7"]) == ["a"]
    assert set(artefacts.machine_words(tmp := Path("/srv/build-7/tree"))) >= {str(tmp)}


def test_a_changed_file_breaks_its_record() -> None:
    """RECORD is compared with the bytes."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"x").digest()).rstrip(b"=").decode()
    wheel = {"a.py": b"x", "i/RECORD": f"a.py,sha256={digest},1\ni/RECORD,,\n".encode()}
    artefacts.recorded(wheel, "i/")
    with pytest.raises(Failed, match=r"a\.py"):
        artefacts.recorded(wheel | {"a.py": b"y"}, "i/")


def test_the_changelog_has_the_version(tmp_path: Path) -> None:
    """With a date, or with the word that it has none yet."""
    assert "CHANGELOG has it" in artefacts.changelog(ROOT, artefacts.version_of(ROOT))
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [0.2.0]\n\n## [0.1.0] - 2026-11-30\n")
    assert artefacts.changelog(tmp_path, "0.1.0") == "CHANGELOG has it (2026-11-30)"
    for wrong in ("0.2.0", "0.3.0", "0.1"):
        with pytest.raises(Failed):
            artefacts.changelog(tmp_path, wrong)


def test_a_name_is_free_or_our_own(tmp_path: Path) -> None:
    """A project on the index with versions that we never published is somebody else's; a version is published once."""
    assert naming.ours("p", "0.1.0", None, set()) == "the index has no project p"
    assert naming.ours("p", "0.2.0", ["0.1.0"], {"0.1.0"}).endswith("this project's: 0.1.0")
    for there, known in ((["1.0"], set()), (["0.1.0", "7.0"], {"0.1.0"}), (["0.2.0"], {"0.1.0", "0.2.0"})):
        with pytest.raises(Failed):
            naming.ours("p", "0.2.0", there, known)
    (tmp_path / "CHANGELOG.md").write_text("## [0.2.0] - unreleased\n\n## [0.1.0] - 2026-11-30\n")
    assert naming.dated(tmp_path) == {"0.1.0"}


def test_the_pages_install_what_is_built_and_silence_of_an_index_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another name on a page fails, and so does an index that knows no package at all."""
    monkeypatch.setattr(naming, "published", lambda name: ["26.0"] if name == "pip" else None)
    assert naming.name(ROOT, "0.1.0") == "the index has no project saga-engine"
    (tmp_path / "docs").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "saga-engine"\n')
    (tmp_path / "README.md").write_text("pip install 'saga-engines[http]'\n")
    (tmp_path / "README.zh.md").write_text("")
    with pytest.raises(Failed, match="saga-engines"):
        naming.name(tmp_path, "0.1.0")
    monkeypatch.setattr(naming, "published", lambda _: None)
    with pytest.raises(Failed, match="no index answers"):
        naming.name(ROOT, "0.1.0")


def test_every_extra_has_a_use() -> None:
    """An extra that nobody uses may lack a package and nobody would know."""
    uses = {path.stem for path in environments.USES.glob("use_*.py")}
    assert {f"use_{name.replace('-', '_')}" for name in ["base", *environments.extras(ROOT)]} == uses


def test_the_pythons_of_this_machine_are_found() -> None:
    """One of each minor version, this one among them; what the classifiers name and the machine lacks is said."""
    found = environments.pythons()
    minors = [each.version.split(".")[1] for each in found]
    assert len(set(minors)) == len(minors)
    assert str(sys.version_info.minor) in minors
    assert "3.12" in environments.missing([each for each in found if not each.version.startswith("3.12.")], ROOT)


def test_a_failed_check_counts_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report has a line for each, in the file as on the screen."""

    def bad() -> str:
        raise Failed("two bytes differ")

    report = Report()
    assert not report.check("first", bad)
    assert report.check("second", lambda: "three files")
    assert report.failures == 1
    report.write(tmp_path / "r.txt", ["more"])
    said = capsys.readouterr().out
    assert said.startswith("FAILED first: two bytes differ (")
    assert "\nok     second: three files (" in said
    assert (tmp_path / "r.txt").read_text() == said + "more\n"
