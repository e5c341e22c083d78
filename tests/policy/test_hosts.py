"""Hosts in params, attacked: one spelling each, and only addresses that may be called."""

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.policy.conditions import Condition
from saga_engine.policy.hosts import Addresses, HostPattern, HostRefused, host_of
from saga_engine.policy.rules import Policy, Rule
from tests.policy.world import NAMES, PUBLIC, PUBLIC_6, both, names, policy_of, says

LOOPBACK = "127.0.0.1"

SAME = [
    ("example.com", "example.com"),
    ("EXAMPLE.com", "example.com"),
    ("example.com.", "example.com"),
    ("example.com:8080", "example.com"),
    ("https://Example.COM", "example.com"),
    ("https://example.com:443/a?b=c@d#e@f", "example.com"),
    ("HTTPS://example.com?x", "example.com"),
    ("https://example.com#x", "example.com"),
    ("https://example.com/@evil.example", "example.com"),
    ("https://example.com/%40", "example.com"),
    ("wss://my_host-1.example.com/", "my_host-1.example.com"),
    ("localhost", "localhost"),
    ("https://bücher.example/", "xn--bcher-kva.example"),
    ("https://BÜCHER.example/", "xn--bcher-kva.example"),
    ("bu\u0308cher.example", "xn--bcher-kva.example"),  # composed by all readers alike
    ("аpple.example", "xn--pple-43d.example"),  # a Cyrillic letter makes another name
    ("93.184.216.34", "93.184.216.34"),
    # loopback in all its clothes
    ("127.0.0.1", LOOPBACK),
    ("127.0.0.1.", LOOPBACK),
    ("http://127.0.0.1:80/", LOOPBACK),
    ("2130706433", LOOPBACK),
    ("http://2130706433/", LOOPBACK),
    ("0x7f000001", LOOPBACK),
    ("0X7F000001", LOOPBACK),
    ("0x7f.1", LOOPBACK),
    ("0177.0.0.1", LOOPBACK),
    ("017700000001", LOOPBACK),
    ("127.1", LOOPBACK),
    ("127.0.1", LOOPBACK),
    ("0x7f.0x0.0x0.0x1", LOOPBACK),
    ("::ffff:127.0.0.1", LOOPBACK),
    ("[::ffff:127.0.0.1]", LOOPBACK),
    ("http://[::ffff:7f00:1]:80/", LOOPBACK),
    ("[0:0:0:0:0:FFFF:7F00:0001]", LOOPBACK),
    ("0", "0.0.0.0"),
    ("::1", "::1"),
    ("[::1]", "::1"),
    ("[::1]:443", "::1"),
    ("http://[0:0:0:0:0:0:0:1]/", "::1"),
    ("fe80::1%eth0", "fe80::1"),
    ("[fe80::1%25eth0]", "fe80::1"),
    ("2606:2800:0220:0001:0248:1893:25c8:1946", PUBLIC_6),
]


@pytest.mark.parametrize(("text", "host"), SAME)
def test_each_host_has_one_spelling(text, host):
    """Whatever the encoding of an address and the case of a name, there is one form, and it is its own."""
    assert host_of(text) == host
    assert host_of(host) == host


REFUSED = [
    "",
    " ",
    "https://",
    "https:///evil.example",
    "https:evil.example",
    "https:/evil.example",
    "//evil.example/x",
    "/evil.example",
    "evil.example/x",
    "file:///etc/passwd",
    "mailto:bob@example.com",
    # user information
    "https://example.com@evil.example/",
    "https://user:pw@example.com/",
    "https://@example.com/",
    "https://example.com%40evil.example/",
    "https://evil.example?@example.com/",
    "https://evil.example#@example.com/",
    "https://evil.example;@example.com/",
    "user@example.com",
    # backslashes
    "https://evil.example\\@example.com/",
    "https:\\\\example.com",
    "https://example.com\\.evil.example",
    "https://example.com/\\evil.example",
    # white space and control characters
    "https://example.com /",
    " https://example.com",
    "https://example.com\n",
    "https://exam\tple.com",
    "https://example.com\x00.evil.example",
    "https://example.com\x7f",
    "https://example.com/\r\nHost: evil.example",
    "https://exa\u00admple.com",  # a soft hyphen, which IDNA drops
    "https://exam\u200bple.com",
    "https://example\u3000.com",
    "https://example.com\u2028",
    # escapes
    "https://%65xample.com/",
    "https://example.com%2f.evil.example/",
    "https://127.0.0.1%00.example.com",
    # letters that stand for others
    "https://ｅxample.com/",
    "https://example。com/",
    "https://example．com/",
    "https://ⓔⓧⓐⓜⓟⓛⓔ.com/",
    "https://１２７.０.０.１/",
    "https://127。0。0。1/",
    "https://⑫7.0.0.1/",
    "https://straße.example/",  # the versions of IDNA disagree
    "https://ℯxample.com",
    "https://a℀b.example/",  # a/c
    # no names
    "https://exa mple.com",
    "https://exam*ple.com",
    "https://.example.com",
    "https://example..com",
    "https://example.com..",
    "https://" + "a" * 64 + ".com",
    "https://" + "a." * 130 + "com",
    "https://" + "é" * 300 + ".com",
    "https://ex!ample.com",
    "https://{host}/",
    "https://example.com,evil.example/",
    "https://example.com&evil.example/",
    # no addresses
    "256.0.0.1",
    "1.2.3.4.5",
    "0x100000000",
    "4294967296",
    "127.0.0.09",
    "example.1",
    "example.0x7f",
    "[::1",
    "::1]",
    "[::1]evil.example",
    "[::1].evil.example",
    "[127.0.0.1]",
    "[example.com]",
    "[]",
    "::gg",
    "2606:2800:220:1::1%eth0",
    # ports
    "example.com:",
    "example.com:x",
    "example.com:99999",
    "example.com:8_0",
    "example.com:８０",
    "example.com:80:80",
    "https://example.com:80@evil.example/",
    "https://" + "a" * 9000,
    None,
    5,
    True,
    ["example.com"],
    b"example.com",
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: ascii(text)[:50])
def test_what_readers_could_take_for_different_hosts_has_none(text):
    """The reason never repeats the text, which may hold a secret."""
    with pytest.raises(ValueError) as error:
        host_of(text)
    assert not (isinstance(text, str) and len(text) > 3 and text in str(error.value))


@given(st.text(alphabet="ab.:/@\\%[]0x7f1?#ü．。\t ", max_size=24))
def test_a_spelling_is_final(text):
    """Whatever is accepted is plain: reading it again changes nothing, and it holds no separator of URLs."""
    try:
        host = host_of(f"https://{text}")
    except ValueError:
        return
    assert host_of(host) == host
    assert host.isascii()
    assert not set(host) & set("/@\\%[]?# \t")


# --- addresses -----------------------------------------------------------------------------------------------------

NOT_PUBLIC = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::1",  # 6to4 of loopback
    "2002:a00:1::1",  # 6to4 of 10.0.0.1
    "2002:a9fe:a9fe::1",  # 6to4 of 169.254.169.254
    "64:ff9b::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "3fff::1",
    "5f00::1",
    "4000::1",
    "not an address",
    "127.1",
]
ALL_PUBLIC = ["93.184.216.34", "8.8.8.8", "100.128.0.1", "172.32.0.1", PUBLIC_6, "2002:808:808::1", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_that_are_not_public_are_refused(address):
    """In their own form, and wrapped into a form that a translator or a tunnel unwraps."""
    assert Addresses(()).refused(address)


@pytest.mark.parametrize("address", [*ALL_PUBLIC, "::ffff:8.8.8.8"])
def test_public_addresses_are_not_refused(address):
    """What the whole internet may call, this engine may call."""
    assert Addresses(()).refused(address) is None


def test_addresses_that_were_allowed():
    """An operator opens single addresses or networks; forms that only wrap them stay closed, but for the mapped one."""
    some = Addresses(["127.0.0.1", "10.1.0.0/16", "fd00::/8", "::ffff:192.168.0.1"])
    for address in ("127.0.0.1", "::ffff:127.0.0.1", "10.1.255.1", "fd12::1", "192.168.0.1"):
        assert some.refused(address) is None
    for address in ("127.0.0.2", "10.2.0.1", "::1", "64:ff9b::10.1.0.1", "2002:a01:1::1", "192.168.0.2"):
        assert some.refused(address)


@pytest.mark.parametrize("text", ["", "localhost", "10.1.2.3/16", "10.0.0.0/33", "*", 5, None])
def test_allowed_addresses_are_addresses(text):
    """A name, or a network with a typing error in it, opens nothing."""
    with pytest.raises(ValueError):
        Addresses([text])


async def test_resolving_checks_every_address():
    """One refused address refuses the host: nobody knows which one would be called."""
    addresses = Addresses((), resolver=names)
    assert await addresses.resolve("api.example.com", 443) == [PUBLIC, PUBLIC_6]
    assert await addresses.resolve(f"[{PUBLIC_6}]", 443) == [PUBLIC_6]
    for host in ("inside.example", "half.example", "mapped.example", "metadata.example", LOOPBACK, "0x7f.1", "a@b"):
        with pytest.raises(HostRefused) as error:
            await addresses.resolve(host, 443)
        assert not error.value.unavailable


async def test_what_does_not_resolve_is_not_refused_but_unavailable():
    """A name without an address may have one tomorrow, which a caller can wait for."""
    for host in ("nowhere.example", "empty.example"):
        with pytest.raises(HostRefused) as error:
            await Addresses((), resolver=names).resolve(host)
        assert error.value.unavailable


async def test_the_system_resolves_names():
    """The system's own resolver is asked: 'localhost' leads to this machine, whatever it is called."""
    with pytest.raises(HostRefused, match="not public"):
        await Addresses(()).resolve("localhost", 80)
    everywhere = Addresses(["127.0.0.0/8", "::1"])
    assert set(await everywhere.resolve("localhost", 80)) <= {"127.0.0.1", "::1"}


# --- conditions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("https://api.example.com/v1", "yes"),
        ("API.EXAMPLE.COM.", "yes"),
        ("example.com", "no"),
        ("https://evil-example.com", "no"),
        ("https://evil.example/?u=api.example.com", "no"),
        (f"https://{PUBLIC}/", "no"),
        ("https://nowhere.example", "doubt"),
        ("https://a.example.com", "doubt"),  # fits the glob and does not resolve
        ("https://inside.example", "doubt"),
        ("https://half.example", "doubt"),
        ("http://localhost", "doubt"),
        ("http://127.0.0.1", "doubt"),
        ("http://2130706433", "doubt"),
        ("http://[::1]/", "doubt"),
        ("https://api.example.com@evil.example", "doubt"),
        ("https://evil.example\\@api.example.com", "doubt"),
        ("", "doubt"),
        (None, "doubt"),
        (["https://api.example.com"], "doubt"),
        ({"url": "https://api.example.com"}, "doubt"),
    ],
)
async def test_hosts_in_params(host, expected):
    """A host counts after it was resolved: what leads inside, or nowhere, holds every denial and no permission."""
    params = {"url": host}
    assert await both("url", "host", "*.example.com", params=params) == expected
    opposite = {"yes": "no", "no": "yes", "doubt": "doubt"}[expected]
    assert await both("url", "not-host", ["*.example.com"], params=params) == opposite


async def test_a_host_that_leads_inside_is_denied_by_any_rule_about_hosts():
    """The address is checked before the name: no glob has to fit for a denial."""
    denies = policy_of(("url", "host", "never.example"))
    assert await says(denies, {"url": "http://metadata.example/latest"}) == "deny"
    assert await says(denies, {"url": "http://example.com/latest"}) == "allow"
    opened = policy_of(("url", "host", "never.example"), allow_private=["169.254.169.254"])
    assert await says(opened, {"url": "http://metadata.example/latest"}) == "allow"


@pytest.mark.parametrize("opened", [(), ("127.0.0.0/8", "::1")])
async def test_localhost_is_an_address_inside(opened):
    """The system's own resolver is asked; a rule about the name helps only after the operator has opened loopback."""
    rule = Rule(name="local", verdict="allow", when=[Condition("url", "host", "localhost")])
    policy = Policy([rule], "deny", opened)
    assert await says(policy, {"url": "http://localhost:8000/"}) == ("allow" if opened else "deny")


async def test_addresses_as_patterns():
    """A rule about addresses speaks of what a name leads to, not of how it is called."""
    assert await both("url", "host", PUBLIC, params={"url": "https://evil.example"}) == "yes"
    assert await both("url", "host", "93.184.216.0/24", params={"url": "https://two.example"}) == "yes"
    assert await both("url", "host", PUBLIC, params={"url": "https://two.example"}) == "doubt"
    assert await both("url", "host", PUBLIC_6, params={"url": f"https://[{PUBLIC_6}]:8443/"}) == "yes"
    assert await both("url", "host", "8.8.8.8", params={"url": "https://evil.example"}) == "no"


@pytest.mark.parametrize("text", ["", "a b", "https://example.com", "exa/mple", "127.1", "[a-z].com", "a..b", 5, "a@b"])
def test_patterns_that_make_no_sense_are_refused(text):
    """A pattern that could never fit a host is a typing error."""
    with pytest.raises(ValueError):
        HostPattern(text)


def test_patterns_are_read_like_hosts():
    """Case, a dot at the end and letters beyond ASCII make no difference."""
    assert HostPattern("*.EXAMPLE.com.").matches("api.example.com", [PUBLIC])
    assert HostPattern("bücher.example").matches("xn--bcher-kva.example", [PUBLIC])
    assert HostPattern("a?.example").matches("ab.example", [PUBLIC])
    assert not HostPattern("a?.example").matches("abc.example", [PUBLIC])


async def test_a_resolver_that_does_not_answer_decides_nothing(monkeypatch):
    """Waiting for a name has an end, and what was not looked up is in doubt."""
    monkeypatch.setattr("saga_engine.policy.conditions.PATIENCE_S", 0.01)
    never = asyncio.Event()

    async def silent(host, port):
        await never.wait()

    policy = policy_of(("url", "host", "*.example.com"))
    policy.addresses._resolver = silent
    assert await says(policy, {"url": "https://evil.example"}) == "deny"


def test_the_world_of_these_tests_is_well_formed():
    """Every public address of the tests is public, and names resolve as the system would."""
    assert not Addresses(()).refused(PUBLIC)
    assert issubclass(socket.gaierror, OSError)
    assert all(host_of(name) == name for name in NAMES)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "168.63.129.16",
            "161.26.0.7",
            "166.9.48.1",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
        ),
        *(
            "::ffff:168.63.129.16",
            "64:ff9b::a83f:8110",
            "2002:a83f:8110::1",
            "2600::5efe:10.0.0.1",
            "2600::200:5efe:7f00:1",
        ),
        *("64:ff9b:1::1", "5f00::1", "100::1", "198.19.0.1", "255.255.255.255", "2001:0:1::1"),
    ],
)
def test_what_only_the_inside_of_a_cloud_can_reach_is_not_public(address):
    """Metadata and host services of clouds, some of them in public ranges, however they are wrapped."""
    assert Addresses([]).refused(address)
    assert Addresses([address]).refused(address) is None


@pytest.mark.parametrize("address", ["168.63.129.17", "161.27.0.1", "166.12.0.1", "2600::5eff:808:808", "9.9.9.9"])
def test_their_neighbours_are_public(address):
    """Nothing beside them is refused."""
    assert Addresses([]).refused(address) is None
