"""Flags win over the environment, that over saga.toml, that over the defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from saga_engine import settings
from saga_engine.errors import SettingInvalid


def write(folder: Path, text: str) -> None:
    (folder / "saga.toml").write_text(text)


def test_the_order_of_sources(tmp_path: Path) -> None:
    """Each source overrules the next."""
    write(tmp_path, '[saga]\nstore = "redis://toml"\nlease_s = 5\npatience_s = 3')
    found = settings.load(
        {"store": "redis://flag"}, cwd=tmp_path, environ={"SAGA_LEASE_S": "7", "SAGA_STORE": "redis://env"}
    )
    assert (found.store, found.lease_s, found.patience_s, found.keep_finished_s) == ("redis://flag", 7.0, 3, 2592000.0)


def test_paths_are_relative_to_where_they_are_written(tmp_path: Path) -> None:
    """saga.toml of a parent folder names files beside itself; a module's name is left alone."""
    write(tmp_path, '[saga]\nstore = "embedded://.saga"\ntools = ["tools.py:all", "pkg.tools"]')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    found = settings.load({}, cwd=inner, environ={})
    assert found.tools == (f"{tmp_path / 'tools.py'}:all", "pkg.tools")
    assert found.store == f"embedded://{tmp_path / '.saga'}"
    found = settings.load({"tools": ["x.py"]}, cwd=inner, environ={})
    assert found.tools == (str(inner / "x.py"),)


@pytest.mark.parametrize(
    ("text", "environ", "word"),
    [
        ("[saga]\nstroe = 1", {}, "stroe"),
        ("[saga", {}, "cannot be read"),
        ("saga = 3", {}, "table"),
        ('[saga]\ndurability = "maybe"', {}, "durability"),
        ("[saga]\nlease_s = 0", {}, "lease_s"),
        ("[saga]\nlease_s = true", {}, "lease_s"),
        ("[saga]\ntools = [1]", {}, "tools"),
        ("[saga]\ntools = 0", {}, "tools"),
        ("[saga]\ntools = true", {}, "tools"),
        ("[saga]\ntools = { a = 1 }", {}, "tools"),
        ("[saga]\nstore = 1", {}, "store"),
        ("", {"SAGA_PATIENCE_S": "long"}, "SAGA_PATIENCE_S"),
        ("", {"SAGA_LEASE_S": "nan"}, "lease_s"),
        ("", {"SAGA_CONFIG": "/nowhere/saga.toml"}, "SAGA_CONFIG"),
    ],
)
def test_what_has_no_meaning_is_refused(tmp_path: Path, text: str, environ: dict[str, str], word: str) -> None:
    """A typo in a setting is an error that names it, never a silent default."""
    write(tmp_path, text)
    with pytest.raises(SettingInvalid, match=word):
        settings.load({}, cwd=tmp_path, environ=environ)


def test_the_tables_of_other_rooms_are_kept_as_they_are(tmp_path: Path) -> None:
    """Policy, options of tools and HTTP tools reach their readers, with the folder and the name of the file."""
    write(tmp_path, '[policy]\ndefault = "deny"\n[tools."pay_*"]\ntimeout_s = 5\n[http.ping]\nmethod = "GET"')
    found = settings.load({}, cwd=tmp_path, environ={})
    assert found.policy == {"default": "deny"}
    assert found.tool_options == {"pay_*": {"timeout_s": 5}}
    assert found.http_tools == {"ping": {"method": "GET"}}
    assert (found.file_base, found.file_name) == (tmp_path, "saga.toml")
    assert found.names_tools
    other = tmp_path / "ops.toml"
    other.write_text("[tools.x]\nrate = '1/s'")
    found = settings.load({}, cwd=tmp_path, environ={"SAGA_CONFIG": str(other)})
    assert (found.file_name, found.tool_options) == ("ops.toml", {"x": {"rate": "1/s"}})
    # What the named file does not say, the nearer one still does.
    assert found.http_tools == {"ping": {"method": "GET"}}
    assert (found.origin("http"), found.origin("tools")) == ((tmp_path, "saga.toml"), (tmp_path, "ops.toml"))
    assert [file.name for file in found.holding("tools")] == ["ops.toml", "saga.toml"]


@pytest.mark.parametrize("text", ["[polcy]\nx = 1", "tools = 3", "[[policy]]\nx = 1", "http = []"])
def test_a_table_that_nobody_reads_is_refused(tmp_path: Path, text: str) -> None:
    """A typing error in a table's name would switch a guard off; so would one in its kind."""
    write(tmp_path, text)
    with pytest.raises(SettingInvalid):
        settings.load({}, cwd=tmp_path, environ={})


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A table with two fields."""

    host: str
    ports: list[int] = field(default_factory=lambda: [1, 2])


def test_a_table_is_read_as_it_is_declared() -> None:
    """Defaults are the declaration's. What is read and not declared, or the other way round, is an error of ours."""
    reader = settings.TableReader("[x]", {"host": "here"}, of=Declared)
    assert (reader.text("host"), reader.any("ports")) == ("here", [1, 2])
    reader.end()
    with pytest.raises(LookupError, match="port of"):
        reader.any("port")
    reader = settings.TableReader("[x]", {}, of=Declared)
    assert reader.text("host") == ""
    with pytest.raises(LookupError, match=r"ports of .* not read"):
        reader.end()
    reader = settings.TableReader("[x]", {"prots": []}, of=Declared)
    reader.any("ports")
    with pytest.raises(SettingInvalid, match="prots") as refused:
        reader.end()
    assert refused.value.hint == "did you mean ports?"


# --- whose file it is ----------------------------------------------------------------------------------------------


AS_ROOT = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")


@AS_ROOT
@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_a_file_of_another_user_is_refused(tmp_path: Path, what: str) -> None:
    """It names code that is run, and stands in a folder above: nobody but its reader and root may have written it."""
    folder = tmp_path / "shared"
    folder.mkdir()
    write(folder, "")
    below = folder / "below"
    below.mkdir()
    if what == "link":
        (folder / "saga.toml").rename(tmp_path / "mine.toml")
        (folder / "saga.toml").symlink_to(tmp_path / "mine.toml")
    settings.load({}, cwd=below, environ={})
    os.chown(folder if what == "folder" else folder / "saga.toml", 12345, -1, follow_symlinks=False)
    with pytest.raises(SettingInvalid, match="belongs to another user"):
        settings.load({}, cwd=below, environ={})
    # Named, it is trusted.
    assert settings.load({}, cwd=below, environ={"SAGA_CONFIG": str(folder / "saga.toml")}).file_base == folder


def test_a_file_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    """Whoever can write to it can run code as its reader."""
    write(tmp_path, "")
    (tmp_path / "saga.toml").chmod(0o666)
    with pytest.raises(SettingInvalid, match="every user may write"):
        settings.load({}, cwd=tmp_path, environ={})


@AS_ROOT
def test_under_sudo_the_caller_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git does: root works in the folder of who called sudo."""
    write(tmp_path, "[saga]\nlease_s = 7")
    os.chown(tmp_path / "saga.toml", 12345, -1)
    monkeypatch.setenv("SUDO_UID", "12345")
    assert settings.load({}, cwd=tmp_path, environ={}).lease_s == 7


@pytest.mark.parametrize("named", [False, True])
def test_the_operators_file_is_read_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    """A nearer file wins over one that is found in /etc, one that is named wins over the nearer; limits are the least."""
    project = tmp_path / "project"
    project.mkdir()
    operators = tmp_path / "operator.toml"
    operators.write_text('[saga]\nqueue_limit = 10\nlease_s = 3\npatience_s = 4\n[policy]\ndefault = "deny"')
    write(project, '[saga]\nqueue_limit = 20\nlease_s = 5\n[policy]\ndefault = "allow"\n[trace]\nredact = ["**.x"]')
    environ = {"SAGA_CONFIG": str(operators)} if named else {}
    if not named:
        monkeypatch.setattr(settings, "OPERATOR_FILE", operators)
    found = settings.load({}, cwd=project, environ=environ)
    assert (found.queue_limit, found.lease_s, found.patience_s) == (10, 3 if named else 5, 4)
    assert [file.tables["policy"]["default"] for file in found.holding("policy")] == ["deny", "allow"]
    assert (found.trace, found.origin("trace")[1]) == ({"redact": ["**.x"]}, "saga.toml")


def test_the_operators_file_is_read_once(tmp_path: Path) -> None:
    """It may be the nearest file, too."""
    write(tmp_path, '[policy]\ndefault = "deny"')
    found = settings.load({}, cwd=tmp_path, environ={"SAGA_CONFIG": str(tmp_path / "saga.toml")})
    assert len(found.files) == 1


@pytest.mark.parametrize("url", ["temporal://ada:s3cr3t@host:7233/x", "temporal://s3cr3t@host", "temporal://h:s3cr3t@x:y",
                                 "temporal://host/x?key=s3cr3t", "redis://ada:s3cr3t@host"])  # fmt: skip
def test_an_address_with_a_login_is_refused_without_showing_it(url: str) -> None:
    """Keys of Temporal stand in its own variables; whoever writes one into the address does not find it in an error."""
    from saga_engine.temporal.client import Address

    with pytest.raises(SettingInvalid) as refused:
        Address.parse(url)
    assert "s3cr3t" not in str(refused.value.to_dict())
    assert "s3cr3t" not in settings.without_login(url)


def test_the_doctor_shows_no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the store's password nor one in a runtime's address."""
    from saga_engine.cli.doctor import _in_force

    monkeypatch.chdir(tmp_path)
    found = settings.load({"runtime": "temporal://ada:s3cr3t@host", "store": "redis://:s3cr3t@host"}, environ={})
    assert "s3cr3t" not in str(_in_force(found, {}))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[limit]\nmax_calls = 3\n", "did you mean limits?"),
        ('[saga]\ntool = ["a.py"]\n', "did you mean tools?"),
        ("[saga]\npolicies = 1\n", "did you mean the table [policy]?"),
    ],
)
def test_a_table_with_a_typing_error_is_answered_with_the_one_that_is_meant(tmp_path, text, hint):
    """Tables and settings that do not exist get the nearest name, and all names."""
    (tmp_path / "saga.toml").write_text(text)
    with pytest.raises(SettingInvalid) as refused:
        settings.load({}, environ={}, cwd=tmp_path)
    assert refused.value.hint.startswith(hint)
