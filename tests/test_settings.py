"""Flags win over the environment, that over saga.toml, that over the defaults."""

from __future__ import annotations

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
    assert not found.names_tools


@pytest.mark.parametrize("text", ["[polcy]\nx = 1", "tools = 3", "[[policy]]\nx = 1", "http = []"])
def test_a_table_that_nobody_reads_is_refused(tmp_path: Path, text: str) -> None:
    """A typing error in a table's name would switch a guard off; so would one in its kind."""
    write(tmp_path, text)
    with pytest.raises(SettingInvalid):
        settings.load({}, cwd=tmp_path, environ={})
